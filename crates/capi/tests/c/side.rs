//! An endpoint with a domain of its own and the memory behind a region, for tests in which one side does nothing.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::os::fd::OwnedFd;

use ripstop_abi::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::*;
use crate::{close_all, op};

pub const LEN: usize = 1 << 20;
pub const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;
const RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

pub fn memfd(seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("program", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, LEN as u64).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

/// Memory of a program, which keeps its descriptor: without privileges nobody can open the file by
/// its mapping.
pub struct Memory {
    pub start: *mut u8,
    pub len: usize,
    _fd: Option<OwnedFd>,
}

impl Memory {
    pub fn of(fd: &OwnedFd, flags: MapFlags) -> Self {
        let start = unsafe { mmap(ptr::null_mut(), LEN, RIGHTS, flags, fd, 0) };
        Self {
            start: start.unwrap().cast(),
            len: LEN,
            _fd: Some(fd.try_clone().unwrap()),
        }
    }

    pub fn sealed() -> Self {
        Self::of(&memfd(SealFlags::SHRINK), MapFlags::SHARED)
    }

    pub fn anonymous() -> Self {
        Self::anonymous_of(LEN)
    }

    pub fn anonymous_of(len: usize) -> Self {
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, RIGHTS, MapFlags::PRIVATE) };
        Self {
            start: start.unwrap().cast(),
            len,
            _fd: None,
        }
    }

    /// Puts other memory in its place.
    pub fn replace(&self, fd: Option<&OwnedFd>) {
        let at = self.start.cast();
        let fixed = MapFlags::FIXED;
        let done = match fd {
            Some(fd) => unsafe { mmap(at, LEN, RIGHTS, fixed | MapFlags::SHARED, fd, 0) },
            None => unsafe { mmap_anonymous(at, LEN, RIGHTS, fixed | MapFlags::PRIVATE) },
        };
        done.unwrap();
    }

    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len);
        let start = unsafe { self.start.add(at) };
        (0..len)
            .map(|i| unsafe { start.add(i).read_volatile() })
            .collect()
    }

    pub fn clear(&self) {
        unsafe { self.start.write_bytes(0, self.len) };
    }

    pub fn unmap(&mut self) {
        unsafe { munmap(self.start.cast(), self.len) }.unwrap();
        self.len = 0;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.len > 0 {
            self.unmap();
        }
    }
}

/// An endpoint that makes progress only when it is told to.
pub struct Side {
    pub info: Info,
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
    pub av: *mut fid_av,
    pub cq: *mut fid_cq,
    pub ep: *mut fid_ep,
}

impl Side {
    /// Over shm, for all kinds of transfers but tagged messages.
    pub fn open(mr_mode: c_int) -> Self {
        let hints = Info::hints();
        hints.ep().type_ = FI_EP_RDM;
        hints.get().caps = FI_MSG | FI_RMA | FI_ATOMIC;
        hints.get().addr_format = FI_ADDR_STR;
        hints.domain().mr_mode = mr_mode;
        hints.domain().threading = FI_THREAD_DOMAIN;
        hints.domain().data_progress = FI_PROGRESS_MANUAL;
        hints.domain().control_progress = FI_PROGRESS_MANUAL;
        Self::of(getinfo(NOW, None, None, 0, Some(&hints)).unwrap())
    }

    /// Of this interface.
    pub fn of(info: Info) -> Self {
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        let av = av(domain, FI_AV_UNSPEC, 0);
        let cq = cq(domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE);
        let ep = bound(domain, &info, av, cq);
        assert_eq!(enable(ep), 0);
        Self {
            info,
            fabric,
            domain,
            av,
            cq,
            ep,
        }
    }

    pub fn name(&self) -> Vec<u8> {
        name(unsafe { (*self.ep).cm }, self.ep.cast())
    }

    /// Completions that are there, failed ones as such.
    pub fn poll(&self) -> Option<Result<usize, c_int>> {
        let mut entry = fi_cq_entry::default();
        match op!(self.cq, ops.read(ptr::from_mut(&mut entry).cast(), 1)) {
            1 => Some(Ok(entry.op_context.addr())),
            code if code == -FI_EAGAIN as isize => None,
            code => {
                assert_eq!(code, -FI_EAVAIL as isize);
                let mut error = fi_cq_err_entry::default();
                assert_eq!(op!(self.cq, ops.readerr(&mut error, 0)), 1);
                Some(Err(error.err))
            }
        }
    }

    /// Writes with `FI_DELIVERY_COMPLETE`.
    pub fn write(&self, to: fi_addr_t, region: Region, at: u64, text: &[u8]) {
        let iov = iovec {
            iov_base: text.as_ptr().cast_mut().cast(),
            iov_len: text.len(),
        };
        let place = fi_rma_iov {
            addr: region.base + at,
            len: text.len(),
            key: region.key,
        };
        let msg = fi_msg_rma {
            msg_iov: &iov,
            iov_count: 1,
            addr: to,
            rma_iov: &place,
            rma_iov_count: 1,
            context: ptr::without_provenance_mut(7),
            ..Default::default()
        };
        let flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        let ep = self.ep;
        post(self.cq, || op!(ep, rma.writemsg(&msg, flags)));
    }

    pub fn read(&self, to: fi_addr_t, region: Region, at: u64, room: &mut [u8]) {
        let (into, len) = (room.as_mut_ptr().cast(), room.len());
        let (addr, key) = (region.base + at, region.key);
        let context = ptr::without_provenance_mut(7);
        let none = ptr::null_mut();
        let ep = self.ep;
        post(self.cq, || {
            op!(ep, rma.read(into, len, none, to, addr, key, context))
        });
    }

    pub fn register(&self, memory: &Memory, access: u64, key: u64) -> Region {
        self.register_by(0, memory, memory.len, access, key, 0)
    }

    /// Registers by `fi_mr_reg`, `fi_mr_regv` or `fi_mr_regattr`.
    pub fn register_by(
        &self,
        call: usize,
        memory: &Memory,
        len: usize,
        access: u64,
        key: u64,
        flags: u64,
    ) -> Region {
        let mut mr = ptr::null_mut();
        let (fid, none) = (self.domain.cast(), ptr::null_mut());
        let ops = unsafe { *(*self.domain).mr };
        let start: *mut c_void = memory.start.cast();
        let iov = iovec {
            iov_base: start,
            iov_len: len,
        };
        let attr = fi_mr_attr {
            mr: fi_mr_attr_iov { mr_iov: &iov },
            iov_count: 1,
            access,
            requested_key: key,
            ..Default::default()
        };
        let code = match call {
            0 => unsafe {
                (ops.reg.unwrap())(fid, start, len, access, 0, key, flags, &mut mr, none)
            },
            1 => unsafe { (ops.regv.unwrap())(fid, &iov, 1, access, 0, key, flags, &mut mr, none) },
            _ => unsafe { (ops.regattr.unwrap())(fid, &attr, flags, &mut mr) },
        };
        assert_eq!(code, 0);
        let by_address = self.info.domain().mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC) != 0;
        Region {
            mr,
            key: unsafe { (*mr).key },
            base: match by_address {
                true => start.addr() as u64,
                false => 0,
            },
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        close_all!(self.ep, self.cq, self.av, self.domain, self.fabric);
    }
}

/// Registered memory, as peers know it.
#[derive(Clone, Copy)]
pub struct Region {
    pub mr: *mut fid_mr,
    pub key: u64,
    pub base: u64,
}
