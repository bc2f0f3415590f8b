//! A C program whose endpoints share contexts or have several.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::c_void;
use core::ptr;

use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

fn shared(hints: &Info) {
    hints.ep().tx_ctx_cnt = FI_SHARED_CONTEXT;
    hints.ep().rx_ctx_cnt = FI_SHARED_CONTEXT;
}

fn stx(domain: *mut fid_domain, info: &Info) -> *mut fid_stx {
    let mut stx = ptr::null_mut();
    assert_eq!(
        op!(domain, ops.stx_ctx(info.get().tx_attr, &mut stx, NONE)),
        0
    );
    stx
}

fn srx(domain: *mut fid_domain, info: &Info) -> *mut fid_ep {
    let mut srx = ptr::null_mut();
    assert_eq!(
        op!(domain, ops.srx_ctx(info.get().rx_attr, &mut srx, NONE)),
        0
    );
    srx
}

#[test]
fn a_shared_receive_context_has_one_address_vector() {
    let info = loopback(FI_EP_RDM, shared);
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let cq = cq(domain, FI_CQ_FORMAT_MSG, FI_WAIT_NONE);
    let srx = srx(domain, &info);
    let avs = [(); 2].map(|()| av(domain, FI_AV_UNSPEC, 0));
    let codes = [0, -FI_EINVAL];
    let eps = [0, 1].map(|n| {
        let ep = endpoint(domain, &info);
        assert_eq!(bind(ep, avs[n], 0), 0);
        assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(bind(ep, srx, 0), 0);
        assert_eq!(enable(ep), codes[n]);
        ep
    });
    for ep in eps {
        assert_eq!(close(ep), 0);
    }
    let other = self::domain(fabric, &info);
    let stranger = endpoint(other, &info);
    assert_eq!(bind(stranger, srx, 0), -FI_EDOMAIN, "of another domain");
    close_all!(stranger, other, srx, cq, avs[0], avs[1], domain, fabric);
}

#[test]
fn a_shared_transmit_context_has_what_the_domain_has() {
    let info = loopback(FI_EP_MSG, shared);
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let mut made: *mut fid_stx = ptr::null_mut();
    let null = ptr::null_mut();
    assert_eq!(op!(domain, ops.stx_ctx(null, &mut made, NONE)), 0);
    assert_eq!(close(made), 0);
    info.tx().inject_size = 1 << 30;
    let attr = info.get().tx_attr;
    assert_eq!(op!(domain, ops.stx_ctx(attr, &mut made, NONE)), -FI_EINVAL);
    info.tx().inject_size = 0;
    let stx = stx(domain, &info);
    assert_eq!(unsafe { (*stx).fid.fclass }, FI_CLASS_STX_CTX);
    let code = fid!(stx, bind, ptr::null_mut(), 0);
    assert_eq!(code, -FI_ENOSYS, "it has no queues of its own");
    close_all!(stx, domain, fabric);
}

/// `fi_rx_addr` of the headers.
fn rx_addr(addr: fi_addr_t, index: u64, bits: u32) -> fi_addr_t {
    (index << (64 - bits)) | addr
}

fn sep(domain: *mut fid_domain, info: &Info) -> *mut fid_ep {
    let mut sep = ptr::null_mut();
    assert_eq!(op!(domain, ops.scalable_ep(info.0, &mut sep, NONE)), 0);
    sep
}

fn scalable_av(domain: *mut fid_domain) -> *mut fid_av {
    let mut attr = fi_av_attr {
        rx_ctx_bits: 1,
        ..Default::default()
    };
    let mut av = ptr::null_mut();
    assert_eq!(op!(domain, ops.av_open(&mut attr, &mut av, NONE)), 0);
    attr.rx_ctx_bits = 17;
    let mut other = ptr::null_mut();
    let code = op!(domain, ops.av_open(&mut attr, &mut other, NONE));
    assert_eq!(code, -FI_EINVAL);
    av
}

