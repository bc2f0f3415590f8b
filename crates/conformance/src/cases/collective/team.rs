//! Several endpoints that know each other, the groups they join, and what operations give.

use ripstop_types::{AtomicOp, Collective, Datatype, FiAddr, Flags};

use crate::case::{Cx, Outcome, Step, Stop};
use crate::cases::atomic::model::{after, elements, significant};
use crate::ensure;
use crate::rig::{A, Rig, Spec, bare};
use crate::subject::{AvSetAttr, Coll, Completion, Event, Fid, SetChange, Token};

/// Endpoints that know each other, each by its own address vector.
pub(super) struct Team<'a> {
    pub(super) rig: Rig<'a>,
    /// What each endpoint calls each.
    names: Vec<Vec<FiAddr>>,
}

/// A group as its members know it: in the order of ranks.
pub(super) struct Group {
    /// The endpoints.
    pub(super) ranks: Vec<usize>,
    /// The groups of each member.
    pub(super) fids: Vec<Fid>,
    /// The address of the group at each member.
    pub(super) addrs: Vec<FiAddr>,
}

/// What an operation is, the same at all members.
#[derive(Clone, Copy, Debug)]
pub(super) struct What {
    pub(super) coll: Collective,
    pub(super) datatype: Datatype,
    pub(super) op: AtomicOp,
    pub(super) count: usize,
    /// The rank of the root.
    pub(super) root: usize,
}

impl What {
    pub(super) fn new(coll: Collective, datatype: Datatype, count: usize) -> Self {
        Self {
            coll,
            datatype,
            op: AtomicOp::Sum,
            count,
            root: 0,
        }
    }

    pub(super) fn with(self, op: AtomicOp) -> Self {
        Self { op, ..self }
    }

    pub(super) fn root(self, root: usize) -> Self {
        Self { root, ..self }
    }

    /// How many blocks a member puts in, and gets.
    fn blocks(&self, n: usize, rank: usize) -> (usize, usize) {
        let root = |blocks: usize| if rank == self.root { blocks } else { 0 };
        match self.coll {
            Collective::Barrier => (0, 0),
            Collective::Broadcast => (0, 1),
            Collective::Alltoall => (n, n),
            Collective::Allreduce => (1, 1),
            Collective::Allgather => (1, n),
            Collective::ReduceScatter => (n, 1),
            Collective::Reduce => (1, root(1)),
            Collective::Scatter => (root(n), 1),
            Collective::Gather => (1, root(n)),
        }
    }

    /// What a member has at a place. Sums and products of what five members have are numbers
    /// that every datatype holds.
    fn value(&self, rank: usize, place: usize) -> u64 {
        let (rank, place) = (rank as u64, place as u64);
        match (self.coll.reduces(), self.datatype) {
            (true, _) => (rank + place) % 3,
            (false, Datatype::Uint64 | Datatype::Int64) => rank << 32 | place,
            (false, _) => (rank * 5 + place) % 16,
        }
    }

    fn values(&self, rank: usize, block: usize) -> Vec<u64> {
        let start = block * self.count;
        let places = start..start + self.count;
        places.map(|place| self.value(rank, place)).collect()
    }

    /// A block of all members reduced, lower ranks on the left.
    fn reduced(&self, n: usize, block: usize) -> Vec<u64> {
        let mut all = (0..n).map(|rank| self.values(rank, block));
        let first = all.next().unwrap_or_default();
        all.fold(first, |left, right| {
            let both = left.iter().zip(&right);
            both.map(|(t, b)| after(self.op, [*t, *b, 0])).collect()
        })
    }

    /// What a member of `n` gets, or nothing.
    fn outcome(&self, n: usize, rank: usize) -> Vec<u8> {
        let of_each = |block: usize| -> Vec<u64> {
            let all = (0..n).map(|from| self.values(from, block));
            all.collect::<Vec<_>>().concat()
        };
        let (_, gets) = self.blocks(n, rank);
        let numbers = match self.coll {
            _ if gets == 0 => Vec::new(),
            Collective::Barrier => Vec::new(),
            Collective::Broadcast => self.values(self.root, 0),
            Collective::Alltoall => of_each(rank),
            Collective::Allreduce | Collective::Reduce => self.reduced(n, 0),
            Collective::Allgather | Collective::Gather => of_each(0),
            Collective::ReduceScatter => self.reduced(n, rank),
            Collective::Scatter => self.values(self.root, rank),
        };
        elements(self.datatype, &numbers)
    }

