//! A C program with reliable datagram endpoints.
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

/// A context that a completion can be told by.
fn context(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

/// Serial (`FI_THREAD_DOMAIN`, manual progress): the other kind of domain in this library.
fn serial(hints: &Info) {
    hints.domain().threading = FI_THREAD_DOMAIN;
    hints.domain().data_progress = FI_PROGRESS_MANUAL;
    hints.domain().control_progress = FI_PROGRESS_MANUAL;
}

/// Every way to send a message, each matched by another way to receive.
#[test]
fn every_form_of_a_message() {
    let pair = Pair::open(FI_CQ_FORMAT_DATA, FI_WAIT_NONE, serial);
    let [a, b] = pair.eps;
    let to = pair.addrs[1];
    let mut parts = [[0_u8; 3]; 4];
    let part = |part: &mut [u8; 3]| iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: 3,
    };
    let into = parts.each_mut().map(part);
    let mut text = *b"abcdefghijkl";
    let (head, tail) = text.split_at_mut(5);
    let from = [head, tail].map(|half| iovec {
        iov_base: half.as_mut_ptr().cast(),
        iov_len: half.len(),
    });
    let message = |iov: &[iovec], addr, data| fi_msg {
        msg_iov: iov.as_ptr(),
        iov_count: iov.len(),
        addr,
        data,
        context: context(9),
        ..Default::default()
    };
    let whole = from[0].iov_base.cast_const();
    let sends: [&dyn Fn() -> isize; 7] = [
        &|| op!(a, msg.send(whole, 12, NONE, to, context(1))),
        &|| {
            op!(
                a,
                msg.sendv(from.as_ptr(), ptr::null_mut(), 2, to, context(1))
            )
        },
        &|| op!(a, msg.sendmsg(&message(&from, to, 0), FI_COMPLETION)),
        &|| {
            op!(
                a,
                msg.sendmsg(&message(&from, to, 5), FI_COMPLETION | FI_REMOTE_CQ_DATA)
            )
        },
        &|| op!(a, msg.senddata(whole, 12, NONE, 5, to, context(1))),
        &|| op!(a, msg.inject(whole, 12, to)),
        &|| op!(a, msg.injectdata(whole, 12, 5, to)),
    ];
    for (number, send) in sends.iter().enumerate() {
        parts.fill([0; 3]);
        let posted = match number % 2 {
            0 => op!(
                b,
                msg.recvv(
                    into.as_ptr(),
                    ptr::null_mut(),
                    4,
                    FI_ADDR_UNSPEC,
                    context(3)
                )
            ),
            _ => op!(
                b,
                msg.recvmsg(&message(&into, FI_ADDR_UNSPEC, 0), FI_COMPLETION)
            ),
        };
        assert_eq!(posted, 0);
        post(pair.cq, send);
        let injected = number >= 5;
        let seen: Vec<fi_cq_data_entry> = (0..if injected { 1 } else { 2 })
            .map(|_| completion(pair.cq))
            .collect();
        let received = seen
            .iter()
            .find(|entry| entry.flags & FI_RECV != 0)
            .unwrap();
        assert_eq!(received.len, 12);
        let with_data = matches!(number, 3 | 4 | 6);
        assert_eq!(
            received.flags & FI_REMOTE_CQ_DATA != 0,
            with_data,
            "form {number}"
        );
        if with_data {
            assert_eq!(received.data, 5);
        }
        assert_eq!(parts.concat(), b"abcdefghijkl");
    }
}

#[test]
fn every_form_of_a_tagged_message() {
    let pair = Pair::open(FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE, |_| ());
    let [a, b] = pair.eps;
    let to = pair.addrs[1];
    let text = *b"abcdefgh";
    let whole = text.as_ptr().cast::<c_void>();
    let iov = iovec {
        iov_base: whole.cast_mut(),
        iov_len: 8,
    };
    let message = fi_msg_tagged {
        msg_iov: &raw const iov,
        iov_count: 1,
        addr: to,
        tag: 0x30,
        data: 5,
        ..Default::default()
    };
    let sends: [&dyn Fn() -> isize; 6] = [
        &|| op!(a, tagged.send(whole, 8, NONE, to, 0x30, NONE)),
        &|| {
            op!(
                a,
                tagged.sendv(&raw const iov, ptr::null_mut(), 1, to, 0x30, NONE)
            )
        },
        &|| {
            op!(
                a,
                tagged.sendmsg(&message, FI_COMPLETION | FI_REMOTE_CQ_DATA)
            )
        },
        &|| op!(a, tagged.senddata(whole, 8, NONE, 5, to, 0x30, NONE)),
        &|| op!(a, tagged.inject(whole, 8, to, 0x30)),
        &|| op!(a, tagged.injectdata(whole, 8, 5, to, 0x30)),
    ];
    let mut got = [0_u8; 8];
    let into = iovec {
        iov_base: got.as_mut_ptr().cast(),
        iov_len: 8,
    };
    let wanted = fi_msg_tagged {
        msg_iov: &raw const into,
        iov_count: 1,
        addr: FI_ADDR_UNSPEC,
        tag: 0x35,
        ignore: 0xf,
        ..Default::default()
    };
    let any = FI_ADDR_UNSPEC;
    let recvs: [&dyn Fn() -> isize; 3] = [
        &|| op!(b, tagged.recv(into.iov_base, 8, NONE, any, 0x35, 0xf, NONE)),
        &|| {
            op!(
                b,
                tagged.recvv(&raw const into, ptr::null_mut(), 1, any, 0x35, 0xf, NONE)
            )
        },
        &|| op!(b, tagged.recvmsg(&wanted, FI_COMPLETION)),
    ];
    for (number, send) in sends.iter().enumerate() {
        assert_eq!(recvs[number % 3](), 0);
        post(pair.cq, send);
        let seen: Vec<fi_cq_tagged_entry> = (0..if number >= 4 { 1 } else { 2 })
            .map(|_| completion(pair.cq))
            .collect();
        let received = seen
            .iter()
            .find(|entry| entry.flags & FI_RECV != 0)
            .unwrap();
        assert_eq!((received.len, received.tag), (8, 0x30), "form {number}");
        let with_data = matches!(number, 2 | 3 | 5);
        assert_eq!(
            received.flags & FI_REMOTE_CQ_DATA != 0,
            with_data,
            "form {number}"
        );
    }
    drop(pair);
    assert_eq!(&got, b"abcdefgh");
}

