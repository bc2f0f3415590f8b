#![allow(unsafe_code)]
//! C objects: the public struct first, then what this library keeps with it. What it keeps with those that others are opened
//! in is here, too.

pub(crate) mod domain;
pub(crate) mod fabric;

use core::any::TypeId;
use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::mem::{MaybeUninit, offset_of};
use core::ops::Deref;
use core::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_abi as abi;
use ripstop_core::FidToken;
use ripstop_types::{Errno, Result};

use crate::edge::{AnyFid, Arg, Out};
use crate::errno::{fail, missing};
use crate::inherited::{self, Head, Inherited, Node};
use crate::tables::{Table, none, table};

/// What this library keeps with a C object.
pub(crate) trait Body: Sized + 'static {
    /// The public struct, which begins with a `fid`.
    type Head: Head;

    /// The operations of an object that can only be closed.
    const CLOSING: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(close::<Self>),
        ..*Table::NONE
    };

    /// Whether other objects still use this one.
    fn in_use(&self) -> bool;

    /// Called before the object goes, with its address.
    fn closing(&self, _fid: *mut abi::fid) {}
}

/// How long a close waits for a call of another thread that uses the object for a moment, such as its progress.
pub(crate) const LONGEST_CALL: Duration = Duration::from_millis(100);

/// Whether others own an object for longer than [`LONGEST_CALL`].
pub(crate) fn stays_held<T: ?Sized>(object: &Arc<T>) -> bool {
    let start = Instant::now();
    while Arc::strong_count(object) > 1 {
        if start.elapsed() > LONGEST_CALL {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Declares the body of an object that is in use as long as others own what its field holds.
macro_rules! shared {
    ([$($generics:tt)*] $body:ty: $head:ident, $($field:ident).+) => {
        impl<$($generics)*> $crate::object::Body for $body {
            type Head = ripstop_abi::$head;

            fn in_use(&self) -> bool {
                std::sync::Arc::strong_count(&self.$($field).+) > 1
            }
        }
    };
}

pub(crate) use shared;

/// An object: what C knows, which type of body it has, its node in the list of all objects, and the body.
#[repr(C)]
pub(crate) struct Object<B: Body> {
    head: B::Head,
    kind: TypeId,
    node: Node,
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
        // SAFETY: a live object, by the contract of this function.
        let head = unsafe { &raw mut (*object).head };
        // SAFETY: the public struct of a live object that no other thread uses.
        unsafe { B::Head::disown(head) };
        // SAFETY: a live object that no other thread uses; `cast` does not find its body again.
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
        let node = Node::new(Object::<B>::disown);
        let object = Object {
            head,
            kind,
            node,
            body,
        };
        let object = Box::into_raw(Box::write(self.0, object));
        // Events name the object by its address alone.
        object.expose_provenance();
        // SAFETY: it was just made.
        let node = unsafe { &raw mut (*object).node };
        // SAFETY: the node of this object, which stays where it is until `close` takes it out.
        unsafe { inherited::link(node, object.cast()) };
        object.cast()
    }
}

/// The object that an operation belongs to: open, and with a body of this type. The operation is
/// passed its public struct, or the `fid` at its start (`H`).
pub(crate) struct This<'a, B: Body, H = <B as Body>::Head> {
    head: *mut H,
    open: PhantomData<&'a B>,
}

impl<B: Body, H> Clone for This<'_, B, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Body, H> Copy for This<'_, B, H> {}

impl<B: Body, H> Arg for This<'_, B, H> {
    type C = *mut H;

    #[inline(always)]
    unsafe fn from_c(head: *mut H) -> Self {
        let open = PhantomData;
        Self { head, open }
    }
}

impl<B: Body, H> Deref for This<'_, B, H> {
    type Target = B;

    #[inline(always)]
    fn deref(&self) -> &B {
        // SAFETY: an open object with a body of this type, as `from_c` was promised.
        unsafe { body(self.head) }
    }
}

impl<B: Body, H> This<'_, B, H> {
    /// The context that the program has stored in it.
    pub(crate) fn context(self) -> *mut c_void {
        // SAFETY: an open object, as `from_c` was promised; its public struct begins with a `fid`.
        unsafe { (*self.fid()).context }
    }

    /// Its `fid`.
    pub(crate) fn fid(self) -> *mut abi::fid {
        self.head.cast()
    }

    /// What it is called in events.
    pub(crate) fn token(self) -> FidToken {
        FidToken(self.head.expose_provenance())
    }
}

/// The body of an object.
///
/// # Safety
///
/// `head` is an open object with a body of this type.
#[inline(always)]
unsafe fn body<'a, B: Body, H>(head: *mut H) -> &'a B {
    // The head is not covered by the reference: a program may write its `context`.
    // SAFETY: the object is live, by the contract of this function.
    let body = unsafe { &raw const (*head.cast::<Object<B>>()).body };
    // SAFETY: the body of a live object, which is only shared until the object is closed.
    unsafe { &*body }
}

impl<'a> AnyFid<'a> {
    /// The body of the object, if it is of this class and this type.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null, another class, or an object of another provider.
    pub(crate) fn cast<B: Body>(self, class: usize) -> Result<&'a B> {
        if self.class() != Some(class) {
            return Err(Errno::EINVAL);
        }
        let fid = self.as_ptr();
        // The struct before `kind` is that of the class, so every body has `kind` here.
        let kind = fid.wrapping_byte_add(offset_of!(Object<B>, kind));
        // SAFETY: an open object of this library, as `AnyFid::new` was promised of objects of its
        // classes, so it has a `kind`.
        if unsafe { kind.cast::<TypeId>().read() } != TypeId::of::<B>() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: an open object, and the type of its body was just compared.
        Ok(unsafe { body(fid) })
    }
}

