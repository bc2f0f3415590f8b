//! `tcp;ofi_rxm`: two endpoints in one process, and bytes that C libfabric has sent.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common;
use crate::freed::unpark;
use crate::pair::{self, End, PATIENCE, open};
use ripstop_core::Info;
use ripstop_core::provider::{CompletionQueue, Domain, Endpoint, Fabric as _, RecvKind, SendKind};
use ripstop_mem::Parked;
use ripstop_tcp::{RxmTcp, RxmTcpProvider};
use ripstop_types::{EpType, Errno, FiAddr, Flags, Progress, Threading};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::cm::{Answer, EAGER_MAX, Extensions, FlowControl, Number, Reason, Request};
use ripstop_wire::xnet::cm::Kind;

/// Around the longest message that is in one packet, and much longer.
const SIZES: [usize; 6] = [0, 5, 16_384, 16_385, 20_000, 300_000];

fn rdm() -> (Info, Arc<ripstop_stream::Fabric<RxmTcp>>) {
    pair::rdm(&RxmTcpProvider::new(), Threading::Domain)
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + len) as u8).collect()
}

fn kinds(tag: Option<u64>) -> (SendKind, RecvKind) {
    match tag {
        None => (SendKind::Msg, RecvKind::Msg),
        Some(tag) => (
            SendKind::Tagged(tag),
            RecvKind::Tagged {
                tag: tag & !0xff,
                ignore: 0xff,
            },
        ),
    }
}

/// One message; the receive is posted before it comes or after. `room` is that of the receive.
fn exchange<D: Domain>(a: &End<D>, b: &End<D>, tag: Option<u64>, len: usize, waits: bool) {
    let (send, recv) = kinds(tag);
    let from = Parked::park(payload(len));
    let into = Parked::park(vec![0; len]);
    let post = || {
        b.ep.recv(recv, &[into.buf()], b.peer, 2, None).unwrap();
    };
    if !waits {
        post();
    }
    let data = (len % 2 == 1).then_some(0xabcd_ef01_2345);
    a.ep.send(send, &[from.buf()], data, a.peer, 1, None)
        .unwrap();
    if waits {
        // A message of the other kind behind it: once that is there, this one is.
        let marker = Parked::park(vec![9; 3]);
        let room = Parked::park(vec![0; 3]);
        let (after, before) = kinds(match tag {
            None => Some(0x100),
            Some(_) => None,
        });
        b.ep.recv(before, &[room.buf()], FiAddr::UNSPEC, 4, None)
            .unwrap();
        a.ep.send(after, &[marker.buf()], None, a.peer, 3, None)
            .unwrap();
        assert_eq!(b.next().context, 4);
        assert_eq!(unpark(room), [9; 3]);
        post();
    }
    let got = b.next();
    assert_eq!((got.context, got.len), (2, len), "{tag:?} {len} {waits}");
    assert_eq!(got.src, b.peer);
    assert_eq!(got.tag, tag.unwrap_or_default());
    assert_eq!(got.flags.contains(Flags::REMOTE_CQ_DATA), data.is_some());
    assert_eq!(got.data, data.unwrap_or_default());
    let mut sent = vec![a.next().context];
    if waits {
        sent.push(a.next().context);
        // The marker does not wait to be read.
        sent.sort_unstable();
        assert_eq!(sent, [1, 3]);
    } else {
        assert_eq!(sent, [1]);
    }
    assert_eq!(unpark(into), payload(len));
    assert_eq!(unpark(from), payload(len));
}

#[test]
fn messages_of_all_lengths_both_ways() {
    let (info, fabric) = rdm();
    let domain = fabric.serial_domain(&info).unwrap();
    let (mut a, mut b) = (open(&domain, &info), open(&domain, &info));
    a.meet(&mut b);
    for len in SIZES {
        for tag in [None, Some(0x1234_5678_9abc_de07)] {
            for waits in [false, true] {
                exchange(&a, &b, tag, len, waits);
                exchange(&b, &a, tag, len, waits);
            }
        }
    }
}

