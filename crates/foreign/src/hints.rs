#![allow(unsafe_code)]
//! What is asked of `fi_getinfo`(3).

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use ripstop_abi::history::{fi_domain_attr_1_1, fi_info_1_1, fi_tx_attr_1_0};
use ripstop_abi::{fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr};
use ripstop_types::{
    AvType, EpType, Errno, Flags, Mode, MrMode, MsgOrder, Progress, ResourceMgmt, Threading,
    Version,
};

use crate::guard::COMPLETION_FLAGS;
use crate::info::Info;
use crate::library::{Functions, GLOBAL};
use crate::{Addr, Error, Result};

/// The hints of a query. A field at its default asks for nothing.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Provider, alone (`tcp`) or layered (`tcp;ofi_rxm`).
    pub provider: Option<String>,
    /// Fabric name.
    pub fabric: Option<String>,
    /// Domain name, for tcp an interface.
    pub domain: Option<String>,
    /// Endpoint type.
    pub ep_type: EpType,
    /// Endpoint protocol, an `FI_PROTO_*` value.
    pub protocol: u32,
    /// Capabilities.
    pub caps: Flags,
    /// Modes the caller lives with besides `FI_CONTEXT` and `FI_CONTEXT2`, which this crate
    /// always offers. Endpoints open only with those and `FI_RX_CQ_DATA`.
    pub mode: Mode,
    /// Address format, an `FI_SOCKADDR*` or `FI_ADDR_*` value.
    pub addr_format: u32,
    /// Source address.
    pub src_addr: Option<Addr>,
    /// Destination address.
    pub dest_addr: Option<Addr>,
    /// Memory registration modes the caller lives with.
    pub mr_mode: MrMode,
    /// Threading level. Objects in mode [`Shared`](crate::Shared) need [`Threading::Safe`].
    pub threading: Threading,
    /// Control progress.
    pub control_progress: Progress,
    /// Data progress.
    pub data_progress: Progress,
    /// Resource management.
    pub resource_mgmt: ResourceMgmt,
    /// Address vector type.
    pub av_type: AvType,
    /// Bytes of remote CQ data.
    pub cq_data_size: usize,
    /// Default flags of transmits; only [`Flags::COMPLETION`] and completion levels count.
    pub tx_op_flags: Flags,
    /// Default flags of receives, as for transmits.
    pub rx_op_flags: Flags,
    /// Message ordering asked of transmits.
    pub tx_order: MsgOrder,
    /// Message ordering asked of receives.
    pub rx_order: MsgOrder,
    /// Bytes an inject must take.
    pub inject_size: usize,
    /// Transmits that may be outstanding.
    pub tx_size: usize,
    /// Receives that may be outstanding.
    pub rx_size: usize,
    /// Bytes a message must be able to have.
    pub max_msg_size: usize,
    /// Structure of tags.
    pub mem_tag_format: u64,
    /// Contexts of a shared receive endpoint: `usize::MAX` asks for a shared context.
    pub rx_ctx_cnt: usize,
}

/// The arguments of `fi_getinfo`(3).
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The hints, or none to list everything.
    pub hints: Option<Hints>,
    /// Node name or address.
    pub node: Option<String>,
    /// Port or service name.
    pub service: Option<String>,
    /// `FI_SOURCE`, `FI_NUMERICHOST`, `FI_PROV_ATTR_ONLY`, ...
    pub flags: Flags,
    /// The API version the caller is written for, by default the older of the library's and
    /// 2.6.
    pub version: Option<Version>,
}

impl Query {
    /// A query with hints and nothing else.
    #[must_use]
    pub fn hints(hints: Hints) -> Self {
        Self {
            hints: Some(hints),
            ..Self::default()
        }
    }

    /// The same query towards `node` and `service`.
    #[must_use]
    pub fn to(mut self, node: &str, service: &str) -> Self {
        self.node = Some(node.to_owned());
        self.service = Some(service.to_owned());
        self
    }

    /// The same query from the local `node` and `service` (`FI_SOURCE`).
    #[must_use]
    pub fn from(mut self, node: &str, service: &str) -> Self {
        self.flags |= Flags::SOURCE;
        self.to(node, service)
    }
}

