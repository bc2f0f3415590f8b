//! One end of a connection: a Unix stream socket for the handshake, then a pair of rings. From then on
//! the socket carries doorbells and records of regions, and its end is the end of the connection.

mod applied;
mod direct;
mod in_place;
mod joint;
mod timing;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn};
use ripstop_mem::ring::{Layout, PeerPollStatus, PeerStatus, Reader, RingError, Source, Writer};
use ripstop_os::{Interest, IoVec, IoVecMut, Process, Shutdown, Socket};
use ripstop_stream::{Account, Link, Traffic};
use ripstop_types::{Errno, Result};

use crate::attach::{Attach, PeerProcess};
use crate::copies::{DomainCopies, Tally};
use crate::copy_choice::CopyMode;
use crate::copy_cost::RingCopy;
use crate::name::Name;
use crate::params::NAME;
use crate::records::{RECORD_BYTES, Record, RecordReader};
use crate::windows::Windows;

use self::applied::AppliedBackoff;
pub(crate) use self::direct::RingDirect;
pub(crate) use self::in_place::RingInPlace;
pub(crate) use self::joint::RingJoint;
use self::timing::RingTimer;

/// Descriptors that a peer may send in a handshake: the memory of the pair, and its status page.
const MAX_HANDSHAKE_FDS: usize = 2;

/// Bytes of doorbells and records that one read of the socket takes.
const DOORBELL_READ_BYTES: usize = 64;

/// Reads of the socket in one call, so that a peer that sends without end cannot hold up the domain.
const MAX_SOCKET_READS: u32 = 16;

/// Requests of the peer (by key) that wait to be answered; further ones are dropped.
const MAX_PENDING_REQUESTS: usize = 64;

/// Polls for credit after a write that found no room: about a microsecond, in which a peer that reads
/// consumes more than it returns credit for at once.
const ROOM_POLLS: u32 = 64;

/// How many bytes a ring has taken or delivered.
type RingResult = core::result::Result<usize, RingError>;

/// One end of a connection between two endpoints, from its handshake on.
#[derive(Debug)]
pub struct ShmLink {
    socket: Socket,
    /// Set when the handshake is complete ([`Link::start`]).
    conn: OnceLock<Connection>,
    handshake: Mutex<Handshake>,
}

/// What this end has of a connection whose handshake is complete.
#[derive(Debug)]
struct Connection {
    rings: Rings,
    peer: Peer,
    /// The socket has ended, or the peer has broken the protocol: nothing follows what is in the ring.
    ended: AtomicBool,
    records: Records,
    applied_backoff: AppliedBackoff,
    /// Access to the peer's memory by address; `None` where it is switched off or cannot work.
    attach: Option<Mutex<Attach>>,
    /// Which copies through the rings are timed, for [`Attach::choice`].
    timer: RingTimer,
    /// A copy through the rings that was timed has changed which messages this side gets.
    has_new_get_limit: AtomicBool,
    counts: Counts,
}

/// This end's halves of the two rings.
#[derive(Debug)]
struct Rings {
    writer: Writer,
    reader: Reader,
}

/// Who is at the other end.
#[derive(Debug)]
struct Peer {
    name: Name,
    /// It may exit while its end of the socket stays open in a forked child. `None` where the system has no
    /// pidfd.
    process: Option<Process>,
    /// The status page of its domain.
    status: PeerStatus,
}

/// Records that the peer sends on the socket.
#[derive(Debug, Default)]
struct Records {
    /// They may arrive in parts.
    reader: Mutex<RecordReader>,
    /// Keys of this side's regions that the peer has requested; [`RingDirect`] answers.
    requested_keys: Mutex<Vec<u64>>,
}

/// Counts of long payloads, by their way. What attach has copied is counted in [`Attach`].
#[derive(Debug)]
struct Counts {
    /// Those of the domain, to which the others are added when the connection ends.
    domain: Arc<DomainCopies>,
    /// What went from the caller's buffer to the ring at once.
    sent_in_place: Tally,
    /// What was copied from or to mapped regions of the peer.
    mapped: Tally,
}

/// The state of a handshake; [`Link::start`] turns it into [`Connection`].
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    /// The name of the endpoint that is connected to: the peer's, or on the accepting side our own.
    pub(crate) target: Option<Name>,
    /// Descriptors to send with the next message.
    pub(crate) outgoing: Vec<OwnedFd>,
    /// Descriptors received from the peer.
    pub(crate) incoming: Vec<OwnedFd>,
    pub(crate) peer: Option<Name>,
    /// The ring sizes that the connecting side has chosen.
    pub(crate) layout: Option<Layout>,
    /// This side's writer and reader in the memory of the pair.
    pub(crate) rings: Option<(Writer, Reader)>,
    pub(crate) peer_status: Option<PeerStatus>,
    pub(crate) poll_status: Option<PeerPollStatus>,
    /// What cross-memory attach is used for, unless it is off here.
    pub(crate) attach: Option<CopyMode>,
    /// What the domain's connections add to.
    pub(crate) copies: Arc<DomainCopies>,
}

