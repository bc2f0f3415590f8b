//! Messages between unconnected endpoints.

mod common;

use std::time::{Duration, Instant};

use common::{LONG, Side, inject, nobody_on, pair, pattern, rdm};
use ripstop::{Copied, Errno, Operation, Progress, SendMsg, Source};

const SIZES: [usize; 11] = [
    0,
    1,
    8,
    100,
    2047,
    2049,
    16_384,
    65_536,
    300_000,
    1 << 20,
    4 << 20,
];

fn exchange((a, to_b): &Side, (b, to_a): &Side) {
    for (round, size) in SIZES.into_iter().enumerate() {
        let sent = pattern(size, round);
        // Posted before the message, then after it.
        let early = b.trecv(vec![0; size], 0x1200, 0xff, *to_a);
        let msg = SendMsg::new().tag(0x1234).data(round as u64);
        let first = a.sendmsg(sent.clone(), *to_b, msg);
        let second = a.tsend(sent.clone(), 7, *to_b);
        std::thread::sleep(Duration::from_millis(2));
        let late = b.trecv(vec![0; size + 1], 7, 0, None);

        let (outcome, buf) = early.wait();
        let done = outcome.unwrap();
        assert_eq!((done.len, done.tag), (size, Some(0x1234)));
        assert_eq!(
            (done.data, done.source),
            (Some(round as u64), Source::Peer(*to_a))
        );
        assert!(buf == sent, "size {size}");
        let (outcome, buf) = late.wait();
        let done = outcome.unwrap();
        assert_eq!((done.len, done.tag, done.data), (size, Some(7), None));
        assert_eq!(done.peer(), Some(*to_a));
        assert!(buf[..size] == sent && buf[size] == 0, "size {size}");
        for send in [first, second] {
            let (outcome, buf) = send.wait();
            assert_eq!(outcome.unwrap().len, size);
            assert!(buf == sent);
        }
    }
}

fn every_size_with_the_library_s_thread(on: &str) {
    let (a, b) = pair(on, Progress::Background);
    exchange(&a, &b);
    exchange(&b, &a);
}

fn every_size_between_threads_that_drive_themselves(on: &str) {
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Manual);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (round, size) in SIZES.into_iter().enumerate() {
                let (outcome, buf) = a.send(pattern(size, round), to_b).wait();
                assert_eq!(outcome.unwrap().len, size);
                let (outcome, back) = a.recv(vec![0; size], to_b).wait();
                assert_eq!(outcome.unwrap().len, size);
                assert!(back == buf);
            }
        });
        for size in SIZES {
            let (outcome, buf) = b.recv(vec![0; size].into_boxed_slice(), None).wait();
            assert_eq!(outcome.unwrap().peer(), Some(to_a));
            b.send(buf, to_a).wait().0.unwrap();
        }
    });
}

