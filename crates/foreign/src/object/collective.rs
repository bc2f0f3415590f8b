#![allow(unsafe_code)]
//! Address vector sets and collective groups, `fi_av_set`(3) and `fi_collective`(3).

use std::collections::HashSet;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{
    FI_COLLECTIVE, fi_av_set_attr, fi_collective_addr, fi_collective_attr, fi_ops_av_set,
    fi_ops_collective, fid_av_set, fid_mc,
};
use ripstop_core::av::set::{AvSetAttr, UNIVERSE};
use ripstop_core::provider::{CollCall, CollLimit, Threshold, Token};
use ripstop_mem::UserBuf;
use ripstop_types::{Collective, Context, Datatype, Errno, FiAddr, Flags};

use crate::call::{ENOSYS, calls, op};
use crate::eq::Name;
use crate::fabric::opened;
use crate::ops::{Kind, arm};
use crate::owned::Owned;
use crate::threading::{Lock as _, Threading};
use crate::{Av, Domain, Endpoint, Error, Result};

/// Some peers of an address vector, in an order.
pub struct AvSet<M: Threading> {
    pub(crate) owned: Owned<fid_av_set, M, Arc<Av<M>>>,
    /// What the library should hold too, in any order: how long buffers must be depends on it.
    members: M::Lock<Vec<FiAddr>>,
}

/// A change of a set by another.
type Change = unsafe extern "C" fn(dst: *mut fid_av_set, src: *const fid_av_set) -> std::ffi::c_int;

impl<M: Threading> Av<M> {
    /// Makes a set of peers (`fi_av_set`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn set(self: &Arc<Self>, attr: &AvSetAttr) -> Result<Arc<AvSet<M>>> {
        let (start, end) = (attr.start, attr.end);
        let mut c_attr = fi_av_set_attr {
            count: attr.count,
            start_addr: start.0,
            end_addr: end.0,
            stride: attr.stride,
            flags: attr.flags.bits(),
            ..Default::default()
        };
        let mut set: *mut fid_av_set = ptr::null_mut();
        let (av, context) = (self.owned.get(), ptr::null_mut());
        let ret = calls!(
            self.table(),
            fi_ops_av.av_set(av, &raw mut c_attr, &raw mut set, context)
        );
        let set = opened("fi_av_set", ret, set)?;
        let members = if start.is_specified() {
            let mut all = self.all();
            all.retain(|addr| {
                let beyond = addr.0.checked_sub(start.0);
                let on = |beyond: u64| beyond.is_multiple_of(attr.stride.max(1));
                addr.0 <= end.0 && beyond.is_some_and(on)
            });
            all
        } else if attr.flags.contains(UNIVERSE) {
            self.all()
        } else {
            Vec::new()
        };
        Ok(Arc::new(AvSet {
            owned: Owned::new(set, self.clone()),
            members: M::Lock::new(members),
        }))
    }
}

impl<M: Threading> AvSet<M> {
    fn table(&self) -> *const fi_ops_av_set {
        // SAFETY: the set is open.
        unsafe { (*self.owned.get()).ops }
    }

    fn change(
        &self,
        (call, change): (&'static str, Option<Change>),
        other: &Self,
        keep: impl FnOnce(&mut Vec<FiAddr>, HashSet<FiAddr>),
    ) -> Result<()> {
        let ret = match change {
            // SAFETY: both sets are open.
            Some(change) => unsafe { change(self.owned.get(), other.owned.get()) },
            None => ENOSYS,
        };
        Error::check(call, ret)?;
        let theirs = other.members().into_iter().collect();
        self.members.with(|members| keep(members, theirs));
        Ok(())
    }

    /// Adds the members of another set (`fi_av_set_union`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn union(&self, other: &Self) -> Result<()> {
        let change = op!(self.table(), fi_ops_av_set.set_union);
        self.change(("fi_av_set_union", change), other, |members, mut theirs| {
            members.iter().for_each(|addr| {
                theirs.remove(addr);
            });
            members.extend(theirs);
        })
    }

