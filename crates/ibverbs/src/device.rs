#![allow(unsafe_code)]
//! Devices, their attributes, and protection domains.

use std::ffi::{c_char, c_int};
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_types::{Errno, Result};

use crate::library::{Library, by_errno, by_value, last_errno, library};
use crate::sys::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SRQ_ERR, ibv_async_event, ibv_context, ibv_device_attr, ibv_pd,
    ibv_port_attr,
};

/// The folder in which the kernel has an entry for each device that programs can open, below [`sysfs`].
const DEVICES: &str = "class/infiniband_verbs";

/// The root of sysfs: the variable that libibverbs looks at, too, says where it is mounted; not to programs that have rights
/// which their caller has not.
fn sysfs() -> PathBuf {
    let given = std::env::var_os("SYSFS_PATH").filter(|_| !ripstop_os::is_privileged());
    given.map_or_else(|| PathBuf::from("/sys"), PathBuf::from)
}

/// Whether the kernel has RDMA devices, found out without opening a library.
#[must_use]
pub fn has_devices() -> bool {
    let Ok(entries) = std::fs::read_dir(sysfs().join(DEVICES)) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("uverbs"))
}

/// The array that `rdma_get_devices` allocates, which keeps its contexts open.
struct List {
    library: &'static Library,
    raw: NonNull<*mut ibv_context>,
    count: usize,
}

impl List {
    fn open(library: &'static Library) -> Result<Arc<Self>> {
        let mut count: c_int = 0;
        // SAFETY: the function writes the number there.
        let raw = unsafe { (library.cm.rdma_get_devices)(&raw mut count) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        let count = usize::try_from(count).unwrap_or(0);
        Ok(Arc::new(Self {
            library,
            raw,
            count,
        }))
    }

    fn contexts(&self) -> impl Iterator<Item = NonNull<ibv_context>> + '_ {
        (0..self.count).filter_map(|index| {
            // SAFETY: the array has `count` elements and a null behind them.
            let element = unsafe { self.raw.add(index) };
            // SAFETY: in bounds, initialised by the library and never written again.
            NonNull::new(unsafe { element.read() })
        })
    }
}

// SAFETY: the array is never written, and the calls of rdma-core may come from any thread.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: allocated by `rdma_get_devices`, and freed once; no context of it is used any more,
        // since each `Context` holds the list.
        unsafe { (self.library.cm.rdma_free_devices)(self.raw.as_ptr()) };
    }
}

/// An open device, the one that `librdmacm` uses for its connections.
pub struct Context {
    pub(crate) library: &'static Library,
    pub(crate) raw: NonNull<ibv_context>,
    /// Keeps it open, and the others of the list with it, so it changes when one of them goes.
    list: Mutex<Arc<List>>,
}

/// The contexts of this process.
static OPEN: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());

// SAFETY: libibverbs' objects may be used by any thread at any time (`ibv_open_device(3)`, "verbs is
// fully thread safe").
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.name())
    }
}

impl PartialEq for Context {
    /// Whether both are the same open device.
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Eq for Context {}

/// All devices, open. None where the kernel has none, in which case no library is opened.
///
/// # Errors
/// [`Errno::ENOSYS`] without the libraries ([`available`](crate::available) says which); what
/// `rdma_get_devices(3)` says.
pub fn devices() -> Result<Vec<Arc<Context>>> {
    if !has_devices() {
        return Ok(Vec::new());
    }
    let library = library().map_err(|_| Errno::ENOSYS)?;
    let list = List::open(library)?;
    let mut open = OPEN.lock();
    open.retain(|context| context.strong_count() > 0);
    let contexts: Vec<_> = list
        .contexts()
        .map(|raw| {
            Arc::new(Context {
                library,
                raw,
                list: Mutex::new(Arc::clone(&list)),
            })
        })
        .collect();
    open.extend(contexts.iter().map(Arc::downgrade));
    Ok(contexts)
}

/// Lets `librdmacm` close devices that the kernel no longer has, as soon as their own contexts are dropped: those of
/// other devices keep them open no longer. It closes none while there is no other device.
///
/// # Errors
/// As for [`devices`].
pub fn forget_removed() -> Result<()> {
    let library = library().map_err(|_| Errno::ENOSYS)?;
    let list = List::open(library)?;
    let open: Vec<_> = OPEN.lock().iter().filter_map(Weak::upgrade).collect();
    for context in open {
        if list.contexts().any(|raw| raw == context.raw) {
            let old = std::mem::replace(&mut *context.list.lock(), Arc::clone(&list));
            drop(old);
        }
    }
    Ok(())
}

/// What a device can do (`ibv_query_device(3)`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttr {
    /// Version of the firmware.
    pub firmware: String,
    /// The node's GUID.
    pub node_guid: u64,
    /// The vendor's number.
    pub vendor_id: u32,
    /// The vendor's number for the model.
    pub part_id: u32,
    /// The hardware's version.
    pub hardware: u32,
    /// Whether it has atomics on 64 bits that are atomic among its own queue pairs at least.
    pub atomics: bool,
    /// Largest region, bytes.
    pub max_mr_size: u64,
    /// Most regions.
    pub max_mr: usize,
    /// Most queue pairs.
    pub max_qp: usize,
    /// Most requests of a queue of a queue pair.
    pub max_qp_wr: usize,
    /// Most pieces of memory of a request.
    pub max_sge: usize,
    /// Most pieces of memory of a read.
    pub max_sge_rd: usize,
    /// Most completion queues.
    pub max_cq: usize,
    /// Most entries of a completion queue.
    pub max_cqe: usize,
    /// Most reads and atomics that a queue pair answers at a time.
    pub max_qp_rd_atom: u8,
    /// Most reads and atomics that a queue pair has under way.
    pub max_qp_init_rd_atom: u8,
    /// Most shared receive queues.
    pub max_srq: usize,
    /// Most requests of a shared receive queue.
    pub max_srq_wr: usize,
    /// Most pieces of memory of a receive of a shared receive queue.
    pub max_srq_sge: usize,
    /// Ports, which are numbered from 1.
    pub ports: u8,
}

