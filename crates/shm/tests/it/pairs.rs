//! Pairs of endpoints within one process.

use crate::common::{self, bytes, info, info_for, open, pattern, safe, try_open};
use crate::outside::serial;
use ripstop_core::Address;
use ripstop_core::provider::{
    AddressVector as _, CompletionQueue as _, Domain, Endpoint as _, SendKind,
};
use ripstop_mem::Parked;
use ripstop_types::{Errno, Flags, Progress, Threading};

/// Processes that share a processor poll a hundred times a second or so, and each poll finds
/// something while others send.
#[test]
fn endpoint_is_accepted_while_another_one_sends() {
    const STEPS: usize = 600;
    let info = info(None, Threading::Domain);
    let [at, busy, late] = [(); 3].map(|()| open(&serial(&info), &info));
    let (text, room) = (Parked::park(vec![1; 8]), Parked::park(vec![0; 8]));
    let (from_busy, from_late) = (busy.knows(&at.name()), late.knows(&at.name()));
    let mut sent = [0, 0];
    for step in 0..STEPS {
        at.post(&room);
        // Two wait in the ring when the receiver polls.
        for _ in 0..if step == 0 { 3 } else { 1 } {
            busy.send(&text, from_busy).unwrap();
        }
        sent[0] += busy.cq.read(8, |_| ()).unwrap_or(0);
        if step == 50 {
            late.send(&text, from_late).unwrap();
        }
        sent[1] += late.cq.read(8, |_| ()).unwrap_or(0);
        if sent[1] > 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        let _ = at.cq.read(8, |_| ());
    }
    panic!(
        "not accepted within {STEPS} polls, {} messages were sent",
        sent[0]
    );
}

#[test]
fn sleeping_receiver_is_woken() {
    let info = info(None, Threading::Safe);
    let [near, far] = [(); 2].map(|()| open(&safe(&info), &info));
    let (to_far, to_near) = (near.knows(&far.name()), far.knows(&near.name()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200_u64 {
                let (room, text) = (Parked::park(vec![0; 8]), Parked::park(vec![1; 8]));
                near.post(&room);
                std::thread::sleep(std::time::Duration::from_micros(37 * (round % 20)));
                near.send(&text, to_far).unwrap();
                near.sleep(2);
                drop((bytes(room), bytes(text)));
            }
        });
        for round in 0..200_u64 {
            let (room, text) = (Parked::park(vec![0; 8]), Parked::park(vec![1; 8]));
            far.post(&room);
            far.sleep(1);
            std::thread::sleep(std::time::Duration::from_micros(29 * (round % 23)));
            far.send(&text, to_near).unwrap();
            far.sleep(1);
            drop((bytes(room), bytes(text)));
        }
    });
}

/// More than the ring holds waits for a reader that sleeps in between.
#[test]
fn sleeping_sender_is_woken_by_room() {
    let info = info(None, Threading::Safe);
    let [near, far] = [(); 2].map(|()| open(&safe(&info), &info));
    let to_far = near.knows(&far.name());
    let len = 20_000_000;
    let (room, text) = (Parked::park(vec![0; len]), Parked::park(pattern(len, 3)));
    far.post(&room);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            near.send(&text, to_far).unwrap();
            near.sleep(1);
        });
        far.sleep(1);
    });
    assert_eq!(bytes(room), pattern(len, 3));
    drop(bytes(text));
}

#[test]
fn messages_of_many_peers_arrive() {
    const PEERS: usize = 40;
    let info = info(None, Threading::Safe);
    let domain = safe(&info);
    let hub = open(&safe(&info), &info);
    let peers: Vec<_> = (0..PEERS).map(|_| open(&domain, &info)).collect();
    for round in 0..5 {
        let rooms: Vec<_> = (0..PEERS).map(|_| Parked::park(vec![0; 8])).collect();
        rooms.iter().for_each(|room| hub.post(room));
        let texts: Vec<_> = (0..PEERS)
            .map(|peer| Parked::park(vec![(peer + round) as u8; 8]))
            .collect();
        for (peer, text) in peers.iter().zip(&texts) {
            let to = peer.knows(&hub.name());
            peer.send(text, to).unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| peers.iter().for_each(|peer| peer.poll(1)));
            hub.poll(PEERS);
        });
        let mut found: Vec<u8> = rooms.into_iter().map(|room| bytes(room)[0]).collect();
        found.sort_unstable();
        let sent: Vec<u8> = (0..PEERS).map(|peer| (peer + round) as u8).collect();
        assert_eq!(found, sent);
        texts.into_iter().for_each(|text| drop(bytes(text)));
    }
}

#[test]
fn default_names_follow_fi_shm() {
    let shared = info(Some("fi_shm://ripstop-names"), Threading::Safe);
    let domain = safe(&shared);
    let [first, second] = [(); 2].map(|()| open(&domain, &shared).name().to_string());
    let user = ripstop_os::user();
    for name in [&first, &second] {
        let start = format!("fi_shm://ripstop-names:{user}:");
        assert!(name.starts_with(&start), "{name}");
    }
    assert_ne!(first, second);
    let text = format!("mine://ripstop-{}", ripstop_os::pid());
    let own = info(Some(&text), Threading::Safe);
    let held = open(&safe(&own), &own);
    assert_eq!(held.name().to_string(), text);
    let taken = try_open(&safe(&own), &own);
    assert_eq!(taken.err(), Some(Errno::EADDRINUSE));
    drop(held);
    assert!(try_open(&safe(&own), &own).is_ok());
}

