#![allow(unsafe_code)]
//! The exported calls that open a fabric (`fi_fabric(3)`).

use core::ffi::{c_int, c_void};

use ripstop_abi as abi;
use ripstop_types::{Errno, Version};

use crate::edge::{In, Out, Whole, arguments, trampolines};
use crate::errno::{fail, missing};
use crate::info::layout::{FABRIC_1_0, widen};
use crate::info::read;
use crate::{loaded, providers};

/// Opens the fabric that attributes name.
fn open(
    attr: Option<Whole<'_, abi::fi_fabric_attr>>,
    fabric: &Out<'_, *mut abi::fid_fabric>,
    context: *mut c_void,
) -> c_int {
    let Some(attr) = attr else {
        return fail(missing("fi_fabric", "attr"));
    };
    if attr.name.is_null() || attr.prov_name.is_null() {
        return fail(missing("fi_fabric", "attr->name or attr->prov_name"));
    }
    fabric.open(|| {
        let read = read::fabric_attr(attr)?;
        loaded::load();
        let name = read.prov_name.as_deref().unwrap_or_default();
        let opened = match loaded::find(name) {
            Some(hook) if hook.is_hook() => Err(Errno::ENODEV),
            Some(provider) => provider.open_fabric(attr, context),
            None => providers::open_fabric(&read, context),
        };
        // SAFETY: just opened, and the program does not have it yet.
        opened.map(|fabric| unsafe { loaded::install(fabric, name) })
    })
}

trampolines! { []
    /// Exported as `fi_fabric@@FABRIC_1.1`: opens a fabric that `fi_getinfo` found. Returns 0;
    /// `-FI_EINVAL` for null or without names, `-FI_ENODEV` for a provider that is not there,
    /// `-FI_ENODATA` for a fabric it does not know.
    ///
    /// # Safety
    ///
    /// - `attr` is null or valid, with names that are null or C strings.
    /// - `fabric` is null or valid for writes.
    #[unsafe(no_mangle)]
    pub extern "C" fn ripstop_fi_fabric_1_1(
        attr: In<*mut abi::fi_fabric_attr> as *mut abi::fi_fabric_attr,
        fabric: Out<*mut abi::fid_fabric> as *mut *mut abi::fid_fabric,
        context as *mut c_void,
    ) -> c_int {
        open(attr.get(), &fabric, context)
    }

    /// Exported as `fi_fabric@FABRIC_1.0`, whose attributes do not say which version the program
    /// was written for: it counts as 1.0.
    ///
    /// # Safety
    ///
    /// As for [`ripstop_fi_fabric_1_1`], with the shorter attributes of that node.
    #[unsafe(no_mangle)]
    pub extern "C" fn ripstop_fi_fabric_1_0(
        attr: OldAttr as *mut abi::fi_fabric_attr,
        fabric: Out<*mut abi::fid_fabric> as *mut *mut abi::fid_fabric,
        context as *mut c_void,
    ) -> c_int {
        open(attr.wide().as_ref().map(WideAttr::whole), &fabric, context)
    }

    /// Exported as `fi_fabric2@@FABRIC_1.8`: as `fi_fabric`, with the attributes of `info`; flags
    /// are `-FI_EINVAL`.
    ///
    /// # Safety
    ///
    /// - `info` is null or valid, with attributes as `fi_fabric` takes them.
    /// - `fabric` is null or valid for writes.
    #[unsafe(no_mangle)]
    pub extern "C" fn ripstop_fi_fabric2_1_8(
        info: In<*mut abi::fi_info> as *mut abi::fi_info,
        fabric: Out<*mut abi::fid_fabric> as *mut *mut abi::fid_fabric,
        flags as u64,
        context as *mut c_void,
    ) -> c_int {
        match info.get() {
            Some(info) if flags == 0 => open(info.fabric_attr(), &fabric, context),
            _ => fail(Errno::EINVAL),
        }
    }
}

arguments! {
    /// The attributes of node 1.0: null, or as many bytes as they had there.
    struct OldAttr { at: *mut abi::fi_fabric_attr }
}

impl OldAttr<'_> {
    /// The attributes in today's layout; `None` for null.
    fn wide(self) -> Option<WideAttr> {
        if self.at.is_null() {
            return None;
        }
        // SAFETY: not null, and then that many bytes, as `from_c` was promised.
        let mut wide = unsafe { widen(self.at, FABRIC_1_0) };
        wide.api_version = Version::new(1, 0).0;
        Some(WideAttr(wide))
    }
}

/// Attributes whose strings are still those of [`OldAttr`].
struct WideAttr(abi::fi_fabric_attr);

impl WideAttr {
    fn whole(&self) -> Whole<'_, abi::fi_fabric_attr> {
        // SAFETY: its names are null or C strings, as those of `OldAttr`, which lasts as long as
        // the call.
        unsafe { Whole::new(&self.0) }
    }
}
