#![allow(unsafe_code)]
//! Protection domains, regions, completion queues and channels, queue pairs.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::Arc;

use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Result};

use crate::edge::args::{Arg as _, Changed, In, Must, Object, Out, Take, This};
use crate::edge::building::Builder;
use crate::edge::made::{CompChannel, Context, Cq, Mr, Pd, Qp, Srq};
use crate::edge::turn::Turn;
use crate::edge::wr;
use crate::edge::{errno_of, exports, minus_one, number, or_null, poll};
use crate::engine::QpInit;
use crate::engine::cq::{Channel, Told, Unacked};
use crate::log::{Subsys, refuse};
use crate::sys::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_QP_EX_WITH_BASIC, IBV_QP_EX_WITH_SENDS,
    IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    IBV_QPT_RC, IBV_QPT_UD, IBV_WC_STANDARD_FLAGS, ibv_comp_channel, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex,
};

/// The pointer that a program has for an object, so that it can be given out again.
pub(crate) fn pointer<T: Object>(object: &T) -> *mut T::C {
    T::pointer((&raw const *object).cast_mut())
}

/// An object that a struct of the caller names.
pub(crate) fn named<'a, T: Object>(pointer: *mut T::C) -> Option<&'a T> {
    // SAFETY: the caller's struct has NULL or a pointer that it got for such an object, which it has not
    // destroyed; the reference is used during the call.
    unsafe { This::<T>::from_c(pointer) }.get()
}

/// Registers memory; `at` is where peers are to find it.
pub(super) fn register(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    at: u64,
    access: u32,
) -> Result<*mut ibv_mr> {
    if at != addr.addr() as u64 {
        let why = format_args!("a region is where its memory is, not at {at:#x}");
        return Err(refuse(Subsys::Mr, Errno::EOPNOTSUPP, why));
    }
    if length == 0 || length > isize::MAX as usize || addr.addr().checked_add(length).is_none() {
        let why = format_args!("a region of {length} bytes");
        return Err(refuse(Subsys::Mr, Errno::EINVAL, why));
    }
    // SAFETY: the program has this memory until it deregisters it (`ibv_reg_mr(3)`), and lends it to the
    // device until then: nothing is read or written elsewhere, and not after.
    let memory = unsafe { UserBuf::from_raw(addr.cast(), length) };
    let key = pd.engine.reg_mr(pd.c.handle, memory, access)?;
    let c = ibv_mr {
        context: pd.c.context,
        pd: pointer(pd),
        addr,
        length,
        handle: key,
        lkey: key,
        rkey: key,
    };
    let engine = Arc::clone(&pd.engine);
    Ok(Mr { c, engine }.give())
}

/// Creates a queue pair; `init.cap` becomes what it has.
pub(crate) fn create_qp(pd: &Pd, init: &mut ibv_qp_init_attr) -> Result<*mut ibv_qp> {
    make_qp(pd, init, false)
}

