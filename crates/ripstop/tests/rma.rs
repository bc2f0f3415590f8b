//! Reads, writes and atomics on the memory of peers.

mod common;

use std::time::{Duration, Instant};

use common::{LONG, hints, local, pattern};
use ripstop::{
    Access, AtomicOp, Connection, Domain, Endpoint, Errno, Hints, Operation, Peer, Progress,
    Region, Remote, WriteMsg,
};

struct Ends {
    a: Endpoint,
    to_b: Peer,
    there: Domain,
    // Open as long as the test.
    _b: Endpoint,
}

fn ends(on: &str, progress: Progress) -> Ends {
    let open = || {
        let hints = hints(on).rma().atomic();
        hints.progress(progress).open().unwrap()
    };
    let (here, there) = (open(), open());
    let (a, b) = (here.endpoint().unwrap(), there.endpoint().unwrap());
    let to_b = here.insert(b.address().unwrap()).unwrap();
    Ends {
        a,
        to_b,
        there,
        _b: b,
    }
}

fn written_and_read(ends: &Ends) {
    for (round, len) in [0, 1, 100, 5000, 70_000, 2 << 20].into_iter().enumerate() {
        let region = ends.there.register(vec![0; len + 20], Access::ALL).unwrap();
        let bytes = pattern(len, round);
        let (outcome, back) = ends
            .a
            .write(bytes.clone(), ends.to_b, region.remote(10))
            .wait();
        assert_eq!(outcome.unwrap().len, len);
        assert!(back == bytes);
        let mut seen = vec![1; len + 20];
        region.read(0, &mut seen).unwrap();
        assert!(seen[10..len + 10] == bytes, "{len} bytes");
        assert_eq!(
            (&seen[..10], &seen[len + 10..]),
            (&[0; 10][..], &[0; 10][..])
        );
        region.write(0, &[7; 10]).unwrap();
        let room = (vec![0; 10], vec![0; len]);
        let (outcome, (head, read)) = ends.a.read(room, ends.to_b, region.remote(0)).wait();
        assert_eq!(outcome.unwrap().len, len + 10);
        assert!(head == [7; 10] && read == bytes, "{len} bytes");
        assert_eq!(region.len(), len + 20);
        assert!(region.into_buf()[10..len + 10] == bytes);
    }
}

fn bytes_go_both_ways(on: &str) {
    // The owner's domain has a thread; without one it would have to make progress itself.
    written_and_read(&ends(on, Progress::Background));
}

fn futures_are_awaited(on: &str) {
    let ends = ends(on, Progress::Background);
    let region = ends.there.register(vec![0; 64], Access::ALL).unwrap();
    pollster::block_on(async {
        let writes = (0..8).map(|i| {
            let msg = WriteMsg::new().more();
            let at = region.remote(8 * i);
            ends.a.writemsg(vec![i as u8; 8], ends.to_b, at, msg)
        });
        for write in writes.collect::<Vec<_>>() {
            write.await.0.unwrap();
        }
        let (outcome, read) = ends.a.read(vec![0; 64], ends.to_b, region.remote(0)).await;
        outcome.unwrap();
        assert!(read.chunks(8).enumerate().all(|(i, c)| c == [i as u8; 8]));
        let sum = ends
            .a
            .fetch_atomic(AtomicOp::Sum, &[1_u8, 2], ends.to_b, region.remote(7))
            .await;
        assert_eq!(sum.unwrap(), [0, 1]);
    });
    let buf = region.into_buf();
    assert_eq!(buf[6..10], [0, 1, 3, 1]);
}

fn what_is_injected_arrives(on: &str) {
    let ends = ends(on, Progress::Background);
    let region = ends.there.register(vec![0; 8], Access::WRITE).unwrap();
    let end = Instant::now() + LONG;
    // It takes a connection.
    while let Err(error) = ends.a.inject_write(b"inject", ends.to_b, region.remote(1)) {
        assert_eq!(error.errno(), Errno::EAGAIN);
        assert!(Instant::now() < end);
    }
    let too_long = vec![0; ends.a.inject_size() + 1];
    let refused = ends.a.inject_write(&too_long, ends.to_b, region.remote(0));
    assert_eq!(refused.unwrap_err().errno(), Errno::EMSGSIZE);
    // Behind it on the same stream.
    let (outcome, _) = ends.a.write(vec![1], ends.to_b, region.remote(0)).wait();
    outcome.unwrap();
    assert_eq!(region.into_buf(), b"\x01inject\0");
}

