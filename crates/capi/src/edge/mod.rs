#![allow(unsafe_code)]
//! What a C call passes, as types that carry the promise its caller makes.
//!
//! The manual page of a call says what its arguments are: a pointer is null or valid, an array has
//! as many elements as its count says. [`trampolines!`] writes the C function of each operation:
//! it converts every argument once into a type that says what holds of it ([`Whole`], [`Array`],
//! [`Out`], `This`, `Src`, ...), and the body behind is safe code, which the compiler sees to.

use core::convert::identity;
use core::ffi::{CStr, c_char, c_int};

use ripstop_abi as abi;
use ripstop_types::{FiAddr, Flags};

mod fid;
mod pointers;
mod whole;

pub(crate) use fid::{AnyFid, Object};
pub(crate) use whole::{Argument, Array, In, Out, Pointer, Whole};

/// An argument of a C call.
pub(crate) trait Arg: Sized {
    /// Its C type.
    type C;

    /// The argument as what its manual page says it is.
    ///
    /// # Safety
    ///
    /// `c` is what a C caller passes where the interface asks for what the type describes. The
    /// value is used during that call.
    unsafe fn from_c(c: Self::C) -> Self;
}

/// Two arguments that follow one another and belong together.
pub(crate) trait Arg2: Sized {
    /// The C type of the first.
    type A;
    /// The C type of the second.
    type B;

    /// As [`Arg::from_c`].
    ///
    /// # Safety
    ///
    /// As for [`Arg::from_c`].
    unsafe fn from_c(a: Self::A, b: Self::B) -> Self;
}

/// Three arguments that follow one another and belong together.
pub(crate) trait Arg3: Sized {
    /// The C type of the first.
    type A;
    /// The C type of the second.
    type B;
    /// The C type of the third.
    type C;

    /// As [`Arg::from_c`].
    ///
    /// # Safety
    ///
    /// As for [`Arg::from_c`].
    unsafe fn from_c(a: Self::A, b: Self::B, c: Self::C) -> Self;
}

