#![allow(unsafe_code)]
//! The `fi_info` of older version nodes, read as today's.
//!
//! Every structure grew at its end only, so an old one is the first bytes of a new one, and
//! what it lacks is zero.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr;
use std::sync::OnceLock;

use ripstop_abi as abi;
use ripstop_abi::history;
use ripstop_types::Version;

use super::copy;
use crate::edge::{Arg, Pointer, Whole};

/// How many bytes of each structure a caller of some node has.
pub(crate) struct Layout {
    info: usize,
    tx: usize,
    ep: usize,
    domain: usize,
    fabric: usize,
    /// Whether `xpu_ctx` is behind the attributes of an endpoint.
    has_xpu_ctx: bool,
}

impl Layout {
    /// Node `FABRIC_1.0`. Its `fi_fabric_attr` ends where padding became `api_version`.
    pub(crate) const V1_0: Self = Self {
        info: size_of::<history::fi_info_1_1>(),
        tx: size_of::<history::fi_tx_attr_1_0>(),
        ep: size_of::<history::fi_ep_attr_1_0>(),
        domain: size_of::<history::fi_domain_attr_1_0>(),
        fabric: FABRIC_1_0,
        has_xpu_ctx: false,
    };
    /// Node `FABRIC_1.1`.
    pub(crate) const V1_1: Self = Self {
        info: size_of::<history::fi_info_1_1>(),
        tx: size_of::<history::fi_tx_attr_1_0>(),
        ep: size_of::<abi::fi_ep_attr>(),
        domain: size_of::<history::fi_domain_attr_1_1>(),
        fabric: size_of::<abi::fi_fabric_attr>(),
        has_xpu_ctx: false,
    };
    /// Node `FABRIC_1.2`.
    pub(crate) const V1_2: Self = Self {
        info: size_of::<abi::fi_info>(),
        ..Self::V1_1
    };
    /// Node `FABRIC_1.3`.
    pub(crate) const V1_3: Self = Self {
        tx: size_of::<abi::fi_tx_attr>(),
        domain: offset_of!(history::fi_domain_attr_1_3, tclass) + size_of::<u32>(),
        ..Self::V1_2
    };
    /// Node `FABRIC_1.7`.
    pub(crate) const V1_7: Self = Self {
        domain: size_of::<history::fi_domain_attr_1_7>(),
        ..Self::V1_3
    };
    /// Node `FABRIC_1.8`.
    pub(crate) const V1_8: Self = Self {
        domain: offset_of!(history::fi_domain_attr_1_8, max_group_id) + size_of::<u32>(),
        ..Self::V1_7
    };
    /// Node `FABRIC_1.9`, today's.
    pub(crate) const V1_9: Self = Self {
        domain: size_of::<abi::fi_domain_attr>(),
        ..Self::V1_8
    };
    /// Node `FABRIC_1.10`: today's, with one field that [`Widened`] has apart.
    pub(crate) const V1_10: Self = Self {
        has_xpu_ctx: true,
        ..Self::V1_9
    };

    /// The layout of a provider which was built for this version of the interface. Each release has the node
    /// that `fabric(7)` names for it.
    pub(crate) const fn of_release(version: Version) -> &'static Self {
        match (version.major(), version.minor()) {
            (0, _) | (1, ..=4) => &Self::V1_0,
            (1, 5 | 6) => &Self::V1_1,
            (1, 7 | 8) => &Self::V1_2,
            (1, 9..=19) => &Self::V1_3,
            (1, _) => &Self::V1_7,
            (2, ..=4) => &Self::V1_8,
            _ => &Self::V1_9,
        }
    }

    /// Whether every structure is as long as today's.
    pub(crate) const fn is_current(&self) -> bool {
        self.domain == size_of::<abi::fi_domain_attr>()
    }
}

/// The layout of the `fi_info` in calls that have no version node of their own (`fi_domain`, `fi_endpoint`, ...), once
/// it is set.
static CALLERS: OnceLock<&'static Layout> = OnceLock::new();

/// Sets what [`of_callers`] returns, once: called where this library is a provider of another libfabric
/// (`external`), which may be older and passes on the `fi_info` of its programs.
pub(crate) fn set_of_callers(layout: &'static Layout) {
    CALLERS.get_or_init(|| layout);
}

/// The layout of the `fi_info` in calls that have no version node of their own: today's, unless set otherwise.
pub(crate) fn of_callers() -> &'static Layout {
    CALLERS.get().copied().unwrap_or(&Layout::V1_9)
}

/// Bytes of node 1.0's `fi_fabric_attr` that carry a field.
pub(crate) const FABRIC_1_0: usize = offset_of!(abi::fi_fabric_attr, api_version);

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
    /// What callers of node 1.10 have behind the attributes of the endpoint.
    xpu_ctx: *mut c_void,
}

impl Widened {
    /// Whether endpoints are to be for an accelerator, which no provider here can do.
    pub(crate) fn is_for_accelerator(&self) -> bool {
        !self.xpu_ctx.is_null()
    }

