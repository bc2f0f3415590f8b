//! Datagram endpoints (`FI_EP_DGRAM`, `fi_endpoint`(3)), by the pages that their calls are on.
//!
//! A datagram may be lost, so what has to arrive is sent again until it does.

use std::time::{Duration, Instant};

use ripstop_core::Address;
use ripstop_types::{EpType, Errno, Flags, Mode, WaitObj};

use crate::case::{Cx, Outcome, Step, Stop, cases, flagged, ready, refused};
use crate::pace::soon;
use crate::rig::{A, B, Rig, Spec, bare, pattern, prepare};
use crate::subject::{Completion, CqAttr, Inject, Post, Token};
use crate::{ensure, ensure_eq};

cases! {
    pub(super) const CASES;
    fi_endpoint {
        dgram offered: "the answer says how long a datagram may be, and what is in front of one that was received";
        dgram without_peers: "an endpoint without an address vector is not enabled, and takes no operation before that";
        dgram other_domain: "an address vector, a queue or a counter of another domain is FI_EDOMAIN";
    }
    fi_msg {
        dgram sizes: "datagrams of 0 B to max_msg_size arrive whole";
        dgram too_long: "a datagram longer than max_msg_size is refused";
        dgram truncated: "what does not fit is cut off and reported, and the next datagram is whole";
        dgram without_receive: "a datagram that finds no receive is lost, and those behind it arrive";
        dgram many: "of many datagrams those that arrive are whole, and none comes twice";
        dgram iov_send: "1 to iov_limit pieces are gathered";
        dgram inject: "injected datagrams up to inject_size arrive, without a completion";
        dgram inject_too_long: "an inject beyond inject_size is refused";
        dgram cq_data: "remote CQ data arrives and is flagged, of sends and injects, and is not without";
    }
    fi_cq {
        dgram sread: "a blocking read returns what has arrived, and FI_EAGAIN when nothing does";
        dgram wait_fd: "the descriptor of a queue is readable once a datagram is there";
        dgram completion_flags: "completions say what completed";
    }
    fi_cntr {
        dgram counts: "sends, injects and receives are counted";
        dgram wait: "a wait ends when a datagram was received" = counter_wait;
    }
    fi_av {
        dgram lookup: "an address that was inserted is found, and can be written and read as text";
        dgram both_ways: "who knows the name of a peer can answer it";
        dgram remove: "nothing is sent to a peer that was removed, and it can be inserted again";
    }
}

/// Two endpoints that know each other.
struct Datagrams<'a> {
    rig: Rig<'a>,
    /// Bytes in front of what is received.
    prefix: usize,
}

impl<'a> Datagrams<'a> {
    #[track_caller]
    fn open(cx: &Cx<'a>, spec: &Spec) -> Step<Self> {
        let rig = Rig::open(cx, spec)?;
        let prefix = match rig.info.rx.mode.contains(Mode::MSG_PREFIX) {
            true => rig.info.ep.msg_prefix_size,
            false => 0,
        };
        Ok(Self { rig, prefix })
    }

    /// Room at a side for a datagram of this length.
    #[track_caller]
    fn receive(&self, side: usize, len: usize) -> Step<Token> {
        self.rig.post(side, Post::recv(self.prefix + len))
    }

    /// What a datagram carries.
    fn payload(&self, got: &Completion) -> Vec<u8> {
        let mut bytes = got.bytes();
        bytes.split_off(self.prefix.min(bytes.len()))
    }

    /// Sends until something ends a receive.
    #[track_caller]
    fn ends<T>(
        &self,
        send: impl Fn() -> Step<()>,
        mut ended: impl FnMut() -> Step<Option<T>>,
    ) -> Step<T> {
        let start = Instant::now();
        while start.elapsed() < soon() {
            send()?;
            let sent = Instant::now();
            while sent.elapsed() < soon() / 8 {
                self.rig.pump()?;
                if let Some(found) = ended()? {
                    return Ok(found);
                }
            }
        }
        Err(Stop::fail(format!("no datagram arrived in {:?}", soon())))
    }

