#![allow(unsafe_code)]
//! `fi_av`(3).

use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{fi_av_attr, fi_ops_av, fid_av};
use ripstop_core::Address;
use ripstop_core::provider::AvAttr;
use ripstop_types::{AvType, Errno, FiAddr, Flags};

use crate::call::{ENOSYS, calls, op};
use crate::fabric::opened;
use crate::known::Known;
use crate::library::copy_text;
use crate::owned::Owned;
use crate::threading::{Lock as _, Threading};
use crate::{Addr, Domain, Error, Result};

type Owner<M> = Owned<fid_av, M, Arc<Domain<M>>>;

/// An address vector.
pub struct Av<M: Threading> {
    pub(crate) owned: Owner<M>,
    pub(crate) av_type: AvType,
    /// The addresses that were given out and not taken back.
    known: M::Lock<Known>,
}

impl<M: Threading> Av<M> {
    pub(crate) fn new(owned: Owner<M>, av_type: AvType) -> Self {
        Self {
            owned,
            av_type,
            known: M::Lock::new(Known::default()),
        }
    }

    /// All addresses that were given out and not taken back, in ascending order.
    pub(crate) fn all(&self) -> Vec<FiAddr> {
        self.known.with(|known| known.all())
    }

    fn know(&self, found: &[FiAddr]) {
        self.known
            .with(|known| found.iter().for_each(|addr| known.insert(*addr)));
    }

    pub(crate) fn table(&self) -> *const fi_ops_av {
        // SAFETY: the address vector is open.
        unsafe { (*self.owned.get()).ops }
    }

    pub(crate) fn format(&self) -> u32 {
        self.owned.parent().addr_format
    }

    pub(crate) fn insert_one(&self, addr: &Addr) -> Result<FiAddr> {
        let mut found = [FiAddr::NOTAVAIL];
        let packed = Addr::pack(std::slice::from_ref(addr), self.format())?;
        self.insert_packed(&packed, &mut found)?;
        match found {
            [found] if found.is_specified() => Ok(found),
            _ => Err(Error::new("fi_av_insert", Errno::EINVAL)),
        }
    }

    /// Inserts one peer that completions report as `id` (`fi_av_insert`, `FI_AV_USER_ID`).
    ///
    /// # Errors
    ///
    /// As [`Av::insert`].
    pub(crate) fn insert_with_id(&self, addr: &Addr, id: FiAddr) -> Result<FiAddr> {
        let packed = Addr::pack(std::slice::from_ref(addr), self.format())?;
        let mut found = id;
        let flags = Flags::AV_USER_ID.bits();
        let (from, out) = (packed.as_ptr().cast(), (&raw mut found).cast());
        let ret = calls!(
            self.table(),
            fi_ops_av.insert(self.owned.get(), from, 1, out, flags, ptr::null_mut())
        );
        match Error::check_count("fi_av_insert", ret as isize)? {
            1 => {
                self.know(&[found]);
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
    pub(crate) fn give_id(&self, addr: FiAddr, id: FiAddr) -> Result<()> {
        let ret = calls!(
            self.table(),
            fi_ops_av.set_user_id(self.owned.get(), addr.0, id.0, 0)
        );
        Error::check("fi_av_set_user_id", ret)
    }

    /// Inserts peers in one call (`fi_av_insert`). One that was not accepted comes back as
    /// [`FiAddr::NOTAVAIL`].
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the addresses differ in length or have not the domain's format, and
    /// what the library says.
    pub fn insert_all(&self, addrs: &[Address]) -> Result<Vec<FiAddr>> {
        let addrs: Vec<Addr> = addrs.iter().map(Addr::from).collect();
        let packed = Addr::pack(&addrs, self.format())?;
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
        let ret = calls!(
            self.table(),
            fi_ops_av.insert(self.owned.get(), from, count, out, 0, ptr::null_mut())
        );
        Error::check_count("fi_av_insert", ret as isize)?;
        self.know(found);
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
        let ret = calls!(
            self.table(),
            fi_ops_av.insertsvc(
                self.owned.get(),
                node.as_ptr(),
                service,
                &raw mut found,
                0,
                ptr::null_mut()
            )
        );
        match Error::check_count("fi_av_insertsvc", ret as isize)? {
            1 => {
                self.know(&[FiAddr(found)]);
                Ok(FiAddr(found))
            }
            _ => Err(refused),
        }
    }

    /// Removes peers (`fi_av_remove`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn remove_all(&self, addrs: &[FiAddr]) -> Result<()> {
        self.known
            .with(|known| addrs.iter().for_each(|addr| known.remove(*addr)));
        let mut addrs: Vec<u64> = addrs.iter().map(|a| a.0).collect();
        let (raw, count) = (addrs.as_mut_ptr(), addrs.len());
        let ret = calls!(
            self.table(),
            fi_ops_av.remove(self.owned.get(), raw, count, 0)
        );
        Error::check("fi_av_remove", ret)
    }

    /// The transport address of a peer, at most 512 bytes of it.
    pub(crate) fn find(&self, addr: FiAddr) -> Result<Addr> {
        let (mut bytes, len) = self.lookup_into(addr, 512)?;
        bytes.truncate(len);
        Ok(Addr::from_bytes(&bytes))
    }

    /// An address as text (`fi_av_straddr`), at most 255 bytes of it.
    ///
    /// # Errors
    ///
    /// As [`Av::straddr_into`].
    pub fn straddr(&self, addr: &Address) -> Result<String> {
        self.straddr_into(addr, 255).map(|(text, _)| text)
    }

    /// Inserts `count` addresses of any bytes, followed by zeroes (`fi_av_insert`): what the
    /// library returns, and what it wrote.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn insert_bytes(
        &self,
        bytes: &[u8],
        count: usize,
        flags: Flags,
    ) -> Result<(usize, Vec<FiAddr>)> {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len() + 512 * (count + 1), 0);
        let mut found = vec![FiAddr::NOTAVAIL; count];
        // Without `FI_EVENT`, the context of `FI_SYNC_ERR` is an array of errors.
        let mut errors = vec![0_i32; count];
        let (from, out) = (padded.as_ptr().cast(), found.as_mut_ptr().cast());
        let context: *mut c_void = errors.as_mut_ptr().cast();
        let ret = calls!(
            self.table(),
            fi_ops_av.insert(self.owned.get(), from, count, out, flags.bits(), context)
        );
        Ok((Error::check_count("fi_av_insert", ret as isize)?, found))
    }

