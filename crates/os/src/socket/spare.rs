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
        self.0 = None;
        let accepted = listener.accept();
        let peer = accepted.ok().flatten().map(|(socket, peer)| {
            drop(socket);
            peer
        });
        self.0 = EventFd::new().ok();
        peer
    }
}
