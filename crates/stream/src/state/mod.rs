//! What a domain owns behind its lock: the engine, the connections, and how they make progress.

pub(crate) mod accepting;
pub(crate) mod active;
pub(crate) mod by_id;
pub(crate) mod connection;
mod copies;
pub(crate) mod ep;
pub(crate) mod fast_path;
pub(crate) mod held;
pub(crate) mod joint_get;
pub(crate) mod place;
pub(crate) mod slots;
pub(crate) mod tx_buffer;
pub(crate) mod waiters;
pub(crate) mod watch;
pub(crate) mod yield_policy;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::EventQueue;
use ripstop_core::provider::Token;
use ripstop_engine::id::{AvId, ConnId, EpId, GroupId, MrId, SlotId, SrxId};
use ripstop_engine::stream::{Engine, Limits};
use ripstop_mem::UserBuf;
use ripstop_os::{EventFd, Events, Interest, Spare};
use ripstop_types::{Context, Errno, FiAddr, Flags, Result};

use crate::addr::Addr;
use crate::logging::SPARE;
use crate::state::accepting::AcceptQueue;
use crate::state::active::ActiveConnections;
use crate::state::by_id::ById;
use crate::state::connection::{Connection, Ending};
use crate::state::held::Works;
use crate::state::joint_get::JointGet;
use crate::state::slots::Slots;
use crate::state::tx_buffer::FAST_SEND_BUFFER;
use crate::state::waiters::Waiters;
use crate::state::watch::Watch;
use crate::state::yield_policy::YieldPolicy;
use crate::system::{Poller as _, System, Timer as _};
use crate::transport::offer::Offer;
use crate::transport::readiness::{Readiness, ReadyLink, polls_links};
use crate::transport::{PollerOf, Transport};
use crate::tunables::{TX_BUFFER, Tunables};

pub(crate) use crate::state::ep::EpState;

/// Bytes read from a link at once when headers or small messages are expected.
pub(crate) const RX_BUFFER: usize = 16 * 1024;

/// The same where a payload is expected that does not fit there.
const SHORT_RX_BUFFER: usize = 1024;

/// How often deadlines are checked while there are any.
pub(crate) const TIMER_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of direct accesses between two calls of progress, or this many small operations.
pub(crate) const DIRECT_BYTES_BUDGET: u32 = 1 << 20;

/// The peers of an address vector, of the addresses of this transport.
pub(crate) type AvTableOf<T> = <<T as Transport>::Addr as Addr>::Table;

/// What a domain has offered.
#[derive(Debug)]
pub(crate) struct Exposed {
    pub(crate) region: MrId,
    pub(crate) offer: Offer,
    /// How many others the domain had offered before.
    pub(crate) number: u64,
}

/// The link of a closed connection whose peer may still be at work in regions (`region/half_closed.rs`).
#[derive(Debug)]
pub(crate) struct HalfClosed<L> {
    pub(crate) link: Arc<L>,
    /// [`State::exposures`] when the connection was closed. The peer was told of no later region by it: a claim of the same slot is
    /// one of an earlier region.
    pub(crate) exposures: u64,
}

impl<L> HalfClosed<L> {
    /// The link, if the peer may be at work in a region by it.
    pub(crate) fn reaching(&self, region: &Exposed) -> Option<&Arc<L>> {
        (region.number < self.exposures).then_some(&self.link)
    }
}

/// A group as the driver knows it, by the engine's id.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) addr: FiAddr,
    pub(crate) ep: EpId,
    pub(crate) eq: Arc<EventQueue>,
    pub(crate) token: Token,
    pub(crate) context: Context,
    /// The operations it is for.
    pub(crate) operations: Flags,
}

