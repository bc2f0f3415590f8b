//! Triggered operations and deferred work.

use ripstop_core::FidToken;
use ripstop_core::provider::{
    AtomicCall, DataCall, Domain, Endpoint, RecvKind, RmaCall, SharedRx, Threshold, Work,
    WorkOp as CoreOp,
};
use ripstop_mem::Parked;
use ripstop_types::{AtomicOp, Context, Datatype, Flags};

use super::open::{parked, rma_iov, send_kind};
use super::table::Object;
use super::{Model, Way, of};
use crate::subject::{Error, Fid, Kind as PostKind, Post, Result, When, WorkId, WorkOp};

impl<W: Way> Model<W> {
    /// Lends the buffers of a post and makes a call of it.
    fn with_call(
        &self,
        ep: Fid,
        post: &Post,
        put: impl FnOnce(&DataCall<'_>, Context) -> Result<()>,
    ) -> Result<()> {
        let mut bufs = parked(post);
        let what = match &post.atomic {
            None => None,
            Some(atomic) => {
                let extra = atomic.compare.iter().chain(&atomic.result);
                bufs.extend(extra.map(|b| Parked::park(b.clone())));
                let known = Datatype::from_number(atomic.datatype)
                    .zip(AtomicOp::from_number(atomic.op))
                    .ok_or(Error::Missing("name an unknown datatype or operation"))?;
                Some((atomic, known))
            }
        };
        let (context, iov) = self.table.lend(ep, post.token, post.sources(), bufs)?;
        let mut flags = post.flags.unwrap_or_default();
        if post.data.is_some() {
            flags |= Flags::REMOTE_CQ_DATA;
        }
        let remote: Vec<_> = post.remote.iter().map(rma_iov).collect();
        let rma = RmaCall {
            remote: &remote,
            peer: post.addr,
            data: post.data,
            context,
            flags: Some(flags),
        };
        let tagged = matches!(post.kind, PostKind::Tsend | PostKind::Trecv);
        let tag = tagged.then_some(post.tag);
        let call = match (post.kind, what) {
            (PostKind::Read, _) => DataCall::Read(&iov, rma),
            (PostKind::Write, _) => DataCall::Write(&iov, rma),
            (PostKind::Atomic(kind), Some((atomic, (datatype, op)))) => {
                let (operand, rest) = iov.split_at(post.bufs.len());
                let (compare, result) = rest.split_at(atomic.compare.len());
                DataCall::Atomic(
                    operand,
                    AtomicCall {
                        kind,
                        datatype,
                        op,
                        compare,
                        result,
                        remote: &remote,
                        peer: post.addr,
                        data: post.data,
                        context,
                        flags: Some(flags),
                    },
                )
            }
            (kind, _) if kind.receives() => DataCall::Recv {
                kind: tag.map_or(RecvKind::Msg, |tag| RecvKind::Tagged {
                    tag,
                    ignore: post.ignore,
                }),
                iov: &iov,
                src: post.addr,
                context,
                flags,
            },
            _ => DataCall::Send {
                kind: send_kind(tag),
                iov: &iov,
                data: post.data,
                dest: post.addr,
                context,
                flags,
            },
        };
        put(&call, context).inspect_err(|_| self.table.forget(context))
    }

    pub(super) fn do_trigger(&self, fid: Fid, post: &Post, when: When) -> Result<()> {
        let object = self.table.get(fid)?;
        let counter = self.table.cntr(when.cntr)?;
        self.with_call(fid, post, |call, _| {
            let when = Threshold {
                counter: &counter,
                value: when.threshold,
            };
            let posted = match &object {
                Object::Ep(ep) => ep.trigger(call, when),
                Object::Srx(srx) => srx.trigger(call, when),
                _ => return Err(Error::Missing("post to that")),
            };
            of("trigger", posted)
        })
    }

    pub(super) fn do_queue_work(&self, domain: Fid, when: When, op: &WorkOp<'_>) -> Result<WorkId> {
        let domain = self.table.domain(domain)?;
        let counter = self.table.cntr(when.cntr)?;
        let number = self.table.number().0;
        let queue = |op: CoreOp<'_, W::Domain>| {
            let work = Work {
                token: FidToken(number as usize),
                when: Threshold {
                    counter: &counter,
                    value: when.threshold,
                },
                op,
            };
            of("queue_work", domain.queue_work(&work))
        };
        match *op {
            WorkOp::Set(to, value) => queue(CoreOp::Set(&self.table.cntr(to)?, value))?,
            WorkOp::Add(to, value) => queue(CoreOp::Add(&self.table.cntr(to)?, value))?,
            WorkOp::Post {
                ep: fid,
                post,
                done,
            } => {
                let object = self.table.get(fid)?;
                let done = done.map(|done| self.table.cntr(done)).transpose()?;
                let done = done.as_ref();
                self.with_call(fid, post, |call, _| {
                    let call = *call;
                    match &object {
                        Object::Ep(ep) => queue(CoreOp::Data { ep, call, done }),
                        Object::Srx(srx) => queue(CoreOp::SharedRecv { srx, call, done }),
                        _ => Err(Error::Missing("post to that")),
                    }
                })?;
            }
        }
        Ok(WorkId(number as usize))
    }

    pub(super) fn do_cancel_work(&self, domain: Fid, work: WorkId) -> Result<()> {
        let domain = self.table.domain(domain)?;
        of("cancel_work", domain.cancel_work(FidToken(work.0)))
    }

    pub(super) fn do_flush_work(&self, domain: Fid, cntr: Option<Fid>) -> Result<()> {
        let domain = self.table.domain(domain)?;
        let cntr = cntr.map(|cntr| self.table.cntr(cntr)).transpose()?;
        of("flush_work", domain.flush_work(cntr.as_ref()))
    }
}
