//! Memory that peers reach.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use ripstop_core::provider::{MrAttr, Sharing};
use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};
use ripstop_types::{Errno, Flags, MrMode, flags};

use crate::backend::AnyMr;
use crate::buf::Buf;
use crate::error::{Error, Operation, Result};
use crate::leaving::{CLOSING, Closing, LOOK};
use crate::lent::{Memory, Over, reclaim};
use crate::message::Remote;
use crate::running::Running;

/// What peers may do with a [`Region`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub(crate) Flags);

impl Access {
    /// Read it (`FI_REMOTE_READ`).
    pub const READ: Self = Self(Flags::REMOTE_READ);
    /// Write it (`FI_REMOTE_WRITE`).
    pub const WRITE: Self = Self(Flags::REMOTE_WRITE);
    /// Read it, write it, and carry out atomics.
    pub const ALL: Self = Self(flags![REMOTE_READ REMOTE_WRITE]);
}

/// A buffer that peers may read and write while it is registered (man page `fi_mr(3)`).
///
/// It owns the buffer: [`read`](Self::read) and [`write`](Self::write) copy, and
/// [`into_buf`](Self::into_buf) ends the registration and gives the buffer back. Dropping it ends
/// the registration too. Peers may finish what they have begun there, for at most a second; what
/// takes longer is refused, so nothing is written afterwards. (Over shm, a process of the same user that
/// is stopped for longer in the middle of a copy may still write when it goes on. The log says so, the memory is
/// leaked, and `into_buf` gives a copy.)
/// `into_buf` waits for that, and other
/// threads go on with the domain meanwhile. Dropping does not wait: the memory is freed with the
/// progress of the domain, at the latest when that closes.
///
/// What peers write appears while the domain makes progress: they can announce it by a message
/// (RMA writes arrive before the message that follows them), or with data for a completion. Over an
/// RDMA device it appears at any moment, and what they have begun when the registration ends is not
/// waited for: it is refused, which ends their connection.
pub struct Region<B: Buf> {
    registered: Registered,
    /// Lent to the domain until the registration is revoked.
    parked: Option<Parked>,
    buf: std::marker::PhantomData<fn() -> B>,
}

/// A buffer that could not be registered, and why.
pub struct NotRegistered<B> {
    /// Why.
    pub error: Error,
    /// The buffer, as it was.
    pub buf: B,
}

impl<B> fmt::Debug for NotRegistered<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotRegistered")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<B> fmt::Display for NotRegistered<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> std::error::Error for NotRegistered<B> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<B> From<NotRegistered<B>> for Error {
    fn from(not: NotRegistered<B>) -> Self {
        not.error
    }
}

impl<B: Buf> Region<B> {
    /// Registers the bytes of a buffer (its length, not its spare capacity).
    pub(crate) fn register(
        running: &Arc<Running>,
        buf: B,
        access: Access,
    ) -> std::result::Result<Self, NotRegistered<B>> {
        let parked = Parked::park(buf.into_vec());
        match Registered::new(running, parked.buf(), access, Sharing::Never) {
            Ok(registered) => Ok(Self {
                registered,
                parked: Some(parked),
                buf: std::marker::PhantomData,
            }),
            Err(error) => Err(NotRegistered {
                error,
                buf: B::from_vec(reclaim(parked, Over::Refused)),
            }),
        }
    }

    /// Bytes it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.registered.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The place of the byte at `offset`, for peers. It may lie outside: what peers do there is
    /// refused.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        self.registered.remote(offset)
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// No operation of a peer falls in the middle of the copy, but those that an RDMA device carries out.
    ///
    /// # Errors
    /// `FI_EINVAL` for bytes that are not all inside.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let len = into.len();
        self.with(offset, len, |part| {
            copy_in(into, part);
        })
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// No operation of a peer falls in the middle of the copy, but those that an RDMA device carries out.
    ///
    /// # Errors
    /// `FI_EINVAL` for bytes that are not all inside.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.with(offset, bytes.len(), |part| {
            copy_out(part, bytes);
        })
    }

    /// Calls `act` with a part of the memory while no other thread of this process touches it: a domain of
    /// this crate moves bytes only under this lock. A device may, at any moment, which is why the memory is
    /// only copied from and to.
    fn with(&self, offset: usize, len: usize, act: impl FnOnce(UserBuf)) -> Result<()> {
        let memory = self.parked.as_ref().map(Parked::buf);
        let part = memory.and_then(|memory| memory.slice(offset, len));
        let part = part.ok_or(Error::new(Errno::EINVAL, Operation::Register))?;
        self.registered.alone(|| act(part));
        Ok(())
    }

    /// Ends the registration and gives the buffer back, as peers have left it. Blocks while peers
    /// are at work there, at most a second.
    #[must_use]
    pub fn into_buf(mut self) -> B {
        self.registered.revoke();
        let parked = self.parked.take();
        let vec = parked.map(|parked| reclaim(parked, Over::Closed));
        B::from_vec(vec.unwrap_or_default())
    }
}

