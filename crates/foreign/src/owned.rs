//! A C object that closes when dropped.

use ripstop_abi::fid;

use crate::threading::Ptr;
use crate::{Result, call};

/// An open object and whatever must stay open or allocated while it is. `T` is a C struct that
/// begins with a `fid`.
pub(crate) struct Owned<T, M, P: Clone> {
    ptr: Ptr<T, M>,
    parent: P,
    open: bool,
}

impl<T, M, P: Clone> Owned<T, M, P> {
    /// Takes over an object that was just opened below `parent`.
    pub(crate) fn new(ptr: Ptr<T, M>, parent: P) -> Self {
        Self {
            ptr,
            parent,
            open: true,
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
}

impl<T, M, P: Clone> Owned<T, M, P> {
    /// Closes the object, as its owner's last use of it. When that fails the object lives on:
    /// `parent` is then never dropped, and whatever else the object uses must not be either.
    pub(crate) fn close(&mut self) -> bool {
        let was_open = std::mem::replace(&mut self.open, false);
        if was_open && call::close(self.fid()).is_err() {
            std::mem::forget(self.parent.clone());
            return false;
        }
        true
    }
}

impl<T, M, P: Clone> Owned<T, M, P> {
    /// Closes the object now, if the library agrees.
    pub(crate) fn try_close(&mut self) -> Result<()> {
        if self.open {
            call::close(self.fid())?;
            self.open = false;
        }
        Ok(())
    }
}

impl<T, M, P: Clone> Drop for Owned<T, M, P> {
    fn drop(&mut self) {
        self.close();
    }
}