    /// What a member of `n` could get from itself alone, and 0xa5 where nothing.
    pub(super) fn own(&self, n: usize, rank: usize) -> Vec<u8> {
        let (_, gets) = self.blocks(n, rank);
        let block = |block: usize| elements(self.datatype, &self.values(rank, block));
        let none = vec![0xa5; self.count * self.datatype.size()];
        let blocks = (0..gets).map(|at| match self.coll {
            Collective::Alltoall if at == rank => block(rank),
            Collective::Allgather | Collective::Gather if at == rank => block(0),
            Collective::Alltoall | Collective::Allgather | Collective::Gather => none.clone(),
            Collective::ReduceScatter => block(rank),
            _ => block(0),
        });
        blocks.collect::<Vec<_>>().concat()
    }

    /// The call of a member.
    fn call(&self, n: usize, rank: usize) -> Coll {
        let (puts, gets) = self.blocks(n, rank);
        let input = (0..puts).map(|block| self.values(rank, block));
        let input = elements(self.datatype, &input.collect::<Vec<_>>().concat());
        // What it gets in is not zero before.
        let result = match self.coll == Collective::Broadcast && rank == self.root {
            true => elements(self.datatype, &self.values(rank, 0)),
            false => vec![0xa5; gets * self.count * self.datatype.size()],
        };
        Coll {
            coll: self.coll,
            datatype: self.datatype.number(),
            op: self.op.number(),
            count: self.count,
            group: FiAddr::NOTAVAIL,
            root: FiAddr::NOTAVAIL,
            input,
            result,
            flags: Flags::empty(),
            when: None,
            token: 0,
        }
    }
}

impl<'a> Team<'a> {
    /// So many endpoints with collectives.
    #[track_caller]
    pub(super) fn open(cx: &Cx<'a>, n: usize) -> Step<Self> {
        Self::with(cx, n, &Spec::collective())
    }

    #[track_caller]
    pub(super) fn with(cx: &Cx<'a>, n: usize, spec: &Spec) -> Step<Self> {
        let mut rig = bare(cx, spec)?;
        rig.eqs = vec![rig.s.eq(rig.fabric, spec.eq_wait)?];
        let first = rig.s.domain(rig.fabric, &rig.info)?;
        for rank in 0..n {
            let is_apart = rig.s.place(rank);
            if is_apart && rank > 0 {
                rig.eqs.push(rig.s.eq(rig.fabric, spec.eq_wait)?);
            }
            let domain = match rank > 0 && (spec.two_domains || is_apart) {
                true => rig.s.domain(rig.fabric, &rig.info)?,
                false => first,
            };
            let side = rig.add(spec, domain)?;
            rig.sides.push(side);
        }
        rig.s.place(A);
        let mut names = Vec::new();
        for side in 0..n {
            let mut known = vec![FiAddr::NOTAVAIL; n];
            // Each knows the others in an order of its own.
            for i in 0..n {
                let other = (side + i) % n;
                let name = rig.sides[other].name.clone();
                known[other] = rig.insert(side, name.as_ref())?;
            }
            rig.sides[side].peer = known[(side + 1) % n];
            names.push(known);
        }
        Ok(Self { rig, names })
    }

    /// What an endpoint calls another.
    pub(super) fn name(&self, side: usize, other: usize) -> FiAddr {
        self.names[side][other]
    }

    /// An empty set of an endpoint's.
    #[track_caller]
    pub(super) fn set(&self, side: usize, attr: AvSetAttr) -> Step<Fid> {
        Ok(self.rig.s.av_set(self.rig.av(side)?, attr)?)
    }

    /// A set of these endpoints, in this order, as an endpoint knows them.
    #[track_caller]
    pub(super) fn set_of(&self, side: usize, ranks: &[usize]) -> Step<Fid> {
        let set = self.set(side, AvSetAttr::EMPTY)?;
        for rank in ranks {
            let change = SetChange::Insert(self.name(side, *rank));
            self.rig.s.change_set(set, change)?;
        }
        Ok(set)
    }

    /// An endpoint begins to join the group of these.
    #[track_caller]
    pub(super) fn begin(&self, side: usize, ranks: &[usize]) -> Step<Fid> {
        let set = self.set_of(side, ranks)?;
        let group = self.rig.s.join(self.rig.sides[side].ep, set)?;
        // The group has its own list.
        self.rig.s.close(set)?;
        Ok(group)
    }

