//! Threading levels at which the program serialises some of its calls.

use std::thread;

use ripstop_types::Threading;

use super::{THREADS, join};
use crate::case::{Cx, Outcome, cases};
use crate::ensure;
use crate::rig::{A, B, Spec, bare, pattern};

cases! {
    pub(super) const CASES;
    fi_domain {
        rdm threads_by_fid:
            "with FI_THREAD_FID threads use objects of their own in one domain", within(20);
        rdm threads_by_endpoint:
            "with FI_THREAD_ENDPOINT threads use endpoints of their own in one domain", within(20);
        rdm threads_by_completion:
            "with FI_THREAD_COMPLETION threads use queues of their own in one domain", within(20);
    }
}

/// Threads with endpoints and queues of their own, in a domain that lets each object be used
/// by one thread at a time.
fn in_one_domain(cx: &Cx<'_>, threading: Threading) -> Outcome {
    let s = cx.threads()?;
    let spec = Spec::default().threading(Some(threading));
    let common = bare(cx, &spec)?;
    let found = common.info.domain.threading;
    ensure!(found == threading, "{threading:?} became {found:?}");
    let domain = s.domain(common.fabric, &common.info)?;
    thread::scope(|scope| {
        let mut pairs = Vec::new();
        for thread in 0..THREADS {
            let (setup, ep_type, spec) = (cx.setup, cx.ep_type, &spec);
            pairs.push(scope.spawn(move || {
                let cx = Cx {
                    s,
                    threads: Some(s),
                    setup,
                    ep_type,
                };
                let mut rig = bare(&cx, spec)?;
                for _ in [A, B] {
                    let side = rig.add(spec, domain)?;
                    rig.sides.push(side);
                }
                for (side, peer) in [(A, B), (B, A)] {
                    let name = rig.sides[peer].name.clone();
                    rig.sides[side].peer = rig.insert(side, name.as_ref())?;
                }
                for i in 0..50 {
                    rig.exchange(A, B, &pattern(100 * i, thread))?;
                    rig.exchange(B, A, &pattern(100 * i, thread + 1))?;
                }
                rig.quiet()
            }));
        }
        pairs.into_iter().try_for_each(join)
    })
}

fn threads_by_fid(cx: &Cx<'_>) -> Outcome {
    in_one_domain(cx, Threading::Fid)
}

fn threads_by_endpoint(cx: &Cx<'_>) -> Outcome {
    in_one_domain(cx, Threading::Endpoint)
}

fn threads_by_completion(cx: &Cx<'_>) -> Outcome {
    in_one_domain(cx, Threading::Completion)
}
