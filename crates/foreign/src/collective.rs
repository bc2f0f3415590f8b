#![allow(unsafe_code)]
//! Address vector sets and collective groups, `fi_av_set`(3) and `fi_collective`(3).

use std::collections::HashSet;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{
    FI_COLLECTIVE, FI_UNIVERSE, fi_av_set_attr, fi_collective_addr, fi_collective_attr,
    fi_ops_av_set, fi_ops_collective, fid_av_set, fid_ep, fid_mc, iovec,
};
use ripstop_types::{Collective, Datatype, Errno, FiAddr, Flags};

use crate::av::AvCore;
use crate::buf::Buf;
use crate::call::{ENOSYS, op};
use crate::deferred::arm;
use crate::endpoint::EpCore;
use crate::eq::FidId;
use crate::fabric::opened;
use crate::msg::{NONE, Posted, refused};
use crate::ops::Kind;
use crate::owned::Owned;
use crate::payload::Payload;
use crate::threading::{Lock, Threading};
use crate::{Av, Cntr, Domain, Endpoint, Error, Result};

/// How to make an address vector set (`struct fi_av_set_attr`).
#[derive(Clone, Copy, Debug)]
pub struct AvSetAttr {
    /// Members expected, or 0.
    pub count: usize,
    /// The first and the last address of a range, or [`FiAddr::NOTAVAIL`] twice.
    pub range: (FiAddr, FiAddr),
    /// Every how many-th address of the range.
    pub stride: u64,
    /// `FI_UNIVERSE`, `FI_BARRIER_SET` and so on.
    pub flags: Flags,
}

struct SetCore<M: Threading> {
    owned: Owned<fid_av_set, M, Arc<AvCore<M>>>,
    /// What the library should hold too, in any order: how long buffers must be depends on it.
    members: M::Lock<Vec<FiAddr>>,
}

/// Some peers of an address vector, in an order. Clones share it.
pub struct AvSet<M: Threading> {
    core: Arc<SetCore<M>>,
}

impl<M: Threading> Clone for AvSet<M> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
    }
}

/// A change of a set by another.
type Change = unsafe extern "C" fn(dst: *mut fid_av_set, src: *const fid_av_set) -> std::ffi::c_int;

impl<M: Threading> Av<M> {
    /// Makes a set of peers (`fi_av_set`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn set(&self, attr: &AvSetAttr) -> Result<AvSet<M>> {
        let (start, end) = attr.range;
        let mut c_attr = fi_av_set_attr {
            count: attr.count,
            start_addr: start.0,
            end_addr: end.0,
            stride: attr.stride,
            flags: attr.flags.bits(),
            ..Default::default()
        };
        let mut set: *mut fid_av_set = ptr::null_mut();
        let (av, context) = (self.core.owned.get(), ptr::null_mut());
        let ret = match op!(self.table(), fi_ops_av.av_set) {
            // SAFETY: vector and attributes are live, `set` takes the result.
            Some(open) => unsafe { open(av, &raw mut c_attr, &raw mut set, context) },
            None => ENOSYS,
        };
        let set = opened("fi_av_set", ret, set)?;
        let members = if start.is_specified() {
            let mut all = self.core.all();
            all.retain(|addr| {
                let beyond = addr.0.checked_sub(start.0);
                let on = |beyond: u64| beyond.is_multiple_of(attr.stride.max(1));
                addr.0 <= end.0 && beyond.is_some_and(on)
            });
            all
        } else if attr.flags.bits() & FI_UNIVERSE != 0 {
            self.core.all()
        } else {
            Vec::new()
        };
        Ok(AvSet {
            core: Arc::new(SetCore {
                owned: Owned::new(set, self.core.clone()),
                members: M::Lock::new(members),
            }),
        })
    }
}

impl<M: Threading> AvSet<M> {
    fn table(&self) -> *const fi_ops_av_set {
        // SAFETY: the set is open.
        unsafe { (*self.core.owned.get()).ops }
    }

