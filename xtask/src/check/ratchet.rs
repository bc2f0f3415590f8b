//! What may only get less: `xtask/ratchet.toml` lists what is too large, and the files with unsafe code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::check::circles::{self, Circles};
use crate::check::functions::{LONGEST, PARAMETERS, functions};
use crate::check::source::SourceFile;
use crate::check::unsafety::first_unsafe;
use crate::check::{Finding, Options};
use crate::workspace::Workspace;

/// The lists, seen from the top of the tree.
const FILE: &str = "xtask/ratchet.toml";

/// The comment at their top.
const HEADER: &str = "\
# What is too large or unsafe, and stays until somebody makes it less: `cargo xtask check` fails for what is not listed here,
# and for circles that grow. These lists only shrink: `cargo xtask check --lower` takes out what is no longer needed.
# Who moves a file or renames a function that is listed changes its line.
#
# circles: how many modules are in the largest circle of a crate, in which each uses each other. `--circles` names them.
# long_files: above 700 lines without tests. long_functions: above 80 lines. wide_functions: more than 6 parameters.
# unsafe_files: every file with unsafe code, tests too. Types of function pointers do not count.
";

/// The length from which a file is listed, in lines without tests.
const LONG_FILE: usize = 700;

/// The lists of `xtask/ratchet.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratchet {
    long_files: BTreeSet<String>,
    long_functions: BTreeSet<String>,
    wide_functions: BTreeSet<String>,
    unsafe_files: BTreeSet<String>,
    circles: BTreeMap<String, usize>,
}

/// Something too large or unsafe, and where it is.
#[derive(Clone, Copy)]
enum Excess {
    File { lines: usize },
    Length { line: usize, lines: usize },
    Width { line: usize, parameters: usize },
    Unsafe { line: usize },
}

/// Everything in the tree as it is that needs a line in the lists.
#[derive(Default)]
struct Measured {
    /// By the list's entry.
    excesses: BTreeMap<String, Vec<Excess>>,
    circles: Circles,
}

/// Reports what is not listed, and takes what is no longer needed out of the lists, if asked.
pub(super) fn check(
    ws: &Workspace,
    sources: &[SourceFile],
    options: &Options,
    findings: &mut Vec<Finding>,
) -> anyhow::Result<()> {
    let path = ws.root.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
    let listed: Ratchet =
        toml::from_str(&text).with_context(|| format!("{FILE} makes no sense"))?;
    let measured = Measured::of(sources, circles::largest(ws, sources));
    measured.print_circles(options.circles);
    findings.extend(listed.exceeded(&measured));
    let lowered = listed.lowered(&measured);
    if lowered != listed && options.lower {
        let text = format!("{HEADER}\n{}", toml::to_string_pretty(&lowered)?);
        fs::write(&path, text).with_context(|| format!("cannot write {FILE}"))?;
    } else if lowered != listed {
        println!("{FILE} lists more than there is: `cargo xtask check --lower` takes it out");
    }
    Ok(())
}

impl Measured {
    fn of(sources: &[SourceFile], circles: Circles) -> Self {
        let mut measured = Self {
            excesses: BTreeMap::new(),
            circles,
        };
        for source in sources {
            let file = source.file.display().to_string();
            let lines = source.lines_without_tests();
            if lines > LONG_FILE {
                measured.note(&file, Excess::File { lines });
            }
            if let Some(line) = first_unsafe(source) {
                measured.note(&file, Excess::Unsafe { line });
            }
            for function in functions(source) {
                let (line, lines, parameters) =
                    (function.line, function.lines, function.parameters);
                let entry = format!("{file}: {}", function.name);
                if lines > LONGEST {
                    measured.note(&entry, Excess::Length { line, lines });
                }
                if parameters > PARAMETERS {
                    measured.note(&entry, Excess::Width { line, parameters });
                }
            }
        }
        measured
    }

    fn note(&mut self, entry: &str, excess: Excess) {
        self.excesses
            .entry(entry.to_owned())
            .or_default()
            .push(excess);
    }

    fn print_circles(&self, members: bool) {
        let sizes = self
            .circles
            .iter()
            .map(|(folder, circle)| format!("{folder} {}", circle.len()));
        let sizes: Vec<String> = sizes.collect();
        let sizes = match sizes.is_empty() {
            true => String::from("none"),
            false => sizes.join(", "),
        };
        println!("largest circle of modules: {sizes}");
        for (folder, circle) in self.circles.iter().filter(|_| members) {
            println!("  {folder}: {}", circle.join(", "));
        }
    }
}

impl Ratchet {
    /// The list that holds such an excess.
    fn list(&mut self, excess: Excess) -> &mut BTreeSet<String> {
        match excess {
            Excess::File { .. } => &mut self.long_files,
            Excess::Length { .. } => &mut self.long_functions,
            Excess::Width { .. } => &mut self.wide_functions,
            Excess::Unsafe { .. } => &mut self.unsafe_files,
        }
    }

