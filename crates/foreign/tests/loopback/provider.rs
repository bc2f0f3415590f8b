//! A library driven through the traits of the object model.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_core::eq::{EqAttr, Event};
use ripstop_core::hints::Request;
use ripstop_core::provider::{
    AddressVector, AvAttr, CompletionQueue, Counter, CounterAttr, CqAttr, Domain, Endpoint, Fabric,
    MemoryRegion, MrAttr, PassiveEp, Provider, RecvKind, RmaCall, SendKind,
};
use ripstop_core::registry::{ProviderInfo, Refusal};
use ripstop_core::{DomainAttr, EpAttr, EventQueue, FidToken, Hints, Info};
use ripstop_foreign::{ForeignProvider, Library};
use ripstop_mem::Parked;
use ripstop_types::{
    Completion, EpType, Errno, FiAddr, Flags, MrMode, RmaIov, Threading, Version, WaitObj,
};

use crate::freed::unpark;
use crate::{SOON, library, pattern};

type Found = (ForeignProvider, Info);

/// What the library that is tried offers.
fn here(ep_type: EpType, caps: Flags, threading: Threading) -> Option<Found> {
    Some(find(&library()?, ep_type, caps, threading))
}

/// What the first provider that has it offers on 127.0.0.1.
pub(crate) fn find(library: &Library, ep_type: EpType, caps: Flags, threading: Threading) -> Found {
    let hints = Hints {
        caps,
        ep: Some(EpAttr {
            ep_type,
            ..EpAttr::default()
        }),
        domain: Some(DomainAttr {
            threading,
            mr_mode: MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY,
            ..DomainAttr::default()
        }),
        ..Hints::default()
    };
    let request = Request {
        version: Version::CURRENT,
        node: Some("127.0.0.1"),
        flags: Flags::SOURCE,
        hints: Some(&hints),
        ..Request::default()
    };
    for name in ["tcp", "tcp;ofi_rxm"] {
        let provider = ForeignProvider::new(library.clone(), name);
        let answer = provider.getinfo(&request);
        match answer.infos.into_iter().next() {
            Some(info) => return (provider, info),
            None => assert!(
                matches!(answer.refusals[..], [Refusal::Failed(Errno::ENODATA, _)]),
                "{:?}",
                answer.refusals
            ),
        }
    }
    panic!("{library:?} has no {ep_type:?} over tcp with {caps:?}");
}

/// An endpoint and what it needs.
struct Side<D: Domain> {
    ep: Arc<D::Endpoint>,
    cq: Arc<D::Cq>,
    av: Arc<D::Av>,
    received: Arc<D::Counter>,
}

impl<D: Domain> Side<D> {
    fn new(domain: &Arc<D>, info: &Info) -> Self {
        let cq = domain.cq(&CqAttr::default()).unwrap();
        let av = domain.av(&AvAttr::default()).unwrap();
        let received = domain.counter(&CounterAttr::default()).unwrap();
        let ep = domain.endpoint(info, FidToken(1)).unwrap();
        ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
        ep.bind_counter(&received, Flags::RECV).unwrap();
        ep.bind_av(&av).unwrap();
        ep.enable().unwrap();
        Self {
            ep,
            cq,
            av,
            received,
        }
    }

    fn meet(&self, other: &Self) -> FiAddr {
        self.av.insert(&other.ep.name().unwrap()).unwrap()
    }

