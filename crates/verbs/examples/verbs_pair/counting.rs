//! Counters.

use std::sync::Arc;
use std::time::Duration;

use ripstop_core::eq::Event;
use ripstop_core::provider::{
    Counter as _, CounterAttr, Domain as _, Endpoint as _, RmaCall, SendKind,
};
use ripstop_types::{Errno, FiAddr, Flags, WaitObj};
use ripstop_verbs::{Counter, Endpoint, PassiveEp};

use super::{CLIENT, PATIENCE, Side, Site, connect_bound, event, until};

/// Counters: what has ended is counted, also what has no completion, and a wait for it sleeps.
pub(super) fn counted(site: &Site, listener: &PassiveEp) {
    let open = |bytes, wait| {
        let attr = CounterAttr { bytes, wait };
        site.domain.counter(&attr).expect("a counter")
    };
    let sends = open(false, WaitObj::Unspec);
    let writes = open(false, WaitObj::None);
    let reads = open(false, WaitObj::None);
    let received = open(true, WaitObj::Fd);
    let bind = |token, ep: &Endpoint| {
        if token == CLIENT {
            ep.bind_counter(&sends, Flags::SEND).expect("bound");
            ep.bind_counter(&writes, Flags::WRITE).expect("bound");
            ep.bind_counter(&reads, Flags::READ).expect("bound");
            let again = ep.bind_counter(&reads, Flags::SEND);
            assert_eq!(again, Err(Errno::EINVAL));
            let peers = ep.bind_counter(&reads, Flags::REMOTE_WRITE);
            assert_eq!(peers, Err(Errno::ENOSYS));
        } else {
            ep.bind_counter(&received, Flags::RECV).expect("bound");
        }
    };
    let (client, server) = connect_bound(site, listener, &bind);
    assert_eq!(received.try_wait(), Ok(()));
    for number in 0..10 {
        server.receive(number, 0, 64);
    }
    for _ in 0..5 {
        client.send(50, 0, 30, None).expect("posted");
        let small = client.part(0, 12);
        let posted = client.ep.inject(SendKind::Msg, small, None, FiAddr::UNSPEC);
        posted.expect("posted");
    }
    sends.wait(10, Some(PATIENCE)).expect("ten sends");
    received.wait(210, Some(PATIENCE)).expect("210 bytes");
    assert_eq!(received.try_wait(), Err(Errno::EAGAIN));
    assert_eq!((sends.read(), received.read()), (10, 210));
    assert_eq!(received.try_wait(), Ok(()));
    for context in [51, 52] {
        let to = [server.remote(0, 8)];
        let call = RmaCall {
            remote: &to,
            peer: FiAddr::UNSPEC,
            data: None,
            context,
            flags: None,
        };
        let here = [client.part(0, 8)];
        match context {
            51 => client.ep.write(&here, &call).expect("posted"),
            _ => client.ep.read(&here, &call).expect("posted"),
        }
    }
    writes.wait(1, Some(PATIENCE)).expect("a write");
    reads.wait(1, Some(PATIENCE)).expect("a read");
    let soon = Some(Duration::from_millis(20));
    assert_eq!(sends.wait(11, soon), Err(Errno::ETIMEDOUT));
    failed(site, &client, &server, &writes);
    drop((client, server));
    uncompleted(site, &sends, &received);
}

/// A failure is counted apart: the peer's key is wrong.
fn failed(site: &Site, client: &Side, server: &Side, writes: &Counter) {
    let mut at = server.remote(0, 8);
    at.key ^= 0xff;
    let call = RmaCall {
        remote: &[at],
        peer: FiAddr::UNSPEC,
        data: None,
        context: 53,
        flags: None,
    };
    client
        .ep
        .write(&[client.part(0, 8)], &call)
        .expect("posted");
    until(PATIENCE, "failure", || {
        (writes.read_error() > 0).then_some(())
    });
    assert_eq!((writes.read(), writes.read_error()), (1, 1));
    for _ in 0..2 {
        assert!(matches!(event(&site.eq), Ok(Event::Shutdown { .. })));
    }
}

/// An endpoint without completion queues.
fn uncompleted(site: &Site, sends: &Arc<Counter>, received: &Arc<Counter>) {
    let ep = site
        .domain
        .endpoint(&site.info, CLIENT)
        .expect("an endpoint");
    ep.bind_eq(&site.eq).expect("bound");
    assert_eq!(ep.enable(), Err(Errno::ENOCQ));
    for (counter, flags) in [(sends, Flags::SEND), (received, Flags::RECV)] {
        ep.bind_counter(counter, flags).expect("bound");
    }
    ep.enable().expect("enabled");
}
