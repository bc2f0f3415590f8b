#![allow(unsafe_code)]
//! Fabrics (`fi_fabric(3)`).

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::FabricAttr;
use ripstop_core::provider::{CompletionQueue, Counter, Domain, Fabric};
use ripstop_types::{Errno, Result};

use crate::counter::CounterBody;
use crate::cq::CqBody;
use crate::edge::{AnyFid, Array, Out, arguments, trampolines};
use crate::eq::{self, EqBody};
use crate::errno::{code, fail, missing};
use crate::info::layout::InfoIn;
use crate::info::read;
use crate::object::domain::check_flags;
use crate::object::fabric::FabricBody;
use crate::object::{self, Body, Room, This};
use crate::tables::{Table, table};
use crate::waitset::{self, SetBody};
use crate::{domain, opened, passive};

impl<F: Fabric> FabricBody<F> {
    const FABRIC: &'static abi::fi_ops_fabric = &abi::fi_ops_fabric {
        domain: Some(domain::<F>),
        passive_ep: Some(passive::open::<F>),
        eq_open: Some(eq::open::<F>),
        wait_open: Some(waitset::open::<F>),
        trywait: Some(trywait::<F>),
        domain2: Some(domain2::<F>),
        ..*Table::NONE
    };
}

/// Makes the object of a fabric that a provider has opened.
pub(crate) fn object<F: Fabric>(
    fabric: Arc<F>,
    attr: &FabricAttr,
    context: *mut c_void,
) -> *mut abi::fid_fabric {
    let head = abi::fid_fabric {
        fid: object::fid(abi::FI_CLASS_FABRIC, context, FabricBody::<F>::CLOSING),
        ops: table(FabricBody::<F>::FABRIC),
        api_version: attr.api_version.0,
    };
    let body = FabricBody {
        fabric,
        api: attr.api_version,
    };
    let made = Room::new().fill(head, body);
    opened::fabric_opened(attr, made.cast());
    made
}

trampolines! { [F: Fabric]
    /// `fi_domain`.
    extern "C" fn domain(
        this: This<FabricBody<F>>, info: InfoIn<*mut abi::fi_info>, dom: Out<*mut abi::fid_domain>,
        context: *mut c_void,
    ) -> c_int {
        dom.open(|| open_domain(this, info, context))
    }

    /// `fi_domain2`.
    extern "C" fn domain2(
        this: This<FabricBody<F>>, info: InfoIn<*mut abi::fi_info>, dom: Out<*mut abi::fid_domain>,
        flags: u64, context: *mut c_void,
    ) -> c_int {
        match check_flags(flags) {
            Ok(()) => dom.open(|| open_domain(this, info, context)),
            Err(error) => fail(error),
        }
    }

    /// `fi_trywait`.
    extern "C" fn trywait(_fabric: *mut abi::fid_fabric, fids: Objects(fids, count)) -> c_int {
        code(fids.get().and_then(|mut fids| fids.try_for_each(trywait_one::<F>)))
    }
}

/// Opens a domain with the lock that its attributes need.
fn open_domain<F: Fabric>(
    this: This<'_, FabricBody<F>>,
    info: InfoIn<'_, *mut abi::fi_info>,
    context: *mut c_void,
) -> Result<*mut abi::fid_domain> {
    let info = read::without_contexts("fi_domain", info)?;
    let (api, parent) = (this.api, Arc::clone(&this.fabric));
    let made = if F::needs_lock(&info) {
        let domain = this.fabric.safe_domain(&info)?;
        domain::object(domain, &info, api, parent, context)
    } else {
        let domain = this.fabric.serial_domain(&info)?;
        domain::object(domain, &info, api, parent, context)
    };
    opened::domain_opened(this.fid(), &info, made.cast());
    Ok(made)
}

arguments! {
    /// The objects of `fi_trywait`: null, or as many as the count beside it says.
    struct Objects { at: *mut *mut abi::fid, count: c_int }
}

impl<'a> Objects<'a> {
    /// # Errors
    /// [`Errno::EINVAL`] for a negative count, or null with a count.
    fn get(self) -> Result<impl Iterator<Item = AnyFid<'a>>> {
        let count = usize::try_from(self.count).map_err(|_| Errno::EINVAL)?;
        // SAFETY: null or that many objects, as `from_c` was promised.
        let fids = unsafe { Array::new(self.at, count) };
        let fids = fids.get().ok_or_else(|| missing("fi_trywait", "fids"))?;
        // SAFETY: null or an open object, as `from_c` was promised of each.
        Ok(fids.iter().map(|fid| unsafe { AnyFid::new(*fid) }))
    }
}

fn trywait_one<F: Fabric>(fid: AnyFid<'_>) -> Result<()> {
    let class = fid
        .class()
        .ok_or_else(|| missing("fi_trywait", "one of fids"))?;
    if class == abi::FI_CLASS_EQ {
        return fid.cast::<EqBody>(class)?.eq.try_wait();
    }
    if class == abi::FI_CLASS_WAIT {
        return fid.cast::<SetBody>(class)?.set.try_wait();
    }
    // A queue belongs to a domain of one of the two kinds.
    trywait_in::<F::SafeDomain>(fid, class)
        .or_else(|| trywait_in::<F::SerialDomain>(fid, class))
        .unwrap_or(Err(Errno::EINVAL))
}

/// The answer of a queue or counter of this kind of domain, or `None` for another object.
fn trywait_in<D: Domain>(fid: AnyFid<'_>, class: usize) -> Option<Result<()>> {
    match class {
        abi::FI_CLASS_CQ => Some(fid.cast::<CqBody<D>>(class).ok()?.cq.try_wait()),
        abi::FI_CLASS_CNTR => Some(fid.cast::<CounterBody<D>>(class).ok()?.counter.try_wait()),
        _ => None,
    }
}
