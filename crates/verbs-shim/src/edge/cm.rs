#![allow(unsafe_code)]
//! `librdmacm.so.1`: what programs do with ids.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::Arc;

use ripstop_types::{Errno, Result};

use crate::cm::wire::Param;
use crate::cm::{Events, Id, QpOf, Space};
use crate::edge::addrinfo::Side;
use crate::edge::args::{Changed, In, Must, Object as _, Out, Take, bytes};
use crate::edge::ids::{
    CmEvent, CmId, EventChannel, Sockaddr, deliver, given_up, object, opened, port,
};
use crate::edge::made::{CompChannel, Context, Cq, Pd, Qp};
use crate::edge::objects::{create_channel, create_cq, create_qp, create_qp_ex, modify_qp};
use crate::edge::srq::{create_srq, destroy_srq};
use crate::edge::{errno_of, exports, minus_one, or_null, refused};
use crate::engine::cq::Channel;
use crate::log::{Subsys, refuse};
use crate::sys::{
    ConnTerms, IBV_QP_INIT_ATTR_PD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_SRQ_INIT_ATTR_PD,
    IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_PS_TCP,
    RDMA_PS_UDP, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex, rdma_cm_event,
    rdma_cm_id, rdma_conn_param, rdma_event_channel,
};

/// Most bytes of private data of a request, a reply and a rejection (`rdma_connect(3)` and others).
const PRIVATE: [usize; 3] = [56, 196, 148];

/// Parameters of a program, with at most so much private data.
fn given(param: Option<&rdma_conn_param>, most: usize) -> Result<Param> {
    let Some(param) = param else {
        return Ok(Param {
            terms: ConnTerms {
                responder_resources: u8::MAX,
                initiator_depth: u8::MAX,
                retry_count: 7,
                rnr_retry_count: 7,
                ..ConnTerms::default()
            },
            ..Param::default()
        });
    };
    let len = usize::from(param.private_data_len);
    // SAFETY: the program's parameters point to as many bytes as they say, or to none.
    let private = limited(unsafe { bytes(param.private_data, len) }, most)?;
    Ok(Param {
        terms: param.terms,
        qp_num: param.qp_num,
        qkey: None,
        private,
    })
}

/// Private data of at most so many bytes.
fn limited(private: Vec<u8>, most: usize) -> Result<Vec<u8>> {
    if private.len() > most {
        let why = format_args!("{} bytes of private data: at most {most}", private.len());
        return Err(refuse(Subsys::EpCtrl, Errno::EINVAL, why));
    }
    Ok(private)
}

/// Refuses a request, with private data.
fn reject(id: &CmId, data: *const c_void, len: u8) -> Result<()> {
    // SAFETY: the program passes so many bytes, or none.
    let private = unsafe { bytes(data, usize::from(len)) };
    id.id.reject(limited(private, PRIVATE[2])?)
}

/// The channel that a program names for an id, unless it is NULL.
fn events_of(channel: *mut rdma_event_channel) -> Option<Arc<Events>> {
    (!channel.is_null()).then(|| Arc::clone(&object::<EventChannel>(channel).events))
}

/// Makes an id; without a channel, calls on it wait.
fn create_id(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: c_int,
) -> Result<*mut rdma_cm_id> {
    let space = match ps {
        RDMA_PS_TCP => Space::Connections,
        RDMA_PS_UDP => Space::Datagrams,
        _ => {
            let why = format_args!(
                "port space {ps:#x}: there are connections (RDMA_PS_TCP) and datagrams (RDMA_PS_UDP)"
            );
            return Err(refuse(Subsys::EpCtrl, Errno::EOPNOTSUPP, why));
        }
    };
    let (device, _) = opened()?;
    let engine = Arc::clone(&object::<Context>(device).engine);
    Ok(CmId::make(
        Id::new(engine, space, events_of(channel))?,
        channel,
        context,
    ))
}

