//! The connection of an endpoint.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_core::eq::{Event, EventError, EventQueue};
use ripstop_core::log::Subsys;
use ripstop_core::provider::Token;
use ripstop_core::{fi_info, fi_warn};
use ripstop_ibverbs::{CmEvent, CmEventKind, CmId, ConnParam, Qp};
use ripstop_types::{Errno, Result};

use crate::cm::OnEvent;
use crate::params::NAME;
use crate::private_data;
use crate::watch::Watch;

/// How long looking for an address or a way takes at most, as in C libfabric.
const RESOLVING: Duration = Duration::from_secs(2);

/// How many reads are under way, and answered, at a time: as many as both devices can.
const ALL: u8 = u8::MAX;

/// How often a packet is sent again before the peer counts as gone.
const RETRIES: u8 = 7;

/// A message for which the peer has no receive is sent again for ever: that is flow control.
const RNR_RETRIES: u8 = 7;

/// What an attempt to connect, or a connection, comes to.
type Outcome = core::result::Result<Event, EventError>;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing was done yet.
    Idle,
    /// On the way, from connecting or accepting until it stands.
    Connecting,
    /// It stands.
    Connected,
    /// It has ended, or did not come about.
    Ended,
}

/// Who posts receives to the queue pair of a connection.
pub(crate) trait Posts: Send + Sync {
    /// Waits until those that are being posted are posted. [`Connection::has_ended`] has changed before.
    fn await_posts(&self);
}

/// What changes.
struct State {
    step: Step,
    id: Option<Arc<CmId>>,
    qp: Option<Arc<Qp>>,
    watch: Option<Arc<Watch>>,
    posts: Option<Weak<dyn Posts>>,
    eq: Option<Arc<EventQueue>>,
    /// What the peer is told with the request.
    data: Vec<u8>,
}

/// A connection.
pub(crate) struct Connection {
    token: Token,
    min_rnr_timer: u8,
    state: Mutex<State>,
    /// Whether it stands, for calls that do not lock.
    stands: AtomicBool,
    /// Whether it has ended, or did not come about.
    ended: AtomicBool,
    /// Whether the peer has gone that had asked for it.
    is_stale: AtomicBool,
}

impl Connection {
    pub(crate) fn new(token: Token, min_rnr_timer: u8) -> Arc<Self> {
        Arc::new(Self {
            token,
            min_rnr_timer,
            state: Mutex::new(State {
                step: Step::Idle,
                id: None,
                qp: None,
                watch: None,
                posts: None,
                eq: None,
                data: Vec::new(),
            }),
            stands: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            is_stale: AtomicBool::new(false),
        })
    }

    /// Whether messages can be sent.
    #[inline]
    pub(crate) fn stands(&self) -> bool {
        self.stands.load(Ordering::Acquire)
    }

    /// Whether nothing is received any more, or will not be in a moment.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The queue for events.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when there is one.
    pub(crate) fn bind(&self, eq: &Arc<EventQueue>) -> Result<()> {
        let mut state = self.state.lock();
        if state.eq.is_some() {
            return Err(Errno::EINVAL);
        }
        state.eq = Some(Arc::clone(eq));
        Ok(())
    }

    pub(crate) fn has_eq(&self) -> bool {
        self.state.lock().eq.is_some()
    }

    /// The peer has gone that had asked for it, so it cannot be accepted.
    pub(crate) fn set_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    /// The id and queue pair that it is made with, the device of both, and who posts receives.
    pub(crate) fn open(
        &self,
        id: &Arc<CmId>,
        qp: &Arc<Qp>,
        watch: &Arc<Watch>,
        posts: Weak<dyn Posts>,
    ) {
        let mut state = self.state.lock();
        state.watch = Some(Arc::clone(watch));
        state.posts = Some(posts);
        state.id = Some(Arc::clone(id));
        state.qp = Some(Arc::clone(qp));
    }

