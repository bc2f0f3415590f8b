#![allow(unsafe_code)]
//! Fabrics (`fi_fabric(3)`).

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::slice;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::{CompletionQueue, Counter, Domain, Fabric};
use ripstop_core::registry::Lease;
use ripstop_core::{FabricAttr, Info};
use ripstop_types::{Errno, Result, Version};

use crate::counter::CounterBody;
use crate::cq::CqBody;
use crate::eq::{self, EqBody};
use crate::errno::{code, fail};
use crate::info::layout::{FABRIC_1_0, widen};
use crate::info::read;
use crate::object::{self, Body, Room, body};
use crate::tables::{self, table};
use crate::waitset::SetBody;
use crate::{domain, opened, passive, providers, waitset};

/// What a fabric's object holds.
pub(crate) struct FabricBody<F: Fabric> {
    pub(crate) fabric: Arc<F>,
    /// The version the program was written for.
    pub(crate) api: Version,
    /// The provider stays while the fabric does.
    _lease: Lease,
}

impl<F: Fabric> Body for FabricBody<F> {
    type Head = abi::fid_fabric;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.fabric) > 1
    }

    fn closing(&self, fid: *mut abi::fid) {
        opened::fabric_closed(fid);
    }
}

struct Tables<F>(PhantomData<F>);

impl<F: Fabric> Tables<F> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<FabricBody<F>>),
        ..tables::NO_FID_OPS
    };
    const FABRIC: &'static abi::fi_ops_fabric = &abi::fi_ops_fabric {
        domain: Some(domain::<F>),
        passive_ep: Some(passive::open::<F>),
        eq_open: Some(eq::open::<F>),
        wait_open: Some(waitset::open::<F>),
        trywait: Some(trywait::<F>),
        domain2: Some(domain2::<F>),
        ..tables::NO_FABRIC_OPS
    };
}

/// Makes the object of a fabric that a provider has opened.
pub(crate) fn object<F: Fabric>(
    fabric: Arc<F>,
    attr: &FabricAttr,
    lease: Lease,
    context: *mut c_void,
) -> *mut abi::fid_fabric {
    let head = abi::fid_fabric {
        fid: object::fid(abi::FI_CLASS_FABRIC, context, Tables::<F>::FID),
        ops: table(Tables::<F>::FABRIC),
        api_version: attr.api_version.0,
    };
    let body = FabricBody {
        fabric,
        api: attr.api_version,
        _lease: lease,
    };
    let made = Room::new().fill(head, body);
    opened::fabric_opened(attr, made.cast());
    made
}

/// `fi_domain`: `fabric` is a fabric of this type; `info` is null or whole; `dom` is null or
/// valid for writes.
unsafe extern "C" fn domain<F: Fabric>(
    fabric: *mut abi::fid_fabric,
    info: *mut abi::fi_info,
    dom: *mut *mut abi::fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: this operation belongs to fabrics of this type.
    let this = unsafe { body::<FabricBody<F>>(fabric) };
    let make = || {
        // SAFETY: the caller's guarantee.
        let mut info = unsafe { read::without_contexts("fi_domain", info) }?;
        // A connection request belongs to the endpoint.
        info.handle = None;
        let made = open_domain(this, &info, context)?;
        opened::domain_opened(fabric.cast(), &info, made.cast());
        Ok(made)
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(dom, make) }
}

/// Opens a domain with the lock that its attributes need.
fn open_domain<F: Fabric>(
    this: &FabricBody<F>,
    info: &Info,
    context: *mut c_void,
) -> Result<*mut abi::fid_domain> {
    let (api, parent) = (this.api, Arc::clone(&this.fabric));
    if F::needs_lock(info) {
        let domain = this.fabric.safe_domain(info)?;
        Ok(domain::object(domain, info, api, parent, context))
    } else {
        let domain = this.fabric.serial_domain(info)?;
        Ok(domain::object(domain, info, api, parent, context))
    }
}

/// `fi_domain2`.
unsafe extern "C" fn domain2<F: Fabric>(
    fabric: *mut abi::fid_fabric,
    info: *mut abi::fi_info,
    dom: *mut *mut abi::fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if let Err(error) = domain::check_flags(flags) {
        return fail(error);
    }
    // SAFETY: the same guarantee.
    unsafe { self::domain::<F>(fabric, info, dom, context) }
}

/// `fi_trywait`: `fids` is null or has `count` open objects.
unsafe extern "C" fn trywait<F: Fabric>(
    _fabric: *mut abi::fid_fabric,
    fids: *mut *mut abi::fid,
    count: c_int,
) -> c_int {
    let Ok(count) = usize::try_from(count) else {
        return fail(Errno::EINVAL);
    };
    if count == 0 {
        return 0;
    }
    if fids.is_null() {
        return fail(object::missing("fi_trywait", "fids"));
    }
    // SAFETY: not null, and the caller's guarantee.
    let fids = unsafe { slice::from_raw_parts(fids, count) };
    // SAFETY: the caller's guarantee.
    let check = |fid: &*mut abi::fid| unsafe { trywait_one::<F>(*fid) };
    code(fids.iter().try_for_each(check))
}

