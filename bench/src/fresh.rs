//! Whether the library is that of the sources.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};

use crate::{existing, top};

/// What cargo says the library was made of, seen from the folder with the prefix.
const MADE_OF: &str = "libfabric/release/libfabric.d";

/// The library of target/dist, if it is as new as its sources.
///
/// # Errors
/// What is newer, or not there.
pub(crate) fn built() -> Result<PathBuf> {
    let lib = existing(&crate::built())?;
    check(&lib)?;
    Ok(lib)
}

/// Says no to a library that is older than something it was made of, or of which nobody knows that.
fn check(lib: &Path) -> Result<()> {
    let prefix = lib.ancestors().nth(2);
    let target = prefix.and_then(Path::parent).unwrap_or(lib);
    let list = target.join(MADE_OF);
    let text = std::fs::read_to_string(&list)
        .with_context(|| format!("{} does not say what it is made of", list.display()))?;
    let mut sources = prerequisites(&text);
    sources.push(top().join("Cargo.lock"));
    match newer(&sources, modified(lib)?) {
        None => Ok(()),
        Some(source) => bail!(
            "{} is older than {}: make it again with `cargo xtask dist`",
            lib.display(),
            source.display()
        ),
    }
}

fn modified(path: &Path) -> Result<SystemTime> {
    let data = path.metadata().and_then(|data| data.modified());
    data.with_context(|| path.display().to_string())
}

/// The first of these that has changed since, or is gone.
fn newer(sources: &[PathBuf], since: SystemTime) -> Option<&PathBuf> {
    let changed = |source: &&PathBuf| modified(source).map_or(true, |time| time > since);
    sources.iter().find(changed)
}

/// The files behind the colon of a rule, as `make` and cargo write them: a blank within a name has a
/// backslash before it.
fn prerequisites(rules: &str) -> Vec<PathBuf> {
    let rule = rules.lines().next().unwrap_or_default();
    let (_, names) = rule.split_once(": ").unwrap_or_default();
    let (mut files, mut name) = (Vec::new(), String::new());
    for part in names.split_ascii_whitespace() {
        match part.strip_suffix('\\') {
            Some(begin) => name = format!("{name}{begin} "),
            None => files.push(PathBuf::from(std::mem::take(&mut name) + part)),
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use super::*;

    #[test]
    fn rules_name_files() {
        let rules = "/a/lib.a: /a/b.rs /my\\ own\\ crates/c.rs d.rs\n\n/x.rs:\n";
        let files = prerequisites(rules);
        assert_eq!(
            files,
            ["/a/b.rs", "/my own crates/c.rs", "d.rs"].map(PathBuf::from)
        );
        assert!(prerequisites("").is_empty());
    }

    #[test]
    fn a_library_is_as_old_as_what_it_was_made_of() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        let lib = path("dist/lib/libfabric.so.1");
        for file in [&lib, &path(MADE_OF)] {
            fs::create_dir_all(file.parent().expect("a folder")).expect("folders");
        }
        let made = File::create(&lib).expect("a library");
        assert!(check(&lib).is_err(), "nobody knows what it is made of");
        let source = path("a.rs");
        let rule = format!("lib.a: {}\n", source.display());
        fs::write(path(MADE_OF), rule).expect("a rule");
        let error = check(&lib).expect_err("the source is gone");
        assert!(error.to_string().contains("a.rs"), "{error}");
        let lock = modified(&top().join("Cargo.lock")).expect("a time");
        let built = lock + Duration::from_secs(10);
        made.set_modified(built).expect("a time");
        let source = File::create(&source).expect("a source");
        for (seconds, good) in [(5, true), (15, false)] {
            let edited = lock + Duration::from_secs(seconds);
            source.set_modified(edited).expect("a time");
            assert_eq!(check(&lib).is_ok(), good, "{seconds}");
        }
        source.set_modified(lock).expect("a time");
        made.set_modified(lock - Duration::from_secs(1))
            .expect("a time");
        assert!(check(&lib).is_err(), "the versions of crates are others");
    }
}
