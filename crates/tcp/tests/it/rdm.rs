//! Two RDM endpoints in one process, through the object model.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::freed::unpark;
use crate::nobody;
use crate::pair::{self, End, PATIENCE, open};
use ripstop_core::provider::{
    AddressVector, CompletionQueue, Domain, Endpoint, Fabric, RecvKind, SendKind,
};
use ripstop_core::{Address, Info};
use ripstop_mem::Parked;
use ripstop_tcp::TcpProvider;
use ripstop_types::{Errno, FiAddr, Flags, Threading};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::base::{BaseFlags, emit_tag};
use ripstop_wire::xnet::cm::Kind;
use ripstop_wire::xnet::rdm::Greeting;
use rustix::net::sockopt::set_socket_linger;
use rustix::time::{ClockId, clock_gettime};

fn rdm(threading: Threading) -> (Info, Arc<ripstop_tcp::Fabric>) {
    pair::rdm(&TcpProvider::new(), threading)
}

#[test]
fn a_refused_peer_is_an_error_in_time() {
    let (info, fabric) = rdm(Threading::Domain);
    let domain = fabric.serial_domain(&info).unwrap();
    let mut a = open(&domain, &info);
    a.peer = a.av.insert(&nobody()).unwrap();
    let from = Parked::park(vec![1; 100]);
    a.ep.send(SendKind::Msg, &[from.buf()], None, a.peer, 9, None)
        .unwrap();
    let start = Instant::now();
    loop {
        match a.cq.read(1, |_| ()) {
            Err(Errno::EAGAIN) => std::thread::sleep(Duration::from_millis(5)),
            Err(Errno::EAVAIL) => break,
            other => panic!("{other:?}"),
        }
        assert!(start.elapsed() < PATIENCE);
    }
    a.cq.read_error(|error, peer| {
        assert_eq!(error.entry.context, 9);
        assert!(!peer.is_empty());
    })
    .unwrap();
}

#[test]
fn a_waiting_reader_is_woken_by_what_others_post() {
    let (info, fabric) = rdm(Threading::Safe);
    let near = fabric.safe_domain(&info).unwrap();
    // Nobody drives the other domain while the reader waits, so nothing else wakes it.
    let far = fabric.safe_domain(&info).unwrap();
    let (mut a, b) = (open(&near, &info), open(&far, &info));
    a.peer = a.av.insert(&b.ep.name().unwrap()).unwrap();
    let from = Parked::park(vec![1; 8]);
    let send = |count: usize| {
        for _ in 0..count {
            a.ep.send(SendKind::Msg, &[from.buf()], None, a.peer, 3, None)
                .unwrap();
        }
    };
    send(1);
    while a.cq.read(1, |_| ()).is_err() {
        assert_eq!(b.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
    for count in [1, 2, 5] {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut done = 0;
                while done < count {
                    let wait = Some(2 * PATIENCE);
                    done += a.cq.sread(8, 1, wait, |c| assert_eq!(c.context, 3))?;
                }
                Ok::<_, Errno>(())
            });
            std::thread::sleep(Duration::from_millis(50));
            let start = Instant::now();
            send(count);
            assert_eq!(reader.join().unwrap(), Ok(()), "{count} sends");
            assert!(start.elapsed() < PATIENCE, "{count} sends");
        });
    }
}

