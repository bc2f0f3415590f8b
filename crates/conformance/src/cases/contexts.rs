//! `fi_endpoint`(3): scalable endpoints, named receive contexts, shared transmit contexts.

use ripstop_core::Info;
use ripstop_types::{Errno, FiAddr, Flags};

use crate::case::{Cx, Outcome, Step, Stop, cases, in_use, offered, ready, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, bare, hints, of_provider, offer, query};
use crate::subject::{AvAttr, Completion, CqAttr, Direction, Fid, Post, Subject, Token};

cases! {
    pub(super) const CASES;
    fi_endpoint {
        rdm named_contexts: "fi_rx_addr names each receive context of a scalable endpoint";
        rdm transmit_contexts:
            "each transmit context sends, and its completions go to its own queue";
        rdm context_tagged: "tagged messages are matched within one receive context";
        rdm context_unknown:
            "a context beyond those of the endpoint is refused, one that is open as well";
        rdm scalable_busy: "a scalable endpoint does not close under its contexts";
        rdm scalable_needs_av: "a scalable endpoint is not enabled without an address vector";
        rdm scalable_av_domain:
            "a scalable endpoint is bound to no address vector of another domain, which is FI_EDOMAIN";
        rdm shared_receive:
            "datagram endpoints that share a receive context take its receives in their order";
        both shared_transmit:
            "endpoints that share a transmit context send as ever, completions to their own queues";
        both shared_transmit_busy:
            "a shared transmit context does not close under its endpoints, nor is a second bound";
        both shared_transmit_domain: "a shared transmit context of another domain is FI_EDOMAIN";
    }
}

const CONTEXTS: usize = 2;
const BITS: u8 = 1;

/// A context and its queue.
#[derive(Clone, Copy)]
struct Context {
    ep: Fid,
    cq: Fid,
}

/// A scalable endpoint with all its contexts.
struct Scalable {
    sep: Fid,
    av: Fid,
    tx: Vec<Context>,
    rx: Vec<Context>,
}

/// A fabric and a domain, and what to open a scalable endpoint with.
fn ground<'a>(cx: &Cx<'a>) -> Step<(Rig<'a>, Fid, Info)> {
    let mut rig = bare(cx, &Spec::tagged().caps(Flags::NAMED_RX_CTX))?;
    let mut hints = hints(cx);
    hints.caps = Flags::MSG | Flags::TAGGED | Flags::NAMED_RX_CTX;
    let mut ep = hints.ep.take().unwrap_or_default();
    (ep.tx_ctx_cnt, ep.rx_ctx_cnt) = (CONTEXTS, CONTEXTS);
    hints.ep = Some(ep);
    let found = of_provider(cx, cx.s.getinfo(&query(cx, hints)));
    let found = offered(found, &[Errno::ENODATA], "two contexts a side")?;
    let info = found.into_iter().next();
    let info = info.ok_or_else(|| Stop::fail("an empty list"))?;
    rig.info = info.clone();
    let domain = rig.s.domain(rig.fabric, &info)?;
    Ok((rig, domain, info))
}

impl Scalable {
    fn open(s: &dyn Subject, domain: Fid, info: &Info) -> Step<Self> {
        let sep = s.scalable_ep(domain, info);
        let sep = offered(sep, &[Errno::ENOSYS], "fi_scalable_ep")?;
        let attr = AvAttr {
            rx_ctx_bits: BITS,
            ..AvAttr::default()
        };
        let av = s.av(domain, attr)?;
        s.bind(sep, av, Flags::empty())?;
        let all = |direction, flags| -> Step<Vec<Context>> {
            let one = |index| {
                let ep = s.context(sep, direction, index, info)?;
                let cq = s.cq(domain, CqAttr::default())?;
                s.bind(ep, cq, flags)?;
                s.enable(ep)?;
                Ok(Context { ep, cq })
            };
            (0..CONTEXTS).map(one).collect()
        };
        let tx = all(Direction::Tx, Flags::SEND)?;
        let rx = all(Direction::Rx, Flags::RECV)?;
        s.enable(sep)?;
        Ok(Self { sep, av, tx, rx })
    }

    fn queues(&self) -> impl Iterator<Item = Fid> {
        self.tx.iter().chain(&self.rx).map(|c| c.cq)
    }