    /// Sends from one side until a receive of the other gets it.
    #[track_caller]
    fn arrives(&self, to: usize, recv: Token, send: impl Fn() -> Step<()>) -> Step<Completion> {
        self.ends(send, || match self.rig.take_failed(to, recv) {
            Some(error) => Err(Stop::fail(format!(
                "the receive failed: {}",
                error.err.name()
            ))),
            None => Ok(self.rig.take_done(to, recv)),
        })
    }

    /// Sends bytes, and waits until they have gone out.
    #[track_caller]
    fn send(&self, from: usize, bytes: &[u8]) -> Step<()> {
        self.rig.complete(from, Post::send(bytes)).map(drop)
    }

    /// A datagram of these bytes that arrives.
    #[track_caller]
    fn exchange(&self, from: usize, to: usize, bytes: &[u8]) -> Step<Completion> {
        let recv = self.receive(to, bytes.len())?;
        let got = self.arrives(to, recv, || self.send(from, bytes))?;
        self.carries(&got, bytes)?;
        Ok(got)
    }

    #[track_caller]
    fn carries(&self, got: &Completion, bytes: &[u8]) -> Outcome {
        ensure_eq!(got.len, self.prefix + bytes.len(), "the length");
        ensure!(
            self.payload(got) == bytes,
            "{} bytes arrived as others",
            bytes.len()
        );
        Ok(())
    }

    fn most(&self) -> usize {
        self.rig.info.ep.max_msg_size
    }
}

fn offered(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    let (ep, domain) = (&rig.info.ep, &rig.info.domain);
    ensure_eq!(ep.ep_type, EpType::Dgram, "the endpoint type");
    ensure!(ep.max_msg_size > 0, "no datagram has any byte");
    let prefixed =
        rig.info.mode.contains(Mode::MSG_PREFIX) || rig.info.rx.mode.contains(Mode::MSG_PREFIX);
    ensure_eq!(
        prefixed,
        ep.msg_prefix_size > 0,
        "FI_MSG_PREFIX and a size of the prefix"
    );
    ensure!(
        rig.info.tx.inject_size <= ep.max_msg_size,
        "more is injected than sent"
    );
    ensure!(domain.name.is_some(), "the domain has no name");
    rig.close()
}

fn other_domain(cx: &Cx<'_>) -> Outcome {
    let rig = bare(cx, &Spec::default())?;
    let s = rig.s;
    let domain = s.domain(rig.fabric, &rig.info)?;
    let other = s.domain(rig.fabric, &rig.info)?;
    let ep = s.endpoint(domain, &rig.info)?;
    let av = s.av(other, Spec::default().av)?;
    let cq = s.cq(other, CqAttr::default())?;
    let cntr = s.cntr(other, WaitObj::None)?;
    let both = Flags::SEND | Flags::RECV;
    for (fid, flags, what) in [
        (av, Flags::empty(), "an address vector of another domain"),
        (cq, both, "a queue of another domain"),
        (cntr, both, "a counter of another domain"),
    ] {
        refused(s.bind(ep, fid, flags), &[Errno::EDOMAIN], what)?;
    }
    // Nothing of it was bound.
    for fid in [av, cq, cntr, ep, other, domain] {
        s.close(fid)?;
    }
    rig.close()
}

fn without_peers(cx: &Cx<'_>) -> Outcome {
    let spec = Spec::default();
    let rig = bare(cx, &spec)?;
    let domain = cx.s.domain(rig.fabric, &rig.info)?;
    let side = prepare(cx.s, &spec, domain, &rig.info)?;
    let mut send = Post::send([1; 8]);
    send.token = rig.token();
    let reasons = [Errno::EOPBADSTATE, Errno::EINVAL];
    refused(cx.s.post(side.ep, &send), &reasons, "a send before enable")?;
    refused(
        cx.s.enable(side.ep),
        &[Errno::ENOAV, Errno::EINVAL],
        "enabling without an address vector",
    )
}

