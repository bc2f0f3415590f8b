#![allow(unsafe_code)]
//! Attributes of queues, counters, address vectors and regions as text.

use ripstop_abi as abi;

use super::names::{self, Names};
use crate::edge::Whole;
use crate::text::Text;

fn one(text: &mut Text, name: &str, table: Names, value: u32) {
    text.fmt(format_args!("    {name}: "));
    names::value(text, table, u64::from(value));
    text.put("\n");
}

fn set(text: &mut Text, name: &str, table: Names, bits: u64) {
    text.fmt(format_args!("    {name}: [ "));
    names::flags(text, table, bits);
    text.put(" ]\n");
}

fn pointer<T>(text: &mut Text, name: &str, value: *const T) {
    text.fmt(format_args!("    {name}: "));
    text.pointer(value);
    text.put("\n");
}

/// `struct fi_av_attr`.
pub(super) fn av_attr(text: &mut Text, attr: Whole<'_, abi::fi_av_attr>) {
    text.put("fi_av_attr:\n");
    one(text, "type", names::AV_TYPE, attr.type_);
    let (count, per_node) = (attr.count, attr.ep_per_node);
    text.fmt(format_args!(
        "    count: {count}\n    ep_per_node: {per_node}\n    name: "
    ));
    text.c_str(attr.name());
    text.put("\n");
    set(text, "flags", names::AV_FLAGS, attr.flags);
}

/// `struct fi_cq_attr`.
pub(super) fn cq_attr(text: &mut Text, attr: &abi::fi_cq_attr) {
    text.fmt(format_args!("fi_cq_attr:\n    size: {}\n", attr.size));
    set(text, "flags", names::CQ_FLAGS, attr.flags);
    one(text, "format", names::CQ_FORMAT, attr.format);
    one(text, "wait_obj", names::WAIT_OBJ, attr.wait_obj);
    let vector = attr.signaling_vector;
    text.fmt(format_args!("    signaling_vector: {vector}\n"));
    one(text, "wait_cond", names::CQ_WAIT_COND, attr.wait_cond);
}

/// `struct fi_mr_attr`.
pub(super) fn mr_attr(text: &mut Text, attr: &abi::fi_mr_attr) {
    text.put("fi_mr_attr:\n");
    // SAFETY: both members of the union are pointers, and any bits are one.
    pointer(text, "mr_iov", unsafe { attr.mr.mr_iov });
    text.fmt(format_args!("    iov_count: {}\n", attr.iov_count));
    set(text, "access", names::MR_ACCESS, attr.access);
    let (offset, key) = (attr.offset, attr.requested_key);
    text.fmt(format_args!(
        "    offset: 0x{offset:x}\n    requested_key: 0x{key:x}\n"
    ));
    pointer(text, "context", attr.context);
    text.fmt(format_args!("    auth_key_size: {}\n", attr.auth_key_size));
    one(text, "iface", names::HMEM_IFACE, attr.iface);
}

/// `struct fi_cntr_attr`.
pub(super) fn cntr_attr(text: &mut Text, attr: &abi::fi_cntr_attr) {
    text.put("fi_cntr_attr:\n");
    one(text, "events", names::CNTR_EVENTS, attr.events);
    one(text, "wait_obj", names::WAIT_OBJ, attr.wait_obj);
    text.fmt(format_args!("    flags: 0x{:x}\n", attr.flags));
}

/// `struct fi_cq_err_entry`.
pub(super) fn cq_err_entry(text: &mut Text, entry: &abi::fi_cq_err_entry) {
    text.put("fi_cq_err_entry:\n");
    pointer(text, "op_context", entry.op_context);
    let (flags, len) = (entry.flags, entry.len);
    text.fmt(format_args!("    flags: 0x{flags:x}\n    len: {len}\n"));
    pointer(text, "buf", entry.buf);
    let (data, tag, olen) = (entry.data, entry.tag, entry.olen);
    text.fmt(format_args!(
        "    data: {data}\n    tag: 0x{tag:x}\n    olen: {olen}\n"
    ));
    // `err` on both lines is what libfabric prints; scripts have known no other.
    let (err, prov_errno) = (entry.err, entry.err);
    text.fmt(format_args!(
        "    err: {err}\n    prov_errno: {prov_errno}\n"
    ));
    pointer(text, "err_data", entry.err_data);
    let size = entry.err_data_size;
    text.fmt(format_args!("    err_data_size: {size}\n"));
}
