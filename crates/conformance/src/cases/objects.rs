//! `fi_fabric`(3), `fi_domain`(3), `fi_endpoint`(3): opening, binding, enabling, closing.

mod endpoint;

use ripstop_types::{Errno, WaitObj};

use crate::case::{Case, Cx, Outcome, cases, in_use, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, bare, offer};
use crate::subject::{AvAttr, CqAttr};

pub(super) fn cases() -> Vec<Case> {
    [OWN, endpoint::CASES].concat()
}

cases! {
    const OWN;
    fi_fabric {
        both open_close: "a fabric opens and closes again and again";
        both several: "several fabrics are open at once";
        both busy: "a fabric does not close under its domains and event queues" = fabric_busy;
    }
    fi_domain {
        both open_close: "a domain opens and closes again and again" = domain_again;
        both several: "several domains of a fabric are open at once" = domains;
        both busy: "a domain does not close under its objects" = domain_busy;
        both rounds: "whole sets of objects come and go, and each works";
    }
}

fn open_close(cx: &Cx<'_>) -> Outcome {
    let info = offer(cx, &Spec::default())?;
    for _ in 0..50 {
        let fabric = cx.s.fabric(&info)?;
        cx.s.close(fabric)?;
    }
    Ok(())
}

fn several(cx: &Cx<'_>) -> Outcome {
    let info = offer(cx, &Spec::default())?;
    let one = cx.s.fabric(&info)?;
    let two = cx.s.fabric(&info)?;
    let domain = cx.s.domain(two, &info)?;
    cx.s.close(one)?;
    cx.s.close(domain)?;
    cx.s.close(two)?;
    Ok(())
}

fn fabric_busy(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    in_use(cx.s.close(rig.fabric), "a fabric with a domain")?;
    cx.s.close(domain)?;
    let eq = cx.s.eq(rig.fabric, WaitObj::None)?;
    in_use(cx.s.close(rig.fabric), "a fabric with an event queue")?;
    cx.s.close(eq)?;
    cx.s.close(rig.fabric)?;
    Ok(())
}

fn domain_again(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    for _ in 0..50 {
        let domain = cx.s.domain(rig.fabric, &rig.info)?;
        cx.s.close(domain)?;
    }
    cx.s.close(rig.fabric)?;
    Ok(())
}

fn domains(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(cx.s.domain(rig.fabric, &rig.info)?);
    }
    for domain in open {
        cx.s.close(domain)?;
    }
    cx.s.close(rig.fabric)?;
    Ok(())
}

fn domain_busy(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    let s = cx.s;
    let domain = s.domain(rig.fabric, &rig.info)?;
    let busy = |what: &str, child| -> Outcome {
        refused(
            s.close(domain),
            &[Errno::EBUSY],
            &format!("closing a domain with {what}"),
        )?;
        Ok(s.close(child)?)
    };
    busy("a completion queue", s.cq(domain, CqAttr::default())?)?;
    busy("a counter", s.cntr(domain, WaitObj::None)?)?;
    if cx.is_rdm() {
        busy("an address vector", s.av(domain, AvAttr::default())?)?;
    }
    busy("an endpoint", s.endpoint(domain, &rig.info)?)?;
    s.close(domain)?;
    s.close(rig.fabric)?;
    Ok(())
}

fn rounds(cx: &Cx<'_>) -> Outcome {
    for i in 0..15 {
        let rig = Rig::open(cx, &Spec::default())?;
        let got = rig.exchange(A, B, &[i; 100])?;
        ensure!(got.len == 100, "round {i}: length {}", got.len);
        rig.close()?;
    }
    Ok(())
}