/// All that a domain has behind its lock. It is the driver of its [`Engine`]: it moves the bytes that the engine tells of.
/// Every module of this crate adds methods for its part of that.
#[derive(Debug)]
pub(crate) struct State<T: Transport> {
    pub(crate) engine: Engine<UserBuf>,
    pub(crate) connections: ById<ConnId, Connection<T>>,
    pub(crate) eps: ById<EpId, EpState<T>>,
    pub(crate) avs: ById<AvId, AvTableOf<T>>,
    /// Peers that cannot be connected to, by their address vector: they connect to this process
    /// (`FI_FIREWALL_ADDR`).
    pub(crate) firewalled: HashSet<(AvId, FiAddr)>,
    pub(crate) accepting: AcceptQueue<T>,
    pub(crate) slots: Slots,
    pub(crate) epoll: Arc<PollerOf<T>>,
    pub(crate) params: Arc<T::Params>,
    pub(crate) timer: <T::System as System>::Timer,
    /// The receiving ends of connections of endpoints to themselves; some may have ended.
    pub(crate) loopbacks: Vec<ConnId>,
    /// How often the timer goes off; zero when it is not set.
    pub(crate) timer_period: Duration,
    /// When connections were last checked, see [`Link::CHECKS_PEER`](crate::Link::CHECKS_PEER).
    pub(crate) peers_checked_at: Duration,
    /// The log has said that connections are not bounded, see [`Transport::connection_bound`].
    pub(crate) told_unbounded: bool,
    /// What epoll reported to the last full poll.
    pub(crate) events: Events,
    /// A full poll is under way: what it does may make progress, but no other full poll.
    pub(crate) full_poll_runs: bool,
    /// The receive buffer: of [`RX_BUFFER`] bytes, or of [`SHORT_RX_BUFFER`] while long payloads are expected. See
    /// [`State::choose_rx_buffer`].
    pub(crate) rx_buffer: Box<[u8]>,
    /// The one that is not in use.
    pub(crate) other_rx_buffer: Box<[u8]>,
    /// The next payload is expected to be as long as the last one, which did not fit in a receive buffer.
    pub(crate) expects_long: bool,
    /// Bytes in the receive buffer, after a fast poll that answered `Received`.
    pub(crate) rx_len: usize,
    /// Why the active link has ended, after a fast poll that answered `Ended`.
    pub(crate) rx_error: Errno,
    /// Where a small message is put together.
    pub(crate) scratch: Box<[u8; FAST_SEND_BUFFER]>,
    /// Connections of which writing was put off to the next progress ([`State::put_off`]).
    pub(crate) dirty: Vec<ConnId>,
    /// Something was sent since the last progress.
    pub(crate) burst_open: bool,
    /// Counts the bursts; see [`Connection::last_burst`].
    pub(crate) burst_number: u32,
    /// When the burst began, in ticks.
    pub(crate) burst_began: u32,
    /// Nobody polls: write every message at once.
    pub(crate) unattended: bool,
    pub(crate) active: ActiveConnections<T::Link>,
    pub(crate) readiness: T::Readiness,
    /// Links that are up and of which epoll reports all that happens.
    pub(crate) watched_links: u32,
    /// Links that the last poll has found ready; empty between two polls, kept for its memory.
    pub(crate) ready_links: Vec<ReadyLink>,
    /// Threads that sleep here.
    pub(crate) sleepers: u32,
    /// Peers ring the doorbell when they write ([`Readiness::arm`]).
    pub(crate) doorbells_armed: bool,
    /// A doorbell rang and was drained: it has to be armed again.
    pub(crate) doorbell_rang: bool,
    pub(crate) generation: u32,
    /// Connections that have ended, and are closed once all others were polled.
    pub(crate) ending: Vec<Ending>,
    /// The highest context of a peer that any connection was with.
    pub(crate) max_context: u8,
    pub(crate) waiters: Waiters<Arc<EventFd>>,
    pub(crate) watch: Watch,
    pub(crate) yield_policy: YieldPolicy,
    pub(crate) works: Works,
    pub(crate) groups: ById<GroupId, GroupState>,
    /// Regions that peers may map.
    pub(crate) exposed: Vec<Exposed>,
    /// How many regions it has offered so far, those that are closed included ([`Exposed::number`]).
    pub(crate) exposures: u64,
    /// Regions that are closing, which peers may still be at work in.
    pub(crate) withdrawn: Vec<Exposed>,
    /// Links of closed connections whose peers may still be at work in regions.
    pub(crate) half_closed: Vec<HalfClosed<T::Link>>,
    /// How long a peer that is connected may take to begin its part of a handshake.
    pub(crate) answer_timeout: Duration,
    /// Payloads of which the sender has yet to copy a part.
    pub(crate) joint_gets: Vec<JointGet>,
    /// The connection whose peer was told last what is applied.
    pub(crate) last_told: usize,
    /// Bytes of direct accesses that are left until progress is made.
    pub(crate) direct_budget: u32,
    /// Operations that still go by the stream before attach is tried again, since the peer polls.
    pub(crate) ops_before_attach: u32,
    /// Operations that go by the stream at once where what was sent before is not applied yet.
    pub(crate) ops_before_settling: u32,
    /// As many as that was at first.
    pub(crate) unsettled_ops: u32,
}

