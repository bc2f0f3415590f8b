//! One connection as the driver knows it: its link, what waits to be written, its deadlines. Its
//! protocol state is the engine's [`Conn`](ripstop_engine::stream::Conn) of the same id.

use std::sync::Arc;
use std::time::Duration;

use ripstop_engine::id::{ConnId, EpId};
use ripstop_engine::stream::cm::CmReader;
use ripstop_os::Interest;
use ripstop_types::Errno;

use crate::state::tx_buffer::TxBuffer;
use crate::transport::direct_access::DirectAccess;
use crate::transport::readiness::is_polled;
use crate::transport::{DirectOf, Transport};

/// How long a peer whose connection has ended may take to listen again before what only it can do
/// fails.
pub(crate) const MAX_RESTART_TIME: Duration = Duration::from_secs(1);

/// How far a connection has come.
#[derive(Debug)]
pub(crate) enum Phase {
    /// There is no link: a refused attempt waits to be repeated, or for the peer to connect.
    Waiting,
    /// `connect` is under way.
    Connecting,
    /// The request is out; the answer is read.
    Asked(Box<CmReader>),
    /// Messages flow.
    Up,
}

/// Which way a connection is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Both ways.
    Both,
    /// The receiving end of a connection of an endpoint to itself.
    Loopback,
    /// Its sending end.
    ToItself,
}

#[derive(Debug)]
pub(crate) struct Connection<T: Transport> {
    /// Shared with the short list of connections that are read first.
    pub(crate) link: Option<Arc<T::Link>>,
    /// Tells events of this connection from those of an earlier one with the same id.
    pub(crate) generation: u32,
    pub(crate) phase: Phase,
    pub(crate) role: Role,
    pub(crate) ep: EpId,
    pub(crate) is_rdm: bool,
    pub(crate) peer: T::Addr,
    /// The context of the peer at the other end; its port is that of the peer plus this.
    pub(crate) context: u8,
    /// The process at the other end, once it has said so.
    pub(crate) peer_pid: Option<u32>,
    /// The peer has said that nobody can connect to it.
    pub(crate) firewalled: bool,
    pub(crate) tx_buffer: TxBuffer,
    /// Bytes read that the engine could not take yet.
    pub(crate) leftover: Vec<u8>,
    /// The burst in which it sent its last message.
    pub(crate) last_burst: u32,
    /// This side has offered regions to the peer.
    pub(crate) offered: bool,
    /// The peer has offered regions that this side has mapped.
    pub(crate) mapped: bool,
    /// Those regions.
    pub(crate) windows: <DirectOf<T> as DirectAccess<T::Link>>::Windows,
    /// It is in [`State::dirty`](crate::state::State::dirty): bytes wait to be written, or are held by the kernel.
    pub(crate) dirty: bool,
    /// The kernel holds bytes of it back (`MSG_MORE`) until [`Link::push`](crate::Link::push).
    pub(crate) held_by_kernel: bool,
    /// What epoll watches.
    pub(crate) interest: Interest,
    /// When to give up connecting, or waiting for an answer.
    pub(crate) deadline: Option<Duration>,
    /// What was left of the time to connect when the waiting for an answer began.
    connect_time_left: Option<Duration>,
    /// Part of an answer has come.
    answer_begun: bool,
    /// When to say that the peer is waited for.
    pub(crate) answer_log_at: Option<Duration>,
    /// Calls that inject were told to come again once it is up.
    pub(crate) injects_wait: bool,
    /// When to connect again.
    pub(crate) retry: Option<Duration>,
    /// There was a connection with this peer before, which ended.
    pub(crate) was_connected: bool,
    /// Since when every attempt was refused (`ECONNREFUSED`): nobody listens there.
    pub(crate) refused_since: Option<Duration>,
    /// How long to wait after the next failure.
    pub(crate) retry_pause: Option<Duration>,
    /// What [`Link::activity`](crate::Link::activity) was when it was looked at last, where connections are bounded
    /// (`conn/parting.rs`).
    pub(crate) activity: u64,
    /// When that was found to have changed, or the peer was asked to end the connection.
    pub(crate) last_used: Duration,
    /// The peer was asked to end it, so the next change of [`Self::activity`] is no use of the connection.
    pub(crate) asked_to_part: bool,
    /// The peer did not agree, and the connection was not used since.
    pub(crate) stays: bool,
    /// Both sides have agreed to end it.
    pub(crate) parted: bool,
    /// The peer takes nothing any more; what it sent before is still read.
    pub(crate) write_ended: bool,
    /// When to say that too many messages of the peer wait for receives.
    pub(crate) full_log_at: Option<Duration>,
    /// When what waits for the peer fails, which has ended, though not all that it sent was read.
    pub(crate) unread_deadline: Option<Duration>,
}

