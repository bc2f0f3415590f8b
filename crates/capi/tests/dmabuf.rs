//! A C program that registers memory of dma-bufs with an RDMA device: the one of `bench/device`, which tells what it was given.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{c_int, c_void};
use core::ptr;

use c::device::{is_program, run};
use c::*;
use libloading::os::unix::{Library, RTLD_LAZY};
use ripstop_abi::*;

/// `dlopen(3)`: only what is loaded.
const RTLD_NOLOAD: c_int = 4;

/// What the device says (`last_dmabuf`).
#[repr(C)]
struct LastDmabuf {
    offset: u64,
    length: u64,
    at: u64,
    fd: c_int,
    access: c_int,
    refusal: c_int,
}

/// `enum ibv_access_flags`: local write, remote write, remote read.
const ALL_ACCESS: c_int = 1 | 2 | 4;

/// A domain of the device.
fn open() -> OpenDomain {
    let hints = Info::hints();
    hints.ep().type_ = FI_EP_MSG;
    hints.get().caps = FI_MSG | FI_RMA;
    let modes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints.domain().mr_mode = modes;
    hints.get().addr_format = FI_SOCKADDR_IN;
    hints.fabric().prov_name = dup(c"verbs");
    let info = getinfo(NOW, None, None, 0, Some(&hints)).expect("the device");
    OpenDomain::of(info)
}

fn register(opened: &OpenDomain, attr: &fi_mr_attr, flags: u64) -> Result<*mut fid_mr, c_int> {
    let mut mr = ptr::null_mut();
    let fid = opened.domain.cast::<fid>();
    let code = unsafe { (*(*opened.domain).mr).regattr.unwrap()(fid, attr, flags, &mut mr) };
    match code {
        0 => Ok(mr),
        code => Err(code),
    }
}

/// Attributes of a region of a dma-buf, for everything.
fn attr_of(dmabuf: &fi_mr_dmabuf) -> fi_mr_attr {
    fi_mr_attr {
        mr: fi_mr_attr_iov { dmabuf },
        iov_count: 1,
        access: FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
        ..Default::default()
    }
}

#[test]
fn the_device_gets_what_the_program_says() {
    if !is_program() {
        if let Some(said) = run("the_device_gets_what_the_program_says", &[]) {
            let refusal =
                "device memory0 does not register 4096 bytes from 0x2000 on of the dma-buf 77";
            assert!(said.contains(refusal), "{said}");
        }
        return;
    }
    let opened = open();
    let library = unsafe { Library::open(Some("libibverbs.so.1"), RTLD_LAZY | RTLD_NOLOAD) };
    let library = library.expect("the device");
    let last = unsafe { library.get::<*mut LastDmabuf>(b"last_dmabuf") }.expect("its symbol");
    let last = *last;
    let mut memory = vec![0_u8; 3 * 4096];
    let base_addr = memory.as_mut_ptr().cast::<c_void>();
    let mut dmabuf = fi_mr_dmabuf {
        fd: 77,
        offset: 8192,
        len: 4096,
        base_addr,
    };
    let got = move || {
        let last = unsafe { ptr::read(last) };
        (last.offset, last.length, last.at, last.fd, last.access)
    };
    let at = base_addr.addr() as u64 + 8192;

    // A device that does not do that.
    assert_eq!(
        register(&opened, &attr_of(&dmabuf), FI_MR_DMABUF),
        Err(-FI_EOPNOTSUPP)
    );
    assert_eq!(got(), (8192, 4096, at, 77, ALL_ACCESS));

    // One that does: peers name addresses of the program, or offsets if it has not mapped the memory.
    unsafe { (*last).refusal = 0 };
    let mr = register(&opened, &attr_of(&dmabuf), FI_MR_DMABUF).expect("a region");
    assert_eq!(got(), (8192, 4096, at, 77, ALL_ACCESS));
    assert_eq!(close(mr), 0);
    dmabuf.base_addr = ptr::null_mut();
    let mut attr = attr_of(&dmabuf);
    attr.access = FI_REMOTE_READ;
    let mr = register(&opened, &attr, FI_MR_DMABUF).expect("a region");
    assert_eq!(got(), (8192, 4096, 8192, 77, 4));
    assert_eq!(close(mr), 0);
}

#[test]
fn what_is_no_dmabuf_does_not_come_to_the_device() {
    if !is_program() {
        let said = run("what_is_no_dmabuf_does_not_come_to_the_device", &[]);
        for reason in [
            "attr->dmabuf is NULL",
            "no descriptor",
            "more than an address",
            "iov_count",
            "FI_HMEM_",
        ] {
            assert!(
                said.as_ref().is_none_or(|said| said.contains(reason)),
                "{said:?} lacks {reason}"
            );
        }
        return;
    }
    let opened = open();
    let good = fi_mr_dmabuf {
        fd: 0,
        len: 4096,
        ..Default::default()
    };
    let register = |attr: &fi_mr_attr, flags| register(&opened, attr, FI_MR_DMABUF | flags);
    let refused = |dmabuf: fi_mr_dmabuf| register(&attr_of(&dmabuf), 0);
    assert_eq!(register(&attr_of(&good), 0), Err(-FI_EOPNOTSUPP));

    let mut none = attr_of(&good);
    none.mr.dmabuf = ptr::null();
    assert_eq!(register(&none, 0), Err(-FI_EINVAL));
    assert_eq!(refused(fi_mr_dmabuf { fd: -1, ..good }), Err(-FI_EINVAL));
    assert_eq!(
        refused(fi_mr_dmabuf {
            offset: u64::MAX,
            ..good
        }),
        Err(-FI_EINVAL)
    );
    let base_addr = ptr::without_provenance_mut(usize::MAX - 4095);
    assert_eq!(refused(fi_mr_dmabuf { base_addr, ..good }), Err(-FI_EINVAL));
    assert_eq!(
        register(&attr_of(&good), FI_HMEM_DEVICE_ONLY),
        Err(-FI_EBADFLAGS)
    );
    let two = fi_mr_attr {
        iov_count: 2,
        ..attr_of(&good)
    };
    assert_eq!(register(&two, 0), Err(-FI_EINVAL));
    let base: fid_mr = unsafe { core::mem::zeroed() };
    let derived = fi_mr_attr {
        base_mr: &base,
        ..attr_of(&good)
    };
    assert_eq!(register(&derived, 0), Err(-FI_EINVAL));
    let elsewhere = fi_mr_attr {
        iface: FI_HMEM_CUDA,
        ..attr_of(&good)
    };
    assert_eq!(register(&elsewhere, 0), Err(-FI_ENOSYS));
}

#[test]
fn a_variable_has_dmabufs_refused() {
    if !is_program() {
        let said = run(
            "a_variable_has_dmabufs_refused",
            &[("FI_VERBS_USE_DMABUF", "0")],
        );
        assert!(
            said.as_ref()
                .is_none_or(|said| said.contains("FI_VERBS_USE_DMABUF")),
            "{said:?}"
        );
        return;
    }
    let opened = open();
    let dmabuf = fi_mr_dmabuf {
        len: 4096,
        ..Default::default()
    };
    assert_eq!(
        register(&opened, &attr_of(&dmabuf), FI_MR_DMABUF),
        Err(-FI_ENOSYS)
    );
}
