//! Active endpoints.

use std::os::fd::RawFd;
use std::sync::Arc;

use ripstop_mem::UserBuf;
use ripstop_types::{AtomicOp, Context, Datatype, EpType, Errno, FiAddr, Flags, Result, RmaIov};

use super::{
    AtomicCall, CollCall, DataCall, Direction, Domain, EpOption, JoinCall, RecvKind, RmaCall,
    SendKind, Threshold, Token,
};
use crate::Address;
use crate::eq::EventQueue;

/// An active endpoint (man pages `fi_endpoint(3)`, `fi_msg(3)`, `fi_tagged(3)`, `fi_cm(3)`).
///
/// Data calls return [`Errno::EAGAIN`] when the transmit queue is full (read a completion, then try
/// again; receives are taken as long as there is memory), [`Errno::EINVAL`] for more than the endpoint's `iov_limit` segments or an address the
/// vector does not hold, [`Errno::EMSGSIZE`] beyond the inject or message size,
/// [`Errno::EOPBADSTATE`] before the endpoint is enabled, and [`Errno::ENOTCONN`] on a
/// connected endpoint without a connection. A receive that is posted after the end of a connection
/// takes what had arrived before, or else fails in the completion queue with
/// [`Errno::ENOTCONN`]. `flags: None` means the endpoint's default
/// operation flags (`fi_send`), `Some` those of the call (`fi_sendmsg`).
pub trait Endpoint: Sized + 'static {
    /// The domain it belongs to.
    type Domain: Domain<Endpoint = Self>;

    /// MSG or RDM.
    fn ep_type(&self) -> EpType;

    /// Binds a completion queue; `flags` are `SEND` (which is `FI_TRANSMIT`), `RECV` and `SELECTIVE_COMPLETION`.
    ///
    /// # Errors
    /// [`Errno::EBADFLAGS`] for other flags, [`Errno::EDOMAIN`] for a queue of another domain, [`Errno::EINVAL`]
    /// for an enabled endpoint or a second queue.
    fn bind_cq(&self, cq: &Arc<<Self::Domain as Domain>::Cq>, flags: Flags) -> Result<()>;

    /// Binds a counter; `flags` are any of `SEND`, `RECV`, `READ`, `WRITE`, `REMOTE_*`.
    ///
    /// # Errors
    /// As for [`Endpoint::bind_cq`].
    fn bind_counter(
        &self,
        counter: &Arc<<Self::Domain as Domain>::Counter>,
        flags: Flags,
    ) -> Result<()>;

    /// Binds the address vector (RDM). A connected endpoint has no use for one, and ignores or refuses it.
    ///
    /// # Errors
    /// [`Errno::EDOMAIN`] for one of another domain, [`Errno::EINVAL`] for an enabled endpoint, one that is a context of
    /// another, or a second one.
    fn bind_av(&self, av: &Arc<<Self::Domain as Domain>::Av>) -> Result<()>;

    /// Binds the event queue (MSG).
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a second one.
    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()>;

    /// Receives from a shared context instead of its own queue.
    ///
    /// # Errors
    /// [`Errno::EDOMAIN`] for one of another domain, [`Errno::EINVAL`] for an enabled endpoint or a second one. Endpoints with
    /// address vectors that share a context must have the same one, or [`Endpoint::enable`] refuses.
    fn bind_srx(&self, srx: &Arc<<Self::Domain as Domain>::SharedRx>) -> Result<()>;

    /// Has its messages received through another provider, who also gets what ends: no
    /// receive can be posted, and [`Endpoint::cancel`] of one is [`Errno::ENOSYS`].
    ///
    /// # Errors
    /// As for [`Endpoint::bind_srx`]; [`Errno::EINVAL`] for an endpoint that is not
    /// [`EpType::Rdm`].
    fn bind_peer_rx(&self, rx: &Arc<<Self::Domain as Domain>::PeerRx>) -> Result<()>;

    /// Sends through a shared context. It has no queue or counter of its own: completions go
    /// to those of the endpoint.
    ///
    /// # Errors
    /// [`Errno::EDOMAIN`] for one of another domain, [`Errno::EINVAL`] for an enabled endpoint, one that only
    /// receives, or a second one.
    fn bind_stx(&self, stx: &Arc<<Self::Domain as Domain>::SharedTx>) -> Result<()>;

    /// Takes the endpoint into use.
    ///
    /// # Errors
    /// [`Errno::ENOCQ`], [`Errno::ENOAV`], [`Errno::ENOEQ`] for what is not bound.
    fn enable(&self) -> Result<()>;

    /// The local address.
    ///
    /// # Errors
    /// [`Errno::EOPBADSTATE`] before there is one.
    fn name(&self) -> Result<Address>;

    /// Sets the local address, before the endpoint is enabled.
    ///
    /// # Errors
    /// [`Errno::EINVAL`], [`Errno::EOPBADSTATE`].
    fn set_name(&self, address: &Address) -> Result<()>;

    /// The peer's address (MSG).
    ///
    /// # Errors
    /// [`Errno::ENOTCONN`]; [`Errno::ENOSYS`] on RDM.
    fn peer(&self) -> Result<Address>;

    /// Starts to connect (MSG), with up to [`EpOption::CmDataSize`] bytes for the peer. The outcome is an event.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for too much data or a bad state.
    fn connect(&self, address: &Address, data: &[u8]) -> Result<()>;

    /// Accepts the request the endpoint was opened with (MSG).
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for too much data or without a request.
    fn accept(&self, data: &[u8]) -> Result<()>;

    /// Ends the connection (MSG).
    ///
    /// # Errors
    /// [`Errno::ENOTCONN`].
    fn shutdown(&self) -> Result<()>;

    /// The descriptor of the socket of a connected endpoint (`FI_GET_FD`), so that its options can be
    /// set, also before it connects. It is the endpoint's, and closed with its connection.
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] on RDM and without sockets, [`Errno::EOPBADSTATE`] where there is none yet or
    /// no more.
    fn fd(&self) -> Result<RawFd> {
        Err(Errno::ENOSYS)
    }

    /// Reads an option.
    ///
    /// # Errors
    /// [`Errno::ENOPROTOOPT`] for one the provider does not have.
    fn option(&self, option: EpOption) -> Result<usize>;

    /// Sets an option.
    ///
    /// # Errors
    /// [`Errno::ENOPROTOOPT`], [`Errno::EINVAL`].
    fn set_option(&self, option: EpOption, value: usize) -> Result<()>;

    /// The default operation flags (`FI_GETOPSFLAG`).
    fn op_flags(&self, direction: Direction) -> Flags;

    /// Replaces the default operation flags (`FI_SETOPSFLAG`).
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for flags that are not operation flags.
    fn set_op_flags(&self, direction: Direction, flags: Flags) -> Result<()>;

    /// Posts a send of up to `iov_limit` segments. `data` is remote CQ data.
    ///
    /// # Errors
    /// See the trait.
    fn send(
        &self,
        kind: SendKind,
        iov: &[UserBuf],
        data: Option<u64>,
        dest: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()>;

    /// Sends a small message whose buffer is free on return; no completion is written.
    ///
    /// # Errors
    /// See the trait.
    fn inject(&self, kind: SendKind, buf: UserBuf, data: Option<u64>, dest: FiAddr) -> Result<()>;

    /// Posts a receive; `flags` may carry `MULTI_RECV`, `PEEK`, `CLAIM`, `DISCARD`.
    ///
    /// # Errors
    /// See the trait; [`Errno::ENOMSG`] for a claim without a claimed message.
    fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()>;

    /// Reads a peer's memory into up to `iov_limit` segments.
    ///
    /// # Errors
    /// See the trait; [`Errno::EINVAL`] when the two sides are not equally long. What the peer
    /// denies is an error entry: [`Errno::EKEYREJECTED`] for a key it does not know,
    /// [`Errno::EACCES`] for memory not registered for that, [`Errno::EFAULT`] for bytes
    /// outside the region.
    fn read(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()>;

    /// Writes up to `iov_limit` segments to a peer's memory.
    ///
    /// # Errors
    /// As for [`Endpoint::read`]. A write that had been completed before the peer denied it
    /// has context 0 in its error entry; one with [`Flags::DELIVERY_COMPLETE`] has its own.
    fn write(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()>;

    /// Writes a small buffer that is free on return; no completion is written.
    ///
    /// # Errors
    /// As for [`Endpoint::write`].
    fn inject_write(
        &self,
        buf: UserBuf,
        remote: RmaIov,
        data: Option<u64>,
        peer: FiAddr,
    ) -> Result<()>;

    /// Carries out an atomic on a peer's memory.
    ///
    /// # Errors
    /// See the trait; [`Errno::EOPNOTSUPP`] for an operation the datatype does not have, or
    /// when the peer has no atomics (also as an error entry, if it is not connected yet);
    /// [`Errno::EINVAL`] for lengths that do not fit each other. What the peer denies is an
    /// error entry as for [`Endpoint::read`], with [`Errno::EINVAL`] for memory that is not
    /// aligned to the datatype.
    fn atomic(&self, operand: &[UserBuf], call: &AtomicCall<'_>) -> Result<()>;

    /// Carries out a plain atomic whose operands are free on return; no completion is written.
    ///
    /// # Errors
    /// As for [`Endpoint::atomic`].
    fn inject_atomic(
        &self,
        operand: UserBuf,
        datatype: Datatype,
        op: AtomicOp,
        remote: RmaIov,
        peer: FiAddr,
    ) -> Result<()>;

    /// Joins a collective group (`fi_join_collective(3)`), which `token` names in events: an
    /// event says when all members have joined, or why they do not.
    ///
    /// # Errors
    /// [`Errno::ENOEQ`] without an event queue, [`Errno::EINVAL`] for members that the address
    /// vector does not hold or among which the endpoint is not, [`Errno::ENOSYS`] for an
    /// endpoint without collectives.
    fn join(
        self: &Arc<Self>,
        call: &JoinCall<'_>,
        token: Token,
    ) -> Result<Arc<<Self::Domain as Domain>::Group>>;

    /// How many members a group has.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an address that is no group's, [`Errno::EOPBADSTATE`] before all
    /// have joined.
    fn group_size(&self, group: FiAddr) -> Result<usize>;

    /// Starts a collective operation of a group. All members start the same ones in the same
    /// order. Buffers that [`CollCall`] says nothing of are not looked at; that of a broadcast is
    /// the result.
    ///
    /// # Errors
    /// See the trait; as for [`Endpoint::group_size`]; [`Errno::EINVAL`] for a root that is no
    /// member and for short buffers, [`Errno::EOPNOTSUPP`] for an operation that the datatype
    /// does not have or the group is not for. When members disagree on the operation, one of
    /// them cannot be reached or has left, those who cannot go on get an error entry with
    /// [`Errno::EINVAL`], a code of the connection, or [`Errno::ECANCELED`].
    fn collective(&self, input: UserBuf, result: UserBuf, call: &CollCall) -> Result<()>;

    /// Posts a data transfer when a counter has that many successes (`FI_TRIGGER`,
    /// `fi_trigger(3)`); at once if it has. What is wrong with it and found only then is an
    /// error entry. Payload with [`Flags::INJECT`] is copied by this call, everything else of
    /// the payload is not looked at before.
    ///
    /// # Errors
    /// [`Errno::EDOMAIN`] for a counter of another domain; [`Errno::EOPNOTSUPP`] for an endpoint
    /// without [`Flags::TRIGGER`]; [`Errno::EAGAIN`] when too many wait; see the trait.
    fn trigger(&self, call: &DataCall<'_>, when: Threshold<'_, Self::Domain>) -> Result<()>;

    /// Cancels the oldest receive posted with this context that no message has matched, or an operation that waits
    /// for its threshold or for its peer to be connected; it completes with [`Errno::ECANCELED`] in the error
    /// queue. So does one that has failed, if that was not read yet.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when no such operation can be cancelled. Should one with this context be under way, and fail
    /// later, it does so with [`Errno::ECANCELED`].
    fn cancel(&self, context: Context) -> Result<()>;
}
