#![allow(unsafe_code)]
//! Connections by `librdmacm`.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_core::sockaddr;
use ripstop_types::{Errno, Result};

use crate::device::{Context, name_of};
use crate::library::{Library, by_errno, last_errno, library};
use crate::sys::{
    ConnTerms, RDMA_PS_TCP, SOCKADDR_STORAGE, ibv_qp, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};

/// Where the events of ids arrive (`rdma_create_event_channel(3)`). Its descriptor is readable while
/// there is one, and does not block.
///
/// `librdmacm` writes the structs of ids while it takes events, so everything that is done to the ids of a
/// channel is done under its lock.
pub struct EventChannel {
    library: &'static Library,
    raw: NonNull<rdma_event_channel>,
    fd: c_int,
    lock: Mutex<()>,
}

// SAFETY: librdmacm may be called by any thread; what it does not guard is behind `lock`.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

/// Which id an event is about. The number is used again once the id is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdKey(usize);

/// What has happened to an id (`enum rdma_cm_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEventKind {
    /// [`CmId::resolve_addr`] has found device and address.
    AddrResolved,
    /// It has not.
    AddrError,
    /// [`CmId::resolve_route`] has found the way.
    RouteResolved,
    /// It has not.
    RouteError,
    /// A peer wants to connect.
    ConnectRequest,
    /// The connection failed in this machine.
    ConnectError,
    /// The peer did not answer.
    Unreachable,
    /// The peer refused.
    Rejected,
    /// Connected.
    Established,
    /// The connection has ended.
    Disconnected,
    /// The device is going away.
    DeviceRemoval,
    /// The address of the interface has changed.
    AddrChange,
    /// The queue pair's number may be used again.
    TimewaitExit,
    /// Another one.
    Other,
}

impl CmEventKind {
    fn of(raw: c_int) -> Self {
        match raw {
            0 => Self::AddrResolved,
            1 => Self::AddrError,
            2 => Self::RouteResolved,
            3 => Self::RouteError,
            4 => Self::ConnectRequest,
            6 => Self::ConnectError,
            7 => Self::Unreachable,
            8 => Self::Rejected,
            9 => Self::Established,
            10 => Self::Disconnected,
            11 => Self::DeviceRemoval,
            14 => Self::AddrChange,
            15 => Self::TimewaitExit,
            _ => Self::Other,
        }
    }
}

/// An event. It is acknowledged already.
#[derive(Debug)]
pub struct CmEvent {
    /// The id; of a request the listening one.
    pub id: IdKey,
    /// What has happened.
    pub kind: CmEventKind,
    /// More about it: a negative error number, or of a rejection the reason that the peer gave.
    pub status: i32,
    /// What the peer passed along. InfiniBand pads it with zeroes to the size of the message's field.
    pub data: Vec<u8>,
    /// The id of a request, to be accepted or rejected.
    pub request: Option<Arc<CmId>>,
    /// How many reads and atomics the peer wants to have under way, or to answer at a time.
    pub peer_depth: PeerDepth,
}

/// What a peer says of reads and atomics, from this side's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerDepth {
    /// How many this side may be asked to answer at a time.
    pub responder_resources: u8,
    /// How many this side may have under way.
    pub initiator_depth: u8,
}

