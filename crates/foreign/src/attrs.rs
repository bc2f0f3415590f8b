#![allow(unsafe_code)]
//! Every attribute of `fi_getinfo`(3), in the words of `ripstop-core`: hints going in, answers
//! coming out.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use ripstop_abi::history::{fi_domain_attr_1_1, fi_domain_attr_1_3, fi_info_1_1, fi_tx_attr_1_0};
use ripstop_abi::{fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr, fi_tx_attr};
use ripstop_core::hints::Request;
use ripstop_core::{Address, DomainAttr, EpAttr, FabricAttr, RxAttr, TxAttr};
use ripstop_types::{
    AddrFormat, AvType, EpType, Errno, Flags, Mode, MrMode, MsgOrder, Progress, Protocol,
    ResourceMgmt, Threading, Version,
};

use crate::info::{copy_addr, copy_part};
use crate::library::{Functions, GLOBAL, copy_text};
use crate::{Error, Info, Library, Result};

impl Library {
    /// The ways of communicating that match, best first (`fi_getinfo`). A group of hints that is
    /// `None` is a null pointer in C. What names an open object in the hints (`handle`, `fabric`,
    /// `domain`) is left out. Endpoints open only with infos that need no mode but `FI_CONTEXT`,
    /// `FI_CONTEXT2` and `FI_RX_CQ_DATA`.
    ///
    /// # Errors
    ///
    /// `FI_ENODATA` when nothing matches, and whatever else the library says.
    pub(crate) fn getinfo(&self, request: &Request<'_>) -> Result<Vec<Info>> {
        let (node, service) = (c_string(request.node)?, c_string(request.service)?);
        let hints = request.hints.map(CHints::new).transpose()?;
        let raw = hints
            .as_ref()
            .map_or(ptr::null(), |h| ptr::from_ref(&*h.info));
        let (node, service) = (or_null(node.as_ref()), or_null(service.as_ref()));
        let (version, flags) = (request.version, request.flags);
        list(self.functions(), version, node, service, flags, raw)
    }
}

