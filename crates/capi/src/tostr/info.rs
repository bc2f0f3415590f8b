//! `struct fi_info` and its attributes as text.

use ripstop_abi as abi;

use super::lines::{Lines, TAB, numbers};
use super::{address, names, object};
use crate::edge::{Array, Whole};
use crate::text::Text;

/// The number of contexts of an endpoint.
fn contexts(lines: &mut Lines<'_>, name: &str, count: usize) {
    match count {
        abi::FI_SHARED_CONTEXT => lines.number(name, "FI_SHARED_CONTEXT"),
        count => lines.number(name, count),
    }
}

/// The version of an interface or a provider.
fn version(lines: &mut Lines<'_>, name: &str, version: u32) {
    let (major, minor) = (abi::FI_MAJOR(version), abi::FI_MINOR(version));
    lines.number(name, format_args!("{major}.{minor}"));
}

/// `struct fi_tx_attr`.
pub(super) fn tx_attr(text: &mut Text, attr: Whole<'_, abi::fi_tx_attr>, indent: &str) {
    let mut lines = Lines::new(text, indent, "fi_tx_attr");
    lines.flags("caps", names::CAPS, attr.caps);
    lines.flags("mode", names::MODE, attr.mode);
    lines.flags("op_flags", names::OP_FLAGS, attr.op_flags);
    lines.flags("msg_order", names::MSG_ORDER, attr.msg_order);
    numbers!(lines, attr: inject_size size iov_limit rma_iov_limit);
    lines.hex("tclass", attr.tclass);
}

/// `struct fi_rx_attr`.
pub(super) fn rx_attr(text: &mut Text, attr: Whole<'_, abi::fi_rx_attr>, indent: &str) {
    let mut lines = Lines::new(text, indent, "fi_rx_attr");
    lines.flags("caps", names::CAPS, attr.caps);
    lines.flags("mode", names::MODE, attr.mode);
    lines.flags("op_flags", names::OP_FLAGS, attr.op_flags);
    lines.flags("msg_order", names::MSG_ORDER, attr.msg_order);
    numbers!(lines, attr: size iov_limit);
}

/// `struct fi_ep_attr`.
pub(super) fn ep_attr(text: &mut Text, attr: Whole<'_, abi::fi_ep_attr>, indent: &str) {
    let mut lines = Lines::new(text, indent, "fi_ep_attr");
    lines.value("type", names::EP_TYPE, attr.type_);
    lines.value("protocol", names::PROTOCOL, attr.protocol);
    lines.number("protocol_version", attr.protocol_version.cast_signed());
    numbers!(lines, attr: max_msg_size msg_prefix_size);
    numbers!(lines, attr: max_order_raw_size max_order_war_size max_order_waw_size);
    let format = attr.mem_tag_format;
    lines.number("mem_tag_format", format_args!("0x{format:016x}"));
    contexts(&mut lines, "tx_ctx_cnt", attr.tx_ctx_cnt);
    contexts(&mut lines, "rx_ctx_cnt", attr.rx_ctx_cnt);
    lines.number("auth_key_size", attr.auth_key_size);
}

/// `struct fi_domain_attr`.
pub(super) fn domain_attr(text: &mut Text, attr: Whole<'_, abi::fi_domain_attr>, indent: &str) {
    let mut lines = Lines::new(text, indent, "fi_domain_attr");
    lines.pointer("domain", attr.domain);
    lines.string("name", attr.name());
    lines.value("threading", names::THREADING, attr.threading);
    lines.value("progress", names::PROGRESS, attr.data_progress);
    lines.value("resource_mgmt", names::RESOURCE_MGMT, attr.resource_mgmt);
    lines.value("av_type", names::AV_TYPE, attr.av_type);
    let mr_mode = u64::from(attr.mr_mode.cast_unsigned());
    lines.flags("mr_mode", names::MR_MODE, mr_mode);
    numbers!(lines, attr: mr_key_size cq_data_size cq_cnt ep_cnt tx_ctx_cnt rx_ctx_cnt);
    numbers!(lines, attr: max_ep_tx_ctx max_ep_rx_ctx max_ep_stx_ctx max_ep_srx_ctx);
    numbers!(lines, attr: cntr_cnt mr_iov_limit);
    lines.flags("caps", names::CAPS, attr.caps);
    lines.flags("mode", names::MODE, attr.mode);
    numbers!(lines, attr: auth_key_size max_err_data mr_cnt);
    lines.hex("tclass", attr.tclass);
    numbers!(lines, attr: max_ep_auth_key max_group_id max_cntr_value max_err_cntr_value);
}

/// `struct fi_fabric_attr`.
pub(super) fn fabric_attr(text: &mut Text, attr: Whole<'_, abi::fi_fabric_attr>, indent: &str) {
    let mut lines = Lines::new(text, indent, "fi_fabric_attr");
    lines.string("name", attr.name());
    lines.string("prov_name", attr.prov_name());
    version(&mut lines, "prov_version", attr.prov_version);
    version(&mut lines, "api_version", attr.api_version);
}

/// `struct fi_info`.
pub(crate) fn info(text: &mut Text, info: Whole<'_, abi::fi_info>) {
    let mut lines = Lines::new(text, "", "fi_info");
    lines.flags("caps", names::CAPS, info.caps);
    lines.flags("mode", names::MODE, info.mode);
    lines.value("addr_format", names::ADDR_FORMAT, info.addr_format);
    numbers!(lines, info: src_addrlen dest_addrlen);
    for (name, addr) in [
        ("src_addr", info.src_addr()),
        ("dest_addr", info.dest_addr()),
    ] {
        lines.line(name, |text| match addr.is_null() {
            true => text.put("(null)"),
            false => address(text, info.addr_format, addr),
        });
    }
    object(text, "    handle: ", info.handle());
    part(text, "fi_tx_attr", info.tx_attr(), tx_attr);
    part(text, "fi_rx_attr", info.rx_attr(), rx_attr);
    part(text, "fi_ep_attr", info.ep_attr(), ep_attr);
    part(text, "fi_domain_attr", info.domain_attr(), domain_attr);
    part(text, "fi_fabric_attr", info.fabric_attr(), fabric_attr);
    object(text, "    nic: ", info.nic());
}

/// A part of `struct fi_info`, or that there is none.
fn part<T>(text: &mut Text, name: &str, attr: Option<T>, put: fn(&mut Text, T, &str)) {
    match attr {
        Some(attr) => put(text, attr, TAB),
        None => text.fmt(format_args!("{TAB}{name}: (null)\n")),
    }
}

/// Appends an address, if it has a text form.
fn address(text: &mut Text, format: u32, addr: Array<'_, u8>) {
    let known = addr.get().and_then(|bytes| address::bytes(format, bytes));
    text.bytes(known.as_ref().map_or(&[], Text::as_bytes));
}
