use ripstop_foreign as lib;
use ripstop_foreign::Buf;
use ripstop_types::{Errno, FiAddr, Flags};

use super::{Foreign, refused, table};
use crate::subject::{AvSetAttr, Coll, CollLimit, Fid, Result, SetChange};

impl<M: lib::Threading> Foreign<M> {
    pub(super) fn do_av_set(&self, av: Fid, attr: &AvSetAttr) -> Result<Fid> {
        let set = self.table.av(av)?.set(&lib::AvSetAttr {
            count: attr.count,
            range: attr.range,
            stride: attr.stride,
            flags: attr.flags,
        })?;
        let format = self.table.format(av);
        Ok(self.table.insert(table::Object::Set(set), format))
    }

    pub(super) fn do_change_set(&self, set: Fid, change: SetChange) -> Result<()> {
        let set = self.table.set(set)?;
        Ok(match change {
            SetChange::Union(other) => set.union(&self.table.set(other)?),
            SetChange::Intersect(other) => set.intersect(&self.table.set(other)?),
            SetChange::Diff(other) => set.diff(&self.table.set(other)?),
            SetChange::Insert(addr) => set.insert(addr),
            SetChange::Remove(addr) => set.remove(addr),
        }?)
    }

    pub(super) fn do_join(&self, ep: Fid, set: Fid, addr: FiAddr, flags: Flags) -> Result<Fid> {
        let format = self.table.format(ep);
        let ep = self.table.ep(ep)?;
        let set = self.table.set(set)?;
        let group = table::read(&ep).join(&set, addr, flags)?;
        Ok(self.table.insert_group(group, format))
    }

    pub(super) fn do_collective(&self, ep: Fid, call: &Coll) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let bufs = [&call.input, &call.result].map(|bytes| Buf::from(&bytes[..]));
        let counter = call.when.map(|when| self.table.cntr(when.cntr));
        let counter = counter.transpose()?;
        let value = call.when.map_or(0, |when| when.threshold);
        let value = usize::try_from(value);
        let value = value.map_err(|_| refused("fi_allreduce", Errno::EINVAL))?;
        let collecting = lib::Collecting {
            coll: call.coll,
            datatype: call.datatype,
            op: call.op,
            count: call.count,
            group: call.group,
            root: call.root,
            flags: call.flags,
        };
        let when = counter.as_ref().map(|counter| (counter, value));
        let op = table::read(&ep).collective(bufs, &collecting, when, call.token);
        let op = op.map_err(lib::Error::from)?;
        self.table.posted(call.token, op, 1);
        Ok(())
    }

    pub(super) fn do_query_collective(
        &self,
        domain: Fid,
        (coll, datatype, op): (u32, u32, u32),
        flags: u64,
    ) -> Result<CollLimit> {
        let domain = self.table.domain(domain)?;
        let limits = domain.query_collective(coll, datatype, op, flags)?;
        Ok(CollLimit {
            count: limits.count,
            members: limits.members,
        })
    }
}
