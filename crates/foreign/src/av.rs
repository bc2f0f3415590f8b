#![allow(unsafe_code)]
//! `fi_av`(3).

use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{fi_ops_av, fid_av};
use ripstop_types::{Errno, FiAddr, Flags};

use crate::call::{ENOSYS, op};
use crate::domain::DomainCore;
use crate::guard::Known;
use crate::library::copy_text;
use crate::owned::Owned;
use crate::threading::{Lock, Threading};
use crate::{Addr, Error, Result};

type Owner<M> = Owned<fid_av, M, Arc<DomainCore<M>>>;

pub(crate) struct AvCore<M: Threading> {
    pub(crate) owned: Owner<M>,
    known: M::Lock<Known>,
}

impl<M: Threading> AvCore<M> {
    /// Whether this address was inserted and not removed.
    #[inline]
    pub(crate) fn knows(&self, addr: FiAddr) -> bool {
        !self.owned.parent().guarded() || self.has(addr)
    }

    /// Whether this address was given out and not taken back.
    pub(crate) fn has(&self, addr: FiAddr) -> bool {
        self.known.with(|known| known.contains(addr))
    }

    /// All addresses that were given out and not taken back, in ascending order.
    pub(crate) fn all(&self) -> Vec<FiAddr> {
        self.known.with(|known| known.all())
    }
}

/// An address vector. Clones share it.
pub struct Av<M: Threading> {
    pub(crate) core: Arc<AvCore<M>>,
}

impl<M: Threading> Clone for Av<M> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
    }
}

impl<M: Threading> Av<M> {
    pub(crate) fn new(owned: Owner<M>) -> Self {
        let known = M::Lock::new(Known::default());
        Self {
            core: Arc::new(AvCore { owned, known }),
        }
    }

    pub(crate) fn table(&self) -> *const fi_ops_av {
        // SAFETY: the address vector is open.
        unsafe { (*self.core.owned.get()).ops }
    }

    pub(crate) fn format(&self) -> u32 {
        self.core.owned.parent().addr_format
    }

    /// Inserts one peer (`fi_av_insert`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the address has not the domain's format or was not accepted, and what
    /// the library says.
    pub fn insert(&self, addr: &Addr) -> Result<FiAddr> {
        match self.insert_all(std::slice::from_ref(addr))?.as_slice() {
            [found] if found.is_specified() => Ok(*found),
            _ => Err(Error::new("fi_av_insert", Errno::EINVAL)),
        }
    }

    /// Inserts one peer that completions report as `id` (`fi_av_insert`, `FI_AV_USER_ID`).
    ///
    /// # Errors
    ///
    /// As [`Av::insert`].
    pub fn insert_as(&self, addr: &Addr, id: FiAddr) -> Result<FiAddr> {
        let packed = Addr::pack(std::slice::from_ref(addr), self.format())?;
        let mut found = id;
        let flags = Flags::AV_USER_ID.bits();
        let (from, out) = (packed.as_ptr().cast(), (&raw mut found).cast());
        let ret = match op!(self.table(), fi_ops_av.insert) {
            // SAFETY: the vector is open; `packed` holds an address of the domain's format and
            // padding; `found`, a transparent `u64`, is the id and takes the result.
            Some(insert) => unsafe {
                insert(self.core.owned.get(), from, 1, out, flags, ptr::null_mut())
            },
            None => ENOSYS,
        };
        match Error::check_count("fi_av_insert", ret as isize)? {
            1 => {
                self.core.known.with(|known| known.insert(found));
                Ok(found)
            }
            _ => Err(Error::new("fi_av_insert", Errno::EINVAL)),
        }
    }

