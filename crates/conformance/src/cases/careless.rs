//! What careless and old programs do through the C interface.

use ripstop_types::{Errno, Flags, MrMode, Version, WaitObj};

use super::c_edge;
use crate::case::{Cx, Outcome, Stop, cases, offered, refused};
use crate::ensure;
use crate::pace::soon;
use crate::rig::{A, B, Rig, Spec, bare};
use crate::subject::{CqAttr, EpOption, Fid, Post};

cases! {
    pub(super) const CASES;
    fi_getinfo {
        both null: "null for the answer or the attributes is an error";
    }
    fi_fabric {
        both null: "null where a fabric's calls want something is an error" = null_fabric;
    }
    fi_domain {
        both null: "null where a domain's calls want something is an error" = null_domain;
    }
    fi_endpoint {
        both null: "null where an endpoint's calls want something is an error" = null_endpoint;
    }
    fi_cq {
        both null: "null for entries or an unknown command is an error" = null_cq;
    }
    fi_eq {
        both null: "null for an event or an unknown command is an error" = null_eq;
    }
    fi_cntr {
        both null: "an unknown command is an error" = null_cntr;
    }
    fi_cq {
        both err_entry: "an error entry is as long as the program's version knows it";
        both wait_object: "FI_GETWAITOBJ tells what a queue was opened with" = cq_wait_object;
    }
    fi_eq {
        both wait_object: "FI_GETWAITOBJ tells what a queue was opened with" = eq_wait_object;
    }
    fi_endpoint {
        both option_short: "an option that does not fit says FI_ETOOSMALL and the length";
        both option_set_short: "an option set from too few bytes is refused";
        both bind_nothing: "a completion queue or counter that is bound for nothing is not bound";
        both cancel_ended: "fi_cancel of what has ended is no error";
        both alias: "an endpoint with an alias does not close before it";
    }
}

/// Each of these calls ends in an error.
fn all_refused(cx: &Cx<'_>, fid: Option<Fid>) -> Outcome {
    for (call, said) in c_edge(cx)?.null_calls(fid)? {
        ensure!(said < 0, "{call} said {said}");
    }
    Ok(())
}

fn null(cx: &Cx<'_>) -> Outcome {
    all_refused(cx, None)
}

fn null_fabric(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    all_refused(cx, Some(rig.fabric))?;
    rig.exchange(A, B, b"after")?;
    rig.close()
}

fn null_domain(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    all_refused(cx, Some(rig.sides[A].domain))?;
    rig.exchange(A, B, b"after")?;
    rig.close()
}

fn null_endpoint(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    all_refused(cx, Some(rig.sides[A].ep))?;
    rig.exchange(A, B, b"after")?;
    rig.close()
}

fn null_cq(cx: &Cx<'_>) -> Outcome {
    for wait in [WaitObj::None, WaitObj::Fd] {
        let rig = Rig::open(cx, &Spec::default().wait(wait))?;
        all_refused(cx, Some(rig.sides[A].cq))?;
        rig.exchange(A, B, b"after")?;
        rig.close()?;
    }
    Ok(())
}

fn null_eq(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let eq = cx.s.eq(rig.fabric, WaitObj::Unspec)?;
    all_refused(cx, Some(eq))?;
    cx.s.close(eq)?;
    rig.close()
}

fn null_cntr(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let cntr = cx.s.cntr(rig.sides[A].domain, WaitObj::Unspec)?;
    all_refused(cx, Some(cntr))?;
    cx.s.close(cntr)?;
    rig.close()
}

fn bind_nothing(cx: &Cx<'_>) -> Outcome {
    c_edge(cx)?;
    let rig = bare(cx, &Spec::default())?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    let ep = cx.s.endpoint(domain, &rig.info)?;
    let (unused, cq) = (
        cx.s.cq(domain, CqAttr::default())?,
        cx.s.cq(domain, CqAttr::default())?,
    );
    cx.s.bind(ep, unused, Flags::empty())?;
    cx.s.bind(ep, unused, Flags::SELECTIVE_COMPLETION)?;
    cx.s.bind(ep, cq, Flags::SEND | Flags::RECV)?;
    let cntr = cx.s.cntr(domain, WaitObj::Unspec)?;
    cx.s.bind(ep, cntr, Flags::empty())?;
    cx.s.close(ep)?;
    cx.s.close(unused)?;
    cx.s.close(cntr)?;
    Ok(())
}

fn cancel_ended(cx: &Cx<'_>) -> Outcome {
    c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let recv = rig.post(B, Post::recv(8))?;
    let send = rig.post(A, Post::send(*b"done"))?;
    rig.sent(A, send)?;
    match rig.s.cancel(rig.sides[B].ep, recv) {
        Err(e) if e.is(Errno::ENOSYS) => {
            return Err(Stop::not_offered("a device takes no request back"));
        }
        cancelled => cancelled?,
    }
    rig.arrives(recv, b"done")?;
    rig.finish()
}

/// Where an error entry has its reason.
const ERR: std::ops::Range<usize> = 56..60;

