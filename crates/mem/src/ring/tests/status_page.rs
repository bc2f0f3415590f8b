//! The words of a status page: sleep word, poll count and address probe.

use super::*;

#[test]
fn doorbell_is_due_when_the_sleep_word_wraps() {
    let status_page = HeapMapping::new(STATUS_PAGE_BYTES, true);
    let sleep = SleepWord::from_mapping(status_page.clone()).unwrap();
    sleep.start_at(u32::MAX - 9);
    let peer = PeerStatus::from_mapping(status_page, false).unwrap();
    for round in 0..10 {
        assert!(!peer.must_wake(), "{round}: nobody sleeps");
        sleep.begin_sleep(|| ());
        assert_eq!([peer.must_wake(), peer.must_wake()], [true, false]);
        sleep.rearm(|| ());
        assert_eq!([peer.must_wake(), peer.must_wake()], [true, false]);
        sleep.end_sleep(|| ());
    }
}

#[test]
fn doorbell_is_due_once_for_each_sleep() {
    let status_page = HeapMapping::new(STATUS_PAGE_BYTES, true);
    let sleep = SleepWord::from_mapping(status_page.clone()).unwrap();
    for fenced in [false, true] {
        let peer = PeerStatus::from_mapping(status_page.clone(), fenced).unwrap();
        assert!(!peer.must_wake());
        let mut barriers = 0;
        sleep.begin_sleep(|| barriers += 1);
        assert_eq!([peer.must_wake(), peer.must_wake()], [true, false]);
        sleep.begin_sleep(|| barriers += 1);
        assert_eq!([peer.must_wake(), peer.must_wake()], [true, false]);
        sleep.end_sleep(|| barriers += 1);
        assert_eq!(
            [peer.must_wake(), peer.must_wake()],
            [true, false],
            "one still sleeps"
        );
        sleep.rearm(|| barriers += 1);
        assert_eq!([peer.must_wake(), peer.must_wake()], [true, false]);
        sleep.end_sleep(|| barriers += 1);
        assert!(!peer.must_wake());
        sleep.rearm(|| barriers += 1);
        assert!(!peer.must_wake(), "nobody sleeps");
        assert_eq!(barriers, 4);
    }
}

#[test]
fn peers_see_poll_count_and_address_probe() {
    let status_page = HeapMapping::new(STATUS_PAGE_BYTES, true);
    let peer = PeerPollStatus::from_mapping(status_page.clone()).unwrap();
    assert_eq!((peer.poll_count(), peer.address_probe()), (0, None));
    let status = PollStatus::from_mapping(status_page.clone(), 77).unwrap();
    let AddressProbe { addr, token } = peer.address_probe().unwrap();
    assert_eq!(token, 77);
    let start = status_page.start().addr().get() as u64;
    let at = usize::try_from(addr - start).unwrap();
    let region = status_page.region();
    assert_eq!(
        region.load_u64(at, core::sync::atomic::Ordering::Relaxed),
        Ok(77)
    );
    for _ in 0..2 {
        let before = peer.poll_count();
        status.count_poll();
        assert_ne!(peer.poll_count(), before);
    }
    assert!(PollStatus::from_mapping(HeapMapping::new(STATUS_PAGE_BYTES, false), 1).is_err());
    assert!(PeerPollStatus::from_mapping(HeapMapping::new(STATUS_PAGE_BYTES - 1, false)).is_err());
}