/// Writes C functions whose bodies are safe.
///
/// `[D: Domain]` are the type parameters of all functions of one call of the macro. An argument is
/// `name: Type`, where `Type` is an [`Arg`] and decides the C type, or `name: Type(a, b)` or
/// `name: Type(a, b, c)` for an [`Arg2`] or [`Arg3`] that takes as many C arguments; what stands in
/// the parentheses only names them for the reader. Exported functions say the C types as well, after
/// `as`, because callers in Rust see them; `name as CType` is passed on as it is.
macro_rules! trampolines {
    ($generics:tt $(
        $(#[$meta:meta])* $vis:vis extern "C" fn $name:ident($($args:tt)*) -> $ret:ty $body:block
    )*) => { $(
        $crate::edge::trampolines! {
            @args [$(#[$meta])* $vis fn $name $generics -> $ret $body] [] [] $($args)*,
        }
    )* };
    (@args $fn:tt $params:tt $lets:tt $x:ident: $t:ident($a:ident, $b:ident), $($rest:tt)*) => {
        $crate::edge::trampolines! { @args $fn $params $lets
            $x: $t(a, b) as (<$t as $crate::edge::Arg2>::A, <$t as $crate::edge::Arg2>::B),
            $($rest)*
        }
    };
    (@args $fn:tt [$($params:tt)*] [$($lets:tt)*]
        $x:ident: $t:ident($a:ident, $b:ident, $c:ident), $($rest:tt)*
    ) => {
        $crate::edge::trampolines! { @args $fn
            [$($params)*
                a: <$t as $crate::edge::Arg3>::A,
                b: <$t as $crate::edge::Arg3>::B,
                c: <$t as $crate::edge::Arg3>::C,]
            [$($lets)*
                // SAFETY: C calls this function with the arguments that its manual page asks for.
                let $x = unsafe { <$t as $crate::edge::Arg3>::from_c(a, b, c) };]
            $($rest)*
        }
    };
    (@args $fn:tt [$($params:tt)*] [$($lets:tt)*]
        $x:ident: $t:ident($a:ident, $b:ident) as ($ta:ty, $tb:ty), $($rest:tt)*
    ) => {
        $crate::edge::trampolines! { @args $fn
            [$($params)* $a: $ta, $b: $tb,]
            [$($lets)*
                // SAFETY: C calls this function with the arguments that its manual page asks for.
                let $x = unsafe { <$t as $crate::edge::Arg2>::from_c($a, $b) };]
            $($rest)*
        }
    };
    (@args $fn:tt [$($params:tt)*] $lets:tt $x:ident as $c:ty, $($rest:tt)*) => {
        $crate::edge::trampolines! { @args $fn [$($params)* $x: $c,] $lets $($rest)* }
    };
    (@args $fn:tt [$($params:tt)*] [$($lets:tt)*] $x:ident: $t:ty as $c:ty, $($rest:tt)*) => {
        $crate::edge::trampolines! { @args $fn
            [$($params)* $x: $c,]
            [$($lets)*
                // SAFETY: C calls this function with the arguments that its manual page asks for,
                // and through the table of an object of the type that `This` names.
                let $x = unsafe { <$t as $crate::edge::Arg>::from_c($x) };]
            $($rest)*
        }
    };
    (@args $fn:tt $params:tt $lets:tt $x:ident: $t:ty, $($rest:tt)*) => {
        $crate::edge::trampolines! { @args $fn $params $lets
            $x: $t as <$t as $crate::edge::Arg>::C, $($rest)*
        }
    };
    (@args
        [$(#[$meta:meta])* $vis:vis fn $name:ident [$($generics:tt)*] -> $ret:ty $body:block]
        [$($params:tt)*] [$($lets:tt)*] $(,)?
    ) => {
        $(#[$meta])*
        #[allow(unsafe_code)]
        $vis unsafe extern "C" fn $name<$($generics)*>($($params)*) -> $ret {
            $($lets)*
            #[deny(unsafe_code)]
            let answer: $ret = $body;
            answer
        }
    };
}

pub(crate) use trampolines;

/// Declares arguments that are kept as C passes them until the call uses them: an [`Arg`] of one field,
/// or an [`Arg2`] of two.
macro_rules! arguments {
    () => {};
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $at:ident: $c:ty } $($rest:tt)*) => {
        $(#[$meta])*
        $vis struct $name<'a> {
            $at: $c,
            call: core::marker::PhantomData<&'a ()>,
        }

        #[allow(unsafe_code)]
        impl $crate::edge::Arg for $name<'_> {
            type C = $c;

            #[inline(always)]
            unsafe fn from_c($at: $c) -> Self {
                let call = core::marker::PhantomData;
                Self { $at, call }
            }
        }

        $crate::edge::arguments! { $($rest)* }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $at:ident: $a:ty, $len:ident: $b:ty } $($rest:tt)*) => {
        $(#[$meta])*
        $vis struct $name<'a> {
            $at: $a,
            $len: $b,
            call: core::marker::PhantomData<&'a ()>,
        }

        #[allow(unsafe_code)]
        impl<'a> $crate::edge::Arg2 for $name<'a> {
            type A = <$a as $crate::edge::Arg>::C;
            type B = <$b as $crate::edge::Arg>::C;

            #[inline(always)]
            unsafe fn from_c(
                $at: <$a as $crate::edge::Arg>::C,
                $len: <$b as $crate::edge::Arg>::C,
            ) -> Self {
                // SAFETY: each of the two is this argument, by the contract of `from_c`.
                let $at = unsafe { <$a as $crate::edge::Arg>::from_c($at) };
                // SAFETY: each of the two is this argument, by the contract of `from_c`.
                let $len = unsafe { <$b as $crate::edge::Arg>::from_c($len) };
                let call = core::marker::PhantomData;
                Self { $at, $len, call }
            }
        }

        $crate::edge::arguments! { $($rest)* }
    };
}

pub(crate) use arguments;

/// Arguments that say all there is to know, and what makes them of C's.
macro_rules! values {
    ($($t:ty = $c:ty: $of:expr;)*) => { $(
        impl Arg for $t {
            type C = $c;

            #[inline(always)]
            unsafe fn from_c(c: $c) -> Self {
                $of(c)
            }
        }
    )* };
}

values! {
    c_int = c_int: identity;
    u32 = u32: identity;
    u64 = u64: identity;
    usize = usize: identity;
    FiAddr = abi::fi_addr_t: FiAddr;
    Flags = u64: Flags::from_bits_retain;
}

/// An address that is not followed.
impl<P: Pointer> Arg for P {
    type C = Self;

    #[inline(always)]
    unsafe fn from_c(c: Self) -> Self {
        c
    }
}

/// A C string, or null.
impl Arg for Option<&CStr> {
    type C = *const c_char;

    #[inline]
    unsafe fn from_c(c: *const c_char) -> Self {
        // SAFETY: a pointer that is not null is to a C string, by the contract of `from_c`.
        (!c.is_null()).then(|| unsafe { CStr::from_ptr(c) })
    }
}

/// A variable that a call reads and writes, or null.
impl<T> Arg for Option<&mut T> {
    type C = *mut T;

    #[inline]
    unsafe fn from_c(c: *mut T) -> Self {
        // SAFETY: null or a valid variable that nobody else uses during the call, by the contract
        // of `from_c`.
        unsafe { c.as_mut() }
    }
}
