//! Collectives that cannot be.

use std::time::Duration;

use ripstop_types::{AtomicOp, Collective, Datatype, Errno, FiAddr, Flags};

use super::team::{Group, Team, What};
use crate::case::{Cx, Outcome, cases, in_use, refused};
use crate::cases::c_edge;
use crate::ensure;
use crate::pace::bound;
use crate::rig::{A, B, Rig, Spec};
use crate::subject::{AvSetAttr, Coll, SetChange};

cases! {
    pub(super) const CASES;
    fi_collective {
        rdm counts_differ:
            "members that disagree on size get an error and no byte of each other; all else goes on";
        rdm operations_differ:
            "members that disagree on what is done get an error and no byte of each other";
        rdm roots_differ:
            "members that disagree on the root, and wait for each other, get an error";
        rdm undefined: "a reduction that the datatype has not is refused by the call";
        rdm unknown: "datatypes and operations outside the table are refused by the call";
        rdm query_unknown:
            "a query for what is outside the tables, or with unknown flags, is refused";
        rdm root_stranger: "a root that is no member is refused";
        rdm address_unknown: "an address that is no group's is refused";
        rdm not_joined: "an operation before the group is joined is refused";
        rdm left: "a group that an endpoint has left takes no operation of it";
        rdm other_endpoint: "a group is of use to the endpoint that has joined it and to no other";
        rdm null: "an operand or result that is missing or impossibly long is refused";
        rdm stranger: "who is no member does not join, nor does anybody join an empty set";
        rdm removed: "a set with an address that its vector has lost is not joined";
        rdm no_eq: "an endpoint without an event queue does not join";
        rdm not_asked: "an endpoint opened without FI_COLLECTIVE does not join";
        rdm leaves: "when a member leaves, operations that need it end in an error";
        rdm busy: "an endpoint does not close under its groups";
        rdm join_under:
            "a group is joined under the address of a set or of a group, with known flags";
    }
}

/// How long may pass without a word to members that disagree. When they know is tried in virtual time
/// (`sim`): at once where their messages meet, else when they have asked each other after a second.
fn found() -> Duration {
    bound(Duration::from_secs(4))
}

/// Two members carry out different operations: both fail, and have nothing of each other.
#[track_caller]
fn disagree(team: &Team<'_>, group: &Group, whats: [What; 2]) -> Outcome {
    let calls = [0, 1].map(|rank| team.call(group, rank, &whats[rank]));
    for (rank, call) in calls.iter().enumerate() {
        team.start_call(group, rank, call)?;
    }
    for (rank, call) in calls.iter().enumerate() {
        match team.rig.end_within(found(), rank, call.token)? {
            Ok(done) => {
                ensure!(false, "{whats:?}: member {rank} succeeded: {done:?}");
            }
            Err(error) => {
                ensure!(
                    error.err == Errno::EINVAL,
                    "{whats:?}: member {rank} got {}",
                    error.err.name()
                );
                let own = whats[rank].own(2, rank);
                let result = error.entry.bufs.last().map(Vec::as_slice);
                let bytes = result.unwrap_or_default().iter();
                let known = call.result.iter().zip(&own);
                // A member may have begun with what is its own.
                let strange = bytes
                    .zip(known)
                    .position(|(now, (before, own))| now != before && now != own);
                ensure!(
                    strange.is_none(),
                    "{whats:?}: member {rank} got byte {strange:?} of another"
                );
            }
        }
    }
    Ok(())
}

/// Two members go on: messages, and another group.
#[track_caller]
fn goes_on(team: &Team<'_>, group: Group) -> Outcome {
    team.rig.exchange(A, B, b"goes on")?;
    team.leave(group)?;
    let group = team.all()?;
    team.run(
        &group,
        &What::new(Collective::Allreduce, Datatype::Int32, 4),
    )?;
    team.leave(group)
}

fn counts_differ(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    for coll in [
        Collective::Allreduce,
        Collective::Alltoall,
        Collective::Allgather,
        Collective::ReduceScatter,
    ] {
        let group = team.all()?;
        let what = |count| What::new(coll, Datatype::Int32, count);
        disagree(&team, &group, [what(8), what(9)])?;
        goes_on(&team, group)?;
    }
    team.close()
}

