//! Epoll sets and event descriptors.

mod common;

use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::{Duration, Instant};

use common::{V4, pair};
use ripstop_os::{Epoll, Event, EventFd, Events, Interest, Socket};
use ripstop_types::Errno;

const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn poll(epoll: &Epoll) -> Vec<Event> {
    let mut events = Events::with_capacity(8);
    let n = epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!((n, n == 0), (events.len(), events.is_empty()));
    assert_eq!(events.at(n), None);
    events.iter().collect()
}

#[test]
fn events_carry_their_token() {
    let epoll = Epoll::new().unwrap();
    let (a, b) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    epoll.add(&a, 7, Interest::READ).unwrap();
    epoll.add(&b, u64::MAX, Interest::READ).unwrap();
    assert!(poll(&epoll).is_empty());
    b.signal().unwrap();
    let events = poll(&epoll);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].token, u64::MAX);
    assert!(events[0].readable() && !events[0].writable());
    a.signal().unwrap();
    let mut tokens: Vec<u64> = poll(&epoll).iter().map(|event| event.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [7, u64::MAX]);
}

#[test]
fn what_is_ready_is_told_again() {
    let epoll = Epoll::new().unwrap();
    let fd = EventFd::new().unwrap();
    epoll.add(&fd, 1, Interest::READ).unwrap();
    fd.signal().unwrap();
    assert_eq!((poll(&epoll).len(), poll(&epoll).len()), (1, 1));
    epoll.modify(&fd, 2, Interest::READ).unwrap();
    assert_eq!(poll(&epoll)[0].token, 2);
}

#[test]
fn interests_can_change_and_end() {
    let epoll = Epoll::new().unwrap();
    let (client, server) = pair(&V4);
    epoll.add(&client, 1, Interest::READ).unwrap();
    assert!(poll(&epoll).is_empty());
    epoll.modify(&client, 1, Interest::WRITE).unwrap();
    assert!(poll(&epoll)[0].writable());
    epoll.modify(&client, 1, Interest::default()).unwrap();
    assert!(poll(&epoll).is_empty());
    epoll.modify(&client, 1, Interest::READ).unwrap();
    drop(server);
    let mut events = Events::with_capacity(1);
    assert_eq!(epoll.wait(&mut events, LONG), Ok(1));
    assert!(events.at(0).unwrap().readable());
    epoll.remove(&client).unwrap();
    assert!(poll(&epoll).is_empty());
    assert_eq!(epoll.remove(&client), Err(Errno::ENOENT));
    assert_eq!(epoll.modify(&client, 1, Interest::READ), Err(Errno::ENOENT));
}

#[test]
fn a_socket_is_added_once() {
    let epoll = Epoll::new().unwrap();
    let socket = Socket::tcp_listener(&V4, None, 1).unwrap();
    epoll.add(&socket, 1, Interest::READ).unwrap();
    const EEXIST: Errno = Errno(17);
    assert_eq!(epoll.add(&socket, 2, Interest::READ), Err(EEXIST));
}

#[test]
fn a_lost_connection_is_told_without_interest() {
    let epoll = Epoll::new().unwrap();
    let (client, server) = pair(&V4);
    epoll.add(&client, 1, Interest::default()).unwrap();
    client.send(b"never read").unwrap();
    drop(server);
    let mut events = Events::with_capacity(1);
    assert_eq!(epoll.wait(&mut events, LONG), Ok(1));
    let event = events.at(0).unwrap();
    assert!(event.error() && event.hangup() && event.readable() && event.writable());
    assert_eq!(client.take_error(), Err(Errno::ECONNRESET));
}

