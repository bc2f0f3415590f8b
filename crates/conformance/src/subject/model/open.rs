//! Opening, binding and posting.

use std::hint::black_box;
use std::sync::Arc;

use ripstop_core::provider::{
    self, CounterAttr, Domain, Endpoint, Fabric, MemoryRegion, RecvKind, RmaCall, ScalableEp,
    SendKind, SharedRx,
};
use ripstop_core::{FidToken, Info};
use ripstop_mem::Parked;
use ripstop_types::{Context, Flags, MrMode, RmaIov, WaitObj};

use super::freed::unpark;
use super::table::{Bytes, Memory, Object, Queue};
use super::{Model, Way, of};
use crate::subject::{
    AvAttr, Claimed, CqAttr, Direction, Error, Fid, Inject, Kind as PostKind, MrAttr, OVERWRITTEN,
    Post, Remote, Result, Token,
};

/// What an object is called in events.
pub(super) fn event_token(fid: Fid) -> Result<FidToken> {
    let number = usize::try_from(fid.0);
    number
        .map(FidToken)
        .map_err(|_| Error::Missing("name so many objects"))
}

pub(super) fn send_kind(tag: Option<u64>) -> SendKind {
    tag.map_or(SendKind::Msg, SendKind::Tagged)
}

fn call_name(kind: PostKind) -> &'static str {
    match kind {
        PostKind::Send => "send",
        PostKind::Recv => "recv",
        PostKind::Tsend => "tagged send",
        PostKind::Trecv => "tagged recv",
        PostKind::Read => "read",
        PostKind::Write => "write",
        PostKind::Atomic(_) => "atomic",
    }
}

pub(super) fn rma_iov(remote: &Remote) -> RmaIov {
    RmaIov {
        addr: remote.address,
        len: remote.len as u64,
        key: remote.key,
    }
}

pub(super) fn parked(post: &Post) -> Vec<Parked> {
    let bufs = post.bufs.iter();
    bufs.map(|b| Parked::park(b.clone())).collect()
}

/// Overwrites a buffer that is free, as its call has returned: whoever still uses it shows.
pub(super) fn spent(parked: Parked) {
    let mut bytes = unpark(parked);
    bytes.fill(OVERWRITTEN);
    black_box(&bytes);
}

impl<W: Way> Model<W> {
    pub(super) fn open_fabric(&self, info: &Info) -> Result<Fid> {
        let fabric = self.way.fabric(info)?;
        let fid = self.table.number();
        Ok(self.table.put(fid, Object::Fabric(fabric), None, None))
    }

    pub(super) fn open_domain(&self, fabric: Fid, info: &Info) -> Result<Fid> {
        let fabric = self.table.fabric(fabric)?;
        let domain = W::domain(&fabric, info)?;
        let fid = self.table.number();
        Ok(self
            .table
            .put(fid, Object::Domain(domain), Some(fabric), None))
    }

