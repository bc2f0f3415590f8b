//! What objects are opened with.

use ripstop_mem::UserBuf;
use ripstop_os::Shareable;
use ripstop_types::{AvType, CqFormat, Flags, WaitObj};

/// Attributes of a completion queue (`struct fi_cq_attr`).
#[derive(Clone, Copy, Debug, Default)]
pub struct CqAttr {
    /// Entries wanted; 0 for the provider's choice.
    pub size: usize,
    /// `FI_AFFINITY` or nothing.
    pub flags: Flags,
    /// Entry format the caller will read; the provider only needs it for reporting.
    pub format: CqFormat,
    /// How the caller waits.
    pub wait: WaitObj,
}

/// Attributes of a counter (`struct fi_cntr_attr`).
#[derive(Clone, Copy, Debug, Default)]
pub struct CounterAttr {
    /// Count bytes instead of completions.
    pub bytes: bool,
    /// How the caller waits.
    pub wait: WaitObj,
}

/// Attributes of an address vector (`struct fi_av_attr`).
#[derive(Clone, Debug, Default)]
pub struct AvAttr {
    /// Map or table.
    pub av_type: AvType,
    /// Expected number of addresses; 0 if unknown.
    pub count: usize,
    /// `FI_EVENT`: insertions report to the event queue. `FI_AV_USER_ID`: completions report
    /// peers by the ids of [`AddressVector::set_user_id`](super::AddressVector::set_user_id), and those without as nobody.
    pub flags: Flags,
    /// Upper bits of a fabric address that name a receive context of the peer (`fi_rx_addr`).
    pub rx_ctx_bits: u8,
    /// Processes of this machine that open an address vector of this name share it
    /// (`FI_SHARED_AV`); with `FI_READ` in `flags` it must exist, and cannot be changed.
    pub name: Option<String>,
}

/// A memory registration request (`struct fi_mr_attr`).
#[derive(Clone, Debug)]
pub struct MrAttr {
    /// The memory, at most `mr_iov_limit` pieces.
    pub iov: Vec<UserBuf>,
    /// What it may be used for: `SEND`, `RECV`, `READ`, `WRITE`, `REMOTE_READ`, `REMOTE_WRITE`.
    pub access: Flags,
    /// Start of the remote address range, for offset addressing.
    pub offset: u64,
    /// The key the caller wants, where the caller chooses keys.
    pub requested_key: u64,
    /// Registration flags.
    pub flags: Flags,
    /// Whether peers on this machine may map the memory.
    pub shared: Sharing,
}

impl MrAttr {
    /// One buffer as `fi_mr_reg` registers it, which peers do not map.
    #[must_use]
    pub fn of_buf(buf: UserBuf, access: Flags, requested_key: u64) -> Self {
        Self {
            iov: vec![buf],
            access,
            offset: 0,
            requested_key,
            flags: Flags::empty(),
            shared: Sharing::Never,
        }
    }
}

/// Whether peers on this machine may map registered memory. Those that do reach all of the memory
/// that its descriptor names, and a hostile one may do so as long as that lives.
#[derive(Clone, Debug, Default)]
pub enum Sharing {
    /// They may not.
    #[default]
    Never,
    /// They may map this: as long as the one piece of `iov`, and the same bytes.
    Part(Shareable),
    /// They may where the memory turns out to be such that the caller can have made it for that
    /// only: from `memfd_create(2)`, and sealed against shrinking.
    IfSealed,
}
