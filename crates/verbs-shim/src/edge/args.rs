#![allow(unsafe_code)]
//! What C passes, as types that carry the promise its caller makes.
//!
//! The manual page of a call says what its arguments are. [`exports!`](crate::edge::exports) writes the C
//! function: it converts every argument once into a type that says what holds of it, and the body behind is
//! safe code.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr;
use core::slice;

use ripstop_types::{Errno, Result};

use crate::engine::Remote;
use crate::sys::{
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, ibv_recv_wr, ibv_send_wr, ibv_send_wr_ud, ibv_sge,
};

/// An argument of a C call.
pub(crate) trait Arg: Sized {
    /// Its C type.
    type C;

    /// The argument as what its manual page says it is.
    ///
    /// # Safety
    ///
    /// `c` is what a C caller passes where the interface asks for what the type describes. The value is
    /// used during that call only.
    unsafe fn from_c(c: Self::C) -> Self;
}

macro_rules! values {
    ($($value:ty)*) => { $(
        impl Arg for $value {
            type C = Self;

            unsafe fn from_c(c: Self) -> Self {
                c
            }
        }
    )* };
}

values! { u8 u16 u32 u64 c_int usize }

impl<T> Arg for *mut T {
    type C = Self;

    unsafe fn from_c(c: Self) -> Self {
        c
    }
}

/// An object of this library as C has it.
///
/// # Safety
///
/// The type is `#[repr(C)]` and what is `OFFSET` bytes from its beginning is a `C`.
pub(crate) unsafe trait Object: Sized {
    /// The struct of the headers.
    type C;

    /// Where the struct is in the object.
    const OFFSET: usize = 0;

    /// The pointer that C has for the object at `this`.
    fn pointer(this: *mut Self) -> *mut Self::C {
        this.wrapping_byte_add(Self::OFFSET).cast()
    }

    /// The object that C has this pointer for.
    fn object(c: *mut Self::C) -> *mut Self {
        c.cast::<Self>().wrapping_byte_sub(Self::OFFSET)
    }

    /// Gives it to C, which has it until it gives it back ([`Take`]).
    fn give(self) -> *mut Self::C {
        Self::pointer(Box::into_raw(Box::new(self)))
    }
}

/// An object that the caller has and keeps, or none for NULL.
pub(crate) struct This<'a, T>(Option<&'a T>);

impl<T: Object> Arg for This<'_, T> {
    type C = *mut T::C;

    unsafe fn from_c(c: *mut T::C) -> Self {
        if c.is_null() {
            return Self(None);
        }
        // SAFETY: the caller passes NULL, which it is not, or a pointer that `give` made of a `T` and that it has
        // not given back; objects are changed only through their cells.
        Self(Some(unsafe { &*T::object(c) }))
    }
}

impl<'a, T> This<'a, T> {
    /// The object, unless it is NULL.
    pub(crate) fn get(&self) -> Option<&'a T> {
        self.0
    }
}

/// An object that the caller must have: its manual page does not allow NULL, and every program that passes it has
/// crashed in rdma-core.
pub(crate) struct Must<'a, T>(&'a T);

impl<T: Object> Arg for Must<'_, T> {
    type C = *mut T::C;

    unsafe fn from_c(c: *mut T::C) -> Self {
        assert!(!c.is_null(), "NULL where verbs ask for an object");
        // SAFETY: the caller passes a pointer that `give` made of a `T` and that it has not given back; it
        // is not NULL, as was just asserted, and objects are changed only through their cells.
        Self(unsafe { &*T::object(c) })
    }
}

impl<T> Deref for Must<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

/// An object that the caller gives back, if the call succeeds.
pub(crate) struct Take<T: Object>(*mut T);

impl<T: Object> Arg for Take<T> {
    type C = *mut T::C;

    unsafe fn from_c(c: *mut T::C) -> Self {
        assert!(!c.is_null(), "NULL where verbs ask for an object");
        Self(T::object(c))
    }
}

impl<T: Object> Deref for Take<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the pointer is not NULL and `give` made it of a `T`, which is freed only when this value is
        // consumed.
        unsafe { &*self.0 }
    }
}

