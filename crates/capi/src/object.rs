#![allow(unsafe_code)]
//! C objects: the public struct first, then what this library keeps with it.

use core::any::TypeId;
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, offset_of};
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::log::Subsys;
use ripstop_core::{FidToken, fi_warn};
use ripstop_types::{Errno, Result};

use crate::errno::fail;
use crate::inherited::{self, Head, Inherited, Place};
use crate::tables;

/// What this library keeps with a C object.
pub(crate) trait Body: 'static {
    /// The public struct, which begins with a `fid`.
    type Head: Head;

    /// Whether other objects still use this one.
    fn in_use(&self) -> bool;

    /// Called before the object goes, with its address.
    fn closing(&self, _fid: *mut abi::fid) {}
}

/// An object: what C knows, which type of body it has, its place among all objects, and the body.
#[repr(C)]
pub(crate) struct Object<B: Body> {
    head: B::Head,
    kind: TypeId,
    place: Place,
    body: B,
}

impl<B: Body> Object<B> {
    /// For a process that has inherited the object: no call reaches the body any more.
    ///
    /// # Safety
    ///
    /// `object` is a live one of this type, and no other thread uses it.
    unsafe fn disown(object: *mut ()) {
        let object = object.cast::<Self>();
        // SAFETY: the caller's guarantee.
        let head = unsafe { &raw mut (*object).head };
        // SAFETY: as above.
        unsafe { B::Head::disown(head) };
        // SAFETY: as above; `cast` does not find the body again.
        unsafe { (*object).kind = TypeId::of::<Inherited>() };
    }
}

/// Room for an object whose address is known before it is made.
pub(crate) struct Room<B: Body>(Box<MaybeUninit<Object<B>>>);

impl<B: Body> Room<B> {
    /// Takes memory.
    pub(crate) fn new() -> Self {
        Self(Box::new_uninit())
    }

    /// What the object will be called in events.
    pub(crate) fn token(&self) -> FidToken {
        FidToken(self.0.as_ptr().addr())
    }

    /// Makes the object. C owns it until [`close`].
    pub(crate) fn fill(self, head: B::Head, body: B) -> *mut B::Head {
        let kind = TypeId::of::<B>();
        let place = Place::new(Object::<B>::disown);
        let object = Object {
            head,
            kind,
            place,
            body,
        };
        let object = Box::into_raw(Box::write(self.0, object));
        // Events name the object by its address alone.
        object.expose_provenance();
        // SAFETY: it was just made.
        let place = unsafe { &raw mut (*object).place };
        // SAFETY: live until `close`, which takes it out.
        unsafe { inherited::enter(place, object.cast()) };
        object.cast()
    }
}

/// The body of an object.
///
/// # Safety
///
/// `head` is an open object with a body of this type.
#[inline(always)]
pub(crate) unsafe fn body<'a, B: Body>(head: *mut B::Head) -> &'a B {
    // The head is not covered by the reference: a program may write its `context`.
    // SAFETY: the caller's guarantee: the object is live.
    let body = unsafe { &raw const (*head.cast::<Object<B>>()).body };
    // SAFETY: as above; bodies are only shared until the object is closed.
    unsafe { &*body }
}

/// The body of the object behind a `fid`, if it is of this class and this type.
///
/// # Errors
/// [`Errno::EINVAL`] for null, another class, or an object of another provider.
///
/// # Safety
///
/// `fid` is null or an open object; one of this class is of this library.
pub(crate) unsafe fn cast<'a, B: Body>(fid: *mut abi::fid, class: usize) -> Result<&'a B> {
    // SAFETY: the caller's guarantee, for this and the blocks below.
    if unsafe { class_of(fid) } != Some(class) {
        return Err(Errno::EINVAL);
    }
    // The struct before `kind` is that of the class, so every body has `kind` here.
    let kind = fid.wrapping_byte_add(offset_of!(Object<B>, kind));
    // SAFETY: as above.
    if unsafe { kind.cast::<TypeId>().read() } != TypeId::of::<B>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: as above, and the type of the body was just compared.
    Ok(unsafe { body::<B>(fid.cast()) })
}

/// The class of an object, or `None` for null.
///
/// # Safety
///
/// `fid` is null or an open object.
pub(crate) unsafe fn class_of(fid: *const abi::fid) -> Option<usize> {
    // SAFETY: the caller's guarantee.
    (!fid.is_null()).then(|| unsafe { (*fid).fclass })
}

/// `fi_close`: ends an object unless others use it.
///
/// # Safety
///
/// `fid` is an open object with a body of this type, and no other call uses it.
pub(crate) unsafe extern "C" fn close<B: Body>(fid: *mut abi::fid) -> c_int {
    // SAFETY: the caller's guarantee.
    let body = unsafe { body::<B>(fid.cast()) };
    if body.in_use() {
        return fail(Errno::EBUSY);
    }
    body.closing(fid);
    // SAFETY: the caller's guarantee.
    let place = unsafe { &raw mut (*fid.cast::<Object<B>>()).place };
    // SAFETY: entered when it was made.
    unsafe { inherited::leave(place) };
    // SAFETY: made by `Room::fill`, and closed once.
    drop(unsafe { Box::from_raw(fid.cast::<Object<B>>()) });
    0
}