#[test]
fn a_scalable_endpoint_names_its_receive_contexts() {
    let info = loopback(FI_EP_RDM, |hints| {
        hints.get().caps = FI_MSG | FI_NAMED_RX_CTX | FI_DIRECTED_RECV;
        hints.ep().tx_ctx_cnt = 2;
        hints.ep().rx_ctx_cnt = 2;
    });
    assert_eq!(info.get().caps & FI_NAMED_RX_CTX, FI_NAMED_RX_CTX);
    assert!(info.domain().max_ep_tx_ctx >= 2 && info.domain().max_ep_rx_ctx >= 2);
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let (av, cq) = (
        scalable_av(domain),
        cq(domain, FI_CQ_FORMAT_MSG, FI_WAIT_NONE),
    );
    let seps = [sep(domain, &info), sep(domain, &info)];
    assert_eq!(unsafe { (*seps[0]).fid.fclass }, FI_CLASS_SEP);
    assert_eq!(bind(seps[0], cq, FI_RECV), -FI_EBADFLAGS);
    assert_eq!(bind(seps[0], cq, 0), -FI_EINVAL);
    assert_eq!(enable(seps[0]), -FI_ENOAV);
    assert_eq!(
        op!(seps[0], msg.inject(ptr::null(), 0, 0)),
        -FI_ENOSYS as isize
    );
    let (mut tx, mut rx) = (Vec::new(), Vec::new());
    for sep in seps {
        assert_eq!(bind(sep, av, 0), 0);
        for index in 0..2 {
            let mut attr = fi_tx_attr::default();
            let mut ep: *mut fid_ep = ptr::null_mut();
            assert_eq!(op!(sep, ops.tx_ctx(index, &mut attr, &mut ep, NONE)), 0);
            assert_eq!(attr.size, info.tx().size, "it says what it got");
            assert_eq!(unsafe { (*ep).fid.fclass }, FI_CLASS_TX_CTX);
            assert_eq!(bind(ep, cq, FI_TRANSMIT), 0);
            assert_eq!(enable(ep), 0);
            tx.push(ep);
            let null = ptr::null_mut();
            let mut ep: *mut fid_ep = ptr::null_mut();
            assert_eq!(op!(sep, ops.rx_ctx(index, null, &mut ep, NONE)), 0);
            assert_eq!(bind(ep, av, 0), -FI_EINVAL, "it has that of its endpoint");
            assert_eq!(bind(ep, cq, FI_RECV), 0);
            assert_eq!(enable(ep), 0);
            rx.push(ep);
        }
        let mut ep: *mut fid_ep = ptr::null_mut();
        let null = ptr::null_mut();
        assert_eq!(op!(sep, ops.tx_ctx(2, null, &mut ep, NONE)), -FI_EINVAL);
        assert_eq!(enable(sep), 0);
        assert_eq!(close(sep), -FI_EBUSY);
    }
    let peer = insert(av, &name(unsafe { (*seps[1]).cm }, seps[1].cast()));
    let mut got = [[0_u8; 4]; 2];
    for (index, part) in got.iter_mut().enumerate() {
        let buf = part.as_mut_ptr().cast::<c_void>();
        let ep = rx[2 + index];
        assert_eq!(op!(ep, msg.recv(buf, 4, NONE, FI_ADDR_UNSPEC, NONE)), 0);
        assert_eq!(
            op!(ep, msg.inject(ptr::null(), 0, peer)),
            -FI_ENOSYS as isize
        );
    }
    for (index, text) in [b"zero", b"one."].into_iter().enumerate() {
        let buf = text.as_ptr().cast();
        let to = rx_addr(peer, index as u64, 1);
        post(cq, || op!(tx[1 - index], msg.send(buf, 4, NONE, to, NONE)));
    }
    for _ in 0..4 {
        let _: fi_cq_msg_entry = completion(cq);
    }
    assert_eq!(got, [*b"zero", *b"one."]);

    // Receives may name a context of the peer as sends do: the source is that peer.
    let from = insert(av, &name(unsafe { (*seps[0]).cm }, seps[0].cast()));
    for (index, part) in got.iter_mut().enumerate() {
        let buf = part.as_mut_ptr().cast::<c_void>();
        let source = rx_addr(from, 1, 1);
        assert_eq!(op!(rx[2 + index], msg.recv(buf, 4, NONE, source, NONE)), 0);
    }
    for (index, text) in [b"0000", b"1111"].into_iter().enumerate() {
        let buf = text.as_ptr().cast();
        let to = rx_addr(peer, index as u64, 1);
        post(cq, || op!(tx[index], msg.send(buf, 4, NONE, to, NONE)));
    }
    for _ in 0..4 {
        let _: fi_cq_msg_entry = completion(cq);
    }
    assert_eq!(got, [*b"0000", *b"1111"]);
    let recv = op!(
        tx[0],
        msg.recv(ptr::null_mut(), 0, NONE, FI_ADDR_UNSPEC, NONE)
    );
    assert_eq!(recv, -FI_ENOSYS as isize);
    for ep in tx.into_iter().chain(rx).chain(seps) {
        assert_eq!(close(ep), 0);
    }
    close_all!(cq, av, domain, fabric);
}
