//! Endpoints: binding, enabling, options, cancelling, shared contexts.

use ripstop_core::SHARED_CONTEXT;
use ripstop_types::{Errno, Flags, WaitObj};

use crate::case::{Cx, Outcome, Step, Stop, cases, in_use, offered, refused};
use crate::rig::{A, B, Rig, Spec, bare, hints, listening, pattern, prepare, query};
use crate::subject::{CqAttr, EpOption, Fid, Post};
use crate::{ensure, ensure_eq};

cases! {
    pub(super) const CASES;
    fi_endpoint {
        both open_close: "an endpoint opens and closes again and again";
        both enable_no_cq: "without completion queues enabling says FI_ENOCQ";
        both enable_tx_only: "without a queue for receives enabling says FI_ENOCQ";
        both enable_rx_only: "without a queue for transmits enabling says FI_ENOCQ";
        both enable_one_sided: "an endpoint that only reads and writes needs no queue for receives";
        rdm enable_no_av: "without an address vector enabling says FI_ENOAV";
        msg enable_no_eq: "without an event queue enabling says FI_ENOEQ";
        both enable_later: "an endpoint that could not be enabled can be after binding more";
        both bind_wrong_object: "an endpoint does not take a fabric, a domain or itself";
        both bind_wrong_flags: "flags that make no sense for a queue are refused";
        both small_queue: "a transmit queue that was asked to be small takes what another takes";
        both bind_twice: "a second queue for one direction is refused";
        both bind_other_domain: "a queue or a counter of another domain is FI_EDOMAIN";
        rdm bind_av_domain: "an address vector of another domain is FI_EDOMAIN";
        msg bind_av: "a connected endpoint lets an address vector be bound, which it has no use for";
        both bind_enabled: "an enabled endpoint takes no further queue";
        both option_unknown: "an unknown option is FI_ENOPROTOOPT";
        both options: "the options that tell limits agree with the info";
        both cancel: "a canceled receive ends with FI_ECANCELED, the others go on";
        both cancel_done: "canceling what has ended changes nothing";
        both cancel_all: "hundreds of receives are canceled in any order";
        both close_pending: "an endpoint closes with receives posted";
        both close_sending: "an endpoint closes with sends under way";
        msg shared_rx: "endpoints receive from a shared context";
        msg shared_rx_busy: "a shared context does not close while bound";
        both shared_rx_domain:
            "a shared context of another domain is FI_EDOMAIN, and so are a queue and a counter for one";
    }
}

/// A fabric with one endpoint that has no bindings, and its domain.
fn unbound<'a>(cx: &Cx<'a>) -> Step<(Rig<'a>, Fid, Fid)> {
    let rig = bare(cx, &Spec::default())?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    let ep = cx.s.endpoint(domain, &rig.info)?;
    Ok((rig, domain, ep))
}

/// Binds what an endpoint needs besides completion queues.
fn bind_rest(cx: &Cx<'_>, rig: &Rig<'_>, domain: Fid, ep: Fid) -> Outcome {
    let other = match cx.is_rdm() {
        true => cx.s.av(domain, Spec::default().av)?,
        false => cx.s.eq(rig.fabric, WaitObj::None)?,
    };
    Ok(cx.s.bind(ep, other, Flags::empty())?)
}

const BOTH: Flags = Flags::SEND.union(Flags::RECV);

fn open_close(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    for _ in 0..50 {
        let ep = cx.s.endpoint(domain, &rig.info)?;
        cx.s.close(ep)?;
    }
    cx.s.close(domain)?;
    cx.s.close(rig.fabric)?;
    Ok(())
}

fn enable_no_cq(cx: &Cx<'_>) -> Outcome {
    let (rig, domain, ep) = unbound(cx)?;
    bind_rest(cx, &rig, domain, ep)?;
    refused(cx.s.enable(ep), &[Errno::ENOCQ], "enabling without queues")
}

