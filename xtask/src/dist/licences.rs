//! The licences of the crates that are linked into the library and the tools: whoever passes the binaries on passes
//! these texts on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use cargo_metadata::MetadataCommand;

use crate::dist::program;
use crate::workspace::Workspace;

/// How the names of files with licences begin, in capitals.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "UNLICENSE"];

/// What is linked besides the crates.
const STANDARD_LIBRARY: &str =
    "The Rust standard library, MIT OR Apache-2.0: https://www.rust-lang.org/policies/licenses\n";

/// A crate: name and version.
type Crate = (String, String);

/// All of them as one text: which crates, under which licence, and then each text once with the crates that have it.
///
/// # Errors
/// When cargo cannot say what is linked.
pub(crate) fn text(ws: &Workspace) -> anyhow::Result<String> {
    let folders = folders(ws)?;
    let mut said = format!("What is linked into the binaries of Ripstop\n\n{STANDARD_LIBRARY}");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((name, version), licence) in linked(ws)? {
        let title = format!("{name} {version}");
        let _ = writeln!(said, "{title}, {licence}");
        let key = (name, version);
        let folder = folders
            .get(&key)
            .with_context(|| format!("cargo metadata does not know {title}"))?;
        for text in texts_of(folder)? {
            texts.entry(text).or_default().push(title.clone());
        }
    }
    for (text, crates) in texts {
        let line = "-".repeat(78);
        let _ = write!(
            said,
            "\n{line}\n{}:\n\n{}\n",
            crates.join(", "),
            text.trim_end()
        );
    }
    Ok(said)
}

/// The crates of others that the library and the tools are linked from, with what each says of its licence.
fn linked(ws: &Workspace) -> anyhow::Result<BTreeSet<(Crate, String)>> {
    let mut tree = ws.cargo();
    tree.args(["tree", "--locked", "--edges", "normal,no-proc-macro"]);
    tree.args(["--prefix", "none", "--format", "{p}|{l}"]);
    for folder in ["capi", "cli"] {
        if let Some(package) = ws.package(folder) {
            tree.args(["--package", &package.name]);
        }
    }
    let said = program::output(&mut tree, "install the Rust toolchain")?;
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().filter_map(line).collect())
}

/// `NAME vVERSION|LICENCE`; nothing for a crate of this tree, which is followed by its folder.
fn line(line: &str) -> Option<(Crate, String)> {
    let (package, licence) = line.trim_end_matches(" (*)").split_once('|')?;
    let (name, version) = package.split_once(" v")?;
    let is_ours = version.contains(" (/");
    (!is_ours).then(|| ((name.to_owned(), version.to_owned()), licence.to_owned()))
}

/// Where the source of each crate is.
fn folders(ws: &Workspace) -> anyhow::Result<BTreeMap<Crate, PathBuf>> {
    let metadata = MetadataCommand::new()
        .manifest_path(ws.root.join("Cargo.toml"))
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .context("cargo metadata failed: run it by hand to see why")?;
    let packages = metadata.packages.into_iter();
    Ok(packages
        .filter_map(|package| {
            let folder = package.manifest_path.parent()?.as_std_path().to_path_buf();
            Some((
                (package.name.to_string(), package.version.to_string()),
                folder,
            ))
        })
        .collect())
}

/// The texts of licences in a crate's folder, in the order of their names.
fn texts_of(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.file_type()?.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            files.insert(entry.path());
        }
    }
    let read = |file: &PathBuf| {
        let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(String::from_utf8_lossy(&text).replace('\r', ""))
    };
    files.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tree_are_read() {
        let expected = (
            ("libloading".to_owned(), "0.9.0".to_owned()),
            "ISC".to_owned(),
        );
        assert_eq!(line("libloading v0.9.0|ISC (*)"), Some(expected));
        assert_eq!(line("ripstop-abi v0.1.0 (/a/crates/abi)|MIT"), None);
        assert_eq!(line(""), None);
    }

    #[test]
    fn each_linked_crate_comes_with_its_licence() {
        let ws = Workspace::load().expect("a workspace");
        let crates = linked(&ws).expect("cargo tree");
        assert!(
            crates.iter().any(|((name, _), _)| name == "rustix"),
            "{crates:?}"
        );
        let text = text(&ws).expect("the texts");
        for ((name, version), licence) in crates {
            assert!(
                text.contains(&format!("\n{name} {version}, {licence}\n")),
                "{name}"
            );
        }
        assert!(text.contains("Permission is hereby granted, free of charge"));
        assert!(!text.contains("ripstop-"));
    }
}