/// Creates the completion queues that the attributes of a queue pair leave to the id, with their channels.
fn create_cqs(id: &CmId, device: &Context, init: &mut ibv_qp_init_attr) -> Result<()> {
    let c = &id.c;
    // What is made is in the id at once, so that it is destroyed if something fails.
    let create = |entries: u32, channel_of: &AtomicPtr<_>, cq_of: &AtomicPtr<_>| -> Result<_> {
        let channel = create_channel(device)?;
        channel_of.store(channel, Relaxed);
        let this = (&raw const *c).cast_mut().cast();
        let cq = create_cq(device, entries.max(1) as c_int, this, channel)?;
        cq_of.store(cq, Relaxed);
        Ok(cq)
    };
    if init.send_cq.is_null() {
        init.send_cq = create(init.cap.max_send_wr, &c.send_cq_channel, &c.send_cq)?;
    }
    if init.recv_cq.is_null() {
        init.recv_cq = create(init.cap.max_recv_wr, &c.recv_cq_channel, &c.recv_cq)?;
    }
    Ok(())
}

/// Creates the queue pair of an id.
fn create_qp_of(id: &CmId, pd: *mut ibv_pd, init: &mut ibv_qp_init_attr) -> Result<()> {
    create_qp_with(id, pd, init, create_qp)
}

/// Creates the queue pair of an id by its extended attributes.
fn create_qp_ex_of(id: &CmId, init: &mut ibv_qp_init_attr_ex) -> Result<()> {
    let mut plain = init.plain();
    let pd = match init.comp_mask & IBV_QP_INIT_ATTR_PD {
        0 => ptr::null_mut(),
        _ => init.pd,
    };
    let extended = *init;
    create_qp_with(id, pd, &mut plain, |pd, plain| {
        let mut all = ibv_qp_init_attr_ex {
            send_cq: plain.send_cq,
            recv_cq: plain.recv_cq,
            srq: plain.srq,
            ..extended
        };
        let made = create_qp_ex(pd, &mut all)?;
        plain.cap = all.cap;
        Ok(made)
    })?;
    (init.send_cq, init.recv_cq) = (plain.send_cq, plain.recv_cq);
    (init.srq, init.cap) = (plain.srq, plain.cap);
    Ok(())
}

/// Creates the queue pair of an id with what `make` does.
fn create_qp_with(
    id: &CmId,
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
    make: impl FnOnce(&Pd, &mut ibv_qp_init_attr) -> Result<*mut ibv_qp>,
) -> Result<()> {
    if !id.c.qp.load(Relaxed).is_null() {
        return Err(refuse(
            Subsys::EpCtrl,
            Errno::EINVAL,
            format_args!("the id has a queue pair"),
        ));
    }
    if init.qp_type != id.qp_type() {
        let why = format_args!(
            "a queue pair of type {}, where the port space of the id asks for {}",
            init.qp_type,
            id.qp_type()
        );
        return Err(refuse(Subsys::EpCtrl, Errno::EINVAL, why));
    }
    let queues = (init.send_cq, init.recv_cq, init.srq);
    let made = make_qp_of(id, pd, init, make);
    if made.is_err() {
        destroy_qp_of(id);
        (init.send_cq, init.recv_cq, init.srq) = queues;
    }
    made
}