    /// Gives a peer the id that completions report (`fi_av_set_user_id`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn set_user_id(&self, addr: FiAddr, id: FiAddr) -> Result<()> {
        let ret = match op!(self.table(), fi_ops_av.set_user_id) {
            // SAFETY: the vector is open.
            Some(set) => unsafe { set(self.core.owned.get(), addr.0, id.0, 0) },
            None => ENOSYS,
        };
        Error::check("fi_av_set_user_id", ret)
    }

    /// Inserts peers in one call (`fi_av_insert`). One that was not accepted comes back as
    /// [`FiAddr::NOTAVAIL`].
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the addresses differ in length or have not the domain's format, and
    /// what the library says.
    pub fn insert_all(&self, addrs: &[Addr]) -> Result<Vec<FiAddr>> {
        let packed = Addr::pack(addrs, self.format())?;
        let mut found = vec![FiAddr::NOTAVAIL; addrs.len()];
        self.insert_packed(&packed, &mut found)?;
        Ok(found)
    }

    /// Inserts as many peers as `found` has entries, which all are [`FiAddr::NOTAVAIL`]. `packed` is
    /// what [`Addr::pack`] makes of them.
    pub(crate) fn insert_packed(&self, packed: &[u8], found: &mut [FiAddr]) -> Result<()> {
        let count = found.len();
        let out: *mut u64 = found.as_mut_ptr().cast();
        let from: *const c_void = packed.as_ptr().cast();
        let ret = match op!(self.table(), fi_ops_av.insert) {
            // SAFETY: the vector is open; `packed` holds `count` addresses of the domain's format
            // and padding; `found`, a transparent `u64` each, holds as many results.
            Some(insert) => unsafe {
                insert(self.core.owned.get(), from, count, out, 0, ptr::null_mut())
            },
            None => ENOSYS,
        };
        Error::check_count("fi_av_insert", ret as isize)?;
        self.core
            .known
            .with(|known| found.iter().for_each(|addr| known.insert(*addr)));
        Ok(())
    }

    /// Resolves and inserts one peer (`fi_av_insertsvc`). Where addresses are strings, `node` may
    /// be one, without a service.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when it was not accepted, and what the library says.
    pub fn insert_service(&self, node: &str, service: Option<&str>) -> Result<FiAddr> {
        let refused = Error::new("fi_av_insertsvc", Errno::EINVAL);
        let node = CString::new(node).map_err(|_| refused)?;
        let service = service.map(CString::new).transpose().map_err(|_| refused)?;
        let service = service.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let mut found = u64::MAX;
        let ret = match op!(self.table(), fi_ops_av.insertsvc) {
            // SAFETY: the vector is open, the strings live on or are null, `found` takes the one
            // result.
            Some(insertsvc) => unsafe {
                insertsvc(
                    self.core.owned.get(),
                    node.as_ptr(),
                    service,
                    &raw mut found,
                    0,
                    ptr::null_mut(),
                )
            },
            None => ENOSYS,
        };
        match Error::check_count("fi_av_insertsvc", ret as isize)? {
            1 => {
                self.core.known.with(|known| known.insert(FiAddr(found)));
                Ok(FiAddr(found))
            }
            _ => Err(refused),
        }
    }

    /// Removes peers (`fi_av_remove`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when one of them is not in the vector or is named twice, and what the
    /// library says.
    pub fn remove(&self, addrs: &[FiAddr]) -> Result<()> {
        let known = self.core.known.with(|known| {
            let mut taken = addrs.iter().take_while(|addr| {
                let known_now = known.contains(**addr);
                known.remove(**addr);
                known_now
            });
            let count = taken.by_ref().count();
            if count < addrs.len() {
                addrs[..count].iter().for_each(|addr| known.insert(*addr));
            }
            count == addrs.len()
        });
        if !known && self.core.owned.parent().guarded() {
            return Err(Error::new("fi_av_remove", Errno::EINVAL));
        }
        let mut addrs: Vec<u64> = addrs.iter().map(|a| a.0).collect();
        let ret = match op!(self.table(), fi_ops_av.remove) {
            // SAFETY: the vector is open and `addrs` holds as many addresses as said.
            Some(remove) => unsafe {
                remove(self.core.owned.get(), addrs.as_mut_ptr(), addrs.len(), 0)
            },
            None => ENOSYS,
        };
        Error::check("fi_av_remove", ret)
    }

    /// The transport address of a peer (`fi_av_lookup`), at most 512 bytes of it.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for an address that is not in the vector, and what the library says.
    pub fn lookup(&self, addr: FiAddr) -> Result<Addr> {
        if !self.core.knows(addr) {
            return Err(Error::new("fi_av_lookup", Errno::EINVAL));
        }
        let mut bytes = [0_u8; 512];
        let mut len = bytes.len();
        let out: *mut c_void = bytes.as_mut_ptr().cast();
        let ret = match op!(self.table(), fi_ops_av.lookup) {
            // SAFETY: the vector is open and `bytes` has the length said.
            Some(lookup) => unsafe { lookup(self.core.owned.get(), addr.0, out, &raw mut len) },
            None => ENOSYS,
        };
        Error::check("fi_av_lookup", ret)?;
        Ok(Addr::from_bytes(&bytes[..len.min(bytes.len())]))
    }

    /// A transport address as text (`fi_av_straddr`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the address has not the domain's format, `FI_ENOSYS`.
    pub fn straddr(&self, addr: &Addr) -> Result<String> {
        let padded = addr.padded("fi_av_straddr", self.format())?;
        let mut text = [0_u8; 256];
        // The last byte stays zero.
        let mut len = text.len() - 1;
        let out: *mut c_char = text.as_mut_ptr().cast();
        let from: *const c_void = padded.as_ptr().cast();
        let said = match op!(self.table(), fi_ops_av.straddr) {
            // SAFETY: the vector is open, the address is whole, `text` has the length said.
            Some(straddr) => unsafe { straddr(self.core.owned.get(), from, out, &raw mut len) },
            None => return Err(Error::new("fi_av_straddr", Errno::ENOSYS)),
        };
        Ok(copy_text(said))
    }
}