fn err_entry(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    // `err_data_size` came with 1.5, `src_addr` with 1.20.
    for (minor, known) in [(0, 72), (4, 72), (5, 80), (19, 80), (20, 88)] {
        let version = Version::new(1, minor);
        let rig = Rig::open(
            cx,
            &Spec::default()
                .version(Some(version))
                .mr_mode(Some(MrMode::empty())),
        )?;
        rig.exchange(A, B, b"first")?;
        let token = rig.post(B, Post::recv(1))?;
        rig.post(A, Post::send(*b"too long"))?;
        let start = std::time::Instant::now();
        loop {
            match cx.s.cq_read(rig.sides[B].rx_cq, 1) {
                Err(e) if e.is(Errno::EAVAIL) => break,
                Err(e) if e.is(Errno::EAGAIN) => {}
                Err(e) => return Err(e.into()),
                Ok(_) => return Err(Stop::fail(format!("operation {token} succeeded"))),
            }
            ensure!(start.elapsed() < soon(), "no error");
            rig.s.cq_read(rig.sides[A].cq, 0).ok();
        }
        let entry = edge.readerr_bytes(rig.sides[B].rx_cq, known)?;
        let err = entry[ERR].iter().rev();
        let err = err.fold(0, |sum, byte| sum << 8 | i32::from(*byte));
        ensure!(err == Errno::ETRUNC.0, "{version}: the error is {err}");
        let beyond = entry[known..].iter().position(|byte| *byte != 0xa5);
        if let Some(at) = beyond {
            let at = known + at;
            return Err(Stop::fail(format!("{version}: byte {at} was written")));
        }
    }
    Ok(())
}

/// What `FI_GETWAITOBJ` says fits how the queue was opened.
fn fits(opened: WaitObj, said: WaitObj) -> Outcome {
    let fits = match opened {
        WaitObj::Unspec => !matches!(said, WaitObj::None | WaitObj::Set),
        _ => said == opened,
    };
    ensure!(fits, "a queue opened with {opened:?} says {said:?}");
    Ok(())
}

fn cq_wait_object(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    for wait in [WaitObj::Unspec, WaitObj::Fd] {
        let attr = CqAttr {
            wait,
            ..CqAttr::default()
        };
        let cq = cx.s.cq(rig.sides[A].domain, attr)?;
        fits(wait, edge.wait_object(cq)?)?;
        cx.s.close(cq)?;
    }
    let none = cx.s.cq(rig.sides[A].domain, CqAttr::default())?;
    if let Ok(said) = edge.wait_object(none) {
        ensure!(said == WaitObj::None, "no wait object is {said:?}");
    }
    cx.s.close(none)?;
    rig.close()
}

fn eq_wait_object(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    for wait in [WaitObj::Unspec, WaitObj::Fd] {
        let eq = cx.s.eq(rig.fabric, wait)?;
        fits(wait, edge.wait_object(eq)?)?;
        cx.s.close(eq)?;
    }
    rig.close()
}

fn option_short(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let ep = rig.sides[A].ep;
    let missing = [Errno::ENOPROTOOPT];
    let option = cx.s.option(ep, EpOption::MinMultiRecv);
    offered(option, &missing, "FI_OPT_MIN_MULTI_RECV")?;
    for len in [0, 4, 7] {
        let (said, need) = edge.option_into(ep, EpOption::MinMultiRecv, len);
        refused(said, &[Errno::ETOOSMALL], "an option of 8 bytes")?;
        ensure!(need == 8, "the option needs {need} bytes");
    }
    rig.close()
}

fn option_set_short(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    let ep = rig.sides[A].ep;
    let missing = [Errno::ENOPROTOOPT];
    let before = cx.s.option(ep, EpOption::MinMultiRecv);
    let before = offered(before, &missing, "FI_OPT_MIN_MULTI_RECV")?;
    for len in [0, 4, 7] {
        let set = edge.set_option_bytes(ep, EpOption::MinMultiRecv, &[1; 8][..len]);
        let reasons = [Errno::EINVAL, Errno::ETOOSMALL];
        refused(set, &reasons, "an option of too few bytes")?;
    }
    let after = cx.s.option(ep, EpOption::MinMultiRecv)?;
    ensure!(
        after == before,
        "the option changed from {before} to {after}"
    );
    rig.close()
}

fn alias(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let rig = Rig::open(cx, &Spec::default())?;
    rig.exchange(A, B, b"first")?;
    let flags = Flags::SEND | Flags::INJECT_COMPLETE;
    let opened = edge.alias_and_close(rig.sides[A].ep, flags);
    let missing = [Errno::ENOSYS];
    let [(_, parent), (_, own)] = offered(opened, &missing, "fi_ep_alias")?;
    ensure!(
        parent == -i64::from(Errno::EBUSY.0),
        "closing an endpoint with an alias said {parent}"
    );
    ensure!(own == 0, "closing the alias said {own}");
    rig.exchange(A, B, b"after")?;
    rig.close()
}