impl<T: Transport> State<T> {
    pub(crate) fn new(params: Arc<T::Params>, epoll: Arc<PollerOf<T>>) -> Result<Self> {
        let tunables: &Tunables = (*params).as_ref();
        let answer_timeout = tunables.answer;
        let timer = <T::System as System>::Timer::new()
            .inspect_err(lacks!(T::Domain, "timer (timerfd_create)"))?;
        epoll.add(&timer, token::TIMER, Interest::READ)?;
        let spare = Spare::new().inspect_err(lacks!(T::Domain, SPARE))?;
        Ok(Self {
            engine: Engine::new(Limits {
                tx_buffer: TX_BUFFER,
                inline: tunables.inline,
                eager_max: tunables.eager_max,
                kept_bytes: tunables.kept_bytes,
                kept_messages: tunables.kept_messages,
                kept_longest: tunables.kept_longest,
                kept_total: tunables.kept_total,
                ask_first: RX_BUFFER as u64,
            }),
            connections: ById::new(),
            eps: ById::new(),
            avs: ById::new(),
            firewalled: HashSet::new(),
            accepting: AcceptQueue::new(spare),
            slots: Slots::default(),
            epoll,
            params,
            timer,
            timer_period: Duration::ZERO,
            peers_checked_at: Duration::ZERO,
            told_unbounded: false,
            events: Events::with_capacity(64),
            full_poll_runs: false,
            loopbacks: Vec::new(),
            rx_buffer: vec![0; RX_BUFFER].into_boxed_slice(),
            other_rx_buffer: vec![0; SHORT_RX_BUFFER].into_boxed_slice(),
            expects_long: false,
            rx_len: 0,
            rx_error: Errno(0),
            scratch: Box::new([0; FAST_SEND_BUFFER]),
            dirty: Vec::new(),
            burst_open: false,
            burst_began: 0,
            burst_number: 0,
            unattended: false,
            active: ActiveConnections::default(),
            readiness: Readiness::open()?,
            watched_links: 0,
            ready_links: Vec::new(),
            sleepers: 0,
            doorbells_armed: false,
            doorbell_rang: false,
            generation: 0,
            ending: Vec::new(),
            max_context: 0,
            waiters: Waiters::default(),
            watch: match T::System::WATCHES {
                true => Watch::new(),
                false => Watch::default(),
            },
            yield_policy: YieldPolicy::new(!polls_links::<T>()),
            works: Works::default(),
            groups: ById::new(),
            exposed: Vec::new(),
            exposures: 0,
            withdrawn: Vec::new(),
            half_closed: Vec::new(),
            answer_timeout,
            last_told: 0,
            direct_budget: DIRECT_BYTES_BUDGET,
            joint_gets: Vec::new(),
            ops_before_attach: 0,
            ops_before_settling: 0,
            unsettled_ops: 0,
        })
    }

    /// The parameters that all transports have.
    pub(crate) fn tunables(&self) -> &Tunables {
        AsRef::as_ref(&*self.params)
    }

    #[inline]
    pub(crate) fn connection(&mut self, id: ConnId) -> Option<&mut Connection<T>> {
        self.connections.get_mut(id)
    }

    /// Whether there is such a connection, and its handshake is over.
    #[inline]
    pub(crate) fn is_up(&self, id: ConnId) -> bool {
        self.connections.get(id).is_some_and(Connection::is_up)
    }

    #[inline]
    pub(crate) fn ep(&mut self, id: EpId) -> Option<&mut EpState<T>> {
        self.eps.get_mut(id)
    }

    /// The least free space at which a multi-receive buffer of a receive context stays posted.
    pub(crate) fn min_multi_recv(&mut self, srx: SrxId) -> Result<&mut u64> {
        let matcher = self.engine.srx_mut(srx).ok_or(Errno::EOPBADSTATE)?;
        Ok(&mut matcher.min_multi_recv)
    }

    pub(crate) fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// Fills a slot from user memory.
    pub(crate) fn fill_slot(&mut self, slot: SlotId, parts: [&[UserBuf]; 2]) -> Result<()> {
        let segments = || parts.into_iter().flatten();
        let total: usize = segments().map(|s| s.len()).sum();
        let memory = self.slots.make(slot, total as u64)?;
        let mut at = 0;
        for segment in segments() {
            at += ripstop_mem::copy_in(&mut memory[at..], *segment);
        }
        Ok(())
    }
}

/// What an epoll event is about, in the token's upper byte.
pub(crate) mod token {
    pub(crate) const CONNECTION: u64 = 0;
    pub(crate) const LISTENER: u64 = 1 << 56;
    pub(crate) const ACCEPTING: u64 = 2 << 56;
    pub(crate) const TIMER: u64 = 3 << 56;
    pub(crate) const WAKE: u64 = 4 << 56;
    pub(crate) const WORK: u64 = 5 << 56;
    pub(crate) const HALF_CLOSED: u64 = 6 << 56;
    pub(crate) const KIND: u64 = 0xff << 56;

    pub(crate) const fn connection(id: super::ConnId, generation: u32) -> u64 {
        CONNECTION | (((generation & 0xff_ffff) as u64) << 32) | id.number() as u64
    }
}
