//! Reliable datagrams on one thread.

use ripstop_foreign::{
    Buf, Completion, Cq, CqAttr, Failure, OpId, Rejected, Returned, Single, Threading,
};
use ripstop_types::{CqFormat, Errno, FiAddr, Flags};

use crate::{Pair, SOON, Side, find_rdm_info, library, pattern, rdm_info};

type M = Single;

fn pair(caps: Flags) -> Option<Pair<M>> {
    let library = library()?;
    Some(Pair::new(&rdm_info(&library, caps), CqAttr::default()))
}

/// Posts again and again while queues are full, with progress on both sides.
fn post<P>(
    sides: [&Side<M>; 2],
    mut payload: P,
    mut f: impl FnMut(P) -> Result<OpId, Rejected<P>>,
) -> OpId {
    loop {
        match f(payload) {
            Ok(op) => return op,
            Err(r) if r.is_again() => payload = r.payload,
            Err(r) => panic!("{}", r.error),
        }
        for side in sides {
            progress(side);
        }
    }
}

/// Lets a side work without reading an entry.
fn progress(side: &Side<M>) {
    match side.cq.read_up_to(&mut Vec::new(), 0) {
        Ok(count) => assert_eq!(count, 0),
        Err(e) => assert!(e.is_again() || e.errno == Errno::EAVAIL, "{e}"),
    }
}

/// The next completion of each queue, whichever comes first.
fn both<M: Threading>(a: &Cq<M>, b: &Cq<M>) -> (Completion, Completion) {
    let deadline = std::time::Instant::now() + SOON;
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    while of_a.is_empty() || of_b.is_empty() {
        assert!(
            std::time::Instant::now() < deadline,
            "no completion in time"
        );
        for (cq, out) in [(a, &mut of_a), (b, &mut of_b)] {
            match cq.read(out) {
                Ok(_) => {}
                Err(e) if e.is_again() => {}
                Err(e) if e.errno == Errno::EAVAIL => panic!("{}", cq.readerr().unwrap()),
                Err(e) => panic!("{e}"),
            }
        }
    }
    (of_a.remove(0), of_b.remove(0))
}

#[test]
fn messages_of_all_sizes_arrive_and_buffers_return() {
    let Some(pair) = pair(Flags::empty()) else {
        return;
    };
    let (a, b) = (&pair.a, &pair.b);
    for (i, len) in [0, 1, 8, 1000, 16_384, 100_000, 4 << 20]
        .into_iter()
        .enumerate()
    {
        let bytes = pattern(len, i);
        let token = i as u64;
        let tag = 0xfeed << 32 | token;

        let recv =
            b.ep.trecv(Buf::zeroed(len + 1), FiAddr::UNSPEC, tag, 0, token)
                .unwrap();
        let sent = post([a, b], Buf::from(&bytes[..]), |p| {
            a.ep.tsend(p, a.peer, tag, token)
        });
        let (s, r) = both(&a.cq, &b.cq);
        assert_eq!((s.op, s.token), (Some(sent), token));
        assert_eq!((r.op, r.token), (Some(recv), token));
        assert_eq!((r.len, r.tag), (len, tag));
        assert!(r.flags.contains(Flags::RECV | Flags::TAGGED));
        assert_eq!(&s.returned.into_buf().unwrap()[..], &bytes[..]);
        assert_eq!(&r.returned.into_buf().unwrap()[..len], &bytes[..]);

        b.ep.recv(Buf::zeroed(len), FiAddr::UNSPEC, token).unwrap();
        post([a, b], Buf::from(&bytes[..]), |p| {
            a.ep.send(p, a.peer, token)
        });
        let (_, r) = both(&a.cq, &b.cq);
        assert!(r.flags.contains(Flags::RECV | Flags::MSG));
        assert_eq!(&r.returned.into_buf().unwrap()[..], &bytes[..]);
    }
}

