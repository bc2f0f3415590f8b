//! Names and connections of an endpoint (`fi_cm(3)`).

use core::ffi::c_int;

use ripstop_abi as abi;
use ripstop_core::provider::{Domain, Endpoint};

use super::body::{Defaults, Ep, EpBody};
use super::collective::join;
use crate::address::{AddressIn, AddressOfLen, AddressOut};
use crate::buffers::Src;
use crate::edge::trampolines;
use crate::errno::code;
use crate::handles;
use crate::object::This;
use crate::tables::operations;

impl<D: Domain, M: Defaults> EpBody<D, M> {
    pub(super) const CM: &'static abi::fi_ops_cm = operations!(fi_ops_cm [D, M] {
        setname getname getpeer connect accept shutdown join
    });
}

trampolines! { [D: Domain, M: Defaults]
    extern "C" fn setname(this: This<EpBody<D, M>, abi::fid>, addr: AddressOfLen(addr, len)) -> c_int {
        let address = addr.read(this.format);
        code(address.and_then(|address| this.ep.set_name(&address)))
    }

    extern "C" fn getname(
        this: This<EpBody<D, M>, abi::fid>, addr: AddressOut(addr, len),
    ) -> c_int {
        addr.give(this.ep.name())
    }

    extern "C" fn getpeer(this: Ep<D, M>, addr: AddressOut(addr, len)) -> c_int {
        addr.give(this.ep.peer())
    }

    extern "C" fn connect(this: Ep<D, M>, addr: AddressIn, param: Src(param, len)) -> c_int {
        let address = addr.read(this.format);
        code(address.and_then(|address| this.ep.connect(&address, param.bytes()?)))
    }

    extern "C" fn accept(this: Ep<D, M>, param: Src(param, len)) -> c_int {
        let accepted = param.bytes().and_then(|data| this.ep.accept(data));
        if accepted.is_ok() {
            // After an error the program may still reject the request.
            handles::forget_request(this.request);
        }
        code(accepted)
    }

    extern "C" fn shutdown(this: Ep<D, M>, _flags: u64) -> c_int {
        code(this.ep.shutdown())
    }
}
