//! The structs that Debian's headers and ours both have.

use ripstop_abi::history::{fi_cq_err_entry_1_1, fi_domain_attr_1_3};
use ripstop_abi::*;

use super::Struct;

/// How a struct's size relates to the size in an older header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// Unchanged since.
    Same,
    /// Members were added at the end since.
    Grew,
}

macro_rules! structs {
    ($($size:ident $rust:ident as $c:literal { $($field:ident),* })*) => {
        vec![$(Struct {
            name: $c,
            size: size_of::<$rust>(),
            compare: Size::$size,
            fields: vec![$((stringify!($field), std::mem::offset_of!($rust, $field))),*],
        }),*]
    };
}

/// Every struct to compare, in the order of the headers.
pub(crate) fn all() -> Vec<Struct> {
    let mut all = historic();
    all.extend(fabric());
    all.extend(fi_domain());
    all.extend(fi_endpoint());
    all.extend(fi_eq());
    all.extend(fi_cm());
    all.extend(fi_tagged());
    all.extend(fi_rma());
    all.extend(fi_atomic());
    all.extend(fi_collective());
    all.extend(fi_trigger());
    all.extend(fi_ext());
    all.extend(fi_prov());
    all
}

/// Structs as they were in releases 1.6 to 1.19.
fn historic() -> Vec<Struct> {
    structs! {
        Same fi_domain_attr_1_3 as "fi_domain_attr" {
            domain, name, threading, control_progress, data_progress, resource_mgmt,
            av_type, mr_mode, mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt,
            rx_ctx_cnt, max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx,
            cntr_cnt, mr_iov_limit, caps, mode, auth_key, auth_key_size, max_err_data,
            mr_cnt, tclass
        }
        Same fi_cq_err_entry_1_1 as "fi_cq_err_entry" {
            op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data,
            err_data_size
        }
    }
}

fn fabric() -> Vec<Struct> {
    structs! {
        Same fi_ioc as "fi_ioc" { addr, count }
        Same fi_tx_attr as "fi_tx_attr" {
            caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit,
            rma_iov_limit, tclass
        }
        Same fi_rx_attr as "fi_rx_attr" {
            caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size,
            iov_limit
        }
        Same fi_ep_attr as "fi_ep_attr" {
            type_, protocol, protocol_version, max_msg_size, msg_prefix_size,
            max_order_raw_size, max_order_war_size, max_order_waw_size,
            mem_tag_format, tx_ctx_cnt, rx_ctx_cnt, auth_key_size, auth_key
        }
        Same fi_fabric_attr as "fi_fabric_attr" {
            fabric, name, prov_name, prov_version, api_version
        }
        Same fi_info as "fi_info" {
            next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr,
            dest_addr, handle, tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr,
            nic
        }
        Same fi_device_attr as "fi_device_attr" {
            name, device_id, device_version, vendor_id, driver, firmware
        }
        Same fi_pci_attr as "fi_pci_attr" { domain_id, bus_id, device_id, function_id }
        Same fi_bus_attr as "fi_bus_attr" { bus_type, attr }
        Same fi_link_attr as "fi_link_attr" { address, mtu, speed, state, network_type }
        Same fi_ops as "fi_ops" { size, close, bind, control, ops_open, tostr, ops_set }
        Same fid as "fid" { fclass, context, ops }
        Same fi_ops_fabric as "fi_ops_fabric" {
            size, domain, passive_ep, eq_open, wait_open, trywait, domain2
        }
        Same fid_fabric as "fid_fabric" { fid, ops, api_version }
        Same fid_nic as "fid_nic" { fid, device_attr, bus_attr, link_attr, prov_attr }
        Same fi_alias as "fi_alias" { fid, flags }
        Same fi_fid_var as "fi_fid_var" { name, val }
        Same fi_mr_raw_attr as "fi_mr_raw_attr" { flags, base_addr, raw_key, key_size }
        Same fi_mr_map_raw as "fi_mr_map_raw" { flags, base_addr, raw_key, key_size, key }
        Same fi_param as "fi_param" { name, type_, help_string, value }
        Same fi_context as "fi_context" { internal }
        Same fi_context2 as "fi_context2" { internal }
        Same fi_recv_context as "fi_recv_context" { ep, context }
    }
}