#[test]
fn injects_and_remote_data_arrive() {
    let Some(pair) = pair(Flags::empty()) else {
        return;
    };
    let (a, b) = (&pair.a, &pair.b);
    let data = 0x1234_5678;
    let receive = |token| {
        b.ep.trecv(Buf::zeroed(16), FiAddr::UNSPEC, 7, 0, token)
            .unwrap()
    };
    let arrived = |bytes: &[u8]| {
        let c = b.cq.wait(SOON).unwrap();
        assert_eq!(c.len, bytes.len());
        let has_data = c.flags.contains(Flags::REMOTE_CQ_DATA);
        let got = c.returned.into_buf().unwrap();
        assert_eq!(&got[..bytes.len()], bytes);
        has_data.then_some(c.data)
    };
    let retry = |f: &dyn Fn() -> ripstop_foreign::Result<()>| {
        while let Err(e) = f() {
            assert!(e.is_again(), "{e}");
            assert!(a.cq.read_up_to(&mut Vec::new(), 1).is_err());
            progress(b);
        }
    };

    receive(0);
    retry(&|| a.ep.tinject(b"inject", a.peer, 7));
    assert_eq!(arrived(b"inject"), None);
    receive(1);
    retry(&|| a.ep.tinjectdata(b"inject", data, a.peer, 7));
    assert_eq!(arrived(b"inject"), Some(data));
    receive(2);
    a.ep.tsenddata(Buf::from(&b"send"[..]), data, a.peer, 7, 9)
        .unwrap();
    assert_eq!(arrived(b"send"), Some(data));
    assert_eq!(a.cq.wait(SOON).unwrap().token, 9);

    b.ep.recv(Buf::zeroed(16), FiAddr::UNSPEC, 3).unwrap();
    retry(&|| a.ep.injectdata(b"untagged", data, a.peer));
    assert_eq!(arrived(b"untagged"), Some(data));
    assert!(
        matches!(a.cq.read_up_to(&mut Vec::new(), 1), Err(e) if e.is_again()),
        "an inject completed"
    );
}

#[test]
fn pieces_gather_and_scatter() {
    let Some(pair) = pair(Flags::empty()) else {
        return;
    };
    let (a, b) = (&pair.a, &pair.b);
    let bufs = |sizes: [usize; 3]| sizes.map(Buf::zeroed).into_iter().collect::<Vec<_>>();
    b.ep.trecvmsg(bufs([5, 2, 3]), FiAddr::UNSPEC, 1, 0, Flags::COMPLETION, 0)
        .unwrap();
    let send: Vec<Buf> = [&b"abc"[..], b"defgh", b"ij"]
        .into_iter()
        .map(Buf::from)
        .collect();
    post([a, b], send, |p| {
        a.ep.tsendmsg(
            p,
            a.peer,
            1,
            77,
            Flags::REMOTE_CQ_DATA | Flags::COMPLETION,
            0,
        )
    });
    let (_, r) = both(&a.cq, &b.cq);
    assert_eq!(r.data, 77);
    let Returned::Bufs(bufs) = r.returned else {
        panic!("no buffers came back")
    };
    assert_eq!(
        [&bufs[0][..], &bufs[1][..], &bufs[2][..]],
        [&b"abcde"[..], b"fg", b"hij"]
    );

    let many = (0..17).map(|_| Buf::zeroed(1)).collect::<Vec<_>>();
    let refused =
        a.ep.sendmsg(many, a.peer, 0, Flags::empty(), 0)
            .unwrap_err();
    assert_eq!(
        (refused.error.errno, refused.payload.len()),
        (Errno::EINVAL, 17)
    );
}

#[test]
fn slices_of_a_region_stream_without_buffers() {
    let Some(pair) = pair(Flags::empty()) else {
        return;
    };
    let (a, b) = (&pair.a, &pair.b);
    const SIZE: usize = 1000;
    const WINDOW: usize = 32;
    let (from, to) = (pair.domain.region(SIZE), pair.domain.region(SIZE * WINDOW));
    let bytes = pattern(SIZE, 3);
    from.write(0, &bytes);
    for _ in 0..20 {
        for i in 0..WINDOW {
            let slice = to.slice(i * SIZE..(i + 1) * SIZE);
            b.ep.trecv(slice, FiAddr::UNSPEC, 5, 0, 0).unwrap();
        }
        let (mut sends, mut sent, mut received) = (0, 0, 0);
        while sent < WINDOW || received < WINDOW {
            if sends < WINDOW && a.ep.tsend(from.slice(0..SIZE), a.peer, 5, 0).is_ok() {
                sends += 1;
            }
            sent += a.cq.read_up_to(&mut Vec::new(), 16).unwrap_or(0);
            received += b.cq.read_up_to(&mut Vec::new(), 16).unwrap_or(0);
        }
    }
    let mut got = vec![0; SIZE - 3];
    for i in 0..WINDOW {
        to.read(i * SIZE + 3, &mut got);
        assert_eq!(got, bytes[3..]);
    }
}

