//! `struct fi_info` and its attributes as text.

use core::fmt;

use ripstop_abi as abi;

use super::object::fid;
use super::{address, names};
use crate::edge::{Array, Whole};
use crate::text::Text;

/// One step of indentation.
const TAB: &str = "    ";

/// Lines of one structure, each indented alike.
struct Lines<'a> {
    text: &'a mut Text,
    indent: &'a str,
}

impl Lines<'_> {
    fn begin(&mut self, name: &str) {
        self.text.put(self.indent);
        self.text.put(TAB);
        self.text.put(name);
        self.text.put(": ");
    }

    fn number(&mut self, name: &str, value: impl fmt::Display) {
        self.begin(name);
        self.text.fmt(format_args!("{value}\n"));
    }

    fn hex(&mut self, name: &str, value: u32) {
        self.begin(name);
        self.text.fmt(format_args!("0x{value:x}\n"));
    }

    fn version(&mut self, name: &str, version: u32) {
        let (major, minor) = (abi::FI_MAJOR(version), abi::FI_MINOR(version));
        self.begin(name);
        self.text.fmt(format_args!("{major}.{minor}\n"));
    }

    fn one(&mut self, name: &str, table: names::Names, value: u32) {
        self.begin(name);
        names::value(self.text, table, u64::from(value));
        self.text.put("\n");
    }

    fn set(&mut self, name: &str, table: names::Names, bits: u64) {
        self.begin(name);
        self.text.put("[ ");
        names::flags(self.text, table, bits);
        self.text.put(" ]\n");
    }

    fn contexts(&mut self, name: &str, count: usize) {
        if count == abi::FI_SHARED_CONTEXT {
            self.number(name, "FI_SHARED_CONTEXT");
        } else {
            self.number(name, count);
        }
    }
}

/// Starts a structure, or says that there is none.
fn open<'a, T>(
    text: &'a mut Text,
    indent: &'a str,
    name: &str,
    attr: Option<T>,
) -> Option<(Lines<'a>, T)> {
    text.put(indent);
    text.put(name);
    let Some(attr) = attr else {
        text.put(": (null)\n");
        return None;
    };
    text.put(":\n");
    Some((Lines { text, indent }, attr))
}

/// `struct fi_tx_attr`.
pub(super) fn tx_attr(text: &mut Text, attr: Option<Whole<'_, abi::fi_tx_attr>>, indent: &str) {
    let Some((mut lines, attr)) = open(text, indent, "fi_tx_attr", attr) else {
        return;
    };
    lines.set("caps", names::CAPS, attr.caps);
    lines.set("mode", names::MODE, attr.mode);
    lines.set("op_flags", names::OP_FLAGS, attr.op_flags);
    lines.set("msg_order", names::MSG_ORDER, attr.msg_order);
    lines.number("inject_size", attr.inject_size);
    lines.number("size", attr.size);
    lines.number("iov_limit", attr.iov_limit);
    lines.number("rma_iov_limit", attr.rma_iov_limit);
    lines.hex("tclass", attr.tclass);
}

/// `struct fi_rx_attr`.
pub(super) fn rx_attr(text: &mut Text, attr: Option<Whole<'_, abi::fi_rx_attr>>, indent: &str) {
    let Some((mut lines, attr)) = open(text, indent, "fi_rx_attr", attr) else {
        return;
    };
    lines.set("caps", names::CAPS, attr.caps);
    lines.set("mode", names::MODE, attr.mode);
    lines.set("op_flags", names::OP_FLAGS, attr.op_flags);
    lines.set("msg_order", names::MSG_ORDER, attr.msg_order);
    lines.number("size", attr.size);
    lines.number("iov_limit", attr.iov_limit);
}

/// `struct fi_ep_attr`.
pub(super) fn ep_attr(text: &mut Text, attr: Option<Whole<'_, abi::fi_ep_attr>>, indent: &str) {
    let Some((mut lines, attr)) = open(text, indent, "fi_ep_attr", attr) else {
        return;
    };
    lines.one("type", names::EP_TYPE, attr.type_);
    lines.one("protocol", names::PROTOCOL, attr.protocol);
    lines.number("protocol_version", attr.protocol_version.cast_signed());
    lines.number("max_msg_size", attr.max_msg_size);
    lines.number("msg_prefix_size", attr.msg_prefix_size);
    lines.number("max_order_raw_size", attr.max_order_raw_size);
    lines.number("max_order_war_size", attr.max_order_war_size);
    lines.number("max_order_waw_size", attr.max_order_waw_size);
    let format = attr.mem_tag_format;
    lines.number("mem_tag_format", format_args!("0x{format:016x}"));
    lines.contexts("tx_ctx_cnt", attr.tx_ctx_cnt);
    lines.contexts("rx_ctx_cnt", attr.rx_ctx_cnt);
    lines.number("auth_key_size", attr.auth_key_size);
}

