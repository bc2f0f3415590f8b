//! One end of a connection.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_ibverbs::{self as ibverbs, CmId, EventChannel, Mr};
use ripstop_mem::UserBuf;
use ripstop_os::{Epoll, Interest, IoVec, IoVecMut, Shutdown};
use ripstop_stream::{Access, Link, Os, Registering, System as _};
use ripstop_types::{Errno, Result, RmaIov};
use ripstop_wire::rxm::MESSAGE_LEN;
use ripstop_wire::xnet::base::RmaIovs;

use crate::rxm::NAME;
use crate::rxm::cache;
use crate::rxm::devices::{self, Opened, named};
use crate::rxm::handshake::{Handshake, Step};
use crate::rxm::pipe::{DIRECT_MIN, Pipe, Shape};
use crate::rxm::region::Region;

/// Between two looks at whether what was written has arrived.
const DELIVERY_PAUSE: Duration = Duration::from_micros(200);

/// A link: an id of `librdmacm` with an event channel of its own, and a queue pair once it is connected. Its
/// descriptor is an epoll set, of that channel and of the queue pair's completions.
#[derive(Debug)]
pub struct RdmaLink {
    handshake: Mutex<Handshake>,
    events: Arc<EventChannel>,
    epoll: Epoll,
}

impl RdmaLink {
    /// A link that asks the listener at `to` for a connection.
    ///
    /// # Errors
    /// Of the device and the system.
    pub(crate) fn to(to: &SocketAddr, from: Option<SocketAddr>, shape: Shape) -> Result<Self> {
        let events = EventChannel::new()?;
        let id = CmId::new(&events)?;
        let from = from.map(|mut from| {
            from.set_port(0);
            from
        });
        Self::new(events, id, Step::Fresh(*to, from), &[], shape)
    }

    /// A link of a request, with its data.
    ///
    /// # Errors
    /// As for [`RdmaLink::to`].
    pub(crate) fn of_request(id: Arc<CmId>, data: &[u8], shape: Shape) -> Result<Self> {
        let events = EventChannel::new()?;
        let id = CmId::migrate(id, &events)?;
        Self::new(events, id, Step::Asked, data, shape)
    }

    fn new(
        events: Arc<EventChannel>,
        id: Arc<CmId>,
        step: Step,
        data: &[u8],
        shape: Shape,
    ) -> Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(&events, 0, Interest::READ)?;
        Ok(Self {
            handshake: Mutex::new(Handshake::new(id, step, data, shape)?),
            events,
            epoll,
        })
    }

    /// Handles the events there are.
    fn handle_events(&self, handshake: &mut Handshake) {
        loop {
            let event = match self.events.next() {
                Ok(event) => event,
                Err(Errno::EAGAIN) => return,
                Err(error) => {
                    fi_warn!(NAME, Subsys::EpCtrl, "events cannot be read: {error}");
                    handshake.failed = Some(error);
                    if let Some(pipe) = &mut handshake.pipe {
                        pipe.end();
                    }
                    return;
                }
            };
            let had_pipe = handshake.pipe.is_some();
            handshake.handle(&event);
            if !had_pipe {
                self.watch(handshake);
            }
        }
    }

    /// Completions of a queue pair that was made make the descriptor readable.
    fn watch(&self, handshake: &mut Handshake) {
        if let Some(pipe) = &handshake.pipe
            && let Err(error) = self.epoll.add(pipe.fd(), 1, Interest::READ)
        {
            fi_warn!(NAME, Subsys::EpCtrl, "completions are not watched: {error}");
            handshake.failed = Some(error);
        }
    }

    #[cold]
    fn recv_handshake(
        &self,
        handshake: &mut Handshake,
        vecs: &mut [IoVecMut<'_>],
    ) -> Result<usize> {
        if handshake.unread.is_empty() {
            self.handle_events(handshake);
        }
        if let (true, Some(error)) = (handshake.unread.is_empty(), handshake.failed) {
            return Err(error);
        }
        let Some(first) = vecs.first_mut() else {
            return Err(Errno::EAGAIN);
        };
        match first.copy_from(&handshake.unread) {
            0 => Err(Errno::EAGAIN),
            count => {
                handshake.unread.drain(..count);
                Ok(count)
            }
        }
    }

    /// What of `interest` the link is ready for.
    pub(crate) fn ready(&self, interest: Interest) -> Interest {
        let mut handshake = self.handshake.lock();
        match &mut handshake.pipe {
            Some(pipe) => Interest {
                read: interest.read && pipe.is_readable(),
                write: interest.write && pipe.has_room(),
            },
            None => interest,
        }
    }

    /// Has the next completion make the descriptor readable.
    pub(crate) fn arm(&self) {
        if let Some(pipe) = &self.handshake.lock().pipe {
            pipe.arm();
        }
    }
}

