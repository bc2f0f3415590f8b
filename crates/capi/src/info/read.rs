#![allow(unsafe_code)]
//! A C caller's `fi_info` as the core's types.

use core::ffi::{CStr, c_char, c_void};
use core::slice;

use ripstop_abi as abi;
use ripstop_core::log::Subsys;
use ripstop_core::{
    Address, DomainAttr, EpAttr, FabricAttr, FidToken, Hints, Info, RxAttr, TxAttr, fi_warn,
};
use ripstop_types::{
    AddrFormat, AvType, EpType, Errno, Flags, Mode, MrMode, MsgOrder, Progress, Protocol,
    ResourceMgmt, Result, Threading, Version,
};

use super::layout::{self, Widened};
use crate::address::MOST_ADDRESS;
use crate::{handles, object};

/// Hints for `fi_getinfo`.
///
/// # Errors
/// [`Errno::ENODATA`] for a value no provider here can have, [`Errno::EINVAL`] for a handle
/// that is not one.
///
/// # Safety
///
/// Every pointer in `info` is null or valid for what it points to.
pub(crate) unsafe fn hints(info: &abi::fi_info) -> Result<Hints> {
    let addr_format = value("addr_format", info.addr_format, AddrFormat::from_raw)?;
    // SAFETY: the caller's guarantee, for this and the blocks below.
    let src_addr = unsafe { address(addr_format, info.src_addr, info.src_addrlen) }?;
    // SAFETY: as above.
    let dest_addr = unsafe { address(addr_format, info.dest_addr, info.dest_addrlen) }?;
    let handle = match info.handle.is_null() {
        true => None,
        false => Some(handles::find(info.handle).ok_or_else(|| {
            let why = "handle is neither a passive endpoint nor a connection request that is open";
            object::refused("info", why, Errno::EINVAL)
        })?),
    };
    Ok(Hints {
        caps: Flags::from_bits_retain(info.caps),
        mode: Mode::from_bits_retain(info.mode),
        addr_format,
        src_addr,
        dest_addr,
        handle,
        // SAFETY: as above.
        tx: unsafe { info.tx_attr.as_ref() }.map(tx_attr),
        // SAFETY: as above.
        rx: unsafe { info.rx_attr.as_ref() }.map(rx_attr),
        // SAFETY: as above.
        ep: unsafe { optional(info.ep_attr, ep_attr) }?,
        // SAFETY: as above.
        domain: unsafe { optional(info.domain_attr, domain_attr) }?,
        // SAFETY: as above.
        fabric: unsafe { optional(info.fabric_attr, fabric_attr) }?,
    })
}

/// What a caller opens a domain or a passive endpoint with by `call`, neither of which has contexts: their attributes may
/// be missing.
///
/// # Errors
/// As for [`info`].
///
/// # Safety
///
/// As for [`info`].
pub(crate) unsafe fn without_contexts(call: &str, info: *const abi::fi_info) -> Result<Info> {
    let (mut tx, mut rx) = (abi::fi_tx_attr::default(), abi::fi_rx_attr::default());
    // SAFETY: the caller's guarantee.
    let Some(given) = (unsafe { info.as_ref() }) else {
        return Err(object::missing(call, "info"));
    };
    // SAFETY: as above; attributes that are there stay the caller's.
    let wide = unsafe { Widened::read(given, layout::of_programs()) };
    let mut whole = *wide.info();
    if whole.tx_attr.is_null() {
        whole.tx_attr = &raw mut tx;
    }
    if whole.rx_attr.is_null() {
        whole.rx_attr = &raw mut rx;
    }
    // SAFETY: as above.
    unsafe { parts(call, &whole) }
}

/// What a caller opens an object with by `call`. Nothing looks at the attributes of its fabric, which is open.
///
/// # Errors
/// [`Errno::EINVAL`] for missing attributes or values that no `fi_getinfo` here gave.
///
/// # Safety
///
/// `info` is null or valid, with every pointer in it.
pub(crate) unsafe fn info(call: &str, info: *const abi::fi_info) -> Result<Info> {
    if info.is_null() {
        return Err(object::missing(call, "info"));
    }
    // SAFETY: the caller's guarantee, for this and the block below; not null.
    let wide = unsafe { Widened::read(info, layout::of_programs()) };
    // SAFETY: as above.
    unsafe { parts(call, wide.info()) }
}

