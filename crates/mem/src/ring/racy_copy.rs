#![allow(unsafe_code)]
//! Copies between private memory and memory that a peer may write at the same time.
//!
//! On x86-64 they are assembly, so that a race with the peer is outside Rust's memory model: each byte
//! copied is one that was written at some time. Assembly is a barrier for the compiler, and the
//! processor keeps the order of these loads and stores, also between a string instruction and what
//! follows it. Elsewhere, and under Miri, they are relaxed atomics.

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
pub(super) use portable::{
    into_buffer, into_line, out_of_buffer, out_of_line, prefetch, read_entry,
};
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
pub(super) use x86::{
    copy_bulk as into_buffer, copy_bulk as out_of_buffer, copy_line as into_line,
    copy_line as out_of_line, prefetch, read_entry,
};

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
mod x86 {
    use core::arch::asm;

    use crate::ring::layout::MAX_INLINE_BYTES;

    /// Copies from this length on use `rep movsb`, which is then faster than the loop.
    const REP_MOVSB_MIN_BYTES: usize = 1024;

    /// Whether `rep movsb` is to be avoided: where the destination lies less than a vector behind the
    /// source in its page, AMD's Zen 4 takes 2 to 25 times as long. See docs/performance.md, "Where a
    /// buffer lies".
    #[inline]
    pub(in crate::ring) fn rep_movsb_is_slow(dst: usize, src: usize) -> bool {
        matches!(dst.wrapping_sub(src) % 4096, 1..32)
    }

    /// Prefetches a line; any address will do.
    #[inline(always)]
    pub(in crate::ring) fn prefetch(line: *const u8) {
        // SAFETY: this is a hint, which does nothing with an address that is not mapped.
        unsafe {
            asm!("prefetcht0 [{line}]", line = in(reg) line, options(nostack, preserves_flags, readonly));
        }
    }

    /// Copies the first and the last `width` bytes, which may overlap.
    macro_rules! ends {
        ($dst:ident, $src:ident, $n:ident, $class:ident, $mov:literal, $form:literal, $width:literal) => {
            // SAFETY: `n` is between one and two widths, so both parts lie within the `n`
            // bytes, which the caller vouches for.
            unsafe {
                asm!(
                    concat!($mov, " {a", $form, "}, [{s}]"),
                    concat!($mov, " {b", $form, "}, [{s} + {n} - ", $width, "]"),
                    concat!($mov, " [{d}], {a", $form, "}"),
                    concat!($mov, " [{d} + {n} - ", $width, "], {b", $form, "}"),
                    a = out($class) _, b = out($class) _,
                    s = in(reg) $src, d = in(reg) $dst, n = in(reg) $n,
                    options(nostack, preserves_flags),
                )
            }
        };
    }

    /// The longest copy of [`copy_line`] in bytes.
    const MAX_COPY_LINE_BYTES: usize = 64;

    const _: () = assert!(
        MAX_INLINE_BYTES <= MAX_COPY_LINE_BYTES,
        "`copy_line` copies the inline bytes of an entry"
    );

    /// Copies `n` bytes, at most [`MAX_COPY_LINE_BYTES`]: of a longer copy the middle would be left out.
    ///
    /// # Safety
    ///
    /// `src` is mapped for reads and `dst` for writes of `n` bytes, and the two are apart. The
    /// private side is valid for that access in Rust's sense.
    #[inline(always)]
    pub(in crate::ring) unsafe fn copy_line(dst: *mut u8, src: *const u8, n: usize) {
        if n > 32 {
            // SAFETY: 32 < n <= 64: the four parts cover the `n` bytes and none is outside.
            unsafe {
                asm!(
                    "movups {a}, [{s}]",
                    "movups {b}, [{s} + 16]",
                    "movups {c}, [{s} + {n} - 32]",
                    "movups {e}, [{s} + {n} - 16]",
                    "movups [{d}], {a}",
                    "movups [{d} + 16], {b}",
                    "movups [{d} + {n} - 32], {c}",
                    "movups [{d} + {n} - 16], {e}",
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
                    s = in(reg) src, d = in(reg) dst, n = in(reg) n,
                    options(nostack, preserves_flags),
                );
            }
        } else if n >= 16 {
            ends!(dst, src, n, xmm_reg, "movups", "", "16");
        } else if n >= 8 {
            ends!(dst, src, n, reg, "mov", "", "8");
        } else if n >= 4 {
            ends!(dst, src, n, reg, "mov", ":e", "4");
        } else if n >= 2 {
            ends!(dst, src, n, reg, "mov", ":x", "2");
        } else if n == 1 {
            // SAFETY: one byte of each.
            unsafe {
                asm!(
                    "mov {a}, [{s}]",
                    "mov [{d}], {a}",
                    a = out(reg_byte) _, s = in(reg) src, d = in(reg) dst,
                    options(nostack, preserves_flags),
                );
            }
        }
    }

