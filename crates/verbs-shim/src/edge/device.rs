//! Finding and opening the device, and what it says of itself.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use std::sync::{Arc, LazyLock};

use ripstop_types::{Errno, Result};

use crate::device::{self, NAME, PKEY, c_text};
use crate::edge::args::{Array, Grown, In, Must, Object as _, Out, Room, Take, This};
use crate::edge::made::{Context, Device};
use crate::edge::{exports, minus_one, number, objects, or_null, post, refused, srq};
use crate::engine::Engine;
use crate::engine::cq::Channel;
use crate::log::{Subsys, refuse};
use crate::sys::{
    VERBS_ABI_IS_EXTENDED, compat_ibv_port_attr, ibv_context, ibv_context_ops, ibv_device,
    ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_query_device_ex_input,
    verbs_context,
};

/// The device. It is there as long as the process.
static DEVICE: LazyLock<Device> = LazyLock::new(|| Device {
    c: ibv_device {
        ops: [None; 2],
        // IBV_NODE_CA
        node_type: 1,
        // IBV_TRANSPORT_IB
        transport_type: 0,
        name: c_text(NAME),
        dev_name: c_text("ripstop-verbs"),
        dev_path: [0; 256],
        ibdev_path: [0; 256],
    },
});

/// The pointer that programs have for the device.
fn device_pointer() -> *mut ibv_device {
    (&raw const DEVICE.c).cast_mut()
}

/// The extended calls that there are; the headers' inline functions answer `EOPNOTSUPP` to others.
fn extended() -> verbs_context {
    verbs_context {
        query_port_to_query_rt_values: [None; 25],
        create_cq_ex: Some(objects::ripstop_verbs_create_cq_ex),
        priv_: ptr::null_mut(),
        query_device_ex: Some(ripstop_verbs_query_device_ex),
        destroy_flow_to_open_qp: [None; 5],
        create_qp_ex: Some(objects::ripstop_verbs_create_qp_ex),
        get_srq_num_to_close_xrcd: [None; 4],
        placeholder3: 0,
        sz: size_of::<verbs_context>() + size_of::<ibv_context>(),
    }
}

/// Opens the device.
pub(crate) fn open() -> Result<*mut ibv_context> {
    let engine = Engine::open()
        .map_err(|error| refuse(Subsys::Core, error, format_args!("{NAME} cannot be opened")))?;
    let events = Channel::new().map_err(crate::edge::errno_of)?;
    let context = ibv_context {
        device: device_pointer(),
        ops: ibv_context_ops {
            query_to_dereg: [Some(refused::call); 7],
            alloc_mw: Some(refused::object),
            bind_mw: Some(refused::call),
            dealloc_mw: Some(refused::call),
            create_cq: Some(refused::call),
            poll_cq: post::ripstop_verbs_poll_cq,
            req_notify_cq: post::ripstop_verbs_req_notify_cq,
            cq_and_srq: [Some(refused::call); 7],
            post_srq_recv: srq::ripstop_verbs_post_srq_recv,
            qp: [Some(refused::call); 4],
            post_send: post::ripstop_verbs_post_send,
            post_recv: post::ripstop_verbs_post_recv,
            ah_to_async: [Some(refused::call); 5],
        },
        cmd_fd: -1,
        async_fd: events.fd(),
        num_comp_vectors: 1,
        mutex: [0; 5],
        abi_compat: ptr::without_provenance_mut(VERBS_ABI_IS_EXTENDED),
    };
    let made = Context {
        ex: extended(),
        c: context,
        engine,
        events,
    };
    Ok(made.give())
}

/// Whether a port is the one there is.
fn only_port(port: u8) -> Result<()> {
    (port == 1).then_some(()).ok_or(Errno::EINVAL)
}

/// The port has tables with one entry each; `is_it` says whether that is meant.
fn only_entry(port: u8, is_it: bool) -> Result<()> {
    only_port(port).and(is_it.then_some(()).ok_or(Errno::EINVAL))
}

/// A table entry of the gid with this index.
fn gid_entry(context: &Context, port: u32, index: u32) -> Result<ibv_gid_entry> {
    if port != 1 || index != 0 {
        return Err(Errno::ENODATA);
    }
    Ok(ibv_gid_entry {
        gid: context.engine.gid(),
        gid_index: 0,
        port_num: 1,
        // IBV_GID_TYPE_ROCE_V2
        gid_type: 2,
        ndev_ifindex: 0,
    })
}

