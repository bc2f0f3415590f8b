//! Connected endpoints.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ripstop_core::provider::RecvKind;
use ripstop_core::{Address, FidToken, Info};
use ripstop_types::{AtomicKind, AtomicOp, EpType, Errno};

use crate::atomic::{Atomic, Element};
use crate::backend::AnyEndpoint;
use crate::buf::Bufs;
use crate::cm::Phase;
use crate::error::{Error, Operation, Result};
use crate::message::{Action, Remote, SendMsg};
use crate::op::Op;
use crate::port::Port;
use crate::rma::WriteMsg;
use crate::running::Running;
use crate::watch::Watch;

/// A connection that is being made: a future of the [`Connection`].
///
/// Dropping it gives the attempt up.
#[derive(Debug)]
#[must_use = "the attempt to connect ends when this is dropped"]
pub struct Connecting {
    /// The endpoint, or why there is none; nothing once it is ready.
    port: Option<Result<Arc<Port>>>,
    operation: Operation,
    running: Arc<Running>,
    watch: Watch,
}

impl Connecting {
    pub(crate) fn start(running: &Arc<Running>, address: &Address, data: &[u8]) -> Self {
        let what = Operation::Connect;
        let info = Info {
            handle: None,
            dest_addr: Some(address.clone()),
            ..running.core.info.clone()
        };
        Self::open(running, &info, what, |object| object.connect(address, data))
    }

    pub(crate) fn accept(running: &Arc<Running>, info: &Info, data: &[u8]) -> Self {
        Self::open(running, info, Operation::Accept, |object| {
            object.accept(data)
        })
    }

    fn open(
        running: &Arc<Running>,
        info: &Info,
        operation: Operation,
        begin: impl FnOnce(&AnyEndpoint) -> std::result::Result<(), Errno>,
    ) -> Self {
        let peer = || info.dest_addr.clone();
        let port = if info.ep.ep_type == EpType::Msg {
            Port::open(running, info, operation)
        } else {
            Err(Error::new(Errno::EINVAL, operation))
        };
        let begun = port.and_then(|port| {
            let begun = port.object(operation, begin);
            begun.map(|()| port)
        });
        let token = begun.as_ref().map_or(FidToken::NONE, |port| port.token);
        Self {
            port: Some(begun.map_err(|error| error.with_peer(peer()))),
            operation,
            running: Arc::clone(running),
            watch: Watch::new(Arc::clone(&running.core), token),
        }
    }

    /// Waits for the connection, driving the domain meanwhile.
    ///
    /// # Errors
    /// As for the future.
    pub fn wait(mut self) -> Result<Connection> {
        let core = Arc::clone(&self.running.core);
        core.block_on(|cx| Pin::new(&mut self).poll(cx))
    }

    /// As [`wait`](Self::wait), at most for `timeout`.
    ///
    /// # Errors
    /// The attempt itself, still under way, when the time is over.
    pub fn wait_timeout(
        mut self,
        timeout: Duration,
    ) -> std::result::Result<Result<Connection>, Self> {
        let end = Instant::now().checked_add(timeout);
        let core = Arc::clone(&self.running.core);
        let made = core.block(end, |cx| Pin::new(&mut self).poll(cx));
        made.ok_or(self)
    }
}

impl Future for Connecting {
    /// The errors: `FI_ECONNREFUSED` when nobody listens or the listener rejects
    /// ([`Error::data`] is what it said), `FI_ETIMEDOUT` when the peer does not answer, and
    /// `FI_EINVAL` for data beyond 256 bytes.
    type Output = Result<Connection>;