#[test]
fn each_format_fills_its_own_entries() {
    for format in [FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_UNSPEC] {
        let pair = Pair::open(format, FI_WAIT_NONE, serial);
        let [a, b] = pair.eps;
        let mut got = [0_u8; 4];
        let buf = got.as_mut_ptr().cast::<c_void>();
        assert_eq!(
            op!(b, msg.recv(buf, 4, NONE, FI_ADDR_UNSPEC, context(4))),
            0
        );
        post(pair.cq, || {
            op!(a, msg.inject(b"four".as_ptr().cast(), 4, pair.addrs[1]))
        });
        // Bytes beyond the entry must stay as they are.
        let mut room = [usize::MAX; 6];
        let words = match format {
            FI_CQ_FORMAT_MSG => 3,
            _ => 1,
        };
        until("a completion", || {
            let read = op!(pair.cq, ops.read(room.as_mut_ptr().cast::<c_void>(), 1));
            (read == 1).then_some(())
        });
        assert_eq!(room[0], 4);
        if words == 3 {
            assert_eq!(room[2], 4);
        }
        assert!(room[words..].iter().all(|&word| word == usize::MAX));
    }
}

#[test]
fn null_is_a_buffer_without_room() {
    let pair = Pair::open(FI_CQ_FORMAT_MSG, FI_WAIT_NONE, serial);
    let [a, b] = pair.eps;
    let to = pair.addrs[1];
    for (size, expected) in [(0, 1), (4, -FI_EAVAIL as isize)] {
        assert_eq!(
            op!(b, msg.recv(NONE, 64, NONE, FI_ADDR_UNSPEC, context(1))),
            0
        );
        let text = b"four".as_ptr().cast::<c_void>();
        post(pair.cq, || op!(a, msg.inject(text, size, to)));
        let mut entry = fi_cq_msg_entry::default();
        let buf = ptr::from_mut(&mut entry).cast::<c_void>();
        let read = until("a completion", || {
            let read = op!(pair.cq, ops.read(buf, 1));
            (read != -FI_EAGAIN as isize).then_some(read)
        });
        assert_eq!(read, expected);
    }
    let mut error = fi_cq_err_entry::default();
    assert_eq!(op!(pair.cq, ops.readerr(&mut error, 0)), 1);
    assert_eq!((error.err, error.olen), (FI_ETRUNC, 4));
}

/// Flags of objects are in no manual page and in no provider of C, only a NIC makes copies of itself,
/// and only connected endpoints have a socket.
#[test]
fn an_endpoint_knows_no_commands_of_other_objects() {
    let pair = Pair::open(FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE, |_| ());
    for command in [FI_GETFIDFLAG, FI_SETFIDFLAG, FI_DUP, FI_GET_FD] {
        let mut room = [0_u64; 4];
        assert_eq!(control(pair.eps[0], command, &mut room), -FI_ENOSYS);
        assert_eq!(control(pair.cq, command, &mut room), -FI_ENOSYS);
        assert_eq!(room, [0; 4]);
    }
}