    /// Its endpoint closes: lets go of id and queue pair. Events must not arrive any more.
    pub(crate) fn close(&self) {
        self.stands.store(false, Ordering::Release);
        let mut state = self.state.lock();
        let gone = (state.id.take(), state.qp.take(), state.eq.take());
        drop(state);
        drop(gone);
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for too much data, [`Errno::EOPBADSTATE`] once that was tried; of the device.
    pub(crate) fn connect(&self, peer: &SocketAddr, data: &[u8]) -> Result<()> {
        let data = private_data::emit(data)?;
        let mut state = self.state.lock();
        let id = state.begin()?;
        state.data = data;
        id.resolve_addr(None, peer, RESOLVING).inspect_err(|error| {
            state.step = Step::Ended;
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "{peer} cannot be reached by an RDMA device: {error}"
            );
        })
    }

    /// Accepts the request that the id came with.
    ///
    /// # Errors
    /// As for [`Connection::connect`]; [`Errno::ECONNABORTED`] where the peer has gone.
    pub(crate) fn accept(&self, data: &[u8]) -> Result<()> {
        let data = private_data::emit(data)?;
        let mut state = self.state.lock();
        let id = state.begin()?;
        if self.is_stale.load(Ordering::Acquire) {
            state.step = Step::Ended;
            self.ended.store(true, Ordering::Release);
            fi_info!(
                NAME,
                Subsys::EpCtrl,
                "a connection cannot be accepted: the peer that asked for it has gone"
            );
            return Err(Errno::ECONNABORTED);
        }
        id.accept(&param(&data)).inspect_err(|error| {
            state.step = Step::Ended;
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "a connection cannot be accepted: {error}"
            );
        })
    }

    /// Ends it.
    ///
    /// # Errors
    /// [`Errno::ENOTCONN`] without a connection; of the device.
    pub(crate) fn shut_down(&self) -> Result<()> {
        let state = self.state.lock();
        let id = state.id.as_ref().filter(|_| state.step == Step::Connected);
        let id = id.ok_or(Errno::ENOTCONN)?;
        self.stands.store(false, Ordering::Release);
        id.disconnect()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// [`Errno::ENOTCONN`] before there is a connection.
    pub(crate) fn peer(&self) -> Result<SocketAddr> {
        let state = self.state.lock();
        let connected = matches!(state.step, Step::Connected | Step::Ended);
        let id = state.id.as_ref().filter(|_| connected);
        id.and_then(|id| id.peer_addr()).ok_or(Errno::ENOTCONN)
    }

    /// Does the next step after an event; the outcome of the attempt, if this is it.
    fn step(&self, state: &mut State, event: &CmEvent) -> Option<Outcome> {
        let fail = |err| Some(Err(EventError::new(self.token, err)));
        let id = state.id.clone()?;
        let next = match event.kind {
            CmEventKind::AddrResolved => id.resolve_route(RESOLVING),
            CmEventKind::RouteResolved => id.connect(&param(&state.data)),
            CmEventKind::Established => return self.stand(state, event),
            CmEventKind::Disconnected => return self.end(state, &id),
            CmEventKind::Rejected => {
                return Some(Err(EventError {
                    err_data: private_data::parse(&event.data).to_vec(),
                    ..EventError::new(self.token, Errno::ECONNREFUSED)
                }));
            }
            CmEventKind::AddrError
            | CmEventKind::RouteError
            | CmEventKind::ConnectError
            | CmEventKind::Unreachable => {
                return Some(Err(EventError {
                    prov_errno: event.status.saturating_neg(),
                    ..EventError::new(self.token, Errno::ETIMEDOUT)
                }));
            }
            // Its device is told, which tells all that are on it.
            CmEventKind::DeviceRemoval => return None,
            CmEventKind::AddrChange => return fail(Errno::EADDRNOTAVAIL),
            CmEventKind::ConnectRequest | CmEventKind::TimewaitExit | CmEventKind::Other => {
                return None;
            }
        };
        match next {
            Ok(()) => None,
            Err(error) => fail(error),
        }
    }

    /// The connection stands.
    fn stand(&self, state: &mut State, event: &CmEvent) -> Option<Outcome> {
        state.step = Step::Connected;
        if let Some(qp) = &state.qp
            && let Err(error) = qp.set_min_rnr_timer(self.min_rnr_timer)
        {
            fi_info!(
                NAME,
                Subsys::EpCtrl,
                "the device keeps its own time for peers that find no receive: {error}"
            );
        }
        self.stands.store(true, Ordering::Release);
        Some(Ok(Event::Connected {
            ep: self.token,
            data: private_data::parse(&event.data).to_vec(),
        }))
    }

    /// The connection has ended: what is under way is flushed.
    fn end(&self, state: &mut State, id: &CmId) -> Option<Outcome> {
        if state.step == Step::Ended {
            self.stands.store(false, Ordering::Release);
            return None;
        }
        self.stop(state);
        // The peer has ended it, or this side: then it fails, since it is done.
        if let Err(error) = id.disconnect() {
            fi_info!(NAME, Subsys::EpCtrl, "disconnecting: {error}");
        }
        Some(Ok(Event::Shutdown { ep: self.token }))
    }

    /// From now on nothing is posted. What is being posted is, so that the queue pair ends that, too.
    fn stop(&self, state: &mut State) {
        state.step = Step::Ended;
        self.stands.store(false, Ordering::Release);
        self.ended.store(true, Ordering::Release);
        if let Some(posts) = state.posts.as_ref().and_then(Weak::upgrade) {
            posts.await_posts();
        }
    }

    /// It came to nothing, or cannot go on: what was posted ends, and the peer is told.
    fn fail(&self, state: &mut State) {
        let is_connected = state.step == Step::Connected;
        self.stop(state);
        let told = match &state.id {
            Some(id) if is_connected => id.disconnect(),
            _ => Ok(()),
        };
        let failed = state.qp.as_ref().map_or(Ok(()), |qp| qp.fail());
        if let Err(error) = told.and(failed) {
            fi_info!(
                NAME,
                Subsys::EpCtrl,
                "a connection is gone already: {error}"
            );
        }
    }

    /// Its device is gone.
    pub(crate) fn lose_device(&self, device: &str) {
        let mut state = self.state.lock();
        if state.step == Step::Ended {
            return;
        }
        self.fail(&mut state);
        let error = EventError {
            err_data: device.as_bytes().to_vec(),
            ..EventError::new(self.token, Errno::ENODEV)
        };
        let told = state.eq.as_ref().map_or(Ok(()), |eq| eq.push_error(error));
        if let Err(error) = told {
            fi_warn!(NAME, Subsys::Eq, "an event is lost: {error}");
        }
    }
}

