use proptest::prelude::*;

use super::*;

fn peer(name: &str) -> Peer {
    Peer {
        endpoint: 1,
        name: name.to_owned(),
        pid: Some(77),
        state: PeerState::Up,
        way: "ring".to_owned(),
        protocol: "eager to 512 KiB".to_owned(),
        traffic: Some(Traffic {
            unit: "bytes".to_owned(),
            sent: 1,
            received: 2,
        }),
        ways: Ways {
            stream: Copied {
                payloads: 3,
                bytes: 4,
            },
            mapped: Copied::default(),
            attach: Copied {
                payloads: 8,
                bytes: 9,
            },
        },
        queued: 5,
        unexpected: 6,
        oldest: None,
        silence: Some(7),
    }
}

fn wait(peer: &str) -> Wait {
    Wait {
        kind: WaitKind::Receive,
        endpoint: 1,
        call: "fi_trecv".to_owned(),
        peer: Some(peer.to_owned()),
        pid: None,
        tag: Some(Tag { tag: 7, ignore: 1 }),
        len: 8,
        age: 9,
        count: 1,
        note: String::new(),
    }
}

fn snapshot(peers: usize, waits: usize, name: &str) -> Snapshot {
    Snapshot {
        provider: "shm".to_owned(),
        program: "a.out".to_owned(),
        rank: Some(3),
        has_thread: false,
        sleeps_outside: true,
        endpoints: vec![Endpoint {
            id: 1,
            name: name.to_owned(),
            is_msg: false,
            outstanding: 2,
            receives: 3,
        }],
        peers: vec![peer(name); peers],
        all_peers: peers as u32,
        waits: vec![wait(name); waits],
        all_waits: waits as u32,
        counters: vec![Counter {
            id: 1,
            value: 2,
            errors: 0,
        }],
        queues: vec![Queue { id: 1, entries: 2 }],
        ways: None,
    }
}

#[test]
fn a_snapshot_is_read_as_it_was_written() {
    let mut written = snapshot(3, 2, "fi_shm://1:2");
    let bytes = written.encode();
    assert_eq!(Snapshot::decode(&bytes), Ok(written));
}

#[test]
fn what_does_not_fit_is_left_out() {
    let long = "x".repeat(1000);
    let mut most = snapshot(10_000, 10_000, &long);
    let bytes = most.encode();
    assert!(bytes.len() <= MAX_SNAPSHOT);
    let read = Snapshot::decode(&bytes).unwrap();
    assert_eq!((read.all_peers, read.all_waits), (10_000, 10_000));
    assert!(read.peers.len() >= 16 && read.waits.len() >= 16);
    assert_eq!(read.peers[0].name.len(), 256, "cut");
}

#[test]
fn every_end_in_the_middle_is_seen() {
    let bytes = snapshot(2, 2, "peer").encode();
    for end in 0..bytes.len() {
        assert_eq!(Snapshot::decode(&bytes[..end]), Err(Malformed::Short));
    }
    let longer = [bytes, vec![0]].concat();
    assert_eq!(Snapshot::decode(&longer), Err(Malformed::Long));
}

#[test]
fn texts_that_a_terminal_would_obey_are_refused() {
    let mut bytes = snapshot(1, 0, "\x1b[2J").encode();
    assert_eq!(Snapshot::decode(&bytes).unwrap().peers[0].name, "?[2J");
    let at = bytes.windows(4).position(|text| text == b"?[2J").unwrap();
    bytes[at] = 0x1b;
    assert_eq!(Snapshot::decode(&bytes), Err(Malformed::Value));
}

proptest! {
    #[test]
    fn garbage_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        _ = Snapshot::decode(&bytes);
    }

    /// Each change of a sound one gives another sound one, or a refusal.
    #[test]
    fn a_changed_one_is_refused_or_read_again(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = snapshot(3, 3, "peer").encode();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(mut read) = Snapshot::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
        }
    }
}