/// A program that lets others run between two polls must not poll many times for what comes by a
/// stream that was not active just now: with more processes than processors each poll takes as long
/// as all others have to do.
#[test]
fn what_comes_by_any_of_many_streams_is_found_by_the_next_polls() {
    const SENDERS: usize = 6;
    let (info, fabric) = rdm(Threading::Domain);
    let domain = || fabric.serial_domain(&info).unwrap();
    let (near, from, into) = (domain(), Parked::park(vec![1; 8]), Parked::park(vec![0; 8]));
    let reader = open(&near, &info);
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let domain = domain();
            let mut sender = open(&domain, &info);
            sender.peer = sender.av.insert(&reader.ep.name().unwrap()).unwrap();
            (domain, sender)
        })
        .collect();
    let mut most = 0;
    for round in 0..5 * SENDERS {
        let (_, sender) = &senders[round % SENDERS];
        let buf = [into.buf()];
        let any = FiAddr::UNSPEC;
        reader.ep.recv(RecvKind::Msg, &buf, any, 0, None).unwrap();
        let end = Instant::now() + PATIENCE;
        let inject = || {
            sender
                .ep
                .inject(SendKind::Msg, from.buf(), None, sender.peer)
        };
        while inject() == Err(Errno::EAGAIN) {
            assert_eq!(reader.cq.read(1, |_| ()), Err(Errno::EAGAIN));
            assert!(Instant::now() < end, "no connection");
        }
        // What it injects next is not put off behind this one.
        assert_eq!(sender.cq.read(1, |_| ()), Err(Errno::EAGAIN));
        // The kernel takes it to the other end of a loopback address in the call.
        let mut polls = 1;
        while reader.cq.read(1, |_| ()) == Err(Errno::EAGAIN) {
            polls += 1;
            std::thread::sleep(Duration::from_micros(200));
            assert!(Instant::now() < end, "no message");
        }
        if round >= SENDERS {
            most = most.max(polls);
        }
    }
    assert!(most <= 3, "it took {most} polls");
}