impl State {
    /// The id of an attempt that begins.
    fn begin(&mut self) -> Result<Arc<CmId>> {
        let id = self.id.clone().ok_or(Errno::EOPBADSTATE)?;
        if self.step != Step::Idle {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "an endpoint connects or accepts once; open another one"
            );
            return Err(Errno::EOPBADSTATE);
        }
        self.step = Step::Connecting;
        Ok(id)
    }
}

impl OnEvent for Connection {
    fn watch(&self) -> Option<Arc<Watch>> {
        self.state.lock().watch.clone()
    }

    fn event(&self, event: CmEvent) {
        let mut state = self.state.lock();
        let outcome = self.step(&mut state, &event);
        let Some(eq) = state.eq.clone() else { return };
        let pushed = match outcome {
            None => return,
            Some(Ok(event)) => eq.push(event),
            Some(Err(error)) => {
                self.fail(&mut state);
                fi_info!(
                    NAME,
                    Subsys::EpCtrl,
                    "no connection: {:?}, status {}",
                    event.kind,
                    event.status
                );
                eq.push_error(error)
            }
        };
        drop(state);
        if let Err(error) = pushed {
            fi_warn!(NAME, Subsys::Eq, "an event is lost: {error}");
        }
    }
}

fn param(data: &[u8]) -> ConnParam<'_> {
    ConnParam {
        data,
        responder_resources: ALL,
        initiator_depth: ALL,
        retries: RETRIES,
        rnr_retries: RNR_RETRIES,
    }
}
