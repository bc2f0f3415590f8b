#![allow(unsafe_code)]
//! Names and connections of an endpoint (`fi_cm(3)`).
//!
//! These operations belong to endpoints of type `D` and are called through them; addresses and
//! parameters are null or valid as `fi_cm(3)` asks. Every `SAFETY` remark below rests on this.

use core::ffi::{c_int, c_void};

use ripstop_abi as abi;
use ripstop_core::provider::{Domain, Endpoint};

use super::{Defaults, EpBody, Tables};
use crate::errno::code;
use crate::object::body;
use crate::{address, buffers, handles, tables};

impl<D: Domain, M: Defaults> Tables<D, M> {
    pub(super) const CM: &'static abi::fi_ops_cm = &abi::fi_ops_cm {
        setname: Some(setname::<D, M>),
        getname: Some(getname::<D, M>),
        getpeer: Some(getpeer::<D, M>),
        connect: Some(connect::<D, M>),
        accept: Some(accept::<D, M>),
        shutdown: Some(shutdown::<D, M>),
        join: Some(super::collective::join::<D, M>),
        ..tables::NO_CM_OPS
    };
}

unsafe extern "C" fn setname<D: Domain, M: Defaults>(
    fid: abi::fid_t,
    addr: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(fid.cast()) };
    // SAFETY: see the module.
    let address = unsafe { address::read_sized(this.format, addr, len) };
    code(address.and_then(|address| this.ep.set_name(&address)))
}

unsafe extern "C" fn getname<D: Domain, M: Defaults>(
    fid: abi::fid_t,
    addr: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(fid.cast()) };
    // SAFETY: see the module.
    unsafe { address::give(this.ep.name(), addr, len) }
}

unsafe extern "C" fn getpeer<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    addr: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    unsafe { address::give(this.ep.peer(), addr, len) }
}

unsafe extern "C" fn connect<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    addr: *const c_void,
    param: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let address = unsafe { address::read(this.format, addr) };
    code(address.and_then(|address| {
        // SAFETY: see the module.
        let data = unsafe { buffers::bytes(param, len) }?;
        this.ep.connect(&address, data)
    }))
}

unsafe extern "C" fn accept<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    param: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let data = unsafe { buffers::bytes(param, len) };
    let accepted = data.and_then(|data| this.ep.accept(data));
    if accepted.is_ok() {
        // After an error the program may still reject the request.
        handles::forget_request(this.request);
    }
    code(accepted)
}

unsafe extern "C" fn shutdown<D: Domain, M: Defaults>(ep: *mut abi::fid_ep, _flags: u64) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    code(this.ep.shutdown())
}