/// Creates a queue pair by its extended attributes; `init.cap` becomes what it has.
pub(crate) fn create_qp_ex(pd: &Pd, init: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp> {
    let builds = init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    let known =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let created = init.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && init.create_flags != 0;
    if init.comp_mask & !known != 0 || created {
        let why = format_args!(
            "attributes {:#x} of a queue pair: there are none of raw packets, XRC and creation flags",
            init.comp_mask
        );
        return Err(refuse(Subsys::EpCtrl, Errno::EOPNOTSUPP, why));
    }
    let operations = match init.qp_type {
        IBV_QPT_UD => IBV_QP_EX_WITH_SENDS,
        _ => IBV_QP_EX_WITH_BASIC,
    };
    if builds && init.send_ops_flags & !operations != 0 {
        let why = format_args!(
            "operations {:#x}: there are sends, and for RC writes, reads, and atomics on 8 bytes",
            init.send_ops_flags
        );
        return Err(refuse(Subsys::EpCtrl, Errno::EOPNOTSUPP, why));
    }
    let mut plain = init.plain();
    let made = make_qp(pd, &mut plain, builds)?;
    init.cap = plain.cap;
    Ok(made)
}

/// Creates a queue pair, which `builds` requests by calls, or does not.
fn make_qp(pd: &Pd, init: &mut ibv_qp_init_attr, builds: bool) -> Result<*mut ibv_qp> {
    if ![IBV_QPT_RC, IBV_QPT_UD].contains(&init.qp_type) {
        let why = format_args!(
            "queue pairs of type {}: there are reliable connected ones (RC) and those of datagrams (UD)",
            init.qp_type
        );
        return Err(refuse(Subsys::EpCtrl, Errno::EOPNOTSUPP, why));
    }
    let (send_cq, recv_cq) = (named::<Cq>(init.send_cq), named::<Cq>(init.recv_cq));
    let (Some(send_cq), Some(recv_cq)) = (send_cq, recv_cq) else {
        let why = format_args!("a queue pair without a completion queue");
        return Err(refuse(Subsys::EpCtrl, Errno::EINVAL, why));
    };
    let srq = named::<Srq>(init.srq);
    let same = [send_cq, recv_cq].map(|cq| Arc::ptr_eq(&cq.engine, &pd.engine));
    if same != [true; 2] || srq.is_some_and(|srq| !Arc::ptr_eq(&srq.engine, &pd.engine)) {
        let why = format_args!("a queue of another context");
        return Err(refuse(Subsys::EpCtrl, Errno::EINVAL, why));
    }
    let (id, num, cap) = pd.engine.create_qp(&QpInit {
        pd: pd.c.handle,
        send_cq: send_cq.id,
        recv_cq: recv_cq.id,
        srq: srq.map(|srq| srq.id),
        all_signaled: init.sq_sig_all != 0,
        cap: init.cap,
        ud: init.qp_type == IBV_QPT_UD,
    })?;
    init.cap = cap;
    let c = ibv_qp {
        context: pd.c.context,
        qp_context: init.qp_context,
        pd: pointer(pd),
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: id as u32,
        qp_num: num,
        state: AtomicI32::new(0),
        qp_type: init.qp_type,
        mutex_and_cond: [0; 11],
        events_completed: 0,
    };
    let engine = Arc::clone(&pd.engine);
    Ok(Qp {
        c: wr::extended(c),
        engine,
        id,
        builds,
        building: Builder::default(),
    }
    .give())
}

/// Changes state and attributes of a queue pair, and what its struct says of its state.
pub(crate) fn modify_qp(qp: &Qp, attr: &ibv_qp_attr, mask: c_int) -> Result<()> {
    qp.engine.modify_qp(qp.id, attr, mask)?;
    if mask & crate::sys::IBV_QP_STATE != 0 {
        qp.c.qp_base.state.store(attr.qp_state, Ordering::Relaxed);
    }
    Ok(())
}

/// Creates a completion queue.
pub(crate) fn create_cq(
    context: &Context,
    entries: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
) -> Result<*mut ibv_cq> {
    let channel = named::<CompChannel>(channel);
    let engine = Arc::clone(&context.engine);
    let id = engine.create_cq(entries, channel.map(|channel| Arc::clone(&channel.channel)))?;
    if let Some(channel) = channel {
        channel.users.fetch_add(1, Ordering::Relaxed);
    }
    let c = ibv_cq {
        context: pointer(context),
        channel: channel.map_or(ptr::null_mut(), pointer),
        cq_context,
        handle: id as u32,
        cqe: entries,
        mutex_and_cond: [0; 11],
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let unacked = Arc::<Unacked>::default();
    let made = Cq {
        c: poll::extended(c),
        engine,
        id,
        unacked: Arc::clone(&unacked),
        current: Turn::default(),
    }
    .give();
    context.engine.call_cq(
        id,
        Told {
            cq: made.expose_provenance(),
            context: cq_context.expose_provenance(),
            unacked,
        },
    );
    Ok(made)
}

/// Creates a completion queue by its extended attributes.
pub(super) fn create_cq_ex(
    context: &Context,
    init: &ibv_cq_init_attr_ex,
) -> Result<*mut ibv_cq_ex> {
    let known = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    let flags = match init.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS {
        0 => 0,
        _ => init.flags,
    };
    let fields = init.wc_flags & !IBV_WC_STANDARD_FLAGS;
    if init.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 || flags & !known != 0 || fields != 0 {
        let why = format_args!(
            "attributes {:#x}, flags {flags:#x} and fields {fields:#x} of a completion queue: there are no parent \
             domains, times, VLANs and tag matching",
            init.comp_mask
        );
        return Err(refuse(Subsys::Cq, Errno::EOPNOTSUPP, why));
    }
    let entries = c_int::try_from(init.cqe).unwrap_or(c_int::MAX);
    if init.comp_vector != 0 {
        let why = format_args!("there is completion vector 0 only");
        return Err(refuse(Subsys::Cq, Errno::EINVAL, why));
    }
    create_cq(context, entries, init.cq_context, init.channel).map(<*mut ibv_cq>::cast)
}

/// Creates a completion channel.
pub(crate) fn create_channel(context: &Context) -> Result<*mut ibv_comp_channel> {
    let channel = Channel::new().map_err(errno_of)?;
    let c = ibv_comp_channel {
        context: pointer(context),
        fd: channel.fd(),
        refcnt: 0,
    };
    let users = AtomicUsize::new(0);
    Ok(CompChannel { c, channel, users }.give())
}

/// Allocates a protection domain.
pub(crate) fn alloc_pd(context: &Context) -> *mut ibv_pd {
    let engine = Arc::clone(&context.engine);
    let c = ibv_pd {
        context: pointer(context),
        handle: engine.alloc_pd(),
    };
    Pd { c, engine }.give()
}

exports! {
    /// `ibv_alloc_pd(3)`.
    fn ibv_alloc_pd(context: Must<'_, Context>) -> *mut ibv_pd {
        alloc_pd(&context)
    }

    /// `ibv_dealloc_pd(3)`.
    fn ibv_dealloc_pd(pd: Take<Pd>) -> c_int {
        number(pd.engine.dealloc_pd(pd.c.handle).map(|()| drop(pd.take())))
    }

    /// `ibv_reg_mr(3)`.
    fn ibv_reg_mr(pd: Must<'_, Pd>, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
        or_null(register(&pd, addr, length, addr.addr() as u64, access as u32))
    }

    /// `ibv_reg_mr_iova(3)`.
    fn ibv_reg_mr_iova(
        pd: Must<'_, Pd>,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_int,
    ) -> *mut ibv_mr {
        or_null(register(&pd, addr, length, iova, access as u32))
    }

    /// `ibv_reg_mr_iova2`, which the inline functions of the headers call.
    fn ibv_reg_mr_iova2(
        pd: Must<'_, Pd>,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: u32,
    ) -> *mut ibv_mr {
        or_null(register(&pd, addr, length, iova, access))
    }

    /// `ibv_dereg_mr(3)`.
    fn ibv_dereg_mr(mr: Take<Mr>) -> c_int {
        number(mr.engine.dereg_mr(mr.c.lkey).map(|()| drop(mr.take())))
    }

    /// `ibv_create_comp_channel(3)`.
    fn ibv_create_comp_channel(context: Must<'_, Context>) -> *mut ibv_comp_channel {
        or_null(create_channel(&context))
    }

    /// `ibv_destroy_comp_channel(3)`.
    fn ibv_destroy_comp_channel(channel: Take<CompChannel>) -> c_int {
        if channel.users.load(Ordering::Relaxed) > 0 {
            return Errno::EBUSY.0;
        }
        drop(channel.take());
        0
    }

    /// `ibv_create_cq(3)`.
    fn ibv_create_cq(
        context: Must<'_, Context>,
        entries: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int,
    ) -> *mut ibv_cq {
        or_null(match vector {
            0 => create_cq(&context, entries, cq_context, channel),
            _ => Err(refuse(Subsys::Cq, Errno::EINVAL, format_args!("there is completion vector 0 only"))),
        })
    }

    /// `ibv_resize_cq(3)`. The struct keeps the size it was created with.
    fn ibv_resize_cq(cq: Must<'_, Cq>, entries: c_int) -> c_int {
        number(cq.engine.resize_cq(cq.id, entries))
    }

    /// `ibv_destroy_cq(3)`.
    fn ibv_destroy_cq(cq: Take<Cq>) -> c_int {
        number(cq.engine.destroy_cq(cq.id).map(|()| {
            if let Some(channel) = named::<CompChannel>(cq.c.base.channel) {
                channel.users.fetch_sub(1, Ordering::Relaxed);
            }
            cq.unacked.wait();
            drop(cq.take());
        }))
    }

    /// `ibv_get_cq_event(3)`.
    fn ibv_get_cq_event(
        channel: Must<'_, CompChannel>,
        cq: Out<'_, *mut ibv_cq>,
        cq_context: Out<'_, *mut c_void>,
    ) -> c_int {
        // The program may destroy the channel while this thread waits.
        let channel = Arc::clone(&channel.channel);
        let given = |told: Told| {
            told.unacked.give();
            Some(told)
        };
        minus_one(channel.take(given).map_err(errno_of).map(|told| {
            cq.set(ptr::with_exposed_provenance_mut(told.cq));
            cq_context.set(ptr::with_exposed_provenance_mut(told.context));
        }))
    }

    /// `ibv_ack_cq_events(3)`.
    fn ibv_ack_cq_events(cq: Must<'_, Cq>, count: u32) {
        cq.unacked.ack(count.into());
    }

    /// `ibv_create_qp(3)`.
    fn ibv_create_qp(pd: Must<'_, Pd>, init: Changed<'_, ibv_qp_init_attr>) -> *mut ibv_qp {
        or_null(init.get().and_then(|init| create_qp(&pd, init)))
    }

    /// `ibv_qp_to_qp_ex(3)`: NULL for a queue pair that was not created for it.
    fn ibv_qp_to_qp_ex(qp: Must<'_, Qp>) -> *mut ibv_qp_ex {
        match qp.builds {
            true => pointer(&*qp).cast(),
            false => ptr::null_mut(),
        }
    }

    /// `ibv_create_qp_ex(3)`.
    fn ripstop_verbs_create_qp_ex(
        context: Must<'_, Context>,
        init: Changed<'_, ibv_qp_init_attr_ex>,
    ) -> *mut ibv_qp {
        or_null(init.get().and_then(|init| {
            let has_pd = init.comp_mask & IBV_QP_INIT_ATTR_PD != 0;
            let pd = named::<Pd>(init.pd).filter(|_| has_pd).ok_or(Errno::EINVAL)?;
            if !Arc::ptr_eq(&pd.engine, &context.engine) {
                return Err(Errno::EINVAL);
            }
            create_qp_ex(pd, init)
        }))
    }

    /// `ibv_create_cq_ex(3)`.
    fn ripstop_verbs_create_cq_ex(
        context: Must<'_, Context>,
        init: Changed<'_, ibv_cq_init_attr_ex>,
    ) -> *mut ibv_cq_ex {
        or_null(init.get().and_then(|init| create_cq_ex(&context, init)))
    }

    /// `ibv_modify_qp(3)`.
    fn ibv_modify_qp(qp: Must<'_, Qp>, attr: In<'_, ibv_qp_attr>, mask: c_int) -> c_int {
        let attr = attr.get().ok_or(Errno::EINVAL);
        number(attr.and_then(|attr| modify_qp(&qp, attr, mask)))
    }

    /// `ibv_query_qp(3)`.
    fn ibv_query_qp(
        qp: Must<'_, Qp>,
        attr: Out<'_, ibv_qp_attr>,
        _mask: c_int,
        init: Out<'_, ibv_qp_init_attr>,
    ) -> c_int {
        number(qp.engine.query_qp(qp.id).map(|(found, made)| {
            qp.c.qp_base.state.store(found.qp_state, Ordering::Relaxed);
            attr.set(found);
            init.set(ibv_qp_init_attr {
                qp_context: qp.c.qp_base.qp_context,
                send_cq: qp.c.qp_base.send_cq,
                recv_cq: qp.c.qp_base.recv_cq,
                srq: qp.c.qp_base.srq,
                cap: made.cap,
                qp_type: qp.c.qp_base.qp_type,
                sq_sig_all: c_int::from(made.all_signaled),
            });
        }))
    }

    /// `ibv_destroy_qp(3)`.
    fn ibv_destroy_qp(qp: Take<Qp>) -> c_int {
        number(qp.engine.destroy_qp(qp.id).map(|()| drop(qp.take())))
    }
}
