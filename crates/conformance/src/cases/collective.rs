//! `fi_collective`(3) and `fi_av_set`(3).

mod bad;
mod set;
mod team;

use ripstop_types::{AtomicOp, Collective, Datatype, Errno, Flags, WaitObj};

use crate::case::{Case, Cx, Outcome, Step, cases};
use crate::cases::atomic::model::pairs;
use crate::ensure;
use crate::rig::Spec;
use crate::subject::{Post, When};
use team::{Team, What};

pub(super) fn cases() -> Vec<Case> {
    [OWN, set::CASES, bad::CASES].concat()
}

cases! {
    const OWN;
    fi_collective {
        rdm join:
            "FI_JOIN_COMPLETE comes at all members when the last has joined, and at none before";
        rdm join_orders:
            "members may join several groups in different orders, and one set several times";
        rdm ranks: "the order of the set is that of the members, whatever their addresses";
        rdm one_member: "every operation is done in a group of one";
        rdm barrier: "a barrier is done nowhere before all members have come";
        rdm barrier2: "fi_barrier2 takes flags, and is reported whether or not they ask for it";
        rdm broadcast:
            "all members get what the root has" = |cx| each(cx, Collective::Broadcast), within(30);
        rdm alltoall:
            "each member gets its block of each" = |cx| each(cx, Collective::Alltoall), within(30);
        rdm allreduce:
            "all members get the reduction of what all have"
                = |cx| each(cx, Collective::Allreduce), within(30);
        rdm allgather:
            "all members get what all have, by rank"
                = |cx| each(cx, Collective::Allgather), within(30);
        rdm reduce_scatter:
            "each member gets its block of the reduction"
                = |cx| each(cx, Collective::ReduceScatter), within(30);
        rdm reduce:
            "the root gets the reduction of what all have"
                = |cx| each(cx, Collective::Reduce), within(30);
        rdm scatter:
            "each member gets its block of what the root has"
                = |cx| each(cx, Collective::Scatter), within(30);
        rdm gather:
            "the root gets what all have, by rank" = |cx| each(cx, Collective::Gather), within(30);
        rdm reductions:
            "each operation that is offered gives what the page says, on each datatype", within(30);
        rdm datatypes: "every datatype is moved as it is", within(30);
        rdm large: "large data comes whole, in every operation", within(30);
        rdm members_7:
            "seven members get what a plain computation gives, in every operation"
                = |cx| of_members(cx, 7), within(20);
        rdm members_16:
            "sixteen members get what a plain computation gives, in every operation"
                = |cx| of_members(cx, 16), within(30);
        rdm members_33:
            "33 members get what a plain computation gives, in every operation"
                = |cx| of_members(cx, 33), within(60);
        rdm groups: "operations of groups that share members do not wait for each other";
        rdm in_flight:
            "many operations of a group are in flight at once, and each gets its own data";
        rdm late_member: "who comes late finds what the others have sent";
        rdm beside_messages: "operations meet no receive of the program, and messages go on";
        rdm domains: "members may have domains of their own";
    }
    fi_trigger {
        rdm collectives:
            "triggered collectives start when the counter has come so far, and are reported";
    }
    fi_collective {
        rdm query:
            "fi_query_collective offers nothing that the page excludes, and at least sums of integers";
    }
}

fn join(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 3)?;
    let ranks = [0, 1, 2];
    let mut fids = vec![team.begin(2, &ranks)?, team.begin(0, &ranks)?];
    team.rig.quiet()?;
    fids.push(team.begin(1, &ranks)?);
    let group = team.finish(&[2, 0, 1], fids)?;
    team.leave(group)?;
    team.close()
}

fn join_orders(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    let sets: [&[usize]; 2] = [&[0, 1], &[1, 0]];
    let first = [team.begin(0, sets[0])?, team.begin(0, sets[1])?];
    let second = [team.begin(1, sets[1])?, team.begin(1, sets[0])?];
    team.joined([first, second].concat())?;
    let again = team.join(sets[0])?;
    let what = What::new(Collective::Allgather, Datatype::Uint64, 2);
    team.run(&again, &what)?;
    for fid in [first, second].concat() {
        team.rig.s.close(fid)?;
    }
    team.run(&again, &what)?;
    team.leave(again)?;
    team.close()
}

fn ranks(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 4)?;
    for order in [&[2, 0, 3][..], &[3, 2, 1, 0], &[1, 3]] {
        let group = team.join(order)?;
        for coll in [Collective::Allgather, Collective::Alltoall] {
            team.run(&group, &What::new(coll, Datatype::Uint64, 3))?;
        }
        team.leave(group)?;
    }
    team.close()
}