    /// What it calls a context of another.
    fn name(&self, s: &dyn Subject, other: &Self, context: usize) -> Step<FiAddr> {
        let name = s.name(other.sep)?;
        match s.av_insert(self.av, &[name])?[..] {
            [addr] if addr.is_specified() => {
                let context = (context as u64) << (64 - u32::from(BITS));
                Ok(FiAddr(context | addr.0))
            }
            _ => Err(Stop::fail("fi_av_insert did not take a scalable endpoint")),
        }
    }

    fn close(self, s: &dyn Subject) -> Outcome {
        for context in self.tx.iter().chain(&self.rx) {
            s.close(context.ep)?;
        }
        s.close(self.sep)?;
        for cq in self.queues().collect::<Vec<_>>() {
            s.close(cq)?;
        }
        Ok(s.close(self.av)?)
    }
}

/// Two scalable endpoints of a domain.
struct Pair<'a> {
    rig: Rig<'a>,
    domain: Fid,
    from: Scalable,
    to: Scalable,
}

impl<'a> Pair<'a> {
    fn open(cx: &Cx<'a>) -> Step<Self> {
        let (rig, domain, info) = ground(cx)?;
        let from = Scalable::open(rig.s, domain, &info)?;
        let to = Scalable::open(rig.s, domain, &info)?;
        Ok(Self {
            rig,
            domain,
            from,
            to,
        })
    }

    fn post(&self, ep: Fid, mut post: Post) -> Step<Token> {
        post.token = self.rig.token();
        self.until("a full queue takes another operation", || {
            ready(self.rig.s.post(ep, &post))
        })?;
        Ok(post.token)
    }

    /// Waits for the next completion of a queue, and makes progress at all others.
    fn next(&self, cq: Fid) -> Step<Completion> {
        self.until("a completion", || next(self.rig.s, cq))
    }

    fn until<T>(&self, what: &str, mut f: impl FnMut() -> Step<Option<T>>) -> Step<T> {
        self.rig.until(what, || {
            for cq in self.from.queues().chain(self.to.queues()) {
                ready(self.rig.s.cq_read(cq, 0))?;
            }
            f()
        })
    }

    fn close(self) -> Outcome {
        let s = self.rig.s;
        self.from.close(s)?;
        self.to.close(s)?;
        s.close(self.domain)?;
        self.rig.close()
    }
}

/// The next completion of a queue, if there is one.
fn next(s: &dyn Subject, cq: Fid) -> Step<Option<Completion>> {
    Ok(ready(s.cq_read(cq, 1))?.and_then(|mut read| read.pop()))
}

fn named_contexts(cx: &Cx<'_>) -> Outcome {
    let pair = Pair::open(cx)?;
    let s = pair.rig.s;
    let to = [0, 1].map(|context| pair.from.name(s, &pair.to, context));
    let to = to.into_iter().collect::<Step<Vec<_>>>()?;
    for round in 0..20_u8 {
        for context in [1, 0] {
            let text = [round, context as u8];
            let recv = pair.post(pair.to.rx[context].ep, Post::recv(8))?;
            let send = Post::send(text).with(to[context]);
            let send = pair.post(pair.from.tx[0].ep, send)?;
            let got = pair.next(pair.to.rx[context].cq)?;
            ensure!(
                got.token == Some(recv) && got.bytes() == text,
                "context {context} got {got:?}"
            );
            ensure!(pair.next(pair.from.tx[0].cq)?.token == Some(send), "sent");
        }
    }
    pair.close()
}

fn transmit_contexts(cx: &Cx<'_>) -> Outcome {
    let pair = Pair::open(cx)?;
    let to = pair.from.name(pair.rig.s, &pair.to, 0)?;
    for context in [0, 1, 1, 0] {
        let recv = pair.post(pair.to.rx[0].ep, Post::recv(8))?;
        let from = pair.from.tx[context];
        let send = pair.post(from.ep, Post::send([context as u8]).with(to))?;
        ensure!(
            pair.next(from.cq)?.token == Some(send),
            "the completion is another's"
        );
        let got = pair.next(pair.to.rx[0].cq)?;
        ensure!(
            got.token == Some(recv) && got.bytes() == [context as u8],
            "got {got:?}"
        );
    }
    pair.close()
}