/// What a program sends before it goes on computing is under way, to each of its neighbours; and one
/// that makes no progress at all goes on sending.
#[test]
fn what_is_injected_goes_out_without_progress() {
    let (info, fabric) = rdm(Threading::Domain);
    let domain = || fabric.serial_domain(&info).unwrap();
    let (near, from) = (domain(), Parked::park(vec![1; 8]));
    let sender = open(&near, &info);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let domain = domain();
            let reader = open(&domain, &info);
            let peer = sender.av.insert(&reader.ep.name().unwrap()).unwrap();
            (domain, reader, peer, Parked::park(vec![0; 8]))
        })
        .collect();
    let end = Instant::now() + PATIENCE;
    let inject = |peer| sender.ep.inject(SendKind::Msg, from.buf(), None, peer);
    for round in 0..4 {
        for (_, reader, _, into) in &readers {
            let posted = reader
                .ep
                .recv(RecvKind::Msg, &[into.buf()], FiAddr::UNSPEC, 0, None);
            posted.unwrap();
        }
        let start = Instant::now();
        for (_, reader, peer, _) in &readers {
            while inject(*peer) == Err(Errno::EAGAIN) {
                assert_eq!(round, 0, "there is a connection, and room");
                assert_eq!(reader.cq.read(1, |_| ()), Err(Errno::EAGAIN));
                assert!(Instant::now() < end, "no connection");
            }
        }
        let mut took = Duration::ZERO;
        for (_, reader, ..) in &readers {
            while reader.cq.read(1, |_| ()) == Err(Errno::EAGAIN) {
                took = start.elapsed();
                assert!(took < PATIENCE, "no message");
            }
        }
        // The kernel sends what it holds back after 200 ms.
        assert!(
            took < Duration::from_millis(180),
            "{took:?} in round {round}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_peer_that_computes_is_waited_for() {
    let (info, fabric) = rdm(Threading::Safe);
    let near = fabric.safe_domain(&info).unwrap();
    // Nobody drives the other domain for longer than a peer may take to be reached.
    let far = fabric.safe_domain(&info).unwrap();
    let (mut a, b) = (open(&near, &info), open(&far, &info));
    a.peer = a.av.insert(&b.ep.name().unwrap()).unwrap();
    let text = Parked::park(vec![1; 8]);
    a.ep.send(SendKind::Msg, &[text.buf()], None, a.peer, 3, None)
        .unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(5500) {
        assert_eq!(a.cq.read(1, |_| ()), Err(Errno::EAGAIN));
        std::thread::sleep(Duration::from_millis(1));
    }
    while a.cq.read(1, |_| ()) == Err(Errno::EAGAIN) {
        assert_eq!(b.cq.read(1, |_| ()), Err(Errno::EAGAIN));
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn the_first_message_to_each_peer_is_under_way_at_once() {
    let (info, fabric) = rdm(Threading::Domain);
    let open_one = || {
        let domain = fabric.serial_domain(&info).unwrap();
        open(&domain, &info)
    };
    let (a, peers) = (open_one(), [open_one(), open_one(), open_one()]);
    let to = peers
        .each_ref()
        .map(|peer| a.av.insert(&peer.ep.name().unwrap()).unwrap());
    let from = Parked::park(vec![1; 20_000]);
    let into = peers.each_ref().map(|_| Parked::park(vec![0; 20_000]));
    for sender_goes_on in [true, false] {
        for (peer, into) in peers.iter().zip(&into) {
            peer.ep
                .recv(RecvKind::Msg, &[into.buf()], FiAddr::UNSPEC, 1, None)
                .unwrap();
        }
        // Too long to be copied: what is put off is not sent before the sender's next progress.
        for to in to {
            a.ep.send(SendKind::Msg, &[from.buf()], None, to, 2, None)
                .unwrap();
        }
        let end = Instant::now() + PATIENCE;
        let (mut sent, mut received) = (0, 0);
        while received < peers.len() || (sender_goes_on && sent < peers.len()) {
            for peer in &peers {
                received += peer.cq.read(1, |_| ()).unwrap_or(0);
            }
            // The first time, to connect.
            if sender_goes_on {
                sent += a.cq.read(8, |_| ()).unwrap_or(0);
            }
            assert!(Instant::now() < end, "{received} received");
        }
    }
}

/// The address at which processes of this machine reach an endpoint that listens at all of them.
fn at_home<D: Domain>(end: &End<D>) -> Address {
    match end.ep.name().unwrap() {
        Address::Ip(any) => Address::Ip(SocketAddr::from((Ipv4Addr::LOCALHOST, any.port()))),
        other => panic!("{other:?}"),
    }
}

/// Each asks the other before it looks: the one to yield is told by addresses, and an endpoint that listens at all of its
/// machine has none that the other knows.
#[test]
fn endpoints_at_all_addresses_ask_each_other_at_once() {
    let (mut info, fabric) = rdm(Threading::Domain);
    info.src_addr = Some(Address::Ip(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))));
    let open_one = || open(&fabric.serial_domain(&info).unwrap(), &info);
    let (from, into) = (Parked::park(vec![7; 8]), Parked::park(vec![0; 8]));
    for round in 0..20 {
        let ends = [open_one(), open_one()];
        let peers = [at_home(&ends[1]), at_home(&ends[0])];
        for (end, peer) in ends.iter().zip(peers) {
            let (peer, buf) = (end.av.insert(&peer).unwrap(), [into.buf()]);
            let any = FiAddr::UNSPEC;
            end.ep.recv(RecvKind::Msg, &buf, any, 1, None).unwrap();
            let buf = [from.buf()];
            end.ep
                .send(SendKind::Msg, &buf, None, peer, 2, None)
                .unwrap();
        }
        let (mut done, limit) = ([0; 2], Instant::now() + PATIENCE);
        while done != [2; 2] {
            for (end, done) in ends.iter().zip(&mut done) {
                match end.cq.read(4, |_| ()) {
                    Ok(count) => *done += count,
                    Err(error) => assert_eq!(error, Errno::EAGAIN, "round {round}"),
                }
            }
            assert!(Instant::now() < limit, "round {round}: {done:?} completed");
        }
    }
}

#[test]
fn an_endpoint_at_all_addresses_sends_to_itself() {
    let (mut info, fabric) = rdm(Threading::Domain);
    info.src_addr = Some(Address::Ip(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))));
    let end = open(&fabric.serial_domain(&info).unwrap(), &info);
    let itself = end.av.insert(&at_home(&end)).unwrap();
    let (from, into) = (Parked::park(vec![7; 8]), Parked::park(vec![0; 8]));
    let any = FiAddr::UNSPEC;
    end.ep
        .recv(RecvKind::Msg, &[into.buf()], any, 1, None)
        .unwrap();
    end.ep
        .send(SendKind::Msg, &[from.buf()], None, itself, 2, None)
        .unwrap();
    let mut contexts = [end.next().context, end.next().context];
    contexts.sort_unstable();
    assert_eq!(contexts, [1, 2]);
}

fn say<D: Domain>(end: &End<D>, text: &Parked, tag: u64) {
    let kind = SendKind::Tagged(tag);
    let sent = end.ep.send(kind, &[text.buf()], None, end.peer, 0, None);
    sent.unwrap();
}

