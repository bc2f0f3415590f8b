//! What a call is: its name, and those of its arguments that hooks look at.

use core::ffi::{c_int, c_void};

use ripstop_abi as abi;

/// A call of the interface. There is one constant of each, so hooks tell them apart by address.
#[derive(Debug)]
pub struct CallInfo {
    /// As programs write it, `fi_tsend`.
    pub name: &'static str,
    /// What it does to data; `None` for calls that move none.
    pub kind: Option<Kind>,
    /// Its place in the files of the hook `monitor`.
    pub monitored: Option<u8>,
}

impl CallInfo {
    /// The call that programs write so.
    #[must_use]
    pub const fn new(name: &'static str, kind: Option<Kind>) -> Self {
        let monitored = crate::layout::place(name);
        Self {
            name,
            kind,
            monitored,
        }
    }
}

/// What an operation does with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message that is sent, tagged or not.
    Send = 1,
    /// A posted receive.
    Recv,
    /// A read of remote memory.
    Read,
    /// A write of remote memory.
    Write,
    /// An atomic operation on remote memory, fetching or not.
    Atomic,
    /// A part of a collective operation.
    Collective,
}

impl Kind {
    /// The flags that the completion of such an operation may have; another bit of the same set
    /// says that the completion is of another kind.
    const fn flags(self) -> u64 {
        match self {
            Self::Send => abi::FI_SEND,
            Self::Recv => abi::FI_RECV,
            Self::Read => abi::FI_READ,
            Self::Write => abi::FI_WRITE,
            Self::Atomic => abi::FI_ATOMIC,
            Self::Collective => abi::FI_COLLECTIVE,
        }
    }

    /// Whether a completion with these flags can be of such an operation.
    #[must_use]
    pub const fn fits(self, flags: u64) -> bool {
        const ALL: u64 = abi::FI_SEND
            | abi::FI_RECV
            | abi::FI_READ
            | abi::FI_WRITE
            | abi::FI_ATOMIC
            | abi::FI_COLLECTIVE;
        flags & ALL == 0 || flags & self.flags() != 0
    }

    /// Whether the endpoint's transmit side does it.
    #[must_use]
    pub const fn is_transmit(self) -> bool {
        !matches!(self, Self::Recv)
    }
}

/// The local memory of an operation, as the caller gave it.
#[derive(Clone, Copy, Debug)]
pub enum Buffers {
    /// None, or of a form that hooks do not look into.
    None,
    /// One buffer.
    One(*const c_void, usize),
    /// Several buffers.
    Many {
        /// Where they are listed.
        iov: *const abi::iovec,
        /// How many there are.
        count: usize,
        /// Where as many descriptors are listed, or null.
        descs: *const *mut c_void,
    },
}

/// Memory that is registered.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// The memory; none where it is not named by addresses of the process.
    pub buffers: Buffers,
    /// How many bytes it has.
    pub bytes: usize,
    /// What kind of memory it is.
    pub iface: abi::fi_hmem_iface,
    /// What may be done with it.
    pub access: u64,
}

/// An operation that moves data.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// What it does.
    pub kind: Kind,
    /// The memory of this side: what is sent or written, or where to.
    pub buffers: Buffers,
    /// How many bytes that memory has.
    pub bytes: usize,
    /// The first descriptor that the caller gave, or null.
    pub desc: *mut c_void,
    /// The peer, or `FI_ADDR_UNSPEC`; of no meaning on connected endpoints.
    pub peer: abi::fi_addr_t,
    /// The context of its completion.
    pub context: *mut c_void,
    /// The flags of the call, in place of the endpoint's; `None` where the call has none.
    pub flags: Option<u64>,
    /// Its tag, 0 without one.
    pub tag: u64,
    /// Whether it has a tag.
    pub is_tagged: bool,
    /// Whether it ends with the call (`fi_inject`), so that no completion follows.
    pub is_injected: bool,
}

/// Entries that a read of a completion queue has stored.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// Where they begin.
    pub buf: *const c_void,
    /// Where the sources of messages begin, or null.
    pub sources: *const abi::fi_addr_t,
}

/// The arguments of a call that hooks look at.
#[derive(Clone, Copy, Debug)]
pub enum Detail {
    /// Nothing.
    None,
    /// An operation that moves data.
    Transfer(Transfer),
    /// A read of a completion queue, whose result is the number of entries.
    Entries(Entries),
    /// A read of a completion in error.
    ErrorEntry(*const abi::fi_cq_err_entry),
    /// An operation to cancel, by its context.
    Cancel(*mut c_void),
    /// A command of `fi_control`.
    Control(c_int),
    /// An option of `fi_setopt`, by its name.
    Option(c_int),
    /// Another object is bound to this one, by its address.
    Bind(usize),
    /// Memory is registered.
    Register(Registration),
    /// The object is closed.
    Close,
}

/// A call under way.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Which one.
    pub info: &'static CallInfo,
    /// Its arguments.
    pub detail: Detail,
}

impl Call {
    /// The operation, if it is one that moves data.
    #[must_use]
    #[inline]
    pub const fn transfer(&self) -> Option<&Transfer> {
        match &self.detail {
            Detail::Transfer(transfer) => Some(transfer),
            _ => None,
        }
    }
}