fn operations_differ(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    let sum = What::new(Collective::Allreduce, Datatype::Int32, 8);
    for other in [
        sum.with(AtomicOp::Max),
        What::new(Collective::Allreduce, Datatype::Float, 8),
        What::new(Collective::Alltoall, Datatype::Int32, 8),
        What::new(Collective::Barrier, Datatype::Int32, 0),
    ] {
        let group = team.all()?;
        disagree(&team, &group, [sum, other])?;
        goes_on(&team, group)?;
    }
    team.close()
}

fn roots_differ(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    for coll in [Collective::Broadcast, Collective::Gather] {
        let group = team.all()?;
        let what = What::new(coll, Datatype::Int32, 8);
        // Both wait for the other.
        let root = |rank: usize| match coll {
            Collective::Broadcast => 1 - rank,
            _ => rank,
        };
        let calls = [0, 1].map(|rank| team.call(&group, rank, &what.root(root(rank))));
        for (rank, call) in calls.iter().enumerate() {
            team.start_call(&group, rank, call)?;
        }
        let ends = [0, 1].map(|rank| team.rig.end_within(found(), rank, calls[rank].token));
        for end in ends {
            match end? {
                Ok(done) => ensure!(false, "{coll:?} succeeded: {done:?}"),
                Err(error) => {
                    ensure!(error.err == Errno::EINVAL, "got {}", error.err.name());
                }
            }
        }
        goes_on(&team, group)?;
    }
    team.close()
}

/// A call of the first member is refused for one of these reasons, and nothing has begun.
#[track_caller]
fn is_refused(team: &Team<'_>, call: &Coll, reasons: &[Errno], what: &str) -> Outcome {
    let started = team.rig.s.collective(team.rig.sides[A].ep, call);
    refused(started, reasons, what)
}

fn undefined(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    let group = team.all()?;
    for coll in [
        Collective::Allreduce,
        Collective::Reduce,
        Collective::ReduceScatter,
    ] {
        for (datatype, op) in [
            (Datatype::Double, AtomicOp::Bxor),
            (Datatype::Float, AtomicOp::Band),
            (Datatype::DoubleComplex, AtomicOp::Max),
            (Datatype::FloatComplex, AtomicOp::Min),
            (Datatype::Int32, AtomicOp::Cswap),
            (Datatype::Uint64, AtomicOp::Mswap),
            (Datatype::Int64, AtomicOp::Diff),
        ] {
            let call = team.call(&group, 0, &What::new(coll, datatype, 4).with(op));
            let reasons = [Errno::EOPNOTSUPP, Errno::EINVAL];
            is_refused(&team, &call, &reasons, &format!("{op:?} on {datatype:?}"))?;
        }
        // The group has not begun anything.
        team.run(&group, &What::new(coll, Datatype::Int32, 4))?;
    }
    team.leave(group)?;
    team.close()
}

fn unknown(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    let group = team.all()?;
    let what = What::new(Collective::Allreduce, Datatype::Uint8, 4);
    for (datatype, op) in [
        (Datatype::ALL.len() as u32, AtomicOp::Sum.number()),
        (u32::MAX, AtomicOp::Sum.number()),
        (Datatype::Uint8.number(), AtomicOp::ALL.len() as u32),
        (Datatype::Uint8.number(), u32::MAX),
    ] {
        let mut call = team.call(&group, 0, &what);
        (call.datatype, call.op) = (datatype, op);
        // As long as the longest there is.
        (call.input, call.result) = (vec![0; 128], vec![0; 128]);
        let reasons = [Errno::EOPNOTSUPP, Errno::EINVAL];
        is_refused(&team, &call, &reasons, &format!("{op} on {datatype}"))?;
    }
    team.run(&group, &what)?;
    team.leave(group)?;
    team.close()
}

fn query_unknown(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let team = Team::open(cx, 1)?;
    let domain = team.rig.sides[A].domain;
    let (sum, byte) = (AtomicOp::Sum.number(), Datatype::Uint8.number());
    let reduce = Collective::Reduce.number();
    let reasons = [Errno::EOPNOTSUPP, Errno::EINVAL, Errno::EBADFLAGS];
    for (what, flags) in [
        ((99, byte, sum), 0),
        ((u32::MAX, byte, sum), 0),
        ((reduce, 99, sum), 0),
        ((reduce, byte, 99), 0),
        ((Collective::Broadcast.number(), 99, sum), 0),
        ((reduce, byte, sum), 1 << 63),
    ] {
        let found = edge.query_coll_numbers(domain, what, flags);
        refused(found, &reasons, &format!("{what:?} with flags {flags:#x}"))?;
    }
    edge.query_coll_numbers(domain, (reduce, byte, sum), 0)?;
    team.close()
}

