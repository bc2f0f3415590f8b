//! The connection manager: ids that listen, connect, accept and end, as `rdma_cm(7)` says.
//!
//! A connection of two ids is a TCP connection at the port that the program names; it carries requests, replies and
//! private data, and its end is the end of the connection. Each has a thread that reads it, and so has each
//! listener. What happens is an event on the channel of the id.

mod attr;
mod datagrams;
mod events;
mod listen;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ripstop_types::{Errno, Result};

use crate::device::gid_of;
use crate::engine::Engine;
use crate::engine::cq::Unacked;
use crate::log::{self, Subsys, refuse};
use crate::sys::{
    IBV_QP_STATE, IBV_QPS_ERR, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_CM_EVENT_UNREACHABLE, ibv_gid, ibv_qp_attr,
};
use attr::{attributes, of_datagrams, to_rts};
pub(crate) use datagrams::Space;
use events::Outlet;
pub(crate) use events::{Event, Events};
use listen::Listener;
use wire::{Frame, Param, Verb};

/// How long a peer may take to be reached.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a host where nobody listens is tried again: programs that start together do not wait for each other.
const REFUSED: Duration = Duration::from_secs(1);

/// The time between two tries.
const RETRY: Duration = Duration::from_millis(20);

/// How long a peer may take to answer a request. Programs answer when they get to it.
const ANSWER: Duration = Duration::from_secs(60);

/// Status of a rejection by a host where nobody listens: `IB_CM_REJ_INVALID_SERVICE_ID`.
const NOBODY: i32 = 8;

/// Status of a rejection by the program: `IB_CM_REJ_CONSUMER_DEFINED`.
const BY_PROGRAM: i32 = 28;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No connection.
    Idle,
    /// A peer has asked.
    Asked,
    /// This side has asked.
    Asking,
    /// It is accepted, and the other side not known to be ready.
    Accepted,
    /// It stands.
    Established,
    /// The program has ended it, and the reader has not found its end.
    Leaving,
    /// It stood and has ended, and the program has not said that it has seen that.
    Disconnected,
    /// It has ended.
    Ended,
}

/// A queue pair of an id.
#[derive(Clone)]
pub(crate) struct QpOf {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: usize,
    pub(crate) num: u32,
}

struct State {
    phase: Phase,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    socket: Option<TcpListener>,
    listener: Option<Listener>,
    stream: Option<Arc<TcpStream>>,
    qp: Option<QpOf>,
    /// The device and queue pair of the peer, and what it may read at a time.
    remote: (ibv_gid, u32),
    param: Param,
    /// When the program accepted a request.
    accepted: Option<Instant>,
}

/// A connection identifier.
pub(crate) struct Id {
    /// The device.
    pub(crate) engine: Arc<Engine>,
    pub(crate) space: Space,
    /// Locked while an event is posted or withdrawn, before the channel and before an id that came by this one.
    outlet: Mutex<Outlet>,
    /// Its events that the program has and has not acknowledged.
    pub(crate) unacked: Unacked,
    /// The address of its C struct, while there is one.
    pub(crate) token: Mutex<usize>,
    state: Mutex<State>,
}

