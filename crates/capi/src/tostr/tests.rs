#![allow(unsafe_code)]
//! Expected texts are what C libfabric 2.6.0 prints for the same values.

use core::ffi::CStr;

use super::*;
use crate::info_text;
use ripstop_core::sockaddr;

fn tostr<T>(data: &T, datatype: abi::fi_type) -> String {
    // SAFETY: each test pairs a value with its type.
    let text = unsafe { ripstop_fi_tostr_1_0(ptr::from_ref(data).cast(), datatype) };
    // SAFETY: the library's buffer, terminated.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().unwrap().to_owned()
}

#[test]
fn values_and_flags_have_their_names() {
    assert_eq!(tostr(&3_u32, abi::FI_TYPE_EP_TYPE), "FI_EP_RDM");
    assert_eq!(tostr(&99_u32, abi::FI_TYPE_EP_TYPE), "Unknown");
    assert_eq!(tostr(&0_u64, abi::FI_TYPE_CAPS), "");
    let caps = abi::FI_RMA | abi::FI_MSG | abi::FI_HMEM | 1 << 60;
    assert_eq!(tostr(&caps, abi::FI_TYPE_CAPS), "FI_MSG, FI_RMA, FI_HMEM");
    let mode = abi::FI_MR_BASIC | abi::FI_MR_LOCAL;
    assert_eq!(
        tostr(&mode, abi::FI_TYPE_MR_MODE),
        "FI_MR_BASIC, FI_MR_LOCAL"
    );
    assert_eq!(tostr(&1_u32, abi::FI_TYPE_LOG_LEVEL), "trace");
    assert_eq!(tostr(&7_u32, abi::FI_TYPE_LOG_SUBSYS), "eq");
    assert_eq!(tostr(&0_u32, 999), "Unknown type");
    assert!(tostr(&0_u32, abi::FI_TYPE_VERSION).starts_with("2.6.0"));
}

#[test]
fn every_type_prints_something() {
    let zeros = [0_u64; 64];
    for datatype in 0..=abi::FI_TYPE_WAIT_OBJ {
        let empty = matches!(
            datatype,
            abi::FI_TYPE_CAPS
                | abi::FI_TYPE_OP_FLAGS
                | abi::FI_TYPE_MSG_ORDER
                | abi::FI_TYPE_MODE
                | abi::FI_TYPE_CQ_EVENT_FLAGS
                | abi::FI_TYPE_MR_MODE
        );
        assert_eq!(tostr(&zeros, datatype).is_empty(), empty, "{datatype}");
    }
}

#[test]
fn text_is_cut_to_the_buffer() {
    let caps = abi::FI_MSG | abi::FI_RMA;
    let data = ptr::from_ref(&caps).cast();
    let mut buf: [c_char; 8] = [0x7f; 8];
    let mut cut = |len, data| {
        // SAFETY: at most the buffer's length, and flags or null.
        unsafe { ripstop_fi_tostr_r_1_4(buf.as_mut_ptr(), len, data, abi::FI_TYPE_CAPS) }
    };
    // SAFETY: terminated within the buffer.
    assert_eq!(unsafe { CStr::from_ptr(cut(4, data)) }, c"FI_");
    assert!(cut(0, data).is_null());
    assert!(cut(8, ptr::null()).is_null());
    assert_eq!(buf[4], 0x7f);
    // SAFETY: null is refused.
    let refused = unsafe { ripstop_fi_tostr_r_1_4(ptr::null_mut(), 8, data, abi::FI_TYPE_CAPS) };
    assert!(refused.is_null());
    // SAFETY: null is refused.
    let refused = unsafe { ripstop_fi_tostr_1_0(ptr::null(), abi::FI_TYPE_CAPS) };
    assert!(refused.is_null());
}

#[test]
fn info_without_attributes() {
    assert_eq!(
        tostr(&abi::fi_info::default(), abi::FI_TYPE_INFO),
        "fi_info:\n    caps: [  ]\n    mode: [  ]\n    addr_format: FI_FORMAT_UNSPEC\n    \
         src_addrlen: 0\n    dest_addrlen: 0\n    src_addr: (null)\n    dest_addr: (null)\n    \
         handle: (nil)\n    fi_tx_attr: (null)\n    fi_rx_attr: (null)\n    \
         fi_ep_attr: (null)\n    fi_domain_attr: (null)\n    fi_fabric_attr: (null)\n    \
         nic: (nil)\n"
    );
}

#[test]
fn an_interface_of_the_core_prints_alike() {
    let mut info = ripstop_core::Info::default();
    info.fabric.prov_name = Some("tcp".to_owned());
    info.src_addr = Some("fi_sockaddr_in://127.0.0.1:1234".parse().unwrap());
    info.addr_format = ripstop_types::AddrFormat::SockaddrIn;
    let text = info_text(&info).unwrap();
    assert!(text.starts_with("fi_info:\n    caps: [  ]\n"));
    assert!(text.contains("\n    src_addr: fi_sockaddr_in://127.0.0.1:1234\n"));
    assert!(text.contains("\n        prov_name: tcp\n"));
    assert!(text.ends_with("\n    nic: (nil)\n"));
}

