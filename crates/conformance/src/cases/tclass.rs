//! Traffic classes, `fi_endpoint`(3).

use ripstop_types::Errno;

use crate::case::{Cx, Outcome, Step, Stop, cases, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, hints, of_provider, offer, pattern, query};

cases! {
    pub(super) const CASES;
    fi_getinfo {
        both tclass:
            "a traffic class that is asked for, a label or a code point, is in the answer"
                = answered;
        both tclass_unknown: "what is no traffic class finds nothing";
    }
    fi_endpoint {
        both tclass:
            "messages arrive whatever the traffic class of domain and endpoint" = exchanged;
    }
}

/// Labels and code points (`fi_tc_dscp_set`).
const CLASSES: [u32; 9] = [
    0x200, 0x201, 0x202, 0x203, 0x204, 0x205, 0x100, 0x12e, 0x13f,
];

/// The classes that the answer to these hints has.
fn asked(cx: &Cx<'_>, tclass: (u32, u32)) -> Step<(u32, u32)> {
    let spec = Spec {
        tclass,
        ..Spec::default()
    };
    let info = offer(cx, &spec)?;
    Ok((info.domain.tclass, info.tx.tclass))
}

/// Ends the case where there are no classes.
fn known(cx: &Cx<'_>) -> Outcome {
    match asked(cx, (0x201, 0))?.0 {
        0x201 => Ok(()),
        other => Err(Stop::not_offered(format!(
            "traffic classes: {other:#x} for 0x201"
        ))),
    }
}

fn answered(cx: &Cx<'_>) -> Outcome {
    known(cx)?;
    for class in CLASSES {
        let found = asked(cx, (class, 0))?.0;
        ensure!(found == class, "a domain of {found:#x} for {class:#x}");
        let found = asked(cx, (0, class))?.1;
        ensure!(found == class, "an endpoint of {found:#x} for {class:#x}");
        let both = asked(cx, (0x203, class))?;
        ensure!(both == (0x203, class), "{both:x?} for {class:#x} in 0x203");
    }
    Ok(())
}

fn tclass_unknown(cx: &Cx<'_>) -> Outcome {
    known(cx)?;
    for class in [1, 0x140, 0x206, 0x300, u32::MAX] {
        for domain in [true, false] {
            let mut hints = hints(cx);
            if domain {
                let mut attr = hints.domain.take().unwrap_or_default();
                attr.tclass = class;
                hints.domain = Some(attr);
            } else {
                let mut attr = hints.tx.take().unwrap_or_default();
                attr.tclass = class;
                hints.tx = Some(attr);
            }
            let found = of_provider(cx, cx.s.getinfo(&query(cx, hints)));
            refused(found, &[Errno::ENODATA], &format!("class {class:#x}"))?;
        }
    }
    Ok(())
}

fn exchanged(cx: &Cx<'_>) -> Outcome {
    known(cx)?;
    for tclass in [(0x202, 0), (0, 0x12e), (0x204, 0x100), (0x13f, 0x205)] {
        let spec = Spec {
            tclass,
            ..Spec::default()
        };
        let rig = Rig::open(cx, &spec)?;
        for len in [1, 5000, 300_000] {
            rig.exchange(A, B, &pattern(len, len))?;
            rig.exchange(B, A, &pattern(len, len + 1))?;
        }
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}
