//! The one error type.

use std::fmt;

use ripstop_core::Address;
use ripstop_core::registry::NoInfo;
use ripstop_types::Errno;

/// What was being done when an [`Error`] happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Choosing an interface (`fi_getinfo(3)`).
    GetInfo,
    /// Opening a fabric (`fi_fabric(3)`).
    OpenFabric,
    /// Opening a domain (`fi_domain(3)`).
    OpenDomain,
    /// Opening an endpoint (`fi_endpoint(3)`).
    OpenEndpoint,
    /// Listening for connections (`fi_listen(3)`).
    Listen,
    /// Connecting (`fi_connect(3)`).
    Connect,
    /// Accepting a connection (`fi_accept(3)`).
    Accept,
    /// Rejecting a connection (`fi_reject(3)`).
    Reject,
    /// Ending a connection (`fi_shutdown(3)`).
    Shutdown,
    /// Using an address vector (`fi_av(3)`).
    Address,
    /// Sending (`fi_send(3)`).
    Send,
    /// Sending with a tag (`fi_tsend(3)`).
    TaggedSend,
    /// Injecting (`fi_inject(3)`).
    Inject,
    /// Receiving (`fi_recv(3)`).
    Recv,
    /// Receiving by tag (`fi_trecv(3)`).
    TaggedRecv,
    /// Dropping messages nobody receives (`FI_DISCARD`, `fi_msg(3)`).
    Discard,
    /// Registering memory (`fi_mr(3)`).
    Register,
    /// Reading a peer's memory (`fi_rma(3)`).
    Read,
    /// Writing a peer's memory (`fi_rma(3)`).
    Write,
    /// An atomic on a peer's memory (`fi_atomic(3)`).
    Atomic,
    /// Making progress, or waiting for it (`fi_cq(3)`, `fi_eq(3)`).
    Progress,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GetInfo => "choosing an interface",
            Self::OpenFabric => "opening a fabric",
            Self::OpenDomain => "opening a domain",
            Self::OpenEndpoint => "opening an endpoint",
            Self::Listen => "listening",
            Self::Connect => "connecting",
            Self::Accept => "accepting a connection",
            Self::Reject => "rejecting a connection",
            Self::Shutdown => "ending a connection",
            Self::Address => "using the address vector",
            Self::Send => "sending",
            Self::TaggedSend => "sending with a tag",
            Self::Inject => "injecting",
            Self::Recv => "receiving",
            Self::TaggedRecv => "receiving by tag",
            Self::Discard => "dropping messages",
            Self::Register => "registering memory",
            Self::Read => "reading remote memory",
            Self::Write => "writing remote memory",
            Self::Atomic => "an atomic on remote memory",
            Self::Progress => "making progress",
        })
    }
}

/// The result of a call; operations give a buffer beside it.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something failed: the [`Errno`], what was being done, with whom, and what to do next.
///
/// `Display` says all of it in one line. Cheap to move: one pointer.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    errno: Errno,
    operation: Operation,
    peer: Option<Address>,
    missing: usize,
    data: Vec<u8>,
    refusals: Option<NoInfo>,
}

impl Error {
    pub(crate) fn new(errno: Errno, operation: Operation) -> Self {
        Self(Box::new(Inner {
            errno,
            operation,
            peer: None,
            missing: 0,
            data: Vec::new(),
            refusals: None,
        }))
    }

    pub(crate) fn with_peer(mut self, peer: Option<Address>) -> Self {
        self.0.peer = peer;
        self
    }

    pub(crate) fn with_missing(mut self, bytes: usize) -> Self {
        self.0.missing = bytes;
        self
    }

    pub(crate) fn with_data(mut self, data: Vec<u8>) -> Self {
        self.0.data = data;
        self
    }

    pub(crate) fn no_info(why: NoInfo) -> Self {
        let mut error = Self::new(why.errno, Operation::GetInfo);
        error.0.refusals = Some(why);
        error
    }

    /// The reason as a number (`fi_errno(3)`).
    #[must_use]
    pub const fn errno(&self) -> Errno {
        self.0.errno
    }

