//! What the objects of a domain need of the way its endpoints reach each other.

pub(crate) mod direct_access;
pub(crate) mod ending;
pub(crate) mod in_place;
pub(crate) mod joint_copy;
pub(crate) mod link;
pub(crate) mod listener;
pub(crate) mod offer;
pub(crate) mod readiness;
pub(crate) mod registering;
pub mod rxm;
pub mod xnet;

use std::fmt::{self, Debug};
use std::time::Duration;

use ripstop_engine::stream::{MAX_ATOMIC, PacketTerms};
use ripstop_os::Connect;
use ripstop_types::{Errno, Result};
use ripstop_wire::WireError;
use ripstop_wire::xnet::rdm::Greeting;

use crate::addr::Addr;
use crate::system::System;
use crate::transport::link::Link;
use crate::transport::listener::Listener;
use crate::transport::readiness::Readiness;
use crate::transport::registering::Registering;
use crate::tunables::Tunables;

/// How many connections of a domain are wanted. Beyond that those that were used longest ago end while they have nothing
/// to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionBound {
    /// So many.
    pub most: usize,
    /// One that was used within this time is left alone.
    pub idle: Duration,
}

/// A way for endpoints of one kind to reach each other. It stands for a provider in the types of
/// its objects; there is no value of it.
pub trait Transport: Debug + Sized + Send + Sync + 'static {
    /// The name of the provider, in lines of the log.
    const NAME: &'static str;

    /// The prefix of the parameters that all transports have, without `FI_`.
    const PARAMS: &'static str = Self::NAME;

    /// Whether it has connected endpoints (`FI_EP_MSG`).
    const CONNECTED: bool = true;

    /// Whether endpoints may ask that writes and messages wait for the reads before them
    /// (`FI_ORDER_WAR`, `FI_ORDER_RMA_WAR`, `FI_ORDER_SAR`).
    const AFTER_READS: bool;

    /// Whether there may be firewalls between peers (`FI_FIREWALL_ADDR`).
    const KNOWS_FIREWALLS: bool = false;

    /// The provider's parameters.
    type Params: AsRef<Tunables> + Debug + Send + Sync + 'static;

    /// How endpoints are named.
    type Addr: Addr;

    /// One end of a connection.
    type Link: Link<Addr = Self::Addr>;

    /// Where connections arrive.
    type Listener: Listener<Link = Self::Link, Addr = Self::Addr>;

    /// Where the objects get their time and their events from: [`Os`](crate::Os), but in a simulation.
    type System: System;

    /// The readiness of a domain's links; [`EpollOnly`](crate::EpollOnly) where epoll reports all.
    type Readiness: Readiness<Self::Link>;

    /// The id of the process whose endpoints these are, by which peers tell it from one that had its
    /// address before.
    fn pid(_: &Self::Params) -> u32 {
        ripstop_os::pid()
    }

    /// The address of an endpoint or listener whose `fi_info` names none.
    fn default_source(params: &Self::Params) -> Self::Addr;

    /// The address that an RDM endpoint of the domain with this name listens at, where its `fi_info` has this
    /// source address.
    fn rdm_source(
        params: &Self::Params,
        _domain: Option<&str>,
        asked: Option<Self::Addr>,
    ) -> Self::Addr {
        asked.unwrap_or_else(|| Self::default_source(params))
    }

    /// Whether this process is behind a firewall, so that it connects to its peers and they do not
    /// connect to it. They are told so.
    fn is_firewalled(_: &Self::Params) -> bool {
        false
    }

    /// Whether regions that are registered with [`Sharing::IfSealed`] are checked, where links
    /// have [direct access](Link::Direct).
    ///
    /// [`Sharing::IfSealed`]: ripstop_core::provider::Sharing::IfSealed
    fn checks_regions(_: &Self::Params) -> bool {
        false
    }

    /// Whether peers may access regions by their address, and this side those of peers, where links
    /// [attach](crate::DirectAccess::attach).
    fn uses_attach(_: &Self::Params) -> bool {
        false
    }

    /// A listener at `addr`, to which nobody can connect before [`Listener::listen`].
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`; `EMFILE` and other errors of the system.
    fn bind(params: &Self::Params, addr: &Self::Addr) -> Result<Self::Listener>;

    /// As [`Transport::bind`], where the program has chosen the name of an endpoint itself
    /// (`fi_setname(3)`).
    ///
    /// # Errors
    /// As for [`Transport::bind`].
    fn rename(params: &Self::Params, addr: &Self::Addr) -> Result<Self::Listener> {
        Self::bind(params, addr)
    }

    /// Listeners for the contexts of a scalable endpoint with this address, by their index; `count`
    /// is 1 to 16. Peers are told of one address and find the others from it.
    ///
    /// # Errors
    /// As for [`Transport::bind`]; the reason is in the log.
    fn bind_contexts(
        params: &Self::Params,
        addr: &Self::Addr,
        count: usize,
    ) -> Result<Vec<Self::Listener>>;

    /// Whether the receivers of this link may get the payload of long messages from the memory of
    /// their sender ([`DirectAccess::get`]).
    ///
    /// [`DirectAccess::get`]: crate::DirectAccess::get
    fn gets_messages(_params: &Self::Params, _link: &Self::Link) -> bool {
        false
    }

    /// Starts to connect to the listener at `to`.
    ///
    /// # Errors
    /// `ECONNREFUSED` and the like where the peer is not there, upon which it is tried again;
    /// `EMFILE`, `ENOMEM` and `ENOBUFS` where something is missing on this machine.
    fn connect(
        params: &Self::Params,
        to: &Self::Addr,
        from: Origin<Self>,
    ) -> Result<(Self::Link, Connect)>;

    /// Prepares a link for use, on both sides, before the first message of this side is sent.
    /// `dscp` is the code point of its packets, 0 to 63, or none for the system's own.
    ///
    /// # Errors
    /// Of the system; the connection is given up.
    fn prepare(params: &Self::Params, link: &Self::Link, dscp: Option<u8>) -> Result<()>;

    /// The data of the connection request of an RDM endpoint at `own`: at most
    /// [`MAX_DATA`](ripstop_wire::xnet::cm::MAX_DATA) bytes, which [`Transport::read_request`] of
    /// the peer parses. The greeting has no port.
    ///
    /// # Errors
    /// Of the system; the attempt has failed.
    fn request_data(
        params: &Self::Params,
        readiness: &mut Self::Readiness,
        link: &Self::Link,
        own: &Self::Addr,
        greeting: Greeting,
    ) -> Result<Vec<u8>>;

    /// Parses what [`Transport::request_data`] made on the other side: the greeting and the address of
    /// the endpoint that connects. `from` is what [`Listener::accept`] said.
    ///
    /// # Errors
    /// Why it is refused; a line in the log says so.
    fn read_request(
        params: &Self::Params,
        readiness: &mut Self::Readiness,
        link: &Self::Link,
        from: &Self::Addr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, Self::Addr), HandshakeError>;

    /// The data of the answer of an endpoint that accepts.
    ///
    /// # Errors
    /// As for [`Transport::request_data`].
    fn reply_data(
        readiness: &mut Self::Readiness,
        link: &Self::Link,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        let _ = (readiness, link);
        Ok(greeting.emit().to_vec())
    }

    /// Parses what [`Transport::reply_data`] made on the other side.
    ///
    /// # Errors
    /// Why the connection is given up; a line in the log says so.
    fn read_reply(
        readiness: &mut Self::Readiness,
        link: &Self::Link,
        data: &[u8],
    ) -> core::result::Result<Greeting, HandshakeError> {
        let _ = (readiness, link);
        Greeting::parse(data).map_err(HandshakeError::Wrong)
    }

    /// Whether messages are in packets (`FI_PROTO_RXM`, `docs/design/rxm.md`).
    fn is_in_packets(_params: &Self::Params) -> bool {
        false
    }

    /// Most bytes of memory that one atomic changes.
    fn max_atomic(_params: &Self::Params) -> usize {
        MAX_ATOMIC
    }

    /// The terms of a connection for packets, from the data of the peer's request or answer, which is
    /// sound. `None` where messages are in no packets.
    fn packets(_params: &Self::Params, _data: &[u8]) -> Option<PacketTerms> {
        None
    }

    /// How many connections of a domain are wanted, of peers that agree on ends of connections (`PacketTerms::parts`);
    /// `None` for any number. Its links count what they do ([`Link::activity`]).
    fn connection_bound(_params: &Self::Params) -> Option<ConnectionBound> {
        None
    }

    /// The data of the refusal of a request with this data: because there is a connection, or
    /// another is made, if `connected`.
    fn refusal_data(request: &[u8], connected: bool) -> Vec<u8> {
        let _ = connected;
        request.to_vec()
    }
}

/// In-place I/O of a transport's links.
pub(crate) type InPlaceOf<T> = <<T as Transport>::Link as Link>::InPlace;

/// Direct access of a transport's links.
pub(crate) type DirectOf<T> = <<T as Transport>::Link as Link>::Direct;

/// Joint copies of a transport's links.
pub(crate) type JointOf<T> = <<T as Transport>::Link as Link>::Joint;

/// Registration of memory by a transport's links.
pub(crate) type RegisteringOf<T> = <<T as Transport>::Link as Link>::Registering;

/// What peers reach a region by, where devices do that.
pub(crate) type RegionOf<T> = <RegisteringOf<T> as Registering<<T as Transport>::Link>>::Region;

/// The poller of a transport's domains.
pub(crate) type PollerOf<T> = <<T as Transport>::System as System>::Poller;

/// Where a connection comes from.
#[derive(Debug)]
pub enum Origin<T: Transport> {
    /// From an endpoint that listens at this address itself, and goes on doing so.
    Listening(T::Addr),
    /// From this address, else from any.
    Address(Option<T::Addr>),
    /// From the address of this listener, which is used up.
    Bound(T::Listener),
}

/// Why a handshake failed.
#[derive(Debug)]
pub enum HandshakeError {
    /// The byte stream ended.
    Ended,
    /// The message is not one.
    Wrong(WireError),
    /// The byte stream failed.
    Failed(Errno),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the connection ended in the handshake"),
            Self::Wrong(error) => fmt::Display::fmt(error, f),
            Self::Failed(error) => fmt::Display::fmt(error, f),
        }
    }
}
