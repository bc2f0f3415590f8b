//! Scalable endpoints in one process, through the object model.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common;
use crate::freed::unpark;
use ripstop_core::provider::{
    AddressVector, AvAttr, CompletionQueue, CqAttr, Domain, Endpoint, Fabric, MemoryRegion, MrAttr,
    RecvKind, RmaCall, ScalableEp, SendKind,
};
use ripstop_core::{Address, FidToken, Info, RxAttr, TxAttr};
use ripstop_mem::Parked;
use ripstop_tcp::{RxmTcpProvider, TcpProvider};
use ripstop_types::{
    Completion, EpType, Errno, FiAddr, Flags, Progress, RmaIov, Threading, WaitObj,
};

const CONTEXTS: usize = 3;
const BITS: u8 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// An interface with scalable endpoints, and a domain of it.
fn ground() -> (Info, Arc<<ripstop_tcp::Fabric as Fabric>::SerialDomain>) {
    let caps = Flags::MSG | Flags::RMA | Flags::SOURCE | Flags::DIRECTED_RECV | Flags::NAMED_RX_CTX;
    let mut hints = common::hints(EpType::Rdm, caps, Threading::Domain, Progress::Manual);
    if let Some(ep) = &mut hints.ep {
        (ep.tx_ctx_cnt, ep.rx_ctx_cnt) = (CONTEXTS, CONTEXTS);
    }
    let (info, fabric) = crate::fabric(&TcpProvider::new(), &hints);
    assert!(info.caps.contains(Flags::NAMED_RX_CTX));
    let domain = fabric.serial_domain(&info).unwrap();
    (info, domain)
}

/// One queue for each context.
struct Context<D: Domain> {
    ep: Arc<D::Endpoint>,
    cq: Arc<D::Cq>,
}

struct Side<D: Domain> {
    tx: Vec<Context<D>>,
    rx: Vec<Context<D>>,
    sep: Arc<D::ScalableEp>,
    av: Arc<D::Av>,
}

fn cq<D: Domain>(domain: &Arc<D>) -> Arc<D::Cq> {
    let attr = CqAttr {
        wait: WaitObj::None,
        ..CqAttr::default()
    };
    domain.cq(&attr).unwrap()
}

fn av<D: Domain>(domain: &Arc<D>) -> Arc<D::Av> {
    let attr = AvAttr {
        rx_ctx_bits: BITS,
        ..AvAttr::default()
    };
    domain.av(&attr).unwrap()
}

fn open<D: Domain>(domain: &Arc<D>, info: &Info) -> Side<D> {
    let sep = domain.scalable_ep(info, FidToken(0)).unwrap();
    let av = av(domain);
    sep.bind_av(&av).unwrap();
    let context = |ep: Arc<D::Endpoint>, flags| {
        let cq = cq(domain);
        ep.bind_cq(&cq, flags).unwrap();
        ep.enable().unwrap();
        Context { ep, cq }
    };
    let tx = (0..CONTEXTS)
        .map(|i| context(sep.tx_context(i, None).unwrap().0, Flags::SEND))
        .collect();
    let rx = (0..CONTEXTS)
        .map(|i| context(sep.rx_context(i, None).unwrap().0, Flags::RECV))
        .collect();
    sep.enable().unwrap();
    Side { tx, rx, sep, av }
}

impl<D: Domain> Side<D> {
    fn insert(&self, other: &Self) -> FiAddr {
        self.av.insert(&other.sep.name().unwrap()).unwrap()
    }
}

fn named(peer: FiAddr, context: usize) -> FiAddr {
    FiAddr(((context as u64) << (u64::BITS - u32::from(BITS))) | peer.0)
}

