//! Whose the bytes are. What a call with inject semantics or a completion has given back is
//! overwritten at once, by the subject; what arrives are the bytes from before (`fi_endpoint`(3),
//! `FI_INJECT`; `fi_cq`(3), completion semantics; `fi_atomic`(3) for operands).

mod levels;
mod remote;

use ripstop_core::Info;
use ripstop_types::{Errno, Flags, Progress};

use crate::case::{Case, Cx, Outcome, Step, Stop, cases};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec, Target, pattern};
use crate::subject::{Inject, Post, Token};

pub(super) fn cases() -> Vec<Case> {
    [CASES, remote::CASES, levels::CASES].concat()
}

cases! {
    const CASES;
    fi_msg {
        both inject_gives_back:
            "injected messages of every length arrive as they were when the call returned"
                = |cx| injected(cx, What::Msg);
    }
    fi_tagged {
        both inject_gives_back:
            "injected tagged messages of every length arrive as they were when the call returned"
                = |cx| injected(cx, What::Tagged);
    }
    fi_msg {
        both inject_default_gives_back:
            "with FI_INJECT as default flag a message arrives as it was when the call returned"
                = |cx| by_default(cx, What::Msg);
    }
    fi_tagged {
        both inject_default_gives_back:
            "with FI_INJECT as default flag a tagged message arrives as it was when the call returned"
                = |cx| by_default(cx, What::Tagged);
    }
    fi_msg {
        rdm inject_first_gives_back:
            "messages that are injected before there is a connection arrive as they were"
                = |cx| first(cx, What::Msg);
    }
    fi_tagged {
        rdm inject_first_gives_back:
            "tagged messages that are injected before there is a connection arrive as they were"
                = |cx| first(cx, What::Tagged);
    }
    fi_msg {
        both inject_behind_gives_back:
            "messages that are injected behind what a full connection holds up arrive as they were"
                = |cx| behind(cx, What::Msg), within(20);
    }
    fi_tagged {
        both inject_behind_gives_back:
            "tagged messages that are injected behind what a full connection holds up arrive as they \
         were" = |cx| behind(cx, What::Tagged), within(20);
    }
}

/// Which messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Msg,
    Tagged,
}

const TAG: u64 = 0x5_0000_0007;

impl What {
    fn spec(self) -> Spec {
        match self {
            Self::Msg => Spec::default(),
            Self::Tagged => Spec::tagged(),
        }
    }

    fn tag(self) -> Option<u64> {
        (self == Self::Tagged).then_some(TAG)
    }

    fn send(self, bytes: &[u8]) -> Post {
        match self {
            Self::Msg => Post::send(bytes),
            Self::Tagged => Post::tsend(TAG, bytes),
        }
    }

    fn recv(self, len: usize) -> Post {
        match self {
            Self::Msg => Post::recv(len),
            Self::Tagged => Post::trecv(TAG, 0, len),
        }
    }
}

/// How often a side looks while the other does nothing.
const LOOKS: usize = 50;

/// Two sides that make progress each for itself, when its own queues are read.
fn apart(spec: Spec) -> Spec {
    spec.two_domains(true).progress(Progress::Manual)
}

/// Lengths at which an implementation changes its way of sending: the sizes of headers with their
/// payload, of what is copied, of parts of a ring, of pages, of what is sent without asking.
const TURNS: [usize; 16] = [
    16,
    48,
    56,
    128,
    256,
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    64 << 10,
    128 << 10,
    320 << 10,
    512 << 10,
    576 << 10,
    1 << 20,
];

/// Lengths around all turns, and around what may be injected.
fn lengths(info: &Info) -> Vec<usize> {
    let mut lengths = vec![0, 1, 8];
    for turn in TURNS.into_iter().chain([info.tx.inject_size]) {
        lengths.extend([turn.saturating_sub(1), turn, turn + 1]);
    }
    lengths.retain(|len| *len <= 1 + (1 << 20) && *len <= info.ep.max_msg_size);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Those of them that may be injected.
fn short_lengths(info: &Info) -> Vec<usize> {
    let mut lengths = lengths(info);
    lengths.retain(|len| *len <= info.tx.inject_size);
    lengths
}

/// Cuts bytes into so many pieces, the last of which has what is left.
fn cut(bytes: &[u8], pieces: usize) -> Vec<Vec<u8>> {
    let mut cut = Vec::new();
    let mut rest = bytes;
    for left in (1..=pieces).rev() {
        let (piece, after) = rest.split_at(rest.len() / left);
        cut.push(piece.to_vec());
        rest = after;
    }
    cut
}

/// The calls that inject a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `fi_inject`, `fi_tinject`.
    Call,
    /// `fi_injectdata`, `fi_tinjectdata`.
    CallData,
    /// `fi_sendmsg`, `fi_tsendmsg` with `FI_INJECT`.
    Flag,
    /// As before, in as many pieces as are allowed, with data where there is any.
    FlagPieces,
    /// As [`Form::FlagPieces`], done when the peer has it.
    Delivered,
}