    /// Resolves and inserts consecutive nodes and services (`fi_av_insertsym`), node by node:
    /// what the library returns, and what it wrote.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn insert_symmetric(
        &self,
        (node, nodes): (&str, usize),
        (service, services): (&str, usize),
    ) -> Result<(usize, Vec<FiAddr>)> {
        let refused = Error::new("fi_av_insertsym", Errno::EINVAL);
        let node = CString::new(node).map_err(|_| refused)?;
        let service = CString::new(service).map_err(|_| refused)?;
        let count = nodes.checked_mul(services).ok_or(refused)?;
        let mut found = vec![FiAddr::NOTAVAIL; count];
        let ret = calls!(
            self.table(),
            fi_ops_av.insertsym(
                self.owned.get(),
                node.as_ptr(),
                nodes,
                service.as_ptr(),
                services,
                found.as_mut_ptr().cast(),
                0,
                ptr::null_mut()
            )
        );
        Ok((Error::check_count("fi_av_insertsym", ret as isize)?, found))
    }

    /// The transport address of a peer into a buffer of `len` bytes (`fi_av_lookup`): the
    /// bytes written, and the length the library says it needs.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn lookup_into(&self, addr: FiAddr, len: usize) -> Result<(Vec<u8>, usize)> {
        let mut bytes = vec![0_u8; len];
        let mut need = len;
        let out: *mut c_void = bytes.as_mut_ptr().cast();
        let ret = calls!(
            self.table(),
            fi_ops_av.lookup(self.owned.get(), addr.0, out, &raw mut need)
        );
        Error::check("fi_av_lookup", ret)?;
        Ok((bytes, need))
    }

    /// An address as text into a buffer of `len` bytes (`fi_av_straddr`): the text that fits,
    /// and the length the library says it needs.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the address has not the domain's format, `FI_ENOSYS`.
    pub fn straddr_into(&self, addr: &Address, len: usize) -> Result<(String, usize)> {
        let padded = Addr::from(addr).padded("fi_av_straddr", self.format())?;
        // One more byte, which stays zero.
        let mut text = vec![0_u8; len + 1];
        let mut need = len;
        let out: *mut c_char = text.as_mut_ptr().cast();
        let from: *const c_void = padded.as_ptr().cast();
        let said = match op!(self.table(), fi_ops_av.straddr) {
            // SAFETY: the vector is open, the address is whole, `text` has the length said.
            Some(straddr) => unsafe { straddr(self.owned.get(), from, out, &raw mut need) },
            None => return Err(Error::new("fi_av_straddr", Errno::ENOSYS)),
        };
        Ok((copy_text(said), need))
    }
}

impl<M: Threading> Domain<M> {
    pub(crate) fn open_av(self: &Arc<Self>, attr: &AvAttr) -> Result<Av<M>> {
        let name = attr.name.as_deref().map(CString::new).transpose();
        let name = name.map_err(|_| Error::new("fi_av_open", Errno::EINVAL))?;
        let mut c_attr = fi_av_attr {
            type_: attr.av_type.raw(),
            count: attr.count,
            rx_ctx_bits: i32::from(attr.rx_ctx_bits),
            name: name.as_ref().map_or(ptr::null(), |name| name.as_ptr()),
            flags: attr.flags.bits(),
            ..Default::default()
        };
        let mut av: *mut fid_av = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.av_open) {
            // SAFETY: domain and attributes are live, `av` takes the result.
            Some(open) => unsafe {
                let (attr, out) = (&raw mut c_attr, &raw mut av);
                open(self.owned.get(), attr, out, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let owned = Owned::new(opened("fi_av_open", ret, av)?, self.clone());
        Ok(Av::new(owned, attr.av_type))
    }
}