/// How a port's link is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// Not said.
    Unspecified,
}

/// The protocol that a device speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand's, also over Ethernet.
    Ib,
    /// iWARP.
    Iwarp,
    /// Another one.
    Other,
}

/// A port (`ibv_query_port(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttr {
    /// Whether messages can be sent (`IBV_PORT_ACTIVE`).
    pub active: bool,
    /// Bytes of a packet's payload.
    pub mtu: usize,
    /// Largest message, bytes.
    pub max_msg: u32,
    /// The local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The service level by which the subnet's manager is reached; 0 on Ethernet.
    pub sm_sl: u8,
    /// Entries of the table of GIDs.
    pub gids: usize,
    /// How the link is made.
    pub link: LinkLayer,
    /// Bits per second; 0 where it is not known.
    pub speed: u64,
}

/// The name of a device.
///
/// # Safety
/// The context is live until the call returns.
pub(crate) unsafe fn name_of(context: NonNull<ibv_context>) -> String {
    // SAFETY: a live context, whose device is set when it is opened and stays.
    let device = unsafe { (*context.as_ptr()).device };
    // SAFETY: the device lives as long as its context, and its name is never changed.
    let name = unsafe { (*device).name };
    chars(&name)
}

impl Context {
    /// The kernel's name of the device (`mlx5_0`, `rxe0`).
    #[must_use]
    pub fn name(&self) -> String {
        // SAFETY: a live context.
        unsafe { name_of(self.raw) }
    }

    /// The protocol of the device.
    #[must_use]
    pub fn transport(&self) -> Transport {
        // SAFETY: a live context, whose device is set when it is opened and stays.
        let device = unsafe { (*self.raw.as_ptr()).device };
        // SAFETY: the device lives as long as its context, and its kind is never changed.
        match unsafe { (*device).transport_type } {
            0 => Transport::Ib,
            1 => Transport::Iwarp,
            _ => Transport::Other,
        }
    }

    /// What the device can do.
    ///
    /// # Errors
    /// What `ibv_query_device(3)` says.
    pub fn attr(&self) -> Result<DeviceAttr> {
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: a live context, and room for the struct, which has the header's layout.
        let ret = unsafe { (self.library.ibv.ibv_query_device)(self.raw(), attr.as_mut_ptr()) };
        by_value(ret)?;
        // SAFETY: all numbers, for which zero is a value too.
        let attr = unsafe { attr.assume_init() };
        Ok(DeviceAttr {
            firmware: chars(&attr.fw_ver),
            node_guid: u64::from_be(attr.node_guid),
            vendor_id: attr.vendor_id,
            part_id: attr.vendor_part_id,
            hardware: attr.hw_ver,
            atomics: attr.atomic_cap != 0,
            max_mr_size: attr.max_mr_size,
            max_mr: count(attr.max_mr),
            max_qp: count(attr.max_qp),
            max_qp_wr: count(attr.max_qp_wr),
            max_sge: count(attr.max_sge),
            max_sge_rd: count(attr.max_sge_rd),
            max_cq: count(attr.max_cq),
            max_cqe: count(attr.max_cqe),
            max_qp_rd_atom: small(attr.max_qp_rd_atom),
            max_qp_init_rd_atom: small(attr.max_qp_init_rd_atom),
            max_srq: count(attr.max_srq),
            max_srq_wr: count(attr.max_srq_wr),
            max_srq_sge: count(attr.max_srq_sge),
            ports: attr.phys_port_cnt,
        })
    }

