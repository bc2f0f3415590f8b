//! One end of a connection: a Unix stream socket for the handshake, a pair of rings afterwards.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Alone, HEADER, Layout, Reader, RingError, Source, Watch, Writer};
use ripstop_objects::Link;
use ripstop_os::{Interest, IoVec, IoVecMut, Process, Shutdown, Socket};
use ripstop_types::{Errno, Result};

use crate::name::Name;
use crate::params::NAME;

/// Most descriptors that a peer has to send in a handshake.
const MOST: usize = 2;

/// Bytes of bells that are taken off the socket at once.
const BELLS: usize = 64;

/// Looks for room after a write without: about a microsecond, in which a peer that reads consumes
/// more than what it tells at once.
const LOOKS: u32 = 64;

/// How many bytes a ring took or gave.
type Moved = core::result::Result<usize, RingError>;

/// A connection between two endpoints.
#[derive(Debug)]
pub struct ShmLink {
    socket: Socket,
    /// Once the handshake is over.
    rings: OnceLock<Rings>,
    handshake: Mutex<Handshake>,
}

/// What flows once the handshake is over.
#[derive(Debug)]
struct Rings {
    writer: Writer,
    reader: Reader,
    watch: Watch,
    /// The socket or the peer has ended: nothing comes behind what is in the ring.
    ended: AtomicBool,
    /// Whom a child may outlive that holds the other end of the socket; none where the system
    /// does not tell.
    process: Option<Process>,
    peer: Name,
}

/// What the handshake has come to.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    /// Whom this side wants to reach, or who is reached.
    pub(crate) target: Option<Name>,
    /// To be sent with the next message.
    pub(crate) outgoing: Vec<OwnedFd>,
    /// What has come from the peer.
    pub(crate) incoming: Vec<OwnedFd>,
    pub(crate) peer: Option<Name>,
    /// The sizes that the peer has chosen.
    pub(crate) layout: Option<Layout>,
    pub(crate) halves: Option<(Writer, Reader)>,
    pub(crate) watch: Option<Watch>,
}

impl ShmLink {
    pub(crate) fn new(socket: Socket, target: Name) -> Self {
        let handshake = Handshake {
            target: Some(target),
            ..Handshake::default()
        };
        Self {
            socket,
            rings: OnceLock::new(),
            handshake: Mutex::new(handshake),
        }
    }

    /// Changes what the handshake has come to.
    pub(crate) fn shake<R>(&self, change: impl FnOnce(&mut Handshake) -> R) -> R {
        change(&mut self.handshake.lock())
    }

    /// Which of what it is looked at for it has.
    pub(crate) fn has(&self, interest: Interest) -> Interest {
        let Some(rings) = self.rings.get() else {
            return Interest::default();
        };
        let read = || rings.reader.is_ready() || rings.ended.load(Ordering::Relaxed);
        // What is wrong with the memory is told by the write.
        let room = || rings.writer.has_room().unwrap_or(true);
        Interest {
            read: interest.read && read(),
            write: interest.write && room(),
            ..Interest::default()
        }
    }

    #[cold]
    #[inline(never)]
    fn send_first(&self, bytes: &[u8]) -> Result<usize> {
        let outgoing = self.shake(|shake| std::mem::take(&mut shake.outgoing));
        let borrowed: Vec<BorrowedFd<'_>> = outgoing.iter().map(AsFd::as_fd).collect();
        self.socket.send_with(bytes, &borrowed)
    }

    #[cold]
    #[inline(never)]
    fn recv_first(&self, bytes: &mut [u8]) -> Result<usize> {
        let (count, descriptors) = self.socket.recv_with(bytes)?;
        self.shake(|shake| {
            shake.incoming.extend(descriptors);
            match shake.incoming.len() {
                ..=MOST => Ok(count),
                _ => Err(Errno::EPROTO),
            }
        })
    }

    /// The peer sleeps, and has to be told. It is told already where there is no room for it.
    #[cold]
    #[inline(never)]
    fn ring(&self) {
        let _ = self.socket.send(&[0]);
    }

    /// After a write.
    #[inline(always)]
    fn wrote(&self, rings: &Rings, count: Moved) -> Result<usize> {
        match count {
            Ok(0) => Err(Errno::EAGAIN),
            Ok(count) => {
                if rings.watch.must_wake() {
                    self.ring();
                }
                Ok(count)
            }
            Err(error) => Err(rings.broken(error)),
        }
    }

    /// After a read.
    #[inline]
    fn have_read(&self, rings: &Rings, count: Moved) -> Result<usize> {
        match count {
            Ok(0) if rings.ended.load(Ordering::Relaxed) => Ok(0),
            Ok(0) => Err(Errno::EAGAIN),
            Ok(count) => {
                if rings.reader.take_notice() && rings.watch.must_wake() {
                    self.ring();
                }
                Ok(count)
            }
            Err(error) => Err(rings.broken(error)),
        }
    }
}