impl Id {
    /// An id whose events go to a channel, or to one of its own.
    ///
    /// # Errors
    /// Those of [`Channel::new`].
    pub(crate) fn new(
        engine: Arc<Engine>,
        space: Space,
        events: Option<Arc<Events>>,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            engine,
            space,
            outlet: Mutex::new(Outlet::to(events)?),
            unacked: Unacked::default(),
            token: Mutex::new(0),
            state: Mutex::new(State {
                phase: Phase::Idle,
                local: None,
                peer: None,
                socket: None,
                listener: None,
                stream: None,
                qp: None,
                remote: (ibv_gid::default(), 0),
                param: Param::default(),
                accepted: None,
            }),
        }))
    }

    /// Makes an id of a request that came by this listener, and tells the program of it.
    ///
    /// # Errors
    /// `ECONNABORTED` when the program has destroyed the listener; those of [`Id::new`].
    fn asked(self: &Arc<Self>, stream: Arc<TcpStream>, request: &Frame) -> Result<Arc<Self>> {
        let outlet = self.outlet.lock();
        if outlet.closed {
            return Err(Errno::ECONNABORTED);
        }
        let id = Self::new(Arc::clone(&self.engine), self.space, outlet.shared())?;
        {
            let mut state = id.state.lock();
            state.phase = Phase::Asked;
            state.local = stream.local_addr().ok();
            state.peer = stream.peer_addr().ok();
            state.stream = Some(stream);
            state.remote = (request.gid, request.param.qp_num);
            state.param = request.param.clone();
        }
        outlet.channel.post(Event {
            id: Arc::clone(&id),
            listener: Some(Arc::clone(self)),
            kind: RDMA_CM_EVENT_CONNECT_REQUEST,
            status: 0,
            param: request.param.clone(),
        });
        Ok(id)
    }

    /// Its own address and its peer's.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let state = self.state.lock();
        (state.local, state.peer)
    }

    /// Says which queue pair is connected, or that there is none any more.
    pub(crate) fn set_qp(&self, qp: Option<QpOf>) {
        self.state.lock().qp = qp;
    }

    /// Binds a local address (`rdma_bind_addr(3)`).
    ///
    /// # Errors
    /// Those of `bind`.
    pub(crate) fn bind(&self, address: SocketAddr) -> Result<()> {
        let socket = TcpListener::bind(address).map_err(|error| {
            refuse(
                Subsys::EpCtrl,
                errno(&error),
                format_args!("{address} cannot be bound: {error}"),
            )
        })?;
        let mut state = self.state.lock();
        state.local = socket.local_addr().ok();
        state.socket = Some(socket);
        Ok(())
    }

    /// Listens at the address that is bound (`rdma_listen(3)`).
    ///
    /// # Errors
    /// `EINVAL` when it listens already; of starting a thread.
    pub(crate) fn listen(self: &Arc<Self>) -> Result<()> {
        if self.state.lock().socket.is_none() {
            self.bind(SocketAddr::from(([0, 0, 0, 0], 0)))?;
        }
        let mut state = self.state.lock();
        if state.listener.is_some() {
            return Err(Errno::EINVAL);
        }
        let socket = state.socket.take().ok_or(Errno::EINVAL)?;
        state.listener = Some(Listener::start(self, socket)?);
        Ok(())
    }

    /// Finds the local address by which a peer is reached (`rdma_resolve_addr(3)`). The outcome is an event.
    ///
    /// # Errors
    /// Those of [`Id::bind`], for a source that the caller names.
    pub(crate) fn resolve(
        self: &Arc<Self>,
        source: Option<SocketAddr>,
        peer: SocketAddr,
    ) -> Result<()> {
        if let Some(source) = source {
            self.bind(source)?;
        }
        match local_for(peer) {
            Ok(local) => {
                let mut state = self.state.lock();
                state.peer = Some(peer);
                // The port is that of the connection, which is not made yet.
                if state.local.is_none_or(|bound| bound.ip().is_unspecified()) {
                    state.local = Some(SocketAddr::new(local.ip(), 0));
                }
                drop(state);
                self.tell(RDMA_CM_EVENT_ADDR_RESOLVED, 0, Param::default());
            }
            Err(error) => {
                let status = -errno(&error).0;
                log::warn(Subsys::EpCtrl, format_args!("no way to {peer}: {error}"));
                self.tell(RDMA_CM_EVENT_ADDR_ERROR, status, Param::default());
            }
        }
        Ok(())
    }

    /// As `rdma_resolve_route(3)`: there is nothing to find.
    ///
    /// # Errors
    /// `EINVAL` before an address is resolved.
    pub(crate) fn resolve_route(self: &Arc<Self>) -> Result<()> {
        if self.state.lock().peer.is_none() {
            return Err(Errno::EINVAL);
        }
        self.tell(RDMA_CM_EVENT_ROUTE_RESOLVED, 0, Param::default());
        Ok(())
    }

    /// A frame of this side.
    fn frame(&self, verb: Verb, param: Param) -> Frame {
        Frame {
            verb,
            kind: self.engine.choice.kind,
            gid: gid_of(self.engine.choice.ip),
            param: Param {
                qkey: self.space.key(),
                ..param
            },
        }
    }

    /// Parameters with the number of the queue pair, where the id has it.
    fn with_qp(state: &State, mut param: Param) -> Param {
        if let Some(qp) = &state.qp {
            param.qp_num = qp.num;
        }
        param
    }

    /// Asks the peer for a connection (`rdma_connect(3)`). The outcome is an event.
    ///
    /// # Errors
    /// `EINVAL` before an address is resolved, or for an id that connects already.
    pub(crate) fn connect(self: &Arc<Self>, param: Param) -> Result<()> {
        let peer = {
            let mut state = self.state.lock();
            let peer = state.peer.filter(|_| state.phase == Phase::Idle);
            let peer = peer.ok_or_else(|| {
                let why = format_args!("rdma_connect needs an address that is resolved, once");
                refuse(Subsys::EpCtrl, Errno::EINVAL, why)
            })?;
            state.phase = Phase::Asking;
            state.param = Self::with_qp(&state, param);
            peer
        };
        let id = Arc::clone(self);
        spawn(move || id.ask(peer)).map(drop)
    }

    /// Connects to a peer, which may be about to listen.
    fn reach(&self, peer: SocketAddr) -> io::Result<TcpStream> {
        let since = Instant::now();
        loop {
            match TcpStream::connect_timeout(&peer, CONNECT) {
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused
                        && since.elapsed() < REFUSED
                        && self.state.lock().phase == Phase::Asking =>
                {
                    thread::sleep(RETRY);
                }
                end => return end,
            }
        }
    }

    /// The thread of the side that asks.
    fn ask(self: Arc<Self>, peer: SocketAddr) {
        let stream = match self.reach(peer) {
            Ok(stream) => Arc::new(stream),
            Err(error) => {
                log::warn(
                    Subsys::EpCtrl,
                    format_args!("{peer} cannot be reached: {error}"),
                );
                self.state.lock().phase = Phase::Ended;
                match error.kind() {
                    io::ErrorKind::ConnectionRefused => {
                        self.tell_refusal(NOBODY, Param::default());
                    }
                    _ => {
                        let status = -errno(&error).0;
                        self.tell(RDMA_CM_EVENT_UNREACHABLE, status, Param::default());
                    }
                }
                return;
            }
        };
        let request = {
            let mut state = self.state.lock();
            if state.phase != Phase::Asking {
                return;
            }
            state.local = stream.local_addr().ok().or(state.local);
            state.stream = Some(Arc::clone(&stream));
            self.frame(Verb::Request, state.param.clone())
        };
        let answer = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(ANSWER)))
            .and_then(|()| request.write(&*stream))
            .and_then(|()| Frame::read(&*stream));
        let answer = match answer {
            Ok(reply) if reply.verb == Verb::Reply => {
                return match self.space {
                    Space::Connections => self.answered(&stream, reply),
                    Space::Datagrams => self.told_where(&stream, reply),
                };
            }
            other => other,
        };
        self.state.lock().phase = Phase::Ended;
        match answer {
            Ok(reject) if reject.verb == Verb::Reject => {
                self.tell_refusal(BY_PROGRAM, reject.param);
            }
            other => {
                let why = match other {
                    Ok(_) => "it speaks out of turn".into(),
                    Err(error) => error.to_string(),
                };
                log::warn(
                    Subsys::EpCtrl,
                    format_args!("{peer} does not answer a request: {why}"),
                );
                let status = -Errno::ETIMEDOUT.0;
                self.tell(RDMA_CM_EVENT_UNREACHABLE, status, Param::default());
            }
        }
    }

    /// The peer has accepted.
    fn answered(self: Arc<Self>, stream: &TcpStream, reply: Frame) {
        let connected = {
            let mut state = self.state.lock();
            if state.phase != Phase::Asking {
                // The program has destroyed the id.
                return;
            }
            state.remote = (reply.gid, reply.param.qp_num);
            state.phase = Phase::Accepted;
            match reply.kind == self.engine.choice.kind {
                false => Err(Errno::EPROTO),
                true => to_rts(&state),
            }
        };
        let has_qp = match connected {
            Ok(has_qp) => has_qp,
            Err(error) => {
                log::warn(
                    Subsys::EpCtrl,
                    format_args!("the queue pair is not connected: {error}"),
                );
                self.state.lock().phase = Phase::Ended;
                let _ = stream.shutdown(Shutdown::Both);
                self.tell(RDMA_CM_EVENT_CONNECT_ERROR, -error.0, Param::default());
                return;
            }
        };
        if has_qp {
            if self.establish().is_err() {
                // The reader finds the end of the stream.
                log::info(
                    Subsys::EpCtrl,
                    format_args!("the peer went while it was connected"),
                );
            }
            self.tell(RDMA_CM_EVENT_ESTABLISHED, 0, reply.param);
        } else {
            self.tell(RDMA_CM_EVENT_CONNECT_RESPONSE, 0, reply.param);
        }
        self.read(stream, None);
    }

    /// Tells the peer that this side is ready (`rdma_establish(3)`).
    ///
    /// # Errors
    /// `EINVAL` for an id that the peer has not accepted; of the connection.
    pub(crate) fn establish(&self) -> Result<()> {
        let (stream, ready) = {
            let mut state = self.state.lock();
            let stream = state
                .stream
                .clone()
                .filter(|_| state.phase == Phase::Accepted);
            let stream = stream.ok_or(Errno::EINVAL)?;
            state.phase = Phase::Established;
            (stream, self.frame(Verb::Ready, Param::default()))
        };
        ready.write(&*stream).map_err(|error| errno(&error))
    }

    /// Waits for the next frame. A peer whose request the program has accepted may take `patience` to be ready;
    /// the program itself takes the time it takes.
    fn next_frame(&self, stream: &TcpStream, patience: Option<Duration>) -> io::Result<Frame> {
        let mut first = [0];
        while let Err(error) = stream.peek(&mut first) {
            let waits = match error.kind() {
                io::ErrorKind::Interrupted => true,
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    let state = self.state.lock();
                    let since = state.accepted.map_or(Duration::ZERO, |at| at.elapsed());
                    match state.phase {
                        Phase::Asked => true,
                        Phase::Accepted => patience.is_none_or(|patience| since < patience),
                        _ => false,
                    }
                }
                _ => false,
            };
            if !waits {
                return Err(error);
            }
        }
        Frame::read(stream)
    }

    /// Reads a connection to its end; `patience` is how long a peer that has asked may take to be ready.
    fn read(self: Arc<Self>, stream: &TcpStream, patience: Option<Duration>) {
        let _ = stream.set_read_timeout(patience);
        loop {
            let frame = match self.next_frame(stream, patience) {
                Ok(frame) => frame,
                Err(error) => {
                    log::info(
                        Subsys::EpCtrl,
                        format_args!("a connection has ended: {error}"),
                    );
                    break;
                }
            };
            match frame.verb {
                Verb::Ready => {
                    let mut state = self.state.lock();
                    let accepted = state.phase == Phase::Accepted;
                    if accepted {
                        state.phase = Phase::Established;
                    }
                    drop(state);
                    if accepted {
                        // From here on it lasts as long as it lasts.
                        let _ = stream.set_read_timeout(None);
                        self.tell(RDMA_CM_EVENT_ESTABLISHED, 0, Param::default());
                    }
                }
                Verb::Disconnect => break,
                Verb::Request | Verb::Reply | Verb::Reject => {
                    log::warn(
                        Subsys::EpCtrl,
                        format_args!("a peer speaks out of turn: {:?}", frame.verb),
                    );
                    break;
                }
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
        let before = {
            let mut state = self.state.lock();
            let before = state.phase;
            state.phase = match before {
                Phase::Established => Phase::Disconnected,
                _ => Phase::Ended,
            };
            before
        };
        match before {
            Phase::Ended | Phase::Idle | Phase::Disconnected => {}
            Phase::Established | Phase::Leaving => {
                self.tell(RDMA_CM_EVENT_DISCONNECTED, 0, Param::default());
            }
            Phase::Asked | Phase::Asking | Phase::Accepted => {
                self.tell(
                    RDMA_CM_EVENT_CONNECT_ERROR,
                    -Errno::ECONNRESET.0,
                    Param::default(),
                );
            }
        }
    }

    /// Accepts the request that the id is of (`rdma_accept(3)`).
    ///
    /// # Errors
    /// `EINVAL` for an id without a request; of connecting the queue pair; `ECONNRESET` for a peer that is gone.
    pub(crate) fn accept(&self, param: Param) -> Result<()> {
        let (stream, reply) = {
            let mut state = self.state.lock();
            let stream = state.stream.clone().filter(|_| state.phase == Phase::Asked);
            let stream = stream.ok_or_else(|| {
                let why = format_args!("rdma_accept needs the id of a request, once");
                refuse(Subsys::EpCtrl, Errno::EINVAL, why)
            })?;
            match self.space {
                Space::Connections => {
                    to_rts(&state)?;
                    state.phase = Phase::Accepted;
                    state.accepted = Some(Instant::now());
                }
                // The peer hears where its datagrams go, and that is all.
                Space::Datagrams => state.phase = Phase::Ended,
            }
            let param = Self::with_qp(&state, param);
            (stream, self.frame(Verb::Reply, param))
        };
        reply.write(&*stream).map_err(|error| errno(&error))
    }

    /// Refuses the request that the id is of (`rdma_reject(3)`).
    ///
    /// # Errors
    /// `EINVAL` for an id without a request.
    pub(crate) fn reject(&self, private: Vec<u8>) -> Result<()> {
        let stream = {
            let mut state = self.state.lock();
            let stream = state.stream.clone().filter(|_| state.phase == Phase::Asked);
            let stream = stream.ok_or(Errno::EINVAL)?;
            state.phase = Phase::Ended;
            stream
        };
        let reject = self.frame(
            Verb::Reject,
            Param {
                private,
                ..Param::default()
            },
        );
        // A peer that is gone needs no answer.
        let _ = reject.write(&*stream);
        let _ = stream.shutdown(Shutdown::Write);
        Ok(())
    }

    /// Ends the connection (`rdma_disconnect(3)`): the queue pair moves to the state of error, and both sides get
    /// an event. Where the peer was first, that event has come or is about to.
    ///
    /// # Errors
    /// `EINVAL` for an id without a connection, or whose connection the program has ended already.
    pub(crate) fn disconnect(self: &Arc<Self>) -> Result<()> {
        let (qp, stream, before) = {
            let mut state = self.state.lock();
            let before = state.phase;
            let (stream, after) = match before {
                Phase::Idle | Phase::Leaving | Phase::Ended => (None, before),
                Phase::Asked | Phase::Asking | Phase::Accepted => (state.stream.clone(), before),
                Phase::Established => (state.stream.clone(), Phase::Leaving),
                Phase::Disconnected => (state.stream.clone(), Phase::Ended),
            };
            let stream = stream.ok_or_else(|| {
                let why = format_args!("rdma_disconnect needs a connection, once");
                refuse(Subsys::EpCtrl, Errno::EINVAL, why)
            })?;
            state.phase = after;
            (state.qp.clone(), stream, before)
        };
        if let Some(qp) = qp {
            let error = ibv_qp_attr {
                qp_state: IBV_QPS_ERR,
                ..ibv_qp_attr::default()
            };
            // It is there, and this change is always allowed.
            let _ = qp.engine.modify_qp(qp.id, &error, IBV_QP_STATE);
        }
        if before == Phase::Disconnected {
            // The peer was first.
            return Ok(());
        }
        // A peer that is gone needs no word of it; the reader finds the end of the stream.
        let _ = self
            .frame(Verb::Disconnect, Param::default())
            .write(&*stream);
        let _ = stream.shutdown(Shutdown::Both);
        Ok(())
    }

    /// Attributes for a queue pair that the program moves itself (`rdma_init_qp_attr(3)`), with their mask.
    ///
    /// # Errors
    /// `EINVAL` for a state that it has no attributes for.
    pub(crate) fn qp_attr(&self, state: i32) -> Result<(ibv_qp_attr, i32)> {
        match self.space {
            Space::Connections => attributes(&self.state.lock(), state),
            Space::Datagrams => of_datagrams(state),
        }
    }

    /// Ends everything, for the program destroys it: afterwards no event of it is in the channel or comes there.
    /// Requests by it that the program has not heard of end too.
    pub(crate) fn close(self: &Arc<Self>) {
        let (listener, stream) = {
            let mut state = self.state.lock();
            state.phase = Phase::Ended;
            state.socket = None;
            (state.listener.take(), state.stream.take())
        };
        drop(listener);
        if let Some(stream) = stream {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.withdraw();
        *self.token.lock() = 0;
    }
}

/// The local address by which a peer is reached. Nothing is sent.
fn local_for(peer: SocketAddr) -> io::Result<SocketAddr> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    socket.local_addr()
}

/// Starts a thread of the connection manager.
fn spawn(run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name("ripstop-cm".into());
    thread.spawn(run).map_err(|error| {
        refuse(
            Subsys::EpCtrl,
            errno(&error),
            format_args!("no thread: {error}"),
        )
    })
}

/// The number of an error of the standard library.
fn errno(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Errno::ETIMEDOUT.0,
        _ => Errno::EIO.0,
    }))
}