    /// A deep copy, or null when there is no memory.
    pub(super) fn copy(&self) -> *mut abi::fi_info {
        let copy = copy::info(self.whole());
        // SAFETY: null or an `fi_info` that was made here.
        if let Some(ep) = unsafe { copy.as_ref() }.map(|info| info.ep_attr)
            && !ep.is_null()
        {
            let ep = ep.cast::<history::fi_ep_attr_1_10>();
            // SAFETY: attributes that `alloc_ep_attr` has made, as long as those of this node.
            unsafe { (*ep).xpu_ctx = self.xpu_ctx };
        }
        copy
    }

    /// Leaves out what `handle` names, for a call that does not look at it.
    pub(crate) const fn forget_handle(&mut self) {
        self.info.handle = ptr::null_mut();
    }

    /// The `fi_info` in today's layout, valid while `self` is.
    pub(crate) fn whole(&self) -> Whole<'_, abi::fi_info> {
        // SAFETY: its attributes are in `self`, and what else its pointers lead to is what those of
        // an `InfoIn` lead to, which lasts as long as the call that it is used in.
        unsafe { Whole::new(&self.info) }
    }
}

/// An `fi_info` that a call is given: null, or as long as callers of some version node know it, with
/// all that it points to.
#[derive(Clone, Copy)]
pub(crate) struct InfoIn<'a, P>(P, PhantomData<&'a abi::fi_info>);

impl<P: Pointer<Target = abi::fi_info>> Arg for InfoIn<'_, P> {
    type C = P;

    unsafe fn from_c(at: P) -> Self {
        Self(at, PhantomData)
    }
}

impl<P: Pointer<Target = abi::fi_info>> InfoIn<'_, P> {
    /// The `fi_info` of a call that has no version node of its own, in today's layout; `None` for null.
    pub(crate) fn widen(self) -> Option<Box<Widened>> {
        // SAFETY: a call without a version node of its own is passed an `fi_info` of this layout.
        unsafe { self.widen_from(of_callers()) }
    }

    /// The same, of a call that has one.
    ///
    /// # Safety
    ///
    /// The `fi_info` is one of this node, or null.
    pub(crate) unsafe fn widen_from(self, layout: &Layout) -> Option<Box<Widened>> {
        let info = self.0.address();
        if info.is_null() {
            return None;
        }
        let mut wide = Box::new(Widened::default());
        let Widened {
            info: to,
            tx,
            rx,
            ep,
            domain,
            fabric,
            xpu_ctx,
        } = &mut *wide;
        // SAFETY: not null, and then as long as the node has it.
        *to = unsafe { widen(info, layout.info) };
        to.next = ptr::null_mut();
        if layout.has_xpu_ctx && !to.ep_attr.is_null() {
            let ep = to.ep_attr.cast::<history::fi_ep_attr_1_10>();
            // SAFETY: not null, and then as long as the node has it.
            *xpu_ctx = unsafe { (*ep).xpu_ctx };
        }
        macro_rules! adopt {
            ($($field:ident: $home:ident, $size:expr;)*) => { $(
                // SAFETY: a pointer of an `fi_info` of the node is null, or leads to attributes that
                // are as long as the node has them.
                unsafe { adopt(&mut to.$field, $home, $size) };
            )* };
        }
        adopt! {
            tx_attr: tx, layout.tx;
            rx_attr: rx, size_of::<abi::fi_rx_attr>();
            ep_attr: ep, layout.ep;
            domain_attr: domain, layout.domain;
            fabric_attr: fabric, layout.fabric;
        }
        Some(wide)
    }

    /// The connection request or passive endpoint that it names.
    pub(crate) fn handle(self) -> abi::fid_t {
        // SAFETY: null, or long enough: every node has this field.
        unsafe { self.0.address().as_ref() }.map_or(ptr::null_mut(), |info| info.handle)
    }
}

/// Replaces the structure behind `pointer` by a widened copy in `home`.
///
/// # Safety
///
/// `pointer` is null or points to `size` bytes of a `T`.
unsafe fn adopt<T: Copy + Default>(pointer: &mut *mut T, home: &mut T, size: usize) {
    if !pointer.is_null() {
        // SAFETY: not null, and then that many bytes, by the contract of this function.
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
    // SAFETY: `size` bytes are readable by the contract of this function, and within `wide`.
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
    fn each_release_has_its_node() {
        let of = |major, minor| Layout::of_release(Version::new(major, minor));
        let same =
            |a: &Layout, b: &Layout| (a.tx, a.domain) == (b.tx, b.domain) && a.info == b.info;
        assert!(same(of(1, 3), &Layout::V1_0) && same(of(1, 6), &Layout::V1_1));
        assert!(same(of(1, 8), &Layout::V1_2) && same(of(1, 17), &Layout::V1_3));
        assert!(same(of(1, 20), &Layout::V1_7) && same(of(2, 4), &Layout::V1_8));
        assert!(of(2, 5).is_current() && of(2, 6).is_current() && !of(2, 4).is_current());
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
            // SAFETY: a whole structure.
            let info = unsafe { InfoIn::from_c(&raw const info) };
            // SAFETY: today's structures hold those of every node.
            let wide = unsafe { info.widen_from(layout) }.unwrap();
            let d = wide.domain;
            let nic = wide.whole().nic.addr();
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
