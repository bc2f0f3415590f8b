#![allow(unsafe_code)]
//! Address handles, and where a datagram goes.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use ripstop_types::Result;

use crate::device::Pd;
use crate::library::last_errno;
use crate::sys::{ibv_ah, ibv_ah_attr, ibv_gid};

/// Routers that a datagram may pass.
const HOP_LIMIT: u8 = 64;

/// The way to a port of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The port of this device that datagrams leave by.
    pub port: u8,
    /// The peer's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The service level.
    pub sl: u8,
    /// The peer's GID, with the index of this port's own. Ethernet needs it; datagrams without are not routed.
    pub gid: Option<([u8; 16], u8)>,
}

impl Path {
    fn raw(&self) -> ibv_ah_attr {
        let (gid, index) = self.gid.unwrap_or_default();
        ibv_ah_attr {
            dgid: ibv_gid(gid),
            flow_label: 0,
            sgid_index: index,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            dlid: self.lid,
            sl: self.sl,
            src_path_bits: 0,
            static_rate: 0,
            is_global: self.gid.is_some().into(),
            port_num: self.port,
        }
    }
}

/// An address handle: a way that a device knows.
///
/// A device may look at it until a datagram that goes there has completed; of one that is dropped before, the
/// datagram may be lost.
pub struct AddressHandle {
    pd: Arc<Pd>,
    raw: NonNull<ibv_ah>,
}

// SAFETY: libibverbs' objects may be used by any thread at any time.
unsafe impl Send for AddressHandle {}
// SAFETY: as above.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    /// The handle of a way.
    ///
    /// # Errors
    /// What `ibv_create_ah(3)` says. On Ethernet the kernel looks for the peer's link address, and fails where
    /// nobody has the GID.
    pub fn new(pd: &Arc<Pd>, path: &Path) -> Result<Self> {
        let mut attr = path.raw();
        let create = pd.context.library.ibv.ibv_create_ah;
        // SAFETY: a live protection domain, and a whole struct.
        let raw = unsafe { create(pd.raw.as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        let pd = Arc::clone(pd);
        Ok(Self { pd, raw })
    }

    pub(crate) fn raw(&self) -> *mut ibv_ah {
        self.raw.as_ptr()
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AddressHandle({})", self.pd.context.name())
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: made by the library, and freed once; a request that names it borrows it until it is posted,
        // and drivers copy what they need then.
        unsafe { (self.pd.context.library.ibv.ibv_destroy_ah)(self.raw.as_ptr()) };
    }
}

/// A datagram queue pair of a peer.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// The way there.
    pub handle: &'a AddressHandle,
    /// The number of the queue pair, 24 bits.
    pub qp: u32,
    /// The key that it takes datagrams with.
    pub qkey: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_with_a_gid_is_global() {
        let local = Path {
            port: 2,
            lid: 7,
            sl: 3,
            gid: None,
        };
        let raw = local.raw();
        assert_eq!((raw.port_num, raw.dlid, raw.sl), (2, 7, 3));
        assert_eq!((raw.is_global, raw.dgid.0), (0, [0; 16]));
        let gid = Some(([9; 16], 1));
        let raw = Path { gid, ..local }.raw();
        assert_eq!((raw.is_global, raw.sgid_index), (1, 1));
        assert_eq!((raw.dgid.0, raw.hop_limit), ([9; 16], HOP_LIMIT));
    }
}