/// Makes the queue pair of an id, and its queues; part of it where something fails.
fn make_qp_of(
    id: &CmId,
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
    make: impl FnOnce(&Pd, &mut ibv_qp_init_attr) -> Result<*mut ibv_qp>,
) -> Result<()> {
    let (device, default) = opened()?;
    let pd = if pd.is_null() { default } else { pd };
    if init.srq.is_null() {
        init.srq = id.c.srq.load(Relaxed);
    }
    create_cqs(id, &object::<Context>(device), init)?;
    let made = make(&object::<Pd>(pd), init)?;
    id.c.qp.store(made, Relaxed);
    let qp = object::<Qp>(made);
    let (mut attr, mask) = id.id.qp_attr(IBV_QPS_INIT)?;
    // Whatever its regions allow: the queue pair itself forbids nothing.
    attr.qp_access_flags = 0xf;
    modify_qp(&qp, &attr, mask)?;
    id.id.set_qp(Some(QpOf {
        engine: Arc::clone(&qp.engine),
        id: qp.id,
        num: qp.c.qp_base.qp_num,
    }));
    id.c.pd.store(pd, Relaxed);
    if qp.is_ud() {
        // It has no peer to wait for.
        for to in [IBV_QPS_RTR, IBV_QPS_RTS] {
            let (attr, mask) = id.id.qp_attr(to)?;
            modify_qp(&qp, &attr, mask)?;
        }
    }
    Ok(())
}

/// Creates the shared receive queue of an id.
fn create_srq_of(
    id: &CmId,
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
) -> Result<()> {
    if !id.c.srq.load(Relaxed).is_null() {
        let why = format_args!("the id has a shared receive queue");
        return Err(refuse(Subsys::EpCtrl, Errno::EINVAL, why));
    }
    let pd = if pd.is_null() { opened()?.1 } else { pd };
    let made = create_srq(&object::<Pd>(pd), srq_context, attr)?;
    id.c.srq.store(made, Relaxed);
    id.c.pd.store(pd, Relaxed);
    Ok(())
}

/// Destroys the queue pair of an id, and the queues that were made with it.
fn destroy_qp_of(id: &CmId) {
    id.id.set_qp(None);
    let qp = id.c.qp.swap(ptr::null_mut(), Relaxed);
    if !qp.is_null() {
        let qp = given_up::<Qp>(qp).take();
        // It is there, and nothing else can be wrong.
        let _ = qp.engine.destroy_qp(qp.id);
    }
    let destroy = |cq: &AtomicPtr<ibv_cq>| {
        let cq = cq.swap(ptr::null_mut(), Relaxed);
        if !cq.is_null() {
            let cq = given_up::<Cq>(cq);
            let _ = cq.engine.destroy_cq(cq.id);
            cq.unacked.wait();
            drop(cq.take());
        }
    };
    destroy(&id.c.send_cq);
    destroy(&id.c.recv_cq);
    for channel in [&id.c.send_cq_channel, &id.c.recv_cq_channel] {
        let channel = channel.swap(ptr::null_mut(), Relaxed);
        if !channel.is_null() {
            drop(given_up::<CompChannel>(channel).take());
        }
    }
}

/// Destroys an id, once no other thread has an event of it.
fn destroy_id(id: Take<CmId>) {
    id.id.close();
    id.keep(ptr::null_mut());
    id.id.unacked.wait();
    drop(id.take());
}

/// Waits for the next request of a listener without a channel; the queue pair is made as `rdma_create_ep` was told.
fn next_request(listener: &CmId) -> Result<*mut rdma_cm_id> {
    if !listener.waits() {
        let why = format_args!("rdma_get_request needs a listener without a channel");
        return Err(refuse(Subsys::EpCtrl, Errno::EINVAL, why));
    }
    let events = listener.id.events();
    let made = events.take(|event| match event.kind {
        RDMA_CM_EVENT_CONNECT_REQUEST => deliver(event, ptr::null_mut()).transpose(),
        _ => Some(Err(Errno::ECONNABORTED)),
    });
    let made = made.map_err(errno_of)??;
    let asked = object::<CmEvent>(made).c.id;
    let id = object::<CmId>(asked);
    id.keep(made);
    if let Some((pd, mut init)) = *listener.template.lock()
        && let Err(error) = create_qp_of(&id, pd, &mut init)
    {
        // The peer hears that nobody wants it.
        let _ = id.id.reject(Vec::new());
        destroy_id(given_up(asked));
        return Err(error);
    }
    Ok(asked)
}

