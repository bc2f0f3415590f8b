#![allow(unsafe_code)]
//! Reads and writes of a peer's memory (`fi_rma(3)`).
//!
//! These operations belong to endpoints of type `D` and are called through them; buffers, I/O
//! vectors and messages are null or valid as `fi_rma(3)` asks. Every `SAFETY` remark below
//! rests on this.

use core::ffi::c_void;
use core::slice;

use ripstop_abi as abi;
use ripstop_core::provider::{Domain, Endpoint, RmaCall};
use ripstop_mem::{IOV_LIMIT, UserBuf};
use ripstop_types::{Errno, FiAddr, Flags, Result, RmaIov};

use super::msg::data_of;
use super::{Defaults, EpBody, Tables};
use crate::buffers;
use crate::errno::status;
use crate::object::{self, body};
use crate::tables;

impl<D: Domain, M: Defaults> Tables<D, M> {
    pub(super) const RMA: &'static abi::fi_ops_rma = &abi::fi_ops_rma {
        read: Some(read::<D, M>),
        readv: Some(readv::<D, M>),
        readmsg: Some(readmsg::<D, M>),
        write: Some(write::<D, M>),
        writev: Some(writev::<D, M>),
        writemsg: Some(writemsg::<D, M>),
        inject: Some(inject::<D, M>),
        writedata: Some(writedata::<D, M>),
        injectdata: Some(injectdata::<D, M>),
        ..tables::NO_RMA_OPS
    };
}

/// The peer's memory of a call that names one place: as long as the local memory.
#[inline(always)]
fn place(addr: u64, key: u64, local: &[UserBuf]) -> RmaIov {
    let len = local.iter().fold(0u64, |sum, buf| {
        // Too much of it is refused with the local side.
        sum.saturating_add(buf.len() as u64)
    });
    RmaIov { addr, len, key }
}

unsafe extern "C" fn read<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: abi::fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::result(buf, len) };
    status(buf.and_then(|buf| {
        this.read(
            &[buf],
            &RmaCall {
                remote: &[place(addr, key, &[buf])],
                peer: FiAddr(src_addr),
                data: None,
                context: context.expose_provenance(),
                flags: this.defaults.tx(),
            },
        )
    }))
}

unsafe extern "C" fn readv<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    iov: *const abi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: abi::fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let segs = unsafe { buffers::results(iov, count) };
    status(segs.and_then(|segs| {
        this.read(
            segs.as_slice(),
            &RmaCall {
                remote: &[place(addr, key, segs.as_slice())],
                peer: FiAddr(src_addr),
                data: None,
                context: context.expose_provenance(),
                flags: this.defaults.tx(),
            },
        )
    }))
}

unsafe extern "C" fn readmsg<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    status(
        unsafe { msg.as_ref() }
            .ok_or_else(|| object::missing("fi_readmsg", "msg"))
            .and_then(|msg| {
                // SAFETY: see the module.
                let segs = unsafe { buffers::results(msg.msg_iov, msg.iov_count) }?;
                // SAFETY: see the module.
                let remote = unsafe { Remote::of(msg) }?;
                let call = remote.call(msg, Flags::from_bits_retain(flags), None);
                this.read(segs.as_slice(), &call)
            }),
    )
}

unsafe extern "C" fn write<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: abi::fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = match unsafe { buffers::source(buf, len) } {
        Ok(buf) => buf,
        Err(error) => return status(Err(error)),
    };
    status(this.write(
        &[buf],
        &RmaCall {
            remote: &[place(addr, key, &[buf])],
            peer: FiAddr(dest_addr),
            data: None,
            context: context.expose_provenance(),
            flags: this.defaults.tx(),
        },
    ))
}

unsafe extern "C" fn writev<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    iov: *const abi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: abi::fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let segs = unsafe { buffers::sources(iov, count) };
    status(segs.and_then(|segs| {
        this.write(
            segs.as_slice(),
            &RmaCall {
                remote: &[place(addr, key, segs.as_slice())],
                peer: FiAddr(dest_addr),
                data: None,
                context: context.expose_provenance(),
                flags: this.defaults.tx(),
            },
        )
    }))
}

unsafe extern "C" fn writemsg<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    status(
        unsafe { msg.as_ref() }
            .ok_or_else(|| object::missing("fi_writemsg", "msg"))
            .and_then(|msg| {
                // SAFETY: see the module.
                let segs = unsafe { buffers::sources(msg.msg_iov, msg.iov_count) }?;
                // SAFETY: see the module.
                let remote = unsafe { Remote::of(msg) }?;
                let flags = Flags::from_bits_retain(flags);
                let call = remote.call(msg, flags, data_of(flags, msg.data));
                this.write(segs.as_slice(), &call)
            }),
    )
}

unsafe extern "C" fn inject<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: abi::fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    status(buf.and_then(|buf| {
        let remote = place(addr, key, &[buf]);
        this.ep.inject_write(buf, remote, None, FiAddr(dest_addr))
    }))
}

unsafe extern "C" fn writedata<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: abi::fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    status(buf.and_then(|buf| {
        this.write(
            &[buf],
            &RmaCall {
                remote: &[place(addr, key, &[buf])],
                peer: FiAddr(dest_addr),
                data: Some(data),
                context: context.expose_provenance(),
                flags: this.defaults.tx(),
            },
        )
    }))
}

unsafe extern "C" fn injectdata<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: abi::fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    status(buf.and_then(|buf| {
        let remote = place(addr, key, &[buf]);
        this.ep
            .inject_write(buf, remote, Some(data), FiAddr(dest_addr))
    }))
}

/// The peer's memory of a call with a vector of it.
pub(crate) struct Remote {
    places: [RmaIov; IOV_LIMIT],
    count: usize,
}

impl Remote {
    /// Reads the vector of a message.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than [`IOV_LIMIT`] pieces or a null vector.
    ///
    /// # Safety
    ///
    /// The vector is null or valid for its count.
    pub(crate) unsafe fn of(msg: &abi::fi_msg_rma) -> Result<Self> {
        let count = msg.rma_iov_count;
        if msg.rma_iov.is_null() {
            return Err(object::missing(
                "fi_readmsg or fi_writemsg",
                "rma_iov of msg",
            ));
        }
        if count == 0 || count > IOV_LIMIT {
            let why = "rma_iov_count is 0 or above rma_iov_limit of the endpoint";
            return Err(object::refused(
                "fi_readmsg or fi_writemsg",
                why,
                Errno::EINVAL,
            ));
        }
        // SAFETY: not null, and the caller's guarantee.
        let given = unsafe { slice::from_raw_parts(msg.rma_iov, count) };
        let mut places = [RmaIov::default(); IOV_LIMIT];
        for (place, iov) in places.iter_mut().zip(given) {
            *place = RmaIov {
                addr: iov.addr,
                len: iov.len as u64,
                key: iov.key,
            };
        }
        Ok(Self { places, count })
    }

    pub(crate) fn call(
        &self,
        msg: &abi::fi_msg_rma,
        flags: Flags,
        data: Option<u64>,
    ) -> RmaCall<'_> {
        RmaCall {
            remote: self.places.get(..self.count).unwrap_or_default(),
            peer: FiAddr(msg.addr),
            data,
            context: msg.context.expose_provenance(),
            flags: Some(flags),
        }
    }
}