fn enable_tx_only(cx: &Cx<'_>) -> Outcome {
    let (rig, domain, ep) = unbound(cx)?;
    bind_rest(cx, &rig, domain, ep)?;
    let cq = cx.s.cq(domain, CqAttr::default())?;
    cx.s.bind(ep, cq, Flags::SEND)?;
    refused(
        cx.s.enable(ep),
        &[Errno::ENOCQ],
        "enabling without a queue for receives",
    )
}

fn enable_rx_only(cx: &Cx<'_>) -> Outcome {
    let (rig, domain, ep) = unbound(cx)?;
    bind_rest(cx, &rig, domain, ep)?;
    let cq = cx.s.cq(domain, CqAttr::default())?;
    cx.s.bind(ep, cq, Flags::RECV)?;
    refused(
        cx.s.enable(ep),
        &[Errno::ENOCQ],
        "enabling without a queue for transmits",
    )
}

fn enable_one_sided(cx: &Cx<'_>) -> Outcome {
    let spec = Spec {
        caps: Flags::RMA,
        ..Spec::default()
    };
    let rig = bare(cx, &spec)?;
    if rig.info.caps.intersects(Flags::MSG | Flags::TAGGED) {
        return Err(Stop::not_offered("messages come unasked"));
    }
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    let ep = cx.s.endpoint(domain, &rig.info)?;
    bind_rest(cx, &rig, domain, ep)?;
    let cq = cx.s.cq(domain, CqAttr::default())?;
    cx.s.bind(ep, cq, Flags::SEND)?;
    Ok(cx.s.enable(ep)?)
}

fn enable_no_av(cx: &Cx<'_>) -> Outcome {
    let (_rig, domain, ep) = unbound(cx)?;
    let cq = cx.s.cq(domain, CqAttr::default())?;
    cx.s.bind(ep, cq, BOTH)?;
    refused(
        cx.s.enable(ep),
        &[Errno::ENOAV],
        "enabling without an address vector",
    )
}

fn enable_no_eq(cx: &Cx<'_>) -> Outcome {
    let (_rig, domain, ep) = unbound(cx)?;
    let cq = cx.s.cq(domain, CqAttr::default())?;
    cx.s.bind(ep, cq, BOTH)?;
    refused(
        cx.s.enable(ep),
        &[Errno::ENOEQ],
        "enabling without an event queue",
    )
}

fn enable_later(cx: &Cx<'_>) -> Outcome {
    let (rig, domain, ep) = unbound(cx)?;
    bind_rest(cx, &rig, domain, ep)?;
    refused(cx.s.enable(ep), &[Errno::ENOCQ], "enabling without queues")?;
    let cq = cx.s.cq(domain, CqAttr::default())?;
    cx.s.bind(ep, cq, BOTH)?;
    cx.s.enable(ep)?;
    let mut post = Post::recv(8);
    post.token = 1;
    cx.s.post(ep, &post)?;
    cx.s.close(ep)?;
    Ok(())
}

fn bind_wrong_object(cx: &Cx<'_>) -> Outcome {
    let (rig, domain, ep) = unbound(cx)?;
    let reasons = [Errno::EINVAL, Errno::ENOSYS, Errno::EBADFLAGS];
    for (wrong, what) in [
        (rig.fabric, "a fabric"),
        (domain, "a domain"),
        (ep, "itself"),
    ] {
        refused(
            cx.s.bind(ep, wrong, Flags::empty()),
            &reasons,
            &format!("binding {what}"),
        )?;
    }
    Ok(())
}

fn bind_wrong_flags(cx: &Cx<'_>) -> Outcome {
    let (_rig, domain, ep) = unbound(cx)?;
    let cq = cx.s.cq(domain, CqAttr::default())?;
    let reasons = [Errno::EINVAL, Errno::EBADFLAGS];
    for flags in [BOTH | Flags::MULTI_RECV, Flags::PEEK] {
        refused(
            cx.s.bind(ep, cq, flags),
            &reasons,
            &format!("a queue with {flags:?}"),
        )?;
    }
    cx.s.bind(ep, cq, BOTH)?;
    Ok(())
}

