use ripstop_foreign as lib;
use ripstop_foreign::Buf;
use ripstop_types::{Errno, Flags};

use super::{Foreign, refused, table};
use crate::subject::{Error, Fid, Kind, Post, Result, When, WorkId, WorkOp};

/// The transfer of a post, and its buffers.
fn with_transfer<R>(post: &Post, put: impl FnOnce(&lib::Deferred<'_>, Vec<Buf>) -> R) -> R {
    let transfer = match post.kind {
        Kind::Send => lib::Transfer::Send,
        Kind::Recv => lib::Transfer::Recv,
        Kind::Tsend => lib::Transfer::Tsend,
        Kind::Trecv => lib::Transfer::Trecv,
        Kind::Read => lib::Transfer::Read,
        Kind::Write => lib::Transfer::Write,
        Kind::Atomic(kind) => lib::Transfer::Atomic(kind),
    };
    let mut flags = post.flags.unwrap_or_default();
    if post.data.is_some() {
        flags |= Flags::REMOTE_CQ_DATA;
    }
    let mut groups = vec![&post.bufs];
    if let Some(atomic) = &post.atomic {
        groups.extend([&atomic.compare, &atomic.result]);
    }
    let shape = |of: usize| groups.get(of).map_or(0, |group| group.len());
    let what = post.atomic.as_ref();
    let call = lib::Deferred {
        transfer,
        peer: post.addr,
        tag: (post.tag, post.ignore),
        data: post.data.unwrap_or_default(),
        remote: &super::rma::remote(post),
        atomic: what.map(|a| (a.datatype, a.op, [shape(0), shape(1), shape(2)])),
        flags,
    };
    let bufs = groups.iter().flat_map(|group| group.iter());
    put(&call, bufs.map(|b| Buf::from(&b[..])).collect())
}

impl<M: lib::Threading> Foreign<M> {
    pub(super) fn do_trigger(&self, ep: Fid, post: &Post, when: When) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let cntr = self.table.cntr(when.cntr)?;
        let value = usize::try_from(when.threshold);
        let value = value.map_err(|_| refused("fi_sendmsg", Errno::EINVAL))?;
        let op = with_transfer(post, |call, bufs| {
            table::read(&ep).trigger(call, (&cntr, value), (bufs, post.token))
        });
        let op = op.map_err(lib::Error::from)?;
        self.table.posted(post.token, op, post.sources());
        Ok(())
    }

    pub(super) fn do_queue_work(&self, domain: Fid, when: When, op: &WorkOp<'_>) -> Result<WorkId> {
        let domain = self.table.domain(domain)?;
        let cntr = self.table.cntr(when.cntr)?;
        let at = (&cntr, when.threshold);
        let work = match *op {
            WorkOp::Set(to, value) => {
                domain.count_later(at, (&self.table.cntr(to)?, value), false)?
            }
            WorkOp::Add(to, value) => {
                domain.count_later(at, (&self.table.cntr(to)?, value), true)?
            }
            WorkOp::Post { ep, post, done } => {
                let ep = self.table.ep(ep)?;
                let done = done.map(|done| self.table.cntr(done)).transpose()?;
                let queued = with_transfer(post, |call, bufs| {
                    let ep = table::read(&ep);
                    ep.queue_work(&domain, call, at, done.as_ref(), (bufs, post.token))
                });
                let (op, work) = queued.map_err(lib::Error::from)?;
                self.table.posted(post.token, op, post.sources());
                work
            }
        };
        Ok(self.table.with(|t| {
            t.works.push(work);
            WorkId(t.works.len() - 1)
        }))
    }

    pub(super) fn do_cancel_work(&self, domain: Fid, work: WorkId) -> Result<()> {
        let work = self.table.with(|t| t.works.get(work.0).copied());
        let work = work.ok_or(Error::Missing("cancel what was never queued"))?;
        Ok(self.table.domain(domain)?.cancel_work(work)?)
    }

    pub(super) fn do_flush_work(&self, domain: Fid, cntr: Option<Fid>) -> Result<()> {
        let cntr = cntr.map(|cntr| self.table.cntr(cntr)).transpose()?;
        Ok(self.table.domain(domain)?.flush_work(cntr.as_ref())?)
    }
}
