//! Listening Unix sockets, one for each endpoint or context of a scalable endpoint.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use ripstop_core::fi_warn_sparse;
use ripstop_core::log::Subsys;
use ripstop_os::{Peer, Shutdown, Socket, Spare};
use ripstop_stream::{Addr as _, LISTEN_BACKLOG, Listener};
use ripstop_types::{Errno, Result};

use crate::link::ShmLink;
use crate::name::Name;
use crate::params::NAME;

/// Random suffixes that are tried when an endpoint's name is taken.
const MAX_NAME_TRIES: usize = 16;

/// Connections of other users that one accept refuses: such a user may connect without end.
const MAX_REFUSALS_PER_ACCEPT: usize = 64;

/// A socket bound to the name of an endpoint.
#[derive(Debug)]
pub struct ShmListener {
    socket: Socket,
    name: Name,
}

/// The number of this process's next endpoint, which is part of its name.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Refuses peers of another user. The connecting and the accepting side both call it.
///
/// # Errors
/// `EACCES`, with a line in the log.
pub(crate) fn check_user(peer: Peer, name: &Name, user: u32) -> Result<()> {
    if peer.uid == user {
        return Ok(());
    }
    let Peer { pid, uid, .. } = peer;
    fi_warn_sparse!(
        NAME,
        Subsys::EpCtrl,
        "{name}: refused, process {pid} is of user {uid}, and this one of user {user}"
    );
    Err(Errno::EACCES)
}

impl ShmListener {
    /// A listener with exactly this name.
    ///
    /// # Errors
    /// `EADDRINUSE` where it is taken; those of the system.
    pub(crate) fn bind_exact(name: &Name) -> Result<Self> {
        let socket = Socket::unix_bound(&name.socket(ripstop_os::user()))?;
        Ok(Self {
            socket,
            name: name.clone(),
        })
    }

    /// A listener with this name; a default name (`fi_shm://`) gets user and endpoint number as a suffix.
    ///
    /// # Errors
    /// As for [`ShmListener::bind_exact`].
    pub(crate) fn bind_unique(name: &Name) -> Result<Self> {
        if !name.is_default() {
            return Self::bind_exact(name);
        }
        let index = NEXT.fetch_add(1, Ordering::Relaxed);
        let numbered = name.with_suffix(&format_args!(":{}:{index}", ripstop_os::user()))?;
        let mut bound = Self::bind_exact(&numbered);
        // Processes of two pid namespaces may have the same process id.
        for _ in 0..MAX_NAME_TRIES {
            let Err(Errno::EADDRINUSE) = bound else {
                break;
            };
            let random = RandomState::new().hash_one(index) as u32;
            let other = numbered.with_suffix(&format_args!(":{random:08x}"))?;
            bound = Self::bind_exact(&other);
        }
        bound
    }

    /// Listeners for the contexts of an endpoint.
    ///
    /// # Errors
    /// As for [`ShmListener::bind_exact`]; `EINVAL` where names get too long.
    pub(crate) fn bind_contexts(name: &Name, count: usize) -> Result<Vec<Self>> {
        let first = Self::bind_unique(name)?;
        let own = first.name.clone();
        let mut row = vec![first];
        for index in (0..=u8::MAX).take(count).skip(1) {
            row.push(Self::bind_exact(&own.context(index).ok_or(Errno::EINVAL)?)?);
        }
        // Peers are to find all of them or none, so none listens before all names are bound.
        row.iter()
            .try_for_each(|each| each.listen(LISTEN_BACKLOG))?;
        Ok(row)
    }

    fn accept_one(&self) -> Result<Option<(ShmLink, Name)>> {
        let Some(socket) = self.socket.accept_unix()? else {
            return Ok(None);
        };
        let peer = socket.peer()?;
        check_user(peer, &self.name, ripstop_os::user())?;
        let link = ShmLink::new(socket, self.name.clone());
        Ok(Some((link, Name::of_process(peer.pid))))
    }
}

impl AsFd for ShmListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Listener for ShmListener {
    type Link = ShmLink;
    type Addr = Name;

    fn local_addr(&self) -> Result<Name> {
        Ok(self.name.clone())
    }

    fn listen(&self, backlog: i32) -> Result<()> {
        self.socket.listen(backlog)
    }

    fn stop(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn accept(&self) -> Result<Option<(ShmLink, Name)>> {
        for _ in 0..MAX_REFUSALS_PER_ACCEPT {
            match self.accept_one() {
                // That one is gone or refused; others may wait behind it.
                Err(Errno::EACCES | Errno::ENOTCONN) => {}
                accepted => return accepted,
            }
        }
        // The listener stays readable: the others are accepted when it is next polled.
        Ok(None)
    }

    fn turn_away(&self, spare: &mut Spare) -> Option<Name> {
        let turned = spare.turn_away_unix(&self.socket);
        turned.then(|| self.name.clone())
    }
}
