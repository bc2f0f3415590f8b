//! The objects over a transport whose links the domain polls itself (`Readiness::POLLS_LINKS`, as shm's rings): sockets
//! of which only polling tells that they can be read or written, and which wake a sleeper as a doorbell does.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ripstop_core::Info;
use ripstop_core::provider::{
    AddressVector, AvAttr, CompletionQueue, CqAttr, Domain, Endpoint, Fabric as _, RecvKind,
    SendKind, Token,
};
use ripstop_mem::Parked;
use ripstop_os::{Epoll, Events, Interest};
use ripstop_stream::{ConnId, Fabric, Os, Readiness, ReadyLink};
use ripstop_types::{EpType, Errno, FiAddr, Flags, Progress, Threading, WaitObj};

use super::{common, *};
use crate::TcpProvider;

#[derive(Debug)]
struct PolledTcp;

/// How often a poll found room to write.
static WRITABLE: AtomicUsize = AtomicUsize::new(0);
/// How often a thread was about to sleep, so that peers had to tell.
static ARMED: AtomicUsize = AtomicUsize::new(0);
/// Domains that closed while their peers had to tell, though nobody slept there.
static ARMED_AT_CLOSE: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
struct PolledReadiness {
    epoll: Epoll,
    links: HashMap<ConnId, Arc<TcpSocket>>,
    armed: bool,
}

impl Drop for PolledReadiness {
    fn drop(&mut self) {
        ARMED_AT_CLOSE.fetch_add(usize::from(self.armed), Ordering::Relaxed);
    }
}

impl Readiness<TcpSocket> for PolledReadiness {
    const POLLS_LINKS: bool = true;

    fn open() -> Result<Self> {
        Ok(Self {
            epoll: Epoll::new()?,
            links: HashMap::new(),
            armed: false,
        })
    }

    fn add(&mut self, id: ConnId, link: &Arc<TcpSocket>) {
        let id64 = u64::from(id.number());
        self.epoll.add(&**link, id64, Interest::READ).unwrap();
        assert!(self.links.insert(id, Arc::clone(link)).is_none());
    }

    fn modify(&mut self, id: ConnId, interest: Interest) {
        let link = &*self.links[&id];
        self.epoll
            .modify(link, u64::from(id.number()), interest)
            .unwrap();
    }

    fn remove(&mut self, id: ConnId) {
        let link = self.links.remove(&id).expect("a link that was added");
        self.epoll.remove(&*link).unwrap();
    }

    fn is_due(&mut self) -> bool {
        let mut events = Events::with_capacity(1);
        self.epoll.poll(&mut events).unwrap() > 0
    }

    fn poll(&mut self, ready: &mut Vec<ReadyLink>) {
        let mut events = Events::with_capacity(8);
        self.epoll.poll(&mut events).unwrap();
        let room = events.iter().filter(|event| event.writable()).count();
        WRITABLE.fetch_add(room, Ordering::Relaxed);
        ready.extend(events.iter().map(|event| ReadyLink {
            id: ConnId::new(event.token as u32).expect("a link that was added"),
            what: Interest {
                read: event.readable() || event.hangup() || event.error(),
                write: event.writable(),
            },
        }));
    }

    fn arm(&mut self) -> bool {
        ARMED.fetch_add(1, Ordering::Relaxed);
        self.armed = true;
        self.epoll.poll(&mut Events::with_capacity(1)).unwrap() > 0
    }

    fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Transport for PolledTcp {
    const NAME: &'static str = NAME;
    const AFTER_READS: bool = Tcp::AFTER_READS;
    type Params = Params;
    type Addr = SocketAddr;
    type Link = TcpSocket;
    type Listener = TcpSocket;
    type System = Os;
    type Readiness = PolledReadiness;

    fn default_source(params: &Params) -> SocketAddr {
        Tcp::default_source(params)
    }

    fn bind(params: &Params, addr: &SocketAddr) -> Result<TcpSocket> {
        Tcp::bind(params, addr)
    }

    fn bind_contexts(params: &Params, addr: &SocketAddr, count: usize) -> Result<Vec<TcpSocket>> {
        Tcp::bind_contexts(params, addr, count)
    }

    fn connect(_: &Params, to: &SocketAddr, _: Origin<Self>) -> Result<(TcpSocket, Connect)> {
        let (socket, progress) = Socket::connect(to, None)?;
        Ok((TcpSocket(socket), progress))
    }

    fn prepare(params: &Params, link: &TcpSocket, dscp: Option<u8>) -> Result<()> {
        Tcp::prepare(params, link, dscp)
    }

    fn request_data(
        params: &Params,
        _: &mut PolledReadiness,
        link: &TcpSocket,
        own: &SocketAddr,
        hi: Greeting,
    ) -> Result<Vec<u8>> {
        Tcp::request_data(params, &mut EpollOnly, link, own, hi)
    }

    fn read_request(
        params: &Params,
        _: &mut PolledReadiness,
        link: &TcpSocket,
        from: &SocketAddr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, SocketAddr), HandshakeError> {
        Tcp::read_request(params, &mut EpollOnly, link, from, data)
    }
}

fn info(threading: Threading) -> Info {
    let hints = common::hints(EpType::Rdm, Flags::MSG, threading, Progress::Manual);
    common::first(&TcpProvider::new(), &hints)
}

struct End<D: Domain> {
    ep: Arc<D::Endpoint>,
    cq: Arc<D::Cq>,
    av: Arc<D::Av>,
}

fn open<D: Domain>(domain: &Arc<D>, info: &Info) -> End<D> {
    let cq = domain.cq(&CqAttr {
        wait: WaitObj::Unspec,
        ..CqAttr::default()
    });
    let cq = cq.unwrap();
    let av = domain.av(&AvAttr::default()).unwrap();
    let ep = domain.endpoint(info, Token(0)).unwrap();
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
    ep.bind_av(&av).unwrap();
    ep.enable().unwrap();
    End { ep, cq, av }
}

fn fabric(info: &Info) -> Arc<Fabric<PolledTcp>> {
    Arc::new(Fabric::new(info.fabric.clone(), Arc::new(Params::read())))
}

#[test]
fn messages_flow_over_links_that_must_be_polled() {
    const ENDS: usize = 5;
    let info = info(Threading::Domain);
    let fabric = fabric(&info);
    let domains: Vec<_> = (0..ENDS)
        .map(|_| fabric.serial_domain(&info).unwrap())
        .collect();
    let ends: Vec<_> = domains.iter().map(|domain| open(domain, &info)).collect();
    for len in [8, 4 << 20] {
        let parked: Vec<_> = (0..ENDS as u8)
            .map(|fill| Parked::park(vec![fill; len]))
            .collect();
        let rooms: Vec<_> = (0..ENDS * (ENDS - 1))
            .map(|_| Parked::park(vec![0xff; len]))
            .collect();
        let mut room = rooms.iter();
        for (own, end) in ends.iter().enumerate() {
            for (other, peer) in ends.iter().enumerate().filter(|(other, _)| *other != own) {
                let to = end.av.insert(&peer.ep.name().unwrap()).unwrap();
                let buf = room.next().unwrap().buf();
                end.ep
                    .recv(RecvKind::Msg, &[buf], FiAddr::UNSPEC, 1, None)
                    .unwrap();
                let text = parked[own].buf();
                let sent = end.ep.send(SendKind::Msg, &[text], None, to, 2, None);
                assert_eq!(sent, Ok(()), "from {own} to {other}");
            }
        }
        let stop = Instant::now() + Duration::from_secs(60);
        let mut left = [2 * (ENDS - 1); ENDS];
        while left != [0; ENDS] {
            assert!(Instant::now() < stop, "still to come: {left:?}");
            for (end, left) in ends.iter().zip(&mut left) {
                *left -= end.cq.read(4, |_| ()).unwrap_or(0);
            }
        }
        for (own, rooms) in rooms.chunks(ENDS - 1).enumerate() {
            let mut bytes = vec![0; len];
            let mut from: Vec<u8> = rooms
                .iter()
                .map(|room| {
                    ripstop_mem::copy_in(&mut bytes, room.buf());
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                    bytes[0]
                })
                .collect();
            from.sort_unstable();
            let others: Vec<u8> = (0..ENDS as u8).filter(|id| *id != own as u8).collect();
            assert_eq!(from, others);
        }
    }
    assert!(WRITABLE.load(Ordering::Relaxed) > 0);
}

fn wait<D: Domain>(end: &End<D>, mut entries: usize) {
    let stop = Instant::now() + Duration::from_secs(60);
    while entries > 0 {
        match end.cq.sread(2, 1, Some(Duration::from_secs(10)), |_| ()) {
            Ok(count) => entries -= count,
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
        assert!(Instant::now() < stop, "a message does not arrive");
    }
}

/// Sends and gets 20 messages in turn.
fn turn<D: Domain>(end: &End<D>, to: FiAddr, first: bool) {
    let [text, room] = [Parked::park(vec![1; 64]), Parked::park(vec![0; 64])];
    for round in 0..20 {
        end.ep
            .recv(RecvKind::Msg, &[room.buf()], FiAddr::UNSPEC, 1, None)
            .unwrap();
        let send = || {
            std::thread::sleep(Duration::from_millis(round % 5));
            let sent = end.ep.send(SendKind::Msg, &[text.buf()], None, to, 2, None);
            sent.unwrap();
        };
        if first {
            send();
            wait(end, 2);
        } else {
            wait(end, 1);
            send();
            wait(end, 1);
        }
    }
}

#[test]
fn a_thread_that_sleeps_is_woken_over_links_that_must_be_polled() {
    let info = info(Threading::Safe);
    let fabric = fabric(&info);
    let [near, far] = [(); 2].map(|()| fabric.safe_domain(&info).unwrap());
    let (near, far) = (open(&near, &info), open(&far, &info));
    let to_far = near.av.insert(&far.ep.name().unwrap()).unwrap();
    let to_near = far.av.insert(&near.ep.name().unwrap()).unwrap();
    let before = ARMED.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| turn(&near, to_far, true));
        turn(&far, to_near, false);
    });
    assert!(ARMED.load(Ordering::Relaxed) > before);
    drop((near, far, fabric));
    assert_eq!(ARMED_AT_CLOSE.load(Ordering::Relaxed), 0);
}