fn small_queue(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::rma().tx_size(4))?;
    rig.exchange(A, B, b"first")?;
    let target = rig.expose(B, &[0; 8], Flags::REMOTE_WRITE)?;
    let write = |number: u64| Post::write(number.to_ne_bytes(), target.at(0, 8));
    // None of these may say FI_EAGAIN.
    let writes: Vec<_> = (0..500)
        .map(|number| rig.try_post(A, write(number)))
        .collect::<Result<_, _>>()?;
    rig.all_done(A, writes)?;
    rig.finish()
}

fn bind_twice(cx: &Cx<'_>) -> Outcome {
    let (_rig, domain, ep) = unbound(cx)?;
    let (one, two) = (
        cx.s.cq(domain, CqAttr::default())?,
        cx.s.cq(domain, CqAttr::default())?,
    );
    cx.s.bind(ep, one, BOTH)?;
    let reasons = [Errno::EINVAL, Errno::EBUSY];
    for flags in [Flags::SEND, Flags::RECV] {
        refused(
            cx.s.bind(ep, two, flags),
            &reasons,
            &format!("a second queue for {flags:?}"),
        )?;
    }
    Ok(())
}

fn bind_other_domain(cx: &Cx<'_>) -> Outcome {
    let (rig, domain, ep) = unbound(cx)?;
    let other = cx.s.domain(rig.fabric, &rig.info)?;
    let cq = cx.s.cq(other, CqAttr::default())?;
    refused(
        cx.s.bind(ep, cq, BOTH),
        &[Errno::EDOMAIN],
        "a queue of another domain",
    )?;
    let cntr = cx.s.cntr(other, WaitObj::None)?;
    refused(
        cx.s.bind(ep, cntr, BOTH),
        &[Errno::EDOMAIN],
        "a counter of another domain",
    )?;
    // Nothing of it was bound.
    for fid in [cq, cntr, ep, other, domain] {
        cx.s.close(fid)?;
    }
    rig.close()
}

fn bind_av(cx: &Cx<'_>) -> Outcome {
    let (rig, domain, ep) = unbound(cx)?;
    let av = cx.s.av(domain, Spec::default().av)?;
    cx.s.bind(ep, av, Flags::empty())?;
    for fid in [ep, av, domain] {
        cx.s.close(fid)?;
    }
    rig.close()
}

fn bind_av_domain(cx: &Cx<'_>) -> Outcome {
    let (rig, domain, ep) = unbound(cx)?;
    let other = cx.s.domain(rig.fabric, &rig.info)?;
    let theirs = cx.s.av(other, Spec::default().av)?;
    let own = cx.s.av(domain, Spec::default().av)?;
    refused(
        cx.s.bind(ep, theirs, Flags::empty()),
        &[Errno::EDOMAIN],
        "an address vector of another domain",
    )?;
    // Nothing of it was bound.
    cx.s.bind(ep, own, Flags::empty())?;
    for fid in [theirs, ep, own, other, domain] {
        cx.s.close(fid)?;
    }
    rig.close()
}

fn bind_enabled(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let cq = cx.s.cq(rig.sides[A].domain, CqAttr::default())?;
    let reasons = [Errno::EINVAL, Errno::EBUSY, Errno::EOPBADSTATE];
    let bound = cx.s.bind(rig.sides[A].ep, cq, BOTH);
    refused(bound, &reasons, "a queue for an enabled endpoint")?;
    rig.exchange(A, B, b"as before")?;
    rig.exchange(B, A, b"as before")?;
    Ok(())
}

fn option_unknown(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let ep = rig.sides[A].ep;
    let reasons = [Errno::ENOPROTOOPT];
    refused(
        cx.s.option(ep, EpOption::Unknown),
        &reasons,
        "reading an unknown option",
    )?;
    refused(
        cx.s.set_option(ep, EpOption::Unknown, 1),
        &reasons,
        "setting an unknown option",
    )
}