fn context_tagged(cx: &Cx<'_>) -> Outcome {
    let pair = Pair::open(cx)?;
    let s = pair.rig.s;
    let [zero, one] = [0, 1].map(|context| pair.from.name(s, &pair.to, context));
    let (zero, one) = (zero?, one?);
    // The same tag is waited for in both.
    let recvs = [0, 1].map(|i| pair.post(pair.to.rx[i].ep, Post::trecv(7, 0, 8)));
    for (to, text) in [(one, b"one"), (zero, b"zer")] {
        let ep = pair.from.tx[1].ep;
        pair.post(ep, Post::tsend(7, *text).with(to))?;
    }
    for (context, text) in [(0, b"zer"), (1, b"one")] {
        let got = pair.next(pair.to.rx[context].cq)?;
        let recv = recvs[context].clone()?;
        ensure!(
            got.token == Some(recv) && got.bytes() == text,
            "context {context} got {got:?}"
        );
    }
    for _ in 0..2 {
        pair.next(pair.from.tx[1].cq)?;
    }
    pair.close()
}

fn context_unknown(cx: &Cx<'_>) -> Outcome {
    let pair = Pair::open(cx)?;
    let (s, info) = (pair.rig.s, &pair.rig.info);
    for direction in [Direction::Tx, Direction::Rx] {
        let beyond = s.context(pair.from.sep, direction, CONTEXTS, info);
        refused(beyond, &[Errno::EINVAL], "one context too many")?;
        let open = s.context(pair.from.sep, direction, 0, info);
        refused(
            open,
            &[Errno::EBUSY, Errno::EINVAL],
            "a context that is open",
        )?;
    }
    pair.close()
}

fn scalable_busy(cx: &Cx<'_>) -> Outcome {
    let pair = Pair::open(cx)?;
    let closed = pair.rig.s.close(pair.from.sep);
    in_use(closed, "it under its contexts")?;
    pair.close()
}

fn scalable_needs_av(cx: &Cx<'_>) -> Outcome {
    let (rig, domain, info) = ground(cx)?;
    let sep = rig.s.scalable_ep(domain, &info);
    let sep = offered(sep, &[Errno::ENOSYS], "fi_scalable_ep")?;
    refused(rig.s.enable(sep), &[Errno::ENOAV], "enabling it as it is")?;
    rig.s.close(sep)?;
    rig.s.close(domain)?;
    rig.close()
}

fn scalable_av_domain(cx: &Cx<'_>) -> Outcome {
    let (rig, domain, info) = ground(cx)?;
    let sep = rig.s.scalable_ep(domain, &info);
    let sep = offered(sep, &[Errno::ENOSYS], "fi_scalable_ep")?;
    let other = rig.s.domain(rig.fabric, &info)?;
    let attr = AvAttr {
        rx_ctx_bits: BITS,
        ..Spec::default().av
    };
    let theirs = rig.s.av(other, attr)?;
    let bound = rig.s.bind(sep, theirs, Flags::empty());
    refused(bound, &[Errno::EDOMAIN], "binding one of another domain")?;
    // Nothing of it was bound.
    for fid in [theirs, sep, other, domain] {
        rig.s.close(fid)?;
    }
    rig.close()
}

/// The value of `tx_ctx_cnt` that asks for a shared context (`FI_SHARED_CONTEXT`).
const SHARED: usize = usize::MAX;

/// An info whose endpoints share their transmit context.
fn shared(cx: &Cx<'_>) -> Step<Info> {
    let mut hints = hints(cx);
    hints.caps = Flags::MSG;
    let mut ep = hints.ep.take().unwrap_or_default();
    ep.tx_ctx_cnt = SHARED;
    hints.ep = Some(ep);
    let found = of_provider(cx, cx.s.getinfo(&query(cx, hints)));
    let found = offered(found, &[Errno::ENODATA], "a shared transmit context")?;
    let info = found.into_iter().next();
    info.ok_or_else(|| Stop::fail("an empty list"))
}