fn sizes(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    let most = d.most();
    for (seed, len) in [0, 1, 7, 64, 255, 256, 257, most / 2, most - 1, most]
        .into_iter()
        .enumerate()
    {
        d.exchange(A, B, &pattern(len, seed))?;
        d.exchange(B, A, &pattern(len, seed + 1))?;
    }
    d.rig.finish()
}

fn too_long(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    let send = Post::send(vec![1; d.most() + 1]);
    refused(
        d.rig.try_post(A, send),
        &[Errno::EMSGSIZE],
        "a datagram that is too long",
    )?;
    d.exchange(A, B, b"after")?;
    d.rig.finish()
}

fn truncated(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    let most = d.most();
    for (room, len) in [(10, 11), (0, 5), (100, 500), (most - 1, most), (1, most)] {
        let recv = d.receive(B, room)?;
        let bytes = pattern(len, room);
        let error = d.ends(|| d.send(A, &bytes), || Ok(d.rig.take_failed(B, recv)))?;
        ensure_eq!(error.err, Errno::ETRUNC, "the error");
        ensure_eq!(error.olen, len - room, "olen");
        flagged(error.entry.flags, Flags::RECV, "the error entry")?;
        d.exchange(A, B, &pattern(len, 7))?;
    }
    d.rig.finish()
}

fn without_receive(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    for round in 0..10 {
        d.send(A, &pattern(100, round))?;
    }
    d.rig.pump_times(200)?;
    // Some may have been kept.
    let wanted = pattern(100, 77);
    let found = || -> Step<bool> {
        let recv = d.receive(B, 100)?;
        let got = d.arrives(B, recv, || d.send(A, &wanted))?;
        Ok(d.payload(&got) == wanted)
    };
    for _ in 0..11 {
        if found()? {
            return d.rig.close();
        }
    }
    Err(Stop::fail("only earlier datagrams arrive"))
}

fn many(cx: &Cx<'_>) -> Outcome {
    const COUNT: usize = 32;
    let d = Datagrams::open(cx, &Spec::default())?;
    let recvs: Vec<_> = (0..COUNT).map(|_| d.receive(B, 256)).collect::<Step<_>>()?;
    let sends = (0..COUNT).map(|at| Post::send(pattern(200 + at, at)));
    let sends = d.rig.post_all(A, sends)?;
    d.rig.all_done(A, sends)?;
    let mut seen = [false; COUNT];
    let end = Instant::now() + soon() / 8;
    while Instant::now() < end && seen.contains(&false) {
        d.rig.pump()?;
        for recv in &recvs {
            if let Some(got) = d.rig.take_done(B, *recv) {
                let at = (got.len - d.prefix)
                    .checked_sub(200)
                    .filter(|at| *at < COUNT);
                let at = at.ok_or_else(|| Stop::fail(format!("{} bytes arrived", got.len)))?;
                d.carries(&got, &pattern(200 + at, at))?;
                ensure!(
                    !std::mem::replace(&mut seen[at], true),
                    "datagram {at} arrived twice"
                );
            }
        }
    }
    ensure!(seen.contains(&true), "none of {COUNT} datagrams arrived");
    d.rig.close()
}

fn iov_send(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    for count in 1..=d.rig.info.tx.iov_limit {
        let bytes = pattern(500, count);
        let pieces: Vec<_> = bytes.chunks(500 / count + 1).map(<[u8]>::to_vec).collect();
        let recv = d.receive(B, 500)?;
        let send = || {
            let post = Post::send(*b"").iov(pieces.clone());
            d.rig.complete(A, post).map(drop)
        };
        let got = d.arrives(B, recv, send)?;
        d.carries(&got, &bytes)?;
    }
    d.rig.finish()
}

fn inject(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    let limit = d.rig.info.tx.inject_size;
    for len in [0, 1, limit / 2, limit] {
        let bytes = pattern(len, len);
        let recv = d.receive(B, limit)?;
        let got = d.arrives(B, recv, || d.rig.inject(A, &bytes, None, None))?;
        d.carries(&got, &bytes)?;
    }
    d.rig.finish()
}

