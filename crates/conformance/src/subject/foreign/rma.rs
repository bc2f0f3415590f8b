use ripstop_foreign as lib;
use ripstop_foreign::{Bound, Buf};
use ripstop_types::{Flags, RmaIov};

use super::table::{self, Object};
use crate::subject::{Error, Form, Kind, MrAttr, Post, Remote, Result};

pub(super) fn register<M: lib::Threading>(
    memory: &lib::Region<M>,
    attr: &MrAttr,
) -> Result<lib::Mr<M>> {
    Ok(memory.register_as(&lib::Registration {
        form: match attr.form {
            Form::Reg => lib::Form::Reg,
            Form::Regv => lib::Form::Regv,
            Form::Regattr => lib::Form::Regattr,
        },
        access: attr.access,
        offset: attr.offset,
        key: attr.key,
        flags: attr.flags,
        pieces: attr.pieces,
    })?)
}

pub(super) fn bind<M: lib::Threading>(mr: &lib::Mr<M>, to: &Object<M>, flags: Flags) -> Result<()> {
    Ok(match to {
        Object::Cntr(o) => mr.bind(&Bound::Cntr(o), flags),
        Object::Cq(o) => mr.bind(&Bound::Cq(o), flags),
        Object::Ep(o) => mr.bind(&Bound::Endpoint(&table::read(o)), flags),
        _ => return Err(Error::Missing("bind that to memory")),
    }?)
}

pub(super) fn remote(post: &Post) -> Vec<RmaIov> {
    let of = |r: &Remote| RmaIov {
        addr: r.address,
        len: r.len as u64,
        key: r.key,
    };
    post.remote.iter().map(of).collect()
}

/// Posts an atomic by the plainest call that can say it.
pub(super) fn atomic<M: lib::Threading>(ep: &lib::Endpoint<M>, post: &Post) -> Result<lib::OpId> {
    let (Kind::Atomic(kind), Some(atomic)) = (post.kind, &post.atomic) else {
        return Err(Error::Missing("post that as an atomic"));
    };
    let groups = [&post.bufs, &atomic.compare, &atomic.result];
    let bufs = groups.iter().flat_map(|group| group.iter());
    let flags = match post.data {
        Some(_) => Some(post.flags.unwrap_or_default() | Flags::REMOTE_CQ_DATA),
        None => post.flags,
    };
    let call = lib::Atomic {
        kind,
        datatype: atomic.datatype,
        op: atomic.op,
        shape: groups.map(Vec::len),
        remote: &remote(post),
        peer: post.addr,
        data: post.data.unwrap_or_default(),
        flags,
    };
    let bufs = bufs.map(|b| Buf::from(&b[..])).collect::<Vec<_>>();
    let posted = ep.atomic(bufs, &call, post.token);
    Ok(posted.map_err(lib::Error::from)?)
}

/// Posts a read or write by the plainest call that can say it.
pub(super) fn post<M: lib::Threading>(ep: &lib::Endpoint<M>, post: &Post) -> Result<lib::OpId> {
    let (addr, token) = (post.addr, post.token);
    let reads = post.kind == Kind::Read;
    let direction = match reads {
        true => lib::Direction::Read,
        false => lib::Direction::Write,
    };
    let bufs = || -> Vec<Buf> { post.bufs.iter().map(|b| Buf::from(&b[..])).collect() };
    let posted = match (post.flags, &post.bufs[..], &post.remote[..], post.data) {
        (None, [bytes], [to], data) => {
            let (buf, address, key) = (Buf::from(&bytes[..]), to.address, to.key);
            let posted = match (reads, data) {
                (true, _) => ep.read(buf, addr, address, key, token),
                (false, None) => ep.write(buf, addr, address, key, token),
                (false, Some(data)) => ep.writedata(buf, data, addr, address, key, token),
            };
            return Ok(posted.map_err(lib::Error::from)?);
        }
        (None, _, [to], None) => {
            let place = (to.address, to.key);
            ep.rmav(direction, bufs(), addr, place, token)
        }
        (flags, _, _, data) => {
            let mut flags = flags.unwrap_or_default();
            if data.is_some() {
                flags |= Flags::REMOTE_CQ_DATA;
            }
            let extra = (data.unwrap_or_default(), flags);
            ep.rmamsg(direction, bufs(), addr, &remote(post), extra, token)
        }
    };
    Ok(posted.map_err(lib::Error::from)?)
}