fn fi_domain() -> Vec<Struct> {
    structs! {
        Same fi_av_attr as "fi_av_attr" {
            type_, rx_ctx_bits, count, ep_per_node, name, map_addr, flags
        }
        Same fi_av_set_attr as "fi_av_set_attr" {
            count, start_addr, end_addr, stride, comm_key_size, comm_key, flags
        }
        Grew fi_ops_av as "fi_ops_av" {
            size, insert, insertsvc, insertsym, remove, lookup, straddr, av_set
        }
        Same fid_av as "fid_av" { fid, ops }
        Same fid_mr as "fid_mr" { fid, mem_desc, key }
        Grew fi_mr_attr as "fi_mr_attr" {
            iov_count, access, offset, requested_key, context, auth_key_size,
            auth_key, iface, device
        }
        Grew fi_mr_modify as "fi_mr_modify" { flags, attr }
        Same fi_hmem_override_ops as "fi_hmem_override_ops" {
            size, copy_from_hmem_iov, copy_to_hmem_iov
        }
        Same fi_ops_domain as "fi_ops_domain" {
            size, av_open, cq_open, endpoint, scalable_ep, cntr_open, poll_open,
            stx_ctx, srx_ctx, query_atomic, query_collective, endpoint2
        }
        Same fi_ops_mr as "fi_ops_mr" { size, reg, regv, regattr }
        Same fid_domain as "fid_domain" { fid, ops }
    }
}

fn fi_endpoint() -> Vec<Struct> {
    structs! {
        Same fi_msg as "fi_msg" { msg_iov, desc, iov_count, addr, context, data }
        Same fi_ops_ep as "fi_ops_ep" {
            size, cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left
        }
        Same fi_ops_msg as "fi_ops_msg" {
            size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata,
            injectdata
        }
        Same fid_ep as "fid_ep" { fid, ops, cm, msg, rma, tagged, atomic, collective }
        Same fid_pep as "fid_pep" { fid, ops, cm }
        Same fid_stx as "fid_stx" { fid, ops }
    }
}

fn fi_eq() -> Vec<Struct> {
    structs! {
        Same fi_wait_attr as "fi_wait_attr" { wait_obj, flags }
        Same fi_ops_wait as "fi_ops_wait" { size, wait }
        Same fid_wait as "fid_wait" { fid, ops }
        Same fi_mutex_cond as "fi_mutex_cond" { mutex, cond }
        Same fi_wait_pollfd as "fi_wait_pollfd" { change_index, nfds, fd }
        Same fi_poll_attr as "fi_poll_attr" { flags }
        Same fi_ops_poll as "fi_ops_poll" { size, poll, poll_add, poll_del }
        Same fid_poll as "fid_poll" { fid, ops }
        Same fi_eq_attr as "fi_eq_attr" { size, flags, wait_obj, signaling_vector, wait_set }
        Same fi_eq_entry as "fi_eq_entry" { fid, context, data }
        Same fi_eq_err_entry as "fi_eq_err_entry" {
            fid, context, data, err, prov_errno, err_data, err_data_size
        }
        Same fi_eq_cm_entry as "fi_eq_cm_entry" { fid, info, data }
        Same fi_ops_eq as "fi_ops_eq" { size, read, readerr, write, sread, strerror }
        Same fid_eq as "fid_eq" { fid, ops }
        Same fi_cq_entry as "fi_cq_entry" { op_context }
        Same fi_cq_msg_entry as "fi_cq_msg_entry" { op_context, flags, len }
        Same fi_cq_data_entry as "fi_cq_data_entry" { op_context, flags, len, buf, data }
        Same fi_cq_tagged_entry as "fi_cq_tagged_entry" { op_context, flags, len, buf, data, tag }
        Same fi_cq_attr as "fi_cq_attr" {
            size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set
        }
        Same fi_ops_cq as "fi_ops_cq" {
            size, read, readfrom, readerr, sread, sreadfrom, signal, strerror
        }
        Same fid_cq as "fid_cq" { fid, ops }
        Same fi_cntr_attr as "fi_cntr_attr" { events, wait_obj, wait_set, flags }
        Same fi_ops_cntr as "fi_ops_cntr" { size, read, readerr, add, set, wait, adderr, seterr }
        Same fid_cntr as "fid_cntr" { fid, ops }
    }
}

fn fi_cm() -> Vec<Struct> {
    structs! {
        Same fid_mc as "fid_mc" { fid, fi_addr }
        Same fi_ops_cm as "fi_ops_cm" {
            size, setname, getname, getpeer, connect, listen, accept, reject,
            shutdown, join
        }
    }
}