impl ShmLink {
    pub(crate) fn new(socket: Socket, target: Name) -> Self {
        let handshake = Handshake {
            target: Some(target),
            ..Handshake::default()
        };
        Self {
            socket,
            conn: OnceLock::new(),
            handshake: Mutex::new(handshake),
        }
    }

    /// Calls `change` with the state of the handshake.
    pub(crate) fn with_handshake<R>(&self, change: impl FnOnce(&mut Handshake) -> R) -> R {
        change(&mut self.handshake.lock())
    }

    /// What of `interest` the link is ready for.
    pub(crate) fn ready(&self, interest: Interest) -> Interest {
        let Some(conn) = self.conn.get() else {
            return Interest::default();
        };
        let read = || conn.rings.reader.is_ready() || conn.ended.load(Ordering::Relaxed);
        // An error counts as room: the next write reports it.
        let room = || conn.rings.writer.has_room().unwrap_or(true);
        Interest {
            read: interest.read && read(),
            write: interest.write && room(),
        }
    }

    /// The state of attach, with the connection that has it and the process that it reaches. `None` before the handshake is
    /// complete, and where attach is switched off or cannot work.
    fn attach(&self) -> Option<(&Connection, &Mutex<Attach>, PeerProcess<'_>)> {
        let conn = self.conn.get()?;
        let peer = PeerProcess {
            process: conn.peer.process.as_ref()?,
            name: &conn.peer.name,
        };
        Some((conn, conn.attach.as_ref()?, peer))
    }

    #[cold]
    #[inline(never)]
    fn send_handshake(&self, bytes: &[u8]) -> Result<usize> {
        let outgoing = self.with_handshake(|handshake| std::mem::take(&mut handshake.outgoing));
        let borrowed: Vec<BorrowedFd<'_>> = outgoing.iter().map(AsFd::as_fd).collect();
        self.socket.send_with(bytes, &borrowed)
    }

    #[cold]
    #[inline(never)]
    fn recv_handshake(&self, bytes: &mut [u8]) -> Result<usize> {
        let (count, descriptors) = self.socket.recv_with(bytes)?;
        self.with_handshake(|handshake| {
            handshake.incoming.extend(descriptors);
            match handshake.incoming.len() {
                ..=MAX_HANDSHAKE_FDS => Ok(count),
                _ => Err(Errno::EPROTO),
            }
        })
    }

    /// Wakes the peer. If the socket is full, it holds a doorbell already.
    #[cold]
    #[inline(never)]
    fn ring_doorbell(&self) {
        let _ = self.socket.send(&[0]);
    }

    /// Sends a record to the peer. It is dropped if the socket is full: the ring serves that region.
    fn send_record(&self, record: Record, descriptors: &[BorrowedFd<'_>]) {
        let sent = self.socket.send_with(&record.emit(), descriptors);
        if sent.is_ok_and(|count| count < RECORD_BYTES) {
            // The kernel takes all or nothing of so few bytes. If not, the rest of the stream is lost. Only this direction is shut
            // down: with both, the peer would take this end for closed, and not wait for copies that this side still makes.
            let _ = self.socket.shutdown(Shutdown::Write);
            if let Some(conn) = self.conn.get() {
                conn.end_connection("its socket took only a part of a record");
            }
        }
    }

    /// Whether the peer has ended the connection, or its process has exited: it copies nothing any more. It has closed
    /// its end of the socket then, or only shut it down for writing while this side has done that, too.
    fn peer_has_left(&self, conn: &Connection) -> bool {
        self.socket.has_hung_up() == Ok(true) || conn.peer_has_exited()
    }

    /// Rings the doorbell after a write, if the peer sleeps, and translates the result.
    #[inline(always)]
    fn after_write(&self, conn: &Connection, count: RingResult) -> Result<usize> {
        match count {
            Ok(0) => Err(Errno::EAGAIN),
            Ok(count) => {
                if conn.peer.status.must_wake() {
                    self.ring_doorbell();
                }
                Ok(count)
            }
            Err(error) => Err(conn.ring_error(error)),
        }
    }

    /// Rings the doorbell after a read that returned credit, and translates the result.
    #[inline]
    fn after_read(&self, conn: &Connection, count: RingResult) -> Result<usize> {
        match count {
            Ok(0) if conn.ended.load(Ordering::Relaxed) => Ok(0),
            Ok(0) => Err(Errno::EAGAIN),
            Ok(count) => {
                self.wake_for_credit(conn);
                Ok(count)
            }
            Err(error) => Err(conn.ring_error(error)),
        }
    }

    /// Wakes a peer that may sleep until it has room, if credit was returned to it.
    #[inline]
    fn wake_for_credit(&self, conn: &Connection) {
        if conn.rings.reader.take_credit_returned() && conn.peer.status.must_wake() {
            self.ring_doorbell();
        }
    }
}

impl Connection {
    /// Whether the peer's process has exited.
    fn peer_has_exited(&self) -> bool {
        let process = self.peer.process.as_ref();
        process.is_some_and(|process| process.is_alive() == Ok(false))
    }