exports! {
    /// `ibv_get_device_list(3)`: this device, and no other.
    fn ibv_get_device_list(count: Out<'_, c_int>) -> *mut *mut ibv_device {
        count.set(1);
        let list = Box::new([device_pointer(), ptr::null_mut()]);
        Box::into_raw(list).cast()
    }

    /// `ibv_free_device_list(3)`.
    fn ibv_free_device_list(list: refused::List<ibv_device>) {
        list.free();
    }

    /// `ibv_get_device_name(3)`.
    fn ibv_get_device_name(device: This<'_, Device>) -> *const c_char {
        device.get().map_or(ptr::null(), |device| device.c.name.as_ptr())
    }

    /// `ibv_get_device_guid(3)`.
    fn ibv_get_device_guid(_device: This<'_, Device>) -> u64 {
        device::choose().map_or(0, |choice| device::guid(choice.ip))
    }

    /// `ibv_get_device_index(3)`: the kernel does not know it.
    fn ibv_get_device_index(_device: This<'_, Device>) -> c_int {
        -1
    }

    /// `ibv_open_device(3)`.
    fn ibv_open_device(_device: This<'_, Device>) -> *mut ibv_context {
        or_null(open())
    }

    /// `ibv_close_device(3)`.
    fn ibv_close_device(context: Take<Context>) -> c_int {
        context.engine.close();
        drop(context.take());
        0
    }

    /// `ibv_query_device(3)`.
    fn ibv_query_device(context: Must<'_, Context>, attr: Out<'_, ibv_device_attr>) -> c_int {
        attr.set(device::attributes(&context.engine.choice));
        0
    }

    /// `ibv_query_device_ex(3)`: nothing beyond what `ibv_query_device` says.
    fn ripstop_verbs_query_device_ex(
        context: Must<'_, Context>,
        _input: Array<'_, ibv_query_device_ex_input>,
        attr: Grown<'_, ibv_device_attr_ex>,
        size: usize,
    ) -> c_int {
        if size < size_of::<ibv_device_attr>() {
            return Errno::EINVAL.0;
        }
        attr.set(
            ibv_device_attr_ex {
                orig_attr: device::attributes(&context.engine.choice),
                comp_mask: 0,
                odp_caps: [0; 3],
                completion_timestamp_mask: 0,
                hca_core_clock: 0,
                device_cap_flags_ex: 0,
                tso_to_xrc_odp_caps: [0; 27],
                phys_port_cnt_ex: 1,
            },
            size,
        );
        0
    }

    /// `ibv_query_port(3)`.
    fn ibv_query_port(_context: Must<'_, Context>, port: u8, attr: Out<'_, compat_ibv_port_attr>) -> c_int {
        number(only_port(port).map(|()| attr.set(device::port())))
    }

    /// `ibv_query_gid(3)`.
    fn ibv_query_gid(
        context: Must<'_, Context>,
        port: u8,
        index: c_int,
        gid: Out<'_, ibv_gid>,
    ) -> c_int {
        let known = only_entry(port, index == 0);
        minus_one(known.map(|()| gid.set(context.engine.gid())))
    }

    /// `ibv_query_gid_ex(3)`.
    fn _ibv_query_gid_ex(
        context: Must<'_, Context>,
        port: u32,
        index: u32,
        entry: Out<'_, ibv_gid_entry>,
        flags: u32,
        size: usize,
    ) -> c_int {
        if flags != 0 || size < size_of::<ibv_gid_entry>() {
            return Errno::EINVAL.0;
        }
        number(gid_entry(&context, port, index).map(|found| entry.set(found)))
    }

    /// `ibv_query_gid_table(3)`.
    fn _ibv_query_gid_table(
        context: Must<'_, Context>,
        entries: Room<'_, ibv_gid_entry>,
        most: usize,
        flags: u32,
        size: usize,
    ) -> isize {
        if flags != 0 || size != size_of::<ibv_gid_entry>() || most == 0 {
            return -(Errno::EINVAL.0 as isize);
        }
        match gid_entry(&context, 1, 0) {
            Ok(entry) => {
                entries.write(0, entry);
                1
            }
            Err(error) => -(error.0 as isize),
        }
    }

    /// The type of a gid, for `ibv_devinfo`.
    fn ibv_query_gid_type(
        _context: Must<'_, Context>,
        port: u8,
        index: u32,
        kind: Out<'_, c_int>,
    ) -> c_int {
        let known = only_entry(port, index == 0);
        // IBV_GID_TYPE_SYSFS_ROCE_V2
        minus_one(known.map(|()| kind.set(1)))
    }

    /// `ibv_query_pkey(3)`.
    fn ibv_query_pkey(
        _context: Must<'_, Context>,
        port: u8,
        index: c_int,
        pkey: Out<'_, u16>,
    ) -> c_int {
        let known = only_entry(port, index == 0);
        minus_one(known.map(|()| pkey.set(PKEY)))
    }

    /// `ibv_get_pkey_index(3)`.
    fn ibv_get_pkey_index(_context: Must<'_, Context>, port: u8, pkey: u16) -> c_int {
        minus_one(only_entry(port, pkey == PKEY))
    }

    /// `ibv_get_async_event(3)`: there are no such events, so it waits, or sets `EAGAIN`.
    fn ibv_get_async_event(context: Must<'_, Context>, _event: *mut c_void) -> c_int {
        let events = Arc::clone(&context.events);
        minus_one(events.take(Some).map_err(crate::edge::errno_of))
    }

    /// `ibv_ack_async_event(3)`.
    fn ibv_ack_async_event(_event: *mut c_void) {}

    /// `ibv_fork_init(3)`: memory of the program is not pinned, so a fork harms nothing.
    fn ibv_fork_init() -> c_int {
        0
    }

    /// `ibv_is_fork_initialized(3)`: `IBV_FORK_UNNEEDED`.
    fn ibv_is_fork_initialized() -> c_int {
        2
    }

    /// `ibv_read_sysfs_file`, which programs of rdma-core ask for details of a device: the kernel has none.
    fn ibv_read_sysfs_file(
        _dir: *mut c_void,
        _file: *mut c_void,
        _buf: *mut c_void,
        _size: usize,
    ) -> c_int {
        -1
    }

    /// `ibv_import_device(3)`.
    fn ibv_import_device(_fd: c_int) -> *mut c_void {
        or_null(refused::why("devices of other processes are not imported"))
    }

    /// `ibv_query_ece(3)`: no options.
    fn ibv_query_ece(_qp: *mut c_void, ece: Out<'_, [u32; 3]>) -> c_int {
        ece.set([0; 3]);
        0
    }

    /// `ibv_set_ece(3)`: none can be set.
    fn ibv_set_ece(_qp: *mut c_void, ece: In<'_, [u32; 3]>) -> c_int {
        let none = ece.get().is_none_or(|ece| *ece == [0; 3]);
        number(if none { Ok(()) } else { refused::why("there are no ECE options") })
    }
}