fn one_member(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 1)?;
    let group = team.all()?;
    for coll in Collective::ALL {
        team.run(&group, &What::new(coll, Datatype::Int32, 5))?;
    }
    team.leave(group)?;
    team.close()
}

fn barrier(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 3)?;
    let group = team.all()?;
    let what = What::new(Collective::Barrier, Datatype::Uint8, 0);
    for last in [2, 0, 1] {
        let mut tokens = Vec::new();
        for rank in [0, 1, 2] {
            if rank != last {
                tokens.push((rank, team.start(&group, rank, &what)?));
            }
        }
        team.rig.quiet()?;
        tokens.push((last, team.start(&group, last, &what)?));
        for (rank, token) in tokens {
            team.check(&group, rank, &what, token)?;
        }
    }
    team.leave(group)?;
    team.close()
}

fn barrier2(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::collective().selective(Flags::SEND);
    let team = Team::with(cx, 2, &spec)?;
    let group = team.all()?;
    let what = What::new(Collective::Barrier, Datatype::Uint8, 0);
    for round in 0..4 {
        let mut started = Vec::new();
        for rank in [0, 1] {
            let mut call = team.call(&group, rank, &what);
            if round % 2 == 1 {
                call.flags = Flags::COMPLETION;
            }
            started.push((rank, call.token));
            team.start_call(&group, rank, &call)?;
        }
        // Each is told of its end, also without the flag, as with the C library.
        for (rank, token) in started {
            team.check(&group, rank, &what, token)?;
        }
    }
    team.rig.quiet()?;
    team.leave(group)?;
    team.close()
}

/// An operation in groups of several sizes, with every root, on several datatypes and lengths.
fn each(cx: &Cx<'_>, coll: Collective) -> Outcome {
    let team = Team::open(cx, 5)?;
    for n in [2, 3, 5] {
        let ranks: Vec<_> = (0..n).collect();
        let group = team.join(&ranks)?;
        let roots = if coll.has_root() { n } else { 1 };
        for root in 0..roots {
            for (datatype, count) in [
                (Datatype::Uint8, 1),
                (Datatype::Int32, 7),
                (Datatype::Double, 100),
                (Datatype::Uint64, 3000),
                (Datatype::DoubleComplex, 64),
            ] {
                team.run(&group, &What::new(coll, datatype, count).root(root))?;
            }
        }
        team.leave(group)?;
    }
    team.close()
}

fn reductions(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 3)?;
    let group = team.all()?;
    let domain = team.rig.sides[0].domain;
    let mut tried = 0;
    for (datatype, op) in pairs() {
        for coll in [
            Collective::Allreduce,
            Collective::Reduce,
            Collective::ReduceScatter,
        ] {
            let what = (datatype.number(), op.number());
            match team.rig.s.query_collective(domain, coll, what) {
                Ok(_) => tried += 1,
                Err(e) if e.is(Errno::EOPNOTSUPP) || e.is(Errno::EINVAL) => continue,
                Err(e) => return Err(e.into()),
            }
            team.run(&group, &What::new(coll, datatype, 9).with(op).root(1))?;
        }
    }
    ensure!(tried > 0, "the query offers nothing");
    team.leave(group)?;
    team.close()
}

fn datatypes(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 3)?;
    let group = team.all()?;
    for datatype in Datatype::ALL {
        for coll in [
            Collective::Broadcast,
            Collective::Alltoall,
            Collective::Allgather,
            Collective::Scatter,
            Collective::Gather,
        ] {
            team.run(&group, &What::new(coll, datatype, 5).root(2))?;
        }
    }
    team.leave(group)?;
    team.close()
}

fn large(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 3)?;
    let group = team.all()?;
    for coll in Collective::ALL {
        team.run(&group, &What::new(coll, Datatype::Uint64, 1 << 17).root(1))?;
    }
    team.leave(group)?;
    team.close()
}