/// # Safety
///
/// Every pointer in `info` is null or valid for what it points to.
unsafe fn parts(call: &str, info: &abi::fi_info) -> Result<Info> {
    // SAFETY: the caller's guarantee.
    let hints = unsafe { hints(info) }.map_err(|_| Errno::EINVAL)?;
    let missing = |attribute| move || object::missing(call, attribute);
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

/// # Safety
///
/// `attr` is null or valid.
unsafe fn optional<T, U>(attr: *const T, read: unsafe fn(&T) -> Result<U>) -> Result<Option<U>> {
    // SAFETY: the caller's guarantee.
    match unsafe { attr.as_ref() } {
        None => Ok(None),
        // SAFETY: the caller's guarantee covers the pointers inside.
        Some(attr) => unsafe { read(attr) }.map(Some),
    }
}

/// # Safety
///
/// `addr` is null or valid for reads of `len` bytes, if they are no more than [`MOST_ADDRESS`].
unsafe fn address(format: AddrFormat, addr: *const c_void, len: usize) -> Result<Option<Address>> {
    if addr.is_null() || len == 0 {
        return Ok(None);
    }
    if len > MOST_ADDRESS {
        fi_warn!(
            "core",
            Subsys::Core,
            "src_addrlen or dest_addrlen is {len}, and no address is longer than {MOST_ADDRESS} bytes"
        );
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's guarantee.
    let bytes = unsafe { slice::from_raw_parts(addr.cast::<u8>(), len) };
    match Address::from_bytes(format, bytes) {
        Ok(address) => Ok(Some(address)),
        Err(error) => {
            fi_warn!("core", Subsys::Core, "src_addr or dest_addr: {error}");
            Err(Errno::ENODATA)
        }
    }
}

/// A C string as text; bytes that are not UTF-8 are replaced, and so match nothing.
///
/// # Safety
///
/// `s` is null or a C string.
pub(crate) unsafe fn string(s: *const c_char) -> Option<String> {
    if s.is_null() {
        return None;
    }
    // SAFETY: the caller's guarantee.
    let text = unsafe { CStr::from_ptr(s) };
    Some(text.to_string_lossy().into_owned())
}

/// # Safety
///
/// `key` is null or valid for reads of `size` bytes.
unsafe fn auth_key(key: *const u8, size: usize) -> Vec<u8> {
    if key.is_null() || size == 0 || size > isize::MAX.unsigned_abs() {
        return Vec::new();
    }
    // SAFETY: the caller's guarantee.
    unsafe { slice::from_raw_parts(key, size) }.to_vec()
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

/// # Safety
///
/// `auth_key` is null or valid for reads of `auth_key_size` bytes.
unsafe fn ep_attr(attr: &abi::fi_ep_attr) -> Result<EpAttr> {
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
        // SAFETY: the caller's guarantee.
        auth_key: unsafe { auth_key(attr.auth_key, attr.auth_key_size) },
    })
}

/// # Safety
///
/// `name` is null or a C string; `auth_key` is null or valid for reads of `auth_key_size` bytes.
unsafe fn domain_attr(attr: &abi::fi_domain_attr) -> Result<DomainAttr> {
    Ok(DomainAttr {
        domain: token(attr.domain),
        // SAFETY: the caller's guarantee.
        name: unsafe { string(attr.name) },
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
        // SAFETY: the caller's guarantee.
        auth_key: unsafe { auth_key(attr.auth_key, attr.auth_key_size) },
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
///
/// # Errors
/// None today.
///
/// # Safety
///
/// `name` and `prov_name` are null or C strings.
pub(crate) unsafe fn fabric_attr(attr: &abi::fi_fabric_attr) -> Result<FabricAttr> {
    Ok(FabricAttr {
        fabric: token(attr.fabric),
        // SAFETY: the caller's guarantee.
        name: unsafe { string(attr.name) },
        // SAFETY: the caller's guarantee.
        prov_name: unsafe { string(attr.prov_name) },
        prov_version: attr.prov_version,
        api_version: Version(attr.api_version),
    })
}