fn options(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let ep = rig.sides[A].ep;
    let missing = [Errno::ENOPROTOOPT];
    for (option, limit) in [
        (EpOption::MaxMsgSize, rig.info.ep.max_msg_size),
        (EpOption::InjectMsgSize, rig.info.tx.inject_size),
    ] {
        match cx.s.option(ep, option) {
            Err(e) if e.is(Errno::ENOPROTOOPT) => {}
            read => {
                let read = offered(read, &missing, "FI_OPT_MAX_MSG_SIZE")?;
                ensure!(
                    read <= limit && read > 0,
                    "{option:?} is {read}, the info says {limit}"
                );
            }
        }
    }
    Ok(())
}

fn cancel(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let mut recvs = rig.post_all(B, (0..5).map(|_| Post::recv(64)))?;
    for i in [2, 0] {
        let canceled = recvs.remove(i);
        rig.s.cancel(rig.sides[B].ep, canceled)?;
        let error = rig.failed(B, canceled)?;
        ensure_eq!(error.err, Errno::ECANCELED, "the error");
    }
    for (i, recv) in recvs.into_iter().enumerate() {
        rig.complete(A, Post::send(pattern(64, i)))?;
        rig.arrives(recv, pattern(64, i))?;
    }
    rig.finish()
}

fn cancel_done(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let recv = rig.post(B, Post::recv(8))?;
    let send = rig.post(A, Post::send(*b"done"))?;
    rig.sent(A, send)?;
    // It has completed; whether that was read does not matter.
    match rig.s.cancel(rig.sides[B].ep, recv) {
        Ok(()) => {}
        Err(e) if e.errno().is_some() => {}
        Err(e) => return Err(e.into()),
    }
    rig.arrives(recv, b"done")?;
    rig.finish()
}

fn cancel_all(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let count = 200.min(rig.info.rx.size);
    let recvs = rig.post_all(B, (0..count).map(|_| Post::recv(8)))?;
    for i in 0..count {
        // 7 and 200 have no common factor.
        let recv = recvs[i * 7 % count];
        rig.s.cancel(rig.sides[B].ep, recv)?;
    }
    for recv in recvs {
        let error = rig.failed(B, recv)?;
        ensure_eq!(error.err, Errno::ECANCELED, "the error");
    }
    rig.exchange(A, B, b"after")?;
    rig.finish()
}

fn close_pending(cx: &Cx<'_>) -> Outcome {
    for _ in 0..5 {
        let rig = Rig::open(cx, &Spec::default())?;
        rig.exchange(A, B, b"first")?;
        for side in [A, B] {
            for _ in 0..10 {
                rig.post(side, Post::recv(100))?;
            }
        }
        rig.close()?;
    }
    Ok(())
}

fn close_sending(cx: &Cx<'_>) -> Outcome {
    for len in [64, 100_000, 8 << 20] {
        let rig = Rig::open(cx, &Spec::default())?;
        rig.exchange(A, B, b"first")?;
        for _ in 0..5 {
            rig.post(A, Post::send(vec![1; len]))?;
        }
        rig.close()?;
    }
    Ok(())
}

/// An info for endpoints that receive from a shared context.
fn with_shared_rx(cx: &Cx<'_>) -> Step<ripstop_core::Info> {
    let mut hints = hints(cx);
    hints.caps = Flags::MSG;
    if let Some(ep) = &mut hints.ep {
        ep.rx_ctx_cnt = SHARED_CONTEXT;
    }
    let infos = crate::rig::of_provider(cx, cx.s.getinfo(&query(cx, hints)));
    let infos = offered(infos, &[Errno::ENODATA], "a shared receive context")?;
    infos
        .into_iter()
        .next()
        .ok_or_else(|| Stop::fail("success with an empty list"))
}

