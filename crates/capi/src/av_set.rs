#![allow(unsafe_code)]
//! Address vector sets (`fi_av_set(3)`).
//!
//! These operations belong to sets of address vectors of type `D` and are called through them;
//! the other set of an operation is null or an open one. Every `SAFETY` remark of an operation
//! rests on this.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::av::set::{AvSet, AvSetAttr};
use ripstop_core::provider::{AddressVector, Domain};
use ripstop_types::{Errno, FiAddr, Flags, Result};

use crate::av::AvBody;
use crate::errno::{code, fail};
use crate::object::{self, Body, Room, body};
use crate::tables::{self, table};

/// What a set's object holds.
pub(crate) struct AvSetBody<D: Domain> {
    pub(crate) set: AvSet,
    /// It stays as long as the set.
    pub(crate) av: Arc<D::Av>,
}

impl<D: Domain> Body for AvSetBody<D> {
    type Head = abi::fid_av_set;

    fn in_use(&self) -> bool {
        // A group has its own list of the members.
        false
    }
}

struct Tables<D>(PhantomData<D>);

impl<D: Domain> Tables<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<AvSetBody<D>>),
        ..tables::NO_FID_OPS
    };
    const SET: &'static abi::fi_ops_av_set = &abi::fi_ops_av_set {
        size: size_of::<abi::fi_ops_av_set>(),
        set_union: Some(union::<D>),
        intersect: Some(intersect::<D>),
        diff: Some(diff::<D>),
        insert: Some(insert::<D>),
        remove: Some(remove::<D>),
        addr: Some(addr::<D>),
    };
}

/// `fi_av_set`.
///
/// # Safety
///
/// `av` is an open address vector of this type; `attr` is null or valid; `set` is null or valid
/// for writes.
pub(crate) unsafe extern "C" fn open<D: Domain>(
    av: *mut abi::fid_av,
    attr: *mut abi::fi_av_set_attr,
    set: *mut *mut abi::fid_av_set,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    let parent = unsafe { body::<AvBody<D>>(av) };
    let make = || {
        // SAFETY: the caller's guarantee.
        let attr = unsafe { attr.as_ref() };
        let attr = attr.ok_or_else(|| object::missing("fi_av_set", "attr"))?;
        let attr = AvSetAttr {
            count: attr.count,
            start: FiAddr(attr.start_addr),
            end: FiAddr(attr.end_addr),
            stride: attr.stride,
            comm_key: attr.comm_key_size != 0,
            flags: Flags::from_bits_retain(attr.flags),
        };
        let av = &parent.av;
        let body = AvSetBody::<D> {
            set: AvSet::new(&attr, av.av_type(), &av.addresses())?,
            av: Arc::clone(av),
        };
        let head = abi::fid_av_set {
            fid: object::fid(abi::FI_CLASS_AV_SET, context, Tables::<D>::FID),
            ops: table(Tables::<D>::SET),
        };
        Ok(Room::new().fill(head, body))
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(set, make) }
}

/// The set behind a pointer, if it is one of this type.
///
/// # Errors
/// [`Errno::EINVAL`].
///
/// # Safety
///
/// `set` is null or an open object.
pub(crate) unsafe fn of<'a, D: Domain>(set: *const abi::fid_av_set) -> Result<&'a AvSetBody<D>> {
    // SAFETY: the caller's guarantee; bodies are only shared.
    unsafe { object::cast::<AvSetBody<D>>(set.cast_mut().cast(), abi::FI_CLASS_AV_SET) }
}

/// Changes one set by another of the same address vector.
///
/// # Safety
///
/// As the module says.
unsafe fn change<D: Domain>(
    dst: *mut abi::fid_av_set,
    src: *const abi::fid_av_set,
    by: impl FnOnce(&AvSet, &AvSet),
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<AvSetBody<D>>(dst) };
    // SAFETY: see the module.
    let other = match unsafe { of::<D>(src) } {
        Ok(other) if Arc::ptr_eq(&this.av, &other.av) => other,
        _ => return fail(Errno::EINVAL),
    };
    by(&this.set, &other.set);
    0
}

unsafe extern "C" fn union<D: Domain>(
    dst: *mut abi::fid_av_set,
    src: *const abi::fid_av_set,
) -> c_int {
    // SAFETY: see the module.
    unsafe { change::<D>(dst, src, AvSet::union) }
}

unsafe extern "C" fn intersect<D: Domain>(
    dst: *mut abi::fid_av_set,
    src: *const abi::fid_av_set,
) -> c_int {
    // SAFETY: see the module.
    unsafe { change::<D>(dst, src, AvSet::intersect) }
}

unsafe extern "C" fn diff<D: Domain>(
    dst: *mut abi::fid_av_set,
    src: *const abi::fid_av_set,
) -> c_int {
    // SAFETY: see the module.
    unsafe { change::<D>(dst, src, AvSet::diff) }
}

unsafe extern "C" fn insert<D: Domain>(set: *mut abi::fid_av_set, addr: abi::fi_addr_t) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<AvSetBody<D>>(set) };
    let known = this.av.lookup(FiAddr(addr));
    code(known.and_then(|_| this.set.insert(FiAddr(addr))))
}

unsafe extern "C" fn remove<D: Domain>(set: *mut abi::fid_av_set, addr: abi::fi_addr_t) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<AvSetBody<D>>(set) };
    code(this.set.remove(FiAddr(addr)))
}

unsafe extern "C" fn addr<D: Domain>(
    set: *mut abi::fid_av_set,
    coll_addr: *mut abi::fi_addr_t,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<AvSetBody<D>>(set) };
    // SAFETY: null or valid for writes.
    let Some(out) = (unsafe { coll_addr.as_mut() }) else {
        return fail(object::missing("fi_av_set_addr", "coll_addr"));
    };
    *out = this.set.addr().0;
    0
}
