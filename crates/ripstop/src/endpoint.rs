//! Reliable unconnected endpoints.

use std::sync::Arc;

use ripstop_core::Address;
use ripstop_core::provider::RecvKind;
use ripstop_types::{AtomicKind, AtomicOp};

use crate::atomic::{Atomic, Element};
use crate::buf::Bufs;
use crate::error::Result;
use crate::message::{Action, Peer, Remote, SendMsg};
use crate::op::Op;
use crate::port::Port;
use crate::rma::WriteMsg;

/// An endpoint that reaches any peer of its domain without connecting (`FI_EP_RDM`, man pages
/// `fi_endpoint(3)`, `fi_msg(3)`, `fi_tagged(3)`).
///
/// A cheap handle, which any thread may use at any time; clones are the same endpoint. It
/// closes when its last handle and operation is gone.
///
/// Messages between two endpoints arrive in order. There is no limit to what can be posted:
/// beyond the sizes of the provider's queues operations wait here, in order, each holding the
/// buffer it was given and nothing more.
///
/// A peer that is gone or unreachable ends the sends to it with an error within seconds, and
/// the receives whose message was on its way. A receive that waits for a message goes on
/// waiting: the peer may come back.
#[derive(Clone, Debug)]
pub struct Endpoint(pub(crate) Arc<Port>);

impl Endpoint {
    /// Its address, for peers to [insert](crate::Domain::insert) (`fi_getname(3)`).
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` when the domain has failed.
    pub fn address(&self) -> Result<Address> {
        self.0.address()
    }

    /// The most bytes that can be injected.
    #[must_use]
    pub fn inject_size(&self) -> usize {
        self.0.inject_size
    }

    /// The most bytes of a message.
    #[must_use]
    pub fn max_msg_size(&self) -> usize {
        self.0.max_msg_size
    }

    /// Sends a message (`fi_send`). Done when the buffer may be used again; the peer may not
    /// have it yet.
    pub fn send<B: Bufs>(&self, buf: B, to: Peer) -> Op<B> {
        self.sendmsg(buf, to, SendMsg::new())
    }

    /// Sends a tagged message (`fi_tsend`), which only tagged receives match.
    pub fn tsend<B: Bufs>(&self, buf: B, tag: u64, to: Peer) -> Op<B> {
        self.sendmsg(buf, to, SendMsg::new().tag(tag))
    }

    /// Sends a message with more to it than bytes (`fi_sendmsg`, `fi_tsendmsg`): tag,
    /// immediate data, completion level.
    pub fn sendmsg<B: Bufs>(&self, buf: B, to: Peer, msg: SendMsg) -> Op<B> {
        self.0.start(buf, Some(to), msg.action())
    }

    /// Sends a small message whose bytes are copied before the call returns (`fi_inject`). It
    /// has no outcome: if it is lost with its peer, only the log tells.
    ///
    /// # Errors
    /// `FI_EMSGSIZE` beyond [`inject_size`](Self::inject_size); `FI_EAGAIN` when the queue is
    /// full or the peer is not connected to yet: each such call makes progress, so try again, or
    /// send.
    pub fn inject(&self, bytes: &[u8], to: Peer) -> Result<()> {
        self.injectmsg(bytes, to, SendMsg::new())
    }

    /// As [`inject`](Self::inject), with a tag (`fi_tinject`).
    ///
    /// # Errors
    /// As for [`inject`](Self::inject).
    pub fn tinject(&self, bytes: &[u8], tag: u64, to: Peer) -> Result<()> {
        self.injectmsg(bytes, to, SendMsg::new().tag(tag))
    }

    /// As [`inject`](Self::inject), with tag and immediate data (`fi_tinjectdata`). Completion
    /// levels do not apply.
    ///
    /// # Errors
    /// As for [`inject`](Self::inject).
    pub fn injectmsg(&self, bytes: &[u8], to: Peer, msg: SendMsg) -> Result<()> {
        self.0.inject(bytes, Some(to), msg)
    }

    /// Receives a message (`fi_recv`), from one peer or with `None` from any.
    ///
    /// A message longer than the buffer fills it, and ends the receive with `FI_ETRUNC`.
    pub fn recv<B: Bufs>(&self, buf: B, from: impl Into<Option<Peer>>) -> Op<B> {
        self.0.recv(buf, RecvKind::Msg, from.into())
    }

    /// Receives a tagged message (`fi_trecv`) whose tag equals `tag` in all bits that are not
    /// set in `ignore`, from one peer or with `None` from any.
    pub fn trecv<B: Bufs>(
        &self,
        buf: B,
        tag: u64,
        ignore: u64,
        from: impl Into<Option<Peer>>,
    ) -> Op<B> {
        let kind = RecvKind::Tagged { tag, ignore };
        self.0.recv(buf, kind, from.into())
    }

    /// Drops the messages, not the tagged ones, that have come from one peer or with `None` from
    /// any and that nobody has received (`FI_PEEK` with `FI_DISCARD`, `fi_recvmsg`). Returns how
    /// many, at most 65,536 at a time; never blocks.
    ///
    /// What nobody receives is kept, up to the provider's bounds (for `tcp` 64 MiB of one peer);
    /// then the peer is not read any more, answers that others wait for included, and a line in
    /// the log says so. So programs that give up waiting for an answer drop it when it comes:
    /// those with a tag of their own by [`tdiscard`](Self::tdiscard).
    ///
    /// # Errors
    /// `FI_EINVAL` for a peer that this domain does not hold.
    pub fn discard(&self, from: impl Into<Option<Peer>>) -> Result<usize> {
        self.0.discard(RecvKind::Msg, from.into())
    }

    /// As [`discard`](Self::discard), for tagged messages that [`trecv`](Self::trecv) would take
    /// (`fi_trecvmsg`).
    ///
    /// # Errors
    /// As there.
    pub fn tdiscard(&self, tag: u64, ignore: u64, from: impl Into<Option<Peer>>) -> Result<usize> {
        let kind = RecvKind::Tagged { tag, ignore };
        self.0.discard(kind, from.into())
    }

    /// Reads a peer's memory into the buffer (`fi_read`), as many bytes as that has. Done when
    /// they are there.
    ///
    /// What the peer does not allow is an error, and reads nothing: `FI_EKEYREJECTED` for a key
    /// it does not know, `FI_EACCES` for memory that is not for reading, `FI_EFAULT` for bytes
    /// outside the region.
    ///
    /// ```
    /// # use ripstop::{Access, Hints};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    /// let domain = Hints::rdm().rma().source(local).open()?;
    /// let (a, b) = (domain.endpoint()?, domain.endpoint()?);
    /// let to_b = domain.insert(b.address()?)?;
    /// let region = b.domain().register(vec![0; 4096], Access::ALL)?;
    ///
    /// // `remote` is what a peer must know: an address and a key.
    /// let (written, _) = a.write(b"hello".to_vec(), to_b, region.remote(100)).wait();
    /// written?;
    /// let (read, buf) = a.read(vec![0; 7], to_b, region.remote(99)).wait();
    /// read?;
    /// assert_eq!(buf, b"\0hello\0");
    /// assert_eq!(&region.into_buf()[100..105], b"hello");
    /// # Ok(())
    /// # }
    /// ```
    pub fn read<B: Bufs>(&self, buf: B, to: Peer, at: Remote) -> Op<B> {
        self.0.start(buf, Some(to), Action::Read(at))
    }

