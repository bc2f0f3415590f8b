//! A C caller's `fi_info` as the core's types.

use core::ffi::CStr;

use ripstop_abi as abi;
use ripstop_core::log::Subsys;
use ripstop_core::{Address, DomainAttr, EpAttr, FabricAttr, Hints, Info, RxAttr, TxAttr, fi_warn};
use ripstop_types::{AddrFormat, Errno, Flags, Mode, Result};

use super::attr::{Attributes, unknown};
use super::layout::{InfoIn, Widened};
use crate::address::MAX_ADDRESS_BYTES;
use crate::edge::{Array, Whole};
use crate::{errno, handles};

/// Hints for `fi_getinfo`.
///
/// # Errors
/// [`Errno::ENODATA`] for a value no provider here can have, [`Errno::EINVAL`] for a handle
/// that is not one.
pub(crate) fn hints(info: Whole<'_, abi::fi_info>) -> Result<Hints> {
    let addr_format = AddrFormat::from_raw(info.addr_format)
        .ok_or_else(|| unknown("addr_format", info.addr_format))?;
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
        tx: info.tx_attr().map(|attr| TxAttr::read(&attr)).transpose()?,
        rx: info.rx_attr().map(|attr| RxAttr::read(&attr)).transpose()?,
        ep: info.ep_attr().map(ep_attr).transpose()?,
        domain: info.domain_attr().map(domain_attr).transpose()?,
        fabric: info.fabric_attr().map(fabric_attr).transpose()?,
    })
}

/// The names in hints, of which [`hints`] cannot read all.
pub(crate) fn names(info: Whole<'_, abi::fi_info>) -> Hints {
    let fabric = info.fabric_attr();
    let domain = info.domain_attr();
    Hints {
        domain: domain.map(|attr| DomainAttr {
            name: attr.name().map(string),
            ..DomainAttr::default()
        }),
        fabric: fabric.map(|attr| FabricAttr {
            name: attr.name().map(string),
            prov_name: attr.prov_name().map(string),
            ..FabricAttr::default()
        }),
        ..Hints::default()
    }
}

/// What a caller opens a domain or a passive endpoint with by `call`, neither of which has contexts: their attributes may
/// be missing.
///
/// # Errors
/// As for [`info`].
pub(crate) fn without_contexts(call: &str, info: InfoIn<'_, *mut abi::fi_info>) -> Result<Info> {
    let mut wide = info.widen().ok_or_else(|| errno::missing(call, "info"))?;
    // A connection request is for the endpoint that answers it.
    wide.forget_handle();
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

/// An address, unless there is none; it is only read if it is no longer than [`MAX_ADDRESS_BYTES`].
fn address(format: AddrFormat, bytes: Array<'_, u8>) -> Result<Option<Address>> {
    if bytes.is_null() || bytes.count() == 0 {
        return Ok(None);
    }
    let Some(bytes) = bytes.at_most(MAX_ADDRESS_BYTES) else {
        let len = bytes.count();
        fi_warn!(
            "core",
            Subsys::Core,
            "src_addrlen or dest_addrlen is {len}, and no address is longer than {MAX_ADDRESS_BYTES} bytes"
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

fn ep_attr(attr: Whole<'_, abi::fi_ep_attr>) -> Result<EpAttr> {
    Ok(EpAttr {
        auth_key: auth_key(attr.auth_key()),
        ..EpAttr::read(&attr)?
    })
}

fn domain_attr(attr: Whole<'_, abi::fi_domain_attr>) -> Result<DomainAttr> {
    Ok(DomainAttr {
        name: attr.name().map(string),
        auth_key: auth_key(attr.auth_key()),
        ..DomainAttr::read(&attr)?
    })
}

/// Attributes for `fi_fabric`.
///
/// # Errors
/// As for [`Attributes::read`].
pub(crate) fn fabric_attr(attr: Whole<'_, abi::fi_fabric_attr>) -> Result<FabricAttr> {
    Ok(FabricAttr {
        name: attr.name().map(string),
        prov_name: attr.prov_name().map(string),
        ..FabricAttr::read(&attr)?
    })
}