/// Every operation in a group of many: less than an element for each step, blocks that do not
/// divide, and what members send when they are asked for it; and every datatype and reduction.
fn of_members(cx: &Cx<'_>, n: usize) -> Outcome {
    let team = Team::open(cx, n)?;
    let group = team.all()?;
    for coll in Collective::ALL {
        for (datatype, count, root) in [
            (Datatype::Uint8, 1, 0),
            (Datatype::Int32, 701, n / 2),
            (Datatype::Uint64, 2500, n - 1),
        ] {
            team.run(&group, &What::new(coll, datatype, count).root(root))?;
        }
    }
    for coll in [Collective::Broadcast, Collective::Allreduce] {
        let long = What::new(coll, Datatype::Uint64, 40_000).root(n / 3);
        team.run(&group, &long)?;
    }
    for datatype in Datatype::ALL {
        for coll in [Collective::Broadcast, Collective::Allgather] {
            team.run(&group, &What::new(coll, datatype, 3).root(1))?;
        }
    }
    let domain = team.rig.sides[0].domain;
    // Sums of so many are no numbers of the shortest floats.
    let short = |datatype| matches!(datatype, Datatype::Float8E4M3 | Datatype::Float8E5M2);
    let fits = |(datatype, op): &(_, _)| *op != AtomicOp::Sum || !short(*datatype);
    for (datatype, op) in pairs().filter(fits) {
        let what = (datatype.number(), op.number());
        match team
            .rig
            .s
            .query_collective(domain, Collective::Allreduce, what)
        {
            Ok(_) => {}
            Err(e) if e.is(Errno::EOPNOTSUPP) || e.is(Errno::EINVAL) => continue,
            Err(e) => return Err(e.into()),
        }
        let what = What::new(Collective::Allreduce, datatype, 3).with(op);
        team.run(&group, &what)?;
    }
    team.leave(group)?;
    team.close()
}

fn groups(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 3)?;
    let groups = [&[0, 1, 2][..], &[1, 2], &[2, 0], &[2, 1, 0]];
    let groups = groups.map(|ranks| team.join(ranks));
    let groups = groups.into_iter().collect::<Step<Vec<_>>>()?;
    let what = |group: usize| What::new(Collective::Allreduce, Datatype::Int64, 10 + group);
    let mut tokens = Vec::new();
    // Each endpoint begins with another group.
    for side in 0..3 {
        for i in 0..groups.len() {
            let at = (side + i) % groups.len();
            let rank = groups[at].ranks.iter().position(|r| *r == side);
            if let Some(rank) = rank {
                let token = team.start(&groups[at], rank, &what(at))?;
                tokens.push((at, rank, token));
            }
        }
    }
    for (at, rank, token) in tokens {
        team.check(&groups[at], rank, &what(at), token)?;
    }
    // One waits for a member, the others do not wait for it.
    let waits = team.start(&groups[0], 0, &what(0))?;
    for (at, group) in groups.iter().enumerate().skip(1) {
        team.run(group, &what(at))?;
    }
    let rest = [1, 2].map(|rank| team.start(&groups[0], rank, &what(0)));
    let rest = rest.into_iter().collect::<Step<Vec<_>>>()?;
    for (rank, token) in [waits].into_iter().chain(rest).enumerate() {
        team.check(&groups[0], rank, &what(0), token)?;
    }
    for group in groups {
        team.leave(group)?;
    }
    team.close()
}

fn in_flight(cx: &Cx<'_>) -> Outcome {
    const MANY: usize = 60;
    let team = Team::open(cx, 3)?;
    let group = team.all()?;
    let what = |i: usize| {
        let coll = Collective::ALL[i % Collective::ALL.len()];
        What::new(coll, Datatype::Uint32, 1 + i).root(i % 3)
    };
    let mut tokens = Vec::new();
    for rank in [1, 0, 2] {
        for i in 0..MANY {
            let call = team.call(&group, rank, &what(i));
            team.start_call(&group, rank, &call)?;
            tokens.push((rank, i, call.token));
        }
    }
    for (rank, i, token) in tokens {
        team.check(&group, rank, &what(i), token)?;
    }
    team.leave(group)?;
    team.close()
}

fn late_member(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 3)?;
    let group = team.all()?;
    for count in [4, 200_000] {
        let all = [
            What::new(Collective::Broadcast, Datatype::Uint8, count),
            What::new(Collective::Alltoall, Datatype::Uint8, count),
            What::new(Collective::Reduce, Datatype::Uint8, count).root(2),
        ];
        let mut tokens = Vec::new();
        for rank in [0, 1, 2] {
            if rank == 2 {
                for _ in 0..200 {
                    team.rig.pump()?;
                }
            }
            for what in &all {
                tokens.push((rank, what, team.start(&group, rank, what)?));
            }
        }
        for (rank, what, token) in tokens {
            team.check(&group, rank, what, token)?;
        }
    }
    team.leave(group)?;
    team.close()
}