/// `struct fi_domain_attr`.
pub(super) fn domain_attr(
    text: &mut Text,
    attr: Option<Whole<'_, abi::fi_domain_attr>>,
    indent: &str,
) {
    let Some((mut lines, attr)) = open(text, indent, "fi_domain_attr", attr) else {
        return;
    };
    lines.begin("domain");
    lines.text.pointer(attr.domain);
    lines.text.put("\n");
    lines.begin("name");
    lines.text.c_str(attr.name());
    lines.text.put("\n");
    lines.one("threading", names::THREADING, attr.threading);
    lines.one("progress", names::PROGRESS, attr.data_progress);
    lines.one("resource_mgmt", names::RESOURCE_MGMT, attr.resource_mgmt);
    lines.one("av_type", names::AV_TYPE, attr.av_type);
    let mr_mode = u64::from(attr.mr_mode.cast_unsigned());
    lines.set("mr_mode", names::MR_MODE, mr_mode);
    domain_limits(&mut lines, &attr);
}

fn domain_limits(lines: &mut Lines<'_>, attr: &abi::fi_domain_attr) {
    lines.number("mr_key_size", attr.mr_key_size);
    lines.number("cq_data_size", attr.cq_data_size);
    lines.number("cq_cnt", attr.cq_cnt);
    lines.number("ep_cnt", attr.ep_cnt);
    lines.number("tx_ctx_cnt", attr.tx_ctx_cnt);
    lines.number("rx_ctx_cnt", attr.rx_ctx_cnt);
    lines.number("max_ep_tx_ctx", attr.max_ep_tx_ctx);
    lines.number("max_ep_rx_ctx", attr.max_ep_rx_ctx);
    lines.number("max_ep_stx_ctx", attr.max_ep_stx_ctx);
    lines.number("max_ep_srx_ctx", attr.max_ep_srx_ctx);
    lines.number("cntr_cnt", attr.cntr_cnt);
    lines.number("mr_iov_limit", attr.mr_iov_limit);
    lines.set("caps", names::CAPS, attr.caps);
    lines.set("mode", names::MODE, attr.mode);
    lines.number("auth_key_size", attr.auth_key_size);
    lines.number("max_err_data", attr.max_err_data);
    lines.number("mr_cnt", attr.mr_cnt);
    lines.hex("tclass", attr.tclass);
    lines.number("max_ep_auth_key", attr.max_ep_auth_key);
    lines.number("max_group_id", attr.max_group_id);
    lines.number("max_cntr_value", attr.max_cntr_value);
    lines.number("max_err_cntr_value", attr.max_err_cntr_value);
}

/// `struct fi_fabric_attr`.
pub(super) fn fabric_attr(
    text: &mut Text,
    attr: Option<Whole<'_, abi::fi_fabric_attr>>,
    indent: &str,
) {
    let Some((mut lines, attr)) = open(text, indent, "fi_fabric_attr", attr) else {
        return;
    };
    for (name, value) in [("name", attr.name()), ("prov_name", attr.prov_name())] {
        lines.begin(name);
        lines.text.c_str(value);
        lines.text.put("\n");
    }
    lines.version("prov_version", attr.prov_version);
    lines.version("api_version", attr.api_version);
}

/// `struct fi_info`.
pub(crate) fn info(text: &mut Text, info: Whole<'_, abi::fi_info>) {
    text.put("fi_info:\n");
    let mut lines = Lines { text, indent: "" };
    lines.set("caps", names::CAPS, info.caps);
    lines.set("mode", names::MODE, info.mode);
    lines.one("addr_format", names::ADDR_FORMAT, info.addr_format);
    lines.number("src_addrlen", info.src_addrlen);
    lines.number("dest_addrlen", info.dest_addrlen);
    for (name, addr) in [
        ("src_addr", info.src_addr()),
        ("dest_addr", info.dest_addr()),
    ] {
        lines.begin(name);
        match addr.is_null() {
            true => lines.text.put("(null)"),
            false => address(lines.text, info.addr_format, addr),
        }
        lines.text.put("\n");
    }
    fid(text, "    handle: ", info.handle());
    tx_attr(text, info.tx_attr(), TAB);
    rx_attr(text, info.rx_attr(), TAB);
    ep_attr(text, info.ep_attr(), TAB);
    domain_attr(text, info.domain_attr(), TAB);
    fabric_attr(text, info.fabric_attr(), TAB);
    fid(text, "    nic: ", info.nic());
}

/// Appends an address, if it has a text form.
fn address(text: &mut Text, format: u32, addr: Array<'_, u8>) {
    let known = addr.get().and_then(|bytes| address::bytes(format, bytes));
    text.bytes(known.as_ref().map_or(&[], Text::as_bytes));
}