    fn change(
        &self,
        (call, change): (&'static str, Option<Change>),
        other: &Self,
        keep: impl FnOnce(&mut Vec<FiAddr>, HashSet<FiAddr>),
    ) -> Result<()> {
        let ret = match change {
            // SAFETY: both sets are open.
            Some(change) => unsafe { change(self.core.owned.get(), other.core.owned.get()) },
            None => ENOSYS,
        };
        Error::check(call, ret)?;
        let theirs = other.members().into_iter().collect();
        self.core.members.with(|members| keep(members, theirs));
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
        let ret = match op!(self.table(), fi_ops_av_set.insert) {
            // SAFETY: the set is open.
            Some(insert) => unsafe { insert(self.core.owned.get(), addr.0) },
            None => ENOSYS,
        };
        Error::check("fi_av_set_insert", ret)?;
        self.core.members.with(|members| members.push(addr));
        Ok(())
    }

    /// Removes a member (`fi_av_set_remove`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn remove(&self, addr: FiAddr) -> Result<()> {
        let ret = match op!(self.table(), fi_ops_av_set.remove) {
            // SAFETY: the set is open.
            Some(remove) => unsafe { remove(self.core.owned.get(), addr.0) },
            None => ENOSYS,
        };
        Error::check("fi_av_set_remove", ret)?;
        self.core
            .members
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
        let ret = match op!(self.table(), fi_ops_av_set.addr) {
            // SAFETY: the set is open, `addr` takes the result.
            Some(get) => unsafe { get(self.core.owned.get(), &raw mut addr) },
            None => ENOSYS,
        };
        Error::check("fi_av_set_addr", ret)?;
        Ok(FiAddr(addr))
    }

    fn members(&self) -> Vec<FiAddr> {
        self.core.members.with(|members| members.clone())
    }
}

impl<M: Threading> crate::Close for AvSet<M> {
    fn close(self) -> std::result::Result<(), (Self, Error)> {
        match Arc::try_unwrap(self.core) {
            Ok(mut core) => match core.owned.try_close() {
                Ok(()) => Ok(()),
                Err(error) => Err((
                    Self {
                        core: Arc::new(core),
                    },
                    error,
                )),
            },
            // Another clone uses it, which the library cannot know.
            Err(core) => Err((Self { core }, Error::new("fi_close", Errno::EBUSY))),
        }
    }
}

/// A group that an endpoint has joined, or is joining. Closing it leaves the group.
pub struct Group<M: Threading> {
    owned: Owned<fid_mc, M, Arc<EpCore<M>>>,
}

impl<M: Threading> Group<M> {
    /// Which object this is, as events name it.
    #[must_use]
    pub fn id(&self) -> FidId {
        FidId(self.owned.get().addr())
    }

    /// The address of the group (`fi_mc_addr`).
    #[must_use]
    pub fn addr(&self) -> FiAddr {
        // SAFETY: the group is open.
        FiAddr(unsafe { (*self.owned.get()).fi_addr })
    }
}

impl<M: Threading> crate::Close for Group<M> {
    fn close(mut self) -> std::result::Result<(), (Self, Error)> {
        match self.owned.try_close() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }
}

/// A collective operation, besides its memory.
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
    /// The flags of the call.
    pub flags: Flags,
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

/// The call's arguments as C takes them.
struct Args {
    ep: *mut fid_ep,
    input: *mut c_void,
    result: *mut c_void,
    context: *mut c_void,
}

