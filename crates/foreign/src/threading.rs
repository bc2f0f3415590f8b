#![allow(unsafe_code)]
//! The threading mode of objects, as a type.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ptr::NonNull;

use parking_lot::Mutex;

/// How a domain and everything below it may be used across threads: [`Shared`] or [`Single`].
pub trait Threading: Sized + 'static + private::Sealed {
    /// Whether objects may be used from several threads at once.
    const SHARED: bool;
    /// What guards the book of operations.
    #[doc(hidden)]
    type Lock<T>: Lock<T>;
}

/// Objects go to any thread; domains are opened with `FI_THREAD_SAFE`.
#[derive(Debug)]
pub struct Shared;

/// Objects stay on one thread; domains are opened with any threading level.
#[derive(Debug)]
pub struct Single;

impl Threading for Shared {
    const SHARED: bool = true;
    type Lock<T> = Mutex<T>;
}

impl Threading for Single {
    const SHARED: bool = false;
    type Lock<T> = RefCell<T>;
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Shared {}
    impl Sealed for super::Single {}
}

/// Exclusive access to a `T`.
#[doc(hidden)]
pub trait Lock<T> {
    fn new(value: T) -> Self;
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;
}

impl<T> Lock<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock())
    }
}

impl<T> Lock<T> for RefCell<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.borrow_mut())
    }
}

/// Pointer to a C object that stays open while this exists.
pub(crate) struct Ptr<T, M> {
    raw: NonNull<T>,
    mode: PhantomData<M>,
}

impl<T, M> Ptr<T, M> {
    pub(crate) fn new(raw: *mut T) -> Option<Self> {
        let raw = NonNull::new(raw)?;
        Some(Self {
            raw,
            mode: PhantomData,
        })
    }

    #[inline]
    pub(crate) fn get(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

// SAFETY: a `Shared` object hangs below a domain whose level is `FI_THREAD_SAFE`, or is a fabric
// object, for which the man page gives every level the same rule: any thread may call.
unsafe impl<T> Send for Ptr<T, Shared> {}

// SAFETY: at that level calls of several threads on one object may overlap (`fi_domain(3)`), and
// the pointer itself does not change.
unsafe impl<T> Sync for Ptr<T, Shared> {}

/// `Debug` of objects that have nothing to show but their kind.
macro_rules! opaque {
    ($($name:ident $(<$mode:ident>)?),*) => {
        $(impl $(<$mode: Threading>)? std::fmt::Debug for crate::$name $(<$mode>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        })*
    };
}

opaque!(
    Av<M>,
    AvSet<M>,
    Counter<M>,
    Cq<M>,
    Domain<M>,
    Endpoint<M>,
    Eq,
    Fabric,
    Group<M>,
    Mr<M>,
    PassiveEp,
    ScalableEp<M>,
    SharedRx<M>,
    SharedTx<M>
);