/// Makes an id, bound or with its peer resolved, and its queue pair if there are attributes.
fn create_ep(
    side: &Side,
    pd: *mut ibv_pd,
    init: Option<&mut ibv_qp_init_attr>,
) -> Result<*mut rdma_cm_id> {
    let made = create_id(ptr::null_mut(), ptr::null_mut(), side.port_space())?;
    let id = object::<CmId>(made);
    // As `rdma_getaddrinfo` says of what it finds, whatever the attributes have.
    let mut init = init;
    if let Some(init) = &mut init {
        init.qp_type = id.qp_type();
    }
    let prepared = prepare(&id, side, pd, init);
    if let Err(error) = prepared {
        destroy_id(given_up(made));
        return Err(error);
    }
    Ok(made)
}

/// Binds an id, or resolves its peer and makes its queue pair.
fn prepare(
    id: &CmId,
    side: &Side,
    pd: *mut ibv_pd,
    init: Option<&mut ibv_qp_init_attr>,
) -> Result<()> {
    let peer = match side.get()? {
        (true, address) => {
            id.id.bind(address)?;
            *id.template.lock() = init.map(|init| (pd, *init));
            return id.refresh(!address.ip().is_unspecified());
        }
        (false, peer) => peer,
    };
    id.id.resolve(None, peer)?;
    id.refresh(true)?;
    id.complete()?;
    id.id.resolve_route()?;
    id.complete()?;
    init.map_or(Ok(()), |init| create_qp_of(id, pd, init))
}