    /// Waits until all of these have joined, in any order.
    #[track_caller]
    pub(super) fn joined(&self, mut groups: Vec<Fid>) -> Outcome {
        while !groups.is_empty() {
            match self.rig.any_event()? {
                Ok(Event::Joined { group }) if groups.contains(&group) => {
                    groups.retain(|fid| *fid != group);
                }
                other => {
                    return Err(Stop::fail(format!(
                        "expected FI_JOIN_COMPLETE, got {other:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// These endpoints join a group.
    #[track_caller]
    pub(super) fn join(&self, ranks: &[usize]) -> Step<Group> {
        let fids = ranks.iter().map(|side| self.begin(*side, ranks));
        self.finish(ranks, fids.collect::<Step<Vec<_>>>()?)
    }

    /// Waits until a group is joined.
    #[track_caller]
    pub(super) fn finish(&self, ranks: &[usize], fids: Vec<Fid>) -> Step<Group> {
        self.joined(fids.clone())?;
        let addrs = fids.iter().map(|fid| Ok(self.rig.s.group_addr(*fid)?));
        let addrs = addrs.collect::<Step<Vec<_>>>()?;
        for addr in &addrs {
            ensure!(addr.is_specified(), "the group has no address");
        }
        Ok(Group {
            ranks: ranks.to_vec(),
            fids,
            addrs,
        })
    }

    /// All endpoints join a group.
    #[track_caller]
    pub(super) fn all(&self) -> Step<Group> {
        let ranks: Vec<_> = (0..self.rig.sides.len()).collect();
        self.join(&ranks)
    }

    /// The members leave.
    #[track_caller]
    pub(super) fn leave(&self, group: Group) -> Outcome {
        for fid in group.fids {
            self.rig.s.close(fid)?;
        }
        Ok(())
    }

    /// The call of a member, with group and root as it knows them.
    pub(super) fn call(&self, group: &Group, rank: usize, what: &What) -> Coll {
        let mut call = what.call(group.ranks.len(), rank);
        call.group = group.addrs[rank];
        if what.coll.has_root() {
            call.root = self.name(group.ranks[rank], group.ranks[what.root]);
        }
        call.token = self.rig.token();
        call
    }

    /// A member starts its part.
    #[track_caller]
    pub(super) fn start(&self, group: &Group, rank: usize, what: &What) -> Step<Token> {
        self.start_call(group, rank, &self.call(group, rank, what))
    }

    #[track_caller]
    pub(super) fn start_call(&self, group: &Group, rank: usize, call: &Coll) -> Step<Token> {
        let ep = self.rig.sides[group.ranks[rank]].ep;
        self.rig.retry("a full queue takes another operation", || {
            self.rig.s.collective(ep, call)
        })?;
        Ok(call.token)
    }

    /// Waits for a member's part, and looks at what it got.
    #[track_caller]
    pub(super) fn check(&self, group: &Group, rank: usize, what: &What, token: Token) -> Outcome {
        let done = self.rig.done(group.ranks[rank], token)?;
        got(&done, group.ranks.len(), rank, what)
    }

    /// All members carry out an operation.
    #[track_caller]
    pub(super) fn run(&self, group: &Group, what: &What) -> Outcome {
        let members = 0..group.ranks.len();
        let started = members.map(|rank| self.start(group, rank, what));
        let tokens = started.collect::<Step<Vec<_>>>()?;
        for (rank, token) in tokens.into_iter().enumerate() {
            self.check(group, rank, what, token)?;
        }
        Ok(())
    }

    /// Nothing is left, and everything closes.
    #[track_caller]
    pub(super) fn close(self) -> Outcome {
        self.rig.finish()
    }
}

/// Looks at what a member of `n` got.
#[track_caller]
pub(super) fn got(done: &Completion, n: usize, rank: usize, what: &What) -> Outcome {
    ensure!(
        done.flags.contains(Flags::COLLECTIVE),
        "a completion says {:?}, not FI_COLLECTIVE",
        done.flags
    );
    let wanted = significant(what.datatype, &what.outcome(n, rank));
    let result = done.bufs.last().map(Vec::as_slice).unwrap_or_default();
    let found = significant(what.datatype, result);
    if found == wanted {
        return Ok(());
    }
    let at = found.iter().zip(&wanted).position(|(a, b)| a != b);
    Err(Stop::fail(format!(
        "{what:?}: member {rank} of {n} got something else from byte {at:?} of {} on",
        wanted.len()
    )))
}