impl<T: Object> Take<T> {
    /// The object itself: the caller has it no more.
    pub(crate) fn take(self) -> Box<T> {
        // SAFETY: `give` made the pointer of a box, and the caller gives it back once.
        unsafe { Box::from_raw(self.0) }
    }
}

/// A struct that the call reads, or none for NULL.
pub(crate) struct In<'a, T>(Option<&'a T>);

impl<T> Arg for In<'_, T> {
    type C = *const T;

    unsafe fn from_c(c: *const T) -> Self {
        // SAFETY: the caller passes NULL or a struct that it does not change during the call.
        Self(unsafe { c.as_ref() })
    }
}

impl<'a, T> In<'a, T> {
    /// The struct, unless it is NULL.
    pub(crate) fn get(&self) -> Option<&'a T> {
        self.0
    }
}

/// A struct that the call reads and changes, or none for NULL.
pub(crate) struct Changed<'a, T>(Option<&'a mut T>);

impl<T> Arg for Changed<'_, T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Self {
        // SAFETY: the caller passes NULL or a struct that nobody else uses during the call.
        Self(unsafe { c.as_mut() })
    }
}

impl<T> Changed<'_, T> {
    /// The struct.
    ///
    /// # Errors
    /// `EINVAL` for NULL.
    pub(crate) fn get(&mut self) -> Result<&mut T> {
        self.optional().ok_or(Errno::EINVAL)
    }

    /// The struct, unless it is NULL.
    pub(crate) fn optional(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

/// Where the call writes a value, unless it is NULL.
pub(crate) struct Out<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T> Arg for Out<'_, T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Self {
        Self(c, PhantomData)
    }
}

impl<T> Out<'_, T> {
    /// Writes the value.
    pub(crate) fn set(&mut self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the pointer is not NULL, so the caller passes memory for a `T`, by the contract of
            // `from_c`.
            unsafe { self.0.write(value) };
        }
    }
}

/// Room for some values, which the call fills from the front.
pub(crate) struct Room<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T> Arg for Room<'_, T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Self {
        Self(c, PhantomData)
    }
}

impl<T> Room<'_, T> {
    /// Writes the value at a place, which the caller says is inside.
    pub(crate) fn write(&mut self, at: usize, value: T) {
        let place = self.0.wrapping_add(at);
        // SAFETY: the C caller passes room for as many values as it says, and the call writes no more; the
        // sum stays inside, so it did not wrap.
        unsafe { place.write(value) };
    }
}

/// Values of which another argument says how many there are.
pub(crate) struct Array<'a, T>(*const T, PhantomData<&'a T>);

impl<T> Arg for Array<'_, T> {
    type C = *const T;

    unsafe fn from_c(c: *const T) -> Self {
        Self(c, PhantomData)
    }
}

impl<'a, T> Array<'a, T> {
    /// The first `count` of them, which the caller says are there; none for NULL.
    pub(crate) fn first(&self, count: usize) -> &'a [T] {
        if self.0.is_null() || count == 0 {
            return &[];
        }
        // SAFETY: not NULL, so the C caller passes as many values as it says, which stay during the call.
        unsafe { slice::from_raw_parts(self.0, count) }
    }
}

/// A struct that the call writes, whose size the caller has from its own headers.
pub(crate) struct Grown<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T> Arg for Grown<'_, T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Self {
        Self(c, PhantomData)
    }
}

impl<T: Copy> Grown<'_, T> {
    /// Writes as much of the value as there is room for, and zeros behind it; nothing for NULL.
    pub(crate) fn set(&mut self, value: T, size: usize) {
        if self.0.is_null() {
            return;
        }
        let (to, from) = (self.0.cast::<u8>(), (&raw const value).cast::<u8>());
        // SAFETY: not NULL, so the C caller passes room for as many bytes as it says.
        unsafe { to.write_bytes(0, size) };
        // SAFETY: no more than both have, and the value is this function's own.
        unsafe { to.copy_from_nonoverlapping(from, size.min(size_of::<T>())) };
    }
}

/// Text, or none for NULL.
pub(crate) struct Text<'a>(Option<&'a CStr>);

impl Arg for Text<'_> {
    type C = *const c_char;

    unsafe fn from_c(c: *const c_char) -> Self {
        if c.is_null() {
            return Self(None);
        }
        // SAFETY: not NULL, so the caller passes text that ends in NUL.
        Self(Some(unsafe { CStr::from_ptr(c) }))
    }
}

