#![allow(unsafe_code)]
//! Elements that the processor cannot update atomically: a lock of this process guards their updates.

use core::hint;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::element::AtomicElement;

/// The number of locks. An element's address selects one.
const LOCK_COUNT: usize = 64;

/// A spin lock on a cache line of its own. It is held for a few loads, stores and one computation.
#[repr(align(64))]
struct Stripe(AtomicBool);

static LOCKS: [Stripe; LOCK_COUNT] = [const { Stripe(AtomicBool::new(false)) }; LOCK_COUNT];

/// A held lock, released when dropped.
struct StripeGuard(&'static Stripe);

impl StripeGuard {
    /// Acquires the lock of the element at `addr`. Elements are at least 8 bytes long.
    fn lock(addr: usize) -> Self {
        let stripe = &LOCKS[(addr >> 3) % LOCK_COUNT];
        while stripe.0.swap(true, Ordering::Acquire) {
            while stripe.0.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
        }
        Self(stripe)
    }
}

impl Drop for StripeGuard {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// An element that is updated under a lock, in words of 8 bytes, or of 4 if its alignment requires. It has
/// 8, 16 or 32 bytes, and its address is a multiple of 4.
#[derive(Clone, Copy)]
pub(super) struct LockedElement(*mut u8);

/// Calls `$each` with every word of `$atomic` in `$ptr` and the bytes of `$bytes` it stands for.
macro_rules! each_word {
    ($atomic:ty, $size:literal, $ptr:expr, $bytes:expr, $each:expr) => {
        for (i, bytes) in $bytes.iter_mut().enumerate() {
            let word = $ptr.wrapping_add(i * $size).cast();
            // SAFETY: inside the element and aligned, by the caller; nobody accesses it other
            // than atomically. An atomic reference lets others write.
            $each(unsafe { <$atomic>::from_ptr(word) }, bytes);
        }
    };
}

impl LockedElement {
    /// Copies the element out.
    ///
    /// # Safety
    ///
    /// As for [`AtomicElement::load`].
    unsafe fn copy_out<const N: usize>(self) -> [u8; N] {
        let mut bytes = [0; N];
        if self.0.addr().is_multiple_of(8) {
            let load = |word: &AtomicU64, bytes: &mut [u8; 8]| {
                *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            };
            each_word!(AtomicU64, 8, self.0, bytes.as_chunks_mut().0, load);
        } else {
            let load = |word: &AtomicU32, bytes: &mut [u8; 4]| {
                *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            };
            each_word!(AtomicU32, 4, self.0, bytes.as_chunks_mut().0, load);
        }
        bytes
    }

    /// Copies a value into the element.
    ///
    /// # Safety
    ///
    /// As for [`AtomicElement::update`].
    unsafe fn copy_in<const N: usize>(self, mut bytes: [u8; N]) {
        if self.0.addr().is_multiple_of(8) {
            let store = |word: &AtomicU64, bytes: &mut [u8; 8]| {
                word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
            };
            each_word!(AtomicU64, 8, self.0, bytes.as_chunks_mut().0, store);
        } else {
            let store = |word: &AtomicU32, bytes: &mut [u8; 4]| {
                word.store(u32::from_ne_bytes(*bytes), Ordering::Relaxed);
            };
            each_word!(AtomicU32, 4, self.0, bytes.as_chunks_mut().0, store);
        }
    }
}

impl<const N: usize> AtomicElement<N> for LockedElement {
    #[inline]
    fn at(ptr: *mut u8) -> Self {
        Self(ptr)
    }

    unsafe fn load(self) -> [u8; N] {
        let _guard = StripeGuard::lock(self.0.addr());
        // SAFETY: the caller's guarantee.
        unsafe { self.copy_out() }
    }

    unsafe fn update(self, mut f: impl FnMut(&[u8; N]) -> [u8; N]) -> [u8; N] {
        let _guard = StripeGuard::lock(self.0.addr());
        // SAFETY: the caller's guarantee.
        let old = unsafe { self.copy_out() };
        let new = f(&old);
        if new != old {
            // SAFETY: the caller's guarantee.
            unsafe { self.copy_in(new) };
        }
        old
    }
}
