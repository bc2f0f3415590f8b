//! Address vector sets and collective groups.

use std::sync::Arc;

use ripstop_core::av::set::{AvSet, AvSetAttr as CoreAttr};
use ripstop_core::provider::{
    AddressVector, CollCall, DataCall, Direction, Domain, Endpoint, JoinCall, Provider, Threshold,
};
use ripstop_mem::{Parked, UserBuf};
use ripstop_types::{AtomicOp, Collective, Datatype};

use super::open::event_token;
use super::table::{Object, Set};
use super::{Kind, Rust, of};
use crate::subject::{AvSetAttr, Coll, CollLimit, Error, Fid, Result, SetChange, When};

const UNKNOWN: Error = Error::Missing("name an unknown datatype or operation");

impl<P: Provider, K: Kind<P::Fabric>> Rust<P, K> {
    pub(super) fn do_av_set(&self, av: Fid, attr: &AvSetAttr) -> Result<Fid> {
        let av = self.table.av(av)?;
        let wanted = CoreAttr {
            count: attr.count,
            start: attr.range.0,
            end: attr.range.1,
            stride: attr.stride,
            comm_key: false,
            flags: attr.flags,
        };
        let set = AvSet::new(&wanted, av.av_type(), &av.addresses());
        let set = Arc::new(of("av set", set)?);
        let fid = self.table.number();
        Ok(self
            .table
            .put(fid, Object::Set(Set { set, av }), None, None))
    }

    pub(super) fn do_change_set(&self, set: Fid, change: SetChange) -> Result<()> {
        let Set { set, av } = self.table.set(set)?;
        let other = |fid| {
            let other = self.table.set(fid)?;
            match Arc::ptr_eq(&other.av, &av) {
                true => Ok(other.set),
                false => Err(Error::Missing("mix sets of several address vectors")),
            }
        };
        match change {
            SetChange::Union(fid) => set.union(&*other(fid)?),
            SetChange::Intersect(fid) => set.intersect(&*other(fid)?),
            SetChange::Diff(fid) => set.diff(&*other(fid)?),
            SetChange::Insert(addr) => {
                // As every front end, it asks the address vector.
                let known = av.lookup(addr);
                of("set insert", known.and_then(|_| set.insert(addr)))?;
            }
            SetChange::Remove(addr) => of("set remove", set.remove(addr))?,
        }
        Ok(())
    }

    pub(super) fn do_join(&self, ep: Fid, set: Fid) -> Result<Fid> {
        let events = self.table.events(ep);
        let ep = self.table.ep(ep)?;
        let set = self.table.set(set)?.set;
        let fid = self.table.number();
        let call = JoinCall {
            members: &set.members(),
            operations: set.operations(),
            context: 0,
        };
        let group = of("join", ep.join(&call, event_token(fid)?))?;
        self.table.put(fid, Object::Group(group), None, None);
        if let Some(events) = events {
            self.table.reports_to(fid, &events);
        }
        Ok(fid)
    }

    pub(super) fn do_collective(&self, fid: Fid, call: &Coll) -> Result<()> {
        let ep = self.table.ep(fid)?;
        let datatype = match call.coll {
            Collective::Barrier => Some(Datatype::Uint8),
            _ => Datatype::from_number(call.datatype),
        };
        let op = match call.coll.reduces() {
            true => AtomicOp::from_number(call.op),
            false => Some(AtomicOp::Sum),
        };
        let (datatype, op) = datatype.zip(op).ok_or(UNKNOWN)?;
        let bufs = [&call.input, &call.result];
        let bufs = bufs.map(|bytes| Parked::park(bytes.clone()));
        let (context, lent) = self.table.lend(fid, call.token, 1, bufs.into());
        let buf = |at: usize| lent.get(at).copied().unwrap_or(UserBuf::EMPTY);
        let core = CollCall {
            coll: call.coll,
            datatype,
            op,
            count: call.count,
            group: call.group,
            root: call.root,
            context,
            flags: (!call.flags.is_empty()).then(|| {
                let own = ep.op_flags(Direction::Tx);
                own | call.flags
            }),
        };
        let started = match call.when {
            None => ep.collective(buf(0), buf(1), &core),
            Some(When { cntr, threshold }) => {
                let when = Threshold {
                    counter: &self.table.cntr(cntr)?,
                    value: threshold,
                };
                ep.trigger(&DataCall::Collective([buf(0), buf(1)], core), when)
            }
        };
        of("collective", started).inspect_err(|_| self.table.forget(context))
    }

    pub(super) fn do_query_collective(
        &self,
        domain: Fid,
        coll: Collective,
        (datatype, op): (u32, u32),
    ) -> Result<CollLimit> {
        let domain = self.table.domain(domain)?;
        let datatype = match coll {
            Collective::Barrier => None,
            _ => Some(Datatype::from_number(datatype).ok_or(UNKNOWN)?),
        };
        let op = match coll.reduces() {
            true => Some(AtomicOp::from_number(op).ok_or(UNKNOWN)?),
            false => None,
        };
        let limit = of(
            "collective_limit",
            domain.collective_limit(coll, datatype, op),
        )?;
        Ok(CollLimit {
            count: limit.count,
            members: limit.members,
        })
    }
}
