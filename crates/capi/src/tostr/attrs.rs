#![allow(unsafe_code)]
//! Attributes of queues, counters, address vectors and regions as text, and error entries; those of `struct fi_info`
//! are in `info`.

use ripstop_abi as abi;

use super::lines::{Lines, numbers};
use super::names;
use crate::edge::Whole;
use crate::text::Text;

/// `struct fi_av_attr`.
pub(super) fn av_attr(text: &mut Text, attr: Whole<'_, abi::fi_av_attr>) {
    let mut lines = Lines::new(text, "", "fi_av_attr");
    lines.value("type", names::AV_TYPE, attr.type_);
    numbers!(lines, attr: count ep_per_node);
    lines.string("name", attr.name());
    lines.flags("flags", names::AV_FLAGS, attr.flags);
}

/// `struct fi_cq_attr`.
pub(super) fn cq_attr(text: &mut Text, attr: &abi::fi_cq_attr) {
    let mut lines = Lines::new(text, "", "fi_cq_attr");
    lines.number("size", attr.size);
    lines.flags("flags", names::CQ_FLAGS, attr.flags);
    lines.value("format", names::CQ_FORMAT, attr.format);
    lines.value("wait_obj", names::WAIT_OBJ, attr.wait_obj);
    lines.number("signaling_vector", attr.signaling_vector);
    lines.value("wait_cond", names::CQ_WAIT_COND, attr.wait_cond);
}

/// `struct fi_mr_attr`.
pub(super) fn mr_attr(text: &mut Text, attr: &abi::fi_mr_attr) {
    let mut lines = Lines::new(text, "", "fi_mr_attr");
    // SAFETY: both members of the union are pointers, and any bits are one.
    lines.pointer("mr_iov", unsafe { attr.mr.mr_iov });
    lines.number("iov_count", attr.iov_count);
    lines.flags("access", names::MR_ACCESS, attr.access);
    lines.hex("offset", attr.offset);
    lines.hex("requested_key", attr.requested_key);
    lines.pointer("context", attr.context);
    lines.number("auth_key_size", attr.auth_key_size);
    lines.value("iface", names::HMEM_IFACE, attr.iface);
}

/// `struct fi_cntr_attr`.
pub(super) fn cntr_attr(text: &mut Text, attr: &abi::fi_cntr_attr) {
    let mut lines = Lines::new(text, "", "fi_cntr_attr");
    lines.value("events", names::CNTR_EVENTS, attr.events);
    lines.value("wait_obj", names::WAIT_OBJ, attr.wait_obj);
    lines.hex("flags", attr.flags);
}

/// `struct fi_cq_err_entry`.
pub(super) fn cq_err_entry(text: &mut Text, entry: &abi::fi_cq_err_entry) {
    let mut lines = Lines::new(text, "", "fi_cq_err_entry");
    lines.pointer("op_context", entry.op_context);
    lines.hex("flags", entry.flags);
    lines.number("len", entry.len);
    lines.pointer("buf", entry.buf);
    lines.number("data", entry.data);
    lines.hex("tag", entry.tag);
    lines.number("olen", entry.olen);
    // `err` on both lines is what libfabric prints; scripts have known no other.
    lines.number("err", entry.err);
    lines.number("prov_errno", entry.err);
    lines.pointer("err_data", entry.err_data);
    lines.number("err_data_size", entry.err_data_size);
}
