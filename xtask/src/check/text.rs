//! File sizes, unfinished work and empty rooms.

use std::fs;
use std::path::Path;

use crate::check::Finding;
use crate::check::source::{SourceFile, walk};
use crate::workspace::Workspace;

/// The longest file, in lines, tests left out.
const LONGEST_FILE: usize = 800;

/// The least code, in lines, that makes a crate worth its folder.
const LEAST_CODE: usize = 30;

/// Words that mark work left undone.
const UNFINISHED: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// Files that people write besides Rust, by ending.
const SCRIPTS: [&str; 7] = ["c", "h", "map", "py", "sh", "toml", "yml"];

/// Reports long files, unfinished work and crates without code.
pub(super) fn check(
    ws: &Workspace,
    sources: &[SourceFile],
    findings: &mut Vec<Finding>,
) -> anyhow::Result<()> {
    for source in sources {
        check_length(source, findings);
    }
    for package in &ws.packages {
        let in_package = sources
            .iter()
            .filter(|source| ws.root.join(&source.file).starts_with(&package.dir));
        let code: usize = in_package.map(SourceFile::code_lines).sum();
        if code < LEAST_CODE {
            let advice = format!(
                "{code} lines of code: a folder appears when its first real code does ({LEAST_CODE} lines)"
            );
            let file = ws.relative(&package.manifest()).to_path_buf();
            findings.push(Finding {
                file,
                line: 1,
                rule: "empty",
                advice,
            });
        }
    }
    check_words(ws, findings)
}

fn check_length(source: &SourceFile, findings: &mut Vec<Finding>) {
    let lines = source.lines_without_tests();
    if lines > LONGEST_FILE {
        let advice = format!("{lines} lines: ask what second thing moved in, and give it a file");
        findings.push(Finding {
            file: source.file.clone(),
            line: LONGEST_FILE + 1,
            rule: "length",
            advice,
        });
    }
}

/// Looks for the words in comments too, and in scripts.
fn check_words(ws: &Workspace, findings: &mut Vec<Finding>) -> anyhow::Result<()> {
    for path in walk(&ws.root)?
        .into_iter()
        .filter(|path| is_written_by_people(path))
    {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(word) = words.find(|word| UNFINISHED.contains(word)) {
                let advice = format!("{word}: finish it or open an issue");
                let file = ws.relative(&path).to_path_buf();
                findings.push(Finding {
                    file,
                    line: index + 1,
                    rule: "unfinished",
                    advice,
                });
            }
        }
    }
    Ok(())
}

fn is_written_by_people(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    let script = ending.is_some_and(|ending| ending == "rs" || SCRIPTS.contains(&ending));
    script || path.components().any(|part| part.as_os_str() == ".ci")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length_findings(text: &str) -> usize {
        let source = SourceFile::parse("core", Path::new("src/a.rs"), text).expect("Rust");
        let mut findings = Vec::new();
        check_length(&source, &mut findings);
        findings.len()
    }

    #[test]
    fn long_files_are_found_but_their_tests_do_not_count() {
        let code = "const A: u8 = 1;\n".repeat(LONGEST_FILE);
        assert_eq!(length_findings(&code), 0);
        assert_eq!(length_findings(&format!("{code}const B: u8 = 1;\n")), 1);
        let tests = "\n// note\nconst B: u8 = 1;".repeat(300);
        assert_eq!(
            length_findings(&format!("{code}#[cfg(test)]\nmod tests {{{tests}\n}}\n")),
            0
        );
    }
}
