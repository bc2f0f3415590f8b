//! `fi_av_set`(3).

use ripstop_types::{AvType, Collective, Datatype, Errno, FiAddr, Flags};

use super::team::{Team, What};
use crate::case::{Cx, Outcome, Step, cases, in_use, refused};
use crate::ensure;
use crate::rig::{A, Spec};
use crate::subject::{AvSetAttr, Fid, SetChange};

cases! {
    pub(super) const CASES;
    fi_av_set {
        rdm insert: "a set begins empty, and takes each address of its vector once";
        rdm range: "a set of a range has every so many-th address of it, both ends included";
        rdm universe: "FI_UNIVERSE takes in all addresses of the vector";
        rdm union: "a union adds what is missing, at the end";
        rdm intersect: "an intersection keeps what both have, in its order";
        rdm diff: "a difference removes what the other has, and keeps the order";
        rdm remove: "a removed address is gone, the others keep their order";
        rdm addr: "each set has an address of its own, which stays when members change";
        rdm bad_range:
            "a range without a stride, without an end, backwards, or longer than said is refused";
        rdm range_of_map: "a map has no ranges, but FI_UNIVERSE";
        rdm bad_flags: "unknown flags are refused";
        rdm operations: "a set that is for one operation carries out that and no other";
        rdm busy: "an address vector does not close under its sets";
    }
}

/// Endpoints whose vectors are tables: `A` has the addresses 0, 1, 2, ... of all by rank.
fn tables<'a>(cx: &Cx<'a>, n: usize) -> Step<Team<'a>> {
    let team = Team::with(cx, n, &Spec::collective().av_type(AvType::Table))?;
    for rank in 0..n {
        let addr = team.name(A, rank);
        ensure!(addr == FiAddr(rank as u64), "{rank} is called {addr:?}");
    }
    Ok(team)
}

/// The members of a set of `A` are these, in this order. It joins under that set, they under
/// their own, so that a difference shows as a join without end, or as data of others.
#[track_caller]
fn holds(team: &Team<'_>, set: Fid, ranks: &[usize]) -> Outcome {
    let mut fids = Vec::new();
    for side in ranks {
        fids.push(match *side {
            A => team.rig.s.join(team.rig.sides[A].ep, set)?,
            side => team.begin(side, ranks)?,
        });
    }
    let group = team.finish(ranks, fids)?;
    let what = What::new(Collective::Allgather, Datatype::Uint64, 1);
    team.run(&group, &what)?;
    team.leave(group)?;
    Ok(team.rig.s.close(set)?)
}

fn change(team: &Team<'_>, set: Fid, change: SetChange) -> Outcome {
    Ok(team.rig.s.change_set(set, change)?)
}

fn insert(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 2)?;
    let s = team.rig.s;
    let set = team.set(A, AvSetAttr::EMPTY)?;
    for rank in [0, 1] {
        let gone = s.change_set(set, SetChange::Remove(FiAddr(rank)));
        refused(gone, &[Errno::EINVAL], "removing from an empty set")?;
    }
    change(&team, set, SetChange::Insert(FiAddr(1)))?;
    let again = s.change_set(set, SetChange::Insert(FiAddr(1)));
    refused(again, &[Errno::EINVAL], "a second insertion")?;
    for stranger in [FiAddr(77), FiAddr::NOTAVAIL] {
        let unknown = s.change_set(set, SetChange::Insert(stranger));
        refused(unknown, &[Errno::EINVAL], "an address nobody has")?;
    }
    change(&team, set, SetChange::Insert(FiAddr(0)))?;
    holds(&team, set, &[1, 0])?;
    team.close()
}

fn range(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 5)?;
    for (first, last, stride, ranks) in [
        (0, 4, 1, &[0, 1, 2, 3, 4][..]),
        (0, 4, 2, &[0, 2, 4]),
        (0, 3, 2, &[0, 2]),
        (0, 0, 1, &[0]),
        (0, 4, 3, &[0, 3]),
        (0, 9, 4, &[0, 4]),
    ] {
        let attr = AvSetAttr {
            count: 5,
            range: (FiAddr(first), FiAddr(last)),
            stride,
            ..AvSetAttr::EMPTY
        };
        holds(&team, team.set(A, attr)?, ranks)?;
    }
    team.close()
}

/// A set of all.
fn whole(team: &Team<'_>) -> Step<Fid> {
    let flags = ripstop_core::av::set::UNIVERSE;
    team.set(
        A,
        AvSetAttr {
            flags,
            ..AvSetAttr::EMPTY
        },
    )
}

fn universe(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 3)?;
    let set = whole(&team)?;
    holds(&team, set, &[0, 1, 2])?;
    team.close()
}

fn union(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 4)?;
    let set = team.set_of(A, &[2, 0])?;
    let other = team.set_of(A, &[3, 2, 0, 1])?;
    change(&team, set, SetChange::Union(other))?;
    holds(&team, set, &[2, 0, 3, 1])?;
    holds(&team, other, &[3, 2, 0, 1])?;
    team.close()
}

fn intersect(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 4)?;
    let set = team.set_of(A, &[3, 1, 0, 2])?;
    let other = team.set_of(A, &[0, 2, 3])?;
    change(&team, set, SetChange::Intersect(other))?;
    holds(&team, set, &[3, 0, 2])?;
    holds(&team, other, &[0, 2, 3])?;
    team.close()
}

