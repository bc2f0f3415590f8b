//! `engine` allocates fallibly and has no floats. The other crates that a kernel builds are held to this by clippy, which knows
//! types (`clippy.toml`; [`super::lints`] checks that they ask for it).

use std::collections::HashSet;

use crate::check::Finding;
use crate::check::source::SourceFile;

/// The crate that is held to these rules by its tokens.
pub(super) const BY_TOKENS: &str = "engine";

/// Token sequences that allocate or abort.
const ABORTING: [&[&str]; 12] = [
    &["vec", "!"],
    &["format", "!"],
    &["Box", ":", ":", "new", "("],
    &["Rc", ":", ":", "new", "("],
    &["Arc", ":", ":", "new", "("],
    &["Vec", ":", ":", "with_capacity", "("],
    &["String", ":", ":", "from", "("],
    &["String", ":", ":", "with_capacity", "("],
    &[".", "to_string", "("],
    &[".", "to_owned", "("],
    &[".", "to_vec", "("],
    &[".", "into_boxed_slice", "("],
];

/// Methods of growing collections; types of the crate's own may have methods of these names.
const GROWING: [&str; 8] = [
    "push",
    "push_back",
    "push_front",
    "push_str",
    "extend_from_slice",
    "reserve",
    "resize",
    "append",
];

/// Reports infallible growth and floats outside tests.
pub(super) fn check(sources: &[SourceFile], findings: &mut Vec<Finding>) {
    let sources: Vec<&SourceFile> = sources.iter().filter(|s| s.room == BY_TOKENS).collect();
    let own: HashSet<&str> = sources.iter().flat_map(|s| own_methods(s)).collect();
    for source in sources {
        check_file(source, &own, findings);
    }
}

/// Names of [`GROWING`] that a file defines itself.
fn own_methods(source: &SourceFile) -> impl Iterator<Item = &str> {
    let defined = |(index, token): (usize, &super::source::Token)| {
        let name = (token.text == "fn").then(|| source.tokens.get(index + 1))??;
        GROWING
            .iter()
            .find(|growing| **growing == name.text)
            .copied()
    };
    source.code().filter_map(defined)
}

fn check_file(source: &SourceFile, own: &HashSet<&str>, findings: &mut Vec<Finding>) {
    let mut report = |line, rule, advice| {
        findings.push(Finding {
            file: source.file.clone(),
            line,
            rule,
            advice,
        });
    };
    for (index, token) in source.code() {
        if let Some(pattern) = ABORTING
            .iter()
            .find(|pattern| source.matches(index, pattern))
        {
            let call = pattern.concat().replace('(', "");
            report(
                token.line,
                "growth",
                format!("`{call}` aborts when memory is short: reserve with `try_reserve` at open"),
            );
        }
        let method = GROWING
            .iter()
            .find(|name| source.matches(index, &[".", name, "("]));
        if let Some(method) = method.filter(|name| !own.contains(**name)) {
            report(
                token.line,
                "growth",
                format!("`.{method}` may grow: write into room reserved with `try_reserve`"),
            );
        }
        if matches!(&*token.text, "f32" | "f64") {
            report(
                token.line,
                "floats",
                "a kernel has no floats: count in integers".to_owned(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn rules(text: &str) -> Vec<&'static str> {
        let source = SourceFile::parse("engine", Path::new("src/a.rs"), text).expect("Rust");
        let mut findings = Vec::new();
        check(&[source], &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn infallible_growth_is_found() {
        assert_eq!(
            rules("fn a() { let b = vec![1]; b.push(2); }"),
            ["growth", "growth"]
        );
        assert_eq!(rules("fn a() { Box::new(1); }"), ["growth"]);
    }

    #[test]
    fn own_methods_are_not_growth() {
        assert!(
            rules("impl Ring { fn push(&mut self) {} } fn a(r: &mut Ring) { r.push(); }")
                .is_empty()
        );
    }

    #[test]
    fn tests_may_allocate() {
        assert!(rules("#[cfg(test)] mod tests { fn a() { vec![1]; } }").is_empty());
    }

    #[test]
    fn floats_are_found() {
        assert_eq!(rules("fn a(b: f64) {}"), ["floats"]);
    }
}