fn beside_messages(cx: &Cx<'_>) -> Outcome {
    let team = Team::with(cx, 2, &Spec::collective().caps(Flags::TAGGED))?;
    let group = team.all()?;
    let rig = &team.rig;
    let recvs = [
        rig.post(1, Post::recv(64))?,
        rig.post(1, Post::trecv(0, u64::MAX, 64))?,
    ];
    for coll in Collective::ALL {
        team.run(&group, &What::new(coll, Datatype::Uint8, 40))?;
    }
    rig.quiet()?;
    let what = What::new(Collective::Allreduce, Datatype::Uint8, 40);
    let waits = team.start(&group, 1, &what)?;
    let sends = [
        rig.post(0, Post::send(*b"plain"))?,
        rig.post(0, Post::tsend(9, *b"tagged"))?,
    ];
    for (token, wanted) in recvs.into_iter().zip([&b"plain"[..], b"tagged"]) {
        let got = rig.done(1, token)?.bytes();
        ensure!(got == wanted, "{got:?} arrived");
    }
    for token in sends {
        rig.done(0, token)?;
    }
    let other = team.start(&group, 0, &what)?;
    for (rank, token) in [other, waits].into_iter().enumerate() {
        team.check(&group, rank, &what, token)?;
    }
    team.leave(group)?;
    team.close()
}

fn domains(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::collective().two_domains(true);
    let team = Team::with(cx, 3, &spec)?;
    let group = team.all()?;
    for coll in Collective::ALL {
        team.run(&group, &What::new(coll, Datatype::Int64, 500).root(2))?;
    }
    team.leave(group)?;
    team.close()
}

fn collectives(cx: &Cx<'_>) -> Outcome {
    let team = Team::with(cx, 3, &Spec::collective().caps(Flags::TRIGGER))?;
    let group = team.all()?;
    let s = team.rig.s;
    let go = s.cntr(team.rig.sides[0].domain, WaitObj::None)?;
    for (threshold, coll) in (1..).zip(Collective::ALL) {
        let what = What::new(coll, Datatype::Int64, 6).root(1);
        let mut tokens = Vec::new();
        for rank in 0..3 {
            let mut call = team.call(&group, rank, &what);
            let cntr = go;
            call.when = (rank != 1).then_some(When { cntr, threshold });
            tokens.push(team.start_call(&group, rank, &call)?);
        }
        // A member that has not started is waited for; a root that sends may be done.
        for _ in 0..100 {
            team.rig.pump()?;
        }
        for rank in [0, 2] {
            let early = team.rig.take_done(rank, tokens[rank]);
            ensure!(early.is_none(), "{coll:?} is done before its time");
        }
        s.cntr_add(go, 1)?;
        for (rank, token) in tokens.into_iter().enumerate() {
            team.check(&group, rank, &what, token)?;
        }
    }
    // One that is cancelled has not begun.
    let what = What::new(Collective::Allreduce, Datatype::Int64, 6);
    let mut call = team.call(&group, 0, &what);
    call.when = Some(When {
        cntr: go,
        threshold: u64::from(u32::MAX),
    });
    team.start_call(&group, 0, &call)?;
    s.cancel(team.rig.sides[0].ep, call.token)?;
    let failed = team.rig.failed(0, call.token)?;
    ensure!(failed.err == Errno::ECANCELED, "{}", failed.err.name());
    team.run(&group, &what)?;
    s.close(go)?;
    team.leave(group)?;
    team.close()
}

fn query(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 1)?;
    let domain = team.rig.sides[0].domain;
    let s = team.rig.s;
    for coll in Collective::ALL {
        for (datatype, op) in pairs() {
            let what = (datatype.number(), op.number());
            let found = s.query_collective(domain, coll, what);
            let listed = !op.takes_comparison() && op != AtomicOp::Diff;
            if coll.reduces() && !(listed && op.acts_on(datatype)) {
                let said = found.err().and_then(|e| e.errno());
                let not = [Some(Errno::EOPNOTSUPP), Some(Errno::EINVAL)];
                ensure!(
                    not.contains(&said),
                    "{coll:?} by {op:?} on {datatype:?}: {said:?}"
                );
                continue;
            }
            let needed = match coll.reduces() {
                true => datatype.is_integer() && op == AtomicOp::Sum,
                false => coll == Collective::Barrier || datatype.is_integer(),
            };
            match found {
                Ok(limit) => {
                    ensure!(
                        limit.members > 1 && (limit.count > 0 || coll == Collective::Barrier),
                        "{coll:?} by {op:?} on {datatype:?}: {limit:?}"
                    );
                }
                Err(e) if e.is(Errno::EOPNOTSUPP) && !needed => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    team.close()
}