    /// # Panics
    /// When it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let port = match this.port.take().expect("polled after it was ready") {
            Ok(port) => port,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let token = port.token;
        let over = port.core().poll(
            cx.waker(),
            true,
            |table, _| match table.connections.phase(token) {
                Phase::Connecting => None,
                phase => Some((phase, table.connections.take_data(token))),
            },
            |table, later| this.watch.set(table, cx.waker(), later),
        );
        let Poll::Ready((phase, data)) = over else {
            this.port = Some(Ok(port));
            return Poll::Pending;
        };
        Poll::Ready(match phase {
            Phase::Failed(errno) => Err(port.error(errno, this.operation).with_data(data)),
            Phase::Connecting | Phase::Up | Phase::Ended => Ok(Connection {
                port,
                data: data.into(),
            }),
        })
    }
}

/// A connected endpoint (`FI_EP_MSG`, man pages `fi_endpoint(3)`, `fi_cm(3)`, `fi_msg(3)`,
/// `fi_tagged(3)`).
///
/// A cheap handle, which any thread may use at any time; clones are the same connection. It
/// ends by [`shutdown`](Self::shutdown), when its last handle and operation is gone, or with
/// the peer; all its operations end then, with an error if they are not done.
///
/// As for an [`Endpoint`](crate::Endpoint), messages arrive in order, and there is no limit to
/// what can be posted.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) port: Arc<Port>,
    data: Arc<[u8]>,
}

