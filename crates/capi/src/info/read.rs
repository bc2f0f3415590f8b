//! A C caller's `fi_info` as the core's types.

use core::ffi::CStr;

use ripstop_abi as abi;
use ripstop_core::log::Subsys;
use ripstop_core::{
    Address, DomainAttr, EpAttr, FabricAttr, FidToken, Hints, Info, RxAttr, TxAttr, fi_warn,
};
use ripstop_types::{
    AddrFormat, AvType, EpType, Errno, Flags, Mode, MrMode, MsgOrder, Progress, Protocol,
    ResourceMgmt, Result, Threading, Version,
};

use super::layout::{InfoIn, Widened};
use crate::address::MOST_ADDRESS;
use crate::edge::{Array, Whole};
use crate::{errno, handles};

/// Hints for `fi_getinfo`.
///
/// # Errors
/// [`Errno::ENODATA`] for a value no provider here can have, [`Errno::EINVAL`] for a handle
/// that is not one.
pub(crate) fn hints(info: Whole<'_, abi::fi_info>) -> Result<Hints> {
    let addr_format = value("addr_format", info.addr_format, AddrFormat::from_raw)?;
    let src_addr = address(addr_format, info.src_addr())?;
    let dest_addr = address(addr_format, info.dest_addr())?;
    let handle = match info.handle.is_null() {
        true => None,
        false => Some(handles::find(info.handle).ok_or_else(|| {
            let why = "handle is neither a passive endpoint nor a connection request that is open";
            errno::refused("info", why, Errno::EINVAL)
        })?),
    };
    Ok(Hints {
        caps: Flags::from_bits_retain(info.caps),
        mode: Mode::from_bits_retain(info.mode),
        addr_format,
        src_addr,
        dest_addr,
        handle,
        tx: info.tx_attr().map(|attr| tx_attr(&attr)),
        rx: info.rx_attr().map(|attr| rx_attr(&attr)),
        ep: info.ep_attr().map(ep_attr).transpose()?,
        domain: info.domain_attr().map(domain_attr).transpose()?,
        fabric: info.fabric_attr().map(fabric_attr),
    })
}

/// What a caller opens a domain or a passive endpoint with by `call`, neither of which has contexts: their attributes may
/// be missing.
///
/// # Errors
/// As for [`info`].
pub(crate) fn without_contexts(call: &str, info: InfoIn<'_, *mut abi::fi_info>) -> Result<Info> {
    let wide = info.widen().ok_or_else(|| errno::missing(call, "info"))?;
    let mut hints = opened_with(&wide)?;
    hints.tx.get_or_insert_default();
    hints.rx.get_or_insert_default();
    parts(call, hints)
}

/// What a caller opens an object with by `call`. Nothing looks at the attributes of its fabric, which is open.
///
/// # Errors
/// [`Errno::EINVAL`] for missing attributes or values that no `fi_getinfo` here gave.
pub(crate) fn info(call: &str, info: InfoIn<'_, *mut abi::fi_info>) -> Result<Info> {
    let wide = info.widen().ok_or_else(|| errno::missing(call, "info"))?;
    parts(call, opened_with(&wide)?)
}

fn opened_with(wide: &Widened) -> Result<Hints> {
    hints(wide.whole()).map_err(|_| Errno::EINVAL)
}

fn parts(call: &str, hints: Hints) -> Result<Info> {
    let missing = |attribute| move || errno::missing(call, attribute);
    Ok(Info {
        caps: hints.caps,
        mode: hints.mode,
        addr_format: hints.addr_format,
        src_addr: hints.src_addr,
        dest_addr: hints.dest_addr,
        handle: hints.handle,
        tx: hints.tx.ok_or_else(missing("info->tx_attr"))?,
        rx: hints.rx.ok_or_else(missing("info->rx_attr"))?,
        ep: hints.ep.ok_or_else(missing("info->ep_attr"))?,
        domain: hints.domain.ok_or_else(missing("info->domain_attr"))?,
        fabric: hints.fabric.unwrap_or_default(),
        nic: None,
    })
}

/// A value that an enumeration here has, or the answer that nobody matches it.
fn value<T>(attribute: &str, raw: u32, from_raw: fn(u32) -> Option<T>) -> Result<T> {
    from_raw(raw).ok_or_else(|| {
        fi_warn!(
            "core",
            Subsys::Core,
            "{attribute} is {raw}, which no provider here knows: leave it unspecified"
        );
        Errno::ENODATA
    })
}

/// An address, unless there is none; it is only read if it is no longer than [`MOST_ADDRESS`].
fn address(format: AddrFormat, bytes: Array<'_, u8>) -> Result<Option<Address>> {
    if bytes.is_null() || bytes.count() == 0 {
        return Ok(None);
    }
    let Some(bytes) = bytes.at_most(MOST_ADDRESS) else {
        let len = bytes.count();
        fi_warn!(
            "core",
            Subsys::Core,
            "src_addrlen or dest_addrlen is {len}, and no address is longer than {MOST_ADDRESS} bytes"
        );
        return Err(Errno::EINVAL);
    };
    match Address::from_bytes(format, bytes) {
        Ok(address) => Ok(Some(address)),
        Err(error) => {
            fi_warn!("core", Subsys::Core, "src_addr or dest_addr: {error}");
            Err(Errno::ENODATA)
        }
    }
}

