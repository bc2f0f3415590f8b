//! Memory that peers on the same machine map.

use std::fmt;
use std::sync::Arc;

use ripstop_core::provider::Sharing;
use ripstop_mem::ring::Window;
use ripstop_os::SharedBuf;
use ripstop_types::Errno;

use crate::error::{Error, Operation, Result};
use crate::lent::{Memory, Over};
use crate::message::Remote;
use crate::region::{Access, Registered};
use crate::running::Running;

/// Memory that peers reach as a [`Region`](crate::Region), and that those on the same machine map:
/// their reads, writes and atomics are then done in it directly, while this process computes or
/// sleeps. It comes from [`Domain::register_shared`](crate::Domain::register_shared).
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
    registered: Registered,
    /// Lent to the domain until the registration is revoked.
    memory: Option<SharedBuf>,
}

impl SharedRegion {
    pub(crate) fn register(running: &Arc<Running>, len: usize, access: Access) -> Result<Self> {
        let memory = SharedBuf::zeroed(len);
        let memory = memory.map_err(|errno| Error::new(errno, Operation::Register))?;
        let part = Sharing::Part(memory.part().clone());
        match Registered::new(running, memory.buf(), access, part) {
            Ok(registered) => Ok(Self {
                registered,
                memory: Some(memory),
            }),
            Err(error) => {
                Memory::Shared(memory).free(Over::Refused);
                Err(error)
            }
        }
    }

    /// Bytes it has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.registered.len()
    }

    /// The place of the byte at `offset`, for peers. It may lie outside: what peers do there is
    /// refused.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        self.registered.remote(offset)
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Errors
    /// `FI_EINVAL` for bytes that are not all inside.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.with(|window| window.read(offset, into))
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    /// `FI_EINVAL` for bytes that are not all inside.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.with(|window| window.write(offset, bytes))
    }

    fn with<E>(&self, act: impl FnOnce(&Window) -> std::result::Result<(), E>) -> Result<()> {
        let memory = self.memory.as_ref().map(SharedBuf::window);
        let done = memory.and_then(|window| act(window).ok());
        done.ok_or(Error::new(Errno::EINVAL, Operation::Register))
    }
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.registered.leave(Memory::Shared(memory));
        }
    }
}

impl fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.registered.show("SharedRegion", f)
    }
}
