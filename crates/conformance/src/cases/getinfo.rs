//! `fi_getinfo`(3).

mod consumers;
mod hints;
mod nodes;

use ripstop_core::names::CNames as _;
use ripstop_core::{DomainAttr, EpAttr, FabricAttr, Hints, Info, RxAttr, TxAttr};
use ripstop_types::{Errno, Flags, Version};

use crate::case::{Case, Cx, Outcome, Step, Stop, cases};
use crate::rig;
use crate::subject::{Query, Result as CallResult};
use crate::{ensure, ensure_eq};

pub(super) fn cases() -> Vec<Case> {
    [OWN, hints::CASES, nodes::CASES, consumers::CASES].concat()
}

cases! {
    const OWN;
    fi_getinfo {
        both null_hints: "without hints every provider is listed, ours among them";
        both complete:
            "every answer has names, an address format, sizes and the version asked with";
        both own_answer: "hints made of an answer find that answer";
        both versions: "each version from 1.0 to the library's own is answered and echoed";
        both newer_version: "a version newer than the library is refused with FI_ENOSYS";
        both prov_attr_only: "FI_PROV_ATTR_ONLY lists the provider once, by name";
        both no_groups: "hints without any attribute group are a wildcard";
        both text: "fi_tostr describes an answer";
    }
}

/// Asks with the usual hints after `change`, towards no address in particular.
fn ask(cx: &Cx<'_>, change: impl FnOnce(&mut Query)) -> CallResult<Vec<Info>> {
    let mut query = Query {
        hints: Some(rig::hints(cx)),
        ..Query::default()
    };
    change(&mut query);
    rig::of_provider(cx, cx.s.getinfo(&query))
}

/// The attributes that tell answers apart, in a line.
fn brief(info: &Info) -> String {
    format!(
        "{} on {} from {:?}: {}; transmit {}, {}; receive {}, {}; {:?} {:?} {:?} {:?}",
        info.prov_name(),
        info.domain.name.as_deref().unwrap_or("no domain"),
        info.src_addr.as_ref().map(ToString::to_string),
        info.caps.c_names(),
        info.tx.caps.c_names(),
        info.tx.op_flags.c_names(),
        info.rx.caps.c_names(),
        info.rx.op_flags.c_names(),
        info.addr_format,
        info.domain.threading,
        info.domain.progress,
        info.domain.mr_mode,
    )
}

/// Asks with changed hints.
fn ask_hints(cx: &Cx<'_>, change: impl FnOnce(&mut Hints)) -> CallResult<Vec<Info>> {
    ask(cx, |q| {
        if let Some(hints) = &mut q.hints {
            change(hints);
        }
    })
}

/// The best answer to the usual hints.
#[track_caller]
fn best(cx: &Cx<'_>) -> Step<Info> {
    match ask_hints(cx, |_| ()) {
        Ok(infos) => infos
            .into_iter()
            .next()
            .ok_or_else(|| Stop::fail("success with an empty list")),
        Err(e) if e.is(Errno::ENODATA) => Err(Stop::not_offered(format!(
            "{} has no such endpoints",
            cx.setup.provider
        ))),
        Err(e) => Err(e.into()),
    }
}

/// Succeeds when every answer to changed hints keeps a rule; the provider must answer.
#[track_caller]
fn all_answers(
    cx: &Cx<'_>,
    what: &str,
    change: impl FnOnce(&mut Hints),
    rule: impl Fn(&Info) -> bool,
) -> Outcome {
    best(cx)?;
    let infos = ask_hints(cx, change).map_err(|e| Stop::fail(format!("{what}: {e}")))?;
    ensure!(!infos.is_empty(), "{what}: success with an empty list");
    for info in &infos {
        ensure!(rule(info), "{what} is not echoed by {}", brief(info));
    }
    Ok(())
}

/// Succeeds when changed hints find nothing.
#[track_caller]
fn no_answer(cx: &Cx<'_>, what: &str, change: impl FnOnce(&mut Hints)) -> Outcome {
    best(cx)?;
    crate::case::refused(ask_hints(cx, change), &[Errno::ENODATA], what)
}

fn tx(hints: &mut Hints) -> &mut TxAttr {
    hints.tx.get_or_insert_default()
}

fn rx(hints: &mut Hints) -> &mut RxAttr {
    hints.rx.get_or_insert_default()
}

fn ep(hints: &mut Hints) -> &mut EpAttr {
    hints.ep.get_or_insert_default()
}

fn domain(hints: &mut Hints) -> &mut DomainAttr {
    hints.domain.get_or_insert_default()
}

fn fabric(hints: &mut Hints) -> &mut FabricAttr {
    hints.fabric.get_or_insert_default()
}

/// Fails where only who names the provider finds it, as one that is layered over another.
fn listed_unnamed(cx: &Cx<'_>) -> Outcome {
    match cx.setup.provider.contains(';') {
        true => Err(Stop::not_offered("it answers who names it")),
        false => Ok(()),
    }
}

fn null_hints(cx: &Cx<'_>) -> Outcome {
    best(cx)?;
    listed_unnamed(cx)?;
    let infos = cx.s.getinfo(&Query::default())?;
    let found = infos
        .iter()
        .any(|i| i.prov_name() == cx.setup.provider && i.ep.ep_type == cx.ep_type);
    ensure!(
        found,
        "{} answers, none of {} with {:?} endpoints",
        infos.len(),
        cx.setup.provider,
        cx.ep_type
    );
    Ok(())
}

