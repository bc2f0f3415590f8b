//! Where connections arrive.

use std::fmt::Debug;
use std::os::fd::AsFd;

use ripstop_os::Spare;
use ripstop_types::{Errno, Result};

use crate::addr::Addr;
use crate::transport::link::Link;

/// Where connections arrive. Its descriptor can be read while one waits. It is closed when it is
/// dropped.
pub trait Listener: AsFd + Debug + Send + Sync + 'static {
    /// What it accepts.
    type Link: Link<Addr = Self::Addr>;

    /// How it is named.
    type Addr: Addr;

    /// Where it listens.
    ///
    /// # Errors
    /// Of the system.
    fn local_addr(&self) -> Result<Self::Addr>;

    /// Lets peers connect, of which up to `backlog` may wait.
    ///
    /// # Errors
    /// `EADDRINUSE` where somebody else listens there.
    fn listen(&self, backlog: i32) -> Result<()>;

    /// Refuses all peers from now on, also where a forked child has the descriptor, too; called before the listener is dropped. The
    /// descriptor may report a hang-up afterwards. Does nothing for an RDMA device, whose listener a child cannot use.
    fn stop(&self) {}

    /// The next connection that waits, and where it comes from as far as that is known; none
    /// where none waits.
    ///
    /// # Errors
    /// `EMFILE` and the like: one waits for which there is no room, see [`Listener::turn_away`].
    fn accept(&self) -> Result<Option<(Self::Link, Self::Addr)>>;

    /// Why nothing arrives here any more, and nothing leaves for peers either: the device is gone. To be asked when the
    /// descriptor is readable and no connection waits.
    fn lost(&self) -> Option<Errno> {
        None
    }

    /// Closes the next connection that waits, with the descriptor that `spare` keeps for this;
    /// returns where it came from, or none where that cannot be done.
    fn turn_away(&self, spare: &mut Spare) -> Option<Self::Addr>;
}
