//! Endpoints: what they are made of, and their end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use ripstop_core::log::Subsys;
use ripstop_core::provider::Token;
use ripstop_core::{Info, caps, fi_warn};
use ripstop_ibverbs::{CmId, Qp, QpCap};
use ripstop_types::{EpType, Errno, Flags, Result};

use crate::connection::Connection;
use crate::counter::{Counting, Source};
use crate::cq::Cq;
use crate::dgram::{Av, Datagrams};
use crate::domain::Domain;
use crate::ear::Ear;
use crate::link::Link;
use crate::params::{IOV_MOST, NAME};
use crate::passive::{ConnRequest, bind, ip};
use crate::queue::Receives;
use crate::shared_rx::SharedRx;
use crate::sides::{Far, Side, Sides};
use crate::watch::Of;

/// What the program has bound, and where the endpoint comes from.
#[derive(Default)]
pub(crate) struct Bound {
    pub(crate) tx_cq: Option<Arc<Cq>>,
    pub(crate) rx_cq: Option<Arc<Cq>>,
    pub(crate) tx_selective: bool,
    pub(crate) rx_selective: bool,
    pub(crate) counting: Counting,
    pub(crate) srx: Option<Arc<SharedRx>>,
    /// The local end of the connection, once there is one.
    pub(crate) id: Option<Arc<CmId>>,
    /// The address to have.
    pub(crate) source: Option<SocketAddr>,
}

/// What an enabled endpoint has.
pub(crate) struct Live {
    srx: Option<Arc<SharedRx>>,
    /// The peers of datagrams.
    pub(crate) av: Option<Arc<Av>>,
    pub(crate) qp: Arc<Qp>,
    pub(crate) sides: Arc<Sides>,
    pub(crate) tx_cq: Arc<Cq>,
    pub(crate) rx_cq: Arc<Cq>,
    /// Hears of the queue pair.
    ear: Arc<Ear>,
    pub(crate) tx_selective: bool,
    pub(crate) rx_selective: bool,
}

/// An endpoint.
pub struct Endpoint {
    pub(crate) domain: Arc<Domain>,
    pub(crate) link: Link,
    pub(crate) bound: Mutex<Bound>,
    pub(crate) live: OnceLock<Live>,
    /// The flags of calls that have none.
    pub(crate) tx_flags: AtomicU64,
    pub(crate) rx_flags: AtomicU64,
    pub(crate) info: Info,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({:?})", self.bound.lock().id)
    }
}

