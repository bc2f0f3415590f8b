#![allow(unsafe_code)]
//! Passive endpoints (`fi_endpoint(3)`, `fi_cm(3)`).
//!
//! These operations belong to passive endpoints of type `F` and are called through them;
//! addresses and parameters are null or valid as `fi_cm(3)` asks. Every `SAFETY` remark of an
//! operation rests on this.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::Info;
use ripstop_core::provider::{Fabric, PassiveEp};
use ripstop_types::{AddrFormat, Errno};

use crate::endpoint::{get_option, set_option};
use crate::eq::{Bound, EqBody};
use crate::errno::{code, fail};
use crate::fabric::FabricBody;
use crate::info::read;
use crate::object::{self, Body, Room, body};
use crate::tables::{self, table};
use crate::{address, buffers, handles};

/// Most bytes of connection data, where nobody says otherwise.
const CM_DATA_SIZE: usize = 256;

/// What a passive endpoint's object holds.
struct PepBody<F: Fabric> {
    pep: Arc<F::PassiveEp>,
    /// Goes after the endpoint, which may have requests.
    events: Bound,
    format: AddrFormat,
    /// The fabric stays while the endpoint does.
    _fabric: Arc<F>,
}

impl<F: Fabric> Body for PepBody<F> {
    type Head = abi::fid_pep;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.pep) > 1
    }

    fn closing(&self, fid: *mut abi::fid) {
        handles::forget(fid);
    }
}

struct Tables<F>(PhantomData<F>);

impl<F: Fabric> Tables<F> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<PepBody<F>>),
        bind: Some(bind::<F>),
        control: Some(control::<F>),
        ..tables::NO_FID_OPS
    };
    const EP: &'static abi::fi_ops_ep = &abi::fi_ops_ep {
        getopt: Some(getopt),
        setopt: Some(setopt),
        ..tables::NO_EP_OPS
    };
    const CM: &'static abi::fi_ops_cm = &abi::fi_ops_cm {
        setname: Some(setname::<F>),
        getname: Some(getname::<F>),
        listen: Some(listen::<F>),
        reject: Some(reject::<F>),
        ..tables::NO_CM_OPS
    };
}

/// `fi_passive_ep`.
///
/// # Safety
///
/// `fabric` is an open fabric of this type; `info` is null or whole; `pep` is null or valid
/// for writes.
pub(crate) unsafe extern "C" fn open<F: Fabric>(
    fabric: *mut abi::fid_fabric,
    info: *mut abi::fi_info,
    pep: *mut *mut abi::fid_pep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    let parent = unsafe { body::<FabricBody<F>>(fabric) };
    let make = || {
        // SAFETY: the caller's guarantee.
        let info = unsafe { read::without_contexts("fi_passive_ep", info) }?;
        let room = Room::<PepBody<F>>::new();
        let pep = parent.fabric.passive_ep(&info, room.token())?;
        let head = abi::fid_pep {
            fid: object::fid(abi::FI_CLASS_PEP, context, Tables::<F>::FID),
            ops: table(Tables::<F>::EP),
            cm: table(Tables::<F>::CM),
        };
        let body = PepBody {
            pep: Arc::clone(&pep),
            events: Bound::new(room.token()),
            format: info.addr_format,
            _fabric: Arc::clone(&parent.fabric),
        };
        let made = room.fill(head, body);
        handles::add_passive(made.cast(), &pep);
        Ok(made)
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(pep, make) }
}

unsafe extern "C" fn bind<F: Fabric>(
    fid: *mut abi::fid,
    other: *mut abi::fid,
    flags: u64,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<PepBody<F>>(fid.cast()) };
    if flags != 0 {
        return fail(Errno::EBADFLAGS);
    }
    // SAFETY: `other` is null or an open object, as `fi_pep_bind` asks.
    let eq = unsafe { object::cast::<EqBody>(other, abi::FI_CLASS_EQ) };
    code(eq.and_then(|eq| {
        this.pep.bind_eq(&eq.eq)?;
        this.events.to(&eq.eq);
        Ok(())
    }))
}

unsafe extern "C" fn control<F: Fabric>(
    fid: *mut abi::fid,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<PepBody<F>>(fid.cast()) };
    if command != abi::FI_BACKLOG {
        return fail(Errno::ENOSYS);
    }
    // SAFETY: null, or the integer that this command takes.
    let backlog = unsafe { arg.cast::<c_int>().as_ref() };
    let backlog = backlog.and_then(|&backlog| u32::try_from(backlog).ok());
    code(
        backlog
            .ok_or(Errno::EINVAL)
            .and_then(|backlog| this.pep.set_backlog(backlog)),
    )
}

/// `fi_getopt`: how much connection data fits.
unsafe extern "C" fn getopt(
    _fid: abi::fid_t,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    let get = |option| match option {
        ripstop_core::provider::EpOption::CmDataSize => Ok(CM_DATA_SIZE),
        _ => Err(Errno::ENOPROTOOPT),
    };
    // SAFETY: the buffer is as `fi_getopt` asks.
    code(unsafe { get_option(level, name, value, len, get) })
}

unsafe extern "C" fn setopt(
    _fid: abi::fid_t,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    let set = |_, _| Err(Errno::ENOPROTOOPT);
    // SAFETY: the buffer is as `fi_setopt` asks.
    code(unsafe { set_option(level, name, value, len, set) })
}

unsafe extern "C" fn setname<F: Fabric>(fid: abi::fid_t, addr: *mut c_void, len: usize) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<PepBody<F>>(fid.cast()) };
    // SAFETY: see the module.
    let address = unsafe { address::read_sized(this.format, addr, len) };
    code(address.and_then(|address| this.pep.set_name(&address)))
}

unsafe extern "C" fn getname<F: Fabric>(
    fid: abi::fid_t,
    addr: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<PepBody<F>>(fid.cast()) };
    // SAFETY: see the module.
    unsafe { address::give(this.pep.name(), addr, len) }
}

unsafe extern "C" fn listen<F: Fabric>(pep: *mut abi::fid_pep) -> c_int {
    // SAFETY: see the module.
    code(unsafe { body::<PepBody<F>>(pep) }.pep.listen())
}

unsafe extern "C" fn reject<F: Fabric>(
    pep: *mut abi::fid_pep,
    handle: abi::fid_t,
    param: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<PepBody<F>>(pep) };
    if !handles::is_request(handle) {
        return fail(Errno::EINVAL);
    }
    // SAFETY: see the module.
    let data = unsafe { buffers::bytes(param, len) };
    let request = Info {
        handle: handles::find(handle),
        ..Info::default()
    };
    let rejected = data.and_then(|data| this.pep.reject(&request, data));
    if rejected.is_ok() {
        handles::forget(handle);
    }
    code(rejected)
}
