//! Reads and writes of a peer's memory (`fi_rma(3)`).

use core::ffi::c_void;

use ripstop_abi as abi;
use ripstop_core::provider::{Domain, Endpoint, RmaCall};
use ripstop_mem::{IOV_LIMIT, UserBuf};
use ripstop_types::{Errno, FiAddr, Flags, Result, RmaIov};

use super::body::{Defaults, Ep, EpBody};
use super::send::data_of;
use crate::buffers::{Dst, Src};
use crate::edge::{Array, In, Whole, trampolines};
use crate::errno::{missing, refused, status};
use crate::tables::operations;

impl<D: Domain, M: Defaults> EpBody<D, M> {
    pub(super) const RMA: &'static abi::fi_ops_rma = operations!(fi_ops_rma [D, M] {
        read readv readmsg write writev writemsg inject writedata injectdata
    });

    /// A call with the flags of the endpoint.
    #[inline(always)]
    fn rma<'a>(
        &self,
        remote: &'a [RmaIov],
        peer: FiAddr,
        data: Option<u64>,
        context: *mut c_void,
    ) -> RmaCall<'a> {
        RmaCall {
            remote,
            peer,
            data,
            context: context.expose_provenance(),
            flags: self.defaults.tx(),
        }
    }
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

/// An I/O vector.
type Vector<'a> = Array<'a, abi::iovec>;

trampolines! { [D: Domain, M: Defaults]
    extern "C" fn read(
        this: Ep<D, M>, buf: Dst(buf, len, desc), src: FiAddr, addr: u64, key: u64,
        context: *mut c_void,
    ) -> isize {
        status(buf.result().and_then(|buf| {
            this.read(&[buf], &this.rma(&[place(addr, key, &[buf])], src, None, context))
        }))
    }

    extern "C" fn readv(
        this: Ep<D, M>, iov: Vector(iov, desc, count), src: FiAddr, addr: u64, key: u64,
        context: *mut c_void,
    ) -> isize {
        status(iov.results().and_then(|segs| {
            let segs = segs.as_slice();
            this.read(segs, &this.rma(&[place(addr, key, segs)], src, None, context))
        }))
    }

    extern "C" fn readmsg(this: Ep<D, M>, msg: In<*const abi::fi_msg_rma>, flags: Flags) -> isize {
        status(msg.needed("fi_readmsg", "msg").and_then(|msg| {
            let segs = msg.msg_iov().results()?;
            let remote = Remote::of(msg)?;
            this.read(segs.as_slice(), &remote.call(&msg, flags, None))
        }))
    }

    extern "C" fn write(
        this: Ep<D, M>, buf: Src(buf, len, desc), dest: FiAddr, addr: u64, key: u64,
        context: *mut c_void,
    ) -> isize {
        let buf = match buf.buf() {
            Ok(buf) => buf,
            Err(error) => return status(Err(error)),
        };
        status(this.write(&[buf], &this.rma(&[place(addr, key, &[buf])], dest, None, context)))
    }

    extern "C" fn writev(
        this: Ep<D, M>, iov: Vector(iov, desc, count), dest: FiAddr, addr: u64, key: u64,
        context: *mut c_void,
    ) -> isize {
        status(iov.sources().and_then(|segs| {
            let segs = segs.as_slice();
            this.write(segs, &this.rma(&[place(addr, key, segs)], dest, None, context))
        }))
    }

    extern "C" fn writemsg(this: Ep<D, M>, msg: In<*const abi::fi_msg_rma>, flags: Flags) -> isize {
        status(msg.needed("fi_writemsg", "msg").and_then(|msg| {
            let segs = msg.msg_iov().sources()?;
            let remote = Remote::of(msg)?;
            let call = remote.call(&msg, flags, data_of(flags, msg.data));
            this.write(segs.as_slice(), &call)
        }))
    }

    extern "C" fn inject(
        this: Ep<D, M>, buf: Src(buf, len), dest: FiAddr, addr: u64, key: u64,
    ) -> isize {
        status(buf.buf().and_then(|buf| {
            this.ep.inject_write(buf, place(addr, key, &[buf]), None, dest)
        }))
    }

    extern "C" fn writedata(
        this: Ep<D, M>, buf: Src(buf, len, desc), data: u64, dest: FiAddr, addr: u64, key: u64,
        context: *mut c_void,
    ) -> isize {
        status(buf.buf().and_then(|buf| {
            this.write(&[buf], &this.rma(&[place(addr, key, &[buf])], dest, Some(data), context))
        }))
    }

    extern "C" fn injectdata(
        this: Ep<D, M>, buf: Src(buf, len), data: u64, dest: FiAddr, addr: u64, key: u64,
    ) -> isize {
        status(buf.buf().and_then(|buf| {
            this.ep.inject_write(buf, place(addr, key, &[buf]), Some(data), dest)
        }))
    }
}

/// The peer's memory of a call with a vector of it.
pub(crate) struct Remote {
    places: [RmaIov; IOV_LIMIT],
    count: usize,
}

impl Remote {
    /// Reads the vector of a message; one of no pieces is for a write that carries only its CQ data.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than [`IOV_LIMIT`] pieces or a null vector of some.
    pub(crate) fn of(msg: Whole<'_, abi::fi_msg_rma>) -> Result<Self> {
        let given = match msg.rma_iov() {
            none if none.count() == 0 => &[],
            some => vector("fi_readmsg or fi_writemsg", some)?,
        };
        let mut places = [RmaIov::default(); IOV_LIMIT];
        for (place, iov) in places.iter_mut().zip(given) {
            *place = RmaIov {
                addr: iov.addr,
                len: iov.len as u64,
                key: iov.key,
            };
        }
        let count = given.len();
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

/// The vector of a peer's memory in a message of `call`.
///
/// # Errors
/// [`Errno::EINVAL`] for none, and for more than [`IOV_LIMIT`] pieces.
pub(super) fn vector<'a, T>(call: &str, given: Array<'a, T>) -> Result<&'a [T]> {
    if given.is_null() {
        return Err(missing(call, "rma_iov of msg"));
    }
    match given.at_most(IOV_LIMIT) {
        Some(given) if !given.is_empty() => Ok(given),
        _ => {
            let why = "rma_iov_count is 0 or above rma_iov_limit of the endpoint";
            Err(refused(call, why, Errno::EINVAL))
        }
    }
}