/// # Safety
///
/// `fid` is null or an open object.
unsafe fn trywait_one<F: Fabric>(fid: *mut abi::fid) -> Result<()> {
    // SAFETY: the caller's guarantee, for each block of this function.
    let class = unsafe { object::class_of(fid) };
    let class = class.ok_or_else(|| object::missing("fi_trywait", "one of fids"))?;
    if class == abi::FI_CLASS_EQ {
        // SAFETY: as above.
        return unsafe { object::cast::<EqBody>(fid, class) }?.try_wait();
    }
    if class == abi::FI_CLASS_WAIT {
        // SAFETY: as above.
        return unsafe { object::cast::<SetBody>(fid, class) }?.try_wait();
    }
    // A queue belongs to a domain of one of the two kinds.
    // SAFETY: as above.
    let safe = unsafe { trywait_in::<F::SafeDomain>(fid, class) };
    if let Some(result) = safe {
        return result;
    }
    // SAFETY: as above.
    let serial = unsafe { trywait_in::<F::SerialDomain>(fid, class) };
    serial.unwrap_or(Err(Errno::EINVAL))
}

/// The answer of a queue or counter of this kind of domain, or `None` for another object.
///
/// # Safety
///
/// `fid` is an open object of this class.
unsafe fn trywait_in<D: Domain>(fid: *mut abi::fid, class: usize) -> Option<Result<()>> {
    match class {
        abi::FI_CLASS_CQ => {
            // SAFETY: the caller's guarantee.
            let queue = unsafe { object::cast::<CqBody<D>>(fid, class) }.ok()?;
            Some(queue.cq.try_wait())
        }
        abi::FI_CLASS_CNTR => {
            // SAFETY: the caller's guarantee.
            let counter = unsafe { object::cast::<CounterBody<D>>(fid, class) }.ok()?;
            Some(counter.counter.try_wait())
        }
        _ => None,
    }
}

/// Opens the fabric that attributes name.
///
/// # Safety
///
/// `attr` is valid, with names that are null or C strings; `fabric` is null or valid for
/// writes.
unsafe fn open(
    attr: &abi::fi_fabric_attr,
    fabric: *mut *mut abi::fid_fabric,
    context: *mut c_void,
) -> c_int {
    if attr.name.is_null() || attr.prov_name.is_null() {
        return fail(object::missing(
            "fi_fabric",
            "attr->name or attr->prov_name",
        ));
    }
    let make = || {
        // SAFETY: the caller's guarantee.
        let attr = unsafe { read::fabric_attr(attr) }?;
        providers::open_fabric(&attr, context)
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(fabric, make) }
}

/// Exported as `fi_fabric@@FABRIC_1.1`: opens a fabric that `fi_getinfo` found. Returns 0;
/// `-FI_EINVAL` for null or without names, `-FI_ENODEV` for a provider that is not there,
/// `-FI_ENODATA` for a fabric it does not know.
///
/// # Safety
///
/// - `attr` is null or valid, with names that are null or C strings.
/// - `fabric` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_fabric_1_1(
    attr: *mut abi::fi_fabric_attr,
    fabric: *mut *mut abi::fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    match unsafe { attr.as_ref() } {
        // SAFETY: the caller's guarantee.
        Some(attr) => unsafe { open(attr, fabric, context) },
        None => fail(object::missing("fi_fabric", "attr")),
    }
}

/// Exported as `fi_fabric@FABRIC_1.0`, whose attributes do not say which version the program
/// was written for: it counts as 1.0.
///
/// # Safety
///
/// As for [`ripstop_fi_fabric_1_1`], with the shorter attributes of that node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_fabric_1_0(
    attr: *mut abi::fi_fabric_attr,
    fabric: *mut *mut abi::fid_fabric,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() {
        return fail(object::missing("fi_fabric", "attr"));
    }
    // SAFETY: the caller's guarantee: so many bytes.
    let mut wide = unsafe { widen(attr, FABRIC_1_0) };
    wide.api_version = Version::new(1, 0).0;
    // SAFETY: the caller's guarantee.
    unsafe { open(&wide, fabric, context) }
}

/// Exported as `fi_fabric2@@FABRIC_1.8`: as `fi_fabric`, with the attributes of `info`; flags
/// are `-FI_EINVAL`.
///
/// # Safety
///
/// - `info` is null or valid, with attributes as `fi_fabric` takes them.
/// - `fabric` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_fabric2_1_8(
    info: *mut abi::fi_info,
    fabric: *mut *mut abi::fid_fabric,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    match unsafe { info.as_ref() } {
        Some(info) if flags == 0 => {
            // SAFETY: the caller's guarantee.
            unsafe { ripstop_fi_fabric_1_1(info.fabric_attr, fabric, context) }
        }
        _ => fail(Errno::EINVAL),
    }
}
