#![allow(unsafe_code)]
//! `fi_domain`(3).

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{fi_ops_domain, fid_domain};
use ripstop_core::provider::Token;
use ripstop_types::{AddrFormat, Flags};

use crate::call::{ENOSYS, op};
use crate::eq::origin::{OURS, Origin};
use crate::fabric::opened;
use crate::ops::Book;
use crate::owned::Owned;
use crate::threading::{Lock as _, Ptr, Threading};
use crate::{Fabric, Result};

/// An open domain.
pub struct Domain<M: Threading> {
    pub(crate) owned: Owned<fid_domain, M, Arc<Fabric>>,
    /// What C may write as long as the domain is open.
    book: ManuallyDrop<M::Lock<Book>>,
    /// Deferred work, by its name and where its `fi_deferred_work` is.
    pub(crate) works: M::Lock<Vec<(Token, usize)>>,
    pub(crate) addr_format: u32,
    /// Whether completions can name the source of a message.
    pub(crate) source: bool,
    /// Contexts are numbers that C hands back untouched: no operation is booked.
    pub(crate) unbooked: bool,
}

impl<M: Threading> Domain<M> {
    pub(crate) fn new(fid: Ptr<fid_domain, M>, fabric: Arc<Fabric>, origin: &Origin) -> Self {
        let info = origin.info();
        let unbooked = !fabric.verbatim && !info.mode().intersects(OURS);
        let named = || info.caps().contains(Flags::SOURCE);
        Self {
            owned: Owned::new(fid, fabric),
            book: ManuallyDrop::new(M::Lock::new(Book::new(!unbooked))),
            works: M::Lock::new(Vec::new()),
            addr_format: info.addr_format(),
            source: origin.names_sources().unwrap_or_else(named),
            unbooked,
        }
    }

    #[inline]
    pub(crate) fn book<R>(&self, f: impl FnOnce(&mut Book) -> R) -> R {
        self.book.with(f)
    }

    pub(crate) fn fabric(&self) -> &Arc<Fabric> {
        self.owned.parent()
    }

    pub(crate) fn format(&self) -> AddrFormat {
        AddrFormat::from_raw(self.addr_format).unwrap_or_default()
    }

    pub(crate) fn table(&self) -> *const fi_ops_domain {
        // SAFETY: the domain is open.
        unsafe { (*self.owned.get()).ops }
    }
}

impl Fabric {
    pub(crate) fn open_domain<M: Threading>(
        self: &Arc<Self>,
        origin: &Origin,
    ) -> Result<Domain<M>> {
        let info = origin.info();
        let mut copy = info.duplicate("fi_domain", self.owned.parent())?;
        let mut domain: *mut fid_domain = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_fabric.domain) {
            // SAFETY: fabric and info are live, `domain` takes the result.
            Some(open) => unsafe {
                let (info, out) = (copy.as_mut_ptr(), &raw mut domain);
                open(self.owned.get(), info, out, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let domain = opened("fi_domain", ret, domain)?;
        Ok(Domain::new(domain, self.clone(), origin))
    }
}

impl<M: Threading> Drop for Domain<M> {
    fn drop(&mut self) {
        // If it lives on, it does so with the contexts that it was given.
        if self.owned.close() {
            // SAFETY: this is the only drop, and the book is not used after it.
            unsafe { ManuallyDrop::drop(&mut self.book) };
        }
    }
}