fn inject_too_long(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    let side = &d.rig.sides[A];
    let bytes = vec![1; d.rig.info.tx.inject_size + 1];
    let inject = Inject {
        bytes: &bytes,
        tag: None,
        data: None,
        addr: side.peer,
    };
    refused(
        d.rig.s.inject(side.ep, inject),
        &[Errno::EINVAL, Errno::EMSGSIZE],
        "an inject that is too long",
    )?;
    d.exchange(A, B, b"after")?;
    d.rig.finish()
}

fn cq_data(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    let size = d.rig.info.domain.cq_data_size;
    if size == 0 {
        return Err(Stop::not_offered("no remote CQ data"));
    }
    for data in [0, 1, 0x0102_0304, u64::from(u32::MAX)] {
        let data = if size < 4 {
            data & ((1 << (8 * size)) - 1)
        } else {
            data
        };
        for injected in [false, true] {
            let recv = d.receive(B, 16)?;
            let send = || match injected {
                true => d.rig.inject(A, b"data", None, Some(data)),
                false => d.rig.complete(A, Post::send(*b"data").data(data)).map(drop),
            };
            let got = d.arrives(B, recv, send)?;
            d.carries(&got, b"data")?;
            ensure_eq!(got.data, data, "CQ data {data:#x}");
            flagged(got.flags, Flags::REMOTE_CQ_DATA, "the completion")?;
        }
    }
    let got = d.exchange(A, B, b"without")?;
    ensure!(
        !got.flags.contains(Flags::REMOTE_CQ_DATA),
        "a datagram without data has {:?}",
        got.flags
    );
    d.rig.finish()
}

fn sread(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default().wait(WaitObj::Unspec))?;
    let cq = d.rig.sides[B].cq;
    let nothing = ready(d.rig.s.cq_sread(cq, 1, Duration::from_millis(20)))?;
    ensure!(nothing.is_none(), "{nothing:?} without a datagram");
    let recv = d.receive(B, 100)?;
    let bytes = pattern(100, 1);
    let start = Instant::now();
    while start.elapsed() < soon() {
        d.send_alone(&bytes)?;
        let Some(found) = ready(d.rig.s.cq_sread(cq, 1, soon() / 8))? else {
            continue;
        };
        let [got] = &found[..] else {
            return Err(Stop::fail(format!("{} completions", found.len())));
        };
        ensure_eq!(got.token, Some(recv), "the receive");
        d.carries(got, &bytes)?;
        return d.rig.close();
    }
    Err(Stop::fail("no datagram arrived"))
}

impl Datagrams<'_> {
    /// Sends from `A`, reading only its queue.
    #[track_caller]
    fn send_alone(&self, bytes: &[u8]) -> Outcome {
        let token = self.rig.post(A, Post::send(bytes))?;
        let start = Instant::now();
        while self.rig.take_done(A, token).is_none() {
            ensure!(start.elapsed() < soon(), "the send does not end");
            self.rig.pump_side(A)?;
        }
        Ok(())
    }
}

fn wait_fd(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default().wait(WaitObj::Fd))?;
    let (s, fabric, cq) = (d.rig.s, d.rig.fabric, d.rig.sides[B].cq);
    let recv = d.receive(B, 100)?;
    let bytes = pattern(100, 2);
    let start = Instant::now();
    while start.elapsed() < soon() {
        let may_wait = ready(s.trywait(fabric, &[cq]))?.is_some();
        ensure!(may_wait, "trywait finds something before a datagram");
        d.send_alone(&bytes)?;
        if s.poll_fd(cq, soon() / 8)? {
            let got = d.rig.done(B, recv)?;
            d.carries(&got, &bytes)?;
            return d.rig.close();
        }
    }
    Err(Stop::fail("the descriptor was never readable"))
}

