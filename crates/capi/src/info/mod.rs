#![allow(unsafe_code)]
//! `struct fi_info`: reading a caller's, making ours, copying and freeing (`fi_getinfo(3)`).

use core::ptr;

use ripstop_abi as abi;

mod copy;
mod free;
pub(crate) mod layout;
mod nic;
pub(crate) mod read;
pub(crate) mod write;

#[cfg(test)]
mod tests;

pub(crate) use free::list as free_list;

use crate::cmem;
use layout::{Layout, Widened};

/// A zeroed `fi_info` with all attributes, or null when there is no memory.
fn allocate() -> *mut abi::fi_info {
    let made = cmem::zeroed::<abi::fi_info>(1);
    // SAFETY: null or made just now.
    let Some(info) = (unsafe { made.as_mut() }) else {
        return made;
    };
    info.tx_attr = cmem::zeroed(1);
    info.rx_attr = cmem::zeroed(1);
    info.ep_attr = cmem::zeroed(1);
    info.domain_attr = cmem::zeroed(1);
    info.fabric_attr = cmem::zeroed(1);
    let attrs = [
        info.tx_attr.cast(),
        info.rx_attr.cast(),
        info.ep_attr.cast(),
        info.domain_attr.cast(),
        info.fabric_attr.cast::<()>(),
    ];
    if attrs.contains(&ptr::null_mut()) {
        // SAFETY: made here, and nobody else knows it.
        unsafe { free::list(made) };
        return ptr::null_mut();
    }
    made
}

/// `fi_dupinfo` at some version node.
///
/// # Safety
///
/// `info` is null or an `fi_info` of that node, with valid pointers.
unsafe fn duplicate(info: *const abi::fi_info, layout: &Layout) -> *mut abi::fi_info {
    if info.is_null() {
        return allocate();
    }
    // SAFETY: the caller's guarantee.
    let wide = unsafe { Widened::read(info, layout) };
    // SAFETY: the caller's guarantee; what the node lacks is null.
    unsafe { copy::info(wide.info()) }
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
            // SAFETY: the caller's guarantee.
            unsafe { duplicate(info, &Layout::$layout) }
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
            // SAFETY: the caller's guarantee; entries of every node have today's size.
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
}
