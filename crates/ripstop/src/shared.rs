//! Memory that peers on the same machine map.

use std::fmt;
use std::sync::Arc;

use ripstop_core::provider::{MrAttr, Sharing};
use ripstop_os::SharedBuf;
use ripstop_types::{Errno, Flags, MrMode};

use crate::backend::AnyMr;
use crate::domain::Domain;
use crate::driver::Running;
use crate::error::{Error, Operation, Result};
use crate::region::{Access, next_key};
use crate::rma::Remote;

/// Memory that peers reach as a [`Region`](crate::Region), and that those on the same machine map:
/// their reads, writes and atomics are then done in it directly, while this process computes or
/// sleeps. It comes from [`Domain::register_shared`].
///
/// Nobody sees it as a slice of bytes, since peers may write it at any moment: [`read`](Self::read)
/// and [`write`](Self::write) copy, and what peers do may fall in the middle of such a copy. Let them
/// announce what they have written, by a message that follows it.
///
/// Dropping it takes it away from the peers, as a `Region`. A process that has mapped it and does not
/// keep to the protocol can go on to write there, but nowhere else; only processes of the same user
/// get to map it. A `fork` does not inherit it.
///
/// ```
/// # use ripstop::{Access, Hints};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let open = || Hints::rdm().rma().provider("shm").open();
/// let (near, far) = (open()?, open()?);
/// let (a, b) = (near.endpoint()?, far.endpoint()?);
/// let to_b = near.insert(b.address()?)?;
/// let region = far.register_shared(4096, Access::ALL)?;
///
/// let (written, _) = a.write(vec![7; 100], to_b, region.remote(8)).wait();
/// written?;
/// let mut bytes = [0; 100];
/// region.read(8, &mut bytes)?;
/// assert_eq!(bytes, [7; 100]);
/// # Ok(())
/// # }
/// ```
pub struct SharedRegion {
    mr: Option<AnyMr>,
    /// Lent to the domain while `mr` is there.
    memory: Option<SharedBuf>,
    base: u64,
    len: usize,
    running: Arc<Running>,
}

impl SharedRegion {
    pub(crate) fn register(domain: &Domain, len: usize, access: Access) -> Result<Self> {
        let failed = |errno| Error::new(errno, Operation::Register);
        let memory = SharedBuf::zeroed(len).map_err(failed)?;
        let attr = MrAttr {
            iov: vec![memory.buf()],
            access: access.0,
            offset: 0,
            requested_key: next_key(),
            flags: Flags::empty(),
            shared: Sharing::Part(memory.part().clone()),
        };
        let core = domain.core();
        let mode = core.info.domain.mr_mode;
        let base = match mode.intersects(MrMode::VIRT_ADDR | MrMode::BASIC) {
            true => memory.buf().addr() as u64,
            false => 0,
        };
        match core.with(|_, _| core.domain.register(&attr)) {
            Ok(mr) => Ok(Self {
                mr: Some(mr),
                memory: Some(memory),
                base,
                len,
                running: Arc::clone(&domain.0),
            }),
            Err(errno) => {
                // Refused, so that the provider keeps nothing of it.
                memory.free();
                Err(failed(errno))
            }
        }
    }

    /// Bytes it has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The place of the byte at `offset`, for peers. It may lie outside: what peers do there is
    /// refused.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote {
            addr: self.base.wrapping_add(offset as u64),
            key: self.mr.as_ref().map_or(0, AnyMr::key),
        }
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Errors
    /// `FI_EINVAL` for bytes that are not all inside.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let memory = self.memory.as_ref().map(SharedBuf::window);
        let done = memory.and_then(|window| window.read(offset, into).ok());
        done.ok_or(Error::new(Errno::EINVAL, Operation::Register))
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    /// `FI_EINVAL` for bytes that are not all inside.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let memory = self.memory.as_ref().map(SharedBuf::window);
        let done = memory.and_then(|window| window.write(offset, bytes).ok());
        done.ok_or(Error::new(Errno::EINVAL, Operation::Register))
    }
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        if let Some(mr) = self.mr.take() {
            self.running.core.with(|_, _| drop(mr));
        }
        if let Some(memory) = self.memory.take() {
            memory.free();
        }
    }
}

impl fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRegion")
            .field("len", &self.len)
            .field("remote", &self.remote(0))
            .finish_non_exhaustive()
    }
}