fn complete(cx: &Cx<'_>) -> Outcome {
    best(cx)?;
    let version = cx.s.about().version.min(Version::CURRENT);
    for info in ask_hints(cx, |_| ())? {
        let name = info.domain.name.clone().unwrap_or_default();
        ensure!(
            info.prov_name() == cx.setup.provider,
            "of another provider: {info:?}"
        );
        ensure!(
            info.ep.ep_type == cx.ep_type,
            "of another endpoint type: {info:?}"
        );
        ensure!(!name.is_empty(), "no domain name: {}", brief(&info));
        ensure!(
            info.fabric.name.is_some(),
            "no fabric name: {}",
            brief(&info)
        );
        ensure_eq!(info.fabric.api_version, version, "{name}: api_version");
        ensure!(info.addr_format.raw() != 0, "{name}: no address format");
        ensure!(info.tx.size > 0 && info.rx.size > 0, "{name}: a size is 0");
        ensure!(info.tx.iov_limit > 0, "{name}: no transmit iov_limit");
        ensure!(info.rx.iov_limit > 0, "{name}: no receive iov_limit");
        ensure!(info.ep.max_msg_size > 0, "{name}: no max_msg_size");
        ensure!(info.ep.tx_ctx_cnt > 0, "{name}: no tx_ctx_cnt");
        ensure!(info.caps.contains(Flags::MSG), "{name}: no FI_MSG");
    }
    Ok(())
}

fn own_answer(cx: &Cx<'_>) -> Outcome {
    best(cx)?;
    for info in ask_hints(cx, |_| ())? {
        let mut hints = Hints::from(info.clone());
        hints.handle = None;
        let query = Query {
            hints: Some(hints),
            ..Query::default()
        };
        let name = info.domain.name.clone();
        let again = rig::of_provider(cx, cx.s.getinfo(&query));
        let again = again.map_err(|e| Stop::fail(format!("{}: {e}", brief(&info))))?;
        let same = again.iter().any(|i| {
            i.domain.name == name && i.caps.contains(info.caps) && i.src_addr == info.src_addr
        });
        let others: Vec<_> = again.iter().map(brief).collect();
        ensure!(same, "asking for {} finds {others:?}", brief(&info));
    }
    Ok(())
}

fn versions(cx: &Cx<'_>) -> Outcome {
    best(cx)?;
    let newest = cx.s.about().version.min(Version::CURRENT);
    let all = (0..=20).map(|minor| Version::new(1, minor));
    let all = all.chain((0..=6).map(|minor| Version::new(2, minor)));
    for version in all.filter(|v| *v <= newest) {
        let infos = ask(cx, |q| {
            q.version = Some(version);
            if let (true, Some(hints)) = (version < Version::new(1, 5), &mut q.hints) {
                // Older callers know only FI_MR_BASIC and FI_MR_SCALABLE.
                domain(hints).mr_mode = ripstop_types::MrMode::empty();
            }
        });
        let infos = infos.map_err(|e| Stop::fail(format!("version {version}: {e}")))?;
        for info in infos {
            ensure!(
                info.fabric.api_version == version,
                "asked with {version}, answered with {}",
                info.fabric.api_version
            );
        }
    }
    Ok(())
}

fn newer_version(cx: &Cx<'_>) -> Outcome {
    let newer = Version(cx.s.about().version.0 + 1);
    for version in [newer, Version::new(99, 0)] {
        let asked = ask(cx, |q| q.version = Some(version));
        crate::case::refused(asked, &[Errno::ENOSYS], &format!("version {version}"))?;
    }
    Ok(())
}

fn prov_attr_only(cx: &Cx<'_>) -> Outcome {
    best(cx)?;
    let infos = ask(cx, |q| {
        q.flags = Flags::PROV_ATTR_ONLY;
        if let Some(hints) = &mut q.hints {
            *hints = Hints {
                fabric: hints.fabric.take(),
                ..Hints::default()
            };
        }
    })?;
    let named = infos.iter().filter(|i| i.prov_name() == cx.setup.provider);
    ensure!(
        named.count() == 1,
        "not one answer of {}: {infos:?}",
        cx.setup.provider
    );
    Ok(())
}

fn no_groups(cx: &Cx<'_>) -> Outcome {
    best(cx)?;
    listed_unnamed(cx)?;
    let query = Query {
        hints: Some(Hints {
            mode: rig::hints(cx).mode,
            ..Hints::default()
        }),
        ..Query::default()
    };
    let infos = cx.s.getinfo(&query)?;
    let found = infos.iter().any(|i| i.prov_name() == cx.setup.provider);
    ensure!(found, "no answer of {}", cx.setup.provider);
    Ok(())
}

fn text(cx: &Cx<'_>) -> Outcome {
    let edge = super::c_edge(cx)?;
    let info = best(cx)?;
    let text = edge.info_text(&info)?;
    let name = info.domain.name.clone().unwrap_or_default();
    for part in [
        "fi_info:",
        "FI_MSG",
        "fi_ep_attr:",
        "fi_domain_attr:",
        &name,
    ] {
        ensure!(text.contains(part), "no {part} in {text}");
    }
    Ok(())
}