    /// What was being done.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.0.operation
    }

    /// The peer it concerns, where there is one and it is known.
    #[must_use]
    pub const fn peer(&self) -> Option<&Address> {
        self.0.peer.as_ref()
    }

    /// With `FI_ETRUNC`: how many bytes of the message did not fit into the buffer.
    #[must_use]
    pub const fn missing(&self) -> usize {
        self.0.missing
    }

    /// What a peer said when it rejected a connection; empty otherwise.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.0.data
    }

    /// Why each provider does not offer what the hints ask, when choosing an interface failed.
    #[must_use]
    pub const fn refusals(&self) -> Option<&NoInfo> {
        self.0.refusals.as_ref()
    }

    /// Whether the operation was cancelled, by the program or because its endpoint or
    /// connection is closed (`FI_ECANCELED`).
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.errno == Errno::ECANCELED
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        advice(self.0.errno, self.0.operation)
    }
}

fn advice(errno: Errno, operation: Operation) -> &'static str {
    match (errno, operation) {
        (Errno::EAGAIN, Operation::Inject) => {
            "the queue is full, or the peer is still being connected to: try again \
             later, or send"
        }
        (Errno::EMSGSIZE, Operation::Inject) => {
            "send it, or keep to the endpoint's inject size (Endpoint::inject_size)"
        }
        (Errno::EMSGSIZE, _) => "keep to the endpoint's message size, or send several messages",
        (Errno::ETRUNC, _) => "the message did not fit: receive into a larger buffer",
        (Errno::ECANCELED, _) => {
            "it was cancelled, or its endpoint or connection is closed: post it again if it is \
             still wanted"
        }
        (Errno::ECONNREFUSED, _) => "check that the peer runs and that the address is right",
        (Errno::ETIMEDOUT, _) => {
            "check the address, firewalls on the way, and that what listens there is a program of \
             libfabric; if it computes for long without progress, give it more time \
             (Hints::answer_timeout)"
        }
        (Errno::EHOSTUNREACH | Errno::ENETUNREACH, _) => {
            "check the address, the route and firewalls on the way"
        }
        (
            Errno::ECONNRESET
            | Errno::ECONNABORTED
            | Errno::EPIPE
            | Errno::ENOTCONN
            | Errno::ESHUTDOWN,
            _,
        ) => "the peer is gone or closed the connection: see why there, then connect or send again",
        (Errno::EADDRINUSE | Errno::EADDRNOTAVAIL, _) => {
            "choose another source address in the hints"
        }
        (
            Errno::EINVAL,
            Operation::Send
            | Operation::TaggedSend
            | Operation::Inject
            | Operation::Recv
            | Operation::TaggedRecv,
        ) => "use at most four buffers and a peer that this domain holds (Domain::insert)",
        (Errno::EINVAL, Operation::Connect | Operation::Accept | Operation::Reject) => {
            "give at most 256 bytes of data, and an address of the provider's format"
        }
        (Errno::EINVAL, Operation::OpenEndpoint | Operation::Listen) => {
            "open endpoints on domains of Hints::rdm, listen and connect on those of Hints::msg"
        }
        (Errno::EINVAL, Operation::Address) => {
            "use an address of the provider's format, and a peer of this domain"
        }
        (Errno::EMFILE, _) => "raise the limit of open files (ulimit -n)",
        (Errno::ENOMEM | Errno::ENOBUFS, _) => "free memory, or have fewer operations in flight",
        (Errno::EOVERRUN, _) => {
            "completions were lost for want of memory: open the domain anew, with fewer \
             operations in flight"
        }
        (Errno::ENODATA, Operation::OpenFabric) => {
            "give an fi_info of Hints::getinfo, and build with the provider's cargo feature"
        }
        _ => "set FI_LOG_LEVEL=warn for the details",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if let Some(why) = &inner.refusals {
            return why.fmt(f);
        }
        write!(f, "{}", inner.operation)?;
        if let Some(peer) = &inner.peer {
            write!(f, ", peer {peer}")?;
        }
        write!(f, ": {} ({})", inner.errno, inner.errno.name())?;
        if inner.missing > 0 {
            write!(f, ", {} bytes too many", inner.missing)?;
        }
        write!(f, "; {}", self.advice())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.refusals {
            Some(why) => Some(why),
            None => Some(&self.0.errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_with_whom_why_and_what_next() {
        let peer: Address = "fi_sockaddr_in://10.0.0.7:4711".parse().unwrap();
        let error = Error::new(Errno::ECONNREFUSED, Operation::TaggedSend).with_peer(Some(peer));
        assert_eq!(
            error.to_string(),
            "sending with a tag, peer fi_sockaddr_in://10.0.0.7:4711: Connection refused \
             (FI_ECONNREFUSED); check that the peer runs and that the address is right"
        );
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