/// `fi_getinfo`(3): each entry becomes an [`Info`] of its own.
pub(crate) fn getinfo(functions: &Arc<Functions>, query: &Query) -> Result<Vec<Info>> {
    let version = query
        .version
        .unwrap_or_else(|| Version::CURRENT.min(functions.version));
    let node = c_string(query.node.as_deref())?;
    let service = c_string(query.service.as_deref())?;
    let hints = match &query.hints {
        Some(hints) => Some(CHints::new(functions, hints)?),
        None => None,
    };
    let raw = hints.as_ref().map_or(ptr::null(), |h| h.info.cast_const());
    let (node, service) = (or_null(node.as_ref()), or_null(service.as_ref()));
    list(functions, version, node, service, query.flags, raw)
}

/// `fi_getinfo`(3) with arguments that live until it returns.
pub(crate) fn list(
    functions: &Arc<Functions>,
    version: Version,
    node: *const c_char,
    service: *const c_char,
    flags: Flags,
    hints: *const fi_info,
) -> Result<Vec<Info>> {
    let mut list: *mut fi_info = ptr::null_mut();

    let guard = GLOBAL.lock();
    // SAFETY: the strings and hints live until the call returns, and `list` takes the result.
    let ret = unsafe {
        (functions.getinfo)(version.0, node, service, flags.bits(), hints, &raw mut list)
    };
    drop(guard);
    Error::check("fi_getinfo", ret)?;

    let mut infos = Vec::new();
    let mut next = list;
    while !next.is_null() {
        match Info::copy(functions, next) {
            Ok(info) => infos.push(info),
            Err(e) => {
                free(functions, list);
                return Err(e);
            }
        }
        // SAFETY: `next` is an entry of the list, which is freed after the loop.
        next = unsafe { (*next).next };
    }
    free(functions, list);
    Ok(infos)
}

fn free(functions: &Functions, list: *mut fi_info) {
    // SAFETY: the list came from this library's `fi_getinfo` and nothing points into it.
    unsafe { (functions.freeinfo)(list) }
}

pub(crate) fn c_string(text: Option<&str>) -> Result<Option<CString>> {
    text.map(CString::new)
        .transpose()
        .map_err(|_| Error::new("fi_getinfo", Errno::EINVAL))
}

pub(crate) fn or_null(text: Option<&CString>) -> *const c_char {
    text.map_or(ptr::null(), |t| t.as_ptr())
}

/// Hints in the library's own memory. The strings and addresses in it are ours.
struct CHints<'a> {
    functions: &'a Functions,
    info: *mut fi_info,
    _strings: Vec<CString>,
    _addrs: Vec<Vec<u8>>,
}

impl<'a> CHints<'a> {
    fn new(functions: &'a Functions, hints: &Hints) -> Result<Self> {
        let mut c = Self {
            functions,
            info: functions.dup(ptr::null())?,
            _strings: Vec::new(),
            _addrs: Vec::new(),
        };
        c.fill_info(hints)?;
        c.fill_context(hints);
        c.fill_ep(hints);
        c.fill_domain(hints)?;
        c.fill_fabric(hints)?;
        Ok(c)
    }

    fn info(&mut self) -> &mut fi_info_1_1 {
        // SAFETY: the library allocated the info, at least this long, and `self` alone uses it.
        unsafe { &mut *self.info.cast() }
    }

    fn keep(&mut self, text: Option<&str>) -> Result<*mut c_char> {
        let Some(text) = c_string(text)? else {
            return Ok(ptr::null_mut());
        };
        let raw = text.as_ptr().cast_mut();
        self._strings.push(text);
        Ok(raw)
    }

    fn fill_info(&mut self, hints: &Hints) -> Result<()> {
        let src = keep_addr(&mut self._addrs, hints.src_addr.as_ref(), hints.addr_format)?;
        let dest = keep_addr(
            &mut self._addrs,
            hints.dest_addr.as_ref(),
            hints.addr_format,
        )?;
        let info = self.info();
        info.caps = hints.caps.bits();
        info.mode = (hints.mode | Mode::CONTEXT | Mode::CONTEXT2).bits();
        info.addr_format = hints.addr_format;
        (info.src_addr, info.src_addrlen) = (src.0.cast(), src.1);
        (info.dest_addr, info.dest_addrlen) = (dest.0.cast(), dest.1);
        Ok(())
    }