fn atomics_of_several_types(on: &str) {
    let ends = ends(on, Progress::Background);
    let region = ends.there.register(vec![0; 64], Access::ALL).unwrap();
    let (a, to_b, at) = (&ends.a, ends.to_b, region.remote(16));
    let none = a.atomic(AtomicOp::AtomicWrite, &[5_i64, -6], to_b, at);
    assert_eq!(none.wait().unwrap(), []);
    let old = a.fetch_atomic(AtomicOp::Min, &[-1_i64, 0], to_b, at).wait();
    assert_eq!(old.unwrap(), [5, -6]);
    let old = a
        .compare_atomic(AtomicOp::Cswap, &[10_i64, 20], &[-1, 0], to_b, at)
        .wait();
    assert_eq!(old.unwrap(), [-1, -6]);
    let now = a.atomic_read::<i64>(2, to_b, at).wait();
    assert_eq!(now.unwrap(), [10, -6]);
    a.atomic(AtomicOp::AtomicWrite, &[1.5_f64], to_b, at)
        .wait()
        .unwrap();
    let old = a.fetch_atomic(AtomicOp::Prod, &[4.0_f64], to_b, at).wait();
    assert_eq!(old.unwrap(), [1.5]);
    let old = a
        .fetch_atomic(AtomicOp::Bor, &[1_u128 << 100], to_b, at)
        .wait();
    assert_eq!(
        old.unwrap()[0] as u64,
        6.0_f64.to_bits(),
        "the product is there"
    );
    let bits = a.fetch_atomic(AtomicOp::Bor, &[1.0_f32], to_b, at).wait();
    let error = bits.unwrap_err();
    assert_eq!(
        (error.errno(), error.operation()),
        (Errno::EOPNOTSUPP, Operation::Atomic)
    );
}