    /// One finding for everything that is not listed.
    fn exceeded(&self, measured: &Measured) -> Vec<Finding> {
        let mut listed = self.clone();
        let mut findings = Vec::new();
        for (entry, excesses) in &measured.excesses {
            for excess in excesses
                .iter()
                .filter(|excess| !listed.list(**excess).contains(entry))
            {
                findings.push(excess.finding(entry));
            }
        }
        for (folder, circle) in &measured.circles {
            let most = self.circles.get(folder).copied().unwrap_or(1);
            if circle.len() > most {
                let advice = format!(
                    "the largest circle of modules in `{folder}` has {} and not {most}, each of which uses each other: {}",
                    circle.len(),
                    circle.join(", ")
                );
                findings.push(Finding {
                    file: PathBuf::from(FILE),
                    line: 1,
                    rule: "circles",
                    advice,
                });
            }
        }
        findings
    }

    /// The lists without what is no longer needed.
    fn lowered(&self, measured: &Measured) -> Self {
        let mut needed = Self::default();
        for (entry, excesses) in &measured.excesses {
            for excess in excesses {
                needed.list(*excess).insert(entry.clone());
            }
        }
        let both =
            |a: &BTreeSet<String>, b: &BTreeSet<String>| a.intersection(b).cloned().collect();
        let circles = self.circles.iter().filter_map(|(folder, most)| {
            let size = measured.circles.get(folder)?.len();
            Some((folder.clone(), size.min(*most)))
        });
        Self {
            long_files: both(&self.long_files, &needed.long_files),
            long_functions: both(&self.long_functions, &needed.long_functions),
            wide_functions: both(&self.wide_functions, &needed.wide_functions),
            unsafe_files: both(&self.unsafe_files, &needed.unsafe_files),
            circles: circles.collect(),
        }
    }
}

impl Excess {
    fn finding(self, entry: &str) -> Finding {
        let (file, name) = entry.split_once(": ").unwrap_or((entry, ""));
        let (rule, line, advice) = match self {
            Self::File { lines } => (
                "length",
                LONG_FILE + 1,
                format!(
                    "{lines} lines without tests: ask what second thing moved in, and give it a file"
                ),
            ),
            Self::Length { line, lines } => (
                "length",
                line,
                format!(
                    "`{name}` has {lines} lines: it does two things from {LONGEST} on, so name the second"
                ),
            ),
            Self::Width { line, parameters } => (
                "length",
                line,
                format!(
                    "`{name}` takes {parameters} parameters, {PARAMETERS} at most: group what belongs together in a struct"
                ),
            ),
            Self::Unsafe { line } => (
                "unsafe",
                line,
                format!("no file for unsafe code: move this to one of `unsafe_files` in {FILE}"),
            ),
        };
        Finding {
            file: Path::new(file).to_path_buf(),
            line,
            rule,
            advice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(text: &str, circle: &[&str]) -> Measured {
        let source = SourceFile::parse("core", Path::new("a.rs"), text).expect("Rust");
        let circle = circle.iter().map(|name| (*name).to_owned()).collect();
        Measured::of(&[source], Circles::from([("core".to_owned(), circle)]))
    }

    fn large() -> String {
        format!(
            "fn long(a: [u8; 2]) {{{}}}\nfn wide(a: A, b: A, c: A, d: A, e: A, f: A, g: A) {{}}\n",
            "\n".repeat(700)
        )
    }

    #[test]
    fn what_is_too_large_and_not_listed_is_found() {
        let findings = Ratchet::default().exceeded(&measured(&large(), &["a", "b"]));
        let rules: Vec<_> = findings.iter().map(|f| (f.rule, f.line)).collect();
        assert_eq!(
            rules,
            [
                ("length", 701),
                ("length", 1),
                ("length", 702),
                ("circles", 1)
            ]
        );
    }

    #[test]
    fn what_is_listed_may_stay_but_no_circle_grows() {
        let listed = Ratchet {
            long_files: BTreeSet::from(["a.rs".to_owned()]),
            long_functions: BTreeSet::from(["a.rs: long".to_owned()]),
            wide_functions: BTreeSet::from(["a.rs: wide".to_owned()]),
            unsafe_files: BTreeSet::new(),
            circles: BTreeMap::from([("core".to_owned(), 2)]),
        };
        let now = measured(&large(), &["a", "b"]);
        assert!(listed.exceeded(&now).is_empty());
        assert_eq!(listed.lowered(&now), listed);
        let grown = measured(&large(), &["a", "b", "c"]);
        assert_eq!(listed.exceeded(&grown).len(), 1);
        assert_eq!(listed.lowered(&grown), listed);
        assert_eq!(listed.lowered(&Measured::default()), Ratchet::default());
    }

    #[test]
    fn unsafe_code_is_for_listed_files() {
        let now = measured("fn a() {}\n#[cfg(test)]\nfn b() { unsafe { c() } }", &[]);
        let findings = Ratchet::default().exceeded(&now);
        let rules: Vec<_> = findings.iter().map(|f| (f.rule, f.line)).collect();
        assert_eq!(rules, [("unsafe", 3)]);
        let listed = Ratchet {
            unsafe_files: BTreeSet::from(["a.rs".to_owned()]),
            ..Ratchet::default()
        };
        assert!(listed.exceeded(&now).is_empty());
        assert_eq!(listed.lowered(&now), listed);
        let safe = measured("fn a(f: unsafe fn()) {}", &[]);
        assert_eq!(listed.lowered(&safe), Ratchet::default());
    }
}
