#![allow(unsafe_code)]
//! Resource domains (`fi_domain(3)`).

use core::any::Any;
use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use ripstop_abi as abi;
use ripstop_core::provider::Domain;
use ripstop_core::{EventQueue, Info};
use ripstop_types::{AddrFormat, AvType, Errno, Flags, Result, Version};

use crate::eq::EqBody;
use crate::errno::{code, fail};
use crate::object::{self, Body, Room, body};
use crate::opened;
use crate::tables::{self, table};
use crate::{av, counter, cq, endpoint, mr, poll, sep, srx, stx, work};

/// What a domain's object holds.
pub(crate) struct DomainBody<D: Domain> {
    pub(crate) domain: Arc<D>,
    /// The version the program was written for.
    pub(crate) api: Version,
    /// Format of the addresses of its endpoints.
    pub(crate) format: AddrFormat,
    /// Type of its address vectors.
    pub(crate) av_type: AvType,
    /// Where registrations report that they are done (`FI_REG_MR`).
    pub(crate) registrations: OnceLock<Arc<EventQueue>>,
    /// The fabric stays while the domain does.
    _fabric: Arc<dyn Any + Send + Sync>,
}

impl<D: Domain> Body for DomainBody<D> {
    type Head = abi::fid_domain;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.domain) > 1
    }

    fn closing(&self, fid: *mut abi::fid) {
        opened::domain_closed(fid);
    }
}

struct Tables<D>(PhantomData<D>);

impl<D: Domain> Tables<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<DomainBody<D>>),
        bind: Some(bind::<D>),
        control: Some(work::control::<D>),
        ..tables::NO_FID_OPS
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
        ..tables::NO_DOMAIN_OPS
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
        fid: object::fid(abi::FI_CLASS_DOMAIN, context, Tables::<D>::FID),
        ops: table(Tables::<D>::DOMAIN),
        mr: table(mr::Tables::<D>::MR),
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

/// `fi_domain_bind`.
unsafe extern "C" fn bind<D: Domain>(
    fid: *mut abi::fid,
    other: *mut abi::fid,
    flags: u64,
) -> c_int {
    // SAFETY: this operation belongs to domains of this type.
    let this = unsafe { body::<DomainBody<D>>(fid.cast()) };
    if flags & !abi::FI_REG_MR != 0 {
        return fail(Errno::EBADFLAGS);
    }
    // SAFETY: `other` is null or an open object, as `fi_domain_bind` asks.
    let eq = unsafe { object::cast::<EqBody>(other, abi::FI_CLASS_EQ) };
    code(eq.and_then(|eq| {
        this.domain.bind_eq(&eq.eq)?;
        if flags & abi::FI_REG_MR != 0 {
            // The first one stays; a provider refuses a second if it minds.
            let _ = this.registrations.set(Arc::clone(&eq.eq));
        }
        Ok(())
    }))
}

/// What a domain can be opened with.
///
/// # Errors
/// [`Errno::EINVAL`] for `FI_PEER`, as `fi_peer(3)` asks of who has no peer domains;
/// [`Errno::ENOSYS`] for other flags.
pub(crate) fn check_flags(flags: u64) -> Result<()> {
    match Flags::from_bits_retain(flags) {
        none if none.is_empty() => Ok(()),
        Flags::PEER => {
            let why = "there are no domains and endpoints of other providers; leave FI_PEER out";
            Err(object::refused(
                "fi_domain2 or fi_endpoint2",
                why,
                Errno::EINVAL,
            ))
        }
        _ => Err(Errno::ENOSYS),
    }
}
