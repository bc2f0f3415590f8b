//! Remote memory as the initiator names it.

/// A piece of a peer's registered memory (`struct fi_rma_iov`, man page `fi_rma(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RmaIov {
    /// Where it starts: an address of the peer or an offset into its region, as the peer
    /// registered it.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The key of the region.
    pub key: u64,
}