impl Endpoint {
    pub(crate) fn open(domain: &Arc<Domain>, info: &Info, token: Token) -> Result<Arc<Self>> {
        let link = match (info.ep.ep_type, &domain.port) {
            (EpType::Msg, None) => {
                Link::Connection(Connection::new(token, domain.fabric.params.min_rnr_timer))
            }
            (EpType::Dgram, Some(_)) => Link::Datagrams(Datagrams::new(info)?),
            _ => {
                fi_warn!(
                    NAME,
                    Subsys::EpCtrl,
                    "endpoints are of type FI_EP_MSG here, or FI_EP_DGRAM in a domain for these; open an info of \
                     fi_getinfo in a domain of the same"
                );
                return Err(Errno::EINVAL);
            }
        };
        let is_connected = matches!(link, Link::Connection(_));
        let request = info.handle.as_ref().map(|_| ConnRequest::take(info));
        let id = request.transpose()?;
        let is_here = |id: &Arc<CmId>| id.device(std::slice::from_ref(&domain.context)).is_some();
        if id.as_ref().is_some_and(|id| !is_here(id)) {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "a connection request has come by another device than that of the domain; open the domain \
                 that the info of the request names"
            );
            return Err(Errno::EDOMAIN);
        }
        Ok(Arc::new(Self {
            link,
            bound: Mutex::new(Bound {
                id,
                source: own_address(info, is_connected)?,
                ..Bound::default()
            }),
            live: OnceLock::new(),
            tx_flags: AtomicU64::new(info.tx.op_flags.bits()),
            rx_flags: AtomicU64::new(info.rx.op_flags.bits()),
            info: info.clone(),
            domain: Arc::clone(domain),
        }))
    }

    /// The queues of a queue pair: one for each side, also for a side that is not used.
    fn queues(&self, bound: &Bound) -> Result<(Arc<Cq>, Arc<Cq>)> {
        let caps = self.info.caps;
        let messages = caps.contains(Flags::MSG);
        let sends = messages && (caps.contains(Flags::SEND) || !caps.contains(Flags::RECV));
        let receives = messages && (caps.contains(Flags::RECV) || !caps.contains(Flags::SEND));
        let starts = sends || caps::is_rma_initiator(caps);
        let lacks_tx = starts && bound.tx_cq.is_none() && !bound.counting.counts_tx();
        let lacks_rx = receives && bound.rx_cq.is_none() && !bound.counting.counts_rx();
        if lacks_tx || lacks_rx {
            let side = if lacks_tx { "FI_TRANSMIT" } else { "FI_RECV" };
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "an endpoint has no completion queue or counter; call fi_ep_bind with {side} before fi_enable"
            );
            return Err(Errno::ENOCQ);
        }
        // What is only counted, and a side that is not used, needs one, too: the device has no other way.
        let queue = |bound: &Option<Arc<Cq>>, size: usize| match bound {
            Some(cq) => Ok(Arc::clone(cq)),
            None => Cq::silent(&self.domain, size),
        };
        let tx = queue(&bound.tx_cq, self.info.tx.size)?;
        let rx = queue(&bound.rx_cq, self.info.rx.size)?;
        Ok((tx, rx))
    }

    /// The id of the connection, at an address of the domain's device.
    fn take_id(&self, bound: &mut Bound) -> Result<Arc<CmId>> {
        if let Some(id) = &bound.id {
            return Ok(Arc::clone(id));
        }
        let fabric = &self.domain.fabric;
        let source = match bound.source {
            Some(source) if !source.ip().is_unspecified() => source,
            other => {
                let port = other.map_or(0, |source| source.port());
                let mut own = crate::devices::address_of(fabric, &self.domain.context)?;
                own.set_port(port);
                own
            }
        };
        let id = bind(fabric, &source)?;
        if id
            .device(std::slice::from_ref(&self.domain.context))
            .is_none()
        {
            let device = self.domain.context.name();
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "{source} is no address of device {device}; take an address of it (fi_info -p verbs)"
            );
            return Err(Errno::EINVAL);
        }
        bound.id = Some(Arc::clone(&id));
        Ok(id)
    }

    /// How much the queue pair holds, with so many pieces of memory more of each receive.
    fn capacity(&self, more: usize) -> QpCap {
        let count = |size: usize| u32::try_from(size.max(1)).unwrap_or(u32::MAX);
        QpCap {
            send: count(self.info.tx.size),
            recv: count(self.info.rx.size),
            send_sge: count(self.info.tx.iov_limit.min(IOV_MOST)),
            recv_sge: count(self.info.rx.iov_limit.min(IOV_MOST) + more),
            inline: u32::try_from(self.info.tx.inject_size).unwrap_or(u32::MAX),
        }
    }

    /// Makes the queue pair.
    pub(crate) fn go_live(&self) -> Result<()> {
        let mut bound = self.bound.lock();
        if self.live.get().is_some() {
            return Ok(());
        }
        match &self.link {
            Link::Connection(connection) => self.make_connected(&mut bound, connection),
            Link::Datagrams(datagrams) => self.make_datagrams(&bound, datagrams),
        }
    }

    fn make_connected(&self, bound: &mut Bound, connection: &Arc<Connection>) -> Result<()> {
        if !connection.has_eq() {
            return Err(Errno::ENOEQ);
        }
        let srx = bound.srx.clone();
        if let Some(srx) = &srx {
            bound.counting.count_receives_by(srx.counter());
        }
        let (tx_cq, rx_cq) = self.queues(bound)?;
        let mut id = self.take_id(bound)?;
        let cap = self.capacity(0);
        let make = |id: &Arc<CmId>| {
            let (tx, rx) = (&tx_cq.device_cq, &rx_cq.device_cq);
            let srq = srx.as_ref().map(|srx| &srx.srq);
            Qp::new(id, &self.domain.pd, tx, rx, srq, cap)
        };
        let made = match make(&id) {
            Err(Errno::EINVAL) if self.info.handle.is_some() => {
                // The id of a request whose peer has gone. The program hears of that when it accepts it.
                (bound.id, bound.source) = (None, None);
                id = self.take_id(bound)?;
                connection.set_stale();
                make(&id)
            }
            made => made,
        };
        let qp = Arc::new(made.inspect_err(|error| no_queue_pair(cap, *error))?);
        let far = Far::Connection {
            id: Arc::clone(&id),
            connection: Arc::clone(connection),
        };
        let parts = Parts {
            qp: Arc::clone(&qp),
            tx_cq,
            rx_cq,
            srx,
            av: None,
            far,
        };
        let sides = self.start(bound, parts)?;
        connection.open(&id, &qp, &self.domain.watch, Arc::downgrade(&sides) as _);
        drop(qp);
        let owner: Weak<Connection> = Arc::downgrade(connection);
        self.domain.fabric.cm.add(&id, owner);
        Ok(())
    }

    fn make_datagrams(&self, bound: &Bound, datagrams: &Datagrams) -> Result<()> {
        let av = datagrams.av().ok_or(Errno::ENOAV)?;
        let port = self.domain.port.as_ref().ok_or(Errno::EINVAL)?;
        let (tx_cq, rx_cq) = self.queues(bound)?;
        let cap = self.capacity(1);
        let (tx, rx) = (&tx_cq.device_cq, &rx_cq.device_cq);
        let made = Qp::datagrams(&self.domain.pd, tx, rx, cap, port.datagrams());
        let qp = Arc::new(made.inspect_err(|error| no_queue_pair(cap, *error))?);
        datagrams.open(port, &qp);
        let parts = Parts {
            qp,
            tx_cq,
            rx_cq,
            srx: None,
            av: Some(av),
            far: Far::Datagrams,
        };
        self.start(bound, parts).map(|_| ())
    }

    /// Has queues and counters hear of the queue pair.
    fn start(&self, bound: &Bound, parts: Parts) -> Result<Arc<Sides>> {
        let Parts {
            qp,
            tx_cq,
            rx_cq,
            srx,
            av,
            far,
        } = parts;
        let (tx, rx): (Arc<dyn Source>, Arc<dyn Source>) = (tx_cq.clone(), rx_cq.clone());
        bound.counting.start(&tx, &rx)?;
        let sides = Arc::new(Sides {
            tx: Mutex::new(Side::new(self.info.tx.size.max(1), &tx_cq.batches, &qp)),
            rx: Mutex::new(Side::new(self.info.rx.size.max(1), &rx_cq.batches, &qp)),
            far,
            counting: bound.counting.clone(),
            srx: srx.clone().map(|srx| srx as Arc<dyn Receives>),
            rx_selective: bound.rx_selective,
            broken: AtomicBool::new(false),
            lost: AtomicBool::new(self.domain.watch.is_gone()),
        });
        if let Some(srx) = &srx {
            srx.attach(&rx_cq)?;
        }
        if let Some(av) = &av {
            av.attach(&sides);
        }
        for cq in [&tx_cq, &rx_cq] {
            cq.add(qp.number(), &sides);
        }
        let ear = Ear::new(&sides, &tx_cq, &rx_cq);
        let heard: Weak<Ear> = Arc::downgrade(&ear);
        self.domain.watch.add(Of::Qp(qp.number()), heard);
        let live = Live {
            srx,
            av,
            qp,
            sides: Arc::clone(&sides),
            tx_cq,
            rx_cq,
            ear,
            tx_selective: bound.tx_selective,
            rx_selective: bound.rx_selective,
        };
        // Nobody else does this, since `bound` is locked.
        let _ = self.live.set(live);
        Ok(sides)
    }
}

