#![allow(unsafe_code)]
//! The context of a call, which with `FI_PEER` names another provider.

use core::ffi::c_void;

use ripstop_types::{Errno, Result};

use crate::edge::{Whole, arguments};
use crate::errno;

arguments! {
    /// The context of a call that opens an object or inserts addresses: an address that is only passed
    /// back, but where flags of the same call say otherwise. With `FI_PEER` it is null or as `fi_peer(3)`
    /// asks: a struct that begins with its size and names the owner, which stays as it is and may be
    /// called, from every thread that calls the object, until the object is closed.
    #[derive(Clone, Copy)]
    pub(crate) struct Context { at: *mut c_void }
}

impl Context<'_> {
    /// Its address.
    pub(crate) const fn as_ptr(self) -> *mut c_void {
        self.at
    }

    /// The struct that it is in a call with `FI_PEER`, if it is as long as it says.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null, and for one that is too short.
    ///
    /// # Safety
    ///
    /// The call has `FI_PEER` in its flags, and takes a `T` with it.
    pub(super) unsafe fn peer<'a, T>(self) -> Result<Whole<'a, T>> {
        let size = self.at.cast::<usize>();
        let refuse = |why| errno::refused("an open call with FI_PEER", why, Errno::EINVAL);
        if size.is_null() {
            let why = "context is NULL; it has to name the owner, or leave FI_PEER out";
            return Err(refuse(why));
        }
        // SAFETY: not null, and every struct of a call with `FI_PEER` begins with its size.
        let size = unsafe { size.read() };
        if size < size_of::<T>() {
            let why = "the size in context is less than that of its structure";
            return Err(refuse(why));
        }
        // SAFETY: it has as many bytes as it says, which by the check is a whole `T`.
        let context = unsafe { Whole::behind(self.at.cast::<T>()) };
        context.ok_or(Errno::EINVAL)
    }
}

/// The operations that an owner offers (`owner_ops`), if the table is as long as it says and as this library knows it.
///
/// # Errors
/// [`Errno::EINVAL`] for null, and for a table that ends before its last operation does; with a line in the log.
///
/// # Safety
///
/// `ops` is null or a table of operations, which begins with its size and has as many bytes.
pub(super) unsafe fn table_of<'a, T>(ops: *const T) -> Result<&'a T> {
    let refuse = |why| errno::refused("an open call with FI_PEER", why, Errno::EINVAL);
    if ops.is_null() {
        let why = "owner_ops is NULL; the owner has to offer its operations";
        return Err(refuse(why));
    }
    // SAFETY: not null, and every table begins with its size, by the contract of this function.
    let size = unsafe { ops.cast::<usize>().read() };
    if size < size_of::<T>() {
        let why = "the size in owner_ops is less than that of its structure";
        return Err(refuse(why));
    }
    // SAFETY: a table that has as many bytes as it says, which by the check is a whole `T`.
    Ok(unsafe { &*ops })
}
