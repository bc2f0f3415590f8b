#![allow(unsafe_code)]
//! One result of `fi_getinfo`(3).

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ripstop_abi::history::{fi_domain_attr_1_1, fi_info_1_1};
use ripstop_abi::{FI_TYPE_INFO, fi_ep_attr, fi_fabric_attr, fi_info, fid_t};
use ripstop_types::{EpType, Errno, Flags, Mode, MrMode, Version};

use crate::library::{Functions, copy_text};
use crate::{Addr, Error, Result};

/// One way of communicating. `Display` prints it as `fi_info -v` does.
pub(crate) struct Info {
    functions: Arc<Functions>,
    raw: NonNull<fi_info>,
}

// SAFETY: an info is plain memory of the library, this one ours alone.
unsafe impl Send for Info {}

// SAFETY: shared access only reads; calls that take it writable get a copy.
unsafe impl Sync for Info {}

impl Info {
    /// A copy of one entry of a list.
    pub(crate) fn copy(functions: &Arc<Functions>, entry: *const fi_info) -> Result<Self> {
        let raw = functions.dup(entry)?;
        Ok(Self::adopt(functions, raw).expect("a copy is not null"))
    }

    /// Takes over an info the library allocated for us, if there is one.
    pub(crate) fn adopt(functions: &Arc<Functions>, raw: *mut fi_info) -> Option<Self> {
        Some(Self {
            functions: functions.clone(),
            raw: NonNull::new(raw)?,
        })
    }

    /// A copy for a call of the same library that takes the info writable, without the handle
    /// of a connection request.
    pub(crate) fn duplicate(&self, call: &'static str, functions: &Functions) -> Result<Self> {
        if !self.functions.same(functions) {
            return Err(Error::new(call, Errno::EINVAL));
        }
        let mut copy = Self::copy(&self.functions, self.raw.as_ptr())?;
        copy.set_handle(ptr::null_mut());
        Ok(copy)
    }

    pub(crate) fn functions(&self) -> &Arc<Functions> {
        &self.functions
    }

    /// The raw info, valid while `self` is.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut fi_info {
        self.raw.as_ptr()
    }

    pub(crate) fn top(&self) -> &fi_info_1_1 {
        // SAFETY: the library allocated the info, at least this long, and nobody writes it.
        unsafe { self.raw.cast().as_ref() }
    }

    /// Whether the library's infos have traffic classes: interface 1.3 brought them, which
    /// libraries of 1.10 have for certain.
    pub(crate) fn has_classes(&self) -> bool {
        self.functions.version >= Version::new(1, 10)
    }

    pub(crate) fn handle(&self) -> fid_t {
        self.top().handle
    }

    pub(crate) fn set_handle(&mut self, handle: fid_t) {
        // SAFETY: the info is allocated and `&mut self` makes this the only access.
        unsafe { self.raw.as_mut() }.handle = handle;
    }

    fn ep(&self) -> fi_ep_attr {
        copy_part(self.top().ep_attr)
    }

    fn domain(&self) -> fi_domain_attr_1_1 {
        copy_part(self.top().domain_attr)
    }

    pub(crate) fn fabric(&self) -> fi_fabric_attr {
        copy_part(self.top().fabric_attr)
    }

    /// Provider name, for instance `tcp` or `tcp;ofi_rxm`.
    pub(crate) fn provider(&self) -> String {
        copy_text(self.fabric().prov_name)
    }

    /// Domain name.
    pub(crate) fn domain_name(&self) -> String {
        copy_text(self.domain().name)
    }

    /// Capabilities.
    pub(crate) fn caps(&self) -> Flags {
        Flags::from_bits_retain(self.top().caps)
    }

    /// Modes the provider needs.
    pub(crate) fn mode(&self) -> Mode {
        Mode::from_bits_retain(self.top().mode)
    }

    /// Address format, an `FI_SOCKADDR*` or `FI_ADDR_*` value.
    pub(crate) fn addr_format(&self) -> u32 {
        self.top().addr_format
    }

    /// Endpoint type, [`EpType::Unspec`] for one this project does not know.
    pub(crate) fn ep_type(&self) -> EpType {
        EpType::from_raw(self.ep().type_).unwrap_or_default()
    }

    /// Memory registration modes the provider needs.
    pub(crate) fn mr_mode(&self) -> MrMode {
        MrMode::from_bits_retain(self.domain().mr_mode as u32)
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value: *const c_void = self.raw.as_ptr().cast_const().cast();
        f.write_str(&self.functions.text(value, FI_TYPE_INFO))
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Info")
            .field("provider", &self.provider())
            .field("domain", &self.domain_name())
            .field("ep_type", &self.ep_type())
            .finish_non_exhaustive()
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: the info came from this library and nothing points into it any more.
        unsafe { (self.functions.freeinfo)(self.raw.as_ptr()) }
    }
}

/// Copies a part of an info; a missing part is all zero.
pub(crate) fn copy_part<T: Copy + Default>(part: *const T) -> T {
    if part.is_null() {
        return T::default();
    }
    // SAFETY: the part belongs to a live info and is at least as long as the layout that the
    // callers name: that of release 1.5, or a newer one where the library is.
    unsafe { part.read() }
}

/// Copies an address of an info.
pub(crate) fn copy_addr(addr: *const c_void, len: usize) -> Option<Addr> {
    if addr.is_null() || len == 0 {
        return None;
    }
    // SAFETY: a live info says that its address has `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), len) };
    Some(Addr::from_bytes(bytes))
}
