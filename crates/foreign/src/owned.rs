//! A C object that closes when dropped.

use std::sync::atomic::{AtomicBool, Ordering};

use ripstop_abi::fid;

use crate::threading::Ptr;
use crate::{Result, call};

/// An open object and whatever must stay open or allocated while it is. `T` is a C struct that
/// begins with a `fid`.
pub(crate) struct Owned<T, M, P: Clone> {
    ptr: Ptr<T, M>,
    parent: P,
    open: AtomicBool,
}

impl<T, M, P: Clone> Owned<T, M, P> {
    /// Takes over an object that was just opened below `parent`.
    pub(crate) fn new(ptr: Ptr<T, M>, parent: P) -> Self {
        Self {
            ptr,
            parent,
            open: AtomicBool::new(true),
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> *mut T {
        self.ptr.get()
    }

    #[inline]
    pub(crate) fn fid(&self) -> *mut fid {
        self.ptr.get().cast()
    }

    #[inline]
    pub(crate) fn parent(&self) -> &P {
        &self.parent
    }

    /// Closes the object, as its owner's last use of it. When that fails the object lives on:
    /// `parent` is then never dropped, and whatever else the object uses must not be either.
    pub(crate) fn close(&mut self) -> bool {
        let closed = self.try_close().is_ok();
        if !closed {
            *self.open.get_mut() = false;
            std::mem::forget(self.parent.clone());
        }
        closed
    }

    /// Closes the object now, if the library agrees and it is open. It must not be used afterwards.
    pub(crate) fn try_close(&self) -> Result<()> {
        if self.open.swap(false, Ordering::AcqRel) {
            call::close(self.fid()).inspect_err(|_| self.open.store(true, Ordering::Release))?;
        }
        Ok(())
    }
}

impl<T, M, P: Clone> Drop for Owned<T, M, P> {
    fn drop(&mut self) {
        self.close();
    }
}