fn shared_rx(cx: &Cx<'_>) -> Outcome {
    let info = with_shared_rx(cx)?;
    let spec = Spec::default();
    let (mut rig, name) = listening(cx, &spec)?;
    let s = cx.s;
    // Two clients of their own, two servers with one shared context.
    let domain = s.domain(rig.fabric, &info)?;
    let srx = offered(
        s.shared_rx(domain, &info),
        &[Errno::ENOSYS],
        "fi_srx_context",
    )?;
    let mut servers = Vec::new();
    for _ in 0..2 {
        let dialed = rig.dial(&spec, &name, &[])?;
        let (mut request, _) = rig.request(rig.eqs[B])?;
        request.ep.rx_ctx_cnt = SHARED_CONTEXT;
        let mut side = prepare(s, &spec, domain, &request)?;
        s.bind(side.ep, rig.eqs[B], Flags::empty())?;
        s.bind(side.ep, srx, Flags::empty())?;
        s.enable(side.ep)?;
        s.accept(side.ep, &[])?;
        side.eq = Some(rig.eqs[B]);
        rig.sides.push(side);
        servers.push(rig.sides.len() - 1);
        rig.connected(dialed)?;
        rig.connected(rig.sides.len() - 1)?;
    }
    let clients: Vec<_> = (0..rig.sides.len())
        .filter(|i| !servers.contains(i))
        .collect();
    let mut recvs = Vec::new();
    for _ in 0..6 {
        let mut post = Post::recv(8);
        post.token = rig.token();
        s.post(srx, &post)?;
        recvs.push(post.token);
    }
    for i in 0..6_u8 {
        let client = clients[usize::from(i) % 2];
        rig.complete(client, Post::send([i]))?;
        // The receive posted first is used first, whoever sent.
        let recv = recvs[usize::from(i)];
        let got = rig.until("the message at either server", || {
            Ok(servers
                .iter()
                .find_map(|server| rig.take_done(*server, recv)))
        })?;
        ensure!(got.bytes() == [i], "message {i} is {:?}", got.bytes());
    }
    Ok(())
}

fn shared_rx_busy(cx: &Cx<'_>) -> Outcome {
    let info = with_shared_rx(cx)?;
    let s = cx.s;
    let fabric = s.fabric(&info)?;
    let domain = s.domain(fabric, &info)?;
    let srx = offered(
        s.shared_rx(domain, &info),
        &[Errno::ENOSYS],
        "fi_srx_context",
    )?;
    let ep = s.endpoint(domain, &info)?;
    s.bind(ep, srx, Flags::empty())?;
    in_use(s.close(srx), "a bound shared context")?;
    s.close(ep)?;
    s.close(srx)?;
    s.close(domain)?;
    s.close(fabric)?;
    Ok(())
}

fn shared_rx_domain(cx: &Cx<'_>) -> Outcome {
    let info = with_shared_rx(cx)?;
    let s = cx.s;
    let fabric = s.fabric(&info)?;
    let (domain, other) = (s.domain(fabric, &info)?, s.domain(fabric, &info)?);
    let srx = offered(
        s.shared_rx(other, &info),
        &[Errno::ENOSYS],
        "fi_srx_context",
    )?;
    let ep = s.endpoint(domain, &info)?;
    refused(
        s.bind(ep, srx, Flags::empty()),
        &[Errno::EDOMAIN],
        "a shared context of another domain",
    )?;
    let cq = s.cq(domain, CqAttr::default())?;
    refused(
        s.bind(srx, cq, Flags::RECV),
        &[Errno::EDOMAIN],
        "a queue of another domain than that of the context",
    )?;
    let cntr = s.cntr(domain, WaitObj::None)?;
    refused(
        s.bind(srx, cntr, Flags::RECV),
        &[Errno::EDOMAIN],
        "a counter of another domain than that of the context",
    )?;
    // Nothing of it was bound.
    for fid in [cq, cntr, srx, ep, other, domain, fabric] {
        s.close(fid)?;
    }
    Ok(())
}
