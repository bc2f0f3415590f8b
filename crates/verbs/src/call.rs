//! What the calls of endpoints and of shared receive contexts have in common.

use ripstop_core::fi_warn_sparse;
use ripstop_core::log::Subsys;
use ripstop_ibverbs::{PostError, Sge};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Flags, Result};

use crate::domain::Domain;
use crate::params::{IOV_MOST, NAME};
use crate::regions::Hit;

/// The bytes of a list of buffers, which is not too long.
pub(crate) fn length(iov: &[UserBuf], limit: usize) -> Result<usize> {
    if iov.len() > limit.min(IOV_MOST) {
        return Err(Errno::EINVAL);
    }
    let add = |sum: usize, buf: &UserBuf| sum.checked_add(buf.len());
    iov.iter().try_fold(0, add).ok_or(Errno::EMSGSIZE)
}

/// The pieces of registered memory that buffers are, which the device writes if `writes`; returns how many
/// there are.
pub(crate) fn registered(
    domain: &Domain,
    iov: &[UserBuf],
    writes: bool,
    pieces: &mut [Sge; IOV_MOST],
    hit: &mut Hit,
) -> Result<usize> {
    list(iov, pieces, |buf| {
        domain.regions.find(buf, writes, hit).ok_or_else(|| {
            let access = if writes { "FI_RECV or FI_READ" } else { "FI_SEND or FI_WRITE" };
            fi_warn_sparse!(
                NAME,
                Subsys::EpData,
                "{} bytes at {:#x} are in no region of this domain; register them with {access} (FI_MR_LOCAL)",
                buf.len(),
                buf.addr()
            );
            Errno::EINVAL
        })
    })
}

/// Makes the list of pieces of what has bytes; returns how many there are.
pub(crate) fn list(
    iov: &[UserBuf],
    pieces: &mut [Sge; IOV_MOST],
    mut key: impl FnMut(UserBuf) -> Result<u32>,
) -> Result<usize> {
    let mut count = 0;
    for buf in iov.iter().filter(|buf| !buf.is_empty()) {
        let piece = pieces.get_mut(count).ok_or(Errno::EINVAL)?;
        *piece = Sge::new(*buf, key(*buf)?)?;
        count += 1;
    }
    Ok(count)
}

/// Why a request was not posted.
pub(crate) fn refused(error: PostError) -> Errno {
    match error.errno {
        Errno::ENOMEM => Errno::EAGAIN,
        errno => {
            fi_warn_sparse!(
                NAME,
                Subsys::EpData,
                "the device does not take a request: {errno}"
            );
            errno
        }
    }
}

/// Refuses flags that an operation does not have.
pub(crate) fn unknown(flags: Flags) -> Errno {
    fi_warn_sparse!(
        NAME,
        Subsys::EpData,
        "an operation has flags that this provider does not offer: {flags:?}; leave them out"
    );
    Errno::EBADFLAGS
}

#[cold]
#[inline(never)]
pub(crate) fn has_no_tags() -> Errno {
    fi_warn_sparse!(
        NAME,
        Subsys::EpData,
        "connected endpoints over RDMA devices have no tagged messages (FI_TAGGED); send plain ones"
    );
    Errno::EOPNOTSUPP
}