fn fi_tagged() -> Vec<Struct> {
    structs! {
        Same fi_msg_tagged as "fi_msg_tagged" {
            msg_iov, desc, iov_count, addr, tag, ignore, context, data
        }
        Same fi_ops_tagged as "fi_ops_tagged" {
            size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata,
            injectdata
        }
    }
}

fn fi_rma() -> Vec<Struct> {
    structs! {
        Same fi_rma_iov as "fi_rma_iov" { addr, len, key }
        Same fi_rma_ioc as "fi_rma_ioc" { addr, count, key }
        Same fi_msg_rma as "fi_msg_rma" {
            msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data
        }
        Same fi_ops_rma as "fi_ops_rma" {
            size, read, readv, readmsg, write, writev, writemsg, inject, writedata,
            injectdata
        }
    }
}

fn fi_atomic() -> Vec<Struct> {
    structs! {
        Same fi_atomic_attr as "fi_atomic_attr" { count, size }
        Same fi_msg_atomic as "fi_msg_atomic" {
            msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op,
            context, data
        }
        Same fi_msg_fetch as "fi_msg_fetch" { msg_iov, desc, iov_count }
        Same fi_msg_compare as "fi_msg_compare" { msg_iov, desc, iov_count }
        Same fi_ops_atomic as "fi_ops_atomic" {
            size, write, writev, writemsg, inject, readwrite, readwritev,
            readwritemsg, compwrite, compwritev, compwritemsg, writevalid,
            readwritevalid, compwritevalid
        }
    }
}

fn fi_collective() -> Vec<Struct> {
    structs! {
        Same fi_ops_av_set as "fi_ops_av_set" {
            size, set_union, intersect, diff, insert, remove, addr
        }
        Same fid_av_set as "fid_av_set" { fid, ops }
        Same fi_collective_attr as "fi_collective_attr" {
            op, datatype, datatype_attr, max_members, mode
        }
        Same fi_collective_addr as "fi_collective_addr" { set, coll_addr }
        Same fi_msg_collective as "fi_msg_collective" {
            msg_iov, desc, iov_count, coll_addr, root_addr, coll, datatype, op,
            context
        }
        Same fi_ops_collective as "fi_ops_collective" {
            size, barrier, broadcast, alltoall, allreduce, allgather, reduce_scatter,
            reduce, scatter, gather, msg, barrier2
        }
    }
}

fn fi_trigger() -> Vec<Struct> {
    structs! {
        Same fi_trigger_threshold as "fi_trigger_threshold" { cntr, threshold }
        Same fi_trigger_var as "fi_trigger_var" { datatype, count, addr, value }
        Same fi_trigger_xpu as "fi_trigger_xpu" { count, iface, device, var }
        Same fi_op_msg as "fi_op_msg" { ep, msg, flags }
        Same fi_op_tagged as "fi_op_tagged" { ep, msg, flags }
        Same fi_op_rma as "fi_op_rma" { ep, msg, flags }
        Same fi_op_atomic as "fi_op_atomic" { ep, msg, flags }
        Same fi_op_fetch_atomic as "fi_op_fetch_atomic" { ep, msg, fetch, flags }
        Same fi_op_compare_atomic as "fi_op_compare_atomic" { ep, msg, fetch, compare, flags }
        Same fi_op_cntr as "fi_op_cntr" { cntr, value }
        Same fi_triggered_context as "fi_triggered_context" { event_type, trigger }
        Same fi_triggered_context2 as "fi_triggered_context2" { event_type, trigger }
        Same fi_deferred_work as "fi_deferred_work" {
            context, threshold, triggering_cntr, completion_cntr, op_type, op
        }
    }
}

fn fi_ext() -> Vec<Struct> {
    structs! {
        Same fi_fid_export as "fi_fid_export" { fid, flags, context }
        Same fi_ops_mem_monitor as "fi_ops_mem_monitor" {
            size, start, stop, subscribe, unsubscribe, valid
        }
        Same fi_ops_mem_notify as "fi_ops_mem_notify" { size, notify }
        Same fid_mem_monitor as "fid_mem_monitor" { fid, export_ops, import_ops }
        Same fi_ops_log as "fi_ops_log" { size, enabled, ready, log }
        Same fid_logging as "fid_logging" { fid, ops }
    }
}

fn fi_prov() -> Vec<Struct> {
    structs! {
        Same fi_provider as "fi_provider" {
            version, fi_version, context, name, getinfo, fabric, cleanup
        }
    }
}