/// The `fid` at the start of a public struct.
pub(crate) fn fid(class: usize, context: *mut c_void, ops: &'static abi::fi_ops) -> abi::fid {
    abi::fid {
        fclass: class,
        context,
        ops: tables::table(ops),
    }
}

/// A call was given NULL for an argument that is not optional; the log says which.
#[cold]
pub(crate) fn missing(call: &str, argument: &str) -> Errno {
    fi_warn!(
        "core",
        Subsys::Core,
        "{call}: {argument} is NULL; it is not optional"
    );
    Errno::EINVAL
}

/// A call was given what it does not take: `why` says what that is and what to do.
#[cold]
pub(crate) fn refused(call: &str, why: &str, errno: Errno) -> Errno {
    fi_warn!("core", Subsys::Core, "{call}: {why}");
    errno
}

/// The attributes that a context is to have; without any, a struct of zeros, whose fields all stand
/// for what the domain offers.
///
/// # Safety
///
/// `attr` is null or valid.
pub(crate) unsafe fn or_default<A: Default + Copy>(attr: *const A) -> A {
    // SAFETY: the caller's guarantee.
    unsafe { attr.as_ref() }.copied().unwrap_or_default()
}

/// Runs an open call: stores the object, or returns the error and stores nothing.
///
/// # Safety
///
/// `out` is null or valid for writes.
#[track_caller]
pub(crate) unsafe fn open<H>(out: *mut *mut H, make: impl FnOnce() -> Result<*mut H>) -> c_int {
    if out.is_null() {
        return fail(missing("an open call", "the place for the new object"));
    }
    match make() {
        Ok(head) => {
            // SAFETY: not null, and the caller's guarantee.
            unsafe { out.write(head) };
            0
        }
        Err(error) => fail(error),
    }
}

/// What an object is called in events.
pub(crate) fn token<H>(head: *mut H) -> FidToken {
    FidToken(head.expose_provenance())
}

/// The pointer behind a token of an event.
pub(crate) fn pointer(token: FidToken) -> *mut abi::fid {
    ptr::with_exposed_provenance_mut(token.0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Busy(Cell<bool>);
    impl Body for Busy {
        type Head = abi::fid_cq;
        fn in_use(&self) -> bool {
            self.0.get()
        }
    }
    #[test]
    fn a_child_reaches_no_object_of_its_parent() {
        let head = abi::fid_cq {
            fid: fid(abi::FI_CLASS_CQ, ptr::null_mut(), &tables::NO_FID),
            ops: ptr::null_mut(),
        };
        let cq = Room::new().fill(head, Busy(Cell::new(true)));
        // SAFETY: a live object of this type, used here only.
        unsafe { Object::<Busy>::disown(cq.cast()) };
        // SAFETY: as above.
        let head = unsafe { cq.read() };
        // SAFETY: a table is there for good.
        let ops = unsafe { head.ops.read() };
        // SAFETY: as above.
        let fid_ops = unsafe { head.fid.ops.read() };
        let mut entry = [0_u64; 8];
        let entry = ptr::from_mut(&mut entry).cast();
        // SAFETY: the functions look at nothing.
        let read = unsafe { ops.read.unwrap()(cq, entry, 1) };
        assert_eq!(read, -abi::FI_EOPBADSTATE as isize);
        // SAFETY: a live object.
        assert!(unsafe { cast::<Busy>(cq.cast(), abi::FI_CLASS_CQ) }.is_err());
        // SAFETY: as above; nothing is closed, which is busy.
        assert_eq!(unsafe { fid_ops.close.unwrap()(cq.cast()) }, 0);
        // SAFETY: it is whole, whatever its table says.
        unsafe { body::<Busy>(cq) }.0.set(false);
        // SAFETY: live, and used no more.
        assert_eq!(unsafe { close::<Busy>(cq.cast()) }, 0);
    }

    struct Other;
    impl Body for Other {
        type Head = abi::fid_cq;
        fn in_use(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_cast_checks_class_and_type() {
        let room = Room::<Busy>::new();
        let token = room.token();
        let head = abi::fid_cq {
            fid: fid(abi::FI_CLASS_CQ, ptr::null_mut(), &tables::NO_FID),
            ops: ptr::null_mut(),
        };
        let cq = room.fill(head, Busy(Cell::new(true)));
        let fid = cq.cast::<abi::fid>();
        assert_eq!(pointer(token), fid);
        fn is<B: Body>(fid: *mut abi::fid, class: usize) -> bool {
            // SAFETY: a live object or null.
            unsafe { cast::<B>(fid, class) }.is_ok()
        }
        assert!(is::<Busy>(fid, abi::FI_CLASS_CQ));
        assert!(!is::<Busy>(fid, abi::FI_CLASS_EQ));
        assert!(!is::<Other>(fid, abi::FI_CLASS_CQ));
        assert!(!is::<Busy>(ptr::null_mut(), abi::FI_CLASS_CQ));
        // SAFETY: a live object of this type.
        assert_eq!(unsafe { close::<Busy>(fid) }, -abi::FI_EBUSY);
        // SAFETY: as above.
        unsafe { body::<Busy>(cq) }.0.set(false);
        // SAFETY: as above, and used no more.
        assert_eq!(unsafe { close::<Busy>(fid) }, 0);
    }
}