    /// Keeps the members that another set has (`fi_av_set_intersect`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn intersect(&self, other: &Self) -> Result<()> {
        let change = op!(self.table(), fi_ops_av_set.intersect);
        self.change(("fi_av_set_intersect", change), other, |members, theirs| {
            members.retain(|addr| theirs.contains(addr));
        })
    }

    /// Removes the members that another set has (`fi_av_set_diff`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn diff(&self, other: &Self) -> Result<()> {
        let change = op!(self.table(), fi_ops_av_set.diff);
        self.change(("fi_av_set_diff", change), other, |members, theirs| {
            members.retain(|addr| !theirs.contains(addr));
        })
    }

    /// Adds a member at the end (`fi_av_set_insert`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn insert(&self, addr: FiAddr) -> Result<()> {
        let ret = calls!(self.table(), fi_ops_av_set.insert(self.owned.get(), addr.0));
        Error::check("fi_av_set_insert", ret)?;
        self.members.with(|members| members.push(addr));
        Ok(())
    }

    /// Removes a member (`fi_av_set_remove`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn remove(&self, addr: FiAddr) -> Result<()> {
        let ret = calls!(self.table(), fi_ops_av_set.remove(self.owned.get(), addr.0));
        Error::check("fi_av_set_remove", ret)?;
        self.members
            .with(|members| members.retain(|member| *member != addr));
        Ok(())
    }

    /// The address of all members, for joining (`fi_av_set_addr`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn addr(&self) -> Result<FiAddr> {
        let mut addr = FiAddr::NOTAVAIL.0;
        let ret = calls!(
            self.table(),
            fi_ops_av_set.addr(self.owned.get(), &raw mut addr)
        );
        Error::check("fi_av_set_addr", ret)?;
        Ok(FiAddr(addr))
    }

    fn members(&self) -> Vec<FiAddr> {
        self.members.with(|members| members.clone())
    }
}

/// A group that an endpoint has joined, or is joining. Closing it leaves the group.
pub struct Group<M: Threading> {
    pub(crate) owned: Owned<fid_mc, M, Arc<Endpoint<M>>>,
    /// What the queue of its endpoint calls it.
    _name: Option<Name>,
    /// A set that is its own, which closes after it.
    pub(crate) set: Option<Arc<AvSet<M>>>,
}

impl<M: Threading> Group<M> {
    pub(crate) fn address(&self) -> FiAddr {
        // SAFETY: the group is open.
        FiAddr(unsafe { (*self.owned.get()).fi_addr })
    }
}

/// A collective operation, besides its memory, for callers who name datatypes and operations that
/// are none: else [`CollCall`] says the same.
#[derive(Clone, Copy, Debug)]
pub struct Collecting {
    /// Which.
    pub coll: Collective,
    /// `enum fi_datatype`: any number, known or not.
    pub datatype: u32,
    /// `enum fi_op`: any number, known or not.
    pub op: u32,
    /// Elements of a block.
    pub count: usize,
    /// The address of the group, or any other.
    pub group: FiAddr,
    /// The root, where there is one.
    pub root: FiAddr,
    /// The caller's context.
    pub context: Context,
    /// The flags of the call.
    pub flags: Flags,
}

impl From<&CollCall> for Collecting {
    fn from(call: &CollCall) -> Self {
        Self {
            coll: call.coll,
            datatype: call.datatype.number(),
            op: call.op.number(),
            count: call.count,
            group: call.group,
            root: call.root,
            context: call.context,
            flags: call.flags.unwrap_or_default(),
        }
    }
}