exports! {
    /// `rdma_create_ep(3)`.
    fn rdma_create_ep(
        id: Out<'_, *mut rdma_cm_id>,
        side: Side,
        pd: *mut ibv_pd,
        init: Changed<'_, ibv_qp_init_attr>,
    ) -> c_int {
        minus_one(create_ep(&side, pd, init.optional()).map(|made| id.set(made)))
    }

    /// `rdma_destroy_ep(3)`.
    fn rdma_destroy_ep(id: Take<CmId>) {
        destroy_qp_of(&id);
        destroy_id(id);
    }

    /// `rdma_create_event_channel(3)`.
    fn rdma_create_event_channel() -> *mut rdma_event_channel {
        or_null(Channel::new().map_err(errno_of).map(|events| {
            let c = rdma_event_channel { fd: events.fd() };
            EventChannel { c, events }.give()
        }))
    }

    /// `rdma_destroy_event_channel(3)`.
    fn rdma_destroy_event_channel(channel: Take<EventChannel>) {
        let channel = channel.take();
        // Requests that the program has not heard of end with it.
        for event in channel.events.split_off(|_| true) {
            if event.kind == RDMA_CM_EVENT_CONNECT_REQUEST {
                event.id.close();
            }
        }
    }

    /// `rdma_create_id(3)`.
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: Out<'_, *mut rdma_cm_id>,
        context: *mut c_void,
        ps: c_int,
    ) -> c_int {
        minus_one(create_id(channel, context, ps).map(|made| id.set(made)))
    }

    /// `rdma_destroy_id(3)`.
    fn rdma_destroy_id(id: Take<CmId>) -> c_int {
        destroy_id(id);
        0
    }

    /// `rdma_migrate_id(3)`.
    fn rdma_migrate_id(id: Must<'_, CmId>, channel: *mut rdma_event_channel) -> c_int {
        let migrated = id.id.migrate(events_of(channel));
        minus_one(migrated.map(|()| id.c.channel.store(channel, Relaxed)))
    }

    /// `rdma_bind_addr(3)`.
    fn rdma_bind_addr(id: Must<'_, CmId>, address: Sockaddr) -> c_int {
        minus_one(address.get().and_then(|address| {
            let address = address.ok_or(Errno::EINVAL)?;
            id.id.bind(address)?;
            id.refresh(!address.ip().is_unspecified())
        }))
    }

    /// `rdma_resolve_addr(3)`.
    fn rdma_resolve_addr(
        id: Must<'_, CmId>,
        source: Sockaddr,
        peer: Sockaddr,
        _timeout: c_int,
    ) -> c_int {
        minus_one(source.get().and_then(|source| {
            let peer = peer.get()?.ok_or(Errno::EINVAL)?;
            id.id.resolve(source, peer)?;
            id.refresh(true)?;
            id.complete()
        }))
    }

    /// `rdma_resolve_route(3)`.
    fn rdma_resolve_route(id: Must<'_, CmId>, _timeout: c_int) -> c_int {
        minus_one(id.id.resolve_route().and_then(|()| id.complete()))
    }

    /// `rdma_create_qp(3)`.
    fn rdma_create_qp(
        id: Must<'_, CmId>,
        pd: *mut ibv_pd,
        init: Changed<'_, ibv_qp_init_attr>,
    ) -> c_int {
        minus_one(init.get().and_then(|init| create_qp_of(&id, pd, init)))
    }

    /// `rdma_create_qp_ex(3)`.
    fn rdma_create_qp_ex(id: Must<'_, CmId>, init: Changed<'_, ibv_qp_init_attr_ex>) -> c_int {
        minus_one(init.get().and_then(|init| create_qp_ex_of(&id, init)))
    }

    /// `rdma_create_srq(3)`.
    fn rdma_create_srq(
        id: Must<'_, CmId>,
        pd: *mut ibv_pd,
        init: Changed<'_, ibv_srq_init_attr>,
    ) -> c_int {
        minus_one(init.get().and_then(|init| create_srq_of(&id, pd, init.srq_context, &mut init.attr)))
    }

    /// `rdma_create_srq_ex(3)`: basic ones.
    fn rdma_create_srq_ex(id: Must<'_, CmId>, init: Changed<'_, ibv_srq_init_attr_ex>) -> c_int {
        minus_one(init.get().and_then(|init| {
            let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
            let typed = init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0;
            if init.comp_mask & !known != 0 || (typed && init.srq_type != IBV_SRQT_BASIC) {
                return refused::why("rdma_create_srq_ex: there are basic shared receive queues");
            }
            let pd = match init.comp_mask & IBV_SRQ_INIT_ATTR_PD {
                0 => ptr::null_mut(),
                _ => init.pd,
            };
            create_srq_of(&id, pd, init.srq_context, &mut init.attr)
        }))
    }

    /// `rdma_destroy_srq(3)`.
    fn rdma_destroy_srq(id: Must<'_, CmId>) {
        let srq = id.c.srq.swap(ptr::null_mut(), Relaxed);
        if !srq.is_null() && destroy_srq(given_up(srq)).is_err() {
            // It has queue pairs, as the log says.
            id.c.srq.store(srq, Relaxed);
        }
    }

    /// `rdma_destroy_qp(3)`.
    fn rdma_destroy_qp(id: Must<'_, CmId>) {
        destroy_qp_of(&id);
    }

    /// `rdma_listen(3)`.
    fn rdma_listen(id: Must<'_, CmId>, _backlog: c_int) -> c_int {
        minus_one(id.id.listen().and_then(|()| id.refresh(false)))
    }

    /// `rdma_connect(3)`.
    fn rdma_connect(id: Must<'_, CmId>, param: In<'_, rdma_conn_param>) -> c_int {
        minus_one(given(param.get(), PRIVATE[0]).and_then(|param| {
            id.id.connect(param)?;
            id.complete()
        }))
    }

    /// `rdma_accept(3)`.
    fn rdma_accept(id: Must<'_, CmId>, param: In<'_, rdma_conn_param>) -> c_int {
        minus_one(given(param.get(), PRIVATE[1]).and_then(|param| {
            id.id.accept(param)?;
            match id.id.space {
                Space::Connections => id.complete(),
                // Nothing more is heard of it.
                Space::Datagrams => Ok(()),
            }
        }))
    }

    /// `rdma_reject(3)`.
    fn rdma_reject(id: Must<'_, CmId>, data: *mut c_void, len: u8) -> c_int {
        minus_one(reject(&id, data, len))
    }

    /// `rdma_reject_ece(3)`: there are no ECE options, so it is a rejection.
    fn rdma_reject_ece(id: Must<'_, CmId>, data: *mut c_void, len: u8) -> c_int {
        minus_one(reject(&id, data, len))
    }

    /// `rdma_establish(3)`.
    fn rdma_establish(id: Must<'_, CmId>) -> c_int {
        minus_one(id.id.establish())
    }

    /// `rdma_disconnect(3)`.
    fn rdma_disconnect(id: Must<'_, CmId>) -> c_int {
        minus_one(id.id.disconnect().and_then(|()| id.complete()))
    }

    /// `rdma_init_qp_attr(3)`.
    fn rdma_init_qp_attr(
        id: Must<'_, CmId>,
        attr: Changed<'_, ibv_qp_attr>,
        mask: Out<'_, c_int>,
    ) -> c_int {
        minus_one(attr.get().and_then(|attr| {
            let (found, bits) = id.id.qp_attr(attr.qp_state)?;
            *attr = found;
            mask.set(bits);
            Ok(())
        }))
    }

    /// `rdma_notify(3)`: connections need no events of queue pairs.
    fn rdma_notify(_id: Must<'_, CmId>, _event: c_int) -> c_int {
        0
    }

    /// `rdma_get_cm_event(3)`.
    fn rdma_get_cm_event(
        channel: Must<'_, EventChannel>,
        event: Out<'_, *mut rdma_cm_event>,
    ) -> c_int {
        let this = (&raw const channel.c).cast_mut();
        // The program may destroy the channel while this thread waits.
        let events = Arc::clone(&channel.events);
        let made = events.take(|next| deliver(next, this).transpose()).map_err(errno_of);
        minus_one(made.flatten().map(|made| event.set(made)))
    }

    /// `rdma_ack_cm_event(3)`.
    fn rdma_ack_cm_event(event: Take<CmEvent>) -> c_int {
        let event = event.take();
        if let Some(whose) = &event.counted {
            whose.unacked.ack(1);
        }
        0
    }

    /// `rdma_get_request(3)`, of a listener without a channel.
    fn rdma_get_request(listener: Must<'_, CmId>, id: Out<'_, *mut rdma_cm_id>) -> c_int {
        minus_one(next_request(&listener).map(|asked| id.set(asked)))
    }

    /// `rdma_get_src_port(3)`.
    fn rdma_get_src_port(id: Must<'_, CmId>) -> u16 {
        port(&id.c.src_addr)
    }

    /// `rdma_get_dst_port(3)`.
    fn rdma_get_dst_port(id: Must<'_, CmId>) -> u16 {
        port(&id.c.dst_addr)
    }

    /// `rdma_get_devices(3)`.
    fn rdma_get_devices(count: Out<'_, c_int>) -> *mut *mut ibv_context {
        or_null(opened().map(|(device, _)| {
            count.set(1);
            Box::into_raw(Box::new([device, ptr::null_mut()])).cast()
        }))
    }

    /// `rdma_free_devices(3)`.
    fn rdma_free_devices(list: refused::List<ibv_context>) {
        list.free();
    }

    /// `rdma_set_option(3)`: the options of ids are hints to a network.
    fn rdma_set_option(
        _id: Must<'_, CmId>,
        level: c_int,
        _option: c_int,
        _value: *mut c_void,
        _len: usize,
    ) -> c_int {
        // RDMA_OPTION_ID
        minus_one(match level {
            0 => Ok(()),
            _ => refused::why("rdma_set_option: paths of InfiniBand cannot be set"),
        })
    }
}