impl Connection {
    /// What the listener said when it accepted; empty on its side.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The local address (`fi_getname(3)`).
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` when the domain has failed.
    pub fn address(&self) -> Result<Address> {
        self.port.address()
    }

    /// The peer's address (`fi_getpeer(3)`).
    ///
    /// # Errors
    /// `FI_ENOTCONN` where the provider forgets it with the connection.
    pub fn peer(&self) -> Result<Address> {
        self.port.object(Operation::Address, AnyEndpoint::peer)
    }

    /// The most bytes that can be injected.
    #[must_use]
    pub fn inject_size(&self) -> usize {
        self.port.inject_size
    }

    /// The most bytes of a message.
    #[must_use]
    pub fn max_msg_size(&self) -> usize {
        self.port.max_msg_size
    }

    /// Sends a message; see [`Endpoint::send`](crate::Endpoint::send).
    pub fn send<B: Bufs>(&self, buf: B) -> Op<B> {
        self.sendmsg(buf, SendMsg::new())
    }

    /// Sends a tagged message; see [`Endpoint::tsend`](crate::Endpoint::tsend).
    pub fn tsend<B: Bufs>(&self, buf: B, tag: u64) -> Op<B> {
        self.sendmsg(buf, SendMsg::new().tag(tag))
    }

    /// Sends a message with tag, immediate data or completion level; see
    /// [`Endpoint::sendmsg`](crate::Endpoint::sendmsg).
    pub fn sendmsg<B: Bufs>(&self, buf: B, msg: SendMsg) -> Op<B> {
        self.port.start(buf, None, msg.action())
    }

    /// Sends a small message whose bytes are copied before the call returns; see
    /// [`Endpoint::inject`](crate::Endpoint::inject).
    ///
    /// # Errors
    /// As there, and `FI_ENOTCONN` when the connection has ended.
    pub fn inject(&self, bytes: &[u8]) -> Result<()> {
        self.injectmsg(bytes, SendMsg::new())
    }

    /// As [`inject`](Self::inject), with tag and immediate data.
    ///
    /// # Errors
    /// As for [`inject`](Self::inject).
    pub fn injectmsg(&self, bytes: &[u8], msg: SendMsg) -> Result<()> {
        self.port.inject(bytes, None, msg)
    }

    /// Receives a message; see [`Endpoint::recv`](crate::Endpoint::recv).
    pub fn recv<B: Bufs>(&self, buf: B) -> Op<B> {
        self.port.recv(buf, RecvKind::Msg, None)
    }

    /// Receives a tagged message; see [`Endpoint::trecv`](crate::Endpoint::trecv).
    pub fn trecv<B: Bufs>(&self, buf: B, tag: u64, ignore: u64) -> Op<B> {
        self.port.recv(buf, RecvKind::Tagged { tag, ignore }, None)
    }

    /// See [`Endpoint::discard`](crate::Endpoint::discard).
    ///
    /// # Errors
    /// As there.
    pub fn discard(&self) -> Result<usize> {
        self.port.discard(RecvKind::Msg, None)
    }

    /// See [`Endpoint::tdiscard`](crate::Endpoint::tdiscard).
    ///
    /// # Errors
    /// As there.
    pub fn tdiscard(&self, tag: u64, ignore: u64) -> Result<usize> {
        self.port.discard(RecvKind::Tagged { tag, ignore }, None)
    }

    /// See [`Endpoint::read`](crate::Endpoint::read).
    pub fn read<B: Bufs>(&self, buf: B, at: Remote) -> Op<B> {
        self.port.start(buf, None, Action::Read(at))
    }

    /// See [`Endpoint::write`](crate::Endpoint::write).
    pub fn write<B: Bufs>(&self, buf: B, at: Remote) -> Op<B> {
        self.writemsg(buf, at, WriteMsg::new())
    }

    /// See [`Endpoint::writemsg`](crate::Endpoint::writemsg).
    pub fn writemsg<B: Bufs>(&self, buf: B, at: Remote, msg: WriteMsg) -> Op<B> {
        self.port.start(buf, None, msg.action(at))
    }

    /// See [`Endpoint::inject_write`](crate::Endpoint::inject_write).
    ///
    /// # Errors
    /// As there, and `FI_ENOTCONN` when the connection has ended.
    pub fn inject_write(&self, bytes: &[u8], at: Remote) -> Result<()> {
        self.port.inject_write(bytes, None, at)
    }

    /// See [`Endpoint::atomic`](crate::Endpoint::atomic).
    pub fn atomic<T: Element>(&self, op: AtomicOp, operands: &[T], at: Remote) -> Atomic<T> {
        self.port
            .atomic(AtomicKind::Plain, op, [operands, &[]], (None, at))
    }

    /// See [`Endpoint::fetch_atomic`](crate::Endpoint::fetch_atomic).
    pub fn fetch_atomic<T: Element>(&self, op: AtomicOp, operands: &[T], at: Remote) -> Atomic<T> {
        self.port
            .atomic(AtomicKind::Fetch, op, [operands, &[]], (None, at))
    }

    /// See [`Endpoint::atomic_read`](crate::Endpoint::atomic_read).
    pub fn atomic_read<T: Element>(&self, count: usize, at: Remote) -> Atomic<T> {
        self.port.atomic_read(count, (None, at))
    }

    /// See [`Endpoint::compare_atomic`](crate::Endpoint::compare_atomic).
    pub fn compare_atomic<T: Element>(
        &self,
        op: AtomicOp,
        operands: &[T],
        compare: &[T],
        at: Remote,
    ) -> Atomic<T> {
        self.port
            .atomic(AtomicKind::Compare, op, [operands, compare], (None, at))
    }

    /// Ends the connection (`fi_shutdown(3)`), on both sides; fine if it has ended already.
    /// Await what must arrive before.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` when the domain has failed; of the provider.
    pub fn shutdown(&self) -> Result<()> {
        self.port.object(Operation::Shutdown, AnyEndpoint::shutdown)
    }

    /// Whether the connection has ended, as far as is known without making progress.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let token = self.port.token;
        let phase = |table: &mut crate::table::Table, _: &mut _| table.connections.phase(token);
        self.port.core().with(phase) != Phase::Up
    }

    /// Ready when the connection has ended, from whichever side. Dropping the future leaves
    /// nothing behind.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let port = Arc::clone(&self.port);
        let mut watch = Watch::new(Arc::clone(port.core()), port.token);
        std::future::poll_fn(move |cx| {
            port.core().poll(
                cx.waker(),
                false,
                |table, _| {
                    let phase = table.connections.phase(port.token);
                    matches!(phase, Phase::Ended | Phase::Failed(_)).then_some(())
                },
                |table, later| watch.set(table, cx.waker(), later),
            )
        })
    }
}
