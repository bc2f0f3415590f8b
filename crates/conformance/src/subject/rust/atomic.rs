//! Atomics.

use ripstop_core::provider::{AtomicCall, Endpoint, Provider};
use ripstop_mem::Parked;
use ripstop_types::{AtomicOp, Datatype, Flags};

use super::open::{parked, rma_iov};
use super::{Kind, Rust, of};
use crate::subject::{
    Atomic, Error, Fid, Inject, Kind as PostKind, OVERWRITTEN, Post, Remote, Result,
};

/// A datatype and an operation by their numbers, which are all that a typed interface can say.
pub(super) fn known((datatype, op): (u32, u32)) -> Result<(Datatype, AtomicOp)> {
    Datatype::from_number(datatype)
        .zip(AtomicOp::from_number(op))
        .ok_or(Error::Missing("name an unknown datatype or operation"))
}

impl<P: Provider, K: Kind<P::Fabric>> Rust<P, K> {
    pub(super) fn do_atomic(&self, fid: Fid, post: &Post, atomic: &Atomic) -> Result<()> {
        let PostKind::Atomic(kind) = post.kind else {
            return Err(Error::Missing("post that as an atomic"));
        };
        let ep = self.table.ep(fid)?;
        let (datatype, op) = known((atomic.datatype, atomic.op))?;
        let mut bufs = parked(post);
        let extra = atomic.compare.iter().chain(&atomic.result);
        bufs.extend(extra.map(|b| Parked::park(b.clone())));
        let (context, lent) = self.table.lend(fid, post.token, post.sources(), bufs);
        let (operand, rest) = lent.split_at(post.bufs.len());
        let (compare, result) = rest.split_at(atomic.compare.len());
        let remote: Vec<_> = post.remote.iter().map(rma_iov).collect();
        let flags = match post.data {
            Some(_) => Some(post.flags.unwrap_or_default() | Flags::REMOTE_CQ_DATA),
            None => post.flags,
        };
        let call = AtomicCall {
            kind,
            datatype,
            op,
            compare,
            result,
            remote: &remote,
            peer: post.addr,
            data: post.data,
            context,
            flags,
        };
        self.posted(context, post, of("atomic", ep.atomic(operand, &call)))
    }

    pub(super) fn do_inject_atomic(
        &self,
        ep: Fid,
        inject: Inject<'_>,
        what: (u32, u32),
        to: Remote,
    ) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let (datatype, op) = known(what)?;
        let parked = Parked::park(inject.bytes.to_vec());
        let done = ep.inject_atomic(parked.buf(), datatype, op, rma_iov(&to), inject.addr);
        parked.unpark().fill(OVERWRITTEN);
        of("inject_atomic", done)
    }
}