/// What an endpoint gets when it is enabled.
struct Parts {
    qp: Arc<Qp>,
    tx_cq: Arc<Cq>,
    rx_cq: Arc<Cq>,
    srx: Option<Arc<SharedRx>>,
    av: Option<Arc<Av>>,
    far: Far,
}

/// The address that a connected endpoint is to have.
fn own_address(info: &Info, is_connected: bool) -> Result<Option<SocketAddr>> {
    let given = info.src_addr.as_ref().filter(|_| is_connected);
    given.map(ip).transpose()
}

fn no_queue_pair(cap: QpCap, error: Errno) {
    fi_warn!(
        NAME,
        Subsys::EpCtrl,
        "the device has no queue pair of {cap:?}: {error}; take the attributes that fi_getinfo gave"
    );
}

impl Drop for Endpoint {
    /// Once the queue pair is gone, the device uses no buffer that was posted to it.
    fn drop(&mut self) {
        if let Some(id) = &self.bound.get_mut().id {
            self.domain.fabric.cm.remove(id);
        }
        // Nothing comes before there is a connection.
        let mut is_used = false;
        if let Link::Connection(connection) = &self.link {
            is_used = connection.stands() || connection.has_ended();
            connection.close();
        }
        let Some(live) = self.live.take() else { return };
        let number = live.qp.number();
        if live.srx.is_some() && is_used && live.qp.fail().is_ok() {
            live.ear.end_shared(&self.domain.watch);
        }
        // Waits for events about it that are being told.
        self.domain.watch.remove(Of::Qp(number));
        let Live {
            srx,
            qp,
            sides,
            tx_cq,
            rx_cq,
            ear,
            ..
        } = live;
        drop(ear);
        sides.tx.lock().close();
        sides.rx.lock().close();
        // The last owner: no event is on its way any more.
        drop(qp);
        tx_cq.remove(number);
        rx_cq.remove(number);
        if let Some(srx) = &srx {
            srx.detach(&rx_cq);
        }
        tx_cq.give_room(sides.tx.lock().queue.len());
        rx_cq.give_room(sides.rx.lock().queue.len());
    }
}