/// A C string as text; bytes that are not UTF-8 are replaced, and so match nothing.
pub(crate) fn string(s: &CStr) -> String {
    s.to_string_lossy().into_owned()
}

fn auth_key(key: Array<'_, u8>) -> Vec<u8> {
    key.get().unwrap_or_default().to_vec()
}

fn token<T>(fid: *mut T) -> Option<FidToken> {
    (!fid.is_null()).then(|| FidToken(fid.expose_provenance()))
}

pub(crate) fn tx_attr(attr: &abi::fi_tx_attr) -> TxAttr {
    TxAttr {
        caps: Flags::from_bits_retain(attr.caps),
        mode: Mode::from_bits_retain(attr.mode),
        op_flags: Flags::from_bits_retain(attr.op_flags),
        msg_order: MsgOrder::from_bits_retain(attr.msg_order),
        comp_order: attr.comp_order,
        inject_size: attr.inject_size,
        size: attr.size,
        iov_limit: attr.iov_limit,
        rma_iov_limit: attr.rma_iov_limit,
        tclass: attr.tclass,
    }
}

pub(crate) fn rx_attr(attr: &abi::fi_rx_attr) -> RxAttr {
    RxAttr {
        caps: Flags::from_bits_retain(attr.caps),
        mode: Mode::from_bits_retain(attr.mode),
        op_flags: Flags::from_bits_retain(attr.op_flags),
        msg_order: MsgOrder::from_bits_retain(attr.msg_order),
        comp_order: attr.comp_order,
        total_buffered_recv: attr.total_buffered_recv,
        size: attr.size,
        iov_limit: attr.iov_limit,
    }
}

fn ep_attr(attr: Whole<'_, abi::fi_ep_attr>) -> Result<EpAttr> {
    Ok(EpAttr {
        ep_type: value("ep_attr->type", attr.type_, EpType::from_raw)?,
        protocol: value("ep_attr->protocol", attr.protocol, Protocol::from_raw)?,
        protocol_version: attr.protocol_version,
        max_msg_size: attr.max_msg_size,
        msg_prefix_size: attr.msg_prefix_size,
        max_order_raw_size: attr.max_order_raw_size,
        max_order_war_size: attr.max_order_war_size,
        max_order_waw_size: attr.max_order_waw_size,
        mem_tag_format: attr.mem_tag_format,
        tx_ctx_cnt: attr.tx_ctx_cnt,
        rx_ctx_cnt: attr.rx_ctx_cnt,
        auth_key_size: attr.auth_key_size,
        auth_key: auth_key(attr.auth_key()),
    })
}

fn domain_attr(attr: Whole<'_, abi::fi_domain_attr>) -> Result<DomainAttr> {
    Ok(DomainAttr {
        domain: token(attr.domain),
        name: attr.name().map(string),
        threading: value(
            "domain_attr->threading",
            attr.threading,
            Threading::from_raw,
        )?,
        control_progress: value(
            "domain_attr->control_progress",
            attr.control_progress,
            Progress::from_raw,
        )?,
        progress: value(
            "domain_attr->data_progress",
            attr.data_progress,
            Progress::from_raw,
        )?,
        resource_mgmt: value(
            "domain_attr->resource_mgmt",
            attr.resource_mgmt,
            ResourceMgmt::from_raw,
        )?,
        av_type: value("domain_attr->av_type", attr.av_type, AvType::from_raw)?,
        mr_mode: MrMode::from_bits_retain(attr.mr_mode.cast_unsigned()),
        mr_key_size: attr.mr_key_size,
        cq_data_size: attr.cq_data_size,
        cq_cnt: attr.cq_cnt,
        ep_cnt: attr.ep_cnt,
        tx_ctx_cnt: attr.tx_ctx_cnt,
        rx_ctx_cnt: attr.rx_ctx_cnt,
        max_ep_tx_ctx: attr.max_ep_tx_ctx,
        max_ep_rx_ctx: attr.max_ep_rx_ctx,
        max_ep_stx_ctx: attr.max_ep_stx_ctx,
        max_ep_srx_ctx: attr.max_ep_srx_ctx,
        cntr_cnt: attr.cntr_cnt,
        mr_iov_limit: attr.mr_iov_limit,
        caps: Flags::from_bits_retain(attr.caps),
        mode: Mode::from_bits_retain(attr.mode),
        auth_key: auth_key(attr.auth_key()),
        auth_key_size: attr.auth_key_size,
        max_err_data: attr.max_err_data,
        mr_cnt: attr.mr_cnt,
        tclass: attr.tclass,
        max_ep_auth_key: attr.max_ep_auth_key,
        max_group_id: attr.max_group_id,
        max_cntr_value: attr.max_cntr_value,
        max_err_cntr_value: attr.max_err_cntr_value,
    })
}

/// Attributes for `fi_fabric`.
pub(crate) fn fabric_attr(attr: Whole<'_, abi::fi_fabric_attr>) -> FabricAttr {
    FabricAttr {
        fabric: token(attr.fabric),
        name: attr.name().map(string),
        prov_name: attr.prov_name().map(string),
        prov_version: attr.prov_version,
        api_version: Version(attr.api_version),
    }
}
