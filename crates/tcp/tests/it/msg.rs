//! MSG endpoints: listen, connect, accept, reject, exchange, shut down.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common;
use crate::freed::unpark;
use ripstop_core::eq::{EqAttr, Event, EventQueue};
use ripstop_core::provider::{
    CompletionQueue, CqAttr, Domain, Endpoint, Fabric, PassiveEp, RecvKind, SendKind,
};
use ripstop_core::{FidToken, Handle, Info};
use ripstop_mem::Parked;
use ripstop_tcp::TcpProvider;
use ripstop_types::{EpType, Errno, FiAddr, Flags, Progress, Threading, WaitObj};

/// An interface for connections, and its fabric.
fn fabric() -> (Info, Arc<ripstop_tcp::Fabric>) {
    let (threading, progress) = (Threading::Unspec, Progress::Unspec);
    crate::fabric(
        &TcpProvider::new(),
        &common::hints(EpType::Msg, Flags::MSG, threading, progress),
    )
}

fn event_queue() -> Arc<EventQueue> {
    let attr = EqAttr {
        wait_obj: WaitObj::Fd,
        ..EqAttr::default()
    };
    Arc::new(EventQueue::open(&attr).unwrap())
}

fn event(eq: &EventQueue) -> Result<Event, Errno> {
    eq.sread(Some(Duration::from_secs(60)))
}

fn open<D: Domain>(
    domain: &Arc<D>,
    info: &Info,
    eq: &Arc<EventQueue>,
    token: usize,
) -> (Arc<D::Endpoint>, Arc<D::Cq>) {
    let cq = domain.cq(&CqAttr::default()).unwrap();
    let ep = domain.endpoint(info, FidToken(token)).unwrap();
    ep.bind_eq(eq).unwrap();
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
    ep.enable().unwrap();
    (ep, cq)
}

/// The side that ends a connection has an event too, and its peer's receives are cancelled.
#[test]
fn a_shutdown_is_reported_to_both_sides() {
    let (info, fabric) = fabric();
    let eq = event_queue();
    let pep = fabric.passive_ep(&info, FidToken(1)).unwrap();
    pep.bind_eq(&eq).unwrap();
    pep.listen().unwrap();
    let domain = fabric.safe_domain(&info).unwrap();
    let (client, _cq) = open(&domain, &info, &eq, 2);
    client.connect(&pep.name().unwrap(), &[]).unwrap();
    let Event::ConnReq { info: asked, .. } = event(&eq).unwrap() else {
        panic!("no request")
    };
    let (server, server_cq) = open(&domain, &asked, &eq, 3);
    server.accept(&[]).unwrap();
    for _ in 0..2 {
        assert!(matches!(event(&eq), Ok(Event::Connected { .. })));
    }
    let waiting = Parked::park(vec![0; 8]);
    server
        .recv(RecvKind::Msg, &[waiting.buf()], FiAddr::UNSPEC, 8, None)
        .unwrap();
    client.shutdown().unwrap();
    let mut ended = [event(&eq).unwrap(), event(&eq).unwrap()];
    ended.sort_by_key(|event| event.fid().map(|fid| fid.0));
    assert_eq!(ended, [2, 3].map(|ep| Event::Shutdown { ep: FidToken(ep) }));
    assert_eq!(server_cq.read(1, |_| ()), Err(Errno::EAVAIL));
    server_cq
        .read_error(|error, _| assert_eq!(error.err, Errno::ECANCELED))
        .unwrap();
    assert_eq!(server_cq.read(1, |_| ()), Err(Errno::EAGAIN));
}