    /// A port, by its number from 1.
    ///
    /// # Errors
    /// What `ibv_query_port(3)` says.
    pub fn port(&self, port: u8) -> Result<PortAttr> {
        let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: a live context, and room for the struct, of which the exported function writes the
        // part that releases before 27 had.
        let ret = unsafe { (self.library.ibv.ibv_query_port)(self.raw(), port, attr.as_mut_ptr()) };
        by_value(ret)?;
        // SAFETY: all numbers, for which zero is a value too.
        let attr = unsafe { attr.assume_init() }.front;
        Ok(PortAttr {
            active: attr.state == 4,
            mtu: match attr.active_mtu {
                code @ 1..=5 => 128 << code,
                _ => 0,
            },
            max_msg: attr.max_msg_sz,
            lid: attr.lid,
            sm_sl: attr.sm_sl,
            gids: count(attr.gid_tbl_len),
            link: match attr.link_layer {
                1 => LinkLayer::InfiniBand,
                2 => LinkLayer::Ethernet,
                _ => LinkLayer::Unspecified,
            },
            speed: speed(attr.active_width, attr.active_speed),
        })
    }

    /// An entry of a port's table of GIDs; one of zeroes is not in use.
    ///
    /// # Errors
    /// What `ibv_query_gid(3)` says.
    pub fn gid(&self, port: u8, index: usize) -> Result<[u8; 16]> {
        let index = c_int::try_from(index).map_err(|_| Errno::EINVAL)?;
        let mut gid = [0; 16];
        // SAFETY: a live context, and room for the 16 bytes of a GID.
        let ret =
            unsafe { (self.library.ibv.ibv_query_gid)(self.raw(), port, index, &raw mut gid) };
        by_value(ret)?;
        Ok(gid)
    }

    /// An entry of a port's table of partition keys.
    ///
    /// # Errors
    /// What `ibv_query_pkey(3)` says.
    pub fn pkey(&self, port: u8, index: usize) -> Result<u16> {
        let index = c_int::try_from(index).map_err(|_| Errno::EINVAL)?;
        let mut pkey = 0;
        // SAFETY: a live context, and room for the key, which is written in network order.
        let ret =
            unsafe { (self.library.ibv.ibv_query_pkey)(self.raw(), port, index, &raw mut pkey) };
        by_value(ret)?;
        Ok(u16::from_be(pkey))
    }

    pub(crate) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }
}

/// Which queue an event of a device is about. The number is used again once the queue is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueKey(pub(crate) usize);

/// What a device tells of itself (`ibv_get_async_event(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The completion queue has lost completions, and the queue pairs that report to it have failed.
    CqFailed(QueueKey),
    /// The queue pair with this number has failed.
    QpFailed(u32),
    /// The queue pair with this number has failed, and takes no more receives of its shared queue.
    LastReceive(u32),
    /// The queue of shared receives has failed.
    SrqFailed(QueueKey),
    /// The port with this number can be used.
    PortUp(i32),
    /// It can no longer be used.
    PortDown(i32),
    /// The device has failed or is being removed: nothing of it works any more.
    DeviceFailed,
    /// Something else, by its number in `enum ibv_event_type`.
    Other(i32),
}

impl DeviceEvent {
    /// # Safety
    /// `event` was written by `ibv_get_async_event`, and is not acknowledged yet.
    unsafe fn read(event: &ibv_async_event) -> Self {
        let element = event.element;
        let queue = || {
            // SAFETY: for the kinds that ask, the library has written a pointer, of which only the address is read.
            QueueKey(unsafe { element.cq }.addr())
        };
        let number = || {
            // SAFETY: for the kinds that ask, the library has written this field.
            let qp = unsafe { element.qp };
            // SAFETY: destroying a queue pair waits until its events are acknowledged; its number never changes.
            unsafe { (*qp).qp_num }
        };
        let port = || {
            // SAFETY: for the kinds that ask, the library has written this field.
            unsafe { element.port_num }
        };
        match event.event_type {
            IBV_EVENT_CQ_ERR => Self::CqFailed(queue()),
            IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                Self::QpFailed(number())
            }
            IBV_EVENT_QP_LAST_WQE_REACHED => Self::LastReceive(number()),
            IBV_EVENT_SRQ_ERR => Self::SrqFailed(queue()),
            IBV_EVENT_PORT_ACTIVE => Self::PortUp(port()),
            IBV_EVENT_PORT_ERR => Self::PortDown(port()),
            IBV_EVENT_DEVICE_FATAL => Self::DeviceFailed,
            other => Self::Other(other),
        }
    }
}

