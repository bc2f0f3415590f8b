//! Address vectors that are shared by name.

use ripstop_types::{Errno, Flags};

use crate::case::{Cx, Outcome, Step, cases, offered, refused};
use crate::ensure;
use crate::rig::{A, B, Rig, Spec};
use crate::subject::{AvAttr, CqAttr, Fid, Post};

cases! {
    pub(super) const CASES;
    fi_av {
        rdm named: "who opens an address vector by its name finds what others have inserted";
        rdm named_used:
            "an endpoint reaches whom another owner of the vector inserts, until it is removed";
        rdm named_read_only: "one that is opened with FI_READ cannot be changed" = read_only;
        rdm named_missing: "one that is opened with FI_READ must exist";
    }
}

fn spec() -> Spec {
    let mut spec = Spec::default().caps(Flags::SHARED_AV);
    spec.two_domains = true;
    spec
}

/// A name that nobody else has.
fn name(what: &str) -> String {
    format!("conformance-{}-{what}", std::process::id())
}

fn open(rig: &Rig<'_>, domain: Fid, name: &str, read_only: bool) -> Step<Fid> {
    let attr = AvAttr {
        count: 16,
        ..AvAttr::default()
    };
    let opened = rig.s.av_named(domain, attr, name, read_only);
    offered(opened, &[Errno::ENOSYS], "an address vector with a name")
}

fn named(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let [near, far] = [rig.sides[0].domain, rig.sides[1].domain];
    let name = name("named");
    let writer = open(&rig, near, &name, false)?;
    let reader = open(&rig, far, &name, true)?;
    let addr = rig.sides[A].name.clone().into_iter().collect::<Vec<_>>();
    let inserted = rig.s.av_insert(writer, &addr)?;
    ensure!(inserted[0].is_specified(), "inserted as {inserted:?}");
    ensure!(
        rig.s.av_lookup(reader, inserted[0])? == addr[0],
        "the reader finds another address"
    );
    rig.s.close(reader)?;
    rig.s.close(writer)?;
    rig.close()
}

fn named_used(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let [near, far] = [rig.sides[0].domain, rig.sides[1].domain];
    let name = name("used");
    let writer = open(&rig, near, &name, false)?;
    let reader = open(&rig, far, &name, true)?;
    // An endpoint that knows its peers only by what others insert.
    let (cq, ep) = (
        rig.s.cq(far, CqAttr::default())?,
        rig.s.endpoint(far, &rig.info)?,
    );
    rig.s.bind(ep, cq, Flags::SEND | Flags::RECV)?;
    rig.s.bind(ep, reader, Flags::empty())?;
    rig.s.enable(ep)?;
    let mut found = Vec::new();
    for side in [A, B] {
        let addr = rig.sides[side].name.clone().into_iter().collect::<Vec<_>>();
        found.extend(rig.s.av_insert(writer, &addr)?);
    }
    for (side, addr) in [(A, found[0]), (B, found[1])] {
        let recv = rig.post(side, Post::recv(8))?;
        let mut post = Post::send(*b"by name").with(addr);
        post.token = rig.token();
        rig.retry("the send is taken", || rig.s.post(ep, &post))?;
        let sent = rig.until("the send completes", || match rig.s.cq_read(cq, 1) {
            Ok(done) => Ok(done.first().and_then(|done| done.token)),
            Err(e) if e.is(Errno::EAGAIN) => Ok(None),
            Err(e) => Err(e.into()),
        })?;
        ensure!(sent == post.token, "{sent} completed");
        let got = rig.done(side, recv)?.bytes();
        ensure!(got == b"by name", "{got:?} arrived");
    }
    rig.s.av_remove(writer, &found[..1])?;
    let gone = rig.s.av_lookup(reader, found[0]);
    refused(gone, &[Errno::EINVAL], "an address that was removed")?;
    for fid in [ep, cq, reader, writer] {
        rig.s.close(fid)?;
    }
    rig.close()
}

fn read_only(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let [near, far] = [rig.sides[0].domain, rig.sides[1].domain];
    let name = name("read-only");
    let writer = open(&rig, near, &name, false)?;
    let reader = open(&rig, far, &name, true)?;
    let addr = rig.sides[A].name.clone().into_iter().collect::<Vec<_>>();
    match rig.s.av_insert(reader, &addr) {
        Ok(found) => ensure!(!found[0].is_specified(), "inserted as {found:?}"),
        Err(error) => ensure!(!error.is(Errno::ENOSYS), "no insertion at all"),
    }
    rig.s.close(reader)?;
    rig.s.close(writer)?;
    rig.close()
}

fn named_missing(cx: &Cx<'_>) -> Outcome {
    let rig = Rig::open(cx, &spec())?;
    let domain = rig.sides[A].domain;
    let attr = AvAttr::default();
    let opened = rig.s.av_named(domain, attr, &name("missing"), true);
    refused(
        opened,
        &[Errno::ENOENT, Errno::EINVAL],
        "one that is not there",
    )?;
    rig.close()
}
