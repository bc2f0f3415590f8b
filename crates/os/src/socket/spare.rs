//! A descriptor in reserve, for connections that cannot be kept.

use std::net::SocketAddr;

use super::Socket;
use crate::EventFd;

/// A descriptor that is held to be given up when there is no other: with it a connection that
/// waits on a listening socket can be taken and closed. Otherwise it would wait there, its other
/// end would not know why, and the listening socket would stay readable.
#[derive(Debug)]
pub struct Spare(Option<EventFd>);

impl Spare {
    /// Reserves a descriptor.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> ripstop_types::Result<Self> {
        EventFd::new().map(|held| Self(Some(held)))
    }

    /// Closes the connection that waits longest on `listener` and tells whose it was; `None` if
    /// there is none, or somebody else took the descriptor meanwhile.
    pub fn turn_away(&mut self, listener: &Socket) -> Option<SocketAddr> {
        self.without(|| {
            let (socket, peer) = listener.accept().ok().flatten()?;
            drop(socket);
            Some(peer)
        })
    }

    /// As [`turn_away`](Self::turn_away), for a listener with an abstract name, whose peers have
    /// none: whether one was turned away.
    pub fn turn_away_unix(&mut self, listener: &Socket) -> bool {
        self.without(|| listener.accept_unix().ok().flatten().is_some())
    }

    /// What is done while the descriptor is given up.
    fn without<R>(&mut self, act: impl FnOnce() -> R) -> R {
        self.0 = None;
        let outcome = act();
        self.0 = EventFd::new().ok();
        outcome
    }
}