impl AsFd for RdmaLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Link for RdmaLink {
    type Addr = SocketAddr;

    type InPlace = ();
    type Direct = ();
    type Joint = ();
    type Registering = ByDevice;

    fn send(&self, bytes: &[u8]) -> Result<usize> {
        self.sendv(&[IoVec::from_slice(bytes)])
    }

    fn sendv(&self, vecs: &[IoVec<'_>]) -> Result<usize> {
        let mut handshake = self.handshake.lock();
        if matches!(handshake.step, Step::Done) {
            let pipe = handshake.pipe.as_mut().ok_or(Errno::ENOTCONN)?;
            return pipe.send(vecs);
        }
        let [message] = vecs else {
            return Err(Errno::EINVAL);
        };
        let mut bytes = vec![0; message.len()];
        message.copy_to(&mut bytes);
        let sent = handshake.send(&bytes);
        self.watch(&mut handshake);
        sent
    }

    fn recv(&self, bytes: &mut [u8]) -> Result<usize> {
        self.recvv(&mut [IoVecMut::from_slice(bytes)])
    }

    fn recv_once(&self, bytes: &mut [u8]) -> Result<usize> {
        self.recv(bytes)
    }

    fn has_room(&self) -> bool {
        let mut handshake = self.handshake.lock();
        handshake.pipe.as_mut().is_some_and(|pipe| pipe.has_room())
    }

    fn recvv(&self, vecs: &mut [IoVecMut<'_>]) -> Result<usize> {
        let mut handshake = self.handshake.lock();
        let started = handshake.started;
        match &mut handshake.pipe {
            Some(pipe) if started => pipe.recv(vecs),
            _ => self.recv_handshake(&mut handshake, vecs),
        }
    }

    fn await_delivery(&self, end: Duration, _scrap: &mut [u8]) {
        let is_delivered = |handshake: &mut Handshake| {
            let pipe = handshake.pipe.as_mut();
            pipe.is_none_or(|pipe| pipe.is_delivered())
        };
        while Os::now() < end {
            let mut handshake = self.handshake.lock();
            if is_delivered(&mut handshake) {
                return;
            }
            // Where the peer has left, an event says so long before the device gives up.
            self.handle_events(&mut handshake);
            if is_delivered(&mut handshake) {
                return;
            }
            drop(handshake);
            Os::sleep(DELIVERY_PAUSE);
        }
    }

    fn shutdown(&self, _: Shutdown) -> Result<()> {
        self.handshake.lock().disconnect();
        Ok(())
    }

    fn take_error(&self) -> Result<()> {
        Ok(())
    }

    /// A request may be written at once: it goes out when the way to the peer is known.
    fn is_connected(&self) -> bool {
        true
    }

    fn start(&self) {
        self.handshake.lock().started = true;
    }

    fn activity(&self) -> u64 {
        let handshake = self.handshake.lock();
        handshake.pipe.as_ref().map_or(0, |pipe| pipe.activity)
    }

    fn drain_doorbell(&self, (): &mut ()) {
        let mut handshake = self.handshake.lock();
        self.handle_events(&mut handshake);
        if let Some(pipe) = &mut handshake.pipe {
            pipe.drain();
        }
    }

    fn has_ended(&self) -> bool {
        let handshake = self.handshake.lock();
        handshake.pipe.as_ref().is_some_and(|pipe| pipe.has_ended())
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        let local = self.handshake.lock().id.local_addr();
        local.ok_or(Errno::ENOTCONN)
    }
}

/// The queue pair reads and is read.
#[derive(Debug)]
pub struct ByDevice;

impl Registering<RdmaLink> for ByDevice {
    type Region = Region;

    const SUPPORTED: bool = true;

    const MAX_KEY: u64 = u32::MAX as u64;

    fn register(
        domain: &str,
        memory: UserBuf,
        access: Access,
        fills: bool,
    ) -> Result<(Region, u64)> {
        let device = named(domain)?;
        let mut flags = ibverbs::Access::empty();
        flags.set(ibverbs::Access::REMOTE_READ, access.read);
        flags.set(ibverbs::Access::REMOTE_WRITE, access.write);
        flags.set(ibverbs::Access::LOCAL_WRITE, access.write || fills);
        let register = || Mr::register(&device.pd, memory, flags);
        let region = cache::with_room(register).inspect_err(|error| {
            fi_warn!(
                NAME,
                Subsys::Mr,
                "{} bytes at {:#x} cannot be registered: {error}; for ENOMEM raise the limit of locked \
                 memory (ulimit -l)",
                memory.len(),
                memory.addr()
            );
        })?;
        let key = region.rkey().into();
        Ok((Region::new(region, device), key))
    }

    fn writes_from(memory: &[UserBuf]) -> bool {
        let has = |part: &UserBuf| {
            let (addr, len) = (part.addr(), part.len());
            let is_in = |device: &Opened| {
                let region = device.registered.find(addr, len, ibverbs::Access::empty());
                region.is_some()
            };
            len >= DIRECT_MIN && devices::any(is_in).is_some()
        };
        // Each long piece is worth it.
        memory.iter().any(has)
    }

    fn tell_read(link: &RdmaLink, memory: &[UserBuf]) -> Result<()> {
        let mut handshake = link.handshake.lock();
        let pipe = handshake.pipe.as_mut().ok_or(Errno::ENOTCONN)?;
        pipe.tell_read(memory)
    }

    fn write_now(link: &RdmaLink, to: RmaIov, memory: UserBuf) -> bool {
        let mut handshake = link.handshake.lock();
        let pipe = handshake.pipe.as_mut();
        pipe.is_some_and(|pipe| pipe.write_now(&to, memory))
    }

    fn read_now(link: &RdmaLink, from: RmaIov, memory: UserBuf) -> bool {
        let mut handshake = link.handshake.lock();
        let pipe = handshake.pipe.as_mut();
        pipe.is_some_and(|pipe| pipe.read_now(&from, memory))
    }

    fn payload_ready(link: &RdmaLink) -> usize {
        let handshake = link.handshake.lock();
        handshake.pipe.as_ref().map_or(0, Pipe::payload_ready)
    }

    fn send_now(link: &RdmaLink, header: &[u8; MESSAGE_LEN], payload: UserBuf) -> bool {
        let mut handshake = link.handshake.lock();
        let pipe = handshake.pipe.as_mut();
        pipe.is_some_and(|pipe| pipe.send_now(header, payload))
    }

    fn announce(link: &RdmaLink, index: u16, memory: &[UserBuf]) -> Result<RmaIovs> {
        let mut handshake = link.handshake.lock();
        let pipe = handshake.pipe.as_mut().ok_or(Errno::ENOTCONN)?;
        pipe.announce(index, memory)
    }

    fn announce_copy(
        link: &RdmaLink,
        index: u16,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<RmaIovs> {
        let mut handshake = link.handshake.lock();
        let pipe = handshake.pipe.as_mut().ok_or(Errno::ENOTCONN)?;
        pipe.announce_copy(index, len, fill)
    }
}
