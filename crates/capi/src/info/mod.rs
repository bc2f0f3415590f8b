#![allow(unsafe_code)]
//! `struct fi_info`: reading a caller's, making ours, copying and freeing (`fi_getinfo(3)`).

use core::ptr;

use ripstop_abi as abi;

mod attr;
mod copy;
mod free;
pub(crate) mod layout;
mod nic;
mod owned;
pub(crate) mod print;
pub(crate) mod read;
pub(crate) mod write;

#[cfg(test)]
mod tests;

pub(crate) use attr::Attributes;
pub(crate) use free::list as free_list;
pub(crate) use owned::OwnedInfo;

use crate::cmem;
use crate::edge::Arg;
use layout::{InfoIn, Layout};

/// Allocates a struct that begins as `start`, stores it in `slot`, and fills it. `None` when there is
/// no memory; what is there by then is in its place, to be freed with the rest.
fn alloc_part<T: Copy>(
    slot: &mut *mut T,
    start: T,
    fill: impl FnOnce(&mut T) -> Option<()>,
) -> Option<()> {
    *slot = cmem::boxed(start);
    // SAFETY: null or made just now.
    fill(unsafe { slot.as_mut() }?)
}

/// The same for the attributes of an endpoint, which are as long as node 1.10 has them.
fn alloc_ep_attr(
    slot: &mut *mut abi::fi_ep_attr,
    today: abi::fi_ep_attr,
    fill: impl FnOnce(&mut abi::fi_ep_attr) -> Option<()>,
) -> Option<()> {
    let longest = abi::history::fi_ep_attr_1_10 {
        today,
        ..Default::default()
    };
    *slot = cmem::boxed(longest).cast();
    // SAFETY: null or made just now.
    fill(unsafe { slot.as_mut() }?)
}

/// Allocates an `fi_info` that begins as `start`, and fills it; null when there is no memory for all of it.
fn alloc_info(
    start: abi::fi_info,
    fill: impl FnOnce(&mut abi::fi_info) -> Option<()>,
) -> *mut abi::fi_info {
    let mut info = ptr::null_mut();
    if alloc_part(&mut info, start, fill).is_none() {
        // SAFETY: null or made here, and nobody else knows it; what was not filled is null.
        unsafe { free::list(info) };
        return ptr::null_mut();
    }
    info
}

/// A zeroed `fi_info` with all attributes (`fi_allocinfo`), or null when there is no memory.
fn zeroed() -> *mut abi::fi_info {
    alloc_info(abi::fi_info::default(), |info| {
        alloc_part(&mut info.tx_attr, Default::default(), |_| Some(()))?;
        alloc_part(&mut info.rx_attr, Default::default(), |_| Some(()))?;
        alloc_ep_attr(&mut info.ep_attr, Default::default(), |_| Some(()))?;
        alloc_part(&mut info.domain_attr, Default::default(), |_| Some(()))?;
        alloc_part(&mut info.fabric_attr, Default::default(), |_| Some(()))
    })
}

macro_rules! versions {
    ($($node:literal $layout:ident $dup:ident $free:ident;)*) => { $(
        #[doc = concat!("Exported as `fi_dupinfo@FABRIC_", $node, "`: a deep copy of one")]
        /// `fi_info`, or, for null, a zeroed one with all its attributes. Null when there is no
        /// memory. The caller frees it with `fi_freeinfo`.
        ///
        /// # Safety
        ///
        /// `info` is null or points to an `fi_info` as programs of this node know it; every
        /// pointer in it is null or valid for what it points to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $dup(info: *const abi::fi_info) -> *mut abi::fi_info {
            // SAFETY: null or an `fi_info` of this node, by the contract of this function.
            let wide = unsafe { InfoIn::from_c(info).widen_from(&Layout::$layout) };
            wide.map_or_else(zeroed, |wide| wide.copy())
        }

        #[doc = concat!("Exported as `fi_freeinfo@FABRIC_", $node, "`: frees a list of")]
        /// `fi_info` with everything in it. Null is an empty list. Open objects that an entry
        /// names stay open.
        ///
        /// # Safety
        ///
        /// - Each entry came from `fi_getinfo`, `fi_dupinfo` or an event of this library, at
        ///   any node, and is used no more.
        /// - What the program put into an entry came from C's allocator.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $free(info: *mut abi::fi_info) {
            // SAFETY: a list that nobody uses any more, by the contract of this function; entries of
            // every node have the size of the newest.
            unsafe { free::list(info) };
        }
    )* };
}

versions! {
    "1.0" V1_0 ripstop_fi_dupinfo_1_0 ripstop_fi_freeinfo_1_0;
    "1.1" V1_1 ripstop_fi_dupinfo_1_1 ripstop_fi_freeinfo_1_1;
    "1.2" V1_2 ripstop_fi_dupinfo_1_2 ripstop_fi_freeinfo_1_2;
    "1.3" V1_3 ripstop_fi_dupinfo_1_3 ripstop_fi_freeinfo_1_3;
    "1.7" V1_7 ripstop_fi_dupinfo_1_7 ripstop_fi_freeinfo_1_7;
    "1.8" V1_8 ripstop_fi_dupinfo_1_8 ripstop_fi_freeinfo_1_8;
    "1.9" V1_9 ripstop_fi_dupinfo_1_9 ripstop_fi_freeinfo_1_9;
    "1.10" V1_10 ripstop_fi_dupinfo_1_10 ripstop_fi_freeinfo_1_10;
}
