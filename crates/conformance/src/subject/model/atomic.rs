//! Atomics.

use ripstop_mem::Parked;
use ripstop_types::Flags;

use super::open::{parked, rma_iov, spent};
use super::{Model, Way};
use crate::subject::{Atomic, Error, Fid, Inject, Kind as PostKind, Post, Remote, Result};

impl<W: Way> Model<W> {
    pub(super) fn do_atomic(&self, fid: Fid, post: &Post, atomic: &Atomic) -> Result<()> {
        let PostKind::Atomic(kind) = post.kind else {
            return Err(Error::Missing("post that as an atomic"));
        };
        let ep = self.table.ep(fid)?;
        let mut bufs = parked(post);
        let extra = atomic.compare.iter().chain(&atomic.result);
        bufs.extend(extra.map(|b| Parked::park(b.clone())));
        let (context, lent) = self.table.lend(fid, post.token, post.sources(), bufs)?;
        let (operand, rest) = lent.split_at(post.bufs.len());
        let (compare, result) = rest.split_at(atomic.compare.len());
        let remote: Vec<_> = post.remote.iter().map(rma_iov).collect();
        let call = ripstop_foreign::Atomic {
            kind,
            datatype: atomic.datatype,
            op: atomic.op,
            remote: &remote,
            peer: post.addr,
            data: post.data.unwrap_or_default(),
            context,
            flags: match post.data {
                Some(_) => Some(post.flags.unwrap_or_default() | Flags::REMOTE_CQ_DATA),
                None => post.flags,
            },
        };
        let posted = W::atomic(&ep, [operand, compare, result], &call);
        self.posted(context, post, posted)
    }

    pub(super) fn do_inject_atomic(
        &self,
        ep: Fid,
        inject: Inject<'_>,
        what: (u32, u32),
        to: Remote,
    ) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let parked = Parked::park(inject.bytes.to_vec());
        let done = W::inject_atomic(&ep, parked.buf(), what, rma_iov(&to), inject.addr);
        spent(parked);
        done
    }
}