impl Rings {
    /// Whether the process at the other end is gone.
    fn is_orphan(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.is_alive() == Ok(false))
    }

    #[cold]
    #[inline(never)]
    fn broken(&self, error: RingError) -> Errno {
        // It may be read once more before the connection is ended.
        if !self.ended.swap(true, Ordering::Relaxed) {
            let peer = &self.peer;
            fi_warn!(
                NAME,
                Subsys::EpData,
                "{peer}: dropped, the memory shared with it has {error}"
            );
        }
        Errno::EPROTO
    }
}

impl AsFd for ShmLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link for ShmLink {
    type Addr = Name;

    const GATHERS: bool = true;

    #[inline(always)]
    fn send_message(
        &self,
        header: &[u8; HEADER],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize> {
        match self.rings.get() {
            Some(rings) => {
                let count = rings.writer.write_message(header, header_len, payload);
                self.wrote(rings, count)
            }
            None => Err(Errno::EAGAIN),
        }
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> Result<usize> {
        match self.rings.get() {
            Some(rings) => self.wrote(rings, rings.writer.write(Source::from(bytes))),
            None => self.send_first(bytes),
        }
    }

    #[inline]
    fn sendv(&self, vecs: &[IoVec<'_>]) -> Result<usize> {
        match self.rings.get() {
            Some(rings) => self.wrote(rings, rings.writer.write_all(vecs)),
            None => self.socket.sendv(vecs),
        }
    }

    #[inline]
    fn recv(&self, bytes: &mut [u8]) -> Result<usize> {
        self.recv_once(bytes)
    }

    #[inline]
    fn recv_once(&self, bytes: &mut [u8]) -> Result<usize> {
        match self.rings.get() {
            Some(rings) => self.have_read(rings, rings.reader.read(bytes)),
            None => self.recv_first(bytes),
        }
    }

    #[inline(always)]
    fn is_ready(&self) -> bool {
        let rings = self.rings.get();
        rings.is_some_and(|rings| rings.reader.is_ready())
    }

    #[inline(always)]
    fn alone(&self) -> Option<Alone<'_>> {
        self.rings.get()?.reader.alone()
    }

    #[inline]
    fn takes_whole(&self, payload: usize) -> bool {
        let rings = self.rings.get();
        rings.is_some_and(|rings| rings.writer.takes_whole(payload))
    }

    #[inline]
    fn at_hand(&self) -> usize {
        self.rings.get().map_or(0, |rings| rings.reader.at_hand())
    }

    #[inline]
    fn take_at_hand(&self, room: UserBuf) -> usize {
        let Some(rings) = self.rings.get() else {
            return 0;
        };
        let count = rings.reader.take_at_hand(room);
        // There is nothing to say of an error: what is at hand was checked.
        let _ = self.have_read(rings, Ok(count));
        count
    }

    fn await_room(&self) -> bool {
        let Some(rings) = self.rings.get() else {
            return false;
        };
        for _ in 0..LOOKS {
            // What is wrong with the memory is told by the next write.
            if rings.writer.has_room().unwrap_or(true) {
                return true;
            }
            if rings.reader.is_ready() {
                break;
            }
            std::hint::spin_loop();
        }
        false
    }

    #[inline]
    fn recvv(&self, vecs: &mut [IoVecMut<'_>]) -> Result<usize> {
        match self.rings.get() {
            Some(rings) => self.have_read(rings, rings.reader.read_into(vecs)),
            None => self.socket.recvv(vecs),
        }
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.socket.shutdown(how)
    }

    fn take_error(&self) -> Result<()> {
        Ok(())
    }

    fn is_connected(&self) -> bool {
        // An attempt ends at once, one way or the other.
        true
    }

    fn up(&self) {
        let shake = self.shake(std::mem::take);
        if let (Some((writer, reader)), Some(watch), Some(peer)) =
            (shake.halves, shake.watch, shake.peer)
        {
            self.rings.get_or_init(|| Rings {
                writer,
                reader,
                watch,
                ended: AtomicBool::new(false),
                process: self.socket.peer_process().ok(),
                peer,
            });
        }
    }

    fn heard(&self) {
        let Some(rings) = self.rings.get() else {
            return;
        };
        let ended = match self.socket.recv(&mut [0; BELLS]) {
            Ok(count) => count == 0,
            Err(Errno::EAGAIN) => rings.is_orphan(),
            // A peer that leaves bells unread.
            Err(_) => true,
        };
        if ended {
            rings.ended.store(true, Ordering::Relaxed);
        }
    }

    fn has_ended(&self) -> bool {
        let rings = self.rings.get();
        rings.is_some_and(|rings| rings.ended.load(Ordering::Relaxed))
    }

    fn witness(&self) -> Option<BorrowedFd<'_>> {
        self.rings.get()?.process.as_ref().map(AsFd::as_fd)
    }

    fn local_addr(&self) -> Result<Name> {
        // Only connected endpoints ask.
        Err(Errno::ENOSYS)
    }
}
