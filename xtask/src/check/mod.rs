//! The rules of the house that no compiler holds. `docs/architecture.md` says why each exists.

mod circles;
mod floors;
mod functions;
mod lints;
mod modules;
mod ratchet;
mod source;
mod text;
mod unsafety;

use std::fmt;
use std::path::PathBuf;

use clap::Args;

use crate::workspace::Workspace;
use source::SourceFile;

/// What `cargo xtask check` can do besides.
#[derive(Args)]
pub(crate) struct Options {
    /// Name the modules of each crate's largest circle.
    #[arg(long)]
    circles: bool,
    /// Take what is no longer needed out of xtask/ratchet.toml.
    #[arg(long)]
    lower: bool,
}

/// One thing to mend.
pub(crate) struct Finding {
    /// The file, relative to the top of the tree.
    file: PathBuf,
    /// Line, from 1.
    line: usize,
    /// Short name of the rule.
    rule: &'static str,
    /// What to do about it.
    advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            rule,
            advice,
        } = self;
        write!(f, "{}:{line}: {rule}: {advice}", file.display())
    }
}

/// Prints every finding; `true` when there is none.
pub(crate) fn run(ws: &Workspace, options: &Options) -> anyhow::Result<bool> {
    let sources = source::load_all(ws)?;
    let mut findings = Vec::new();
    floors::check(ws, &mut findings);
    unsafety::check(ws, &sources, &mut findings);
    lints::check(ws, &sources, &mut findings)?;
    text::check(ws, &sources, &mut findings)?;
    ratchet::check(ws, &sources, options, &mut findings)?;
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    for finding in &findings {
        println!("{finding}");
    }
    let files = sources.len();
    match findings.len() {
        0 => println!(
            "{} packages and {files} source files keep the rules",
            ws.packages.len()
        ),
        n => println!("{n} finding(s) in {files} source files"),
    }
    Ok(findings.is_empty())
}

/// The source file whose path (relative to the top) is `file`.
fn find<'a>(sources: &'a [SourceFile], file: &std::path::Path) -> Option<&'a SourceFile> {
    sources.iter().find(|source| source.file == file)
}