    /// One read of the queue.
    fn read(&self) -> Option<Completion> {
        let mut found = None;
        match self.cq.read(1, |entry| found = Some(*entry)) {
            Ok(count) => assert_eq!(count, 1),
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
        found
    }
}

/// Tries again while queues are full.
fn post<D: Domain>(sides: [&Side<D>; 2], call: impl Fn() -> ripstop_types::Result<()>) {
    let deadline = Instant::now() + SOON;
    while let Err(error) = call() {
        assert_eq!(error, Errno::EAGAIN);
        assert!(Instant::now() < deadline, "the queue stays full");
        for side in sides {
            assert_eq!(side.cq.read(0, |_| ()).unwrap_or(0), 0);
        }
    }
}

/// The completions with these contexts, in this order, of two sides.
fn both<D: Domain>(a: (&Side<D>, usize), b: (&Side<D>, usize)) -> [Completion; 2] {
    let deadline = Instant::now() + SOON;
    let mut found = [None, None];
    while let [None, _] | [_, None] = found {
        assert!(Instant::now() < deadline, "no completion in time");
        for (found, (side, context)) in found.iter_mut().zip([a, b]) {
            if let Some(entry) = side.read() {
                assert_eq!(entry.context, context);
                *found = Some(entry);
            }
        }
    }
    found.map(Option::unwrap)
}

fn exchange<D: Domain>(domain: &Arc<D>, info: &Info) {
    let (a, b) = (Side::new(domain, info), Side::new(domain, info));
    let (to, from) = (a.meet(&b), b.meet(&a));
    assert_eq!(a.av.lookup(to).unwrap(), b.ep.name().unwrap());
    for (i, len) in [1, 8, 100_000].into_iter().enumerate() {
        let bytes = pattern(len, i);
        let sent = Parked::park(bytes.clone());
        let into = Parked::park(vec![0; len]);
        let tag = 77 << i;
        let kind = RecvKind::Tagged { tag, ignore: 0 };
        let recv = b.ep.recv(kind, &[into.buf()], from, 2, None);
        assert_eq!(recv, Ok(()));
        let kind = SendKind::Tagged(tag);
        post([&a, &b], || {
            a.ep.send(kind, &[sent.buf()], Some(5), to, 3, None)
        });
        let [_, got] = both((&a, 3), (&b, 2));
        assert_eq!((got.len, got.tag, got.data), (len, tag, 5));
        assert!(got.flags.contains(Flags::TAGGED | Flags::REMOTE_CQ_DATA));
        assert_eq!(unpark(into), bytes);
        drop(unpark(sent));
    }

    // Pieces, with flags of the call; then an inject, which reports nothing to its sender.
    let [head, tail] = [&b"scat"[..], b"tered"].map(|part| Parked::park(part.to_vec()));
    let into = Parked::park(vec![0; 9]);
    let (left, right) = into.buf().split_at(3).unwrap();
    b.ep.recv(RecvKind::Msg, &[left, right], FiAddr::UNSPEC, 4, None)
        .unwrap();
    let iov = [head.buf(), tail.buf()];
    let flags = Some(Flags::COMPLETION);
    post([&a, &b], || {
        a.ep.send(SendKind::Msg, &iov, None, to, 5, flags)
    });
    both((&a, 5), (&b, 4));
    assert_eq!(unpark(into), b"scattered");
    let into = Parked::park(vec![0; 4]);
    b.ep.recv(RecvKind::Msg, &[into.buf()], FiAddr::UNSPEC, 6, None)
        .unwrap();
    post([&a, &b], || {
        a.ep.inject(SendKind::Msg, head.buf(), None, to)
    });
    let deadline = Instant::now() + SOON;
    while b.read().is_none() {
        assert_eq!(a.read(), None);
        assert!(Instant::now() < deadline, "an inject does not arrive");
    }
    assert_eq!(unpark(into), b"scat");
    assert_eq!(b.received.read(), 5);

    // A receive that nothing matches is cancelled.
    let never = Parked::park(vec![0; 8]);
    let kind = RecvKind::Tagged { tag: 1, ignore: 0 };
    b.ep.recv(kind, &[never.buf()], FiAddr::UNSPEC, 7, None)
        .unwrap();
    b.ep.cancel(7).unwrap();
    let deadline = Instant::now() + SOON;
    while b.cq.read(1, |_| ()) != Err(Errno::EAVAIL) {
        assert!(Instant::now() < deadline, "the receive is not cancelled");
    }
    let mut error = None;
    b.cq.read_error(|entry, _| error = Some((entry.entry.context, entry.err)))
        .unwrap();
    assert_eq!(error, Some((7, Errno::ECANCELED)));
    assert_eq!(b.cq.read_error(|_, _| ()), Err(Errno::EAGAIN));

    // A library that needs no memory at a context gets none.
    let claims = Some(Flags::PEEK | Flags::CLAIM);
    let refused = b.ep.recv(kind, &[], FiAddr::UNSPEC, 8, claims);
    assert_eq!(refused, Err(Errno::ENOSYS));
}

#[test]
fn messages_go_through_the_traits() {
    let caps = Flags::MSG | Flags::TAGGED;
    let Some((provider, info)) = here(EpType::Rdm, caps, Threading::Safe) else {
        return;
    };
    let fabric = provider.fabric(&info.fabric).unwrap();
    exchange(&fabric.serial_domain(&info).unwrap(), &info);
    exchange(&fabric.safe_domain(&info).unwrap(), &info);
    let mut changed = info.clone();
    changed.tx.size += 1;
    assert_eq!(fabric.safe_domain(&changed).err(), Some(Errno::EINVAL));
}

#[test]
fn only_a_thread_safe_library_gets_a_safe_domain() {
    let Some((provider, info)) = here(EpType::Msg, Flags::MSG, Threading::Domain) else {
        return;
    };
    assert_eq!(info.domain.threading, Threading::Domain);
    let fabric = provider.fabric(&info.fabric).unwrap();
    assert_eq!(fabric.safe_domain(&info).err(), Some(Errno::EINVAL));
    assert!(fabric.serial_domain(&info).is_ok());
}

#[test]
fn peers_memory_is_written_and_read() {
    let caps = Flags::MSG | Flags::RMA;
    let Some((provider, info)) = here(EpType::Rdm, caps, Threading::Domain) else {
        return;
    };
    let fabric = provider.fabric(&info.fabric).unwrap();
    let domain = fabric.serial_domain(&info).unwrap();
    let (a, b) = (Side::new(&domain, &info), Side::new(&domain, &info));
    let to = a.meet(&b);
    b.meet(&a);
    let target = Parked::park(vec![0; 4096]);
    let mr = domain
        .mr(&MrAttr::of_buf(
            target.buf(),
            Flags::REMOTE_READ | Flags::REMOTE_WRITE,
            9,
        ))
        .unwrap();
    let base = match info.domain.mr_mode.contains(MrMode::VIRT_ADDR) {
        true => target.buf().addr() as u64,
        false => 0,
    };
    let place = |at: u64, len: u64| RmaIov {
        addr: base + at,
        len,
        key: mr.key(),
    };
    let ended = |context| {
        let deadline = Instant::now() + SOON;
        loop {
            assert_eq!(b.read(), None);
            if let Some(entry) = a.read() {
                assert_eq!(entry.context, context);
                return;
            }
            assert!(Instant::now() < deadline, "{context} does not complete");
        }
    };
    let bytes = pattern(1000, 1);
    let from = Parked::park(bytes.clone());
    let (first, rest) = from.buf().split_at(600).unwrap();
    let call = |remote, context, flags| RmaCall {
        remote,
        peer: to,
        data: None,
        context,
        flags,
    };
    let reach = Some(Flags::COMPLETION | Flags::DELIVERY_COMPLETE);
    let whole = [place(8, 1000)];
    post([&a, &b], || {
        a.ep.write(&[first, rest], &call(&whole, 1, reach))
    });
    ended(1);
    let back = Parked::park(vec![0; 600]);
    let part = [place(8, 600)];
    post([&a, &b], || a.ep.read(&[back.buf()], &call(&part, 2, None)));
    ended(2);
    assert_eq!(unpark(back), bytes[..600]);
    post([&a, &b], || {
        a.ep.write(&[from.buf().first(600)], &call(&part, 3, None))
    });
    ended(3);
    assert!(mr.try_close(false));
    assert_eq!(&unpark(target)[8..608], &bytes[..600]);
}

#[test]
fn many_addresses_are_inserted_at_once() {
    let Some((provider, info)) = here(EpType::Rdm, Flags::MSG, Threading::Domain) else {
        return;
    };
    let fabric = provider.fabric(&info.fabric).unwrap();
    let domain = fabric.serial_domain(&info).unwrap();
    let av = domain.av(&AvAttr::default()).unwrap();
    let peers: Vec<SocketAddr> = (0..5000_u16)
        .map(|port| SocketAddr::from(([127, 0, 0, 2], 1 + port)))
        .collect();
    let (mut all, mut bad) = (Vec::new(), 0);
    let given = peers.iter().map(|peer| match peer.port() {
        100 => Err(Errno::EADDRNOTAVAIL),
        _ => Ok(*peer),
    });
    av.insert_ip(&mut { given }, &mut |found| match found {
        Ok(addr) => all.push(addr),
        Err(error) => {
            assert_eq!((error, all.len()), (Errno::EADDRNOTAVAIL, 99));
            bad += 1;
        }
    });
    assert_eq!((all.len(), bad), (4999, 1));
    assert_eq!(av.lookup(all[98]).unwrap().ip(), Some(peers[98]));
    assert_eq!(av.lookup(all[99]).unwrap().ip(), Some(peers[100]));
    assert_eq!(av.addresses().len(), 4999);
    av.remove(all[0]).unwrap();
    assert_eq!(av.addresses().len(), 4998);
}

/// The next event, which is made by progress of both queues.
#[track_caller]
fn event(queues: [&Arc<EventQueue>; 2]) -> Event {
    let deadline = Instant::now() + SOON;
    loop {
        queues[1].progress();
        match queues[0].sread(Some(Duration::from_millis(1))) {
            Ok(event) => return event,
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
        assert!(Instant::now() < deadline, "no event in time");
    }
}

#[test]
fn connections_report_to_event_queues() {
    let Some((provider, info)) = here(EpType::Msg, Flags::MSG, Threading::Safe) else {
        return;
    };
    let fabric = provider.fabric(&info.fabric).unwrap();
    let attr = EqAttr {
        wait_obj: WaitObj::Unspec,
        ..EqAttr::default()
    };
    let [here, there] = [(); 2].map(|()| Arc::new(EventQueue::open(&attr).unwrap()));
    let listener = fabric.passive_ep(&info, FidToken(1)).unwrap();
    listener.bind_eq(&there).unwrap();
    listener.listen().unwrap();
    let open = |info: &Info, token, eq| {
        let domain = fabric.safe_domain(info).unwrap();
        let cq = domain.cq(&CqAttr::default()).unwrap();
        let ep = domain.endpoint(info, token).unwrap();
        ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
        ep.bind_eq(eq).unwrap();
        ep.enable().unwrap();
        (ep, cq)
    };
    let (caller, _sent) = open(&info, FidToken(2), &here);
    caller.connect(&listener.name().unwrap(), b"hello").unwrap();
    let Event::ConnReq { pep, info, data } = event([&there, &here]) else {
        panic!("no connection request")
    };
    assert_eq!((pep, &data[..]), (FidToken(1), &b"hello"[..]));
    let (callee, received) = open(&info, FidToken(3), &there);
    callee.accept(b"welcome").unwrap();
    let again = fabric.safe_domain(&info).unwrap();
    let again = again.endpoint(&info, FidToken(4));
    assert_eq!(again.err(), Some(Errno::EINVAL));
    let connected = |ep, data: &[u8]| Event::Connected {
        ep,
        data: data.to_vec(),
    };
    assert_eq!(event([&here, &there]), connected(FidToken(2), b"welcome"));
    assert_eq!(event([&there, &here]), connected(FidToken(3), b""));

    let into = Parked::park(vec![0; 4]);
    let from = Parked::park(b"text".to_vec());
    callee
        .recv(RecvKind::Msg, &[into.buf()], FiAddr::UNSPEC, 1, None)
        .unwrap();
    caller
        .send(SendKind::Msg, &[from.buf()], None, FiAddr::UNSPEC, 2, None)
        .unwrap();
    let deadline = Instant::now() + SOON;
    while received.read(1, |_| ()) == Err(Errno::EAGAIN) {
        assert!(Instant::now() < deadline, "no message in time");
    }
    assert_eq!(unpark(into), b"text");
    caller.shutdown().unwrap();
    drop(caller);
    // The end of a connection is seen by who reads from it.
    let over = loop {
        assert_eq!(received.read(1, |_| ()), Err(Errno::EAGAIN));
        match there.read() {
            Err(Errno::EAGAIN) => assert!(Instant::now() < deadline, "no event in time"),
            over => break over,
        }
    };
    assert_eq!(over, Ok(Event::Shutdown { ep: FidToken(3) }));
}

#[test]
fn anything_may_be_dropped_first() {
    let caps = Flags::MSG | Flags::TAGGED;
    let Some((provider, info)) = here(EpType::Rdm, caps, Threading::Safe) else {
        return;
    };
    let open = || {
        let fabric = provider.fabric(&info.fabric).unwrap();
        let domain = fabric.safe_domain(&info).unwrap();
        let side = Side::new(&domain, &info);
        (fabric, domain, side)
    };
    let (fabric, domain, side) = open();
    drop((fabric, domain));
    drop((side.cq, side.av, side.received));
    assert!(side.ep.name().is_ok());
    drop(side.ep);
    let (fabric, domain, side) = open();
    drop(side.ep);
    drop((side.received, side.av, side.cq));
    drop((domain, fabric));
}