#[test]
fn a_peer_that_always_has_something_leaves_others_their_turn() {
    let (info, fabric) = rdm(Threading::Domain);
    let [near, busy, late] = [(); 3].map(|()| fabric.safe_domain(&info).unwrap());
    let near = open(&near, &info);
    let name = near.ep.name().unwrap();
    let [busy, late] = [busy, late].map(|domain| {
        let mut end = open(&domain, &info);
        end.peer = end.av.insert(&name).unwrap();
        end
    });
    let [text, room] = [Parked::park(vec![1; 8]), Parked::park(vec![0; 8])];
    let mut late_is_heard = false;
    // A message more than is read is always under way.
    say(&busy, &text, 1);
    for round in 0..20_000 {
        say(&busy, &text, 1);
        if round == 1_000 {
            say(&late, &text, 2);
        }
        let any = RecvKind::Tagged { tag: 0, ignore: 3 };
        near.ep
            .recv(any, &[room.buf()], FiAddr::UNSPEC, 0, None)
            .unwrap();
        let mut found = None;
        while near.cq.read(1, |entry| found = Some(entry.tag)).is_err() {
            let _ = busy.cq.read(8, |_| ());
        }
        let _ = busy.cq.read(8, |_| ());
        let _ = late.cq.read(8, |_| ());
        late_is_heard |= found == Some(2);
        if late_is_heard {
            break;
        }
    }
    assert!(late_is_heard);
    drop((near, busy, late, fabric, unpark(text), unpark(room)));
}

/// Injects a message, while `far` answers where there is no connection yet.
fn inject<D: Domain>(near: &End<D>, far: &End<D>, number: u8) {
    let text = Parked::park(vec![number; 40]);
    let stop = Instant::now() + PATIENCE;
    while let Err(error) = near.ep.inject(SendKind::Msg, text.buf(), None, near.peer) {
        assert_eq!(error, Errno::EAGAIN);
        let _ = far.cq.read(0, |_| ());
        assert!(Instant::now() < stop, "no connection");
    }
    let mut taken = unpark(text);
    taken.fill(0xee);
}

/// Takes so many messages of [`inject`], in their order.
fn take<D: Domain>(end: &End<D>, count: u8) {
    for number in 0..count {
        let room = Parked::park(vec![0; 64]);
        end.ep
            .recv(RecvKind::Msg, &[room.buf()], FiAddr::UNSPEC, 1, None)
            .unwrap();
        let got = loop {
            let got = end.next();
            if got.flags.contains(Flags::RECV) {
                break got;
            }
        };
        assert_eq!(got.len, 40);
        assert_eq!(unpark(room)[..40], [number; 40]);
    }
}

#[test]
fn what_was_injected_arrives_though_its_sender_has_left() {
    const COUNT: u8 = 100;
    let (info, fabric) = rdm(Threading::Domain);
    // A process that ends closes its sockets as this does, and writes nothing that it kept back.
    let (near, far) = (
        fabric.serial_domain(&info).unwrap(),
        fabric.serial_domain(&info).unwrap(),
    );
    for count in [1, COUNT] {
        let (mut a, mut b) = (open(&near, &info), open(&far, &info));
        a.meet(&mut b);
        (0..count).for_each(|number| inject(&a, &b, number));
        drop(a);
        take(&b, count);
    }
}

#[test]
fn what_was_injected_is_read_before_a_failed_write_ends_the_connection() {
    const COUNT: u8 = 100;
    let (info, fabric) = rdm(Threading::Domain);
    let (near, far) = (
        fabric.serial_domain(&info).unwrap(),
        fabric.serial_domain(&info).unwrap(),
    );
    let (mut a, mut b) = (open(&near, &info), open(&far, &info));
    a.meet(&mut b);
    inject(&a, &b, 0);
    take(&b, 1);
    (0..COUNT).for_each(|number| inject(&a, &b, number));
    drop(a);
    // The first write makes the other system refuse the next one.
    for _ in 0..3 {
        let text = Parked::park(vec![1; 8]);
        let _ = b.ep.inject(SendKind::Msg, text.buf(), None, b.peer);
        drop(unpark(text));
    }
    take(&b, COUNT);
}

