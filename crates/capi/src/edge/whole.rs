#![allow(unsafe_code)]
//! Structs, arrays and places that a caller lends.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::ops::Deref;
use core::{ptr, slice};

use ripstop_types::Result;

use super::{Arg, Arg2, Arg3, arguments};
use crate::errno::missing;

/// `const T *` or `T *`: the interface is not of one mind for arguments that are only read.
pub(crate) trait Pointer: Copy {
    /// What it points to.
    type Target;

    /// The pointer to nothing.
    fn null() -> Self;

    /// As the one kind.
    fn address(self) -> *const Self::Target;
}

impl<T> Pointer for *const T {
    type Target = T;

    fn null() -> Self {
        ptr::null()
    }

    #[inline(always)]
    fn address(self) -> *const T {
        self
    }
}

impl<T> Pointer for *mut T {
    type Target = T;

    fn null() -> Self {
        ptr::null_mut()
    }

    #[inline(always)]
    fn address(self) -> *const T {
        self.cast_const()
    }
}

/// A C struct that a caller lends, with all that it points to: each pointer in it is null or as
/// the interface says.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Whole<'a, T>(&'a T);

impl<T> Clone for Whole<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Whole<'_, T> {}

impl<T> Deref for Whole<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.0
    }
}

impl<'a, T> Whole<'a, T> {
    /// # Safety
    ///
    /// Every pointer in `whole` is null or as the interface says, as long as `'a`.
    #[inline(always)]
    pub(crate) const unsafe fn new(whole: &'a T) -> Self {
        Self(whole)
    }

    /// The struct behind a pointer; `None` for null.
    ///
    /// # Safety
    ///
    /// `pointer` is null or valid for reads as long as `'a`, with all that it points to.
    #[inline(always)]
    pub(crate) unsafe fn behind(pointer: *const T) -> Option<Self> {
        // SAFETY: null or valid, by the contract of this function.
        unsafe { pointer.as_ref() }.map(Self)
    }

    /// The struct without its pointers' promise.
    #[inline(always)]
    pub(crate) const fn get(self) -> &'a T {
        self.0
    }
}

/// A struct that a call is given, or null.
#[repr(transparent)]
pub(crate) struct In<'a, P: Pointer>(Option<Whole<'a, P::Target>>);

impl<'a, P: Pointer> Arg for In<'a, P> {
    type C = P;

    #[inline(always)]
    unsafe fn from_c(c: P) -> Self {
        // SAFETY: null or a valid struct with what it points to, by the contract of `from_c`.
        Self(unsafe { Whole::behind(c.address()) })
    }
}

impl<'a, P: Pointer> In<'a, P> {
    /// The struct, unless it is null.
    #[inline(always)]
    pub(crate) fn get(self) -> Option<Whole<'a, P::Target>> {
        self.0
    }

    /// The struct, where the call cannot do without.
    ///
    /// # Errors
    /// `EINVAL` for null, with a line in the log.
    #[inline(always)]
    pub(crate) fn needed(self, call: &str, argument: &str) -> Result<Whole<'a, P::Target>> {
        self.0.ok_or_else(|| missing(call, argument))
    }

    /// The attributes that an object is to have; without any, a struct of zeros, whose fields all
    /// stand for what the domain offers.
    pub(crate) fn or_default(self) -> P::Target
    where
        P::Target: Default + Copy,
    {
        self.0.map(|attr| *attr).unwrap_or_default()
    }
}

/// A place that a call writes to, or null.
pub(crate) struct Out<'a, T> {
    at: *mut T,
    call: PhantomData<&'a mut T>,
}

impl<T> Arg for Out<'_, T> {
    type C = *mut T;

    #[inline(always)]
    unsafe fn from_c(at: *mut T) -> Self {
        let call = PhantomData;
        Self { at, call }
    }
}

impl<T> Out<'_, T> {
    /// Whether there is no place.
    pub(crate) fn is_null(&self) -> bool {
        self.at.is_null()
    }

    /// Writes to the place, if there is one.
    pub(crate) fn put(&self, value: T) {
        if !self.at.is_null() {
            // SAFETY: not null, and then valid for writes: `from_c` was promised that.
            unsafe { self.at.write(value) };
        }
    }
}

arguments! {
    /// The argument of `fi_control`: null, or what the command of the same call takes.
    #[derive(Clone, Copy)]
    pub(crate) struct Argument { at: *mut c_void }
}

impl<'a> Argument<'a> {
    /// Its address.
    pub(crate) const fn as_ptr(self) -> *mut c_void {
        self.at
    }

    /// What the command takes; `None` for null.
    ///
    /// # Safety
    ///
    /// The command takes a `T`.
    pub(crate) unsafe fn get<T>(self) -> Option<&'a mut T> {
        // SAFETY: null or what the command takes, which nobody else uses during the call.
        unsafe { self.at.cast::<T>().as_mut() }
    }
}

/// An array that a call reads: null, or as many elements as the call says.
pub(crate) struct Array<'a, T> {
    at: *const T,
    count: usize,
    call: PhantomData<&'a [T]>,
}

impl<T> Clone for Array<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Array<'_, T> {}

impl<'a, T> Array<'a, T> {
    /// An array of nothing.
    pub(crate) const NONE: Self = Self {
        at: ptr::null(),
        count: 0,
        call: PhantomData,
    };

    /// # Safety
    ///
    /// `at` is null or valid for reads of `count` elements as long as `'a`, with all that they
    /// point to.
    #[inline(always)]
    pub(crate) const unsafe fn new(at: *const T, count: usize) -> Self {
        let call = PhantomData;
        Self { at, count, call }
    }

    /// Whether there is no array, whatever its count.
    #[inline(always)]
    pub(crate) fn is_null(self) -> bool {
        self.at.is_null()
    }

    /// How many elements the caller says there are.
    #[inline(always)]
    pub(crate) const fn count(self) -> usize {
        self.count
    }

    /// The elements; `None` for more than `most`, and for null with a count.
    #[inline(always)]
    pub(crate) fn at_most(self, most: usize) -> Option<&'a [T]> {
        if self.count > most || (self.at.is_null() && self.count != 0) {
            return None;
        }
        Some(match self.count {
            0 => &[],
            // SAFETY: not null, and then that many elements: `new` was promised that.
            count => unsafe { slice::from_raw_parts(self.at, count) },
        })
    }

    /// The elements; `None` for null with a count, and for more than memory can hold.
    pub(crate) fn get(self) -> Option<&'a [T]> {
        self.at_most(isize::MAX.unsigned_abs() / size_of::<T>().max(1))
    }
}

impl<T> Arg2 for Array<'_, T> {
    type A = *const T;
    type B = usize;

    #[inline(always)]
    unsafe fn from_c(at: *const T, count: usize) -> Self {
        // SAFETY: by the contract of `from_c`, the two describe an array.
        unsafe { Self::new(at, count) }
    }
}

/// A vector with the descriptors of its elements, which nobody needs here.
impl<T> Arg3 for Array<'_, T> {
    type A = *const T;
    type B = *mut *mut c_void;
    type C = usize;

    #[inline(always)]
    unsafe fn from_c(at: *const T, _desc: *mut *mut c_void, count: usize) -> Self {
        // SAFETY: by the contract of `from_c`, the two describe an array.
        unsafe { Self::new(at, count) }
    }
}