fn next<Q: CompletionQueue>(cq: &Q) -> Completion {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut found = None;
        match cq.read(1, |c| found = Some(*c)) {
            Ok(_) => return found.unwrap(),
            Err(Errno::EAGAIN) => assert!(Instant::now() < end, "no completion"),
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn error<Q: CompletionQueue>(cq: &Q) -> Errno {
    let end = Instant::now() + PATIENCE;
    loop {
        match cq.read(1, |c| panic!("{c:?}")) {
            Err(Errno::EAVAIL) => break,
            Err(Errno::EAGAIN) => assert!(Instant::now() < end, "no completion"),
            other => panic!("{other:?}"),
        }
    }
    let mut found = Errno(0);
    cq.read_error(|error, _| found = error.err).unwrap();
    found
}

#[test]
fn every_context_reaches_every_context() {
    let (info, domain) = ground();
    let (a, b) = (open(&domain, &info), open(&domain, &info));
    let (to_b, to_a) = (a.insert(&b), b.insert(&a));
    for (from, to, dest, source) in [(&a, &b, to_b, to_a), (&b, &a, to_a, to_b)] {
        for (i, tx) in from.tx.iter().enumerate() {
            for (j, rx) in to.rx.iter().enumerate() {
                let text = Parked::park(vec![i as u8, j as u8]);
                let room = Parked::park(vec![0; 2]);
                rx.ep
                    .recv(RecvKind::Msg, &[room.buf()], source, j, None)
                    .unwrap();
                tx.ep
                    .send(SendKind::Msg, &[text.buf()], None, named(dest, j), i, None)
                    .unwrap();
                assert_eq!(next(&*tx.cq).context, i);
                let got = next(&*rx.cq);
                assert_eq!((got.context, got.len, got.src), (j, 2, source));
                assert_eq!(unpark(room), unpark(text));
            }
        }
    }
}

#[test]
fn a_write_tells_the_context_it_names() {
    let (info, domain) = ground();
    let (a, b) = (open(&domain, &info), open(&domain, &info));
    let to_b = a.insert(&b);
    let region = Parked::park(vec![0; 4]);
    let attr = MrAttr::of_buf(region.buf(), Flags::REMOTE_WRITE, 5);
    let mr = domain.mr(&attr).unwrap();
    let remote = [RmaIov {
        addr: 0,
        len: 4,
        key: mr.key(),
    }];
    let text = Parked::park(vec![7; 4]);
    for context in 0..CONTEXTS {
        let call = RmaCall {
            remote: &remote,
            peer: named(to_b, context),
            data: Some(context as u64),
            context: 0,
            flags: Some(Flags::COMPLETION),
        };
        a.tx[0].ep.write(&[text.buf()], &call).unwrap();
        next(&*a.tx[0].cq);
        assert_eq!(next(&*b.rx[context].cq).data, context as u64);
    }
    drop(mr);
    assert_eq!(unpark(region), unpark(text));
}

#[test]
fn a_source_has_a_name_when_it_gets_one() {
    let (info, domain) = ground();
    let (a, b) = (open(&domain, &info), open(&domain, &info));
    let to_b = a.insert(&b);
    // The connection comes from context 2, and goes to context 1, before b knows a.
    let (tx, rx) = (&a.tx[2], &b.rx[1]);
    let text = Parked::park(vec![7; 4]);
    let room = Parked::park(vec![0; 4]);
    let send = || {
        let dest = named(to_b, 1);
        let stop = Instant::now() + PATIENCE;
        while let Err(error) = tx.ep.inject(SendKind::Msg, text.buf(), None, dest) {
            // There is no connection before the peer has answered.
            assert_eq!(error, Errno::EAGAIN);
            assert!(Instant::now() < stop, "no connection");
        }
    };
    let receive = |from| {
        let buf = [room.buf()];
        rx.ep.recv(RecvKind::Msg, &buf, from, 0, None).unwrap();
        next(&*rx.cq).src
    };
    send();
    assert_eq!(receive(FiAddr::UNSPEC), FiAddr::NOTAVAIL);
    let to_a = b.insert(&a);
    send();
    assert_eq!(receive(to_a), to_a);
    b.av.remove(to_a).unwrap();
    send();
    assert_eq!(receive(FiAddr::UNSPEC), FiAddr::NOTAVAIL);
}

type Plain<D> = (Context<D>, Arc<<D as Domain>::Av>);

/// An endpoint that is not scalable.
fn plain<D: Domain>(domain: &Arc<D>, info: &Info, port: u16) -> Result<Plain<D>, Errno> {
    let mut info = info.clone();
    info.src_addr = Some(Address::Ip(SocketAddr::from(([127, 0, 0, 1], port))));
    let ep = domain.endpoint(&info, FidToken(0))?;
    let (cq, av) = (cq(domain), av(domain));
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
    ep.bind_av(&av).unwrap();
    ep.enable()?;
    Ok((Context { ep, cq }, av))
}

/// Two such, the second of which listens where a second context of the first would.
fn neighbours<D: Domain>(domain: &Arc<D>, info: &Info) -> (Plain<D>, Plain<D>) {
    let found = (0..50).find_map(|_| {
        let first = plain(domain, info, 0).unwrap();
        let Ok(Address::Ip(addr)) = first.0.ep.name() else {
            panic!("no address");
        };
        Some((
            first,
            plain(domain, info, addr.port().checked_add(1)?).ok()?,
        ))
    });
    found.expect("two ports in a row")
}

#[test]
fn an_endpoint_in_packets_has_one_context_which_can_be_named() {
    let caps = Flags::MSG | Flags::NAMED_RX_CTX;
    let hints = common::hints(EpType::Rdm, caps, Threading::Domain, Progress::Manual);
    let (info, fabric) = crate::fabric(&RxmTcpProvider::new(), &hints);
    assert!(info.caps.contains(Flags::NAMED_RX_CTX));
    let domain = fabric.serial_domain(&info).unwrap();
    let ((to, _), (neighbour, _)) = neighbours(&domain, &info);
    let (from, av) = plain(&domain, &info, 0).unwrap();
    let peer = av.insert(&to.ep.name().unwrap()).unwrap();
    let text = Parked::park(vec![7; 4]);
    let send = |context| {
        let dest = named(peer, context);
        let buf = [text.buf()];
        from.ep.send(SendKind::Msg, &buf, None, dest, 0, None)
    };
    send(1).unwrap();
    assert_eq!(error(&*from.cq), Errno::ECONNREFUSED);
    assert_eq!(neighbour.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    send(0).unwrap();
    assert_eq!(next(&*from.cq).context, 0);
}

#[test]
fn the_neighbour_of_a_plain_endpoint_is_not_its_context() {
    let (info, domain) = ground();
    let a = open(&domain, &info);
    let (first, neighbour) = neighbours(&domain, &info);
    let peer = a.av.insert(&first.0.ep.name().unwrap()).unwrap();
    let text = Parked::park(vec![7; 4]);
    let tx = &a.tx[0];
    let send = |context| {
        let dest = named(peer, context);
        tx.ep
            .send(SendKind::Msg, &[text.buf()], None, dest, 0, None)
    };
    send(1).unwrap();
    assert_eq!(error(&*tx.cq), Errno::ECONNREFUSED);
    assert_eq!(neighbour.0.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    send(0).unwrap();
    assert_eq!(next(&*tx.cq).context, 0);
    // The bits have room for an index that is not there, and no more.
    let outside = FiAddr(peer.0 | 1 << 40);
    let buf = [text.buf()];
    let sent = tx.ep.send(SendKind::Msg, &buf, None, outside, 0, None);
    assert_eq!(sent, Err(Errno::EINVAL));
}

#[test]
fn contexts_open_once_and_close_by_themselves() {
    let (info, domain) = ground();
    let (a, mut b) = (open(&domain, &info), open(&domain, &info));
    assert_eq!(a.sep.tx_context(0, None).err(), Some(Errno::EBUSY));
    assert_eq!(a.sep.rx_context(CONTEXTS, None).err(), Some(Errno::EINVAL));
    let (to_b, _) = (a.insert(&b), b.insert(&a));
    let lost = Parked::park(vec![0; 4]);
    let buf = [lost.buf()];
    let old = b.rx.remove(0);
    old.ep
        .recv(RecvKind::Msg, &buf, FiAddr::UNSPEC, 1, None)
        .unwrap();
    drop(old);
    let text = Parked::park(vec![7; 4]);
    let send = || {
        let tx = &a.tx[1];
        tx.ep
            .send(SendKind::Msg, &[text.buf()], None, to_b, 1, None)
            .unwrap();
        next(&*tx.cq);
    };
    send();
    // The message waits for a receive of the context that is opened next.
    let (ep, got) = b.sep.rx_context(0, None).unwrap();
    assert_eq!(got, info.rx);
    let queue = cq(&domain);
    assert_eq!(ep.bind_cq(&queue, Flags::SEND), Err(Errno::EINVAL));
    ep.bind_cq(&queue, Flags::RECV).unwrap();
    ep.enable().unwrap();
    let room = Parked::park(vec![0; 4]);
    ep.recv(RecvKind::Msg, &[room.buf()], FiAddr::UNSPEC, 2, None)
        .unwrap();
    assert_eq!(next(&*queue).context, 2);
    assert_eq!((unpark(room), unpark(lost)), (vec![7; 4], vec![0; 4]));
}

#[test]
fn attributes_of_a_context_are_at_most_those_of_the_endpoint() {
    let (mut info, domain) = ground();
    let sep = domain.scalable_ep(&info, FidToken(0)).unwrap();
    assert_eq!(sep.enable(), Err(Errno::ENOAV));
    let attr = |inject_size| TxAttr {
        inject_size,
        ..TxAttr::default()
    };
    let (_, got) = sep.tx_context(0, Some(&attr(16))).unwrap();
    assert_eq!(got.inject_size, 16);
    let refused = sep.tx_context(1, Some(&attr(1 << 20)));
    assert_eq!(refused.err(), Some(Errno::EINVAL));
    assert!(
        sep.tx_context(1, None).is_ok(),
        "a refusal takes no context"
    );
    info.ep.tx_ctx_cnt = 17;
    let refused = domain.scalable_ep(&info, FidToken(0));
    assert_eq!(refused.err(), Some(Errno::EINVAL));
}

#[test]
fn the_size_of_a_context_is_a_hint() {
    let (info, domain) = ground();
    let sep = domain.scalable_ep(&info, FidToken(0)).unwrap();
    for (index, size) in [1, usize::MAX].into_iter().enumerate() {
        let tx = TxAttr {
            size,
            ..TxAttr::default()
        };
        let rx = RxAttr {
            size,
            ..RxAttr::default()
        };
        let (_, got) = sep.tx_context(index, Some(&tx)).unwrap();
        assert!(got.size >= size);
        let (_, got) = sep.rx_context(index, Some(&rx)).unwrap();
        assert!(got.size >= size);
    }
}
