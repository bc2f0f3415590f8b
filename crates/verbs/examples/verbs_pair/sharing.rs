//! Shared receive contexts.

use std::collections::BTreeSet;
use std::time::Duration;

use ripstop_core::eq::Event;
use ripstop_core::provider::{
    CompletionQueue as _, Counter as _, CounterAttr, Domain as _, Endpoint as _, RecvKind, RmaCall,
    SharedRx as _,
};
use ripstop_mem::{Parked, copy_in};
use ripstop_types::{Completion, CompletionError, Errno, FiAddr, Flags, WaitObj, flags};
use ripstop_verbs::{Endpoint, PassiveEp};

use super::{PATIENCE, SERVER, Side, Site, connect_bound, event, memory, until};

/// A shared receive context: two endpoints get what was posted to it, each tells of its own messages, and what
/// is left when one closes is for the other.
pub(super) fn shared(site: &Site, listener: &PassiveEp) {
    let srx = site.domain.shared_rx(&site.info.rx).expect("a context");
    let attr = CounterAttr {
        bytes: false,
        wait: WaitObj::None,
    };
    let counter = site.domain.counter(&attr).expect("a counter");
    srx.bind_counter(&counter, Flags::RECV).expect("bound");
    let memory = Parked::park(vec![0_u8; 4096]);
    let region = memory::register(&site.domain, memory.buf(), Flags::RECV);
    let any = FiAddr::UNSPEC;
    let place = |context: usize| memory.buf().slice(context * 64, 64).expect("inside");
    let post = |context| srx.recv(RecvKind::Msg, &[place(context)], any, context, None);
    for context in 0..3 {
        post(context).expect("posted");
    }
    let bind = |token, ep: &Endpoint| {
        if token == SERVER {
            ep.bind_srx(&srx).expect("bound");
            assert_eq!(ep.bind_srx(&srx), Err(Errno::EINVAL));
        }
    };
    let (client, server) = connect_bound(site, listener, &bind);
    let (other_client, other_server) = connect_bound(site, listener, &bind);
    let own = server.part(0, 8);
    let refused = server.ep.recv(RecvKind::Msg, &[own], any, 1, None);
    assert_eq!(refused, Err(Errno::EOPNOTSUPP));
    for context in 3..20 {
        post(context).expect("posted");
    }
    for number in 0..6_u8 {
        let (from, to) = match number % 2 {
            0 => (&client, &server),
            _ => (&other_client, &other_server),
        };
        from.write(0, &[number; 20]);
        from.send(60, 0, 20, None).expect("posted");
        let entry = to.expect(number.into(), flags![MSG RECV]);
        assert_eq!(entry.len, 20);
        from.expect(60, flags![MSG SEND]);
        let mut bytes = [0; 20];
        copy_in(&mut bytes, place(number.into()));
        assert_eq!(bytes, [number; 20]);
    }
    until(PATIENCE, "count", || (counter.read() == 6).then_some(()));
    // Remote CQ data uses up one, too.
    let to = [other_server.remote(0, 4)];
    let call = RmaCall {
        remote: &to,
        peer: any,
        data: Some(5),
        context: 61,
        flags: None,
    };
    let here = [other_client.part(0, 4)];
    other_client.ep.write(&here, &call).expect("posted");
    let entry = other_server.expect(6, flags![RMA REMOTE_WRITE REMOTE_CQ_DATA]);
    assert_eq!(entry.data, 5);
    other_client.expect(61, flags![RMA WRITE]);
    // The first that is left.
    drop(other_server);
    assert!(matches!(event(&site.eq), Ok(Event::Shutdown { .. })));
    client.send(62, 0, 20, None).expect("posted");
    server.expect(7, flags![MSG RECV]);
    // As many as it has room for, and no more.
    let mut posted = 20;
    let full = loop {
        match post(posted % 60) {
            Ok(()) => posted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((full, posted - 8), (Errno::EAGAIN, site.info.rx.size));
    drop((client, server, other_client, srx, region));
}

/// Endpoints close while a message arrives: the receive that it has begun to fill ends, and the others are there.
/// Some devices lose the one that was begun (`is_lossy`); nobody hears of that one.
pub(super) fn begun(site: &Site, listener: &PassiveEp, is_lossy: bool) {
    const RECEIVES: usize = 8;
    const ROUNDS: usize = RECEIVES / 2;
    const LONG: usize = 900_000;
    let srx = site.domain.shared_rx(&site.info.rx).expect("a context");
    let memory = Parked::park(vec![0_u8; LONG]);
    let region = memory::register(&site.domain, memory.buf(), Flags::RECV);
    let post = |context| {
        let place = [memory.buf()];
        let posted = srx.recv(RecvKind::Msg, &place, FiAddr::UNSPEC, context, None);
        posted.expect("posted");
    };
    (0..RECEIVES).for_each(post);
    let bind = |token, ep: &Endpoint| {
        if token == SERVER {
            ep.bind_srx(&srx).expect("bound");
        }
    };
    let mut ended = BTreeSet::new();
    for round in 0..ROUNDS as u64 {
        let (client, server) = connect_bound(site, listener, &bind);
        client.send(60, 0, LONG, None).expect("posted");
        std::thread::sleep(Duration::from_micros(500 + 700 * round));
        let Side { ep, cq, mr, .. } = server;
        drop(ep);
        // One at most: all of it, or what was begun.
        let read = || {
            let mut found = None;
            let mut whole = |entry: &Completion| {
                assert_eq!(entry.len, LONG);
                found = Some(entry.context);
            };
            match cq.read(1, &mut whole) {
                Ok(_) | Err(Errno::EAGAIN) => {}
                Err(_) => {
                    let begun = |error: &CompletionError, _: &[u8]| {
                        assert_eq!(error.err, Errno::ECANCELED);
                        found = Some(error.entry.context);
                    };
                    cq.read_error(begun).expect("an error");
                }
            }
            found
        };
        if let Some(context) = read() {
            assert!(ended.insert(context), "receive {context} ended twice");
        }
        assert_eq!(read(), None);
        assert!(matches!(event(&site.eq), Ok(Event::Shutdown { .. })));
        drop((client, mr));
    }
    let with_endpoints = ended.len();
    // As many messages as there were receives at first, for which these are enough in any case.
    (RECEIVES..2 * RECEIVES).for_each(post);
    let (client, server) = connect_bound(site, listener, &bind);
    for _ in 0..RECEIVES {
        client.send(62, 0, 20, None).expect("posted");
        let entry = server.next().expect("a message");
        assert_eq!(entry.len, 20);
        let context = entry.context;
        assert!(ended.insert(context), "receive {context} ended twice");
        client.expect(62, flags![MSG SEND]);
    }
    // Messages take receives in the order in which they were posted.
    let lost = (0..RECEIVES)
        .filter(|context| !ended.contains(context))
        .count();
    println!(
        "of {RECEIVES} shared receives {with_endpoints} have ended with their endpoints, {lost} were lost by the device"
    );
    let most = if is_lossy { ROUNDS } else { 0 };
    assert!(
        lost + with_endpoints <= ROUNDS && lost <= most,
        "{lost} receives are lost"
    );
    drop((client, server, srx, region));
}
