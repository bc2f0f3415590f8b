//! Two ends of a tagged connection and what is timed between them, whatever library is below.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::protocol::{Kind, Side, Test, batch};

/// The tag of what is measured.
pub(super) const DATA: u64 = 1;
/// The tag of acknowledgements.
pub(super) const ACK: u64 = 2;
/// Bits of a tag below the rank of its sender, which messages of many processes to one have in it.
const RANK_SHIFT: u32 = 8;
/// Bytes of an acknowledgement.
pub(super) const ACK_SIZE: usize = 8;

/// Messages up to this size are injected where their latency is taken, as applications do.
const INJECTED: usize = 64;
/// How long nothing may happen before a test is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for a side that only serves: it notices nothing of a whole sample.
const SERVING: Duration = Duration::from_secs(300);
/// Empty reads between two looks at the clock.
const GLANCE: u32 = 1 << 14;

/// Completions that one read found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    /// Sends, writes and reads.
    pub(super) sent: u32,
    /// Receives.
    pub(super) received: u32,
}

/// What an endpoint is told to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Post {
    /// Send a message of this tag, without a completion.
    Inject(u64),
    /// Send a message of this tag, with a completion.
    Send(u64),
    /// Receive one.
    Recv(u64),
    /// Receive one of any peer, with this tag in the bits that are not ignored.
    RecvAny {
        /// The tag.
        tag: u64,
        /// Its bits that do not matter.
        ignore: u64,
    },
    /// Send an acknowledgement to the peer of this rank, with a completion or without one.
    Acknowledge {
        /// The peer's rank, from 1 on.
        rank: usize,
        /// Whether it has a completion.
        whole: bool,
    },
    /// Write to the peer's memory, with a completion; only where it can be reached.
    Write,
    /// Read from the peer's memory.
    Read,
}

/// One endpoint with one peer, or with several that send to it.
pub(super) trait Lane {
    /// Its address, as bytes.
    fn address(&self) -> Result<Vec<u8>>;
    /// Makes the endpoint with this address the peer, or one more of them.
    fn meet(&mut self, address: &[u8]) -> Result<()>;
    /// Bytes that may be injected.
    fn inject_size(&self) -> usize;
    /// Posts an operation of so many bytes; `false` when a queue is full, and it may be tried again
    /// after a read. Sends and reads share one buffer and receives have another, whose contents do
    /// not matter.
    fn post(&mut self, what: Post, size: usize) -> Result<bool>;
    /// Reads the completion queue once.
    fn poll(&mut self) -> Result<Done>;
    /// As [`poll`](Self::poll), and appends the tag of each message that was received.
    fn poll_tags(&mut self, tags: &mut Vec<u64>) -> Result<Done>;
    /// How many peers there are.
    fn peers(&self) -> usize;
}

/// Takes a sample, or the other side's part in it. Gives the time on the client's side.
pub(super) fn take<L: Lane>(lane: &mut L, rank: usize, test: Test) -> Result<Duration> {
    let side = Side::of(rank);
    let mut end = End {
        lane,
        done: Done::default(),
        depth: test.depth,
        rank,
        tags: (test.kind == Kind::Gather && side == Side::Client).then(Vec::new),
        idle: 0,
        since: Instant::now(),
        patience: match (test.kind, side) {
            (Kind::Write | Kind::Read, Side::Server) | (Kind::WriteBoth | Kind::ReadBoth, _) => {
                SERVING
            }
            _ => PATIENCE,
        },
    };
    // What comes first does not count.
    let before = match test.kind {
        Kind::Latency | Kind::Exchange => test.count / 10 + 10,
        _ => batch(test.depth),
    };
    end.exchange(side, test, before)?;
    let start = Instant::now();
    end.exchange(side, test, test.count)?;
    Ok(start.elapsed())
}

struct End<'a, L> {
    lane: &'a mut L,
    /// Completions that were read and not yet used.
    done: Done,
    /// Messages or operations that may be under way at once.
    depth: u32,
    rank: usize,
    /// Tags of messages that were received and not yet used, where they matter.
    tags: Option<Vec<u64>>,
    /// Empty reads since the last completion.
    idle: u32,
    since: Instant,
    /// How long nothing may complete.
    patience: Duration,
}

