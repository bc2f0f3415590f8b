//! How endpoints of a transport are named, and the tables of their peers.

use std::cmp::Ordering;
use std::fmt::{Debug, Display};
use std::hash::Hash;

use ripstop_core::Address;
use ripstop_types::{Errno, FiAddr, Result};

/// The name of an endpoint: what address vectors hold and `fi_getname` gives. `Display` is for the
/// log.
pub trait Addr: Clone + Eq + Hash + Debug + Display + Send + Sync + 'static {
    /// Peers by fabric address.
    type Table: Peers<Self>;

    /// The most bytes that [`Addr::to_address`] has, at most
    /// [`PEER_NAME`](ripstop_engine::stream::PEER_NAME).
    const LEN: usize;

    /// Reads an address of the caller.
    ///
    /// # Errors
    /// `EINVAL` for one of another format.
    fn from_address(address: &Address) -> Result<Self>;

    /// The address for the caller. What its bytes are is data of the error entries that speak of
    /// this peer.
    fn to_address(&self) -> Address;

    /// The one form of those that mean the same.
    #[must_use]
    fn canonical(self) -> Self {
        self
    }

    /// Where context `index` of the endpoint with this address listens, 0 to 15; context 0 is at
    /// the address of the endpoint. None where there can be none.
    fn context(&self, index: u8) -> Option<Self>;

    /// The address of the endpoint whose context `index` has this one: the way back.
    #[must_use]
    fn endpoint_of(&self, index: u8) -> Self;

    /// Which of two endpoints that connect to each other at once yields (`docs/wire.md`): a total
    /// order, the same on both sides.
    fn order(&self, other: &Self) -> Ordering;

    /// This address of an endpoint as the peer at the other end of a link has it, whose address on this side `link` tells:
    /// one that listens at all addresses of its machine has that which was reached.
    #[must_use]
    fn reached_by(&self, _link: impl FnOnce() -> Option<Self>) -> Self {
        self.clone()
    }

    /// Gives the bytes that tell this address from others, for a number that members of a
    /// collective group compare: the same in all processes.
    fn digest(&self, byte: &mut dyn FnMut(u8));

    /// Whether this is the address `own` of an endpoint of this process; both are canonical.
    ///
    /// # Errors
    /// Of the system, when it has to be asked.
    fn is_own(&self, own: &Self) -> Result<Own>;
}

/// What an address is to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Its very address.
    Exact,
    /// Another address of this machine that may lead to it.
    Local,
    /// Of somebody else.
    No,
}

/// Peers by fabric address, which is an index from 0. It is used under the lock of a domain.
pub trait Peers<A>: Debug + Send + Sized {
    /// A table of this address vector alone, with room for `count` peers; more can be inserted.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn with_room(count: usize) -> Result<Self>;

    /// The table that all address vectors of this name on this machine share, with room for
    /// `count` peers, 0 for a default.
    ///
    /// # Errors
    /// `ENOSYS` where peers of this kind cannot be shared; `ENOENT` for `read_only` if nobody has
    /// it open; `EINVAL` for a name that is none; errors of the system.
    fn open_shared(_name: &str, _count: usize, _read_only: bool) -> Result<Self> {
        Err(Errno::ENOSYS)
    }

    /// The address of a peer.
    fn lookup(&self, peer: FiAddr) -> Option<A>;

    /// The peer with a canonical address, or [`FiAddr::NOTAVAIL`].
    fn find(&mut self, addr: &A) -> FiAddr;

    /// Inserts a canonical address. One that is there already keeps its place, and has to be
    /// removed once more.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` for one that nobody can be reached at; `EACCES` where the table is only
    /// read; `ENOMEM`.
    fn insert(&mut self, addr: &A) -> Result<FiAddr>;

    /// Takes back one insertion. With the last one the peer is gone, and its address is returned.
    ///
    /// # Errors
    /// `EINVAL` where there is no such peer; `EACCES` where the table is only read.
    fn remove(&mut self, peer: FiAddr) -> Result<Option<A>>;

    /// All peers, in the order of their fabric addresses.
    fn addresses(&self) -> Vec<FiAddr>;

    /// The fabric addresses by order of insertion (`fi_av_attr::map_addr`), if the table is shared.
    fn map(&self) -> &[u64] {
        &[]
    }
}
