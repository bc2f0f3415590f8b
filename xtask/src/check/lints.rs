//! Lints and `no_std`, which each crate root or manifest must ask for.

use std::fs;

use crate::check::source::SourceFile;
use crate::check::{Finding, find};
use crate::workspace::{Package, Workspace};

/// Crates that a kernel builds: no standard library.
const NO_STD: [&str; 5] = ["types", "wire", "abi", "engine", "mem"];

/// What those crates must refuse outside their tests; `clippy.toml` lists what these lints find.
const NO_STD_LINTS: [&str; 3] = [
    "clippy::disallowed_macros",
    "clippy::disallowed_methods",
    "clippy::disallowed_types",
];

/// Crates that read what a peer sent.
const HOSTILE_INPUT: [&str; 2] = ["wire", "engine"];

/// What those crates must refuse.
const HOSTILE_LINTS: [&str; 4] = [
    "clippy::indexing_slicing",
    "clippy::arithmetic_side_effects",
    "clippy::unwrap_used",
    "clippy::panic",
];

/// Reports every crate that does not ask for its lints.
pub(super) fn check(
    ws: &Workspace,
    sources: &[SourceFile],
    findings: &mut Vec<Finding>,
) -> anyhow::Result<()> {
    for package in &ws.packages {
        check_manifest(ws, package, findings)?;
        for root in &package.roots {
            if let Some(root) = find(sources, ws.relative(root)) {
                check_root(&package.folder, root, findings);
            }
        }
    }
    Ok(())
}

fn check_manifest(
    ws: &Workspace,
    package: &Package,
    findings: &mut Vec<Finding>,
) -> anyhow::Result<()> {
    let manifest = package.manifest();
    let text: String = fs::read_to_string(&manifest)?.split_whitespace().collect();
    if !text.contains("[lints]workspace=true") {
        findings.push(Finding {
            file: ws.relative(&manifest).to_path_buf(),
            line: 1,
            rule: "lints",
            advice: "add `[lints]` with `workspace = true`".to_owned(),
        });
    }
    Ok(())
}

fn check_root(folder: &str, root: &SourceFile, findings: &mut Vec<Finding>) {
    let mut report = |rule, advice| {
        findings.push(Finding {
            file: root.file.clone(),
            line: 1,
            rule,
            advice,
        });
    };
    if NO_STD.contains(&folder) {
        let bare =
            |(text, _): &(String, usize)| text == "no_std" || text == "cfg_attr(not(test),no_std)";
        if !root.attributes.iter().any(bare) {
            report(
                "no_std",
                format!("`{folder}` must say `#![no_std]`: a kernel builds it"),
            );
        }
    }
    if NO_STD.contains(&folder) {
        for lint in NO_STD_LINTS {
            if !root.sets_lint(&["deny", "forbid"], lint) {
                report(
                    "lints",
                    format!(
                        "a kernel builds `{folder}`: add `#![cfg_attr(not(test), deny({lint}))]`"
                    ),
                );
            }
        }
    }
    if HOSTILE_INPUT.contains(&folder) {
        for lint in HOSTILE_LINTS {
            if !root.sets_lint(&["deny", "forbid"], lint) {
                report(
                    "lints",
                    format!("`{folder}` reads hostile input: add `#![deny({lint})]`"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn findings(folder: &str, text: &str) -> usize {
        let root = SourceFile::parse(folder, Path::new("src/lib.rs"), text).expect("Rust");
        let mut findings = Vec::new();
        check_root(folder, &root, &mut findings);
        findings.len()
    }

    #[test]
    fn hostile_input_needs_every_lint() {
        let lints = [&NO_STD_LINTS[..], &HOSTILE_LINTS].concat();
        assert_eq!(findings("engine", "#![no_std]"), lints.len());
        let all = format!("#![no_std]\n#![deny({})]", lints.join(", "));
        assert_eq!(findings("engine", &all), 0);
    }

    #[test]
    fn kernel_floors_are_no_std() {
        let denied = format!("#![cfg_attr(not(test), deny({}))]", NO_STD_LINTS.join(", "));
        assert_eq!(findings("types", &denied), 1);
        assert_eq!(findings("core", "pub struct A;"), 0);
    }

    #[test]
    fn kernel_floors_ask_for_the_lists_of_clippy() {
        assert_eq!(findings("mem", "#![no_std]"), NO_STD_LINTS.len());
        let denied = format!(
            "#![no_std]\n#![cfg_attr(not(test), deny({}))]",
            NO_STD_LINTS.join(", ")
        );
        assert_eq!(findings("mem", &denied), 0);
        assert_eq!(
            findings("mem", &denied.replace("deny", "allow")),
            NO_STD_LINTS.len()
        );
    }
}