    fn fill_context(&mut self, hints: &Hints) {
        let (tx, rx) = (self.info().tx_attr, self.info().rx_attr);
        if !tx.is_null() {
            // SAFETY: the library allocated the part, at least this long, for our info alone.
            let tx: &mut fi_tx_attr_1_0 = unsafe { &mut *tx };
            tx.op_flags = (hints.tx_op_flags & COMPLETION_FLAGS).bits();
            tx.msg_order = hints.tx_order.bits();
            tx.inject_size = hints.inject_size;
            tx.size = hints.tx_size;
        }
        if !rx.is_null() {
            // SAFETY: as above.
            let rx: &mut fi_rx_attr = unsafe { &mut *rx };
            rx.op_flags = (hints.rx_op_flags & COMPLETION_FLAGS).bits();
            rx.msg_order = hints.rx_order.bits();
            rx.size = hints.rx_size;
        }
    }

    fn fill_ep(&mut self, hints: &Hints) {
        let ep: *mut fi_ep_attr = self.info().ep_attr;
        if !ep.is_null() {
            // SAFETY: the library allocated the part, at least this long, for our info alone.
            let ep = unsafe { &mut *ep };
            ep.type_ = hints.ep_type.raw();
            ep.protocol = hints.protocol;
            ep.max_msg_size = hints.max_msg_size;
            ep.mem_tag_format = hints.mem_tag_format;
            ep.rx_ctx_cnt = hints.rx_ctx_cnt;
        }
    }

    fn fill_domain(&mut self, hints: &Hints) -> Result<()> {
        let name = self.keep(hints.domain.as_deref())?;
        let domain: *mut fi_domain_attr_1_1 = self.info().domain_attr;
        if !domain.is_null() {
            // SAFETY: the library allocated the part, at least this long, for our info alone.
            let domain = unsafe { &mut *domain };
            domain.name = name;
            domain.threading = hints.threading.raw();
            domain.control_progress = hints.control_progress.raw();
            domain.data_progress = hints.data_progress.raw();
            domain.resource_mgmt = hints.resource_mgmt.raw();
            domain.av_type = hints.av_type.raw();
            domain.mr_mode = hints.mr_mode.bits() as c_int;
            domain.cq_data_size = hints.cq_data_size;
        }
        Ok(())
    }

    fn fill_fabric(&mut self, hints: &Hints) -> Result<()> {
        let name = self.keep(hints.fabric.as_deref())?;
        let provider = self.keep(hints.provider.as_deref())?;
        let fabric: *mut fi_fabric_attr = self.info().fabric_attr;
        if !fabric.is_null() {
            // SAFETY: the library allocated the part, at least this long, for our info alone.
            let fabric = unsafe { &mut *fabric };
            fabric.name = name;
            fabric.prov_name = provider;
        }
        Ok(())
    }
}

fn keep_addr(
    keep: &mut Vec<Vec<u8>>,
    addr: Option<&Addr>,
    format: u32,
) -> Result<(*mut u8, usize)> {
    let Some(addr) = addr else {
        return Ok((ptr::null_mut(), 0));
    };
    let mut bytes = addr.padded("fi_getinfo", format)?;
    let raw = bytes.as_mut_ptr();
    keep.push(bytes);
    Ok((raw, addr.as_bytes().len()))
}

impl Drop for CHints<'_> {
    fn drop(&mut self) {
        // What is ours must not be freed by the library.
        let info = self.info();
        info.src_addr = ptr::null_mut();
        info.dest_addr = ptr::null_mut();
        let (domain, fabric) = (info.domain_attr, info.fabric_attr);
        if !domain.is_null() {
            // SAFETY: a part of the info, which is still allocated.
            unsafe { (*domain).name = ptr::null_mut() };
        }
        if !fabric.is_null() {
            // SAFETY: a part of the info, which is still allocated.
            let fabric = unsafe { &mut *fabric };
            fabric.name = ptr::null_mut();
            fabric.prov_name = ptr::null_mut();
        }
        free(self.functions, self.info);
    }
}