#[test]
fn a_slice_of_another_domain_is_refused() {
    let (Some(one), Some(two)) = (pair(Flags::empty()), pair(Flags::empty())) else {
        return;
    };
    let region = two.domain.region(8);
    let refused = one.a.ep.tsend(region.slice(0..8), one.a.peer, 0, 0);
    assert_eq!(refused.err().unwrap().error.errno, Errno::EDOMAIN);
}

#[test]
fn a_message_that_does_not_fit_is_an_error() {
    let Some(pair) = pair(Flags::empty()) else {
        return;
    };
    let (a, b) = (&pair.a, &pair.b);
    let op =
        b.ep.trecv(Buf::zeroed(4), FiAddr::UNSPEC, 1, 0, 42)
            .unwrap();
    post([a, b], Buf::zeroed(10), |p| a.ep.tsend(p, a.peer, 1, 0));
    let Err(Failure::Operation(error)) = b.cq.wait(SOON) else {
        panic!("no error")
    };
    // rxm does not say how much was lost.
    assert!(
        error.err == Errno::ETRUNC && [0, 6].contains(&error.olen),
        "{error:?}"
    );
    assert_eq!((error.entry.op, error.entry.token), (Some(op), 42));
    assert_eq!(error.entry.returned.into_buf().unwrap().len(), 4);
}

#[test]
fn a_cancelled_receive_returns_its_buffer() {
    let Some(pair) = pair(Flags::empty()) else {
        return;
    };
    let op = pair
        .b
        .ep
        .trecv(Buf::zeroed(4), FiAddr::UNSPEC, 1, 0, 1)
        .unwrap();
    pair.b.ep.cancel(op).unwrap();
    let Err(Failure::Operation(error)) = pair.b.cq.wait(SOON) else {
        panic!("no error")
    };
    assert_eq!((error.err, error.entry.op), (Errno::ECANCELED, Some(op)));
    assert!(error.entry.returned.into_buf().is_some());
    assert_eq!(pair.b.ep.cancel(op).unwrap_err().errno, Errno::ENOENT);
}

#[test]
fn peek_claim_and_discard() {
    let Some(pair) = pair(Flags::empty()) else {
        return;
    };
    let (a, b) = (&pair.a, &pair.b);
    let any = FiAddr::UNSPEC;
    b.ep.tpeek(any, 1, 0, Flags::empty(), 5).unwrap();
    let Err(Failure::Operation(none)) = b.cq.wait(SOON) else {
        panic!("found nothing sent")
    };
    assert_eq!((none.err, none.entry.token), (Errno::ENOMSG, 5));

    let found = |flags: Flags| {
        let deadline = std::time::Instant::now() + SOON;
        loop {
            b.ep.tpeek(any, 1, 0, flags, 6).unwrap();
            match b.cq.wait(SOON) {
                Ok(c) => return c,
                Err(Failure::Operation(e)) if e.err == Errno::ENOMSG => {}
                Err(e) => panic!("{e}"),
            }
            assert!(std::time::Instant::now() < deadline);
            progress(a);
        }
    };
    for text in [&b"first"[..], b"second", b"third"] {
        post([a, b], Buf::from(text), |p| a.ep.tsend(p, a.peer, 1, 0));
    }
    let peeked = found(Flags::empty());
    assert_eq!((peeked.len, peeked.tag), (5, 1));
    let Returned::Claim(claim) = found(Flags::CLAIM).returned else {
        panic!("no claim")
    };
    let (claim, refused) =
        a.ep.tclaim(claim, Buf::zeroed(8), any, 1, 0, 7)
            .unwrap_err();
    assert_eq!(refused.error.errno, Errno::EINVAL);
    b.ep.tclaim(claim, Buf::zeroed(8), any, 1, 0, 7).unwrap();
    let claimed = b.cq.wait(SOON).unwrap();
    assert_eq!((claimed.token, claimed.len), (7, 5));
    assert_eq!(&claimed.returned.into_buf().unwrap()[..5], b"first");

    let Returned::Claim(claim) = found(Flags::CLAIM).returned else {
        panic!("no claim")
    };
    b.ep.tdiscard(claim, any, 1, 0, 8).unwrap();
    assert_eq!(b.cq.wait(SOON).unwrap().token, 8);
    b.ep.trecv(Buf::zeroed(8), any, 1, 0, 9).unwrap();
    let last = b.cq.wait(SOON).unwrap();
    assert_eq!(&last.returned.into_buf().unwrap()[..5], b"third");
}