/// Those that are done though the peer does nothing.
const FORMS: [Form; 4] = [Form::Call, Form::CallData, Form::Flag, Form::FlagPieces];

const ALL_FORMS: [Form; 5] = {
    let [a, b, c, d] = FORMS;
    [a, b, c, d, Form::Delivered]
};

/// Injects once. The completion to come, if there will be one.
fn put(
    rig: &Rig<'_>,
    what: What,
    form: Form,
    bytes: &[u8],
) -> crate::subject::Result<Option<Token>> {
    let data = (rig.info.domain.cq_data_size > 0).then_some(7);
    let call = |data| {
        let inject = Inject {
            bytes,
            tag: what.tag(),
            data,
            addr: rig.sides[A].peer,
        };
        rig.s.inject(rig.sides[A].ep, inject).map(|()| None)
    };
    let mut post = what.send(bytes).flags(Flags::INJECT);
    match form {
        Form::Call => return call(None),
        Form::CallData => return call(data),
        Form::Flag => {}
        Form::FlagPieces | Form::Delivered => {
            post.bufs = cut(bytes, rig.info.tx.iov_limit.clamp(1, 4));
            post.data = data;
        }
    }
    if form == Form::Delivered {
        post = post.flags(Flags::DELIVERY_COMPLETE);
    }
    rig.try_post(A, post).map(Some)
}

/// Injects, and makes progress while the queue is full.
fn put_soon(rig: &Rig<'_>, what: What, form: Form, bytes: &[u8]) -> Step<Option<Token>> {
    rig.retry("a full queue takes another inject", || {
        put(rig, what, form, bytes)
    })
}

/// The message that B gets is this one.
#[track_caller]
fn arrives(rig: &Rig<'_>, recv: Token, bytes: &[u8]) -> Outcome {
    let got = rig.done(B, recv)?.bytes();
    let first = got.iter().zip(bytes).position(|(a, b)| a != b);
    ensure!(
        got.len() == bytes.len() && first.is_none(),
        "of {} bytes {} arrived, the first wrong one at {first:?}",
        bytes.len(),
        got.len()
    );
    Ok(())
}

/// The bytes that land in B's memory are these, which it did not hold before.
#[track_caller]
fn lands(rig: &Rig<'_>, target: &Target, bytes: &[u8]) -> Outcome {
    let Err(late) = rig.holds(target, bytes) else {
        return Ok(());
    };
    let found = rig.s.memory_read(target.memory)?;
    match found.iter().zip(bytes).position(|(a, b)| a != b) {
        None => Err(late),
        Some(at) => Err(Stop::fail(format!(
            "of {} bytes in the peer's memory, number {at} is {:#x} and not {:#x}",
            bytes.len(),
            found[at],
            bytes[at]
        ))),
    }
}