    #[cold]
    #[inline(never)]
    fn ring_error(&self, error: RingError) -> Errno {
        self.end_connection(&format!("the memory shared with it has {error}"));
        Errno::EPROTO
    }

    /// Ends the connection to a peer that does not keep to the protocol, with a line in the log.
    fn end_connection(&self, why: &str) {
        // It may be read once more before the connection is ended.
        if !self.ended.swap(true, Ordering::Relaxed) {
            let peer = &self.peer.name;
            fi_warn!(NAME, Subsys::EpData, "{peer}: dropped, {why}");
        }
    }

    /// Handles the doorbells and records that one read of the socket has brought.
    fn handle_socket_bytes(
        &self,
        bytes: &[u8],
        descriptors: Option<Vec<OwnedFd>>,
        windows: &mut Windows,
    ) {
        let peer = &self.peer.name;
        let handle = |record, fd| match (record, fd) {
            (Record::Offer(region), Some(fd)) => {
                if let Err(why) = windows.map(region, fd) {
                    fi_info!(NAME, Subsys::Mr, "{peer}: a region is not mapped: {why}");
                }
            }
            (Record::Offer(_), None) => {
                fi_info!(
                    NAME,
                    Subsys::Mr,
                    "{peer}: a region is not mapped: no free descriptor"
                );
            }
            (Record::Revoke(grant), _) => {
                windows.retain(|other| other != grant);
                self.with_attach(|attach| attach.regions.retain(|other| other != grant));
            }
            (Record::Address(region), _) => {
                self.with_attach(|attach| attach.regions.add(region));
            }
            (Record::Request(key), _) => {
                let mut requested_keys = self.records.requested_keys.lock();
                if requested_keys.len() < MAX_PENDING_REQUESTS {
                    requested_keys.push(key);
                }
            }
        };
        let pushed = self.records.reader.lock().push(bytes, descriptors, handle);
        // Grants also end without a record, where the peer's socket was full.
        windows.retain(|grant| self.peer.status.is_granted(grant));
        self.with_attach(|attach| {
            attach
                .regions
                .retain(|grant| self.peer.status.is_granted(grant))
        });
        if let Err(why) = pushed {
            self.end_connection(&format!("its socket has {why}"));
        }
    }

    /// Calls `change` with the state of attach, unless attach is off or cannot work.
    fn with_attach(&self, change: impl FnOnce(&mut Attach)) {
        if let Some(attach) = &self.attach {
            change(&mut attach.lock());
        }
    }
}

impl AsFd for ShmLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link for ShmLink {
    type Addr = Name;

    type InPlace = RingInPlace;
    type Direct = RingDirect;
    type Joint = RingJoint;
    type Registering = ();