#[test]
fn a_multi_receive_buffer_takes_many_messages() {
    let Some(pair) = pair(Flags::MULTI_RECV) else {
        return;
    };
    let (a, b) = (&pair.a, &pair.b);
    b.ep.recv_multi(Buf::zeroed(200), FiAddr::UNSPEC, 11)
        .unwrap();
    let mut released = None;
    let mut count = 0;
    while released.is_none() {
        let bytes = pattern(40, count);
        post([a, b], Buf::from(&bytes[..]), |p| a.ep.send(p, a.peer, 0));
        a.cq.wait(SOON).unwrap();
        loop {
            let c = b.cq.wait(SOON).unwrap();
            assert_eq!(c.token, 11);
            let Returned::Piece {
                bytes: got,
                released: end,
            } = c.returned
            else {
                panic!("no piece")
            };
            released = end;
            if c.len > 0 {
                assert_eq!(got, bytes);
                break;
            }
        }
        count += 1;
        assert!(count <= 5);
    }
    assert_eq!(released.unwrap().len(), 200);
}

#[test]
fn a_receive_names_its_source() {
    let Some(pair) = pair(Flags::SOURCE | Flags::DIRECTED_RECV) else {
        return;
    };
    let (a, b) = (&pair.a, &pair.b);
    b.ep.trecv(Buf::zeroed(4), b.peer, 1, 0, 0).unwrap();
    post([a, b], Buf::zeroed(4), |p| a.ep.tsend(p, a.peer, 1, 0));
    let (_, r) = both(&a.cq, &b.cq);
    assert_eq!(r.src, b.peer);
}

#[test]
fn an_address_vector_answers() {
    let Some(pair) = pair(Flags::empty()) else {
        return;
    };
    let name = pair.a.ep.getname().unwrap();
    assert_eq!(pair.b.av.lookup(pair.b.peer).unwrap(), name);
    let text = pair.b.av.straddr(&name).unwrap();
    assert!(text.contains("127.0.0.1"), "{text}");
    let port = name.socket_addr().unwrap().port().to_string();
    pair.a.av.insert_service("127.0.0.1", Some(&port)).unwrap();
    let short = ripstop_foreign::Addr::from_bytes(&name.as_bytes()[..7]);
    assert_eq!(pair.b.av.insert(&short).unwrap_err().errno, Errno::EINVAL);
    pair.b.av.remove(&[pair.b.peer]).unwrap();
}