#[test]
fn name_set_by_the_program_is_kept() {
    let info = info(None, Threading::Safe);
    let domain = safe(&info);
    let ep = domain
        .endpoint(&info, ripstop_core::provider::Token(0))
        .unwrap();
    for text in ["fi_shm://ripstop-set", "no prefix"] {
        let wanted = Address::Str(format!("{text}-{}", ripstop_os::pid()));
        ep.set_name(&wanted).unwrap();
        assert_eq!(ep.name(), Ok(wanted));
    }
    let none = ep.set_name(&Address::Str(String::new()));
    assert_eq!(none, Err(Errno::EINVAL));
    let ip = Address::Ip(([127, 0, 0, 1], 7).into());
    assert_eq!(ep.set_name(&ip), Err(Errno::EINVAL));
}

/// `FI_SOURCE_ERR` reports the whole name of an unknown source, also the longest one.
#[test]
fn unknown_sources_are_reported_by_full_name() {
    let caps = Flags::MSG | Flags::SOURCE | Flags::SOURCE_ERR;
    let open_as = |name: &str| {
        let info = info_for(caps, Some(name), Threading::Safe, Progress::Manual);
        open(&safe(&info), &info)
    };
    let pid = ripstop_os::pid();
    let near = open_as(&format!("{:n<200}", format!("near://ripstop-{pid}-")));
    let far = open_as(&format!("far://ripstop-{pid}"));
    let to_far = near.knows(&far.name());
    let [room, text] = [0, 1].map(|byte| Parked::park(vec![byte; 8]));
    far.post(&room);
    near.send(&text, to_far).unwrap();
    let stop = std::time::Instant::now() + common::PATIENCE;
    while far.cq.read(1, |_| ()) != Err(Errno::EAVAIL) {
        let _ = near.cq.read(1, |_| ());
        assert!(std::time::Instant::now() < stop, "it does not fail");
    }
    let mut told = None;
    let read = far
        .cq
        .read_error(|error, data| told = Some((error.err, data.to_vec())));
    assert_eq!(read, Ok(()));
    let name = near.name().to_bytes();
    assert_eq!(name.len(), 201);
    assert_eq!(told, Some((Errno::EADDRNOTAVAIL, name)));
    assert_eq!([bytes(room), bytes(text)], [[1; 8]; 2]);
}

#[test]
fn peers_keep_their_names_in_address_vectors() {
    let info = info(None, Threading::Safe);
    let end = open(&safe(&info), &info);
    let name = Address::Str("fi_ns://somebody:7".to_owned());
    let peer = end.knows(&name);
    assert_eq!(end.av.lookup(peer), Ok(name.clone()));
    assert_eq!(end.av.insert(&name), Ok(peer));
    assert_eq!(end.av.remove(peer), Ok(()));
    assert_eq!(end.av.remove(peer), Ok(()));
    assert_eq!(end.av.lookup(peer), Err(Errno::EINVAL));
}

#[test]
fn as_much_can_be_injected_as_with_the_c_library() {
    let info = info(None, Threading::Safe);
    assert_eq!(info.tx.inject_size, 4096);
    let [near, far] = [(); 2].map(|()| open(&safe(&info), &info));
    let to_far = near.knows(&far.name());
    let rooms = [(); 3].map(|()| Parked::park(vec![0; 4096]));
    rooms.iter().for_each(|room| far.post(room));
    for round in 0..rooms.len() {
        // The buffer is free again at once: what arrives is what it held before.
        let text = Parked::park(pattern(4096, round));
        let stop = std::time::Instant::now() + common::PATIENCE;
        while let Err(error) = near.ep.inject(SendKind::Msg, text.buf(), None, to_far) {
            // There is no connection before the peer has answered.
            assert_eq!(error, Errno::EAGAIN);
            let _ = far.cq.read(0, |_| ());
            assert!(std::time::Instant::now() < stop, "it is not taken");
        }
        let mut taken = bytes(text);
        taken.fill(0xee);
    }
    let (mut got, stop) = (0, std::time::Instant::now() + common::PATIENCE);
    while got < rooms.len() {
        let _ = near.cq.read(1, |_| ());
        got += far.cq.read(1, |_| ()).unwrap_or(0);
        assert!(std::time::Instant::now() < stop, "{got} have arrived");
    }
    for (round, room) in rooms.into_iter().enumerate() {
        assert_eq!(bytes(room), pattern(4096, round), "message {round}");
    }
}

#[test]
fn injected_messages_arrive_after_their_sender_has_closed() {
    let info = info(None, Threading::Safe);
    for count in [1, 100] {
        let [near, far] = [(); 2].map(|()| open(&safe(&info), &info));
        let to_far = near.knows(&far.name());
        let text = Parked::park(pattern(100, 5));
        let stop = std::time::Instant::now() + common::PATIENCE;
        for _ in 0..count {
            while let Err(error) = near.ep.inject(SendKind::Msg, text.buf(), None, to_far) {
                assert_eq!(error, Errno::EAGAIN);
                let _ = far.cq.read(0, |_| ());
                assert!(std::time::Instant::now() < stop, "it is not taken");
            }
        }
        drop((near, bytes(text)));
        for number in 0..count {
            let room = Parked::park(vec![0; 100]);
            far.post(&room);
            while far.cq.read(1, |_| ()).unwrap_or(0) == 0 {
                assert!(std::time::Instant::now() < stop, "message {number} is lost");
            }
            assert_eq!(bytes(room), pattern(100, 5), "message {number}");
        }
    }
}