impl Collecting {
    /// Whether buffers are as long as the call makes the library believe, in a group of `n`; an
    /// empty one is given as null.
    fn fits(&self, n: usize, input: usize, result: usize) -> bool {
        let (puts, gets) = match self.coll {
            Collective::Barrier => (0, 0),
            Collective::Broadcast => (0, 1),
            Collective::Alltoall => (n, n),
            Collective::Allgather | Collective::Gather => (1, n),
            Collective::ReduceScatter | Collective::Scatter => (n, 1),
            Collective::Allreduce | Collective::Reduce => (1, 1),
        };
        // What a library makes of an unknown datatype is not known.
        let size = Datatype::from_number(self.datatype).map_or(32, Datatype::size);
        let bytes = |blocks: usize| self.count.checked_mul(size)?.checked_mul(blocks);
        let enough = |len, blocks| len == 0 || bytes(blocks).is_some_and(|need| len >= need);
        enough(input, puts) && enough(result, gets)
    }
}

fn call_name(coll: Collective) -> &'static str {
    match coll {
        Collective::Barrier => "fi_barrier",
        Collective::Broadcast => "fi_broadcast",
        Collective::Alltoall => "fi_alltoall",
        Collective::Allreduce => "fi_allreduce",
        Collective::Allgather => "fi_allgather",
        Collective::ReduceScatter => "fi_reduce_scatter",
        Collective::Reduce => "fi_reduce",
        Collective::Scatter => "fi_scatter",
        Collective::Gather => "fi_gather",
    }
}