fn one_message_in_several_buffers(on: &str) {
    let ((a, to_b), (b, _)) = pair(on, Progress::Background);
    for size in [10, 5000, 400_000] {
        let parts = [pattern(size, 1), vec![], pattern(size, 2)];
        let sent = a.tsend(parts.clone(), 1, to_b);
        let into = (
            vec![0; size / 2],
            vec![0; size].into_boxed_slice(),
            vec![0; size],
        );
        let (outcome, (x, y, z)) = b.trecv(into, 1, 0, None).wait();
        assert_eq!(outcome.unwrap().len, 2 * size);
        let all = parts.concat();
        assert!(all[..size / 2] == x && all[size / 2..][..size] == *y);
        assert!(z.starts_with(&all[size / 2 + size..]));
        let (outcome, back) = sent.wait();
        assert_eq!(outcome.unwrap().len, 2 * size);
        assert!(back == parts);
    }
    let five: [Vec<u8>; 5] = std::array::from_fn(|i| pattern(3, i));
    let (outcome, back) = a.send(five.clone(), to_b).wait();
    assert_eq!(outcome.unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(back, five);
}

fn injected_messages_are_copied(on: &str) {
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
    let mut bytes = *b"injected";
    for round in 0..50u8 {
        bytes[0] = round;
        inject(&(a.clone(), to_b), &bytes, SendMsg::new().tag(3).data(9));
    }
    for round in 0..50u8 {
        let (outcome, buf) = b.trecv(vec![0; 8], 3, 0, to_a).wait();
        assert_eq!(outcome.unwrap().data, Some(9));
        assert_eq!((buf[0], &buf[1..]), (round, &b"njected"[..]));
    }
    let error = a.inject(&vec![0; a.inject_size() + 1], to_b).unwrap_err();
    assert_eq!(
        (error.errno(), error.operation()),
        (Errno::EMSGSIZE, Operation::Inject)
    );
    assert!(error.peer().is_some() && error.to_string().contains("inject size"));
}

fn a_stranger_has_an_address_to_answer(on: &str) {
    let (server, client) = (rdm(on, Progress::Background), rdm(on, Progress::Background));
    let (service, asker) = (server.endpoint().unwrap(), client.endpoint().unwrap());
    let to_service = client.insert(service.address().unwrap()).unwrap();
    let _asked = asker.send(b"who am I?".to_vec(), to_service);
    let (outcome, buf) = service.recv(vec![0; 64], None).wait();
    let done = outcome.unwrap();
    assert_eq!((done.len, &buf[..9]), (9, &b"who am I?"[..]));
    let Source::Address(address) = done.source else {
        panic!("{:?}", done.source)
    };
    assert_eq!(address, asker.address().unwrap());
    let back = server.insert(address.clone()).unwrap();
    assert_eq!(server.lookup(back).unwrap(), address);
    let _answered = service.send(b"you".to_vec(), back);
    let (outcome, buf) = asker.recv(vec![0; 8], to_service).wait();
    assert_eq!(
        (outcome.unwrap().peer(), &buf[..3]),
        (Some(to_service), &b"you"[..])
    );
    let _again = asker.send(b"me".to_vec(), to_service);
    let (outcome, _) = service.recv(vec![0; 8], back).wait();
    assert_eq!(outcome.unwrap().source, Source::Peer(back));
    server.remove(back).unwrap();
    assert_eq!(server.lookup(back).unwrap_err().errno(), Errno::EINVAL);
}

fn a_message_too_long_says_by_how_much(on: &str) {
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
    for size in [100, 500_000] {
        let sent = a.send(pattern(size, 0), to_b);
        let (outcome, buf) = b.recv(vec![0; 60], to_a).wait();
        let error = outcome.unwrap_err();
        assert_eq!((error.errno(), error.missing()), (Errno::ETRUNC, size - 60));
        assert!(error.to_string().contains("larger buffer"), "{error}");
        assert_eq!(buf, pattern(size, 0)[..60]);
        sent.wait().0.unwrap();
    }
}

fn more_than_the_queues_hold_waits_in_order(on: &str) {
    const COUNT: usize = 10_000;
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
    let sends: Vec<_> = (0..COUNT)
        .map(|i| a.send(pattern(i % 300, i), to_b))
        .collect();
    let receives: Vec<_> = (0..COUNT).map(|_| b.recv(vec![0; 300], to_a)).collect();
    assert!(a.domain().outstanding() >= COUNT);
    for (i, receive) in receives.into_iter().enumerate() {
        let (outcome, buf) = receive.wait();
        let len = outcome.unwrap().len;
        assert_eq!(buf[..len], pattern(i % 300, i));
    }
    for send in sends {
        send.wait().0.unwrap();
    }
    assert_eq!((a.domain().outstanding(), b.domain().outstanding()), (0, 0));
}

fn delivery_is_told_when_the_peer_has_the_message(on: &str) {
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Manual);
    // Connected, so that only the acknowledgement is missing.
    let first = a.send(vec![1], to_b);
    std::thread::scope(|scope| {
        scope.spawn(|| first.wait().0.unwrap());
        b.recv(vec![0], to_a).wait().0.unwrap();
    });
    let msg = SendMsg::new().delivery_complete();
    let sent = a.sendmsg(vec![5; 100], to_b, msg);
    // Nobody drives the peer.
    let sent = sent.wait_timeout(Duration::from_millis(100)).unwrap_err();
    std::thread::scope(|scope| {
        scope.spawn(|| sent.wait().0.unwrap());
        b.recv(vec![0; 100], to_a).wait().0.unwrap();
    });
}