    pub(super) fn open_endpoint(&self, domain: Fid, info: &Info) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let fid = self.table.number();
        let ep = of("endpoint", domain.endpoint(info, event_token(fid)?))?;
        self.table
            .put(fid, Object::Ep(ep), None, Some(Arc::clone(&domain)));
        if info.domain.mr_mode.contains(MrMode::LOCAL) {
            self.table.registers(fid, domain);
        }
        Ok(fid)
    }

    pub(super) fn open_srx(&self, domain: Fid, info: &Info) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let srx = of("shared_rx", domain.shared_rx(&info.rx))?;
        let fid = self.table.number();
        self.table
            .put(fid, Object::Srx(srx), None, Some(Arc::clone(&domain)));
        if info.domain.mr_mode.contains(MrMode::LOCAL) {
            self.table.registers(fid, domain);
        }
        Ok(fid)
    }

    pub(super) fn open_stx(&self, domain: Fid, info: &Info) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let stx = of("shared_tx", domain.shared_tx(&info.tx))?;
        let fid = self.table.number();
        Ok(self.table.put(fid, Object::Stx(stx), None, Some(domain)))
    }

    pub(super) fn open_sep(&self, domain: Fid, info: &Info) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let fid = self.table.number();
        let sep = of("scalable_ep", domain.scalable_ep(info, event_token(fid)?))?;
        Ok(self.table.put(fid, Object::Sep(sep), None, Some(domain)))
    }

    pub(super) fn open_context(
        &self,
        sep: Fid,
        direction: Direction,
        index: usize,
        info: &Info,
    ) -> Result<Fid> {
        let sep = self.table.sep(sep)?;
        let ep = match direction {
            Direction::Tx => of("tx_context", sep.tx_context(index, Some(&info.tx)))?.0,
            Direction::Rx => of("rx_context", sep.rx_context(index, Some(&info.rx)))?.0,
        };
        let fid = self.table.number();
        Ok(self.table.put(fid, Object::Ep(ep), None, None))
    }

    pub(super) fn open_pep(&self, fabric: Fid, info: &Info) -> Result<Fid> {
        let fabric = self.table.fabric(fabric)?;
        let fid = self.table.number();
        let pep = of("passive_ep", fabric.passive_ep(info, event_token(fid)?))?;
        Ok(self.table.put(fid, Object::Pep(pep), Some(fabric), None))
    }

    pub(super) fn open_eq(&self, fabric: Fid, wait: WaitObj) -> Result<Fid> {
        let fabric = self.table.fabric(fabric)?;
        let eq = W::eq(&fabric, wait)?;
        let fid = self.table.number();
        Ok(self.table.put(fid, Object::Eq(eq), Some(fabric), None))
    }

    pub(super) fn open_cq(&self, domain: Fid, attr: CqAttr) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let queue = Queue {
            cq: W::cq(&domain, &attr)?,
            threshold: attr.threshold,
        };
        let fid = self.table.number();
        Ok(self.table.put(fid, Object::Cq(queue), None, Some(domain)))
    }

    pub(super) fn open_cntr(&self, domain: Fid, wait: WaitObj) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let attr = CounterAttr { bytes: false, wait };
        let counter = of("counter", domain.counter(&attr))?;
        let fid = self.table.number();
        Ok(self
            .table
            .put(fid, Object::Cntr(counter), None, Some(domain)))
    }

    /// `shared` is the name of one that is shared, and whether it is read only.
    pub(super) fn open_av(
        &self,
        domain: Fid,
        attr: AvAttr,
        shared: Option<(&str, bool)>,
    ) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let av = of("av", domain.av(&attr.open(shared)))?;
        let fid = self.table.number();
        Ok(self.table.put(fid, Object::Av(av), None, Some(domain)))
    }

    pub(super) fn new_memory(&self, domain: Fid, bytes: Bytes) -> Result<Fid> {
        let domain = self.table.domain(domain)?;
        let memory = Memory {
            bytes: Arc::new(bytes),
            domain,
        };
        let fid = self.table.number();
        Ok(self.table.put(fid, Object::Memory(memory), None, None))
    }

    pub(super) fn do_register(&self, memory: Fid, attr: &MrAttr) -> Result<Fid> {
        let memory = self.table.memory(memory)?;
        let whole = memory.buf();
        let mut iov = Vec::new();
        for (start, len) in attr.pieces {
            let piece = whole.slice(*start, *len);
            iov.push(piece.ok_or(Error::Missing("register what is not there"))?);
        }
        if iov.is_empty() {
            iov.push(whole);
        }
        let wanted = provider::MrAttr {
            iov,
            access: attr.access,
            offset: attr.offset,
            requested_key: attr.key,
            flags: attr.flags,
            shared: match &*memory.bytes {
                Bytes::Shared(shared) if attr.pieces.is_empty() => {
                    provider::Sharing::Part(shared.part().clone())
                }
                _ => provider::Sharing::Never,
            },
        };
        let mr = W::register(&memory.domain, attr.form, &wanted)?;
        let fid = self.table.number();
        Ok(self
            .table
            .put(fid, Object::Mr(mr), None, Some(memory.domain.clone())))
    }

    pub(super) fn do_close(&self, fid: Fid) -> Result<()> {
        let object = self.table.get(fid)?;
        // The table has it too.
        W::close(&object, 2)?;
        drop(object);
        self.table.unregister(fid);
        if let Some(eq) = self.table.take(fid) {
            W::eq_forget(&eq, event_token(fid)?);
        }
        Ok(())
    }

    pub(super) fn do_bind(&self, fid: Fid, to: Fid, flags: Flags) -> Result<()> {
        let other = self.table.get(to)?;
        let object = self.table.get(fid)?;
        let takes_flags = matches!(other, Object::Cq(_) | Object::Cntr(_));
        if !takes_flags && !flags.is_empty() {
            return W::bind(&object, &other, flags);
        }
        let bound = match (&object, &other) {
            (Object::Ep(ep), Object::Cq(o)) => ep.bind_cq(&o.cq, flags),
            (Object::Ep(ep), Object::Cntr(o)) => ep.bind_counter(o, flags),
            (Object::Ep(ep), Object::Av(o)) => ep.bind_av(o),
            (Object::Ep(ep), Object::Eq(o)) => return self.bound_eq(fid, o, W::bind_ep(ep, o)),
            (Object::Ep(ep), Object::Srx(o)) => ep.bind_srx(o),
            (Object::Ep(ep), Object::Stx(o)) => ep.bind_stx(o),
            (Object::Sep(sep), Object::Av(o)) => sep.bind_av(o),
            (Object::Srx(srx), Object::Cq(o)) => srx.bind_cq(&o.cq, flags),
            (Object::Srx(srx), Object::Cntr(o)) => srx.bind_counter(o, flags),
            (Object::Pep(pep), Object::Eq(o)) => {
                return self.bound_eq(fid, o, W::bind_pep(pep, o));
            }
            (Object::Mr(mr), Object::Cntr(o)) => mr.bind_counter(o, flags),
            _ => return W::bind(&object, &other, flags),
        };
        of("bind", bound)
    }

    /// Remembers where events of an object go.
    fn bound_eq(&self, fid: Fid, eq: &Arc<W::Eq>, bound: Result<()>) -> Result<()> {
        bound?;
        self.table.reports_to(fid, eq);
        Ok(())
    }

    pub(super) fn do_inject_write(&self, ep: Fid, inject: Inject<'_>, to: Remote) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let parked = Parked::park(inject.bytes.to_vec());
        let done = ep.inject_write(parked.buf(), rma_iov(&to), inject.data, inject.addr);
        spent(parked);
        of("inject_write", done)
    }

    /// Posts a read or write of a peer's memory.
    fn do_rma(&self, fid: Fid, post: &Post) -> Result<()> {
        let ep = self.table.ep(fid)?;
        let (context, iov) = self
            .table
            .lend(fid, post.token, post.sources(), parked(post))?;
        let remote: Vec<_> = post.remote.iter().map(rma_iov).collect();
        let call = RmaCall {
            remote: &remote,
            peer: post.addr,
            data: post.data,
            context,
            flags: post.flags.map(|flags| match post.data {
                Some(_) => flags | Flags::REMOTE_CQ_DATA,
                None => flags,
            }),
        };
        let posted = match post.kind {
            PostKind::Read => ep.read(&iov, &call),
            _ => ep.write(&iov, &call),
        };
        self.posted(context, post, of(call_name(post.kind), posted))
    }

    /// What becomes of the buffers when the call has returned.
    pub(super) fn posted(&self, context: Context, post: &Post, done: Result<()>) -> Result<()> {
        match &done {
            Ok(()) if post.injects() => self.table.overwrite(context),
            Ok(()) => {}
            Err(_) => self.table.forget(context),
        }
        done
    }

    pub(super) fn do_overwrite(&self, ep: Fid, token: Token) -> Result<()> {
        let context = self.table.context(ep, token);
        self.table
            .overwrite(context.ok_or(Error::Missing("overwrite what has ended"))?);
        Ok(())
    }

    pub(super) fn do_post(&self, ep: Fid, post: &Post) -> Result<()> {
        if post.kind.is_rma() {
            return self.do_rma(ep, post);
        }
        if let Some(atomic) = &post.atomic {
            return self.do_atomic(ep, post, atomic);
        }
        let object = self.table.get(ep)?;
        let (context, iov) = self
            .table
            .lend(ep, post.token, post.sources(), parked(post))?;
        let flags = post.flags.map(|flags| match post.data {
            Some(_) => flags | Flags::REMOTE_CQ_DATA,
            None => flags,
        });
        let tag = matches!(post.kind, PostKind::Tsend | PostKind::Trecv).then_some(post.tag);
        let posted = if post.kind.receives() {
            if flags.is_some_and(|f| f.contains(Flags::MULTI_RECV)) {
                self.table.set_multi(context);
            }
            let kind = tag.map_or(RecvKind::Msg, |tag| RecvKind::Tagged {
                tag,
                ignore: post.ignore,
            });
            match &object {
                Object::Ep(ep) => ep.recv(kind, &iov, post.addr, context, flags),
                Object::Srx(srx) => srx.recv(kind, &iov, post.addr, context, flags),
                _ => return Err(Error::Missing("post to that")),
            }
        } else {
            let Object::Ep(ep) = &object else {
                return Err(Error::Missing("send from that"));
            };
            ep.send(send_kind(tag), &iov, post.data, post.addr, context, flags)
        };
        self.posted(context, post, of(call_name(post.kind), posted))
    }

    pub(super) fn do_inject(&self, ep: Fid, inject: Inject<'_>) -> Result<()> {
        let ep = self.table.ep(ep)?;
        let parked = Parked::park(inject.bytes.to_vec());
        let kind = send_kind(inject.tag);
        let done = ep.inject(kind, parked.buf(), inject.data, inject.addr);
        spent(parked);
        of("inject", done)
    }

    pub(super) fn do_peek(&self, ep: Fid, post: &Post, flags: Flags) -> Result<()> {
        let object = self.table.get(ep)?;
        let (context, _) = self.table.lend(ep, post.token, 0, Vec::new())?;
        if flags.contains(Flags::CLAIM) {
            self.table.set_claims(context);
        }
        let kind = RecvKind::Tagged {
            tag: post.tag,
            ignore: post.ignore,
        };
        let flags = Some(flags | Flags::PEEK);
        let posted = match &object {
            Object::Ep(ep) => ep.recv(kind, &[], post.addr, context, flags),
            Object::Srx(srx) => srx.recv(kind, &[], post.addr, context, flags),
            _ => return Err(Error::Missing("peek at that")),
        };
        of("peek", posted).inspect_err(|_| self.table.forget(context))
    }

    pub(super) fn do_claim(&self, fid: Fid, claimed: Claimed, post: &Post) -> Result<()> {
        let ep = self.table.ep(fid)?;
        let context = self.table.take_claim(fid, claimed.0);
        let context = context.ok_or(Error::Missing("claim what no peek has claimed"))?;
        let (token, bufs) = (post.token, parked(post));
        let iov = self.table.lend_again(context, fid, token, 0, bufs)?;
        let kind = RecvKind::Tagged {
            tag: post.tag,
            ignore: post.ignore,
        };
        let flags = match iov.is_empty() {
            true => Flags::CLAIM | Flags::DISCARD,
            false => Flags::CLAIM,
        };
        let posted = ep.recv(kind, &iov, post.addr, context, Some(flags));
        of("claim", posted).inspect_err(|_| {
            self.table.forget(context);
            self.table.put_claim(fid, claimed.0, context);
        })
    }

    pub(super) fn do_cancel(&self, ep: Fid, token: Token) -> Result<()> {
        let context = self.table.context(ep, token);
        let context = context.ok_or(Error::Missing("cancel what was never posted"))?;
        let cancelled = match self.table.get(ep)? {
            Object::Ep(ep) => ep.cancel(context),
            Object::Srx(srx) => srx.cancel(context),
            _ => return Err(Error::Missing("cancel at that")),
        };
        of("cancel", cancelled)
    }
}