impl Text<'_> {
    /// The text, if it is UTF-8.
    pub(crate) fn get(&self) -> Option<&str> {
        self.0?.to_str().ok()
    }
}

/// Bytes that a pointer and a length of a struct name, copied; nothing for NULL.
///
/// # Safety
///
/// `at` is NULL or valid for reads of `len` bytes.
pub(crate) unsafe fn bytes(at: *const c_void, len: usize) -> Vec<u8> {
    if at.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: not NULL, and by the contract valid for reads of so many bytes.
    unsafe { slice::from_raw_parts(at.cast::<u8>(), len) }.to_vec()
}

/// A request of a list that the caller keeps during the call.
pub(crate) trait Request {
    /// The one behind it.
    fn next(&self) -> *mut Self;
    /// Where its elements are, and how many.
    fn list(&self) -> (*const ibv_sge, c_int);
}

impl Request for ibv_send_wr {
    fn next(&self) -> *mut Self {
        self.next
    }

    fn list(&self) -> (*const ibv_sge, c_int) {
        (self.sg_list, self.num_sge)
    }
}

impl Request for ibv_recv_wr {
    fn next(&self) -> *mut Self {
        self.next
    }

    fn list(&self) -> (*const ibv_sge, c_int) {
        (self.sg_list, self.num_sge)
    }
}

/// What a request names of the peer's memory.
pub(crate) fn remote(wr: &ibv_send_wr) -> Remote {
    match wr.opcode {
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
            // SAFETY: the opcode says that the program has set this one.
            let atomic = unsafe { wr.wr.atomic };
            Remote {
                addr: atomic.remote_addr,
                key: atomic.rkey,
                compare_add: atomic.compare_add,
                swap: atomic.swap,
            }
        }
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_RDMA_READ => {
            // SAFETY: the opcode says that the program has set this one.
            let rdma = unsafe { wr.wr.rdma };
            Remote {
                addr: rdma.remote_addr,
                key: rdma.rkey,
                ..Remote::default()
            }
        }
        _ => Remote::default(),
    }
}

/// Where a request of a queue pair of datagrams goes.
pub(crate) fn datagram(wr: &ibv_send_wr) -> ibv_send_wr_ud {
    // SAFETY: such requests have an address handle and two numbers there (`ibv_post_send(3)`).
    unsafe { wr.wr.ud }
}

/// A list of requests.
pub(crate) struct Requests<'a, T>(*mut T, PhantomData<&'a T>);

impl<T> Arg for Requests<'_, T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Self {
        Self(c, PhantomData)
    }
}

impl<'a, T: Request> Requests<'a, T> {
    /// The request that is next, to be told to the caller when it is refused.
    pub(crate) fn at(&self) -> *mut T {
        self.0
    }

    /// The request that is next, with its elements.
    pub(crate) fn front(&self) -> Option<(&'a T, &'a [ibv_sge])> {
        // SAFETY: the caller passes a list of requests, each of which is there during the call.
        let request = unsafe { self.0.as_ref() }?;
        let (list, count) = request.list();
        let count = usize::try_from(count).unwrap_or(0);
        if list.is_null() || count == 0 {
            return Some((request, &[]));
        }
        // SAFETY: a request has as many elements as it says, which are there during the call.
        let list = unsafe { slice::from_raw_parts(list, count) };
        Some((request, list))
    }

    /// Goes to the one behind it.
    pub(crate) fn advance(&mut self) {
        let front = self.front();
        self.0 = front.map_or(ptr::null_mut(), |(request, _)| request.next());
    }
}

/// The bytes that elements name, copied: inline data, which needs no region.
pub(crate) fn gather(list: &[ibv_sge], most: usize) -> Option<Vec<u8>> {
    let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
    if total > most as u64 {
        return None;
    }
    let mut data = Vec::with_capacity(most);
    for sge in list {
        let at = ptr::with_exposed_provenance(sge.addr as usize);
        // SAFETY: elements of a request with IBV_SEND_INLINE name memory that the device reads during the
        // call (`ibv_post_send(3)`).
        data.extend_from_slice(&unsafe { bytes(at, sge.length as usize) });
    }
    Some(data)
}
