//! Resource domains (`fi_domain(3)`).

use core::any::Any;
use core::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};

use ripstop_abi as abi;
use ripstop_core::Info;
use ripstop_core::provider::Domain;
use ripstop_types::{Errno, Version};

use crate::edge::{AnyFid, trampolines};
use crate::eq::EqBody;
use crate::errno::{code, fail};
use crate::object::domain::DomainBody;
use crate::object::{self, Body, Room, This};
use crate::tables::{Table, table};
use crate::{av, counter, cq, endpoint, poll, sep, srx, stx, work};

impl<D: Domain> DomainBody<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        bind: Some(bind::<D>),
        control: Some(work::control::<D>),
        ..*Self::CLOSING
    };
    const DOMAIN: &'static abi::fi_ops_domain = &abi::fi_ops_domain {
        av_open: Some(av::open::<D>),
        cq_open: Some(cq::open::<D>),
        endpoint: Some(endpoint::open::<D>),
        cntr_open: Some(counter::open::<D>),
        poll_open: Some(poll::open::<D>),
        scalable_ep: Some(sep::open::<D>),
        srx_ctx: Some(srx::open::<D>),
        stx_ctx: Some(stx::open::<D>),
        query_atomic: Some(endpoint::atomic::query::<D>),
        query_collective: Some(endpoint::collective::query::<D>),
        endpoint2: Some(endpoint::open2::<D>),
        ..*Table::NONE
    };
}

/// Makes the object of a domain that a provider has opened with `info`.
pub(crate) fn object<D: Domain>(
    domain: Arc<D>,
    info: &Info,
    api: Version,
    fabric: Arc<dyn Any + Send + Sync>,
    context: *mut c_void,
) -> *mut abi::fid_domain {
    let head = abi::fid_domain {
        fid: object::fid(abi::FI_CLASS_DOMAIN, context, DomainBody::<D>::FID),
        ops: table(DomainBody::<D>::DOMAIN),
        mr: table(DomainBody::<D>::MR),
    };
    Room::new().fill(
        head,
        DomainBody {
            domain,
            api,
            format: info.addr_format,
            av_type: info.domain.av_type,
            registrations: OnceLock::new(),
            _fabric: fabric,
        },
    )
}

trampolines! { [D: Domain]
    /// `fi_domain_bind`.
    extern "C" fn bind(this: This<DomainBody<D>, abi::fid>, other: AnyFid, flags: u64) -> c_int {
        if flags & !abi::FI_REG_MR != 0 {
            return fail(Errno::EBADFLAGS);
        }
        code(other.cast::<EqBody>(abi::FI_CLASS_EQ).and_then(|eq| {
            this.domain.bind_eq(&eq.eq)?;
            if flags & abi::FI_REG_MR != 0 {
                // The first one stays; a provider refuses a second if it minds.
                let _ = this.registrations.set(Arc::clone(&eq.eq));
            }
            Ok(())
        }))
    }
}
