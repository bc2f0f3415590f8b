//! The lock of a domain as a type parameter, chosen when the domain opens from the
//! application's threading level (man page `fi_domain(3)`, `FI_THREAD_*`).

use core::cell::{RefCell, RefMut};
use core::ops::DerefMut;

/// A family of locks: either real ones, or none at all.
pub trait Locking: 'static {
    /// The lock around a value.
    type Lock<T>: Lock<T>;
    /// Whether other threads may call at the same time.
    const SHARED: bool;
}

/// A value behind a lock of some family.
pub trait Lock<T> {
    /// Exclusive access until dropped.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    /// Wraps a value.
    fn new(value: T) -> Self;

    /// Takes the lock; waits for other threads in the shared family.
    fn lock(&self) -> Self::Guard<'_>;

    /// Takes the lock if nobody holds it.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
}

/// For `FI_THREAD_SAFE`, `FI_THREAD_FID`, `FI_THREAD_COMPLETION`, `FI_THREAD_ENDPOINT` and
/// whenever a progress thread exists: a mutex.
#[derive(Debug)]
pub struct Shared;

/// For `FI_THREAD_DOMAIN` with manual progress: the application serialises all calls, so the
/// lock is a borrow flag. A call that breaks the promise while another is inside the domain
/// on the same thread panics instead of corrupting memory.
#[derive(Debug)]
pub struct Serial;

impl Locking for Shared {
    type Lock<T> = parking_lot::Mutex<T>;
    const SHARED: bool = true;
}

impl Locking for Serial {
    type Lock<T> = RefCell<T>;
    const SHARED: bool = false;
}

impl<T> Lock<T> for parking_lot::Mutex<T> {
    type Guard<'a>
        = parking_lot::MutexGuard<'a, T>
    where
        T: 'a;

    #[inline]
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    fn lock(&self) -> Self::Guard<'_> {
        self.lock()
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        self.try_lock()
    }
}

impl<T> Lock<T> for RefCell<T> {
    type Guard<'a>
        = RefMut<'a, T>
    where
        T: 'a;

    #[inline]
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    fn lock(&self) -> Self::Guard<'_> {
        self.borrow_mut()
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        self.try_borrow_mut().ok()
    }
}
