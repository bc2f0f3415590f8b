#![allow(unsafe_code)]
//! An `fi_info` that a value of Rust owns: what the `fi_getinfo` of a provider from a shared object answers. It is kept
//! as C made it, beside the `Info` that is read from it (as its `Handle`), and programs get a copy of it: it may have
//! values that no provider here has.

use core::ptr;

use ripstop_abi as abi;

use super::layout::{InfoIn, Layout};
use super::{copy, free};
use crate::edge::{Arg as _, Whole};

/// One `fi_info` that is in no list, with everything it points to. It is never null.
pub(crate) struct OwnedInfo(*mut abi::fi_info);

// SAFETY: an `fi_info` is memory that belongs to this value alone, and no thread's.
unsafe impl Send for OwnedInfo {}
// SAFETY: shared access only reads.
unsafe impl Sync for OwnedInfo {}

impl OwnedInfo {
    /// The entries of a list, each alone.
    ///
    /// # Safety
    ///
    /// `list` is null or a list that a provider of this layout has made for the caller, which uses it no
    /// more.
    pub(crate) unsafe fn from_list(mut list: *mut abi::fi_info, layout: &Layout) -> Vec<Self> {
        let mut all = Vec::new();
        // SAFETY: null or an entry of the list.
        while let Some(entry) = unsafe { list.as_mut() } {
            let next = core::mem::replace(&mut entry.next, ptr::null_mut());
            // SAFETY: an entry that nobody else has, as the provider knows it.
            all.extend(unsafe { Self::in_current_layout(list, layout) });
            list = next;
        }
        all
    }

    /// Takes an entry, which is replaced by a copy in today's layout if it has another; `None` when there is no memory.
    ///
    /// # Safety
    ///
    /// The entry is one of this layout, alone, and belongs to the caller.
    unsafe fn in_current_layout(entry: *mut abi::fi_info, layout: &Layout) -> Option<Self> {
        if layout.is_current() {
            return Some(Self(entry));
        }
        // SAFETY: an entry of this layout, by the contract of this function.
        let info = unsafe { InfoIn::from_c(entry.cast_const()) };
        // SAFETY: of this layout, as above.
        let wide = unsafe { info.widen_from(layout) };
        let copy = wide.map_or(ptr::null_mut(), |wide| copy::info(wide.whole()));
        // SAFETY: it was made for the caller, and the copy shares nothing with it.
        unsafe { free::list(entry) };
        (!copy.is_null()).then_some(Self(copy))
    }

    /// The `fi_info`.
    pub(crate) fn get(&self) -> Whole<'_, abi::fi_info> {
        // SAFETY: a whole `fi_info`, which lasts as long as `self`.
        unsafe { Whole::behind(self.0) }.expect("an entry")
    }

    /// The attributes of its fabric, to be named by.
    pub(crate) fn fabric_attr(&mut self) -> Option<&mut abi::fi_fabric_attr> {
        // SAFETY: an `fi_info` that belongs to `self`.
        let info = unsafe { self.0.as_mut() }?;
        // SAFETY: null or a part of it.
        unsafe { info.fabric_attr.as_mut() }
    }

    /// A copy for the program; null when there is no memory.
    pub(crate) fn copy(&self) -> *mut abi::fi_info {
        copy::info(self.get())
    }
}

impl Drop for OwnedInfo {
    fn drop(&mut self) {
        // SAFETY: it belongs to this value, and came from C's allocator, as the interface asks.
        unsafe { free::list(self.0) };
    }
}
