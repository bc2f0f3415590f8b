#![allow(unsafe_code)]
//! Atomic updates of 16-byte elements by `cmpxchg16b`.

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicU8, Ordering};

use super::element::AtomicElement;

/// The value of [`FEATURES`] before they are detected.
const NOT_DETECTED: u8 = 0;
/// Set when they are detected.
const DETECTED: u8 = 1;
/// The processor has `cmpxchg16b`.
const CMPXCHG16B: u8 = 2;
/// The processor has AVX, and with it atomic aligned loads of 16 bytes.
const AVX: u8 = 4;

/// The detected features of the processor: `cpuid` takes a microsecond under a hypervisor.
static FEATURES: AtomicU8 = AtomicU8::new(NOT_DETECTED);

/// The features of the processor, detected once.
#[inline]
fn features() -> u8 {
    match FEATURES.load(Ordering::Relaxed) {
        NOT_DETECTED => detect_features(),
        known => known,
    }
}

/// Detects the features by `cpuid`.
#[cold]
fn detect_features() -> u8 {
    let leaf = __cpuid(1);
    let mut found = DETECTED;
    if leaf.ecx & (1 << 13) != 0 {
        found |= CMPXCHG16B;
    }
    if leaf.ecx & (1 << 28) != 0 {
        found |= AVX;
    }
    FEATURES.store(found, Ordering::Relaxed);
    found
}

/// Whether [`Cmpxchg16bElement`] works on this processor.
#[inline]
pub(super) fn available() -> bool {
    cfg!(target_feature = "cmpxchg16b") || features() & CMPXCHG16B != 0
}

/// An element of 16 bytes. Its address is a multiple of 16, and the processor is [`available`].
/// Loading it needs memory that is valid for writes, unless the processor has AVX.
#[derive(Clone, Copy)]
pub(super) struct Cmpxchg16bElement(*mut u128);

/// `cmpxchg16b`: returns the value found, which was replaced by `new` if it is `old`. Sequentially
/// consistent.
///
/// # Safety
///
/// As for [`AtomicElement::update`], and the processor is [`available`].
#[inline]
pub(super) unsafe fn compare_exchange(ptr: *mut u128, old: u128, new: u128) -> u128 {
    let (mut low, mut high) = (old as u64, (old >> 64) as u64);
    // SAFETY: reads and writes the 16 valid, aligned bytes at `ptr`. The compiler keeps `rbx` for
    // itself, so it is exchanged and put back.
    unsafe {
        asm!(
            "xchg {new_low}, rbx",
            "lock cmpxchg16b xmmword ptr [rdi]",
            "mov rbx, {new_low}",
            new_low = inout(reg) new as u64 => _,
            in("rcx") (new >> 64) as u64,
            inout("rax") low,
            inout("rdx") high,
            in("rdi") ptr,
            options(nostack),
        );
    }
    u128::from(high) << 64 | u128::from(low)
}

/// Loads 16 bytes atomically.
///
/// # Safety
///
/// `ptr` is valid for reads and aligned, and the processor has AVX.
#[cfg(not(target_os = "none"))]
#[inline]
unsafe fn load(ptr: *const u128) -> u128 {
    let mut value = 0u128;
    // SAFETY: reads and writes 16 bytes at valid, aligned addresses. Processors with AVX do an
    // aligned load of 16 bytes in one step, and the compiler cannot detect_features inside.
    unsafe {
        asm!(
            "movdqa {x}, xmmword ptr [{from}]",
            "movdqa xmmword ptr [{to}], {x}",
            from = in(reg) ptr,
            to = in(reg) &raw mut value,
            x = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    value
}

impl AtomicElement<16> for Cmpxchg16bElement {
    #[inline]
    fn at(ptr: *mut u8) -> Self {
        Self(ptr.cast())
    }

    #[inline]
    unsafe fn load(self) -> [u8; 16] {
        #[cfg(not(target_os = "none"))]
        if features() & AVX != 0 {
            // SAFETY: the caller's guarantee, and the processor has AVX.
            return unsafe { load(self.0) }.to_ne_bytes();
        }
        // SAFETY: the caller's guarantee; a `Cmpxchg16bElement` is only made where it is available. Whatever
        // is there stays: a 0 is replaced by a 0.
        unsafe { compare_exchange(self.0, 0, 0) }.to_ne_bytes()
    }

    #[inline]
    unsafe fn update(self, mut f: impl FnMut(&[u8; 16]) -> [u8; 16]) -> [u8; 16] {
        // SAFETY: the caller's guarantee.
        let mut old = u128::from_ne_bytes(unsafe { self.load() });
        loop {
            let new = u128::from_ne_bytes(f(&old.to_ne_bytes()));
            if new == old {
                return old.to_ne_bytes();
            }
            // SAFETY: the caller's guarantee; a `Cmpxchg16bElement` is only made where it is available.
            let found = unsafe { compare_exchange(self.0, old, new) };
            if found == old {
                return old.to_ne_bytes();
            }
            old = found;
        }
    }
}
