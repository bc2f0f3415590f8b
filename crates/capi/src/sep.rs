//! Scalable endpoints (`fi_scalable_ep`, `fi_endpoint(3)`) and their contexts, which are
//! endpoints that only send or only receive.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::{Domain, ScalableEp};
use ripstop_core::{RxAttr, TxAttr};
use ripstop_types::{AddrFormat, Errno};

use crate::address::{AddressOfLen, AddressOut};
use crate::av::body::AvBody;
use crate::edge::{AnyFid, Out, trampolines};
use crate::endpoint;
use crate::errno::{code, fail};
use crate::info::layout::InfoIn;
use crate::info::{Attributes, read};
use crate::object::domain::{DomainBody, same_domain};
use crate::object::{self, Body, Room, This};
use crate::tables::{Table, table};

/// What the object of a scalable endpoint holds.
pub(crate) struct SepBody<D: Domain> {
    sep: Arc<D::ScalableEp>,
    domain: Arc<D>,
    /// Format of the addresses it takes.
    format: AddrFormat,
}

impl<D: Domain> Body for SepBody<D> {
    type Head = abi::fid_ep;

    fn in_use(&self) -> bool {
        // Its contexts hold it.
        Arc::strong_count(&self.sep) > 1
    }
}

impl<D: Domain> SepBody<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        bind: Some(bind::<D>),
        control: Some(control::<D>),
        ..*Self::CLOSING
    };
    const EP: &'static abi::fi_ops_ep = &abi::fi_ops_ep {
        tx_ctx: Some(tx_context::<D>),
        rx_ctx: Some(rx_context::<D>),
        ..*Table::NONE
    };
    const CM: &'static abi::fi_ops_cm = &abi::fi_ops_cm {
        setname: Some(setname::<D>),
        getname: Some(getname::<D>),
        ..*Table::NONE
    };
}

trampolines! { [D: Domain]
    /// `fi_scalable_ep`.
    pub(crate) extern "C" fn open(
        parent: This<DomainBody<D>>, info: InfoIn<*mut abi::fi_info>, sep: Out<*mut abi::fid_ep>,
        context: *mut c_void,
    ) -> c_int {
        sep.open(|| {
            let wanted = read::info("fi_scalable_ep", info)?;
            let room = Room::<SepBody<D>>::new();
            let body = SepBody {
                sep: parent.domain.scalable_ep(&wanted, room.token())?,
                domain: Arc::clone(&parent.domain),
                format: wanted.addr_format,
            };
            // Only contexts send and receive.
            let head = abi::fid_ep {
                ops: table(SepBody::<D>::EP),
                cm: table(SepBody::<D>::CM),
                ..object::bare_ep(abi::FI_CLASS_SEP, context, SepBody::<D>::FID)
            };
            Ok(room.fill(head, body))
        })
    }

    /// `fi_scalable_ep_bind`: an address vector.
    extern "C" fn bind(this: This<SepBody<D>, abi::fid>, other: AnyFid, flags: u64) -> c_int {
        if flags != 0 {
            return fail(Errno::EBADFLAGS);
        }
        code(other.cast::<AvBody<D>>(abi::FI_CLASS_AV).and_then(|av| {
            same_domain("the address vector", &this.domain, &av.domain)?;
            this.sep.bind_av(&av.av)
        }))
    }

    extern "C" fn control(this: This<SepBody<D>, abi::fid>, command: c_int, _arg: *mut c_void) -> c_int {
        match command {
            abi::FI_ENABLE => code(this.sep.enable()),
            _ => fail(Errno::ENOSYS),
        }
    }

    extern "C" fn tx_context(
        this: This<SepBody<D>>, index: c_int, attr: Option<&mut abi::fi_tx_attr>,
        ep: Out<*mut abi::fid_ep>, context: *mut c_void,
    ) -> c_int {
        ep.open(|| {
            let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
            let wanted = attr.as_deref().map(TxAttr::read).transpose()?;
            let (made, got) = this.sep.tx_context(index, wanted.as_ref())?;
            if let Some(attr) = attr {
                let comp_order = attr.comp_order;
                *attr = abi::fi_tx_attr { comp_order, ..got.write() };
            }
            let class = abi::FI_CLASS_TX_CTX;
            Ok(endpoint::context_of(made, &this.domain, this.format, class, context))
        })
    }

    extern "C" fn rx_context(
        this: This<SepBody<D>>, index: c_int, attr: Option<&mut abi::fi_rx_attr>,
        ep: Out<*mut abi::fid_ep>, context: *mut c_void,
    ) -> c_int {
        ep.open(|| {
            let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
            let wanted = attr.as_deref().map(RxAttr::read).transpose()?;
            let (made, got) = this.sep.rx_context(index, wanted.as_ref())?;
            if let Some(attr) = attr {
                let (comp_order, total_buffered_recv) = (attr.comp_order, attr.total_buffered_recv);
                *attr = abi::fi_rx_attr { comp_order, total_buffered_recv, ..got.write() };
            }
            let class = abi::FI_CLASS_RX_CTX;
            Ok(endpoint::context_of(made, &this.domain, this.format, class, context))
        })
    }

    extern "C" fn setname(this: This<SepBody<D>, abi::fid>, addr: AddressOfLen(addr, len)) -> c_int {
        let address = addr.read(this.format);
        code(address.and_then(|address| this.sep.set_name(&address)))
    }

    extern "C" fn getname(this: This<SepBody<D>, abi::fid>, addr: AddressOut(addr, len)) -> c_int {
        addr.give(this.sep.name())
    }
}