fn shared_receive(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::tagged())?;
    let s = rig.s;
    let spec = Spec::tagged().shared_rx(true);
    let info = offer(cx, &spec)?;
    let domain = s.domain(rig.fabric, &info)?;
    let srx = offered(
        s.shared_rx(domain, &info),
        &[Errno::ENOSYS],
        "fi_srx_context",
    )?;
    let (cq, av) = (
        s.cq(domain, CqAttr::default())?,
        s.av(domain, AvAttr::default())?,
    );
    let (mut eps, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let ep = s.endpoint(domain, &info)?;
        s.bind(ep, cq, Flags::SEND | Flags::RECV)?;
        s.bind(ep, av, Flags::empty())?;
        s.bind(ep, srx, Flags::empty())?;
        s.enable(ep)?;
        peers.push(rig.insert(A, Some(&s.name(ep)?))?);
        eps.push(ep);
    }
    let post = |mut post: Post| -> Step<u64> {
        post.token = rig.token();
        s.post(srx, &post)?;
        Ok(post.token)
    };
    for round in 0..2 {
        let mut wanted = Vec::new();
        for i in 0..6_u8 {
            // Whoever gets it: the first one that fits.
            wanted.push(match i % 2 {
                0 => (post(Post::recv(4))?, i),
                _ => (post(Post::trecv(u64::from(i), 0, 4))?, i),
            });
        }
        for (at, (recv, i)) in wanted.into_iter().enumerate() {
            let to = peers[(at + round) % 3];
            let send = match i % 2 {
                0 => Post::send([i]),
                _ => Post::tsend(u64::from(i), [i]),
            };
            let send = rig.post(A, send.with(to))?;
            let got = rig.until("a message at the shared context", || next(s, cq))?;
            ensure!(got.token == Some(recv), "message {i} took another receive");
            ensure!(got.bytes() == [i], "message {i} is {:?}", got.bytes());
            rig.done(A, send)?;
        }
    }
    in_use(s.close(srx), "it under endpoints")?;
    for fid in eps.into_iter().chain([srx, cq, av, domain]) {
        s.close(fid)?;
    }
    rig.finish()
}

fn shared_transmit(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &Spec::default())?;
    let info = shared(cx)?;
    let domain = rig.sides[A].domain;
    let stx = rig.s.shared_tx(domain, &info);
    let stx = offered(stx, &[Errno::ENOSYS], "fi_stx_context")?;
    if !cx.is_rdm() {
        rig.s.close(stx)?;
        return rig.close();
    }
    let name = rig.sides[B].name.clone();
    let name = name.ok_or_else(|| Stop::fail("no name"))?;
    let mut all = Vec::new();
    for _ in 0..3 {
        let ep = rig.s.endpoint(domain, &info)?;
        let cq = rig.s.cq(domain, CqAttr::default())?;
        let av = rig.s.av(domain, AvAttr::default())?;
        rig.s.bind(ep, cq, Flags::SEND | Flags::RECV)?;
        rig.s.bind(ep, av, Flags::empty())?;
        rig.s.bind(ep, stx, Flags::empty())?;
        rig.s.enable(ep)?;
        let peer = rig.s.av_insert(av, std::slice::from_ref(&name))?;
        all.push((ep, cq, av, peer[0]));
    }
    for (i, (ep, cq, _, peer)) in all.iter().enumerate() {
        let recv = rig.post(B, Post::recv(4))?;
        let mut send = Post::send([i as u8]).with(*peer);
        send.token = rig.token();
        rig.retry("a full queue takes another", || rig.s.post(*ep, &send))?;
        let done = rig.until("its completion", || next(rig.s, *cq))?;
        ensure!(done.token == Some(send.token), "another's completion");
        rig.arrives(recv, [i as u8])?;
    }
    for (ep, cq, av, _) in all {
        for fid in [ep, cq, av] {
            rig.s.close(fid)?;
        }
    }
    rig.s.close(stx)?;
    rig.close()
}

fn shared_transmit_busy(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    let info = shared(cx)?;
    let domain = rig.s.domain(rig.fabric, &info)?;
    let stx = rig.s.shared_tx(domain, &info);
    let stx = offered(stx, &[Errno::ENOSYS], "fi_stx_context")?;
    let second = rig.s.shared_tx(domain, &info)?;
    let ep = rig.s.endpoint(domain, &info)?;
    rig.s.bind(ep, stx, Flags::empty())?;
    let bound = rig.s.bind(ep, second, Flags::empty());
    refused(bound, &[Errno::EINVAL], "binding a second one")?;
    in_use(rig.s.close(stx), "it in use")?;
    for fid in [ep, stx, second, domain] {
        rig.s.close(fid)?;
    }
    rig.close()
}

fn shared_transmit_domain(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    let info = shared(cx)?;
    let domain = rig.s.domain(rig.fabric, &info)?;
    let other = rig.s.domain(rig.fabric, &info)?;
    let stx = rig.s.shared_tx(other, &info);
    let stx = offered(stx, &[Errno::ENOSYS], "fi_stx_context")?;
    let ep = rig.s.endpoint(domain, &info)?;
    let bound = rig.s.bind(ep, stx, Flags::empty());
    refused(bound, &[Errno::EDOMAIN], "binding one of another domain")?;
    // Nothing of it was bound.
    for fid in [stx, ep, other, domain] {
        rig.s.close(fid)?;
    }
    rig.close()
}
