#![allow(unsafe_code)]
//! Objects of any class, and of any provider.

use core::ffi::{c_char, c_int, c_void};
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr;

use ripstop_abi as abi;

use super::Arg;
use super::whole::Pointer;

/// Bytes of the buffer for what an object says about itself (`fi_ops::tostr`); the rest is cut off.
const MAX_TEXT_BYTES: usize = 4096;

type Close = unsafe extern "C" fn(*mut abi::fid) -> c_int;
type Control = unsafe extern "C" fn(*mut abi::fid, c_int, *mut c_void) -> c_int;
type Tostr = unsafe extern "C" fn(*const abi::fid, *mut c_char, usize) -> c_int;

/// An object of any class and of any provider, or null.
#[derive(Clone, Copy)]
pub(crate) struct AnyFid<'a> {
    fid: *mut abi::fid,
    open: PhantomData<&'a abi::fid>,
}

impl Arg for AnyFid<'_> {
    type C = *mut abi::fid;

    #[inline]
    unsafe fn from_c(fid: *mut abi::fid) -> Self {
        // SAFETY: null or an open object, by the contract of `from_c`.
        unsafe { Self::new(fid) }
    }
}

impl AnyFid<'_> {
    /// # Safety
    ///
    /// `fid` is null or an open object, which stays open as long as `'a`; one that says it is of
    /// this library is.
    #[inline]
    pub(crate) const unsafe fn new(fid: *mut abi::fid) -> Self {
        let open = PhantomData;
        Self { fid, open }
    }

    /// Its address.
    pub(crate) const fn as_ptr(self) -> *mut abi::fid {
        self.fid
    }

    /// Its class; `None` for null.
    pub(crate) fn class(self) -> Option<usize> {
        // SAFETY: null or an open object, as `new` was promised.
        unsafe { self.fid.as_ref() }.map(|fid| fid.fclass)
    }
}

/// A pointer to the public struct of an object, or null.
pub(crate) struct Object<'a, P: Pointer>(P, PhantomData<&'a P::Target>);

impl<P: Pointer> Arg for Object<'_, P> {
    type C = P;

    #[inline]
    unsafe fn from_c(c: P) -> Self {
        Self(c, PhantomData)
    }
}

impl<'a, P: Pointer> Object<'a, P> {
    /// As an object of any class.
    pub(crate) fn any(self) -> AnyFid<'a> {
        // SAFETY: null or an open object, as `from_c` was promised; each begins with its `fid`.
        unsafe { AnyFid::new(self.0.address().cast_mut().cast()) }
    }
}

impl AnyFid<'_> {
    /// An operation of the object, if its table has all of it: the table may be older than the operation.
    ///
    /// # Safety
    ///
    /// `F` is the type of the field of `struct fi_ops` at `offset`.
    unsafe fn operation<F>(self, offset: usize) -> Option<F> {
        // SAFETY: null or an open object, as `new` was promised.
        let ops = unsafe { self.fid.as_ref() }?.ops;
        if ops.is_null() {
            return None;
        }
        // SAFETY: the operations of an object are null or a table, and every table has a size.
        let size = unsafe { ops.cast::<usize>().read() };
        if size < offset.saturating_add(size_of::<Option<F>>()) {
            return None;
        }
        let field = ops.wrapping_byte_add(offset).cast::<Option<F>>();
        // SAFETY: the table has the whole field, which has this type.
        unsafe { field.read() }
    }

    /// Closes the object, if it can be.
    ///
    /// # Safety
    ///
    /// Nobody uses it any more.
    pub(crate) unsafe fn close(self) {
        // SAFETY: the type of this operation.
        if let Some(close) = unsafe { self.operation::<Close>(offset_of!(abi::fi_ops, close)) } {
            // SAFETY: an open object, and this is the last call that uses it.
            unsafe { close(self.fid) };
        }
    }

    /// A copy that the object makes of itself, as the `fid_nic` of an `fi_info` can.
    ///
    /// # Errors
    /// `-FI_ENOSYS` for null and for an object that cannot, and those of the object.
    pub(crate) fn duplicate(self) -> Result<*mut abi::fid, c_int> {
        // SAFETY: the type of this operation.
        let control = unsafe { self.operation::<Control>(offset_of!(abi::fi_ops, control)) };
        let control = control.ok_or(-abi::FI_ENOSYS)?;
        let mut copy: *mut abi::fid = ptr::null_mut();
        // SAFETY: an open object; `FI_DUP` takes a pointer to a pointer to an object.
        match unsafe { control(self.fid, abi::FI_DUP, (&raw mut copy).cast()) } {
            0 => Ok(copy),
            code => Err(code),
        }
    }

    /// What the object says about itself, with the zeros behind it.
    pub(crate) fn text(self) -> Option<Vec<u8>> {
        // SAFETY: the type of this operation.
        let tostr = unsafe { self.operation::<Tostr>(offset_of!(abi::fi_ops, tostr)) }?;
        let mut buf = vec![0_u8; MAX_TEXT_BYTES];
        // SAFETY: an open object, and a buffer of that many bytes that holds an empty string.
        let result = unsafe { tostr(self.fid, buf.as_mut_ptr().cast(), buf.len()) };
        (result == 0).then_some(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn control(_: *mut abi::fid, _: c_int, _: *mut c_void) -> c_int {
        0
    }

    #[test]
    fn an_operation_that_its_table_ends_within_is_not_called() {
        let duplicate = |size| {
            let mut ops = abi::fi_ops {
                size,
                control: Some(control),
                ..Default::default()
            };
            let mut fid = abi::fid {
                ops: &raw mut ops,
                ..Default::default()
            };
            // SAFETY: an object with a table of at least the size that it gives.
            unsafe { AnyFid::new(&raw mut fid) }.duplicate()
        };
        let start = offset_of!(abi::fi_ops, control);
        assert!(duplicate(start + size_of::<usize>()).is_ok());
        for short in [0, start, start + 1, start + size_of::<usize>() - 1] {
            assert_eq!(duplicate(short), Err(-abi::FI_ENOSYS));
        }
    }
}