fn root_stranger(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 3)?;
    let group = team.join(&[0, 1])?;
    for coll in Collective::ALL.into_iter().filter(|c| c.has_root()) {
        let what = What::new(coll, Datatype::Int32, 4);
        for root in [team.name(A, 2), FiAddr(7_777), FiAddr::NOTAVAIL] {
            let mut call = team.call(&group, 0, &what);
            call.root = root;
            is_refused(&team, &call, &[Errno::EINVAL], &format!("root {root:?}"))?;
        }
        team.run(&group, &what)?;
    }
    team.leave(group)?;
    team.close()
}

fn address_unknown(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    let group = team.all()?;
    let set = team.set_of(A, &[0, 1])?;
    let other = team.rig.s.set_addr(set)?;
    for coll in [Collective::Barrier, Collective::Allreduce] {
        let what = What::new(coll, Datatype::Int32, 4);
        let peer = team.name(A, 1);
        for addr in [peer, other, FiAddr(1 << 40), FiAddr::NOTAVAIL] {
            let mut call = team.call(&group, 0, &what);
            call.group = addr;
            is_refused(&team, &call, &[Errno::EINVAL], &format!("{addr:?}"))?;
        }
        team.run(&group, &what)?;
    }
    team.rig.s.close(set)?;
    team.leave(group)?;
    team.close()
}

fn not_joined(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    let first = team.begin(0, &[0, 1])?;
    let begun = Group {
        ranks: vec![0, 1],
        fids: Vec::new(),
        addrs: vec![team.rig.s.group_addr(first)?; 2],
    };
    let what = What::new(Collective::Barrier, Datatype::Uint8, 0);
    let call = team.call(&begun, 0, &what);
    let reasons = [Errno::EOPBADSTATE, Errno::EINVAL];
    is_refused(
        &team,
        &call,
        &reasons,
        "a barrier of a group that is not joined",
    )?;
    let group = team.finish(&[0, 1], vec![first, team.begin(1, &[0, 1])?])?;
    team.run(&group, &what)?;
    team.leave(group)?;
    team.close()
}

fn left(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    let (old, group) = (team.all()?, team.all()?);
    let what = What::new(Collective::Allreduce, Datatype::Int32, 4);
    team.run(&old, &what)?;
    let call = team.call(&old, 0, &what);
    team.leave(old)?;
    is_refused(&team, &call, &[Errno::EINVAL], "a group that was left")?;
    // Nor does the next one get its address.
    let next = team.all()?;
    is_refused(&team, &call, &[Errno::EINVAL], "a group that was left")?;
    for group in [group, next] {
        team.run(&group, &what)?;
        team.leave(group)?;
    }
    team.close()
}

fn other_endpoint(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 3)?;
    let group = team.join(&[1, 2])?;
    let what = What::new(Collective::Allreduce, Datatype::Int32, 4);
    let call = team.call(&group, 0, &what);
    is_refused(
        &team,
        &call,
        &[Errno::EINVAL],
        "a group of another endpoint",
    )?;
    team.run(&group, &what)?;
    team.leave(group)?;
    team.close()
}

fn null(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    let group = team.all()?;
    for coll in Collective::ALL {
        let what = What::new(coll, Datatype::Int32, 4);
        let whole = team.call(&group, 0, &what);
        let mut calls = Vec::new();
        if !whole.input.is_empty() {
            calls.push(Coll {
                input: Vec::new(),
                ..whole.clone()
            });
        }
        if !whole.result.is_empty() {
            calls.push(Coll {
                result: Vec::new(),
                ..whole.clone()
            });
        }
        if coll != Collective::Barrier {
            calls.push(Coll {
                count: usize::MAX,
                input: Vec::new(),
                result: Vec::new(),
                ..whole
            });
        }
        for call in calls {
            let reasons = [Errno::EINVAL, Errno::EMSGSIZE];
            is_refused(&team, &call, &reasons, &format!("{call:?}"))?;
        }
        team.run(&group, &what)?;
    }
    team.leave(group)?;
    team.close()
}

fn stranger(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    let s = team.rig.s;
    let ep = team.rig.sides[A].ep;
    let empty = team.set(A, AvSetAttr::EMPTY)?;
    refused(s.join(ep, empty), &[Errno::EINVAL], "joining an empty set")?;
    s.change_set(empty, SetChange::Insert(team.name(A, 1)))?;
    let joined = s.join(ep, empty);
    refused(joined, &[Errno::EINVAL], "joining without being a member")?;
    s.close(empty)?;
    team.close()
}