fn injected(cx: &Cx<'_>, what: What) -> Outcome {
    for spec in [what.spec(), apart(what.spec())] {
        let rig = Rig::open(cx, &spec)?;
        rig.exchange(A, B, b"first")?;
        for (seed, len) in (1..).zip(short_lengths(&rig.info)) {
            let bytes = pattern(len, seed);
            for form in ALL_FORMS {
                let recv = rig.post(B, what.recv(len))?;
                let sent = put_soon(&rig, what, form, &bytes)?;
                arrives(&rig, recv, &bytes)?;
                if let Some(sent) = sent {
                    rig.done(A, sent)?;
                }
            }
            // And all of them at once, before there are buffers for them.
            let mut sent = Vec::new();
            for form in FORMS {
                sent.extend(put_soon(&rig, what, form, &bytes)?);
            }
            rig.all_done(A, sent)?;
            for _ in FORMS {
                let recv = rig.post(B, what.recv(len))?;
                arrives(&rig, recv, &bytes)?;
            }
        }
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}

fn by_default(cx: &Cx<'_>, what: What) -> Outcome {
    let rig = Rig::open(
        cx,
        &Spec {
            tx_op_flags: Flags::INJECT,
            ..apart(what.spec())
        },
    )?;
    rig.exchange(A, B, b"first")?;
    let ep = rig.sides[A].ep;
    for (seed, len) in (1..).zip(short_lengths(&rig.info)) {
        let bytes = pattern(len, seed);
        for is_early in [true, false] {
            let early = match is_early {
                true => Some(rig.post(B, what.recv(len))?),
                false => None,
            };
            let send = rig.post(A, what.send(&bytes))?;
            rig.s.overwrite(ep, send)?;
            rig.done(A, send)?;
            let recv = match early {
                Some(recv) => recv,
                None => rig.post(B, what.recv(len))?,
            };
            arrives(&rig, recv, &bytes)?;
        }
    }
    rig.finish()
}

fn first(cx: &Cx<'_>, what: What) -> Outcome {
    for form in ALL_FORMS {
        let rig = Rig::open(cx, &apart(what.spec()))?;
        let longest = rig.info.tx.inject_size;
        let messages = [8, longest, 0, longest / 2 + 1].into_iter().enumerate();
        let messages: Vec<_> = messages.map(|(seed, len)| pattern(len, seed)).collect();
        // What is taken before there is a connection is overwritten before there is one.
        let mut sent = Vec::new();
        let mut taken = 0;
        for bytes in &messages {
            match put(&rig, what, form, bytes) {
                Ok(token) => sent.extend(token),
                Err(e) if e.is(Errno::EAGAIN) => break,
                Err(e) => return Err(e.into()),
            }
            taken += 1;
        }
        for bytes in &messages[taken..] {
            sent.extend(put_soon(&rig, what, form, bytes)?);
        }
        for bytes in &messages {
            let recv = rig.post(B, what.recv(bytes.len()))?;
            arrives(&rig, recv, bytes)?;
        }
        rig.all_done(A, sent)?;
        rig.quiet()?;
        rig.close()?;
    }
    Ok(())
}

/// Bytes of a message that fills a connection.
const FILLER: usize = 60_000;

/// Sends to B, which does nothing, until no more is taken or much was. The sends, which have not
/// completed as a rule.
fn fill(rig: &Rig<'_>, what: What) -> Step<Vec<Token>> {
    let mut sends = Vec::new();
    while sends.len() < 200 {
        match rig.try_post(A, what.send(&pattern(FILLER, sends.len()))) {
            Ok(token) => sends.push(token),
            Err(e) if e.is(Errno::EAGAIN) => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(sends)
}

/// What [`fill`] has sent arrives.
fn drain(rig: &Rig<'_>, what: What, sends: &[Token]) -> Outcome {
    for (seed, _) in sends.iter().enumerate() {
        let recv = rig.post(B, what.recv(FILLER))?;
        arrives(rig, recv, &pattern(FILLER, seed))?;
    }
    for send in sends {
        rig.done(A, *send)?;
    }
    Ok(())
}

fn behind(cx: &Cx<'_>, what: What) -> Outcome {
    let rig = Rig::open(cx, &apart(what.spec()))?;
    rig.exchange(A, B, b"first")?;
    let longest = rig.info.tx.inject_size;
    for form in FORMS {
        let sends = fill(&rig, what)?;
        let (mut messages, mut sent) = (Vec::new(), Vec::new());
        for seed in 0..60 {
            let bytes = pattern((seed * 37 + 1) % (longest + 1), seed);
            match put(&rig, what, form, &bytes) {
                Ok(token) => sent.extend(token),
                Err(e) if e.is(Errno::EAGAIN) => break,
                Err(e) => return Err(e.into()),
            }
            messages.push(bytes);
        }
        drain(&rig, what, &sends)?;
        for bytes in &messages {
            let recv = rig.post(B, what.recv(bytes.len()))?;
            arrives(&rig, recv, bytes)?;
        }
        rig.all_done(A, sent)?;
    }
    rig.finish()
}