    /// Writes the buffer to a peer's memory (`fi_write`). Done when it is there.
    ///
    /// What the peer does not allow is an error, as for [`read`](Self::read), and changes nothing.
    pub fn write<B: Bufs>(&self, buf: B, to: Peer, at: Remote) -> Op<B> {
        self.writemsg(buf, to, at, WriteMsg::new())
    }

    /// Writes with more to say (`fi_writemsg`): immediate data, completion level, fence.
    pub fn writemsg<B: Bufs>(&self, buf: B, to: Peer, at: Remote, msg: WriteMsg) -> Op<B> {
        self.0.start(buf, Some(to), msg.action(at))
    }

    /// Writes a few bytes that are copied before the call returns (`fi_inject_write`). It has no
    /// outcome: if it is refused, only the log tells.
    ///
    /// # Errors
    /// As for [`inject`](Self::inject).
    pub fn inject_write(&self, bytes: &[u8], to: Peer, at: Remote) -> Result<()> {
        self.0.inject_write(bytes, Some(to), at)
    }

    /// Combines elements of a peer's memory with operands (`fi_atomic`), each in one step that no
    /// other atomic interrupts. Done when that has happened; the outcome has no values.
    pub fn atomic<T: Element>(
        &self,
        op: AtomicOp,
        operands: &[T],
        to: Peer,
        at: Remote,
    ) -> Atomic<T> {
        self.0
            .atomic(AtomicKind::Plain, op, [operands, &[]], (Some(to), at))
    }

    /// As [`atomic`](Self::atomic), and gives the values from before (`fi_fetch_atomic`).
    ///
    /// ```
    /// # use ripstop::{Access, AtomicOp, Hints};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    /// let domain = Hints::rdm().rma().atomic().source(local).open()?;
    /// let (a, b) = (domain.endpoint()?, domain.endpoint()?);
    /// let to_b = domain.insert(b.address()?)?;
    /// let counter = domain.register(vec![0; 8], Access::ALL)?;
    /// for expected in 0..3 {
    ///     let before = a.fetch_atomic(AtomicOp::Sum, &[1_u64], to_b, counter.remote(0));
    ///     assert_eq!(before.wait()?, [expected]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_atomic<T: Element>(
        &self,
        op: AtomicOp,
        operands: &[T],
        to: Peer,
        at: Remote,
    ) -> Atomic<T> {
        self.0
            .atomic(AtomicKind::Fetch, op, [operands, &[]], (Some(to), at))
    }

    /// Reads `count` elements of a peer's memory, each in one step (`fi_fetch_atomic` with
    /// `FI_ATOMIC_READ`).
    pub fn atomic_read<T: Element>(&self, count: usize, to: Peer, at: Remote) -> Atomic<T> {
        self.0.atomic_read(count, (Some(to), at))
    }

    /// Replaces elements of a peer's memory by operands where they compare (`fi_compare_atomic`):
    /// with [`AtomicOp::Cswap`] where they equal `compare`. Gives the values from before.
    pub fn compare_atomic<T: Element>(
        &self,
        op: AtomicOp,
        operands: &[T],
        compare: &[T],
        to: Peer,
        at: Remote,
    ) -> Atomic<T> {
        self.0
            .atomic(AtomicKind::Compare, op, [operands, compare], (Some(to), at))
    }
}