fn removed(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    let s = team.rig.s;
    let set = team.set_of(A, &[0, 1])?;
    let av = team.rig.sides[A].av.unwrap_or(team.rig.fabric);
    s.av_remove(av, &[team.name(A, 1)])?;
    let joined = s.join(team.rig.sides[A].ep, set);
    refused(joined, &[Errno::EINVAL], "joining with a lost address")?;
    s.close(set)?;
    team.close()
}

fn no_eq(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::collective().events(false);
    let team = Team::with(cx, 2, &spec)?;
    let set = team.set_of(A, &[0, 1])?;
    let joined = team.rig.s.join(team.rig.sides[A].ep, set);
    let reasons = [Errno::ENOEQ, Errno::EOPBADSTATE];
    refused(joined, &reasons, "joining without an event queue")?;
    team.rig.s.close(set)?;
    team.close()
}

fn not_asked(cx: &Cx<'_>) -> Outcome {
    // Only where there are collectives at all.
    Team::open(cx, 1)?.close()?;
    let rig = Rig::open(cx, &Spec::default())?;
    let av = rig.sides[A].av.unwrap_or(rig.fabric);
    let set = rig.s.av_set(av, AvSetAttr::EMPTY)?;
    let own = rig.sides[A].name.clone();
    let own = rig.insert(A, own.as_ref())?;
    rig.s.change_set(set, SetChange::Insert(own))?;
    let joined = rig.s.join(rig.sides[A].ep, set);
    let reasons = [Errno::ENOSYS, Errno::EOPNOTSUPP];
    refused(joined, &reasons, "joining without FI_COLLECTIVE")?;
    rig.s.close(set)?;
    rig.close()
}

fn leaves(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 3)?;
    let group = team.all()?;
    let what = What::new(Collective::Allreduce, Datatype::Int64, 4);
    team.run(&group, &what)?;
    let tokens = [team.start(&group, 0, &what)?, team.start(&group, 1, &what)?];
    team.rig.quiet()?;
    team.rig.s.close(group.fids[2])?;
    for (rank, token) in tokens.into_iter().enumerate() {
        match team.rig.end_within(found(), rank, token)? {
            Ok(_) => ensure!(false, "member {rank} succeeded"),
            Err(error) => ensure!(
                error.err == Errno::ECANCELED,
                "member {rank} got {}",
                error.err.name()
            ),
        }
    }
    for fid in &group.fids[..2] {
        team.rig.s.close(*fid)?;
    }
    // The endpoints are none the worse.
    let group = team.all()?;
    team.run(&group, &what)?;
    team.leave(group)?;
    team.close()
}

fn busy(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 1)?;
    let group = team.all()?;
    let closed = team.rig.s.close(team.rig.sides[A].ep);
    in_use(closed, "an endpoint in a group")?;
    team.run(&group, &What::new(Collective::Barrier, Datatype::Uint8, 0))?;
    team.leave(group)?;
    team.close()
}

fn join_under(cx: &Cx<'_>) -> Outcome {
    let edge = c_edge(cx)?;
    let team = Team::open(cx, 2)?;
    let group = team.all()?;
    let set = team.set_of(A, &[0, 1])?;
    let ep = team.rig.sides[A].ep;
    for addr in [FiAddr(4_711), FiAddr(1 << 50)] {
        let joined = edge.join_at(ep, set, addr, Flags::empty());
        refused(joined, &[Errno::EINVAL], &format!("joining under {addr:?}"))?;
    }
    let unknown = Flags::from_bits_retain(1 << 3);
    let joined = edge.join_at(ep, set, team.rig.s.set_addr(set)?, unknown);
    let reasons = [Errno::EBADFLAGS, Errno::EINVAL];
    refused(joined, &reasons, "joining with an unknown flag")?;
    let both = Flags::SEND | Flags::RECV;
    let fids = vec![
        edge.join_at(ep, set, group.addrs[0], both)?,
        team.begin(1, &[0, 1])?,
    ];
    let below = team.finish(&[0, 1], fids)?;
    let what = What::new(Collective::Allreduce, Datatype::Int32, 4);
    team.run(&below, &what)?;
    team.run(&group, &what)?;
    team.rig.s.close(set)?;
    team.leave(below)?;
    team.leave(group)?;
    team.close()
}
