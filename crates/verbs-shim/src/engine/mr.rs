//! Memory regions: what local keys and remote keys name.

use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Flags, Result, flags};

use crate::device::MAX_SGE;
use crate::log::{Subsys, refuse};
use crate::net::Region;
use crate::sys::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_OPTIONAL, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_sge,
};

/// Flags of `ibv_reg_mr` that are carried out, or that a device may ignore.
const KNOWN: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_HUGETLB
    | IBV_ACCESS_OPTIONAL;

/// What a region is registered for, in the provider's words.
///
/// # Errors
/// `EOPNOTSUPP` for what this device does not do; `EINVAL` for what no device does (`ibv_reg_mr(3)`).
pub(crate) fn access(asked: u32) -> Result<Flags> {
    if asked & !KNOWN != 0 {
        return Err(refuse(
            Subsys::Mr,
            Errno::EOPNOTSUPP,
            format_args!(
                "access flags {:#x}: there are no memory windows, zero-based regions and on-demand paging",
                asked & !KNOWN
            ),
        ));
    }
    let changed = asked & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) != 0;
    if changed && asked & IBV_ACCESS_LOCAL_WRITE == 0 {
        return Err(refuse(
            Subsys::Mr,
            Errno::EINVAL,
            format_args!("remote writes and atomics need IBV_ACCESS_LOCAL_WRITE"),
        ));
    }
    let mut access = flags![SEND RECV READ WRITE];
    if asked & IBV_ACCESS_REMOTE_READ != 0 {
        access |= Flags::REMOTE_READ;
    }
    if asked & IBV_ACCESS_REMOTE_WRITE != 0 {
        access |= Flags::REMOTE_WRITE;
    }
    if asked & IBV_ACCESS_REMOTE_ATOMIC != 0 {
        access |= flags![REMOTE_READ REMOTE_WRITE];
    }
    Ok(access)
}

/// A registered region.
pub(crate) struct Mr {
    pub(crate) memory: UserBuf,
    pub(crate) pd: u32,
    pub(crate) writable: bool,
    /// Kept so that peers reach the memory.
    pub(crate) _region: Box<dyn Region>,
}

/// The local memory of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sges {
    bufs: [UserBuf; MAX_SGE],
    keys: [u32; MAX_SGE],
    count: usize,
}

impl Sges {
    /// No memory.
    pub(crate) const NONE: Self = Self {
        bufs: [UserBuf::EMPTY; MAX_SGE],
        keys: [0; MAX_SGE],
        count: 0,
    };

    /// The pieces, for the provider.
    pub(crate) fn bufs(&self) -> &[UserBuf] {
        &self.bufs[..self.count]
    }

    /// Whether it is memory of the region with this key.
    pub(crate) fn uses(&self, key: u32) -> bool {
        self.keys[..self.count].contains(&key)
    }

    /// Bytes in all.
    pub(crate) fn len(&self) -> u64 {
        self.bufs().iter().map(|buf| buf.len() as u64).sum()
    }

    /// Adds a piece; more than [`MAX_SGE`] are refused before.
    fn push(&mut self, buf: UserBuf, key: u32) {
        if let (Some(at), Some(of)) = (self.bufs.get_mut(self.count), self.keys.get_mut(self.count))
        {
            (*at, *of) = (buf, key);
            self.count += 1;
        }
    }
}

/// Finds the memory that scatter-gather elements name, which a request reads, or writes with `write`; `None`
/// where a key, a range, the protection domain or the access is wrong.
pub(crate) fn resolve<'a>(
    list: &[ibv_sge],
    pd: u32,
    write: bool,
    find: impl Fn(u32) -> Option<&'a Mr>,
) -> Option<Sges> {
    let mut found = Sges::NONE;
    // As devices do, elements without bytes are passed over.
    for sge in list.iter().filter(|sge| sge.length > 0) {
        let mr = find(sge.lkey).filter(|mr| mr.pd == pd && (mr.writable || !write))?;
        let offset = sge.addr.checked_sub(mr.memory.addr() as u64)?;
        let piece = mr
            .memory
            .slice(usize::try_from(offset).ok()?, sge.length as usize)?;
        found.push(piece, sge.lkey);
    }
    Some(found)
}