impl<B: Buf> Drop for Region<B> {
    fn drop(&mut self) {
        if let Some(parked) = self.parked.take() {
            self.registered.leave(Memory::Owned(parked));
        }
    }
}

impl<B: Buf> fmt::Debug for Region<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.registered.show("Region", f)
    }
}

/// What a caller's key is, where the provider does not choose keys.
fn next_key() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A registration of memory, which somebody else keeps until it is revoked.
pub(crate) struct Registered {
    mr: Option<AnyMr>,
    base: u64,
    len: usize,
    running: Arc<Running>,
}

impl Registered {
    /// Registers memory. Of what is refused the provider keeps nothing.
    pub(crate) fn new(
        running: &Arc<Running>,
        memory: UserBuf,
        access: Access,
        shared: Sharing,
    ) -> Result<Self> {
        let attr = MrAttr {
            iov: vec![memory],
            access: access.0,
            offset: 0,
            requested_key: next_key(),
            flags: Flags::empty(),
            shared,
        };
        let core = &running.core;
        let mode = core.info.domain.mr_mode;
        let base = match mode.intersects(MrMode::VIRT_ADDR | MrMode::BASIC) {
            true => memory.addr() as u64,
            false => 0,
        };
        let mr = core.with(|_, _| core.domain.register(&attr));
        let mr = mr.map_err(|errno| Error::new(errno, Operation::Register))?;
        Ok(Self {
            mr: Some(mr),
            base,
            len: memory.len(),
            running: Arc::clone(running),
        })
    }

    /// Bytes of the memory.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The place of the byte at `offset`, for peers.
    pub(crate) fn remote(&self, offset: usize) -> Remote {
        Remote {
            addr: self.base.wrapping_add(offset as u64),
            key: self.mr.as_ref().map_or(0, AnyMr::key),
        }
    }

    /// Does something while the domain moves no bytes.
    pub(crate) fn alone(&self, act: impl FnOnce()) {
        self.running.core.with(|_, _| act());
    }

    /// Waits until peers have no way to the memory any more; others go on with the domain.
    pub(crate) fn revoke(&mut self) {
        let Some(mr) = self.mr.take() else { return };
        let core = &self.running.core;
        let end = Instant::now() + CLOSING;
        loop {
            let evict = Instant::now() >= end;
            let closed = core.with(|table, later| {
                // What peers do here goes on with progress.
                mr.try_close(evict) || {
                    core.advance_in(table, later);
                    mr.try_close(evict)
                }
            });
            if closed || evict {
                break;
            }
            std::thread::sleep(LOOK);
        }
        core.with(|_, _| drop(mr));
    }

    /// Peers lose their way to the memory, at once or with the progress of the domain; it is freed
    /// then. Does not wait.
    pub(crate) fn leave(&mut self, memory: Memory) {
        let Some(mr) = self.mr.take() else { return };
        let freed = self.running.core.with(|table, _| {
            if mr.try_close(false) {
                drop(mr);
                return Some(memory);
            }
            let end = Instant::now() + CLOSING;
            table.leaving.0.push(Closing { mr, memory, end });
            None
        });
        if let Some(memory) = freed {
            memory.free(Over::Closed);
        }
    }

    /// Shows a region under its name.
    pub(crate) fn show(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("len", &self.len)
            .field("remote", &self.remote(0))
            .finish_non_exhaustive()
    }
}
