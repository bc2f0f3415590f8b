//! What the Debian packages and the Python wheel share: where they are written, what of `target/dist` they carry, and
//! the time that their files say they have.
//!
//! The same tree and the same binaries give the same packages, byte for byte: names are sorted, modes are set, and no
//! file says when it was made.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::dist::verify::Library;
use crate::workspace::Workspace;

/// The version of all packages.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The folder of the tree with what only packages have.
pub(crate) const SOURCES: &str = "packages";

/// Files of `target/dist` that are no text.
pub(crate) const BINARIES: [&str; 4] = [
    "lib/libfabric.so.1",
    "lib/libfabric/libripstop-fi.so",
    "lib/libfabric/libripstop_shm-fi.so",
    "bin/ripstop",
];

/// Where packages are written.
pub(crate) fn folder(ws: &Workspace) -> PathBuf {
    ws.target.join("packages")
}

/// An empty folder in which the package `name` is put together.
pub(crate) fn staging(ws: &Workspace, name: &str) -> anyhow::Result<PathBuf> {
    let stage = folder(ws).join("staging").join(name);
    super::remove(&stage)?;
    fs::create_dir_all(&stage)?;
    Ok(stage)
}

/// Removes the packages with this ending, which may be of another version.
pub(crate) fn clear(ws: &Workspace, ending: &str) -> anyhow::Result<()> {
    let folder = folder(ws);
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(&folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|found| found == ending) {
            fs::remove_file(&file).with_context(|| format!("cannot replace {}", file.display()))?;
        }
    }
    Ok(())
}

/// The seconds since 1970 that files in packages have: `SOURCE_DATE_EPOCH`, or when the last commit was made, or 1980
/// outside of git, which is the first year that a wheel can name.
pub(crate) fn epoch(ws: &Workspace) -> anyhow::Result<u64> {
    const FIRST: u64 = 315_532_800;
    let given = match env::var("SOURCE_DATE_EPOCH") {
        Ok(given) => given,
        Err(_) => {
            let mut git = Command::new("git");
            git.args(["log", "-1", "--format=%ct"])
                .current_dir(&ws.root);
            match git.output() {
                Ok(output) if output.status.success() => {
                    String::from_utf8_lossy(&output.stdout).into_owned()
                }
                _ => return Ok(FIRST),
            }
        }
    };
    let seconds: u64 = given.trim().parse().with_context(|| {
        format!(
            "SOURCE_DATE_EPOCH is `{given}`: it must be seconds since 1970, as `date +%s` prints"
        )
    })?;
    Ok(seconds.max(FIRST))
}

/// What the binaries of an install prefix need of a system, together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The oldest glibc that has every symbol.
    pub(crate) glibc: (u32, u32),
    /// The libraries by name, but for those that are in the prefix.
    pub(crate) libraries: BTreeSet<String>,
}

impl Needs {
    /// Reads all [`BINARIES`].
    pub(crate) fn of(prefix: &Path) -> anyhow::Result<Self> {
        let mut needs = Self::default();
        for binary in BINARIES {
            let library = Library::read(&prefix.join(binary))?;
            needs.glibc = needs.glibc.max(library.glibc);
            needs.libraries.extend(library.needed);
        }
        let is_own = |name: &str| {
            BINARIES
                .iter()
                .any(|own| own.rsplit('/').next() == Some(name))
        };
        needs.libraries.retain(|name| !is_own(name));
        ensure!(needs.glibc != (0, 0), "no binary says which glibc it needs");
        Ok(needs)
    }
}

/// Writes a file, and the folders above it.
pub(crate) fn write(file: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    make_parent(file)?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Copies a file, and makes the folders above it.
pub(crate) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    make_parent(to)?;
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn make_parent(file: &Path) -> anyhow::Result<()> {
    let parent = file.parent().context("a file has a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))
}

/// Every file below `root` that is no folder, relative to it and sorted.
pub(crate) fn files(root: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            } else {
                found.insert(entry.path().strip_prefix(root)?.to_path_buf());
            }
        }
    }
    Ok(found)
}

/// Sets the modes of everything below `root`, whatever the umask was: 755 for folders and what `is_program` says,
/// 644 for the rest.
pub(crate) fn set_modes(root: &Path, is_program: impl Fn(&Path) -> bool) -> anyhow::Result<()> {
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    mode(root, 0o755)?;
    for file in files(root)? {
        let path = root.join(&file);
        for folder in file.ancestors().skip(1) {
            mode(&root.join(folder), 0o755)?;
        }
        if !path.is_symlink() {
            mode(&path, if is_program(&file) { 0o755 } else { 0o644 })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_do_not_depend_on_the_umask() {
        let root = env::temp_dir().join(format!("xtask-package-{}", std::process::id()));
        for name in ["a/tool", "a/b/text"] {
            write(&root.join(name), "text").expect("a file");
            fs::set_permissions(root.join(name), Permissions::from_mode(0o600)).expect("a mode");
        }
        fs::set_permissions(root.join("a/b"), Permissions::from_mode(0o700)).expect("a mode");
        set_modes(&root, |file| file.ends_with("tool")).expect("modes");
        let mode = |name: &str| {
            let meta = fs::metadata(root.join(name)).expect("there");
            meta.permissions().mode() & 0o777
        };
        let modes = ["a", "a/b", "a/tool", "a/b/text"].map(mode);
        assert_eq!(modes, [0o755, 0o755, 0o755, 0o644]);
        let found: Vec<PathBuf> = files(&root).expect("files").into_iter().collect();
        assert_eq!(found, [Path::new("a/b/text"), Path::new("a/tool")]);
        fs::remove_dir_all(&root).expect("the folder goes");
    }
}
