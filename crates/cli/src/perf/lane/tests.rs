//! The exchanges over a fake lane: two threads, channels, and queues that are often full.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use super::*;
use crate::perf::protocol::{BATCH, WINDOW};

/// A receive that was posted.
#[derive(Clone, Copy)]
struct Receive {
    tag: u64,
    ignore: u64,
    size: usize,
}

struct Fake {
    to: Sender<(u64, usize)>,
    from: Receiver<(u64, usize)>,
    /// Messages that have come, and receives that were posted.
    came: Vec<(u64, usize)>,
    posted: Vec<Receive>,
    sends: u32,
    /// Every third post finds a full queue.
    posts: u32,
    delivered: u32,
    most_posted: usize,
    /// Writes and reads, and how many of them were under way at most.
    reached: u32,
    most_reached: u32,
}

fn fakes() -> (Fake, Fake) {
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    let fake = |to, from| Fake {
        to,
        from,
        came: Vec::new(),
        posted: Vec::new(),
        sends: 0,
        posts: 0,
        delivered: 0,
        most_posted: 0,
        reached: 0,
        most_reached: 0,
    };
    (fake(to_b, from_b), fake(to_a, from_a))
}

impl Lane for Fake {
    fn address(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn meet(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn inject_size(&self) -> usize {
        32
    }

    fn post(&mut self, what: Post, size: usize) -> Result<bool> {
        self.posts += 1;
        let mut room = !self.posts.is_multiple_of(3);
        match what {
            Post::Inject(tag) => {
                assert!(size <= self.inject_size());
                // The other side may have ended, as a process may.
                room = room && self.to.send((tag, size)).is_ok();
            }
            Post::Send(tag) => {
                room = room && self.to.send((tag, size)).is_ok();
                self.sends += u32::from(room);
            }
            Post::Recv(tag) if room => self.receive(tag, 0, size),
            Post::RecvAny { tag, ignore } if room => self.receive(tag, ignore, size),
            Post::Recv(_) | Post::RecvAny { .. } => {}
            Post::Acknowledge { rank, whole } => {
                assert_eq!(rank, 1);
                room = room && self.to.send((ACK, size)).is_ok();
                self.sends += u32::from(room && whole);
            }
            Post::Write | Post::Read => {
                self.sends += u32::from(room);
                self.reached += u32::from(room);
                self.most_reached = self.most_reached.max(self.sends);
            }
        }
        Ok(room)
    }

    fn poll(&mut self) -> Result<Done> {
        self.poll_tags(&mut Vec::new())
    }

    fn peers(&self) -> usize {
        1
    }

    fn poll_tags(&mut self, tags: &mut Vec<u64>) -> Result<Done> {
        match self.from.try_recv() {
            Ok(message) => self.came.push(message),
            Err(TryRecvError::Empty) => thread::yield_now(),
            Err(TryRecvError::Disconnected) => {}
        }
        let mut done = Done {
            sent: std::mem::take(&mut self.sends),
            received: 0,
        };
        if let Some(&(tag, size)) = self.came.first()
            && let Some(at) = self.posted.iter().position(|posted| {
                (posted.tag | posted.ignore, posted.size) == (tag | posted.ignore, size)
            })
        {
            tags.push(tag);
            self.posted.remove(at);
            self.came.remove(0);
            self.delivered += 1;
            done.received = 1;
        }
        Ok(done)
    }
}

impl Fake {
    fn receive(&mut self, tag: u64, ignore: u64, size: usize) {
        self.posted.push(Receive { tag, ignore, size });
        self.most_posted = self.most_posted.max(self.posted.len());
    }
}

/// Both sides of a test; what was delivered to client and server.
fn both(test: Test) -> (Fake, Fake) {
    let (mut a, mut b) = fakes();
    let server = thread::spawn(move || {
        take(&mut b, 1, test).expect("a server");
        b
    });
    take(&mut a, 0, test).expect("a client");
    (a, server.join().expect("no panic"))
}

#[test]
fn every_ping_is_answered() {
    for size in [8, 100] {
        let test = Test::new(Kind::Latency, size, 200);
        let (a, b) = both(test);
        assert_eq!((a.delivered, b.delivered), (230, 230));
        assert!(a.posted.is_empty() && b.posted.is_empty());
        assert!(a.came.is_empty() && b.came.is_empty());
    }
}

#[test]
fn a_stream_is_acknowledged_in_batches() {
    let test = Test::new(Kind::Stream, 8, 10 * BATCH);
    let (a, b) = both(test);
    assert_eq!(b.delivered, 11 * BATCH);
    assert_eq!(a.delivered, 11);
    assert!(b.most_posted <= WINDOW as usize);
    assert!(a.posted.is_empty() && b.posted.is_empty());
}

#[test]
fn any_depth_is_kept() {
    for depth in [1, 2, 3, 256] {
        let count = 4 * batch(depth);
        let test = |kind| Test {
            depth,
            ..Test::new(kind, 8, count)
        };
        let (a, b) = both(test(Kind::Stream));
        assert_eq!((a.delivered, b.delivered), (5, 5 * batch(depth)));
        assert!(b.most_posted <= depth.max(2) as usize);
        let (a, b) = both(test(Kind::StreamBoth));
        assert_eq!(
            (a.delivered, b.delivered),
            (5 * batch(depth), 5 * batch(depth))
        );
        let (a, _) = both(test(Kind::Write));
        assert!(a.most_reached <= depth);
    }
}

#[test]
fn what_a_peer_sends_is_gathered_and_acknowledged() {
    for size in [8, 100] {
        let (a, b) = both(Test::new(Kind::Gather, size, 10 * BATCH));
        assert_eq!((a.delivered, b.delivered), (11 * BATCH, 11));
        assert!(a.most_posted <= WINDOW as usize);
        assert!(a.posted.is_empty() && b.posted.is_empty() && a.came.is_empty());
    }
}

#[test]
fn writes_and_reads_are_over_when_a_message_behind_them_is_answered() {
    for kind in [Kind::Write, Kind::Read] {
        let test = Test::new(kind, 8, 10 * BATCH);
        let (a, b) = both(test);
        assert_eq!((a.reached, b.reached), (11 * BATCH, 0));
        assert!(a.most_reached <= WINDOW);
        assert_eq!((a.delivered, b.delivered), (2, 2));
        assert!(a.posted.is_empty() && b.posted.is_empty());
    }
}

#[test]
fn both_sides_swap_messages() {
    for size in [8, 100] {
        let test = Test::new(Kind::Exchange, size, 200);
        let (a, b) = both(test);
        assert_eq!((a.delivered, b.delivered), (230, 230));
        assert!(a.most_posted <= 2 && b.most_posted <= 2);
        assert!(a.posted.is_empty() && b.posted.is_empty());
    }
}

#[test]
fn streams_go_both_ways_and_find_receives_posted() {
    let test = Test::new(Kind::StreamBoth, 8, 10 * BATCH);
    let (a, b) = both(test);
    assert_eq!((a.delivered, b.delivered), (11 * BATCH, 11 * BATCH));
    for side in [&a, &b] {
        assert!(side.most_posted <= 2 * WINDOW as usize);
        assert!(side.posted.is_empty() && side.came.is_empty());
    }
}

#[test]
fn both_sides_reach_each_other() {
    for kind in [Kind::WriteBoth, Kind::ReadBoth] {
        let test = Test::new(kind, 8, 10 * BATCH);
        let (a, b) = both(test);
        assert_eq!((a.reached, b.reached), (11 * BATCH, 11 * BATCH));
        assert!(a.most_reached <= WINDOW && b.most_reached <= WINDOW);
        assert_eq!((a.delivered, b.delivered), (2, 2));
    }
}