#[test]
fn a_domain_disarms_once_the_program_has_what_it_would_sleep_for() {
    let info = info(Threading::Safe);
    let fabric = fabric(&info);
    let [near, far] = [(); 2].map(|()| fabric.safe_domain(&info).unwrap());
    let (near, far) = (open(&near, &info), open(&far, &info));
    let to_far = near.av.insert(&far.ep.name().unwrap()).unwrap();
    let [text, room] = [Parked::park(vec![1; 64]), Parked::park(vec![0; 64])];
    let stop = Instant::now() + Duration::from_secs(60);
    // The first to connect.
    for _ in 0..2 {
        far.ep
            .recv(RecvKind::Msg, &[room.buf()], FiAddr::UNSPEC, 1, None)
            .unwrap();
        while far.cq.try_wait() == Err(Errno::EAGAIN) {
            assert!(Instant::now() < stop);
        }
        near.ep
            .send(SendKind::Msg, &[text.buf()], None, to_far, 2, None)
            .unwrap();
        let (mut sent, mut received) = (0, 0);
        while sent + received < 2 {
            sent += near.cq.read(1, |_| ()).unwrap_or(0);
            received += far.cq.read(1, |_| ()).unwrap_or(0);
            assert!(Instant::now() < stop);
        }
    }
    drop((text, room, near, far, fabric));
    assert_eq!(ARMED_AT_CLOSE.load(Ordering::Relaxed), 0);
}