fn completion_flags(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    let recv = d.receive(B, 8)?;
    let send = || {
        let done = d.rig.complete(A, Post::send([1; 8]))?;
        flagged(done.flags, Flags::SEND | Flags::MSG, "a send")
    };
    let got = d.arrives(B, recv, send)?;
    flagged(got.flags, Flags::RECV | Flags::MSG, "a receive")?;
    d.rig.finish()
}

/// A counter has at least this value.
fn reaches(d: &Datagrams<'_>, cntr: crate::subject::Fid, value: u64) -> Outcome {
    d.rig.until(&format!("a count of {value}"), || {
        Ok((d.rig.s.cntr_read(cntr)? >= value).then_some(()))
    })
}

fn counts(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default().counters(Some(WaitObj::None)))?;
    let (Some(tx), Some(rx)) = (d.rig.sides[A].tx_cntr, d.rig.sides[B].rx_cntr) else {
        return Err(Stop::fail("the suite opened no counters"));
    };
    let recvs: Vec<_> = (0..4).map(|_| d.receive(B, 8)).collect::<Step<_>>()?;
    for _ in 0..2 {
        d.send(A, &[1; 8])?;
        d.rig.inject(A, &[2; 8], None, None)?;
    }
    reaches(&d, tx, 4)?;
    for (arrived, recv) in (0..).zip(recvs) {
        // What was lost is sent again.
        d.arrives(B, recv, || match d.rig.s.cntr_read(rx)? > arrived {
            true => Ok(()),
            false => d.send(A, &[3; 8]),
        })?;
    }
    reaches(&d, rx, 4)?;
    ensure_eq!(d.rig.s.cntr_read(rx)?, 4, "receives");
    ensure_eq!(d.rig.s.cntr_readerr(tx)?, 0, "failures");
    d.rig.close()
}

fn counter_wait(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default().counters(Some(WaitObj::Unspec)))?;
    let Some(rx) = d.rig.sides[B].rx_cntr else {
        return Err(Stop::fail("the suite opened no counters"));
    };
    let early = d.rig.s.cntr_wait(rx, 1, Duration::from_millis(20));
    refused(early, &[Errno::ETIMEDOUT], "a wait without a datagram")?;
    d.receive(B, 8)?;
    let start = Instant::now();
    while start.elapsed() < soon() {
        d.send_alone(&[1; 8])?;
        match d.rig.s.cntr_wait(rx, 1, soon() / 8) {
            Ok(()) => return d.rig.close(),
            Err(error) if error.is(Errno::ETIMEDOUT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Stop::fail("no wait has ended"))
}

fn lookup(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    let side = &d.rig.sides[A];
    let av = d.rig.av(A)?;
    let name = d.rig.sides[B].name.clone();
    let name = name.ok_or_else(|| Stop::fail("no name"))?;
    ensure_eq!(d.rig.s.av_lookup(av, side.peer)?, name, "what was inserted");
    let text = d.rig.s.av_straddr(av, &name)?;
    ensure_eq!(text.parse::<Address>().ok(), Some(name), "{text}");
    d.rig.finish()
}

fn both_ways(cx: &Cx<'_>) -> Outcome {
    let d = Datagrams::open(cx, &Spec::default())?;
    for seed in 0..5 {
        d.exchange(A, B, &pattern(50, seed))?;
        d.exchange(B, A, &pattern(60, seed))?;
    }
    d.rig.finish()
}

fn remove(cx: &Cx<'_>) -> Outcome {
    let mut d = Datagrams::open(cx, &Spec::default())?;
    d.exchange(A, B, b"before")?;
    let (av, peer) = (d.rig.av(A)?, d.rig.sides[A].peer);
    d.rig.s.av_remove(av, &[peer])?;
    let send = Post::send(*b"nowhere");
    refused(
        d.rig.try_post(A, send),
        &[Errno::EINVAL],
        "a datagram to a peer that was removed",
    )?;
    let name = d.rig.sides[B].name.clone();
    d.rig.sides[A].peer = d.rig.insert(A, name.as_ref())?;
    d.exchange(A, B, b"after")?;
    d.rig.finish()
}