    const _: () = assert!(
        MAX_INLINE_BYTES == 56,
        "the moves of `read_entry`: three times 16 bytes, and 8"
    );

    /// Copies the inline bytes of an entry.
    ///
    /// # Safety
    ///
    /// `src` is mapped for reads of [`MAX_INLINE_BYTES`] bytes.
    #[inline(always)]
    pub(in crate::ring) unsafe fn read_entry(dst: &mut [u8; MAX_INLINE_BYTES], src: *const u8) {
        // SAFETY: 56 bytes of each; `dst` is borrowed.
        unsafe {
            asm!(
                "movups {a}, [{s}]",
                "movups {b}, [{s} + 16]",
                "movups {c}, [{s} + 32]",
                "mov {e}, [{s} + 48]",
                "movups [{d}], {a}",
                "movups [{d} + 16], {b}",
                "movups [{d} + 32], {c}",
                "mov [{d} + 48], {e}",
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(reg) _,
                s = in(reg) src, d = in(reg) dst.as_mut_ptr(),
                options(nostack, preserves_flags),
            );
        }
    }

    /// Copies `n` bytes.
    ///
    /// # Safety
    ///
    /// As for [`copy_line`], for any `n`.
    pub(in crate::ring) unsafe fn copy_bulk(dst: *mut u8, src: *const u8, n: usize) {
        if n >= REP_MOVSB_MIN_BYTES && !rep_movsb_is_slow(dst.addr(), src.addr()) {
            // SAFETY: `n` bytes of each; the direction flag is clear by the calling convention.
            unsafe {
                asm!(
                    "rep movsb",
                    inout("rcx") n => _, inout("rsi") src => _, inout("rdi") dst => _,
                    options(nostack, preserves_flags),
                );
            }
            return;
        }
        let whole = n - n % MAX_COPY_LINE_BYTES;
        for at in (0..whole).step_by(MAX_COPY_LINE_BYTES) {
            // SAFETY: this many bytes from `at` on are within the `n` bytes.
            unsafe {
                copy_line(
                    dst.wrapping_add(at),
                    src.wrapping_add(at),
                    MAX_COPY_LINE_BYTES,
                );
            }
        }
        // SAFETY: the rest of the `n` bytes, fewer than those of one more.
        unsafe {
            copy_line(
                dst.wrapping_add(whole),
                src.wrapping_add(whole),
                n % MAX_COPY_LINE_BYTES,
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
mod portable {
    use crate::ring::layout::MAX_INLINE_BYTES;

    /// Prefetching is not implemented here.
    #[inline(always)]
    pub(in crate::ring) fn prefetch(_: *const u8) {}

    pub(in crate::ring) use crate::region::{
        load_bytes as out_of_buffer, load_bytes as out_of_line, store_bytes as into_buffer,
        store_bytes as into_line,
    };

    /// Copies the inline bytes of an entry.
    ///
    /// # Safety
    ///
    /// `src` is mapped for reads of [`MAX_INLINE_BYTES`] bytes.
    #[inline]
    pub(in crate::ring) unsafe fn read_entry(dst: &mut [u8; MAX_INLINE_BYTES], src: *const u8) {
        // SAFETY: as many bytes of each; `dst` is borrowed.
        unsafe { out_of_line(dst.as_mut_ptr(), src, MAX_INLINE_BYTES) };
    }
}

#[cfg(all(test, target_arch = "x86_64", target_feature = "sse2", not(miri)))]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::into_buffer;
    use super::x86::rep_movsb_is_slow;

    #[test]
    fn the_string_copy_is_avoided_where_a_destination_is_close_behind_its_source() {
        let src = 0x10_0010;
        for (distance, slow) in [
            (0, false),
            (1, true),
            (31, true),
            (32, false),
            (4095, false),
        ] {
            for pages in [0, 4096, 1 << 20] {
                assert_eq!(rep_movsb_is_slow(src + pages + distance, src), slow);
            }
        }
        assert!(rep_movsb_is_slow(src - 4096 + 8, src), "before the source");
    }

    #[test]
    fn copies_are_whole_wherever_both_ends_lie() {
        let from: Vec<u8> = (0_u32..9000).map(|at| (at % 251) as u8).collect();
        for len in [1023, 1024, 1025, 4096, 4100] {
            for (src, dst) in [(0, 0), (16, 24), (24, 16), (0, 8), (5, 4096), (7, 4100)] {
                let mut into = vec![0; 9000];
                // SAFETY: `len` bytes from `src` and `dst` on are within two separate vectors.
                unsafe { into_buffer(into[dst..].as_mut_ptr(), from[src..].as_ptr(), len) };
                assert_eq!(into[dst..dst + len], from[src..src + len]);
                assert!(into[..dst].iter().all(|&byte| byte == 0));
                assert!(into[dst + len..].iter().all(|&byte| byte == 0));
            }
        }
    }
}
