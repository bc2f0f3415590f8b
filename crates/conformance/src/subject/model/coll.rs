//! Address vector sets and collective groups.

use std::sync::Arc;

use ripstop_foreign::Collecting;
use ripstop_mem::{Parked, UserBuf};
use ripstop_types::Context;

use super::open::event_token;
use super::table::Object;
use super::{Group, Model, Way};
use crate::subject::{Coll, Fid, Result};

impl<W: Way> Model<W> {
    /// Keeps a group that an endpoint has joined, under a number.
    pub(super) fn put_group(
        &self,
        ep: Fid,
        join: impl FnOnce(ripstop_core::FidToken) -> Result<Arc<Group<W>>>,
    ) -> Result<Fid> {
        let fid = self.table.number();
        let group = join(event_token(fid)?)?;
        self.table.put(fid, Object::Group(group), None, None);
        if let Some(events) = self.table.events(ep) {
            self.table.reports_to(fid, &events);
        }
        Ok(fid)
    }

    pub(super) fn do_collective(&self, fid: Fid, call: &Coll) -> Result<()> {
        let ep = self.table.ep(fid)?;
        let bufs = [&call.input, &call.result];
        let bufs = bufs.map(|bytes| Parked::park(bytes.clone()));
        let (context, lent): (Context, _) = self.table.lend(fid, call.token, 1, bufs.into())?;
        let buf = |at: usize| lent.get(at).copied().unwrap_or(UserBuf::EMPTY);
        let asked = Collecting {
            coll: call.coll,
            datatype: call.datatype,
            op: call.op,
            count: call.count,
            group: call.group,
            root: call.root,
            context,
            flags: call.flags,
        };
        let counter = call.when.map(|when| self.table.cntr(when.cntr));
        let counter = counter.transpose()?;
        let when = call.when.zip(counter.as_ref());
        let started = W::collective(&ep, [buf(0), buf(1)], &asked, when);
        started.inspect_err(|_| self.table.forget(context))
    }
}