impl<T: Transport> Connection<T> {
    pub(crate) fn new(ep: EpId, is_rdm: bool, peer: T::Addr, context: u8, generation: u32) -> Self {
        Self {
            link: None,
            generation,
            phase: Phase::Waiting,
            role: Role::Both,
            ep,
            is_rdm,
            peer,
            context,
            peer_pid: None,
            firewalled: false,
            tx_buffer: TxBuffer::default(),
            leftover: Vec::new(),
            last_burst: 0,
            offered: false,
            mapped: false,
            windows: Default::default(),
            dirty: false,
            held_by_kernel: false,
            interest: Interest::default(),
            deadline: None,
            connect_time_left: None,
            answer_begun: false,
            answer_log_at: None,
            injects_wait: false,
            retry: None,
            was_connected: false,
            refused_since: None,
            retry_pause: None,
            activity: u64::MAX,
            last_used: Duration::ZERO,
            asked_to_part: false,
            stays: false,
            parted: false,
            write_ended: false,
            full_log_at: None,
            unread_deadline: None,
        }
    }

    /// The request is out. Whether the process at the other end answers depends on when it makes
    /// progress, and that it lives is known from its link: it has more time than the way there.
    pub(crate) fn await_answer(&mut self, now: Duration, answer: Duration) {
        self.connect_time_left = self.deadline.map(|deadline| deadline.saturating_sub(now));
        self.answer_begun = false;
        self.answer_log_at = self.deadline;
        self.deadline = Some(now + answer);
    }

    /// Part of an answer has come: its rest has as much time as the way to the peer.
    pub(crate) fn note_answer_begun(&mut self, now: Duration, timeout: Duration) {
        if !self.answer_begun {
            self.answer_begun = true;
            self.answer_log_at = None;
            self.deadline = self.deadline.map(|deadline| deadline.min(now + timeout));
        }
    }

    /// Nobody was there to answer: the time to connect went on while an answer was waited for.
    pub(crate) fn note_never_asked(&mut self, now: Duration) {
        let end = self.answer_log_at.unwrap_or(now);
        self.connect_time_left = Some(end.saturating_sub(now));
    }

    /// An attempt to connect has failed: no answer is waited for, and the rest of the time to connect goes on.
    pub(crate) fn note_attempt_failed(&mut self, now: Duration) {
        self.answer_log_at = None;
        if let Some(left) = self.connect_time_left.take() {
            self.deadline = self.deadline.map(|_| now + left);
        }
    }

    /// Until when attempts to connect are repeated: `deadline`, or before where the peer was connected and nobody
    /// listens there any more.
    pub(crate) fn retry_until(&self, deadline: Duration) -> Duration {
        let back = self
            .refused_since
            .filter(|_| self.was_connected)
            .map(|since| since + MAX_RESTART_TIME);
        back.map_or(deadline, |back| back.min(deadline))
    }

    /// Leaves at most this much time to connect, with or without an answer under way.
    pub(crate) fn limit_connect_time(&mut self, now: Duration, most: Duration) {
        self.deadline = self.deadline.map(|deadline| deadline.min(now + most));
        self.connect_time_left = self.connect_time_left.map(|left| left.min(most));
    }

    /// Whether the domain polls its link itself.
    pub(crate) fn is_polled(&self) -> bool {
        self.link.as_ref().is_some_and(|link| is_polled::<T>(link))
    }

    #[inline]
    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up)
    }
}

/// A connection to be closed.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) id: ConnId,
    /// Of the connection, in case its id is given to another before this is handled.
    pub(crate) generation: u32,
    pub(crate) error: Errno,
}