impl<M: Threading> Endpoint<M> {
    /// Joins the group of a set (`fi_join_collective`), under the address of the set, of a group
    /// or any other.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn join(&self, set: &AvSet<M>, coll_addr: FiAddr, flags: Flags) -> Result<Group<M>> {
        let members = set.members().len();
        let addr = fi_collective_addr {
            set: set.core.owned.get(),
            coll_addr: coll_addr.0,
        };
        let mut group: *mut fid_mc = ptr::null_mut();
        let flags = flags.bits() | FI_COLLECTIVE;
        let (at, context) = ((&raw const addr).cast(), ptr::null_mut());
        let ret = match op!(self.core.cm(), fi_ops_cm.join) {
            // SAFETY: endpoint, set and address are live, `group` takes the result.
            Some(join) => unsafe { join(self.raw(), at, flags, &raw mut group, context) },
            None => ENOSYS,
        };
        let group = opened("fi_join_collective", ret, group)?;
        let group = Group {
            owned: Owned::new(group, self.core.clone()),
        };
        let known = (group.addr(), members);
        self.core.groups.with(|groups| groups.push(known));
        Ok(group)
    }

    /// The most members that a group with this address can have; of an unknown one, as many as
    /// any.
    fn group_size(&self, addr: FiAddr) -> usize {
        self.core.groups.with(|groups| {
            let known = groups.iter().filter(|(group, _)| *group == addr);
            let most = known.map(|(_, members)| *members).max();
            let any = groups.iter().map(|(_, members)| *members).max();
            most.or(any).unwrap_or(1)
        })
    }

    /// How many members a group has that this endpoint has joined.
    pub(crate) fn known_group(&self, addr: FiAddr) -> Option<usize> {
        self.core.groups.with(|groups| {
            let known = groups.iter().rev().find(|(group, _)| *group == addr);
            known.map(|(_, members)| *members)
        })
    }

    fn collective_ops(&self) -> *const fi_ops_collective {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).collective }
    }

    /// Starts a collective operation, with the operand first and then room for the result; an
    /// empty one, or one that the operation does not take, is given as null. The buffer of a
    /// broadcast is the second. With `when` it starts when the counter has come so far
    /// (`FI_TRIGGER`, which [`Collecting::flags`] must not have).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::sendmsg`]; `FI_EINVAL` for buffers that are too short.
    pub fn collective(
        &self,
        bufs: [Buf; 2],
        call: &Collecting,
        when: Option<(&Cntr<M>, usize)>,
        token: u64,
    ) -> Posted<Vec<Buf>> {
        self.collective_from(Vec::from(bufs), call, when, token)
    }

    /// As [`Endpoint::collective`], of two pieces of any memory.
    pub(crate) fn collective_from<P: Payload>(
        &self,
        bufs: P,
        call: &Collecting,
        when: Option<(&Cntr<M>, usize)>,
        token: u64,
    ) -> Posted<P> {
        let name = call_name(call.coll);
        let members = self.group_size(call.group);
        let pointers = bufs.parts().map(|parts| {
            let [input, result] = [parts.iov[0], parts.iov[1]];
            let fits = call.fits(members, input.iov_len, result.iov_len);
            let start = |iov: iovec| match iov.iov_len {
                0 => ptr::null_mut(),
                _ => iov.iov_base,
            };
            (start(input), start(result), fits)
        });
        let (input, result) = match pointers {
            Ok((input, result, true)) => (input, result),
            Ok(_) => return Err(refused(name, Errno::EINVAL, bufs)),
            Err(errno) => return Err(refused(name, errno, bufs)),
        };
        let ep = self.raw();
        let mut call = *call;
        let gate = match call.flags.contains(Flags::TRIGGER) {
            true => Err(Errno::EBADFLAGS),
            false => Ok(()),
        };
        if let Some((counter, _)) = when {
            call.flags |= Flags::TRIGGER;
            self.keep_counter(counter);
        }
        self.post(name, Kind::Plain, token, bufs, gate, |context| {
            if let Some((counter, threshold)) = when {
                arm(context, counter, threshold);
            }
            let call = &call;
            let args = Args {
                ep,
                input,
                result,
                context,
            };
            match call.coll.has_root() {
                true => self.rooted(call, &args),
                false => self.unrooted(call, &args),
            }
        })
    }

    fn rooted(&self, call: &Collecting, args: &Args) -> isize {
        let Args {
            ep,
            input,
            result,
            context,
        } = *args;
        let table = self.collective_ops();
        let Collecting {
            count,
            datatype,
            op,
            ..
        } = *call;
        let (group, root, flags) = (call.group.0, call.root.0, call.flags.bits());
        let none = ptr::null_mut();
        if call.coll == Collective::Broadcast {
            return op!(table, fi_ops_collective.broadcast).map_or(NONE, |broadcast| {
                // SAFETY: the endpoint is open; memory as long as said and context are booked
                // until completion.
                unsafe {
                    broadcast(
                        ep, result, count, none, group, root, datatype, flags, context,
                    )
                }
            });
        }
        if call.coll == Collective::Reduce {
            return op!(table, fi_ops_collective.reduce).map_or(NONE, |reduce| {
                // SAFETY: as above.
                unsafe {
                    reduce(
                        ep, input, count, none, result, none, group, root, datatype, op, flags,
                        context,
                    )
                }
            });
        }
        let found = match call.coll {
            Collective::Scatter => op!(table, fi_ops_collective.scatter),
            _ => op!(table, fi_ops_collective.gather),
        };
        found.map_or(NONE, |found| {
            // SAFETY: as above.
            unsafe {
                found(
                    ep, input, count, none, result, none, group, root, datatype, flags, context,
                )
            }
        })
    }

    fn unrooted(&self, call: &Collecting, args: &Args) -> isize {
        let Args {
            ep,
            input,
            result,
            context,
        } = *args;
        let table = self.collective_ops();
        let Collecting {
            count,
            datatype,
            op,
            ..
        } = *call;
        let (group, flags) = (call.group.0, call.flags.bits());
        let none = ptr::null_mut();
        if call.coll == Collective::Barrier {
            return match flags {
                0 => op!(table, fi_ops_collective.barrier).map_or(NONE, |barrier| {
                    // SAFETY: the endpoint is open, the context booked until completion.
                    unsafe { barrier(ep, group, context) }
                }),
                flags => op!(table, fi_ops_collective.barrier2).map_or(NONE, |barrier| {
                    // SAFETY: as above.
                    unsafe { barrier(ep, group, flags, context) }
                }),
            };
        }
        if call.coll.reduces() {
            let found = match call.coll {
                Collective::Allreduce => op!(table, fi_ops_collective.allreduce),
                _ => op!(table, fi_ops_collective.reduce_scatter),
            };
            return found.map_or(NONE, |found| {
                // SAFETY: the endpoint is open; memory as long as said and context are booked
                // until completion.
                unsafe {
                    found(
                        ep, input, count, none, result, none, group, datatype, op, flags, context,
                    )
                }
            });
        }
        let found = match call.coll {
            Collective::Alltoall => op!(table, fi_ops_collective.alltoall),
            _ => op!(table, fi_ops_collective.allgather),
        };
        found.map_or(NONE, |found| {
            // SAFETY: as above.
            unsafe {
                found(
                    ep, input, count, none, result, none, group, datatype, flags, context,
                )
            }
        })
    }
}

/// Bounds of a collective operation (`struct fi_collective_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollLimits {
    /// Most elements of a block.
    pub count: usize,
    /// Bytes of an element.
    pub size: usize,
    /// Most members of a group.
    pub members: usize,
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
    ) -> Result<CollLimits> {
        let mut attr = fi_collective_attr {
            op,
            datatype,
            ..Default::default()
        };
        let ret = match op!(self.table(), fi_ops_domain.query_collective) {
            // SAFETY: the domain is open, `attr` takes the result.
            Some(query) => unsafe { query(self.core.get(), coll, &raw mut attr, flags) },
            None => ENOSYS,
        };
        Error::check("fi_query_collective", ret)?;
        Ok(CollLimits {
            count: attr.datatype_attr.count,
            size: attr.datatype_attr.size,
            members: attr.max_members,
        })
    }
}
