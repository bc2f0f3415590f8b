//! Shared receive contexts.

use std::time::Duration;

use ripstop_core::eq::Event;
use ripstop_core::provider::{
    CompletionQueue as _, Counter as _, CounterAttr, Domain as _, Endpoint as _, RecvKind, RmaCall,
    SharedRx as _,
};
use ripstop_mem::{Parked, copy_in};
use ripstop_types::{Errno, FiAddr, Flags, WaitObj, flags};
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
pub(super) fn begun(site: &Site, listener: &PassiveEp) {
    const RECEIVES: usize = 8;
    const LONG: usize = 900_000;
    let srx = site.domain.shared_rx(&site.info.rx).expect("a context");
    let memory = Parked::park(vec![0_u8; LONG]);
    let region = memory::register(&site.domain, memory.buf(), Flags::RECV);
    for context in 0..RECEIVES {
        let posted = srx.recv(
            RecvKind::Msg,
            &[memory.buf()],
            FiAddr::UNSPEC,
            context,
            None,
        );
        posted.expect("posted");
    }
    let bind = |token, ep: &Endpoint| {
        if token == SERVER {
            ep.bind_srx(&srx).expect("bound");
        }
    };
    let mut ended = 0;
    for round in 0..RECEIVES as u64 / 2 {
        let (client, server) = connect_bound(site, listener, &bind);
        client.send(60, 0, LONG, None).expect("posted");
        std::thread::sleep(Duration::from_micros(500 + 700 * round));
        let Side { ep, cq, mr, .. } = server;
        drop(ep);
        // One at most: all of it, or what was begun.
        let read = || match cq.read(1, |entry| assert_eq!(entry.len, LONG)) {
            Ok(_) => true,
            Err(Errno::EAGAIN) => false,
            Err(_) => {
                let taken = cq.read_error(|error, _| assert_eq!(error.err, Errno::ECANCELED));
                taken.expect("an error");
                true
            }
        };
        ended += usize::from(read());
        assert!(!read());
        assert!(matches!(event(&site.eq), Ok(Event::Shutdown { .. })));
        drop((client, mr));
    }
    println!("{ended} of {RECEIVES} shared receives have ended with their endpoints");
    let (client, server) = connect_bound(site, listener, &bind);
    for _ in ended..RECEIVES {
        client.send(62, 0, 20, None).expect("posted");
        let entry = server.next().expect("a message");
        assert_eq!(entry.len, 20);
        client.expect(62, flags![MSG SEND]);
    }
    drop((client, server, srx, region));
}