#[test]
fn injected_messages_arrive() {
    let (info, fabric) = rdm();
    let domain = fabric.serial_domain(&info).unwrap();
    let (mut a, mut b) = (open(&domain, &info), open(&domain, &info));
    a.meet(&mut b);
    for len in [0, 1, 128] {
        for tag in [None, Some(0x1234)] {
            let (send, recv) = kinds(tag);
            let (from, into) = (Parked::park(payload(len)), Parked::park(vec![0; len]));
            b.ep.recv(recv, &[into.buf()], b.peer, 2, None).unwrap();
            let end = Instant::now() + PATIENCE;
            while let Err(error) = a.ep.inject(send, from.buf(), None, a.peer) {
                assert_eq!(error, Errno::EAGAIN);
                assert!(Instant::now() < end, "it is never accepted");
                // The other side accepts the connection.
                assert_eq!(b.cq.read(0, |_| ()), Err(Errno::EAGAIN));
            }
            assert_eq!(b.next().context, 2);
            assert_eq!(unpark(into), payload(len));
        }
    }
}

#[test]
fn a_message_longer_than_its_receive_is_truncated() {
    let (info, fabric) = rdm();
    let domain = fabric.serial_domain(&info).unwrap();
    let (mut a, mut b) = (open(&domain, &info), open(&domain, &info));
    a.meet(&mut b);
    for len in [100, 20_000] {
        for room in [0, 99] {
            let (from, into) = (Parked::park(payload(len)), Parked::park(vec![0; room]));
            b.ep.recv(RecvKind::Msg, &[into.buf()], FiAddr::UNSPEC, 2, None)
                .unwrap();
            a.ep.send(SendKind::Msg, &[from.buf()], None, a.peer, 1, None)
                .unwrap();
            let end = Instant::now() + PATIENCE;
            while b.cq.read(1, |c| panic!("{c:?}")) != Err(Errno::EAVAIL) {
                assert!(Instant::now() < end, "no error entry");
            }
            b.cq.read_error(|error, _| {
                assert_eq!((error.err, error.olen), (Errno::ETRUNC, len - room));
            })
            .unwrap();
            assert_eq!(a.next().context, 1);
            assert_eq!(unpark(into), payload(len)[..room]);
        }
    }
}

fn request(port: u16, eager_max: u32) -> [u8; 24] {
    let request = Request {
        port,
        flow_control: FlowControl::Off,
        eager_max,
        extensions: Extensions::empty(),
        rx_size: 4096,
        number: Number { pid: 7, index: 3 },
    };
    request.emit(ByteOrder::NATIVE).unwrap()
}