impl<L: Lane> End<'_, L> {
    /// This side's part of `count` messages or operations.
    fn exchange(&mut self, side: Side, test: Test, count: u32) -> Result<()> {
        let size = test.size;
        match (test.kind, side) {
            (Kind::Latency, Side::Client) => self.ping(size, count),
            (Kind::Latency, Side::Server) => self.pong(size, count),
            (Kind::Stream, Side::Client) => self.source(DATA, size, count),
            (Kind::Gather, Side::Client) => self.gather(size, count),
            (Kind::Gather, Side::Server) => {
                self.source(DATA | (self.rank as u64) << RANK_SHIFT, size, count)
            }
            (Kind::Stream, Side::Server) => self.sink(size, count),
            (Kind::Write, Side::Client) => self.reach(Post::Write, size, count),
            (Kind::Read, Side::Client) => self.reach(Post::Read, size, count),
            (Kind::Write | Kind::Read, Side::Server) => self.serve(),
            (Kind::Exchange, _) => self.swap(size, count),
            (Kind::StreamBoth, _) => self.stream_both(size, count),
            (Kind::WriteBoth, _) => self.reach_both(Post::Write, size, count),
            (Kind::ReadBoth, _) => self.reach_both(Post::Read, size, count),
            (Kind::Barrier | Kind::Allreduce | Kind::Insert, _) => {
                bail!("not between two processes")
            }
        }
    }

    /// `count` messages there and back.
    fn ping(&mut self, size: usize, count: u32) -> Result<()> {
        self.recv(DATA, size)?;
        for left in (0..count).rev() {
            self.send_whole(size)?;
            self.received()?;
            if left > 0 {
                self.recv(DATA, size)?;
            }
        }
        Ok(())
    }

    /// The other side of [`ping`](Self::ping).
    fn pong(&mut self, size: usize, count: u32) -> Result<()> {
        self.recv(DATA, size)?;
        for left in (0..count).rev() {
            self.received()?;
            if left > 0 {
                self.recv(DATA, size)?;
                self.send_whole(size)?;
            } else {
                // An injected message may need further reads to leave; this one has left.
                self.send(DATA, size)?;
                self.sent()?;
            }
        }
        Ok(())
    }

    /// `count` messages one way, a multiple of [`batch`]; at most `depth` are not acknowledged.
    fn source(&mut self, tag: u64, size: usize, count: u32) -> Result<()> {
        let (depth, batch) = (self.depth, batch(self.depth));
        let (mut posted, mut sent, mut acknowledged, mut acks) = (0, 0, 0, 0);
        while acknowledged < count || sent < count {
            while acks * batch < count && acks * batch < acknowledged + depth {
                self.recv(ACK, ACK_SIZE)?;
                acks += 1;
            }
            while posted < count && posted - acknowledged < depth {
                if !self.lane.post(Post::Send(tag), size)? {
                    break;
                }
                posted += 1;
            }
            self.poll()?;
            let done = std::mem::take(&mut self.done);
            sent += done.sent;
            acknowledged += done.received * batch;
        }
        Ok(())
    }

    /// The other side of [`source`](Self::source). A receive for the next message is posted when a
    /// message is acknowledged, also where one at a time is under way.
    fn sink(&mut self, size: usize, count: u32) -> Result<()> {
        let (ahead, batch) = (self.depth.max(2), batch(self.depth));
        let (mut posted, mut received, mut acknowledged) = (0, 0, 0);
        while received < count {
            while posted < count && posted - received < ahead {
                if !self.lane.post(Post::Recv(DATA), size)? {
                    break;
                }
                posted += 1;
            }
            self.poll()?;
            received += std::mem::take(&mut self.done.received);
            while received - acknowledged >= batch {
                acknowledged += batch;
                if acknowledged < count {
                    self.post(Post::Inject(ACK), ACK_SIZE)?;
                } else {
                    self.send(ACK, ACK_SIZE)?;
                    self.sent()?;
                }
            }
        }
        Ok(())
    }

    /// Receives `count` messages of each peer, of which each is a [`source`](Self::source). The last of
    /// each are acknowledged when all have come, so that no peer begins with what comes next before.
    fn gather(&mut self, size: usize, count: u32) -> Result<()> {
        let (peers, batch) = (self.lane.peers(), batch(self.depth));
        let mut of = vec![0_u32; peers];
        let all = count as usize * peers;
        let ahead = self.depth.max(2) as usize * peers;
        let (mut posted, mut received) = (0, 0);
        let data = Post::RecvAny {
            tag: DATA,
            ignore: u64::MAX << RANK_SHIFT,
        };
        while received < all {
            while posted < all && posted - received < ahead {
                if !self.lane.post(data, size)? {
                    break;
                }
                posted += 1;
            }
            self.poll()?;
            // Acknowledging may receive more.
            while let Some(tag) = self.tags.as_mut().and_then(Vec::pop) {
                let rank = usize::try_from(tag >> RANK_SHIFT)?;
                let of = rank.checked_sub(1).and_then(|at| of.get_mut(at));
                let of = of.with_context(|| format!("a message with the tag {tag:#x}"))?;
                *of += 1;
                received += 1;
                if of.is_multiple_of(batch) && *of < count {
                    self.acknowledge(rank, false)?;
                }
            }
        }
        self.done = Done::default();
        for rank in 1..=peers {
            self.acknowledge(rank, true)?;
            // An injected message may need further reads to leave; this one has left.
            self.sent()?;
        }
        Ok(())
    }

    /// Acknowledges a batch of the peer of this rank, with a completion or without one.
    fn acknowledge(&mut self, rank: usize, whole: bool) -> Result<()> {
        self.post(Post::Acknowledge { rank, whole }, ACK_SIZE)
    }

    /// `count` writes or reads. They are over when a message behind them is answered.
    fn reach(&mut self, what: Post, size: usize, count: u32) -> Result<()> {
        self.recv(ACK, ACK_SIZE)?;
        self.operate(what, size, count)?;
        self.send(DATA, ACK_SIZE)?;
        self.sent()?;
        self.received()
    }

    /// `count` writes or reads, of which at most `depth` are under way.
    fn operate(&mut self, what: Post, size: usize, count: u32) -> Result<()> {
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted - done < self.depth {
                if !self.lane.post(what, size)? {
                    break;
                }
                posted += 1;
            }
            self.poll()?;
            done += std::mem::take(&mut self.done.sent);
        }
        Ok(())
    }

    /// The other side of [`reach`](Self::reach).
    fn serve(&mut self) -> Result<()> {
        self.recv(DATA, ACK_SIZE)?;
        self.received()?;
        self.send(ACK, ACK_SIZE)?;
        self.sent()
    }

    /// `count` messages each way: the next goes when that of the other side has come. The receive for
    /// it is posted before the other side can send it.
    fn swap(&mut self, size: usize, count: u32) -> Result<()> {
        self.recv(DATA, size)?;
        for left in (0..count).rev() {
            if left > 0 {
                self.recv(DATA, size)?;
                self.send_whole(size)?;
            } else {
                // As in `pong`.
                self.send(DATA, size)?;
                self.sent()?;
            }
            self.received()?;
        }
        Ok(())
    }

    /// `count` messages each way at once. What comes acknowledges what went: this side is at most
    /// `depth` messages ahead of those that it received, so the other one, which may be as many
    /// behind, has twice as many receives posted and none of its messages is unexpected.
    fn stream_both(&mut self, size: usize, count: u32) -> Result<()> {
        let depth = self.depth;
        let (mut receives, mut received, mut posted, mut sent) = (0, 0, 0, 0);
        while sent < count || received < count {
            while receives < count && receives - received < 2 * depth {
                if !self.lane.post(Post::Recv(DATA), size)? {
                    break;
                }
                receives += 1;
            }
            while posted < count && posted < received + depth {
                if !self.lane.post(Post::Send(DATA), size)? {
                    break;
                }
                posted += 1;
            }
            self.poll()?;
            let done = std::mem::take(&mut self.done);
            sent += done.sent;
            received += done.received;
        }
        Ok(())
    }

    /// As [`reach`](Self::reach), by both sides. Each serves until the other one is done, too.
    fn reach_both(&mut self, what: Post, size: usize, count: u32) -> Result<()> {
        self.recv(DATA, ACK_SIZE)?;
        self.operate(what, size, count)?;
        self.send(DATA, ACK_SIZE)?;
        self.sent()?;
        self.received()
    }

    /// Sends a message and waits for what its way of sending gives: nothing for a small one.
    fn send_whole(&mut self, size: usize) -> Result<()> {
        if size <= INJECTED.min(self.lane.inject_size()) {
            return self.post(Post::Inject(DATA), size);
        }
        self.send(DATA, size)?;
        self.sent()
    }

    fn send(&mut self, tag: u64, size: usize) -> Result<()> {
        self.post(Post::Send(tag), size)
    }

    fn recv(&mut self, tag: u64, size: usize) -> Result<()> {
        self.post(Post::Recv(tag), size)
    }

    #[inline]
    fn post(&mut self, what: Post, size: usize) -> Result<()> {
        while !self.lane.post(what, size)? {
            self.poll()?;
        }
        Ok(())
    }

    fn sent(&mut self) -> Result<()> {
        while self.done.sent == 0 {
            self.poll()?;
        }
        self.done.sent -= 1;
        Ok(())
    }

    fn received(&mut self) -> Result<()> {
        while self.done.received == 0 {
            self.poll()?;
        }
        self.done.received -= 1;
        Ok(())
    }

    fn poll(&mut self) -> Result<()> {
        let Done { sent, received } = match &mut self.tags {
            None => self.lane.poll()?,
            Some(tags) => self.lane.poll_tags(tags)?,
        };
        self.done.sent += sent;
        self.done.received += received;
        if sent + received > 0 {
            self.idle = 0;
        } else {
            self.idle += 1;
            if self.idle.is_multiple_of(GLANCE) {
                self.look_at_the_clock()?;
            }
        }
        Ok(())
    }

    #[cold]
    fn look_at_the_clock(&mut self) -> Result<()> {
        if self.idle == GLANCE {
            self.since = Instant::now();
        } else if self.since.elapsed() > self.patience {
            bail!("nothing completed for {} s", self.patience.as_secs());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
