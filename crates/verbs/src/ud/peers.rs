//! Peers by fabric address, with the device's handles of the ways to them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use ripstop_core::av::NameTable;
use ripstop_ibverbs::{AddressHandle, Destination, Path};
use ripstop_types::{Errno, FiAddr, Result};

use crate::ud::Name;
use crate::ud::port::QKEY;

/// The peers of an address vector.
#[derive(Debug)]
pub(crate) struct Peers<H = AddressHandle> {
    names: NameTable<Name>,
    /// By fabric address.
    ways: Vec<Option<Way<H>>>,
    /// Endpoints of one port share a handle, which the device has a limited number of.
    handles: HashMap<Path, Weak<H>>,
}

/// Where datagrams to a peer go.
#[derive(Debug)]
pub(crate) struct Way<H = AddressHandle> {
    path: Path,
    pub(crate) handle: Arc<H>,
    pub(crate) qp: u32,
}

impl Way {
    pub(crate) fn destination(&self) -> Destination<'_> {
        Destination {
            handle: &self.handle,
            qp: self.qp,
            qkey: QKEY,
        }
    }
}

impl<H> Default for Peers<H> {
    fn default() -> Self {
        Self {
            names: NameTable::new(),
            ways: Vec::new(),
            handles: HashMap::new(),
        }
    }
}

impl<H> Peers<H> {
    /// The handle of a way that a peer has.
    pub(crate) fn handle(&self, path: &Path) -> Option<Arc<H>> {
        self.handles.get(path)?.upgrade()
    }

    /// Inserts a peer that is reached by a way.
    ///
    /// # Errors
    /// As [`NameTable::insert`].
    pub(crate) fn insert(&mut self, name: &Name, path: Path, handle: Arc<H>) -> Result<FiAddr> {
        self.handles.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.ways.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let peer = self.names.insert(name)?;
        // An index is at most that of the next new one, so there is room.
        let index = peer.0 as usize;
        if self.ways.len() <= index {
            self.ways.resize_with(index + 1, || None);
        }
        self.handles.insert(path, Arc::downgrade(&handle));
        self.ways[index] = Some(Way {
            path,
            handle,
            qp: name.qp,
        });
        Ok(peer)
    }

    /// Takes back one insertion; with the last one the handle, which requests may still need.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] where there is no such peer.
    pub(crate) fn remove(&mut self, peer: FiAddr) -> Result<Option<Arc<H>>> {
        if self.names.remove(peer)?.is_none() {
            return Ok(None);
        }
        let way = self.ways.get_mut(peer.0 as usize).and_then(Option::take);
        Ok(way.map(|way| {
            let is_last = Arc::strong_count(&way.handle) == 1;
            if is_last {
                self.handles.remove(&way.path);
            }
            way.handle
        }))
    }

    /// Where datagrams to a peer go.
    #[inline]
    pub(crate) fn way(&self, peer: FiAddr) -> Option<&Way<H>> {
        let index = usize::try_from(peer.0).ok()?;
        self.ways.get(index)?.as_ref()
    }

    pub(crate) fn name(&self, peer: FiAddr) -> Option<&Name> {
        self.names.lookup(peer)
    }

    pub(crate) fn addresses(&self) -> Vec<FiAddr> {
        self.names.iter().map(|(peer, _)| peer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(qp: u32, lid: u16) -> Name {
        Name {
            qp,
            lid,
            ..Name::default()
        }
    }

    fn path(lid: u16) -> Path {
        Path {
            port: 1,
            lid,
            sl: 0,
            gid: None,
        }
    }

    #[test]
    fn peers_of_one_port_share_a_handle_while_there_are_any() {
        let mut peers = Peers::<u32>::default();
        let first = peers.insert(&name(10, 1), path(1), Arc::new(7));
        let handle = peers.handle(&path(1)).expect("a handle");
        let second = peers.insert(&name(11, 1), path(1), handle);
        let other = peers.insert(&name(10, 2), path(2), Arc::new(8));
        assert_eq!(first, Ok(FiAddr(0)));
        assert_eq!((second, other), (Ok(FiAddr(1)), Ok(FiAddr(2))));
        let way = peers.way(FiAddr(1)).expect("a way");
        assert_eq!((*way.handle, way.qp), (7, 11));

        assert_eq!(peers.remove(FiAddr(0)), Ok(Some(Arc::new(7))));
        assert!(peers.way(FiAddr(0)).is_none());
        assert!(peers.handle(&path(1)).is_some());
        assert_eq!(peers.remove(FiAddr(1)), Ok(Some(Arc::new(7))));
        assert!(peers.handle(&path(1)).is_none());
        assert_eq!(peers.addresses(), [FiAddr(2)]);
        assert_eq!(peers.remove(FiAddr(1)), Err(Errno::EINVAL));
        assert!(peers.way(FiAddr::NOTAVAIL).is_none());
    }

    #[test]
    fn a_peer_that_is_inserted_twice_is_removed_twice() {
        let mut peers = Peers::<u32>::default();
        let twice = [0, 1].map(|_| peers.insert(&name(10, 1), path(1), Arc::new(7)));
        assert_eq!(twice, [Ok(FiAddr(0)); 2]);
        assert_eq!(peers.remove(FiAddr(0)), Ok(None));
        assert_eq!(peers.name(FiAddr(0)), Some(&name(10, 1)));
        assert!(peers.remove(FiAddr(0)).is_ok_and(|gone| gone.is_some()));
        assert_eq!(peers.name(FiAddr(0)), None);
    }
}