impl Context {
    /// The descriptor that is readable while there is an event.
    #[must_use]
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live context, whose descriptor is set when it is opened and stays.
        let fd = unsafe { (*self.raw()).async_fd };
        // SAFETY: it is closed with the context, which `self` outlives.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Has [`next_event`](Self::next_event) return where there is none. To be called before that.
    ///
    /// # Errors
    /// What `fcntl(2)` says.
    pub fn watch_events(&self) -> Result<()> {
        ripstop_os::set_nonblocking(self.events_fd())
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when there is none; what `ibv_get_async_event(3)` says.
    pub fn next_event(&self) -> Result<DeviceEvent> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        let take = self.library.ibv.ibv_get_async_event;
        // SAFETY: a live context, and room for an event.
        let ret = unsafe { take(self.raw(), event.as_mut_ptr()) };
        by_errno(ret)?;
        // SAFETY: the call succeeded, so it has written the event; zeroes are a value of each field as well.
        let mut event = unsafe { event.assume_init() };
        // SAFETY: the event that was just taken.
        let told = unsafe { DeviceEvent::read(&event) };
        // SAFETY: the one acknowledgement of this event, of which nothing is borrowed any more.
        unsafe { (self.library.ibv.ibv_ack_async_event)(&raw mut event) };
        Ok(told)
    }
}

/// A protection domain: what regions and queue pairs must share to be used together.
pub struct Pd {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: NonNull<ibv_pd>,
}

// SAFETY: libibverbs' objects may be used by any thread at any time.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    /// A protection domain of a device.
    ///
    /// # Errors
    /// What `ibv_alloc_pd(3)` says.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>> {
        // SAFETY: a live context.
        let raw = unsafe { (context.library.ibv.ibv_alloc_pd)(context.raw()) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        let context = Arc::clone(context);
        Ok(Arc::new(Self { context, raw }))
    }

    /// Its device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pd({})", self.context.name())
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: allocated by `ibv_alloc_pd`, and freed once; what was made with it holds it.
        unsafe { (self.context.library.ibv.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// A number that is not negative.
fn count(number: c_int) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// A number of reads and atomics, which connection parameters give in a byte.
fn small(number: c_int) -> u8 {
    u8::try_from(number.max(0)).unwrap_or(u8::MAX)
}

/// A string in an array.
fn chars(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array
        .iter()
        .map(|c| c.cast_unsigned())
        .take_while(|c| *c != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Bits per second of a link by the codes of the InfiniBand specification for lanes and for the speed
/// of a lane.
fn speed(width: u8, speed: u8) -> u64 {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    let megabits: u64 = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    lanes * megabits * 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_lanes_times_speed() {
        assert_eq!(speed(2, 32), 100_000_000_000);
        assert_eq!(speed(1, 1), 2_500_000_000);
        assert_eq!(speed(0, 1), 0);
        assert_eq!(speed(1, 3), 0);
    }

    #[test]
    fn events_are_those_of_the_header() {
        use crate::sys::{ibv_async_element, ibv_qp};
        let told = |event_type, element| {
            let event = ibv_async_event {
                element,
                event_type,
            };
            // SAFETY: written as the library does; pointers are to a live struct, or only their address is used.
            unsafe { DeviceEvent::read(&event) }
        };
        let mut qp = MaybeUninit::<ibv_qp>::zeroed();
        // SAFETY: the place of a struct, which is not read.
        let number = unsafe { &raw mut (*qp.as_mut_ptr()).qp_num };
        // SAFETY: a field of the struct, of which nothing is borrowed.
        unsafe { number.write(17) };
        let of_qp = ibv_async_element {
            qp: qp.as_mut_ptr(),
        };
        let of_queue = ibv_async_element {
            cq: std::ptr::without_provenance_mut(0x80),
        };
        let of_port = ibv_async_element { port_num: 1 };
        for failed in 1..=3 {
            assert_eq!(told(failed, of_qp), DeviceEvent::QpFailed(17));
        }
        assert_eq!(told(16, of_qp), DeviceEvent::LastReceive(17));
        assert_eq!(told(0, of_queue), DeviceEvent::CqFailed(QueueKey(0x80)));
        assert_eq!(told(14, of_queue), DeviceEvent::SrqFailed(QueueKey(0x80)));
        assert_eq!(told(9, of_port), DeviceEvent::PortUp(1));
        assert_eq!(told(10, of_port), DeviceEvent::PortDown(1));
        assert_eq!(told(8, of_port), DeviceEvent::DeviceFailed);
        assert_eq!(told(15, of_queue), DeviceEvent::Other(15));
    }

    #[test]
    fn names_end_at_the_first_zero() {
        let mut array = [0; 8];
        for (to, from) in array.iter_mut().zip(b"rxe0\0x") {
            *to = from.cast_signed();
        }
        assert_eq!(chars(&array), "rxe0");
    }

    #[test]
    fn without_devices_there_are_none() {
        if has_devices() {
            println!("SKIP: this machine has RDMA devices");
            return;
        }
        assert_eq!(devices(), Ok(Vec::new()));
    }
}
