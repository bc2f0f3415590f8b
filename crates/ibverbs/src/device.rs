#![allow(unsafe_code)]
//! Devices, their attributes, and protection domains.

use std::ffi::{c_char, c_int};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use ripstop_types::{Errno, Result};

use crate::library::{Library, by_value, last_errno, library};
use crate::sys::{ibv_context, ibv_device_attr, ibv_pd, ibv_port_attr};

/// The folder in which the kernel has an entry for each device that programs can open.
const DEVICES: &str = "/sys/class/infiniband_verbs";

/// Whether the kernel has RDMA devices, found out without opening a library.
#[must_use]
pub fn has_devices() -> bool {
    let Ok(entries) = std::fs::read_dir(DEVICES) else {
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
    _list: Arc<List>,
}

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
    let mut count: c_int = 0;
    // SAFETY: the function writes the number there.
    let raw = unsafe { (library.cm.rdma_get_devices)(&raw mut count) };
    let raw = NonNull::new(raw).ok_or_else(last_errno)?;
    let list = Arc::new(List { library, raw });
    let count = usize::try_from(count).unwrap_or(0);
    let mut contexts = Vec::with_capacity(count);
    for index in 0..count {
        // SAFETY: the array has `count` elements and a null behind them.
        let element = unsafe { raw.add(index) };
        // SAFETY: in bounds, initialised by the library and never written again.
        let context = unsafe { element.read() };
        if let Some(raw) = NonNull::new(context) {
            let list = Arc::clone(&list);
            contexts.push(Arc::new(Context {
                library,
                raw,
                _list: list,
            }));
        }
    }
    Ok(contexts)
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

impl Context {
    /// The kernel's name of the device (`mlx5_0`, `rxe0`).
    #[must_use]
    pub fn name(&self) -> String {
        // SAFETY: a live context, whose device is set when it is opened and stays.
        let device = unsafe { (*self.raw.as_ptr()).device };
        // SAFETY: the device lives as long as its context, and its name is never changed.
        let name = unsafe { (*device).name };
        chars(&name)
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
