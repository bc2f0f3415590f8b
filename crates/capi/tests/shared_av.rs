//! A C program that shares an address vector between two domains, as processes do.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use std::ffi::CString;

use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

fn open(
    domain: *mut fid_domain,
    name: &CStr,
    flags: u64,
) -> Result<(*mut fid_av, fi_av_attr), c_int> {
    let mut attr = fi_av_attr {
        type_: FI_AV_MAP,
        name: name.as_ptr(),
        count: 8,
        flags,
        ..Default::default()
    };
    let mut av = ptr::null_mut();
    match op!(domain, ops.av_open(&mut attr, &mut av, NONE)) {
        0 => Ok((av, attr)),
        code => Err(code),
    }
}

#[test]
fn a_reader_sends_to_whom_the_writer_inserted() {
    let info = loopback(FI_EP_RDM, |hints| {
        hints.get().caps = FI_MSG | FI_SHARED_AV;
    });
    assert_eq!(info.get().caps & FI_SHARED_AV, FI_SHARED_AV);
    let fabric = fabric(&info);
    let domains = [domain(fabric, &info), domain(fabric, &info)];
    let name = CString::new(format!("test-{}", std::process::id())).unwrap();
    let [near, far] = domains;
    assert_eq!(open(far, &name, FI_READ).err(), Some(-FI_ENOENT));
    let (writer, _) = open(near, &name, 0).unwrap();
    let (reader, attr) = open(far, &name, FI_READ).unwrap();
    let endpoint = |domain, av| {
        let queue = cq(domain, FI_CQ_FORMAT_MSG, FI_WAIT_NONE);
        let ep = endpoint(domain, &info);
        assert_eq!(bind(ep, av, 0), 0);
        assert_eq!(bind(ep, queue, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(enable(ep), 0);
        (ep, queue)
    };
    let (to, to_cq) = endpoint(near, writer);
    let (from, from_cq) = endpoint(far, reader);
    let addr = name_of(to);
    let mut index = FI_ADDR_NOTAVAIL;
    let refused = op!(
        reader,
        ops.insert(addr.as_ptr().cast(), 1, &mut index, 0, NONE)
    );
    assert_eq!(refused, 0, "it cannot be changed");
    assert_eq!(insert(writer, &addr), 0);
    // As a program does that was told of the address vector alone.
    let peer = unsafe { *attr.map_addr.cast::<fi_addr_t>() };
    assert_eq!(peer, 0);
    let mut got = [0_u8; 4];
    let buf = got.as_mut_ptr().cast::<c_void>();
    assert_eq!(op!(to, msg.recv(buf, 4, NONE, FI_ADDR_UNSPEC, NONE)), 0);
    let text = b"four".as_ptr().cast();
    post(from_cq, || op!(from, msg.send(text, 4, NONE, peer, NONE)));
    let drive = || {
        let _progress = op!(from_cq, ops.read(NONE, 0));
    };
    let entry: fi_cq_msg_entry = completion_with(to_cq, drive);
    assert_eq!((entry.len, got), (4, *b"four"));
    close_all!(to, from, to_cq, from_cq, writer, reader);
    assert_eq!(open(far, &name, FI_READ).err(), Some(-FI_ENOENT));
    for domain in domains {
        assert_eq!(close(domain), 0);
    }
    assert_eq!(close(fabric), 0);
}

fn name_of(ep: *mut fid_ep) -> Vec<u8> {
    name(unsafe { (*ep).cm }, ep.cast())
}