#[test]
fn who_cannot_be_understood_is_refused() {
    let (info, fabric) = rdm();
    let domain = fabric.serial_domain(&info).unwrap();
    let a = open(&domain, &info);
    let (_, kind, _) = a.dialled(&request(1, EAGER_MAX + 1));
    assert_eq!(kind, Kind::Reject);
    let mut other = request(1, EAGER_MAX);
    other[3] += 1;
    let (_, kind, _) = a.dialled(&other);
    assert_eq!(kind, Kind::Reject);
    // The greeting of an endpoint of xnet.
    let (_, kind, _) = a.dialled(&[1, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(kind, Kind::Reject);
    // A second request of one process for one endpoint.
    let (_first, kind, answer) = a.dialled(&request(1, EAGER_MAX));
    assert_eq!(kind, Kind::Response);
    assert!(Answer::parse(ByteOrder::NATIVE, &answer).is_ok());
    let (_, kind, why) = a.dialled(&request(1, EAGER_MAX));
    assert_eq!(kind, Kind::Reject);
    assert_eq!(Reason::parse(&why), Ok(Reason::Connected));
}

/// A message from one domain to another that does nothing for a while: whether it is sent meanwhile, for which the other has
/// to accept a connection. Hints with this progress are answered with `answered`.
fn arrives_meanwhile(asked: Progress, answered: Progress) -> bool {
    let provider = RxmTcpProvider::new();
    let caps = Flags::MSG | Flags::TAGGED;
    let hints = common::hints(EpType::Rdm, caps, Threading::Safe, asked);
    let (info, fabric) = crate::fabric(&provider, &hints);
    let found = (info.domain.progress, info.domain.control_progress);
    assert_eq!(found, (answered, answered));
    let [near, far] = [(); 2].map(|()| fabric.safe_domain(&info).unwrap());
    let (mut a, mut b) = (open(&near, &info), open(&far, &info));
    a.meet(&mut b);
    let (from, into) = (Parked::park(payload(100)), Parked::park(vec![0; 100]));
    b.ep.recv(RecvKind::Msg, &[into.buf()], FiAddr::UNSPEC, 2, None)
        .unwrap();
    a.ep.send(SendKind::Msg, &[from.buf()], None, a.peer, 1, None)
        .unwrap();
    // A thread of the library needs 1 ms before it begins, and more where the machine is busy; where there is none,
    // no time is enough.
    let patience = match answered {
        Progress::Auto => PATIENCE,
        _ => Duration::from_millis(200),
    };
    let end = Instant::now() + patience;
    let mut has_come = false;
    while !has_come && Instant::now() < end {
        // Sent is what the other side has accepted a connection for.
        has_come = a.cq.read(1, |_| ()).is_ok();
    }
    if !has_come {
        drive_until(&b, || a.cq.read(1, |_| ()).is_ok());
    }
    assert_eq!(b.next().context, 2);
    assert_eq!(unpark(into), payload(100));
    has_come
}

/// Makes progress at one end until this is so.
fn drive_until<D: Domain>(end: &End<D>, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    // Nothing is taken.
    while !is_so() {
        assert!(Instant::now() < until, "nothing comes of progress");
        let _ = end.cq.read(0, |_| ());
    }
}

#[test]
fn a_domain_has_a_thread_where_the_program_asks_for_that() {
    assert!(!arrives_meanwhile(Progress::Unspec, Progress::Manual));
    assert!(!arrives_meanwhile(Progress::Manual, Progress::Manual));
    assert!(arrives_meanwhile(Progress::Auto, Progress::Auto));
}

/// C libfabric 1.17 sends short tagged messages over tcp without a packet.
#[test]
#[cfg(target_endian = "little")]
fn tagged_messages_without_a_packet_are_received() {
    let (info, fabric) = rdm();
    let domain = fabric.serial_domain(&info).unwrap();
    let a = open(&domain, &info);
    let drive = || assert_eq!(a.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    let (mut stream, kind, _) = a.dialled(&request(1, EAGER_MAX));
    assert_eq!(kind, Kind::Response);
    let any = RecvKind::Tagged {
        tag: 0,
        ignore: u64::MAX,
    };
    #[rustfmt::skip]
    let plain = [
        3, 0, 0x80, 0, 0, 0, 0x18, 0, 0x1d, 0, 0, 0, 0, 0, 0, 0,
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, b'h', b'e', b'l', b'l', b'o',
    ];
    #[rustfmt::skip]
    let with_data = [
        3, 0, 0x81, 0, 0, 0, 0x20, 0, 0x25, 0, 0, 0, 0, 0, 0, 0,
        0xef, 0xcd, 0xab, 0, 0, 0, 0, 0, 0x42, 0, 0, 0, 0, 0, 0, 0, b'h', b'e', b'l', b'l', b'o',
    ];
    for (bytes, tag, data) in [
        (&plain[..], 0x1122_3344_5566_7788, 0),
        (&with_data[..], 0x42, 0x00ab_cdef),
    ] {
        let into = Parked::park(vec![0; 10]);
        a.ep.recv(any, &[into.buf()], FiAddr::UNSPEC, 1, None)
            .unwrap();
        // Cut where the header is not whole.
        stream.write_all(&bytes[..20]).unwrap();
        drive();
        stream.write_all(&bytes[20..]).unwrap();
        let got = a.next();
        assert_eq!((got.tag, got.data, got.len), (tag, data, 5));
        assert_eq!(unpark(into)[..5], *b"hello");
    }
}