#[test]
fn a_sleeper_sleeps_though_a_connection_that_is_not_read_was_reset() {
    let (info, fabric) = rdm(Threading::Safe);
    let domain = fabric.safe_domain(&info).unwrap();
    let end = open(&domain, &info);
    let mut peer = raw_peer(&end, 1);
    let header = emit_tag(ByteOrder::NATIVE, BaseFlags::empty(), 0, 7, 16_384);
    let message = [&header[..], &[9; 16_384]].concat();
    // There is no receive, so that it is kept until there is no room left.
    peer.set_nonblocking(true).unwrap();
    let (mut written, mut moved) = (0, Instant::now());
    while moved.elapsed() < Duration::from_millis(500) {
        if let Ok(count) = peer.write(&message[written..]) {
            written = (written + count) % message.len();
            moved = Instant::now();
        }
        assert_eq!(end.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
    set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
    drop(peer);
    let sleep = |time| end.cq.sread(1, 1, Some(time), |_| ());
    assert_eq!(sleep(Duration::from_millis(100)), Err(Errno::EAGAIN));
    let before = clock_gettime(ClockId::ThreadCPUTime);
    assert_eq!(sleep(Duration::from_secs(1)), Err(Errno::EAGAIN));
    let used = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime) - before).unwrap();
    assert!(used < Duration::from_millis(100), "{used:?} of a second");
    // What was kept is there, and what is read again follows.
    let room = Parked::park(vec![0; 16_384]);
    for _ in 0..10 {
        end.ep
            .recv(
                RecvKind::Tagged { tag: 7, ignore: 0 },
                &[room.buf()],
                FiAddr::UNSPEC,
                2,
                None,
            )
            .unwrap();
        assert_eq!(end.next().len, 16_384);
    }
    drop((end, unpark(room)));
}

#[test]
fn an_inject_to_nobody_says_why_in_time() {
    let (info, fabric) = rdm(Threading::Domain);
    let domain = fabric.serial_domain(&info).unwrap();
    let mut a = open(&domain, &info);
    a.peer = a.av.insert(&nobody()).unwrap();
    let text = Parked::park(vec![1; 8]);
    let start = Instant::now();
    let error = loop {
        match a.ep.inject(SendKind::Msg, text.buf(), None, a.peer) {
            Ok(()) => panic!("it was accepted"),
            Err(Errno::EAGAIN) => assert!(start.elapsed() < PATIENCE, "no answer"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Errno::ECONNREFUSED);
    // That was the answer to this attempt; the next call begins another one.
    let again = a.ep.inject(SendKind::Msg, text.buf(), None, a.peer);
    assert_eq!(again, Err(Errno::EAGAIN));
    drop(unpark(text));
}

/// A program that computes makes no progress. What its socket had room for is sent, and may end within a header.
#[test]
fn a_peer_that_computes_in_the_middle_of_a_header_is_waited_for() {
    let (info, fabric) = rdm(Threading::Domain);
    let domain = fabric.serial_domain(&info).unwrap();
    let end = open(&domain, &info);
    // More of them than are read without being asked for.
    let mut peers: Vec<_> = (1..5).map(|port| raw_peer(&end, port)).collect();
    let rooms: Vec<_> = peers.iter().map(|_| Parked::park(vec![0; 64])).collect();
    for (tag, room) in (0..).zip(&rooms) {
        let kind = RecvKind::Tagged { tag, ignore: 0 };
        end.ep
            .recv(kind, &[room.buf()], FiAddr::UNSPEC, 1, None)
            .unwrap();
    }
    let header = |tag| emit_tag(ByteOrder::NATIVE, BaseFlags::empty(), 0, tag, 40);
    for (tag, peer) in (0..).zip(&mut peers) {
        peer.write_all(&header(tag)[..6]).unwrap();
    }
    // Longer than a peer may take to be reached.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(5500) {
        assert_eq!(end.cq.read(1, |_| ()), Err(Errno::EAGAIN));
        std::thread::sleep(Duration::from_millis(1));
    }
    for (tag, peer) in (0..).zip(&mut peers) {
        peer.write_all(&[&header(tag)[6..], &[9; 40]].concat())
            .unwrap();
    }
    for room in rooms {
        assert_eq!(end.next().len, 40);
        assert_eq!(unpark(room)[..40], [9; 40]);
    }
}

/// The socket of a process that has connected to an endpoint, whose own would be at this port.
fn raw_peer<D: Domain>(end: &End<D>, port: u16) -> TcpStream {
    let (peer, kind, _) = end.dialled(&Greeting::request(0, port, 1).emit());
    assert_eq!(kind, Kind::Response);
    peer
}