    fn account(&self) -> Account {
        let traffic = self.conn.get().map(|conn| Traffic {
            unit: "entries",
            sent: conn.rings.writer.entries_written(),
            received: conn.rings.reader.entries_read(),
        });
        Account {
            traffic,
            silence: None,
        }
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> Result<usize> {
        match self.conn.get() {
            Some(conn) => self.after_write(conn, conn.rings.writer.write(Source::from(bytes))),
            None => self.send_handshake(bytes),
        }
    }

    #[inline]
    fn sendv(&self, vecs: &[IoVec<'_>]) -> Result<usize> {
        match self.conn.get() {
            Some(conn) => {
                let len = vecs.iter().map(IoVec::len).sum();
                let count = conn.timed(RingCopy::Write, len, || {
                    conn.rings.writer.write_vectored(vecs)
                });
                self.after_write(conn, count)
            }
            None => self.socket.sendv(vecs),
        }
    }

    #[inline]
    fn recv(&self, bytes: &mut [u8]) -> Result<usize> {
        self.recv_once(bytes)
    }

    #[inline]
    fn recv_once(&self, bytes: &mut [u8]) -> Result<usize> {
        match self.conn.get() {
            Some(conn) => self.after_read(conn, conn.rings.reader.read(bytes)),
            None => self.recv_handshake(bytes),
        }
    }

    fn has_room(&self) -> bool {
        let conn = self.conn.get();
        // An error counts as room: the next write reports it.
        conn.is_some_and(|conn| conn.rings.writer.has_room().unwrap_or(true))
    }

    fn await_room(&self) -> bool {
        let Some(conn) = self.conn.get() else {
            return false;
        };
        for _ in 0..ROOM_POLLS {
            // An error counts as room: the next write reports it.
            if conn.rings.writer.has_room().unwrap_or(true) {
                return true;
            }
            if conn.rings.reader.is_ready() {
                break;
            }
            std::hint::spin_loop();
        }
        false
    }

    #[inline]
    fn recvv(&self, vecs: &mut [IoVecMut<'_>]) -> Result<usize> {
        match self.conn.get() {
            Some(conn) => {
                let len = vecs.iter().map(IoVecMut::len).sum();
                let count = conn.timed(RingCopy::Read, len, || {
                    conn.rings.reader.read_vectored(vecs)
                });
                self.after_read(conn, count)
            }
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
        // Connecting a Unix socket succeeds or fails at once.
        true
    }

    fn start(&self) {
        let handshake = self.with_handshake(std::mem::take);
        if let (Some((writer, reader)), Some(peer_status), Some(peer)) =
            (handshake.rings, handshake.peer_status, handshake.peer)
        {
            let process = self.socket.peer_process().ok();
            let copies = handshake.copies;
            let attach = match (handshake.poll_status, handshake.attach) {
                (Some(poll_status), Some(mode)) if is_other(&process) => {
                    Attach::new(poll_status, mode, Arc::clone(&copies))
                }
                _ => None,
            };
            self.conn.get_or_init(|| Connection {
                rings: Rings { writer, reader },
                peer: Peer {
                    name: peer,
                    process,
                    status: peer_status,
                },
                ended: AtomicBool::new(false),
                records: Records::default(),
                applied_backoff: AppliedBackoff::default(),
                attach: attach.map(Mutex::new),
                timer: RingTimer::default(),
                has_new_get_limit: AtomicBool::new(false),
                counts: Counts {
                    domain: copies,
                    sent_in_place: Tally::default(),
                    mapped: Tally::default(),
                },
            });
        }
    }

    fn drain_doorbell(&self, windows: &mut Windows) {
        let Some(conn) = self.conn.get() else {
            return;
        };
        let mut bytes = [0; DOORBELL_READ_BYTES];
        // Bounded, since a peer may send for ever.
        for read in 0..MAX_SOCKET_READS {
            let ended = match self.socket.recv_some(&mut bytes) {
                Ok((0, _)) => true,
                Ok((count, descriptors)) => {
                    conn.handle_socket_bytes(&bytes[..count], descriptors, windows);
                    false
                }
                Err(Errno::EAGAIN) if read > 0 => return,
                Err(Errno::EAGAIN) => conn.peer_has_exited(),
                // For example a reset: the peer closed its end with doorbells unread.
                Err(_) => true,
            };
            if ended {
                conn.ended.store(true, Ordering::Relaxed);
            }
            if ended || (windows.is_empty() && !conn.records.reader.lock().is_partial()) {
                return;
            }
        }
    }

    fn has_ended(&self) -> bool {
        let conn = self.conn.get();
        conn.is_some_and(|conn| conn.ended.load(Ordering::Relaxed))
    }

    fn unread_bytes(&self) -> u64 {
        let conn = self.conn.get();
        conn.map_or(0, |conn| conn.rings.reader.layout().max_unread_bytes())
    }

    fn peer_fd(&self) -> Option<BorrowedFd<'_>> {
        self.conn.get()?.peer.process.as_ref().map(AsFd::as_fd)
    }

    fn local_addr(&self) -> Result<Name> {
        // Only connection-oriented endpoints ask for it, and shm has none.
        Err(Errno::ENOSYS)
    }
}

/// Whether the peer is another process than this one, with a process id in our namespace.
fn is_other(process: &Option<Process>) -> bool {
    let pid = process.as_ref().map_or(0, Process::pid);
    pid != 0 && pid != ripstop_os::pid()
}
