use std::hint::black_box;

use ripstop_foreign as lib;
use ripstop_foreign::Buf;
use ripstop_types::Flags;

use super::{Foreign, table};
use crate::subject::{Claimed, Error, Fid, Inject, Kind, OVERWRITTEN, Post, Result, Token};

fn parts(post: &Post) -> Vec<Buf> {
    post.bufs.iter().map(|b| Buf::from(&b[..])).collect()
}

impl<M: lib::Threading> Foreign<M> {
    pub(super) fn do_post(&self, ep: Fid, post: &Post) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let ep = table::read(&ep);
        let op = match (post.flags, &post.bufs[..]) {
            _ if post.kind.is_rma() => super::rma::post(&ep, post),
            _ if post.atomic.is_some() => super::rma::atomic(&ep, post),
            (None, [bytes]) => plain(&ep, post, Buf::from(&bytes[..])).map_err(Error::from),
            (flags, _) => with_flags(&ep, post, flags.unwrap_or_default()),
        }?;
        if post.injects() {
            ep.overwrite(op, 0..post.sources());
        }
        self.table.posted(post.token, op, post.sources());
        Ok(())
    }

    pub(super) fn do_overwrite(&self, ep: Fid, token: Token) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let posted = self.table.with(|t| t.ops.get(&token).copied());
        let posted = posted.ok_or(Error::Missing("overwrite what was never posted"))?;
        table::read(&ep).overwrite(posted.op, 0..posted.sources);
        Ok(())
    }

    pub(super) fn do_inject(&self, ep: Fid, inject: Inject<'_>) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let ep = table::read(&ep);
        let Inject {
            bytes,
            tag,
            data,
            addr,
        } = inject;
        overwritten(bytes, |bytes| match (tag, data) {
            (None, None) => ep.inject(bytes, addr),
            (None, Some(data)) => ep.injectdata(bytes, data, addr),
            (Some(tag), None) => ep.tinject(bytes, addr, tag),
            (Some(tag), Some(data)) => ep.tinjectdata(bytes, data, addr, tag),
        })
    }

    pub(super) fn do_peek(&self, ep: Fid, post: &Post, flags: Flags) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let op = table::read(&ep).tpeek(post.addr, post.tag, post.ignore, flags, post.token)?;
        self.table.posted(post.token, op, post.sources());
        Ok(())
    }

    pub(super) fn do_claim(&self, ep: Fid, claimed: Claimed, post: &Post) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let ep = table::read(&ep);
        let claim = self.table.with(|t| t.claims.remove(&claimed.0));
        let claim = claim.ok_or(Error::Missing("claim what no peek has claimed"))?;
        let (addr, tag, ignore, token) = (post.addr, post.tag, post.ignore, post.token);
        let done = match &post.bufs[..] {
            [] => ep.tdiscard(claim, addr, tag, ignore, token),
            [bytes] => ep
                .tclaim(claim, Buf::from(&bytes[..]), addr, tag, ignore, token)
                .map_err(|(claim, refused)| (claim, refused.error)),
            _ => return Err(Error::Missing("claim into several buffers")),
        };
        match done {
            Ok(op) => {
                self.table.posted(post.token, op, post.sources());
                Ok(())
            }
            Err((claim, error)) => {
                self.table.with(|t| t.claims.insert(claimed.0, claim));
                Err(error.into())
            }
        }
    }
}

/// Makes a call with a copy of these bytes, which are free when it returns: whoever still uses them
/// shows.
pub(super) fn overwritten(bytes: &[u8], call: impl FnOnce(&[u8]) -> lib::Result<()>) -> Result<()> {
    let mut copy = Buf::from(bytes);
    let done = call(&copy);
    copy.fill(OVERWRITTEN);
    black_box(&copy);
    Ok(done?)
}

/// The call without flags, on one buffer.
fn plain<M: lib::Threading>(
    ep: &lib::Endpoint<M>,
    post: &Post,
    buf: Buf,
) -> std::result::Result<lib::OpId, lib::Error> {
    let Post {
        addr,
        tag,
        ignore,
        token,
        ..
    } = *post;
    Ok(match (post.kind, post.data) {
        (Kind::Send, None) => ep.send(buf, addr, token),
        (Kind::Send, Some(data)) => ep.senddata(buf, data, addr, token),
        (Kind::Tsend, None) => ep.tsend(buf, addr, tag, token),
        (Kind::Tsend, Some(data)) => ep.tsenddata(buf, data, addr, tag, token),
        (Kind::Recv, _) => ep.recv(buf, addr, token),
        (Kind::Trecv, _) => ep.trecv(buf, addr, tag, ignore, token),
        (Kind::Read | Kind::Write | Kind::Atomic(_), _) => unreachable!("posted elsewhere"),
    }?)
}

/// The call that takes a message struct and flags.
fn with_flags<M: lib::Threading>(
    ep: &lib::Endpoint<M>,
    post: &Post,
    flags: Flags,
) -> Result<lib::OpId> {
    let Post {
        addr,
        tag,
        ignore,
        token,
        ..
    } = *post;
    let data = post.data.unwrap_or_default();
    let flags = match post.data {
        Some(_) => flags | Flags::REMOTE_CQ_DATA,
        None => flags,
    };
    let mut bufs = parts(post);
    if post.kind == Kind::Recv && flags.contains(Flags::MULTI_RECV) {
        let (Some(buf), true) = (bufs.pop(), bufs.is_empty()) else {
            return Err(Error::Missing("scatter a multi-receive buffer"));
        };
        return Ok(ep.recv_multi(buf, addr, token).map_err(lib::Error::from)?);
    }
    let posted = match post.kind {
        Kind::Send => ep.sendmsg(bufs, addr, data, flags, token),
        Kind::Tsend => ep.tsendmsg(bufs, addr, tag, data, flags, token),
        Kind::Recv => ep.recvmsg(bufs, addr, flags, token),
        Kind::Trecv => ep.trecvmsg(bufs, addr, tag, ignore, flags, token),
        Kind::Read | Kind::Write | Kind::Atomic(_) => unreachable!("posted elsewhere"),
    };
    Ok(posted.map_err(lib::Error::from)?)
}