#[test]
fn rma_reaches_a_registered_region() {
    let Some(library) = library() else { return };
    let Some(info) = find_rdm_info(&library, Flags::RMA) else {
        eprintln!("SKIP: {library:?} has no RMA over tcp");
        return;
    };
    let pair: Pair<M> = Pair::new(&info, CqAttr::default());
    let (a, b) = (&pair.a, &pair.b);
    let target = pair.domain.region(64);
    let access = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
    let mr = target.register(access, 4711).unwrap();
    let base = match info.mr_mode().contains(ripstop_types::MrMode::VIRT_ADDR) {
        true => mr.address(),
        false => 0,
    };
    let key = mr.key().unwrap();
    let done = || {
        let deadline = std::time::Instant::now() + SOON;
        loop {
            match a.cq.wait(std::time::Duration::ZERO) {
                Ok(c) => return c,
                Err(Failure::Call(e)) if e.errno == Errno::ETIMEDOUT => {}
                Err(e) => panic!("{e}"),
            }
            // The target side makes progress by being read.
            assert!(b.cq.read_up_to(&mut Vec::new(), 1).is_err());
            assert!(std::time::Instant::now() < deadline);
        }
    };
    post([a, b], Buf::from(&b"hello"[..]), |p| {
        a.ep.write(p, a.peer, base + 8, key, 1)
    });
    assert_eq!(done().token, 1);
    post([a, b], Buf::zeroed(5), |p| {
        a.ep.read(p, a.peer, base + 8, key, 2)
    });
    assert_eq!(&done().returned.into_buf().unwrap()[..], b"hello");
    let mut got = [0; 5];
    mr.region().read(8, &mut got);
    assert_eq!(&got, b"hello");
}

#[test]
fn every_entry_format_reads() {
    let Some(library) = library() else { return };
    let info = rdm_info(&library, Flags::empty());
    for format in [
        CqFormat::Context,
        CqFormat::Msg,
        CqFormat::Data,
        CqFormat::Tagged,
    ] {
        let pair: Pair<M> = Pair::new(
            &info,
            CqAttr {
                format,
                ..CqAttr::default()
            },
        );
        let (a, b) = (&pair.a, &pair.b);
        b.ep.trecv(Buf::zeroed(8), FiAddr::UNSPEC, 3, 0, 21)
            .unwrap();
        post([a, b], Buf::from(&b"four"[..]), |p| {
            a.ep.tsend(p, a.peer, 3, 22)
        });
        let (s, r) = both(&a.cq, &b.cq);
        assert_eq!((s.token, r.token), (22, 21));
        assert_eq!(r.len, if format == CqFormat::Context { 0 } else { 4 });
        assert_eq!(r.tag, if format == CqFormat::Tagged { 3 } else { 0 });
        assert_eq!(&r.returned.into_buf().unwrap()[..4], b"four");
    }
}

#[test]
fn anything_may_be_dropped_first() {
    let Some(Pair { domain, a, b }) = pair(Flags::empty()) else {
        return;
    };
    for i in 0..8 {
        b.ep.trecv(Buf::zeroed(64), FiAddr::UNSPEC, i, 0, i)
            .unwrap();
    }
    let region = domain.region(64);
    b.ep.trecv(region.slice(0..64), FiAddr::UNSPEC, 9, 0, 9)
        .unwrap();
    drop(domain);
    drop(region);
    let Side { ep, cq, av, peer } = a;
    drop((cq, av));
    drop(b.av);
    // The connection may not be up yet, so the buffer may come back.
    if let Err(refused) = ep.tsend(Buf::zeroed(8), peer, 1, 0) {
        assert!(refused.is_again(), "{}", refused.error);
    }
    drop(ep);
    drop((b.ep, b.cq));
}

#[test]
fn a_full_book_says_again() {
    let Some(library) = library() else { return };
    let info = rdm_info(&library, Flags::empty());
    let fabric = library.fabric(&info).unwrap();
    let options = ripstop_foreign::DomainOptions::max_ops(2);
    let domain = fabric.domain_with::<M>(&info, options).unwrap();
    let side = Side::new(&domain, &info, CqAttr::default());
    side.ep
        .trecv(Buf::zeroed(1), FiAddr::UNSPEC, 0, 0, 0)
        .unwrap();
    let op = side
        .ep
        .trecv(Buf::zeroed(1), FiAddr::UNSPEC, 0, 0, 0)
        .unwrap();
    let refused = side
        .ep
        .trecv(Buf::zeroed(3), FiAddr::UNSPEC, 0, 0, 0)
        .unwrap_err();
    assert!(refused.is_again());
    assert_eq!(refused.payload.len(), 3);
    side.ep.cancel(op).unwrap();
    assert!(matches!(side.cq.wait(SOON), Err(Failure::Operation(_))));
    side.ep
        .trecv(refused.payload, FiAddr::UNSPEC, 0, 0, 0)
        .unwrap();
}