fn diff(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 4)?;
    let set = whole(&team)?;
    let other = team.set_of(A, &[2])?;
    change(&team, set, SetChange::Diff(other))?;
    holds(&team, set, &[0, 1, 3])?;
    // From itself nothing is left.
    change(&team, other, SetChange::Diff(other))?;
    let gone = team.rig.s.change_set(other, SetChange::Remove(FiAddr(2)));
    refused(gone, &[Errno::EINVAL], "removing what is not there")?;
    team.rig.s.close(other)?;
    team.close()
}

fn remove(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 4)?;
    let set = team.set_of(A, &[3, 1, 0, 2])?;
    change(&team, set, SetChange::Remove(FiAddr(1)))?;
    let gone = team.rig.s.change_set(set, SetChange::Remove(FiAddr(1)));
    refused(gone, &[Errno::EINVAL], "removing what is not there")?;
    holds(&team, set, &[3, 0, 2])?;
    team.close()
}

fn addr(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 2)?;
    let s = team.rig.s;
    let (set, other) = (team.set_of(A, &[0])?, team.set_of(A, &[0, 1])?);
    let addrs = [s.set_addr(set)?, s.set_addr(other)?];
    ensure!(addrs[0] != addrs[1], "both sets are called {:?}", addrs[0]);
    for addr in addrs {
        let peer = (0..2).any(|rank| addr == team.name(A, rank));
        ensure!(addr.is_specified() && !peer, "a set is called {addr:?}");
    }
    change(&team, set, SetChange::Insert(FiAddr(1)))?;
    ensure!(s.set_addr(set)? == addrs[0], "the address has changed");
    holds(&team, set, &[0, 1])?;
    holds(&team, other, &[0, 1])?;
    team.close()
}

fn bad_range(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 3)?;
    let (none, addr) = (FiAddr::NOTAVAIL, FiAddr);
    for (count, range, stride) in [
        (0, (addr(0), addr(2)), 0),
        (0, (addr(0), none), 1),
        (0, (none, addr(2)), 1),
        (0, (addr(2), addr(0)), 1),
        (2, (addr(0), addr(2)), 1),
    ] {
        let attr = AvSetAttr {
            count,
            range,
            stride,
            ..AvSetAttr::EMPTY
        };
        let av = team.rig.sides[A].av.unwrap_or(team.rig.fabric);
        let what = format!("{attr:?}");
        refused(team.rig.s.av_set(av, attr), &[Errno::EINVAL], &what)?;
    }
    team.close()
}

fn range_of_map(cx: &Cx<'_>) -> Outcome {
    let team = Team::with(cx, 2, &Spec::collective().av_type(AvType::Map))?;
    let av = team.rig.sides[A].av.unwrap_or(team.rig.fabric);
    let (first, last) = (team.name(A, 0), team.name(A, 1));
    let attr = AvSetAttr {
        range: (first.min(last), first.max(last)),
        stride: 1,
        ..AvSetAttr::EMPTY
    };
    let set = team.rig.s.av_set(av, attr);
    refused(set, &[Errno::EINVAL], "a range of a map")?;
    let set = whole(&team)?;
    for addr in [first, last] {
        change(&team, set, SetChange::Remove(addr))?;
    }
    team.rig.s.close(set)?;
    team.close()
}

fn bad_flags(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 1)?;
    let av = team.rig.sides[A].av.unwrap_or(team.rig.fabric);
    for bit in [0, 12, 39, 49, 58, 63] {
        let attr = AvSetAttr {
            flags: Flags::from_bits_retain(1 << bit),
            ..AvSetAttr::EMPTY
        };
        let set = team.rig.s.av_set(av, attr);
        let reasons = [Errno::EBADFLAGS, Errno::EINVAL];
        refused(set, &reasons, &format!("bit {bit}"))?;
    }
    team.close()
}

fn operations(cx: &Cx<'_>) -> Outcome {
    let team = Team::open(cx, 2)?;
    for only in Collective::ALL {
        let mut fids = Vec::new();
        for side in [0, 1] {
            let attr = AvSetAttr {
                flags: ripstop_core::av::set::set_flag(only),
                ..AvSetAttr::EMPTY
            };
            let set = team.set(side, attr)?;
            for rank in [0, 1] {
                change(&team, set, SetChange::Insert(team.name(side, rank)))?;
            }
            fids.push(team.rig.s.join(team.rig.sides[side].ep, set)?);
            team.rig.s.close(set)?;
        }
        let group = team.finish(&[0, 1], fids)?;
        for coll in Collective::ALL {
            let what = What::new(coll, Datatype::Int32, 3);
            if coll == only {
                team.run(&group, &what)?;
                continue;
            }
            let call = team.call(&group, 0, &what);
            let started = team.rig.s.collective(team.rig.sides[0].ep, &call);
            let reasons = [Errno::EOPNOTSUPP, Errno::EINVAL];
            refused(started, &reasons, &format!("{coll:?} for {only:?}"))?;
        }
        team.leave(group)?;
    }
    team.close()
}

fn busy(cx: &Cx<'_>) -> Outcome {
    let team = tables(cx, 1)?;
    let s = team.rig.s;
    let av = s.av(team.rig.sides[A].domain, Default::default())?;
    let set = s.av_set(av, AvSetAttr::EMPTY)?;
    in_use(s.close(av), "the vector of a set")?;
    s.close(set)?;
    s.close(av)?;
    team.close()
}
