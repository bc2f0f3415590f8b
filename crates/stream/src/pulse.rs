//! What a domain looks at besides epoll: links whose bytes move without the kernel, as those in
//! shared memory do. Who sleeps waits for epoll nevertheless, so peers have to be asked to tell by
//! the descriptor of a link, and are asked only then.

use std::fmt::Debug;
use std::sync::Arc;

use ripstop_engine::pool::NIL;
use ripstop_mem::ring::Grant;
use ripstop_os::Interest;
use ripstop_types::Result;

use crate::state::State;
use crate::transport::Transport;

/// What a transport has for each domain; it is used under the domain's lock. Links are known by ids
/// from when they are up.
pub trait Pulse<L>: Debug + Send + Sized + 'static {
    /// Whether there is anything to look at. Where not, nothing of this is ever called but
    /// [`Pulse::open`], and epoll tells all.
    const LOOKS: bool;

    /// For a domain that opens.
    ///
    /// # Errors
    /// Of the system; the domain is not opened.
    fn open() -> Result<Self>;

    /// A link is up: from now on it is looked at, for bytes to read. Epoll goes on watching its
    /// descriptor for reading, which tells bells and the end of the peer.
    fn add(&mut self, id: u32, link: &Arc<L>);

    /// Changes what a link is looked at for: bytes to read (or the end), and room to write.
    fn modify(&mut self, id: u32, interest: Interest);

    /// A link is not used any more. Ids are given again.
    fn remove(&mut self, id: u32);

    /// Whether a call of [`Pulse::look`] is worth it: asked by each poll of a program that finds
    /// nothing on the link that was just active, so it has to be fast. May overlook links for some
    /// calls, not for ever.
    fn is_due(&mut self) -> bool;

    /// Adds the links that have what they are looked at for. May leave some for the next call.
    fn look(&mut self, seen: &mut Vec<Seen>);

    /// Somebody will sleep: from now on peers make the descriptor of their link readable when they
    /// write, or make room that this side waits for; each peer at least the first time after every
    /// call of this. Then looks at all links: whether any has what it is looked at for already, so
    /// that nobody may sleep.
    fn arm(&mut self) -> bool;

    /// Nobody sleeps: peers need not tell.
    fn disarm(&mut self);

    /// Lets peers reach a region past the stream, once they are told; `None` where none may.
    fn open_grant(&mut self) -> Option<Grant> {
        None
    }

    /// From now on no peer begins to reach the region; [`Link::is_claimed`](crate::Link::is_claimed)
    /// says whether one is at it.
    fn close_grant(&mut self, _: Grant) {}

    /// All links were looked at, or some of them in turn: peers that might reach a region by its
    /// address ([`Link::attach`](crate::Link::attach)) see that this side is at it.
    fn have_looked(&mut self) {}
}

/// A link that has what it was looked at for.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its id.
    pub id: u32,
    /// Bytes to read, room to write, or both.
    pub what: Interest,
}

/// Of a transport that epoll knows all of.
#[derive(Debug)]
pub struct Epolled;

impl<L> Pulse<L> for Epolled {
    const LOOKS: bool = false;

    fn open() -> Result<Self> {
        Ok(Self)
    }

    fn add(&mut self, _: u32, _: &Arc<L>) {}

    fn modify(&mut self, _: u32, _: Interest) {}

    fn remove(&mut self, _: u32) {}

    fn is_due(&mut self) -> bool {
        false
    }

    fn look(&mut self, _: &mut Vec<Seen>) {}

    fn arm(&mut self) -> bool {
        false
    }

    fn disarm(&mut self) {}
}

/// Whether a domain over this transport looks at links itself.
pub(crate) const fn looks<T: Transport>() -> bool {
    <T::Pulse as Pulse<T::Link>>::LOOKS
}

/// Looks for what comes while it is asked for bells again, before it is left to the timer.
const ROUNDS: u32 = 64;

impl<T: Transport> State<T> {
    /// Handles the links that have something. Returns how many, and the last one.
    #[inline(never)]
    pub(crate) fn look(&mut self) -> (u32, u32) {
        let (mut active, mut last) = (0, NIL);
        let mut seen = std::mem::take(&mut self.seen);
        self.pulse.look(&mut seen);
        for Seen { id, what } in seen.drain(..) {
            // One that was handled before may have ended others.
            if !self
                .connection(id)
                .is_some_and(|connection| connection.is_up())
            {
                continue;
            }
            if what.write {
                self.flush(id);
            }
            if what.read {
                self.read_connection(id);
            }
            (active, last) = (active + 1, id);
        }
        self.seen = seen;
        self.have_looked();
        (active, last)
    }

    /// As [`State::look`], where epoll is not asked as well. Returns whether any had something.
    #[inline(never)]
    pub(crate) fn look_only(&mut self) -> bool {
        let (active, last) = self.look();
        match active {
            0 => self.hot.pass(),
            _ => self.note_active(active, last),
        }
        self.release_hot();
        if !self.waiters.is_empty() {
            self.wake_waiters();
        }
        active > 0
    }

    /// A thread is about to sleep until epoll wakes it. Returns whether it must not, since there is
    /// something to do; otherwise [`State::wake_up`] follows.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        if !looks::<T>() {
            return false;
        }
        if !self.exposed.is_empty() {
            self.tell_applied(usize::MAX);
        }
        let due = self.ask_for_bells();
        if due {
            self.spare_bells();
        } else {
            self.sleepers = self.sleepers.saturating_add(1);
        }
        due
    }

    /// Peers have to tell from now on. Returns whether nobody may sleep, since there is something.
    pub(crate) fn ask_for_bells(&mut self) -> bool {
        self.armed = true;
        self.pulse.arm()
    }

    /// Peers need not tell any more, unless somebody sleeps.
    pub(crate) fn spare_bells(&mut self) {
        if looks::<T>() && self.armed && !self.is_awaited() {
            self.armed = false;
            self.pulse.disarm();
        }
    }

    /// A thread has slept.
    pub(crate) fn wake_up(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        self.spare_bells();
    }

    /// Whether anybody sleeps, here or on a descriptor that the program was lent.
    fn is_awaited(&self) -> bool {
        self.sleepers > 0 || self.waiters.any_outside()
    }

    /// A bell was heard, and taken away from all others who sleep: it is asked for again.
    #[cold]
    #[inline(never)]
    pub(crate) fn rearm(&mut self) {
        self.rung = false;
        for _ in 0..ROUNDS {
            if !self.is_awaited() || !self.ask_for_bells() {
                return;
            }
            self.look();
        }
        // Peers that write without end: whoever sleeps is woken to look.
        self.start_timer();
    }
}
