//! Reliable unconnected endpoints.

use std::sync::Arc;

use ripstop_core::Address;
use ripstop_core::provider::RecvKind;

use crate::buf::Bufs;
use crate::domain::Domain;
use crate::error::Result;
use crate::message::{Peer, SendMsg};
use crate::op::Op;
use crate::port::Port;

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
    /// The domain it belongs to.
    #[must_use]
    pub fn domain(&self) -> Domain {
        Domain(Arc::clone(self.0.running()))
    }

    /// Its address, for peers to [insert](Domain::insert) (`fi_getname(3)`).
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` when the domain has failed.
    pub fn address(&self) -> Result<Address> {
        self.0.address()
    }

    /// The most bytes that can be injected.
    #[must_use]
    pub fn inject_size(&self) -> usize {
        self.0.inject_size()
    }

    /// The most bytes of a message.
    #[must_use]
    pub fn max_msg_size(&self) -> usize {
        self.0.max_msg_size()
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
        self.0.start(buf, Some(to), |dest| msg.request(dest))
    }

    /// Sends a small message whose bytes are copied before the call returns (`fi_inject`). It
    /// has no outcome: if it is lost with its peer, only the log tells.
    ///
    /// # Errors
    /// `FI_EMSGSIZE` beyond [`inject_size`](Self::inject_size); `FI_EAGAIN` when the queue is
    /// full: let the domain make progress, or send.
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
}
