#![allow(unsafe_code)]
//! Passive endpoints (`fi_endpoint(3)`, `fi_cm(3)`).

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::Info;
use ripstop_core::provider::{EpOption, Fabric, PassiveEp};
use ripstop_types::{AddrFormat, Errno, Result};

use crate::address::{AddressOfLen, AddressOut};
use crate::buffers::Src;
use crate::edge::{AnyFid, Argument, Out, trampolines};
use crate::eq::{BoundEq, EqBody};
use crate::errno::{code, fail};
use crate::handles;
use crate::info::layout::InfoIn;
use crate::info::read;
use crate::object::fabric::FabricBody;
use crate::object::{self, Body, Room, This};
use crate::options::{self, Options};
use crate::tables::{Table, operations, table};

/// What a passive endpoint's object holds.
struct PepBody<F: Fabric> {
    pep: Arc<F::PassiveEp>,
    /// Goes after the endpoint, which may have requests.
    events: BoundEq,
    format: AddrFormat,
    /// The fabric stays while the endpoint does.
    _fabric: Arc<F>,
}

impl<F: Fabric> Body for PepBody<F> {
    type Head = abi::fid_pep;

    fn in_use(&self) -> bool {
        // Its own progress, in a thread that reads the event queue, is no use of it.
        object::stays_held(&self.pep)
    }

    fn closing(&self, fid: *mut abi::fid) {
        handles::forget(fid);
    }
}

impl<F: Fabric> PepBody<F> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        bind: Some(bind::<F>),
        control: Some(control::<F>),
        ..*Self::CLOSING
    };
    const EP: &'static abi::fi_ops_ep = &abi::fi_ops_ep {
        getopt: Some(options::getopt::<Self>),
        setopt: Some(options::setopt::<Self>),
        ..*Table::NONE
    };
    const CM: &'static abi::fi_ops_cm =
        operations!(fi_ops_cm [F] { setname getname listen reject });
}

trampolines! { [F: Fabric]
    /// `fi_passive_ep`.
    pub(crate) extern "C" fn open(
        parent: This<FabricBody<F>>, info: InfoIn<*mut abi::fi_info>, pep: Out<*mut abi::fid_pep>,
        context: *mut c_void,
    ) -> c_int {
        pep.open(|| {
            let info = read::without_contexts("fi_passive_ep", info)?;
            let room = Room::<PepBody<F>>::new();
            let pep = parent.fabric.passive_ep(&info, room.token())?;
            let head = abi::fid_pep {
                fid: object::fid(abi::FI_CLASS_PEP, context, PepBody::<F>::FID),
                ops: table(PepBody::<F>::EP),
                cm: table(PepBody::<F>::CM),
            };
            let body = PepBody {
                pep: Arc::clone(&pep),
                events: BoundEq::new(room.token()),
                format: info.addr_format,
                _fabric: Arc::clone(&parent.fabric),
            };
            let made = room.fill(head, body);
            handles::add_passive(made.cast(), &pep);
            Ok(made)
        })
    }

    extern "C" fn bind(this: This<PepBody<F>, abi::fid>, other: AnyFid, flags: u64) -> c_int {
        if flags != 0 {
            return fail(Errno::EBADFLAGS);
        }
        code(other.cast::<EqBody>(abi::FI_CLASS_EQ).and_then(|eq| {
            this.pep.bind_eq(&eq.eq)?;
            this.events.set(&eq.eq);
            Ok(())
        }))
    }

    extern "C" fn control(this: This<PepBody<F>, abi::fid>, command: c_int, arg: Argument) -> c_int {
        if command != abi::FI_BACKLOG {
            return fail(Errno::ENOSYS);
        }
        code(arg.backlog().and_then(|backlog| this.pep.set_backlog(backlog)))
    }

    extern "C" fn setname(this: This<PepBody<F>, abi::fid>, addr: AddressOfLen(addr, len)) -> c_int {
        let address = addr.read(this.format);
        code(address.and_then(|address| this.pep.set_name(&address)))
    }

    extern "C" fn getname(this: This<PepBody<F>, abi::fid>, addr: AddressOut(addr, len)) -> c_int {
        addr.give(this.pep.name())
    }

    extern "C" fn listen(this: This<PepBody<F>>) -> c_int {
        code(this.pep.listen())
    }

    extern "C" fn reject(this: This<PepBody<F>>, handle: abi::fid_t, param: Src(param, len)) -> c_int {
        if !handles::is_request(handle) {
            return fail(Errno::EINVAL);
        }
        let request = Info {
            handle: handles::find(handle),
            ..Info::default()
        };
        let rejected = param.bytes().and_then(|data| this.pep.reject(&request, data));
        if rejected.is_ok() {
            handles::forget(handle);
        }
        code(rejected)
    }
}

impl Argument<'_> {
    /// The argument of `FI_BACKLOG`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null and a negative number.
    fn backlog(self) -> Result<u32> {
        // SAFETY: this command takes an `int`.
        let backlog = unsafe { self.get::<c_int>() };
        let backlog = backlog.and_then(|backlog| u32::try_from(*backlog).ok());
        backlog.ok_or(Errno::EINVAL)
    }
}

/// The one option says how much connection data fits.
impl<F: Fabric> Options for PepBody<F> {
    fn option(&self, option: EpOption) -> Result<usize> {
        match option {
            EpOption::CmDataSize => Ok(self.pep.cm_data_size()),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_option(&self, _option: EpOption, _value: usize) -> Result<()> {
        Err(Errno::ENOPROTOOPT)
    }
}