#[test]
fn info_prints_its_addresses() {
    let mut addr = sockaddr::encode(&"127.0.0.1:1234".parse().unwrap()).to_vec();
    let info = abi::fi_info {
        addr_format: abi::FI_SOCKADDR_IN,
        src_addrlen: 16,
        src_addr: addr.as_mut_ptr().cast(),
        dest_addrlen: 3,
        dest_addr: addr.as_mut_ptr().cast(),
        ..Default::default()
    };
    let text = tostr(&info, abi::FI_TYPE_INFO);
    assert!(text.contains("\n    src_addr: fi_sockaddr_in://127.0.0.1:1234\n"));
    assert!(
        text.contains("\n    dest_addr: \n"),
        "a short address is not read"
    );
}

#[test]
fn attributes_are_printed_line_by_line() {
    let tx = abi::fi_tx_attr {
        caps: abi::FI_MSG | abi::FI_SEND,
        inject_size: 128,
        size: 256,
        tclass: abi::FI_TC_BULK_DATA,
        ..Default::default()
    };
    assert_eq!(
        tostr(&tx, abi::FI_TYPE_TX_ATTR),
        "fi_tx_attr:\n    caps: [ FI_MSG, FI_SEND ]\n    mode: [  ]\n    op_flags: [  ]\n    \
         msg_order: [  ]\n    inject_size: 128\n    size: 256\n    iov_limit: 0\n    \
         rma_iov_limit: 0\n    tclass: 0x203\n"
    );
    let ep = abi::fi_ep_attr {
        type_: abi::FI_EP_RDM,
        protocol: abi::FI_PROTO_XNET,
        max_msg_size: usize::MAX,
        mem_tag_format: 0xaaaa,
        rx_ctx_cnt: abi::FI_SHARED_CONTEXT,
        ..Default::default()
    };
    let text = tostr(&ep, abi::FI_TYPE_EP_ATTR);
    assert!(text.starts_with("fi_ep_attr:\n    type: FI_EP_RDM\n    protocol: FI_PROTO_XNET\n"));
    assert!(text.contains("\n    max_msg_size: 18446744073709551615\n"));
    assert!(text.contains("\n    mem_tag_format: 0x000000000000aaaa\n"));
    assert!(text.ends_with("rx_ctx_cnt: FI_SHARED_CONTEXT\n    auth_key_size: 0\n"));
}

#[test]
fn fabric_prints_names_and_versions() {
    let attr = abi::fi_fabric_attr {
        prov_name: c"tcp".as_ptr().cast_mut(),
        prov_version: abi::FI_VERSION(206, 0),
        api_version: abi::FI_VERSION(2, 6),
        ..Default::default()
    };
    assert_eq!(
        tostr(&attr, abi::FI_TYPE_FABRIC_ATTR),
        "fi_fabric_attr:\n    name: (null)\n    prov_name: tcp\n    prov_version: 206.0\n    \
         api_version: 2.6\n"
    );
}

#[test]
fn queue_attributes() {
    let cq = abi::fi_cq_attr {
        size: 7,
        format: abi::FI_CQ_FORMAT_TAGGED,
        wait_obj: abi::FI_WAIT_FD,
        wait_cond: abi::FI_CQ_COND_THRESHOLD,
        ..Default::default()
    };
    assert_eq!(
        tostr(&cq, abi::FI_TYPE_CQ_ATTR),
        "fi_cq_attr:\n    size: 7\n    flags: [  ]\n    format: FI_CQ_FORMAT_TAGGED\n    \
         wait_obj: FI_WAIT_FD\n    signaling_vector: 0\n    wait_cond: FI_CQ_COND_THRESHOLD\n"
    );
    let av = abi::fi_av_attr {
        count: 3,
        flags: abi::FI_EVENT,
        ..Default::default()
    };
    assert_eq!(
        tostr(&av, abi::FI_TYPE_AV_ATTR),
        "fi_av_attr:\n    type: FI_AV_UNSPEC\n    count: 3\n    ep_per_node: 0\n    \
         name: (null)\n    flags: [ FI_EVENT ]\n"
    );
    let entry = abi::fi_cq_err_entry {
        err: 5,
        prov_errno: 6,
        tag: 16,
        ..Default::default()
    };
    let text = tostr(&entry, abi::FI_TYPE_CQ_ERR_ENTRY);
    assert!(text.contains("\n    tag: 0x10\n    olen: 0\n    err: 5\n    prov_errno: 5\n"));
}

#[test]
fn an_object_without_tostr_is_an_address() {
    let object = abi::fid::default();
    let expected = format!("fid: {:p}\n", ptr::from_ref(&object));
    assert_eq!(tostr(&object, abi::FI_TYPE_FID), expected);
    let ops = abi::fi_ops {
        size: 16,
        ..Default::default()
    };
    let object = abi::fid {
        ops: ptr::from_ref(&ops).cast_mut(),
        ..object
    };
    let expected = format!("fid: {:p}\n", ptr::from_ref(&object));
    assert_eq!(tostr(&object, abi::FI_TYPE_FID), expected);
}