/// `fi_getinfo`(3) with arguments that live until it returns.
fn list(
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

fn c_string(text: Option<&str>) -> Result<Option<CString>> {
    text.map(CString::new)
        .transpose()
        .map_err(|_| Error::new("fi_getinfo", Errno::EINVAL))
}

fn or_null(text: Option<&CString>) -> *const c_char {
    text.map_or(ptr::null(), |t| t.as_ptr())
}

/// The attributes of a fabric as C sees them, which point into the texts.
pub(crate) fn fabric_attr(attr: &FabricAttr) -> Result<(fi_fabric_attr, Texts)> {
    let mut texts = Texts::default();
    Ok((c_fabric(attr, &mut texts)?, texts))
}

/// Hints as C sees them, each part at a fixed place until the call returns.
struct CHints {
    info: Box<fi_info>,
    _tx: Option<Box<fi_tx_attr>>,
    _rx: Option<Box<fi_rx_attr>>,
    _ep: Option<Box<fi_ep_attr>>,
    _domain: Option<Box<fi_domain_attr>>,
    _fabric: Option<Box<fi_fabric_attr>>,
    _texts: Texts,
    _bytes: Vec<Vec<u8>>,
}

/// Strings that C points into.
#[derive(Default)]
pub(crate) struct Texts(Vec<CString>);

impl Texts {
    fn keep(&mut self, text: Option<&str>) -> Result<*mut c_char> {
        let Some(text) = text else {
            return Ok(ptr::null_mut());
        };
        let text = CString::new(text).map_err(|_| Error::new("fi_getinfo", Errno::EINVAL))?;
        let raw = text.as_ptr().cast_mut();
        self.0.push(text);
        Ok(raw)
    }
}

impl CHints {
    fn new(hints: &ripstop_core::Hints) -> Result<Self> {
        let (mut texts, mut bytes) = (Texts::default(), Vec::new());
        let mut tx = hints.tx.as_ref().map(|a| Box::new(c_tx(a)));
        let mut rx = hints.rx.as_ref().map(|a| Box::new(c_rx(a)));
        let mut ep = hints.ep.as_ref().map(|a| Box::new(c_ep(a, &mut bytes)));
        let mut domain = match &hints.domain {
            Some(a) => Some(Box::new(c_domain(a, &mut texts, &mut bytes)?)),
            None => None,
        };
        let mut fabric = match &hints.fabric {
            Some(a) => Some(Box::new(c_fabric(a, &mut texts)?)),
            None => None,
        };
        let src = keep_bytes(&mut bytes, hints.src_addr.as_ref().map(Address::to_bytes));
        let dest = keep_bytes(&mut bytes, hints.dest_addr.as_ref().map(Address::to_bytes));
        let info = Box::new(fi_info {
            caps: hints.caps.bits(),
            mode: hints.mode.bits(),
            addr_format: hints.addr_format.raw(),
            src_addr: src.0.cast(),
            src_addrlen: src.1,
            dest_addr: dest.0.cast(),
            dest_addrlen: dest.1,
            tx_attr: part(&mut tx),
            rx_attr: part(&mut rx),
            ep_attr: part(&mut ep),
            domain_attr: part(&mut domain),
            fabric_attr: part(&mut fabric),
            ..Default::default()
        });
        Ok(Self {
            info,
            _tx: tx,
            _rx: rx,
            _ep: ep,
            _domain: domain,
            _fabric: fabric,
            _texts: texts,
            _bytes: bytes,
        })
    }
}

fn part<T>(part: &mut Option<Box<T>>) -> *mut T {
    part.as_deref_mut().map_or(ptr::null_mut(), ptr::from_mut)
}

/// Keeps bytes, followed by zeroes in case the library reads more than it was told.
fn keep_bytes(keep: &mut Vec<Vec<u8>>, bytes: Option<Vec<u8>>) -> (*mut u8, usize) {
    let Some(mut bytes) = bytes.filter(|b| !b.is_empty()) else {
        return (ptr::null_mut(), 0);
    };
    let len = bytes.len();
    bytes.resize(len + 512, 0);
    let raw = bytes.as_mut_ptr();
    keep.push(bytes);
    (raw, len)
}

pub(crate) fn c_tx(a: &TxAttr) -> fi_tx_attr {
    fi_tx_attr {
        caps: a.caps.bits(),
        mode: a.mode.bits(),
        op_flags: a.op_flags.bits(),
        msg_order: a.msg_order.bits(),
        comp_order: a.comp_order,
        inject_size: a.inject_size,
        size: a.size,
        iov_limit: a.iov_limit,
        rma_iov_limit: a.rma_iov_limit,
        tclass: a.tclass,
    }
}

pub(crate) fn c_rx(a: &RxAttr) -> fi_rx_attr {
    fi_rx_attr {
        caps: a.caps.bits(),
        mode: a.mode.bits(),
        op_flags: a.op_flags.bits(),
        msg_order: a.msg_order.bits(),
        comp_order: a.comp_order,
        total_buffered_recv: a.total_buffered_recv,
        size: a.size,
        iov_limit: a.iov_limit,
    }
}

fn c_ep(a: &EpAttr, bytes: &mut Vec<Vec<u8>>) -> fi_ep_attr {
    let key = keep_bytes(bytes, Some(a.auth_key.clone()));
    fi_ep_attr {
        type_: a.ep_type.raw(),
        protocol: a.protocol.raw(),
        protocol_version: a.protocol_version,
        max_msg_size: a.max_msg_size,
        msg_prefix_size: a.msg_prefix_size,
        max_order_raw_size: a.max_order_raw_size,
        max_order_war_size: a.max_order_war_size,
        max_order_waw_size: a.max_order_waw_size,
        mem_tag_format: a.mem_tag_format,
        tx_ctx_cnt: a.tx_ctx_cnt,
        rx_ctx_cnt: a.rx_ctx_cnt,
        auth_key_size: key.1,
        auth_key: key.0,
    }
}

fn c_domain(a: &DomainAttr, texts: &mut Texts, bytes: &mut Vec<Vec<u8>>) -> Result<fi_domain_attr> {
    let key = keep_bytes(bytes, Some(a.auth_key.clone()));
    Ok(fi_domain_attr {
        domain: ptr::null_mut(),
        name: texts.keep(a.name.as_deref())?,
        threading: a.threading.raw(),
        control_progress: a.control_progress.raw(),
        data_progress: a.progress.raw(),
        resource_mgmt: a.resource_mgmt.raw(),
        av_type: a.av_type.raw(),
        mr_mode: a.mr_mode.bits() as c_int,
        mr_key_size: a.mr_key_size,
        cq_data_size: a.cq_data_size,
        cq_cnt: a.cq_cnt,
        ep_cnt: a.ep_cnt,
        tx_ctx_cnt: a.tx_ctx_cnt,
        rx_ctx_cnt: a.rx_ctx_cnt,
        max_ep_tx_ctx: a.max_ep_tx_ctx,
        max_ep_rx_ctx: a.max_ep_rx_ctx,
        max_ep_stx_ctx: a.max_ep_stx_ctx,
        max_ep_srx_ctx: a.max_ep_srx_ctx,
        cntr_cnt: a.cntr_cnt,
        mr_iov_limit: a.mr_iov_limit,
        caps: a.caps.bits(),
        mode: a.mode.bits(),
        auth_key: key.0,
        auth_key_size: key.1,
        max_err_data: a.max_err_data,
        mr_cnt: a.mr_cnt,
        tclass: a.tclass,
        max_ep_auth_key: a.max_ep_auth_key,
        max_group_id: a.max_group_id,
        max_cntr_value: a.max_cntr_value,
        max_err_cntr_value: a.max_err_cntr_value,
    })
}

fn c_fabric(a: &FabricAttr, texts: &mut Texts) -> Result<fi_fabric_attr> {
    Ok(fi_fabric_attr {
        fabric: ptr::null_mut(),
        name: texts.keep(a.name.as_deref())?,
        prov_name: texts.keep(a.prov_name.as_deref())?,
        prov_version: a.prov_version,
        api_version: a.api_version.0,
    })
}

impl Info {
    /// Every attribute that libraries since release 1.5 have, and the traffic classes of newer
    /// ones. A value that this project does not know is that type's `Unspec`.
    pub(crate) fn attrs(&self) -> ripstop_core::Info {
        let top: fi_info_1_1 = *self.top();
        let format = AddrFormat::from_raw(top.addr_format).unwrap_or_default();
        let mut attrs = ripstop_core::Info {
            caps: Flags::from_bits_retain(top.caps),
            mode: Mode::from_bits_retain(top.mode),
            addr_format: format,
            src_addr: address(format, top.src_addr, top.src_addrlen),
            dest_addr: address(format, top.dest_addr, top.dest_addrlen),
            handle: None,
            tx: tx(&copy_part(top.tx_attr)),
            rx: rx(&copy_part(top.rx_attr)),
            ep: ep(&copy_part(top.ep_attr)),
            domain: domain(&copy_part(top.domain_attr)),
            fabric: fabric(&copy_part(top.fabric_attr)),
            nic: None,
        };
        if self.has_classes() {
            let (tx, domain) = (top.tx_attr.cast(), top.domain_attr.cast());
            attrs.tx.tclass = copy_part::<fi_tx_attr>(tx).tclass;
            attrs.domain.tclass = copy_part::<fi_domain_attr_1_3>(domain).tclass;
        }
        attrs
    }
}

fn address(format: AddrFormat, addr: *const c_void, len: usize) -> Option<Address> {
    let bytes = copy_addr(addr, len)?;
    Address::from_bytes(format, bytes.as_bytes()).ok()
}

fn tx(a: &fi_tx_attr_1_0) -> TxAttr {
    TxAttr {
        caps: Flags::from_bits_retain(a.caps),
        mode: Mode::from_bits_retain(a.mode),
        op_flags: Flags::from_bits_retain(a.op_flags),
        msg_order: MsgOrder::from_bits_retain(a.msg_order),
        comp_order: a.comp_order,
        inject_size: a.inject_size,
        size: a.size,
        iov_limit: a.iov_limit,
        rma_iov_limit: a.rma_iov_limit,
        tclass: 0,
    }
}

fn rx(a: &fi_rx_attr) -> RxAttr {
    RxAttr {
        caps: Flags::from_bits_retain(a.caps),
        mode: Mode::from_bits_retain(a.mode),
        op_flags: Flags::from_bits_retain(a.op_flags),
        msg_order: MsgOrder::from_bits_retain(a.msg_order),
        comp_order: a.comp_order,
        total_buffered_recv: a.total_buffered_recv,
        size: a.size,
        iov_limit: a.iov_limit,
    }
}

fn ep(a: &fi_ep_attr) -> EpAttr {
    EpAttr {
        ep_type: EpType::from_raw(a.type_).unwrap_or_default(),
        protocol: Protocol::from_raw(a.protocol).unwrap_or_default(),
        protocol_version: a.protocol_version,
        max_msg_size: a.max_msg_size,
        msg_prefix_size: a.msg_prefix_size,
        max_order_raw_size: a.max_order_raw_size,
        max_order_war_size: a.max_order_war_size,
        max_order_waw_size: a.max_order_waw_size,
        mem_tag_format: a.mem_tag_format,
        tx_ctx_cnt: a.tx_ctx_cnt,
        rx_ctx_cnt: a.rx_ctx_cnt,
        auth_key_size: a.auth_key_size,
        auth_key: Vec::new(),
    }
}

fn domain(a: &fi_domain_attr_1_1) -> DomainAttr {
    DomainAttr {
        domain: None,
        name: text(a.name),
        threading: Threading::from_raw(a.threading).unwrap_or_default(),
        control_progress: Progress::from_raw(a.control_progress).unwrap_or_default(),
        progress: Progress::from_raw(a.data_progress).unwrap_or_default(),
        resource_mgmt: ResourceMgmt::from_raw(a.resource_mgmt).unwrap_or_default(),
        av_type: AvType::from_raw(a.av_type).unwrap_or_default(),
        mr_mode: MrMode::from_bits_retain(a.mr_mode as u32),
        mr_key_size: a.mr_key_size,
        cq_data_size: a.cq_data_size,
        cq_cnt: a.cq_cnt,
        ep_cnt: a.ep_cnt,
        tx_ctx_cnt: a.tx_ctx_cnt,
        rx_ctx_cnt: a.rx_ctx_cnt,
        max_ep_tx_ctx: a.max_ep_tx_ctx,
        max_ep_rx_ctx: a.max_ep_rx_ctx,
        max_ep_stx_ctx: a.max_ep_stx_ctx,
        max_ep_srx_ctx: a.max_ep_srx_ctx,
        cntr_cnt: a.cntr_cnt,
        mr_iov_limit: a.mr_iov_limit,
        caps: Flags::from_bits_retain(a.caps),
        mode: Mode::from_bits_retain(a.mode),
        auth_key: Vec::new(),
        auth_key_size: a.auth_key_size,
        max_err_data: a.max_err_data,
        mr_cnt: a.mr_cnt,
        ..DomainAttr::default()
    }
}

fn fabric(a: &fi_fabric_attr) -> FabricAttr {
    FabricAttr {
        fabric: None,
        name: text(a.name),
        prov_name: text(a.prov_name),
        prov_version: a.prov_version,
        api_version: Version(a.api_version),
    }
}

fn text(raw: *const c_char) -> Option<String> {
    (!raw.is_null()).then(|| copy_text(raw))
}