fn what_a_peer_does_not_allow_is_an_error_that_names_it(on: &str) {
    let ends = ends(on, Progress::Background);
    let region = ends.there.register(vec![3; 16], Access::READ).unwrap();
    let (a, to_b) = (&ends.a, ends.to_b);
    let at = region.remote(0);
    let refused = |(outcome, buf): ripstop::Outcome<Vec<u8>>, len: usize| {
        assert_eq!(buf.len(), len);
        let error = outcome.unwrap_err();
        let name = match on {
            "shm" => "fi_shm://",
            _ => "127.0.0.1",
        };
        assert!(error.to_string().contains(name), "{error}");
        error.errno()
    };
    let denied = refused(a.write(vec![0; 4], to_b, at).wait(), 4);
    assert_eq!(denied, Errno::EACCES);
    let outside = refused(a.read(vec![0; 17], to_b, at).wait(), 17);
    assert_eq!(outside, Errno::EFAULT);
    let forged = Remote {
        key: at.key + 1000,
        ..at
    };
    let unknown = refused(a.read(vec![0; 4], to_b, forged).wait(), 4);
    assert_eq!(unknown, Errno::EKEYREJECTED);
    let shared = ends.there.register(vec![0; 16], Access::ALL).unwrap();
    let crooked = a
        .fetch_atomic(AtomicOp::Sum, &[1_u64], to_b, shared.remote(4))
        .wait();
    assert_eq!(crooked.unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(region.into_buf(), [3; 16]);
    let revoked = refused(a.read(vec![0; 4], to_b, at).wait(), 4);
    assert_eq!(revoked, Errno::EKEYREJECTED);
    let (outcome, _) = a.write(vec![9; 16], to_b, shared.remote(0)).wait();
    outcome.unwrap();
    assert_eq!(shared.into_buf(), [9; 16]);
}

fn reading_and_writing_outside_a_region_is_refused(on: &str) {
    let ends = ends(on, Progress::Background);
    let region = ends.there.register(vec![0; 4], Access::ALL).unwrap();
    for (offset, len) in [(5, 0), (4, 1), (0, 5), (usize::MAX, 1)] {
        let mut room = vec![0; len];
        let read = region.read(offset, &mut room).unwrap_err();
        let write = region.write(offset, &room).unwrap_err();
        assert_eq!(
            (read.errno(), write.errno()),
            (Errno::EINVAL, Errno::EINVAL)
        );
    }
    region.read(4, &mut []).unwrap();
}

fn dropped_operations_keep_their_buffers_until_they_are_over(on: &str) {
    let ends = ends(on, Progress::Background);
    let len = 300_000;
    let region = ends.there.register(vec![0; len], Access::ALL).unwrap();
    let counter = ends.there.register(vec![0; 8], Access::ALL).unwrap();
    for round in 0..60 {
        let read = ends.a.read(vec![0; len], ends.to_b, region.remote(0));
        let write = ends
            .a
            .write(vec![round as u8; len], ends.to_b, region.remote(0));
        let add = ends
            .a
            .fetch_atomic(AtomicOp::Sum, &[1_u64], ends.to_b, counter.remote(0));
        match round % 3 {
            0 => drop((read, write, add)),
            1 => {
                drop(read);
                write.wait().0.unwrap();
                drop(add);
            }
            _ => {
                drop(write);
                drop(read.wait_timeout(Duration::from_micros(50)));
                add.wait().unwrap();
            }
        }
    }
    // Those that were dropped have been carried out all the same.
    let count = ends.a.atomic_read::<u64>(1, ends.to_b, counter.remote(0));
    assert_eq!(count.wait().unwrap(), [60]);
    assert!(region.into_buf().iter().all(|byte| *byte == 59));
}

fn a_region_closes_under_fire(on: &str) {
    let ends = ends(on, Progress::Background);
    for _ in 0..20 {
        let region = ends.there.register(vec![0; 100_000], Access::ALL).unwrap();
        let writes: Vec<_> = (0..10)
            .map(|i| {
                let at = region.remote(0);
                ends.a.write(vec![i; 100_000], ends.to_b, at)
            })
            .collect();
        let buf = region.into_buf();
        let first = buf[0];
        assert!(buf.iter().all(|byte| *byte == first), "a write in part");
        for write in writes {
            if let Err(error) = write.wait().0 {
                assert_eq!(error.errno(), Errno::EKEYREJECTED);
            }
        }
    }
}

fn dropping_a_region_waits_for_nobody(on: &str) {
    // The writer stops in the middle.
    let open = |progress| hints(on).rma().progress(progress).open().unwrap();
    let (here, there) = (open(Progress::Manual), open(Progress::Background));
    let (a, b) = (here.endpoint().unwrap(), there.endpoint().unwrap());
    let to_b = here.insert(b.address().unwrap()).unwrap();
    let (first, _) = a.send(vec![1], to_b).wait();
    first.unwrap();
    for _ in 0..4 {
        let len = 64 << 20;
        let region = there.register(vec![0; len], Access::ALL).unwrap();
        let write = a.write(vec![1; len], to_b, region.remote(0));
        let mut seen = [0];
        while seen == [0] {
            here.progress();
            region.read(0, &mut seen).unwrap();
        }
        let start = Instant::now();
        drop(region);
        assert_eq!(there.outstanding(), 0);
        assert!(
            start.elapsed() < Duration::from_millis(500),
            "{:?}",
            start.elapsed()
        );
        // What is begun ends: whole, or refused.
        let (outcome, back) = write.wait_timeout(LONG).expect("an end");
        assert_eq!(back.len(), len);
        if let Err(error) = outcome {
            assert_eq!(error.errno(), Errno::EKEYREJECTED);
        }
    }
    // The domain closes with one that is not free yet.
    let region = there.register(vec![0; 64 << 20], Access::ALL).unwrap();
    let write = a.write(vec![1; 64 << 20], to_b, region.remote(0));
    here.progress();
    drop((region, b, there));
    let (_, back) = write.wait_timeout(LONG).expect("an end");
    assert_eq!(back, vec![1; 64 << 20]);
}

#[test]
fn connections_reach_memory_too() {
    let open = || {
        let hints = Hints::msg().rma().atomic().provider("tcp").source(local());
        hints.open().unwrap()
    };
    let (client, server) = (open(), open());
    let listener = server.listen().unwrap();
    let connecting = client.connect(listener.address().unwrap(), &[]);
    let incoming = listener.accept().wait();
    let _served: Connection = incoming.accept(&[]).wait().unwrap();
    let connection = connecting.wait().unwrap();
    let region: Region<Vec<u8>> = server.register(vec![0; 32], Access::ALL).unwrap();
    connection
        .write(vec![5; 8], region.remote(8))
        .wait()
        .0
        .unwrap();
    let old = connection
        .fetch_atomic(AtomicOp::Sum, &[1_u8; 8], region.remote(8))
        .wait();
    assert_eq!(old.unwrap(), [5; 8]);
    let (outcome, read) = connection.read(vec![0; 24], region.remote(0)).wait();
    outcome.unwrap();
    assert_eq!((&read[..8], &read[8..16]), (&[0; 8][..], &[6; 8][..]));
}

fn an_endpoint_without_the_capability_says_so(on: &str) {
    let domain = common::rdm(on, Progress::Background);
    let ep = domain.endpoint().unwrap();
    let own = domain.insert(ep.address().unwrap()).unwrap();
    let at = Remote { addr: 0, key: 1 };
    let (outcome, buf) = ep.write(vec![1, 2], own, at).wait();
    let error = outcome.unwrap_err();
    assert_eq!(
        (error.errno(), error.operation(), buf),
        (Errno::ENOSYS, Operation::Write, vec![1, 2])
    );
}

on_both! {
    dropping_a_region_waits_for_nobody,
    bytes_go_both_ways,
    futures_are_awaited,
    what_is_injected_arrives,
    atomics_of_several_types,
    what_a_peer_does_not_allow_is_an_error_that_names_it,
    reading_and_writing_outside_a_region_is_refused,
    dropped_operations_keep_their_buffers_until_they_are_over,
    a_region_closes_under_fire,
    an_endpoint_without_the_capability_says_so,
}