#[test]
fn the_room_for_events_bounds_one_call() {
    let epoll = Epoll::new().unwrap();
    let fds: Vec<EventFd> = (0..5).map(|_| EventFd::new().unwrap()).collect();
    for (token, fd) in (0..).zip(&fds) {
        epoll.add(fd, token, Interest::READ).unwrap();
        fd.signal().unwrap();
    }
    let mut events = Events::with_capacity(2);
    let mut seen = Vec::new();
    for _ in 0..3 {
        // Those told go to the end of the line.
        assert_eq!(epoll.wait(&mut events, LONG), Ok(2));
        seen.extend(events.iter().map(|event| event.token));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    assert_eq!(epoll.poll(&mut Events::with_capacity(0)), Ok(1));
}

#[test]
fn a_wait_ends_with_its_time() {
    let epoll = Epoll::new().unwrap();
    let mut events = Events::with_capacity(1);
    for time in [Duration::from_millis(30), Duration::from_micros(1_500)] {
        let start = Instant::now();
        assert_eq!(epoll.wait(&mut events, Some(time)), Ok(0));
        assert!(start.elapsed() >= time);
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn times_of_any_size_are_taken() {
    let epoll = Epoll::new().unwrap();
    let fd = EventFd::new().unwrap();
    epoll.add(&fd, 1, Interest::READ).unwrap();
    fd.signal().unwrap();
    let mut events = Events::with_capacity(1);
    for time in [
        Duration::from_secs(1 << 40),
        Duration::MAX,
        Duration::from_nanos(1),
    ] {
        assert_eq!(epoll.wait(&mut events, Some(time)), Ok(1), "{time:?}");
    }
    assert_eq!(epoll.wait(&mut events, None), Ok(1));
}

#[test]
fn a_signal_from_another_thread_wakes() {
    let epoll = Epoll::new().unwrap();
    let fd = EventFd::new().unwrap();
    epoll.add(&fd, 3, Interest::READ).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            fd.signal().unwrap();
        });
        let mut events = Events::with_capacity(1);
        assert_eq!(epoll.wait(&mut events, LONG), Ok(1));
        assert_eq!(events.at(0).unwrap().token, 3);
    });
}

/// What `FI_WAIT_FD` gives to a program: a set within a set.
#[test]
fn a_set_is_a_descriptor() {
    let (outer, inner) = (Epoll::new().unwrap(), Epoll::new().unwrap());
    assert_ne!(outer.as_fd().as_raw_fd(), inner.as_fd().as_raw_fd());
    let fd = EventFd::new().unwrap();
    inner.add(&fd, 1, Interest::READ).unwrap();
    outer.add(&inner, 2, Interest::READ).unwrap();
    assert!(poll(&outer).is_empty());
    fd.signal().unwrap();
    assert_eq!(poll(&outer)[0].token, 2);
    fd.drain().unwrap();
    assert!(poll(&outer).is_empty());
}

#[test]
fn a_closed_descriptor_leaves_the_set() {
    let epoll = Epoll::new().unwrap();
    let fd = EventFd::new().unwrap();
    epoll.add(&fd, 1, Interest::READ).unwrap();
    fd.signal().unwrap();
    drop(fd);
    assert!(poll(&epoll).is_empty());
}

#[test]
fn signals_before_a_drain_count_as_one() {
    let fd = EventFd::new().unwrap();
    assert_eq!(fd.drain(), Ok(false));
    for _ in 0..3 {
        fd.signal().unwrap();
    }
    assert_eq!(fd.drain(), Ok(true));
    assert_eq!(fd.drain(), Ok(false));
}

#[test]
fn a_full_counter_is_signalled() {
    let fd = EventFd::new().unwrap();
    let full = (u64::MAX - 1).to_ne_bytes();
    rustix::io::write(&fd, &full).unwrap();
    assert_eq!(fd.signal(), Ok(()));
    assert_eq!(fd.drain(), Ok(true));
}

#[test]
fn events_print_their_tokens() {
    let epoll = Epoll::new().unwrap();
    let fd = EventFd::new().unwrap();
    epoll.add(&fd, 42, Interest::READ).unwrap();
    fd.signal().unwrap();
    let mut events = Events::with_capacity(1);
    epoll.poll(&mut events).unwrap();
    assert!(format!("{events:?}").contains("42"));
}
