#![allow(unsafe_code)]
//! The `fi_info` of older version nodes, read as today's.
//!
//! Every structure grew at its end only, so an old one is the first bytes of a new one, and
//! what it lacks is zero.

use core::mem::offset_of;
use core::ptr;
use std::sync::OnceLock;

use ripstop_abi as abi;
use ripstop_abi::history;

/// How many bytes of each structure a caller of some node has.
pub(crate) struct Layout {
    info: usize,
    tx: usize,
    ep: usize,
    domain: usize,
    fabric: usize,
}

impl Layout {
    /// Node `FABRIC_1.0`. Its `fi_fabric_attr` ends where padding became `api_version`.
    pub(crate) const V1_0: Self = Self {
        info: size_of::<history::fi_info_1_0>(),
        tx: size_of::<history::fi_tx_attr_1_0>(),
        ep: size_of::<history::fi_ep_attr_1_0>(),
        domain: size_of::<history::fi_domain_attr_1_0>(),
        fabric: FABRIC_1_0,
    };
    /// Node `FABRIC_1.1`.
    pub(crate) const V1_1: Self = Self {
        info: size_of::<history::fi_info_1_1>(),
        tx: size_of::<history::fi_tx_attr_1_1>(),
        ep: size_of::<history::fi_ep_attr_1_1>(),
        domain: size_of::<history::fi_domain_attr_1_1>(),
        fabric: size_of::<history::fi_fabric_attr_1_1>(),
    };
    /// Node `FABRIC_1.2`.
    pub(crate) const V1_2: Self = Self {
        info: size_of::<history::fi_info_1_2>(),
        ..Self::V1_1
    };
    /// Node `FABRIC_1.3`.
    pub(crate) const V1_3: Self = Self {
        tx: size_of::<history::fi_tx_attr_1_3>(),
        domain: end_of_tclass(),
        ..Self::V1_2
    };
    /// Node `FABRIC_1.7`.
    pub(crate) const V1_7: Self = Self {
        domain: size_of::<history::fi_domain_attr_1_7>(),
        ..Self::V1_3
    };
    /// Node `FABRIC_1.8`.
    pub(crate) const V1_8: Self = Self {
        domain: end_of_group_id(),
        ..Self::V1_7
    };
    /// Node `FABRIC_1.9`, today's.
    pub(crate) const V1_9: Self = Self {
        info: size_of::<abi::fi_info>(),
        tx: size_of::<abi::fi_tx_attr>(),
        ep: size_of::<abi::fi_ep_attr>(),
        domain: size_of::<abi::fi_domain_attr>(),
        fabric: size_of::<abi::fi_fabric_attr>(),
    };
}

/// What the `fi_info` has that objects are opened with, where that is less than today's.
static PASSED: OnceLock<&'static Layout> = OnceLock::new();

/// From now on, what objects are opened with is read as of this node.
pub(crate) fn read_as(layout: &'static Layout) {
    PASSED.get_or_init(|| layout);
}

/// How what objects are opened with is read: as today's, unless another library passes it.
pub(crate) fn of_programs() -> &'static Layout {
    PASSED.get().copied().unwrap_or(&Layout::V1_9)
}

/// Bytes of node 1.0's `fi_fabric_attr` that carry a field.
pub(crate) const FABRIC_1_0: usize = offset_of!(abi::fi_fabric_attr, api_version);

const fn end_of_tclass() -> usize {
    offset_of!(history::fi_domain_attr_1_3, tclass) + size_of::<u32>()
}

const fn end_of_group_id() -> usize {
    offset_of!(history::fi_domain_attr_1_8, max_group_id) + size_of::<u32>()
}

/// An `fi_info` and its attributes in today's layout. Strings, addresses and keys still belong
/// to whoever made the original.
#[derive(Default)]
pub(crate) struct Widened {
    info: abi::fi_info,
    tx: abi::fi_tx_attr,
    rx: abi::fi_rx_attr,
    ep: abi::fi_ep_attr,
    domain: abi::fi_domain_attr,
    fabric: abi::fi_fabric_attr,
}

