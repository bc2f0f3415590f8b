//! Address vectors that are shared by name.

use ripstop_types::{Errno, Flags};

use crate::case::{Case, Cx, Outcome, Step, offered, refused};
use crate::ensure;
use crate::rig::{A, Rig, Spec};
use crate::subject::{AvAttr, Fid};

pub(super) const CASES: &[Case] = &[
    Case::rdm(
        "fi_av/named",
        "who opens an address vector by its name finds what others have inserted",
        named,
    ),
    Case::rdm(
        "fi_av/named_read_only",
        "one that is opened with FI_READ cannot be changed",
        read_only,
    ),
    Case::rdm(
        "fi_av/named_missing",
        "one that is opened with FI_READ must exist",
        missing,
    ),
];

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

fn missing(cx: &Cx<'_>) -> Outcome {
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