impl<M: Threading> Endpoint<M> {
    /// Joins the group of a set (`fi_join_collective`), under the address of the set, of a group
    /// or any other. Events call it by the name, with the context.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn join_set(
        self: &Arc<Self>,
        set: &Arc<AvSet<M>>,
        (coll_addr, flags): (FiAddr, Flags),
        name: (Token, Context),
    ) -> Result<Group<M>> {
        let members = set.members().len();
        let addr = fi_collective_addr {
            set: set.owned.get(),
            coll_addr: coll_addr.0,
        };
        let mut group: *mut fid_mc = ptr::null_mut();
        let flags = flags.bits() | FI_COLLECTIVE;
        let mut join = || {
            let (at, out) = ((&raw const addr).cast(), &raw mut group);
            let (table, ep) = (self.cm(), self.raw());
            let ret = calls!(table, fi_ops_cm.join(ep, at, flags, out, ptr::null_mut()));
            let found = opened("fi_join_collective", ret, group)?;
            Ok((found.get().cast(), found))
        };
        let eq = self
            .name
            .with(|name| name.as_ref().map(|name| name.eq.clone()));
        let (name, found) = match eq {
            Some(eq) => eq
                .name(name, join)
                .map(|(name, found)| (Some(name), found))?,
            None => (None, join()?.1),
        };
        let group = Group {
            owned: Owned::new(found, self.clone()),
            _name: name,
            set: None,
        };
        let known = (group.address(), members);
        self.groups.with(|groups| groups.push(known));
        Ok(group)
    }

    /// The most members that a group with this address can have; of an unknown one, as many as
    /// any.
    fn group_size_at_most(&self, addr: FiAddr) -> usize {
        self.groups.with(|groups| {
            let known = groups.iter().filter(|(group, _)| *group == addr);
            let most = known.map(|(_, members)| *members).max();
            let any = groups.iter().map(|(_, members)| *members).max();
            most.or(any).unwrap_or(1)
        })
    }

    /// How many members a group has that this endpoint has joined.
    pub(crate) fn known_group(&self, addr: FiAddr) -> Option<usize> {
        self.groups.with(|groups| {
            let known = groups.iter().rev().find(|(group, _)| *group == addr);
            known.map(|(_, members)| *members)
        })
    }

    fn collective_ops(&self) -> *const fi_ops_collective {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).collective }
    }

    /// Starts a collective operation with an operand and room for the result, when a counter has come
    /// so far if one is named (`FI_TRIGGER`, which [`Collecting::flags`] must not have); an empty one,
    /// or one that the operation does not take, is given as null. The buffer of a broadcast is the
    /// second.
    ///
    /// # Errors
    ///
    /// What the library says; `FI_EINVAL` for buffers that are too short, which it cannot see.
    pub fn start_collective(
        &self,
        [input, result]: [UserBuf; 2],
        call: &Collecting,
        when: Option<Threshold<'_, Domain<M>>>,
    ) -> Result<()> {
        let name = call_name(call.coll);
        let members = self.group_size_at_most(call.group);
        if !call.fits(members, input.len(), result.len()) {
            return Err(Error::new(name, Errno::EINVAL));
        }
        if call.flags.contains(Flags::TRIGGER) {
            return Err(Error::new(name, Errno::EBADFLAGS));
        }
        let start = |buf: UserBuf| match buf.len() {
            0 => ptr::null_mut(),
            _ => buf.as_ptr().cast(),
        };
        let mut call = *call;
        if when.is_some() {
            call.flags |= Flags::TRIGGER;
        }
        self.post(name, Kind::Plain, call.context, |context| {
            let armed = when.map(|when| arm(context, when.counter.owned.get(), when.value));
            if let Some(Err(error)) = armed {
                return error.code();
            }
            self.call_collective(&call, [input, result].map(start), context)
        })
    }

    fn call_collective(
        &self,
        call: &Collecting,
        [input, result]: [*mut c_void; 2],
        context: *mut c_void,
    ) -> isize {
        let (ep, table, none) = (self.raw(), self.collective_ops(), ptr::null_mut());
        let (count, kind, op) = (call.count, call.datatype, call.op);
        let (group, root, flags) = (call.group.0, call.root.0, call.flags.bits());
        match call.coll {
            Collective::Barrier if flags == 0 => {
                calls!(table, fi_ops_collective.barrier(ep, group, context))
            }
            Collective::Barrier => {
                calls!(table, fi_ops_collective.barrier2(ep, group, flags, context))
            }
            Collective::Broadcast => calls!(
                table,
                fi_ops_collective
                    .broadcast(ep, result, count, none, group, root, kind, flags, context)
            ),
            Collective::Alltoall => calls!(
                table,
                fi_ops_collective.alltoall(
                    ep, input, count, none, result, none, group, kind, flags, context
                )
            ),
            Collective::Allreduce => calls!(
                table,
                fi_ops_collective.allreduce(
                    ep, input, count, none, result, none, group, kind, op, flags, context
                )
            ),
            Collective::Allgather => calls!(
                table,
                fi_ops_collective.allgather(
                    ep, input, count, none, result, none, group, kind, flags, context
                )
            ),
            Collective::ReduceScatter => calls!(
                table,
                fi_ops_collective.reduce_scatter(
                    ep, input, count, none, result, none, group, kind, op, flags, context
                )
            ),
            Collective::Reduce => calls!(
                table,
                fi_ops_collective.reduce(
                    ep, input, count, none, result, none, group, root, kind, op, flags, context
                )
            ),
            Collective::Scatter => calls!(
                table,
                fi_ops_collective.scatter(
                    ep, input, count, none, result, none, group, root, kind, flags, context
                )
            ),
            Collective::Gather => calls!(
                table,
                fi_ops_collective.gather(
                    ep, input, count, none, result, none, group, root, kind, flags, context
                )
            ),
        }
    }
}

impl<M: Threading> Domain<M> {
    /// The bounds of a collective operation (`fi_query_collective`): `enum fi_collective_op`,
    /// `enum fi_datatype` and `enum fi_op` as any numbers.
    ///
    /// # Errors
    ///
    /// `FI_EOPNOTSUPP` for what is not offered.
    pub fn query_collective(
        &self,
        coll: u32,
        datatype: u32,
        op: u32,
        flags: u64,
    ) -> Result<CollLimit> {
        let mut attr = fi_collective_attr {
            op,
            datatype,
            ..Default::default()
        };
        let ret = calls!(
            self.table(),
            fi_ops_domain.query_collective(self.owned.get(), coll, &raw mut attr, flags)
        );
        Error::check("fi_query_collective", ret)?;
        Ok(CollLimit {
            count: attr.datatype_attr.count,
            members: attr.max_members,
        })
    }
}