#[test]
fn an_endpoint_takes_over_the_address_of_a_passive_one() {
    let (mut info, fabric) = fabric();
    let eq = event_queue();
    let listening = fabric.passive_ep(&info, FidToken(1)).unwrap();
    listening.bind_eq(&eq).unwrap();
    listening.listen().unwrap();
    let domain = fabric.safe_domain(&info).unwrap();
    let own = info.clone();
    let mut with = |pep: &Arc<_>| {
        info.handle = Some(Handle(Arc::clone(pep) as _));
        domain.endpoint(&info, FidToken(2))
    };
    assert_eq!(with(&listening).err(), Some(Errno::EINVAL));
    let bound = fabric.passive_ep(&own, FidToken(3)).unwrap();
    let name = bound.name().unwrap();
    let client = with(&bound).unwrap();
    assert_eq!(with(&bound).err(), Some(Errno::EINVAL));
    drop(bound);
    assert_eq!(client.name().unwrap(), name);
    let cq = domain.cq(&CqAttr::default()).unwrap();
    client.bind_eq(&eq).unwrap();
    client.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
    client.connect(&listening.name().unwrap(), b"").unwrap();
    let Event::ConnReq { info: asked, .. } = event(&eq).unwrap() else {
        panic!("no request")
    };
    assert_eq!(asked.dest_addr, Some(name.clone()));
    let (server, _cq) = open(&domain, &asked, &eq, 4);
    server.accept(b"").unwrap();
    for _ in 0..2 {
        assert!(matches!(event(&eq).unwrap(), Event::Connected { .. }));
    }
    assert_eq!(client.name().unwrap(), name);
}

/// What a peer sent before it left is received before anything fails because it left, whichever
/// of its streams is looked at first.
#[test]
fn what_was_sent_on_one_stream_comes_before_the_end_of_another() {
    let (info, fabric) = fabric();
    let eq = event_queue();
    let pep = fabric.passive_ep(&info, FidToken(1)).unwrap();
    pep.bind_eq(&eq).unwrap();
    pep.listen().unwrap();
    let address = pep.name().unwrap();
    let (near, far) = (
        fabric.safe_domain(&info).unwrap(),
        fabric.safe_domain(&info).unwrap(),
    );
    let cq = near.cq(&CqAttr::default()).unwrap();
    let mut ends = Vec::new();
    for token in [2, 4] {
        let client = near.endpoint(&info, FidToken(token)).unwrap();
        client.bind_eq(&eq).unwrap();
        client.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
        client.enable().unwrap();
        client.connect(&address, &[]).unwrap();
        let Event::ConnReq { info: asked, .. } = event(&eq).unwrap() else {
            panic!("no request")
        };
        let (server, _cq) = open(&far, &asked, &eq, token + 1);
        server.accept(&[]).unwrap();
        for _ in 0..2 {
            assert!(matches!(event(&eq), Ok(Event::Connected { .. })));
        }
        ends.push((client, server));
    }
    let memory = Parked::park(vec![0; 8]);
    let next = || {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let mut context = 0;
            match cq.read(1, |c| context = c.context) {
                Ok(_) => return Ok(context),
                Err(Errno::EAGAIN) => assert!(Instant::now() < end),
                Err(_) => {
                    cq.read_error(|error, _| context = error.entry.context)
                        .unwrap();
                    return Err(context);
                }
            }
        }
    };
    let receive = |client: &Arc<_>, context| {
        Endpoint::recv(
            &**client,
            RecvKind::Msg,
            &[memory.buf()],
            FiAddr::UNSPEC,
            context,
            None,
        )
    };
    // The first stream is the one that was just active, so it is read first.
    for round in 0..100 {
        receive(&ends[0].0, round).unwrap();
        ends[0]
            .1
            .inject(SendKind::Msg, memory.buf(), None, FiAddr::UNSPEC)
            .unwrap();
        assert_eq!(next(), Ok(round));
    }
    receive(&ends[0].0, 1000).unwrap();
    receive(&ends[1].0, 1001).unwrap();
    ends[1]
        .1
        .inject(SendKind::Msg, memory.buf(), None, FiAddr::UNSPEC)
        .unwrap();
    let (client, server) = ends.swap_remove(0);
    server.shutdown().unwrap();
    drop(server);
    assert_eq!(next(), Ok(1001));
    assert_eq!(next(), Err(1000));
    drop(client);
    drop(unpark(memory));
}