impl Widened {
    /// Reads an `fi_info` of some node.
    ///
    /// # Safety
    ///
    /// `info` points to an `fi_info` of that node, whose attribute pointers are null or point
    /// to attributes of that node.
    pub(crate) unsafe fn read(info: *const abi::fi_info, layout: &Layout) -> Box<Self> {
        let mut wide = Box::new(Self::default());
        // SAFETY: the caller's guarantee, for this and the blocks below.
        wide.info = unsafe { widen(info, layout.info) };
        wide.info.next = ptr::null_mut();
        // SAFETY: as above; null stays null.
        unsafe { adopt(&mut wide.info.tx_attr, &mut wide.tx, layout.tx) };
        let rx = size_of::<abi::fi_rx_attr>();
        // SAFETY: as above; this structure is the same at every node.
        unsafe { adopt(&mut wide.info.rx_attr, &mut wide.rx, rx) };
        // SAFETY: as above.
        unsafe { adopt(&mut wide.info.ep_attr, &mut wide.ep, layout.ep) };
        // SAFETY: as above.
        unsafe { adopt(&mut wide.info.domain_attr, &mut wide.domain, layout.domain) };
        // SAFETY: as above.
        unsafe { adopt(&mut wide.info.fabric_attr, &mut wide.fabric, layout.fabric) };
        wide
    }

    /// The `fi_info` in today's layout, valid while `self` is.
    pub(crate) fn info(&self) -> &abi::fi_info {
        &self.info
    }
}

/// Replaces the structure behind `pointer` by a widened copy in `home`.
///
/// # Safety
///
/// `pointer` is null or points to `size` bytes of a `T`.
unsafe fn adopt<T: Copy + Default>(pointer: &mut *mut T, home: &mut T, size: usize) {
    if !pointer.is_null() {
        // SAFETY: the caller's guarantee.
        *home = unsafe { widen(*pointer, size) };
        *pointer = home;
    }
}

/// The first `size` bytes of a structure, the rest zero.
///
/// # Safety
///
/// `source` is valid for reads of `size` bytes; `T` is a C structure for which zeros and these
/// bytes are a value.
pub(crate) unsafe fn widen<T: Copy + Default>(source: *const T, size: usize) -> T {
    let mut wide = T::default();
    let size = size.min(size_of::<T>());
    let target = ptr::from_mut(&mut wide).cast::<u8>();
    // SAFETY: `size` bytes are readable by the caller's guarantee, and within `wide`.
    unsafe { ptr::copy_nonoverlapping(source.cast::<u8>(), target, size) };
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_of_an_old_structure_is_not_a_field() {
        let attr = abi::fi_fabric_attr {
            prov_version: 1,
            api_version: 0xffff_ffff,
            ..Default::default()
        };
        // SAFETY: a whole structure.
        let old = unsafe { widen(&raw const attr, FABRIC_1_0) };
        assert_eq!((old.prov_version, old.api_version), (1, 0));
    }

    #[test]
    fn each_node_reads_its_own_fields() {
        let mut domain = abi::fi_domain_attr {
            max_ep_srx_ctx: 1,
            mr_cnt: 2,
            tclass: 3,
            max_ep_auth_key: 4,
            max_group_id: 5,
            max_cntr_value: 6,
            ..Default::default()
        };
        let info = abi::fi_info {
            domain_attr: &raw mut domain,
            nic: ptr::without_provenance_mut(16),
            ..Default::default()
        };
        let read = |layout| {
            // SAFETY: today's structures hold those of every node.
            let wide = unsafe { Widened::read(&raw const info, layout) };
            let d = wide.domain;
            let nic = wide.info().nic.addr();
            let fields = (d.max_ep_srx_ctx, d.mr_cnt, d.tclass, d.max_ep_auth_key);
            (fields, d.max_group_id, d.max_cntr_value, nic)
        };
        assert_eq!(read(&Layout::V1_0), ((1, 0, 0, 0), 0, 0, 0));
        assert_eq!(read(&Layout::V1_1), ((1, 2, 0, 0), 0, 0, 0));
        assert_eq!(read(&Layout::V1_2), ((1, 2, 0, 0), 0, 0, 16));
        assert_eq!(read(&Layout::V1_3), ((1, 2, 3, 0), 0, 0, 16));
        assert_eq!(read(&Layout::V1_7), ((1, 2, 3, 4), 0, 0, 16));
        assert_eq!(read(&Layout::V1_8), ((1, 2, 3, 4), 5, 0, 16));
        assert_eq!(read(&Layout::V1_9), ((1, 2, 3, 4), 5, 6, 16));
    }
}
