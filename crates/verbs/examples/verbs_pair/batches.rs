//! Requests that wait for more (`FI_MORE`).

use std::ops::Range;

use ripstop_core::eq::Event;
use ripstop_core::provider::{CompletionQueue as _, Endpoint as _, RecvKind, SendKind};
use ripstop_mem::Parked;
use ripstop_types::{Errno, FiAddr, Flags, Result, flags};
use ripstop_verbs::PassiveEp;

use super::{Side, Site, connect, event};

/// What requests have that wait.
const MORE: Option<Flags> = Some(flags![MORE COMPLETION]);

/// Two sides whose messages are numbers.
struct Numbers {
    client: Side,
    server: Side,
}

impl Numbers {
    fn connect(site: &Site, listener: &PassiveEp) -> Self {
        let (client, server) = connect(site, listener);
        for number in 0..1000_usize {
            client.write(number * 8, &number.to_ne_bytes());
        }
        Self { client, server }
    }

    fn send(&self, number: usize, flags: Option<Flags>) -> Result<()> {
        let buf = [self.client.part(number * 8, 8)];
        let (kind, any) = (SendKind::Msg, FiAddr::UNSPEC);
        self.client.ep.send(kind, &buf, None, any, number, flags)
    }

    fn receive(&self, number: usize, flags: Option<Flags>) -> Result<()> {
        let buf = [self.server.part(number * 8, 8)];
        let (kind, any) = (RecvKind::Msg, FiAddr::UNSPEC);
        self.server.ep.recv(kind, &buf, any, number, flags)
    }

    fn arrives(&self, numbers: Range<usize>) {
        for number in numbers {
            self.server.expect(number, flags![MSG RECV]);
            assert_eq!(self.server.read(number * 8, 8), number.to_ne_bytes());
        }
    }
}

/// Requests that wait for more: in order, whoever gives them to the device, and never lost.
pub(super) fn batches(site: &Site, listener: &PassiveEp) {
    let numbers = Numbers::connect(site, listener);
    // The last one takes all along; more of them than go at once.
    for number in 0..100 {
        numbers.receive(number, MORE).expect("posted");
    }
    numbers.receive(100, None).expect("posted");
    for number in 0..100 {
        numbers.send(number, MORE).expect("posted");
    }
    numbers.send(100, None).expect("posted");
    numbers.arrives(0..101);
    for number in 0..101 {
        numbers.client.expect(number, flags![MSG SEND]);
    }
    // Nothing follows, but the queues are read.
    numbers.receive(101, MORE).expect("posted");
    numbers.send(101, MORE).expect("posted");
    assert_eq!(numbers.server.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    numbers.client.expect(101, flags![MSG SEND]);
    numbers.arrives(101..102);
    // What is injected takes along what waits.
    for number in 102..104 {
        numbers.receive(number, None).expect("posted");
    }
    numbers.send(102, MORE).expect("posted");
    let small = Parked::park(103_usize.to_ne_bytes().to_vec());
    let flags = Some(flags![MORE INJECT COMPLETION]);
    let buf = [small.buf()];
    let posted = numbers
        .client
        .ep
        .send(SendKind::Msg, &buf, None, FiAddr::UNSPEC, 103, flags);
    posted.expect("posted");
    numbers.arrives(102..104);
    for number in 102..104 {
        numbers.client.expect(number, flags![MSG SEND]);
    }
    end(site, numbers);
    close(site, listener);
}

/// A queue that is full of them, and the end of the connection.
fn end(site: &Site, numbers: Numbers) {
    // A queue that is full of them goes on: as many as it holds, twice.
    let size = site.info.tx.size;
    assert_eq!(size, site.info.rx.size);
    for round in 0..2 {
        for number in 0..size {
            numbers.send(number, MORE).expect("posted");
        }
        // There is no receive yet, so none of them has ended.
        assert_eq!(numbers.send(0, MORE), Err(Errno::EAGAIN), "round {round}");
        for number in 0..size {
            numbers.receive(number, MORE).expect("posted");
        }
        numbers.arrives(0..size);
        for number in 0..size {
            numbers.client.expect(number, flags![MSG SEND]);
        }
    }
    // Ends with the connection: what waits goes to the device before, which still sends it or flushes it.
    numbers.receive(1, None).expect("posted");
    numbers.receive(2, MORE).expect("posted");
    numbers.send(1, MORE).expect("posted");
    numbers.client.ep.shutdown().expect("begun");
    let sent = loop {
        match numbers.client.next() {
            // The receive that each client has.
            Err(failure) if failure.entry.flags == flags![MSG RECV] => {}
            sent => break sent,
        }
    };
    let is_acknowledged = match sent {
        Ok(_) => true,
        Err(failure) => {
            assert_eq!((failure.entry.context, failure.err), (1, Errno::ECANCELED));
            false
        }
    };
    let mut has_arrived = false;
    let mut failed = Vec::new();
    for _ in 0..2 {
        match numbers.server.next() {
            Ok(entry) => {
                assert_eq!(entry.context, 1);
                assert_eq!(numbers.server.read(8, 8), 1_usize.to_ne_bytes());
                has_arrived = true;
            }
            Err(failure) => failed.push(failure.entry.context),
        }
    }
    assert!(has_arrived || !is_acknowledged, "a message is lost");
    // What waits here fails without the device, which may take longer to flush what it has.
    failed.sort_unstable();
    assert_eq!(failed, if has_arrived { vec![2] } else { vec![1, 2] });
    for _ in 0..2 {
        assert!(matches!(event(&site.eq), Ok(Event::Shutdown { .. })));
    }
}

/// One closes with what waits, of which nothing is told.
fn close(site: &Site, listener: &PassiveEp) {
    let (client, server) = connect(site, listener);
    let buf = [client.part(0, 8)];
    let sent = client
        .ep
        .send(SendKind::Msg, &buf, None, FiAddr::UNSPEC, 1, MORE);
    sent.expect("posted");
    drop(client);
    assert!(matches!(event(&site.eq), Ok(Event::Shutdown { .. })));
    drop(server);
}
