//! `FI_AV_USER_ID`: completions report peers by ids of the program's own.

use ripstop_types::{Errno, FiAddr, Flags};

use crate::case::{Cx, Outcome, cases, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec};
use crate::subject::Post;

cases! {
    pub(super) const CASES;
    fi_av {
        rdm user_id: "a peer is reported as nobody until it has an id, and by that from then on";
        rdm user_id_inserted: "a peer that was inserted with an id is reported by that";
        rdm user_id_directed:
            "receives from one peer name it by its address, whatever its id is" = directed;
        rdm user_id_peek:
            "a peek reports the id too, and so does what arrived before the receive" = peek;
        rdm user_id_errors: "an error entry of a receive names the peer by its id, if at all";
        rdm user_id_refused:
            "ids are for peers that are there, and given in the way the vector was opened for";
    }
}

const ID: FiAddr = FiAddr(0xfeed_beef_0bad_cafe);

fn spec(opened: bool) -> Spec {
    let caps = Flags::TAGGED | Flags::SOURCE | Flags::DIRECTED_RECV | Flags::AV_USER_ID;
    let mut spec = Spec::default().caps(caps);
    spec.av.user_ids = opened;
    spec
}

fn user_id(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec(true))?;
    let nobody = rig.exchange(A, B, b"before")?.src;
    ensure!(nobody == FiAddr::NOTAVAIL, "the source is {nobody:?}");
    let Some(av) = rig.sides[B].av else {
        return Ok(());
    };
    for id in [ID, FiAddr(0), FiAddr(7)] {
        rig.s.av_set_user_id(av, rig.sides[B].peer, id)?;
        for len in [1, 5000, 300_000] {
            let src = rig.exchange(A, B, &vec![1; len])?.src;
            ensure!(src == id, "the source of {len} bytes is {src:?}");
        }
    }
    let other = rig.exchange(B, A, b"back")?.src;
    ensure!(other == FiAddr::NOTAVAIL, "at A the source is {other:?}");
    rig.finish()
}

fn user_id_inserted(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec(false))?;
    let own = rig.exchange(A, B, b"before")?.src;
    ensure!(own == rig.sides[B].peer, "the source is {own:?}");
    let (Some(av), Some(name)) = (rig.sides[B].av, rig.sides[A].name.clone()) else {
        return Ok(());
    };
    rig.s.av_remove(av, &[rig.sides[B].peer])?;
    let peer = rig.s.av_insert_as(av, &name, ID)?;
    ensure!(peer != ID, "the id is not the address");
    let src = rig.exchange(A, B, b"after")?.src;
    ensure!(src == ID, "the source is {src:?}");
    let recv = rig.post(A, Post::recv(4))?;
    rig.complete(B, Post::send(*b"back").with(peer))?;
    rig.done(A, recv)?;
    rig.finish()
}

fn directed(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec(true))?;
    let (Some(av), peer) = (rig.sides[B].av, rig.sides[B].peer) else {
        return Ok(());
    };
    rig.s.av_set_user_id(av, peer, ID)?;
    let got = rig.deliver(Post::recv(4).with(peer), Post::send(*b"dear"))?;
    ensure!(got.src == ID, "the source is {:?}", got.src);
    rig.finish()
}

fn peek(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec(true))?;
    let Some(av) = rig.sides[B].av else {
        return Ok(());
    };
    rig.s.av_set_user_id(av, rig.sides[B].peer, ID)?;
    let send = rig.post(A, Post::tsend(5, *b"early"))?;
    rig.sent(A, send)?;
    let mut look = Post::trecv(5, 0, 0);
    look.token = rig.token();
    rig.s.peek(rig.sides[B].ep, &look, Flags::empty())?;
    let seen = rig.done(B, look.token)?;
    ensure!(seen.src == ID, "the peek names {:?}", seen.src);
    let got = rig.complete(B, Post::trecv(5, 0, 5))?;
    ensure!(
        got.src == ID && got.bytes() == b"early",
        "the source is {:?}",
        got.src
    );
    rig.close()
}

fn user_id_errors(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec(true))?;
    let (Some(av), peer) = (rig.sides[B].av, rig.sides[B].peer) else {
        return Ok(());
    };
    for id in [ID, FiAddr(peer.0 + 1)] {
        rig.s.av_set_user_id(av, peer, id)?;
        // One that is there before the message, one behind it, and one for this peer only.
        for (early, directed) in [(true, false), (false, false), (true, true)] {
            let mut post = Post::trecv(1, 0, 4);
            if directed {
                post = post.with(peer);
            }
            let mut recv = None;
            if early {
                recv = Some(rig.post(B, post.clone())?);
            }
            let send = rig.post(A, Post::tsend(1, *b"too long"))?;
            rig.sent(A, send)?;
            let recv = match recv {
                Some(recv) => recv,
                None => rig.post(B, post)?,
            };
            let failed = rig.failed(B, recv)?;
            let (src, err) = (failed.entry.src, failed.err.name());
            ensure!(failed.err == Errno::ETRUNC, "failed with {err}");
            let right = src == id || src == FiAddr::NOTAVAIL;
            ensure!(right, "the error names {src:?}, not {id:?}");
        }
        let src = rig.exchange(A, B, b"fits")?.src;
        ensure!(src == id, "the source is {src:?}");
    }
    rig.finish()
}

fn user_id_refused(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec(true))?;
    let (Some(av), Some(name)) = (rig.sides[B].av, rig.sides[A].name.clone()) else {
        return Ok(());
    };
    let unknown = rig.s.av_set_user_id(av, FiAddr(99), ID);
    refused(
        unknown,
        &[Errno::EINVAL],
        "an id for a peer that is not there",
    )?;
    let twice = rig.s.av_insert_as(av, &name, ID);
    let no = [Errno::EINVAL, Errno::EBADFLAGS];
    refused(twice, &no, "an insertion with an id there")?;
    rig.close()
}