/// `fi_close`: ends an object unless others use it.
///
/// # Safety
///
/// `fid` is an open object with a body of this type, and no other call uses it.
pub(crate) unsafe extern "C" fn close<B: Body>(fid: *mut abi::fid) -> c_int {
    // SAFETY: an open object of this type, by the contract of this function.
    let this = unsafe { This::<B, abi::fid>::from_c(fid) };
    if this.in_use() {
        return fail(Errno::EBUSY);
    }
    this.closing(fid);
    let object = fid.cast::<Object<B>>();
    // SAFETY: a live object, by the contract of this function.
    let node = unsafe { &raw mut (*object).node };
    // SAFETY: `Room::fill` has linked it.
    unsafe { inherited::unlink(node) };
    // SAFETY: `Room::fill` has made it from a box; it is in no list any more, and no other call
    // uses it.
    drop(unsafe { Box::from_raw(object) });
    0
}

/// The `fid` at the start of a public struct.
pub(crate) fn fid(class: usize, context: *mut c_void, ops: &'static abi::fi_ops) -> abi::fid {
    abi::fid {
        fclass: class,
        context,
        ops: table(ops),
    }
}

/// The public struct of what is opened as an endpoint, with none of its operations.
pub(crate) fn bare_ep(
    class: usize,
    context: *mut c_void,
    ops: &'static abi::fi_ops,
) -> abi::fid_ep {
    abi::fid_ep {
        fid: fid(class, context, ops),
        ops: none(),
        cm: none(),
        msg: none(),
        rma: none(),
        tagged: none(),
        atomic: none(),
        collective: none(),
    }
}

impl<H> Out<'_, *mut H> {
    /// Runs an open call: stores the object, or returns the error and stores nothing.
    #[track_caller]
    pub(crate) fn open(&self, make: impl FnOnce() -> Result<*mut H>) -> c_int {
        if self.is_null() {
            return fail(missing("an open call", "the place for the new object"));
        }
        match make() {
            Ok(head) => {
                self.put(head);
                0
            }
            Err(error) => fail(error),
        }
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
    fn any(fid: *mut abi::fid) -> AnyFid<'static> {
        // SAFETY: the tests pass null or a live object of this library.
        unsafe { AnyFid::new(fid) }
    }

    fn make(busy: bool) -> (FidToken, *mut abi::fid_cq) {
        let room = Room::new();
        let token = room.token();
        let head = abi::fid_cq {
            fid: fid(abi::FI_CLASS_CQ, ptr::null_mut(), Table::NONE),
            ops: ptr::null_mut(),
        };
        (token, room.fill(head, Busy(Cell::new(busy))))
    }

    /// Closes an object that is busy, and then not.
    fn close_both_ways(cq: *mut abi::fid_cq) {
        // SAFETY: a live object of this type.
        let this = unsafe { This::<Busy>::from_c(cq) };
        // SAFETY: a live object of this type, which no other call uses.
        assert_eq!(unsafe { close::<Busy>(cq.cast()) }, -abi::FI_EBUSY);
        this.0.set(false);
        // SAFETY: a live object of this type, which is used no more.
        assert_eq!(unsafe { close::<Busy>(cq.cast()) }, 0);
    }

    #[test]
    fn a_child_reaches_no_object_of_its_parent() {
        let (_, cq) = make(true);
        // SAFETY: a live object of this type, used here only.
        unsafe { Object::<Busy>::disown(cq.cast()) };
        // SAFETY: the public struct of a live object.
        let head = unsafe { cq.read() };
        // SAFETY: its tables are static.
        let ops = unsafe { head.ops.read() };
        // SAFETY: its tables are static.
        let fid_ops = unsafe { head.fid.ops.read() };
        let mut entry = [0_u64; 8];
        let entry = ptr::from_mut(&mut entry).cast();
        // SAFETY: the function looks at none of its arguments.
        let read = unsafe { ops.read.unwrap()(cq, entry, 1) };
        assert_eq!(read, -abi::FI_EOPBADSTATE as isize);
        assert!(any(cq.cast()).cast::<Busy>(abi::FI_CLASS_CQ).is_err());
        // SAFETY: the function looks at none of its arguments, and closes nothing.
        assert_eq!(unsafe { fid_ops.close.unwrap()(cq.cast()) }, 0);
        close_both_ways(cq);
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
        let (token, cq) = make(true);
        let fid = cq.cast::<abi::fid>();
        assert_eq!(pointer(token), fid);
        fn is<B: Body>(fid: *mut abi::fid, class: usize) -> bool {
            any(fid).cast::<B>(class).is_ok()
        }
        assert!(is::<Busy>(fid, abi::FI_CLASS_CQ));
        assert!(!is::<Busy>(fid, abi::FI_CLASS_EQ));
        assert!(!is::<Other>(fid, abi::FI_CLASS_CQ));
        assert!(!is::<Busy>(ptr::null_mut(), abi::FI_CLASS_CQ));
        close_both_ways(cq);
    }
}
