//! How a file says that it has unsafe code. Which files may is in `xtask/ratchet.toml`.

use crate::check::source::SourceFile;
use crate::check::{Finding, find};
use crate::workspace::{Package, Workspace};

/// Reports every module with unsafe code that does not say so, and every crate root that does not hold the line.
pub(super) fn check(ws: &Workspace, sources: &[SourceFile], findings: &mut Vec<Finding>) {
    for source in sources {
        check_module(source, findings);
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
pub(super) fn first_unsafe(source: &SourceFile) -> Option<usize> {
    let mut tokens = source.tokens.iter().enumerate();
    let found = tokens.find(|(i, token)| token.text == "unsafe" && !is_pointer_type(source, *i));
    found.map(|(_, token)| token.line)
}

/// Whether a file is a program of its own below `tests`, which the crate's root does not govern.
fn is_outside(source: &SourceFile) -> bool {
    let mut parts = source.file.components();
    parts.any(|part| part.as_os_str() == "tests")
}

fn check_module(source: &SourceFile, findings: &mut Vec<Finding>) {
    let allowed = source.attributes.iter().any(|(text, line)| {
        *line == 1 && (text == "allow(unsafe_code)" || text == "expect(unsafe_code)")
    });
    if let Some(line) = first_unsafe(source).filter(|_| !allowed && !is_outside(source)) {
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
    let mut own = sources
        .iter()
        .filter(|source| source.folder == package.folder && !is_outside(source));
    let holder = own.any(|source| first_unsafe(source).is_some());
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

    fn parse(text: &str) -> SourceFile {
        SourceFile::parse("os", Path::new("src/a.rs"), text).expect("Rust")
    }

    #[test]
    fn unsafe_code_is_found() {
        let block = parse("fn a() {\n unsafe { b() } }");
        assert_eq!(first_unsafe(&block), Some(2));
        let function = parse("unsafe extern \"C\" fn a() {}");
        assert_eq!(first_unsafe(&function), Some(1));
    }

    #[test]
    fn a_function_pointer_type_is_a_type() {
        let pointer = parse("struct A { f: Option<unsafe extern \"C\" fn(u8)> }");
        assert_eq!(first_unsafe(&pointer), None);
    }

    #[test]
    fn a_module_with_unsafe_code_declares_itself() {
        let findings = |text: &str| {
            let mut findings = Vec::new();
            check_module(&parse(text), &mut findings);
            findings.len()
        };
        assert_eq!(findings("fn a() { unsafe { b() } }"), 1);
        assert_eq!(
            findings("#![allow(unsafe_code)]\nfn a() { unsafe { b() } }"),
            0
        );
    }
}
