//! What an event queue holds (man page `fi_eq(3)`).

use ripstop_types::{CmEvent, Context, Errno};

use crate::info::Info;
use crate::token::FidToken;

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A peer asks a passive endpoint for a connection (`FI_CONNREQ`).
    ConnReq {
        /// The passive endpoint.
        pep: FidToken,
        /// What to open the accepting endpoint with; its handle is the request.
        info: Box<Info>,
        /// What the peer passed to `fi_connect`.
        data: Vec<u8>,
    },
    /// An endpoint is connected (`FI_CONNECTED`).
    Connected {
        /// The endpoint.
        ep: FidToken,
        /// What the peer passed to `fi_accept`; empty on the accepting side.
        data: Vec<u8>,
    },
    /// The peer has ended the connection, or it broke (`FI_SHUTDOWN`).
    Shutdown {
        /// The endpoint.
        ep: FidToken,
    },
    /// An asynchronous operation is done, or a provider notifies: `FI_AV_COMPLETE`,
    /// `FI_MR_COMPLETE`, `FI_JOIN_COMPLETE`, `FI_NOTIFY` (`struct fi_eq_entry`).
    Done {
        /// Which of them.
        event: CmEvent,
        /// The object.
        fid: FidToken,
        /// The operation's context.
        context: Context,
        /// A value that depends on the operation, such as the number of addresses inserted.
        data: u64,
    },
    /// What the program itself inserted (`fi_eq_write`).
    Written {
        /// The number it gave the event.
        event: u32,
        /// The bytes it wrote.
        bytes: Vec<u8>,
    },
}

impl Event {
    /// The C value of the event.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Self::ConnReq { .. } => CmEvent::ConnReq.raw(),
            Self::Connected { .. } => CmEvent::Connected.raw(),
            Self::Shutdown { .. } => CmEvent::Shutdown.raw(),
            Self::Done { event, .. } => event.raw(),
            Self::Written { event, .. } => *event,
        }
    }

    /// The object the event is about, unless the program wrote it.
    #[must_use]
    pub const fn fid(&self) -> Option<FidToken> {
        match self {
            Self::ConnReq { pep: fid, .. }
            | Self::Connected { ep: fid, .. }
            | Self::Shutdown { ep: fid }
            | Self::Done { fid, .. } => Some(*fid),
            Self::Written { .. } => None,
        }
    }
}

/// A failed operation (`struct fi_eq_err_entry`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventError {
    /// The object; [`FidToken::NONE`] when the queue itself failed.
    pub fid: FidToken,
    /// The operation's context.
    pub context: Context,
    /// A value that depends on the operation, such as the position of an address.
    pub data: u64,
    /// The reason.
    pub err: Errno,
    /// The provider's own code for the reason; providers here use that of the operating
    /// system.
    pub prov_errno: i32,
    /// More about the reason, such as what a peer passed to `fi_reject`.
    pub err_data: Vec<u8>,
}

impl EventError {
    /// An error of an object, without context or data.
    #[must_use]
    pub const fn new(fid: FidToken, err: Errno) -> Self {
        Self {
            fid,
            context: 0,
            data: 0,
            err,
            prov_errno: err.0,
            err_data: Vec::new(),
        }
    }

    /// The error that a queue without memory for its events ends in.
    pub(super) const fn overrun() -> Self {
        Self::new(FidToken::NONE, Errno::EOVERRUN)
    }
}