impl EventChannel {
    /// A new channel.
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] without the libraries; what `rdma_create_event_channel(3)` says.
    pub fn new() -> Result<Arc<Self>> {
        let library = library().map_err(|_| Errno::ENOSYS)?;
        // SAFETY: the function takes nothing.
        let raw = unsafe { (library.cm.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        // SAFETY: just made; the field stays.
        let fd = unsafe { (*raw.as_ptr()).fd };
        let lock = Mutex::new(());
        let channel = Self {
            library,
            raw,
            fd,
            lock,
        };
        ripstop_os::set_nonblocking(channel.as_fd())?;
        Ok(Arc::new(channel))
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when there is none; what `rdma_get_cm_event(3)` says.
    pub fn next(self: &Arc<Self>) -> Result<CmEvent> {
        let _guard = self.lock.lock();
        let mut raw = ptr::null_mut();
        // SAFETY: a live channel, and room for the result.
        let ret = unsafe { (self.library.cm.rdma_get_cm_event)(self.raw.as_ptr(), &raw mut raw) };
        by_errno(ret)?;
        // SAFETY: the call succeeded, so there is an event, which is ours until it is acknowledged.
        let borrowed = unsafe { &*raw };
        // SAFETY: the event that was just taken.
        let event = unsafe { self.read(borrowed) };
        // SAFETY: the one acknowledgement of this event, of which nothing is borrowed any more.
        unsafe { (self.library.cm.rdma_ack_cm_event)(raw) };
        Ok(event)
    }

    /// Copies what an event says.
    ///
    /// # Safety
    /// `event` comes from `rdma_get_cm_event` and is not acknowledged yet. Called once for each.
    unsafe fn read(self: &Arc<Self>, event: &rdma_cm_event) -> CmEvent {
        let kind = CmEventKind::of(event.event);
        let is_request = kind == CmEventKind::ConnectRequest;
        // SAFETY: all ids here are of connections, so the library has set these.
        let conn = unsafe { event.param.conn };
        let mut data = Vec::new();
        if !conn.private_data.is_null() {
            let len = usize::from(conn.private_data_len);
            // SAFETY: the library gives start and length of the bytes, which belong to the event.
            let bytes = unsafe { std::slice::from_raw_parts(conn.private_data.cast::<u8>(), len) };
            data.extend_from_slice(bytes);
        }
        let about = if is_request {
            event.listen_id
        } else {
            event.id
        };
        let request = NonNull::new(event.id).filter(|_| is_request).map(|raw| {
            Arc::new(CmId {
                channel: Arc::clone(self),
                raw,
                has_qp: Mutex::new(false),
            })
        });
        CmEvent {
            id: IdKey(about.addr()),
            kind,
            status: event.status,
            data,
            request,
            peer_depth: PeerDepth {
                responder_resources: conn.terms.responder_resources,
                initiator_depth: conn.terms.initiator_depth,
            },
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor of a channel is closed when it is destroyed, which `self` outlives.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventChannel({})", self.fd)
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: made by the library, and freed once; ids hold it.
        unsafe { (self.library.cm.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// How a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnParam<'a> {
    /// Bytes for the peer: 56 when connecting, 196 when accepting, at most (InfiniBand over IP addresses).
    pub data: &'a [u8],
    /// How many reads and atomics of the peer are answered at a time.
    pub responder_resources: u8,
    /// How many reads and atomics this side has under way.
    pub initiator_depth: u8,
    /// How often a packet is sent again, up to 7.
    pub retries: u8,
    /// How often a message is sent again for which the peer has no receive; 7 is for ever.
    pub rnr_retries: u8,
}

impl ConnParam<'_> {
    fn raw(&self) -> Result<rdma_conn_param> {
        Ok(rdma_conn_param {
            private_data: self.data.as_ptr().cast::<c_void>(),
            private_data_len: u8::try_from(self.data.len()).map_err(|_| Errno::EINVAL)?,
            terms: ConnTerms {
                responder_resources: self.responder_resources,
                initiator_depth: self.initiator_depth,
                flow_control: 1,
                retry_count: self.retries,
                rnr_retry_count: self.rnr_retries,
                srq: 0,
            },
            qp_num: 0,
        })
    }
}

/// One end of a connection, or what listens for them (`struct rdma_cm_id`). Dropping it ends it.
pub struct CmId {
    channel: Arc<EventChannel>,
    raw: NonNull<rdma_cm_id>,
    has_qp: Mutex<bool>,
}

// SAFETY: librdmacm may be called by any thread; what it does not guard is behind the channel's lock.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

/// A socket address with the room that the library may read.
fn storage(addr: &SocketAddr) -> [u8; SOCKADDR_STORAGE] {
    let mut bytes = [0; SOCKADDR_STORAGE];
    let encoded = sockaddr::encode(addr);
    bytes[..encoded.len()].copy_from_slice(&encoded);
    bytes
}

/// A time as the library counts it.
fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

impl CmId {
    /// An id for reliable connections.
    ///
    /// # Errors
    /// What `rdma_create_id(3)` says.
    pub fn new(channel: &Arc<EventChannel>) -> Result<Arc<Self>> {
        let mut raw = ptr::null_mut();
        let create = channel.library.cm.rdma_create_id;
        // SAFETY: a live channel, and room for the result; the context is not used.
        by_errno(unsafe {
            create(
                channel.raw.as_ptr(),
                &raw mut raw,
                ptr::null_mut(),
                RDMA_PS_TCP,
            )
        })?;
        let raw = NonNull::new(raw).ok_or(Errno::EOTHER)?;
        Ok(Arc::new(Self {
            channel: Arc::clone(channel),
            raw,
            has_qp: Mutex::new(false),
        }))
    }

    /// What events about it are told by.
    #[must_use]
    pub fn key(&self) -> IdKey {
        IdKey(self.raw.as_ptr().addr())
    }

    /// Calls a function of the library with the id, under the channel's lock.
    fn call(&self, function: impl FnOnce(&Library, *mut rdma_cm_id) -> c_int) -> Result<()> {
        let _guard = self.channel.lock.lock();
        by_errno(function(self.channel.library, self.raw.as_ptr()))
    }

    /// Has events about an id, which nobody else holds, arrive at another channel from now on.
    ///
    /// # Errors
    /// [`Errno::EBUSY`] for an id that somebody else holds; what `rdma_migrate_id(3)` says.
    pub fn migrate(id: Arc<Self>, to: &Arc<EventChannel>) -> Result<Arc<Self>> {
        let mut id = Arc::into_inner(id).ok_or(Errno::EBUSY)?;
        let channel = to.raw.as_ptr();
        // SAFETY: a live id and a live channel. Events are acknowledged where they are taken, under the
        // lock of the channel they came from, which is held, so the call does not wait for one.
        id.call(|library, id| unsafe { (library.cm.rdma_migrate_id)(id, channel) })?;
        id.channel = Arc::clone(to);
        Ok(Arc::new(id))
    }

    /// Takes a local address, and the device it belongs to; port 0 for one that is free.
    ///
    /// # Errors
    /// What `rdma_bind_addr(3)` says; [`Errno::ENODEV`] for an address that is no RDMA device's.
    pub fn bind(&self, addr: &SocketAddr) -> Result<()> {
        let addr = storage(addr);
        // SAFETY: a live id, and a socket address with room behind it.
        self.call(|library, id| unsafe { (library.cm.rdma_bind_addr)(id, addr.as_ptr()) })
    }

    /// Looks for the device and address from which `to` is reached. The outcome is an event.
    ///
    /// # Errors
    /// What `rdma_resolve_addr(3)` says.
    pub fn resolve_addr(
        &self,
        from: Option<&SocketAddr>,
        to: &SocketAddr,
        timeout: Duration,
    ) -> Result<()> {
        let from = from.map(storage);
        let to = storage(to);
        let from = from.as_ref().map_or(ptr::null(), |from| from.as_ptr());
        let timeout = milliseconds(timeout);
        let to = to.as_ptr();
        // SAFETY: a live id, and socket addresses with room behind them, which live until the end.
        self.call(|library, id| unsafe { (library.cm.rdma_resolve_addr)(id, from, to, timeout) })
    }

    /// Looks for the way to the address that was resolved. The outcome is an event.
    ///
    /// # Errors
    /// What `rdma_resolve_route(3)` says.
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        let timeout = milliseconds(timeout);
        // SAFETY: a live id.
        self.call(|library, id| unsafe { (library.cm.rdma_resolve_route)(id, timeout) })
    }

    /// Listens for connections.
    ///
    /// # Errors
    /// What `rdma_listen(3)` says.
    pub fn listen(&self, backlog: u32) -> Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: a live id.
        self.call(|library, id| unsafe { (library.cm.rdma_listen)(id, backlog) })
    }

    /// Connects to the address that was resolved. The outcome is an event.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for too much data; what `rdma_connect(3)` says.
    pub fn connect(&self, param: &ConnParam<'_>) -> Result<()> {
        let mut param = param.raw()?;
        let param = &raw mut param;
        // SAFETY: a live id, and a whole struct, whose data is borrowed until the end.
        self.call(|library, id| unsafe { (library.cm.rdma_connect)(id, param) })
    }

    /// Accepts a request. That the connection stands is an event.
    ///
    /// # Errors
    /// As for [`CmId::connect`].
    pub fn accept(&self, param: &ConnParam<'_>) -> Result<()> {
        let mut param = param.raw()?;
        let param = &raw mut param;
        // SAFETY: a live id, and a whole struct, whose data is borrowed until the end.
        self.call(|library, id| unsafe { (library.cm.rdma_accept)(id, param) })
    }

    /// Refuses a request, with up to 148 bytes for the peer (InfiniBand).
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for too much data; what `rdma_reject(3)` says.
    pub fn reject(&self, data: &[u8]) -> Result<()> {
        let len = u8::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
        let start = data.as_ptr().cast::<c_void>();
        // SAFETY: a live id, and so many bytes.
        self.call(|library, id| unsafe { (library.cm.rdma_reject)(id, start, len) })
    }

    /// Ends the connection; requests that are under way are flushed.
    ///
    /// # Errors
    /// What `rdma_disconnect(3)` says.
    pub fn disconnect(&self) -> Result<()> {
        // SAFETY: a live id.
        self.call(|library, id| unsafe { (library.cm.rdma_disconnect)(id) })
    }

    /// The fields of the struct. The library writes them under the channel's lock, which is held while one is read.
    fn fields(&self) -> &rdma_cm_id {
        // SAFETY: a live id, which ends with this value; every field may be written while there is a reference.
        unsafe { self.raw.as_ref() }
    }

    /// The local address, once there is one.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let _guard = self.channel.lock.lock();
        sockaddr::decode(&self.fields().src_addr.bytes())
    }

    /// The peer's address, once there is one.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        let _guard = self.channel.lock.lock();
        sockaddr::decode(&self.fields().dst_addr.bytes())
    }

    /// The one among `devices` that it is bound to, if there is one yet.
    #[must_use]
    pub fn device<'a>(&self, devices: &'a [Arc<Context>]) -> Option<&'a Arc<Context>> {
        let _guard = self.channel.lock.lock();
        let own = self.fields().verbs.load(Relaxed);
        devices.iter().find(|device| device.raw() == own)
    }

    /// The name of the device that it is bound to, if there is one yet.
    #[must_use]
    pub fn device_name(&self) -> Option<String> {
        let _guard = self.channel.lock.lock();
        let own = NonNull::new(self.fields().verbs.load(Relaxed))?;
        // SAFETY: the library keeps the device of an id open as long as the id lives.
        Some(unsafe { name_of(own) })
    }

    /// The port of the device, numbered from 1.
    #[must_use]
    pub fn port(&self) -> u8 {
        let _guard = self.channel.lock.lock();
        self.fields().port_num.load(Relaxed)
    }

    /// Makes the queue pair of the connection with what `make` calls, and returns it.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when it has one; what `make` says.
    pub(crate) fn make_qp(
        &self,
        make: impl FnOnce(&Library, *mut rdma_cm_id) -> c_int,
    ) -> Result<NonNull<ibv_qp>> {
        let mut has_qp = self.has_qp.lock();
        if *has_qp {
            return Err(Errno::EINVAL);
        }
        let _guard = self.channel.lock.lock();
        by_errno(make(self.channel.library, self.raw.as_ptr()))?;
        let raw = self.fields().qp.load(Relaxed);
        let raw = NonNull::new(raw).ok_or(Errno::EOTHER)?;
        *has_qp = true;
        Ok(raw)
    }

    /// Destroys the queue pair, whose owner calls this once and does not use it afterwards.
    pub(crate) fn destroy_qp(&self) {
        let mut has_qp = self.has_qp.lock();
        let _guard = self.channel.lock.lock();
        // SAFETY: a live id with a queue pair, which its owner is dropping.
        unsafe { (self.channel.library.cm.rdma_destroy_qp)(self.raw.as_ptr()) };
        *has_qp = false;
    }
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local, peer) = (self.local_addr(), self.peer_addr());
        write!(f, "CmId({local:?} to {peer:?})")
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        let _guard = self.channel.lock.lock();
        // SAFETY: made by the library, and freed once; its queue pair holds it. Events about it are
        // acknowledged where they are taken, under the lock, so the call does not wait for one.
        unsafe { (self.channel.library.cm.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_their_bounds() {
        let param = ConnParam {
            data: &[7; 56],
            responder_resources: 1,
            initiator_depth: 2,
            retries: 7,
            rnr_retries: 6,
        };
        let raw = param.raw().expect("fits");
        assert_eq!((raw.private_data_len, raw.terms.rnr_retry_count), (56, 6));
        let long = ConnParam {
            data: &[0; 256],
            ..param
        };
        assert_eq!(long.raw().map(|_| ()), Err(Errno::EINVAL));
    }

    #[test]
    fn addresses_have_the_room_of_any() {
        let addr: SocketAddr = "10.7.0.1:4711".parse().expect("an address");
        assert_eq!(sockaddr::decode(&storage(&addr)), Some(addr));
        assert_eq!(milliseconds(Duration::MAX), c_int::MAX);
    }
}