fn a_receive_can_be_cancelled(on: &str) {
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
    let unwanted = b.trecv(vec![1; 9], 1, 0, None);
    let wanted = b.trecv(vec![2; 9], 1, 0, None);
    let unwanted = unwanted
        .wait_timeout(Duration::from_millis(20))
        .unwrap_err();
    unwanted.cancel();
    let (outcome, buf) = unwanted.wait();
    let error = outcome.unwrap_err();
    assert!(error.is_cancelled() && error.operation() == Operation::TaggedRecv);
    assert_eq!(buf, vec![1; 9]);
    a.tsend(vec![3; 9], 1, to_b).wait().0.unwrap();
    let (outcome, buf) = wanted.wait();
    assert_eq!((outcome.unwrap().peer(), buf), (Some(to_a), vec![3; 9]));
    // Too late: it is what it is.
    let late = b.trecv(vec![0; 9], 1, 0, None);
    let told = SendMsg::new().tag(1).delivery_complete();
    a.sendmsg(vec![4; 9], to_b, told).wait().0.unwrap();
    late.cancel();
    late.wait().0.unwrap();
}

fn what_waits_for_room_or_its_peer_can_be_cancelled(on: &str) {
    let ((a, to_b), (_b, _)) = pair(on, Progress::Manual);
    // Nobody drives the other side, so no connection comes about and nothing leaves.
    let mut sends: Vec<_> = (0..3000).map(|i| a.send(pattern(10, i), to_b)).collect();
    let last = sends.pop().unwrap();
    let first = sends.swap_remove(0);
    for (number, send) in [(2999, last), (0, first)] {
        send.cancel();
        let (outcome, buf) = send.wait();
        assert!(outcome.unwrap_err().is_cancelled());
        assert_eq!(buf, pattern(10, number));
    }
}

fn a_peer_of_another_domain_is_refused(on: &str) {
    let ((a, _), (b, to_a)) = pair(on, Progress::Background);
    let (outcome, buf) = a.send(vec![1, 2], to_a).wait();
    assert_eq!(
        (outcome.unwrap_err().errno(), buf),
        (Errno::EINVAL, vec![1, 2])
    );
    assert_eq!(a.domain().lookup(to_a).unwrap_err().errno(), Errno::EINVAL);
    let (outcome, _) = a.recv(vec![1, 2], to_a).wait();
    assert_eq!(outcome.unwrap_err().errno(), Errno::EINVAL);
    drop(b);
}

fn a_refused_peer_is_an_error_that_names_it(on: &str) {
    let a = rdm(on, Progress::Background);
    let near = a.endpoint().unwrap();
    let address = nobody_on(on);
    let peer = a.insert(address.clone()).unwrap();
    let start = Instant::now();
    let sends: Vec<_> = (0..2000)
        .map(|i| near.send(pattern(5000, i), peer))
        .collect();
    for (i, send) in sends.into_iter().enumerate() {
        let (outcome, buf) = send.wait();
        let error = outcome.unwrap_err();
        assert_eq!(error.peer(), Some(&address), "{error}");
        assert!(buf == pattern(5000, i));
    }
    // Those that waited for room were posted when the first ones failed.
    assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
}

fn the_ways_of_long_payloads_are_counted(on: &str) {
    let ((a, to_b), (b, to_a)) = pair(on, Progress::Background);
    for len in [100, 8 << 10, 300_000] {
        let send = a.send(pattern(len, 1), to_b);
        let (outcome, _) = b.recv(vec![0; len], to_a).wait();
        assert_eq!(outcome.unwrap().len, len);
        send.wait().0.unwrap();
    }
    // Both sides are in this process, where nothing but the ring is taken.
    let ring = a.domain().copies().map(|copies| copies.ring);
    let expected = (on == "shm").then_some(Copied {
        payloads: 2,
        bytes: (8 << 10) + 300_000,
    });
    assert_eq!(ring, expected);
}

on_both! {
    every_size_with_the_library_s_thread,
    every_size_between_threads_that_drive_themselves,
    one_message_in_several_buffers,
    injected_messages_are_copied,
    a_stranger_has_an_address_to_answer,
    a_message_too_long_says_by_how_much,
    more_than_the_queues_hold_waits_in_order,
    delivery_is_told_when_the_peer_has_the_message,
    a_receive_can_be_cancelled,
    what_waits_for_room_or_its_peer_can_be_cancelled,
    a_peer_of_another_domain_is_refused,
    a_refused_peer_is_an_error_that_names_it,
    the_ways_of_long_payloads_are_counted,
}
