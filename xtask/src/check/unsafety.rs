//! Who may write `unsafe`: the holder crates, and there only modules that say so on their first line.

use crate::check::source::SourceFile;
use crate::check::{Finding, find};
use crate::workspace::{Package, Workspace};

/// The crates that hold unsafe code.
const HOLDERS: [&str; 6] = ["mem", "os", "ibverbs", "capi", "foreign", "kernel"];

/// Reports every `unsafe` outside the allow-list, and every crate root that does not hold the line.
pub(super) fn check(ws: &Workspace, sources: &[SourceFile], findings: &mut Vec<Finding>) {
    for source in sources {
        let holder = HOLDERS.contains(&source.room.as_str());
        if holder {
            check_module(source, findings);
        } else {
            check_free(source, findings);
        }
    }
    for package in &ws.packages {
        check_roots(ws, package, sources, findings);
    }
}

/// Whether `unsafe` at `index` only spells the type of a function pointer.
fn is_pointer_type(source: &SourceFile, index: usize) -> bool {
    let with_abi =
        source.matches(index + 1, &["extern"]) && source.matches(index + 3, &["fn", "("]);
    let plain = source.matches(index + 1, &["fn", "("]);
    let default_abi = source.matches(index + 1, &["extern", "fn", "("]);
    with_abi || plain || default_abi
}

/// The first line on which a file says `unsafe` and means it.
fn first_unsafe(source: &SourceFile) -> Option<usize> {
    let mut tokens = source.tokens.iter().enumerate();
    let found = tokens.find(|(i, token)| token.text == "unsafe" && !is_pointer_type(source, *i));
    found.map(|(_, token)| token.line)
}

fn check_free(source: &SourceFile, findings: &mut Vec<Finding>) {
    if let Some(line) = first_unsafe(source) {
        let advice = format!(
            "`{}` is no holder of unsafe code: move this to one of {}",
            source.room,
            HOLDERS.join(", ")
        );
        findings.push(Finding {
            file: source.file.clone(),
            line,
            rule: "unsafe",
            advice,
        });
    }
}

fn check_module(source: &SourceFile, findings: &mut Vec<Finding>) {
    let outside = source
        .file
        .components()
        .any(|part| part.as_os_str() == "tests");
    let allowed = source.attributes.iter().any(|(text, line)| {
        *line == 1 && (text == "allow(unsafe_code)" || text == "expect(unsafe_code)")
    });
    if let Some(line) = first_unsafe(source).filter(|_| !allowed && !outside) {
        let advice = "say `#![allow(unsafe_code)]` on line 1 of this module".to_owned();
        findings.push(Finding {
            file: source.file.clone(),
            line,
            rule: "unsafe",
            advice,
        });
    }
}

fn check_roots(
    ws: &Workspace,
    package: &Package,
    sources: &[SourceFile],
    findings: &mut Vec<Finding>,
) {
    let holder = HOLDERS.contains(&package.room.as_str());
    let (levels, wanted): (&[&str], _) = match holder {
        true => (&["deny", "forbid"], "#![deny(unsafe_code)]"),
        false => (&["forbid"], "#![forbid(unsafe_code)]"),
    };
    for root in &package.roots {
        let file = ws.relative(root);
        let held = find(sources, file).is_some_and(|root| root.sets_lint(levels, "unsafe_code"));
        if !held {
            let advice = format!("this crate root must say `{wanted}`");
            findings.push(Finding {
                file: file.to_path_buf(),
                line: 1,
                rule: "unsafe",
                advice,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn findings(room: &str, text: &str) -> Vec<Finding> {
        let source = SourceFile::parse(room, Path::new("src/a.rs"), text).expect("Rust");
        let mut findings = Vec::new();
        match HOLDERS.contains(&room) {
            true => check_module(&source, &mut findings),
            false => check_free(&source, &mut findings),
        }
        findings
    }

    #[test]
    fn unsafe_is_refused_outside_the_holders() {
        assert_eq!(findings("core", "fn a() {\n unsafe { b() } }").len(), 1);
        assert_eq!(findings("core", "unsafe extern \"C\" fn a() {}").len(), 1);
    }

    #[test]
    fn a_function_pointer_type_is_a_type() {
        assert!(findings("abi", "struct A { f: Option<unsafe extern \"C\" fn(u8)> }").is_empty());
    }

    #[test]
    fn a_holder_module_declares_itself() {
        assert_eq!(findings("os", "fn a() { unsafe { b() } }").len(), 1);
        let declared = "#![allow(unsafe_code)]\nfn a() { unsafe { b() } }";
        assert!(findings("os", declared).is_empty());
    }
}