#[test]
fn an_alias_has_flags_of_its_own() {
    let pair = Pair::open(FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE, |_| ());
    let [a, b] = pair.eps;
    let mut flags = FI_TRANSMIT;
    assert_eq!(control(a, FI_GETOPSFLAG, &mut flags), 0);
    let own = flags;
    let mut alias: *mut fid_ep = ptr::null_mut();
    let mut asked = fi_alias {
        fid: (&raw mut alias).cast(),
        flags: FI_TRANSMIT | FI_DELIVERY_COMPLETE,
    };
    assert_eq!(control(a, FI_ALIAS, &mut asked), 0);
    let mut flags = FI_TRANSMIT;
    assert_eq!(control(alias, FI_GETOPSFLAG, &mut flags), 0);
    assert_eq!(flags, FI_DELIVERY_COMPLETE);
    let mut flags = FI_TRANSMIT;
    assert_eq!(control(a, FI_GETOPSFLAG, &mut flags), 0);
    assert_eq!(flags, own);
    let mut got = [0_u8; 4];
    let buf = got.as_mut_ptr().cast::<c_void>();
    assert_eq!(
        op!(b, msg.recv(buf, 4, NONE, FI_ADDR_UNSPEC, context(2))),
        0
    );
    let to = pair.addrs[1];
    post(pair.cq, || {
        op!(
            alias,
            msg.send(b"four".as_ptr().cast(), 4, NONE, to, context(1))
        )
    });
    let mut seen = [completion::<fi_cq_entry>(pair.cq), completion(pair.cq)];
    seen.sort_by_key(|entry| entry.op_context.addr());
    assert_eq!(seen.map(|entry| entry.op_context.addr()), [1, 2]);
    assert_eq!(close(a), -FI_EBUSY);
    assert_eq!(bind(alias, pair.cq, FI_RECV), -FI_EINVAL);
    assert_eq!(close(alias), 0);
    let mut asked = fi_alias {
        fid: (&raw mut alias).cast(),
        flags: FI_TRANSMIT | FI_RECV,
    };
    assert_eq!(control(a, FI_ALIAS, &mut asked), -FI_EINVAL);
    let mut flags = FI_RECV;
    assert_eq!(control(a, FI_SETOPSFLAG, &mut flags), 0);
    assert_eq!(
        control(a, FI_SETOPSFLAG, ptr::null_mut::<u64>()),
        -FI_EINVAL
    );
}

#[test]
fn options_answer_by_the_book() {
    let pair = Pair::open(FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE, |_| ());
    let ep = pair.eps[0];
    let ops = unsafe { &*(*ep).ops };
    let (get, set) = (ops.getopt.unwrap(), ops.setopt.unwrap());
    let level = FI_OPT_ENDPOINT;
    let getopt = |name, room: usize| {
        let (mut value, mut len) = (0_usize, room);
        let at = (&raw mut value).cast::<c_void>();
        let code = unsafe { get(ep.cast(), level, name, at, &mut len) };
        (code, value, len)
    };
    let (code, value, len) = getopt(FI_OPT_MIN_MULTI_RECV, 16);
    assert_eq!((code, len), (0, 8));
    assert!(value > 0);
    assert_eq!(getopt(FI_OPT_MIN_MULTI_RECV, 4), (-FI_ETOOSMALL, 0, 8));
    assert_eq!(getopt(FI_OPT_CUDA_API_PERMITTED, 8).0, -FI_ENOPROTOOPT);
    assert_eq!(getopt(FI_OPT_EFA_RNR_RETRY, 8).0, -FI_ENOPROTOOPT);
    let setopt = |level, name, len| {
        let value = 100_usize;
        let at = (&raw const value).cast::<c_void>();
        unsafe { set(ep.cast(), level, name, at, len) }
    };
    assert_eq!(setopt(level, FI_OPT_MIN_MULTI_RECV, 8), 0);
    assert_eq!(setopt(level, FI_OPT_MIN_MULTI_RECV, 4), -FI_EINVAL);
    assert_eq!(
        setopt(level, FI_OPT_SHARED_MEMORY_PERMITTED, 1),
        -FI_ENOPROTOOPT
    );
    assert_eq!(setopt(7, FI_OPT_MIN_MULTI_RECV, 8), -FI_ENOPROTOOPT);
    assert_eq!(getopt(FI_OPT_MIN_MULTI_RECV, 8), (0, 100, 8));
    assert_eq!(op!(ep, ops.tx_size_left()), -FI_ENOSYS as isize);
}

#[test]
fn a_shared_receive_context_serves_endpoints() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let mut srx: *mut fid_ep = ptr::null_mut();
    let attr = info.get().rx_attr;
    let code = op!(domain, ops.srx_ctx(attr, &mut srx, ptr::null_mut()));
    if code == 0 {
        let mut got = [0_u8; 4];
        let buf = got.as_mut_ptr().cast::<c_void>();
        assert_eq!(
            op!(srx, msg.recv(buf, 4, NONE, FI_ADDR_UNSPEC, context(1))),
            0
        );
        let send = op!(srx, msg.send(buf, 4, NONE, 0, NONE));
        assert_eq!(send, -FI_ENOSYS as isize);
        let (none, mut plain) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(op!(domain, ops.srx_ctx(none, &mut plain, NONE)), 0);
        assert_eq!(close(plain), 0);
        assert_eq!(close(domain), -FI_EBUSY);
        assert_eq!(close(srx), 0);
    } else {
        assert_eq!(code, -FI_ENOSYS);
    }
    close_all!(domain, fabric);
}
