//! `libripstop-verbs.so`, which programs written for verbs load in front of rdma-core's libraries
//! (`docs/design/verbs-shim.md`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist::verify::Library;
use crate::dist::{shared, work};
use crate::workspace::Workspace;

/// The object, in the folder of libraries.
pub(crate) const FILE: &str = "libripstop-verbs.so";

/// Its archive (`libfabric/verbs`), below the folder of the build.
const ARCHIVE: &str = "verbs/libripstop_verbs_object.a";

/// The linker's version script, which is also the list of what must be there.
fn script(ws: &Workspace) -> PathBuf {
    ws.root.join("libfabric/verbs/exports.map")
}

/// What builds the archive. Its profile optimises each crate by itself, so it takes part of the time of the others.
pub(crate) fn build(ws: &Workspace) -> Command {
    let mut build = ws.cargo();
    build
        .args([
            "build",
            "--profile",
            "verbs",
            "--package",
            "libripstop-verbs",
        ])
        .arg("--manifest-path")
        .arg(ws.root.join("libfabric/Cargo.toml"))
        .arg("--target-dir")
        .arg(work(ws));
    build
}

/// Links the object into a folder of libraries.
pub(crate) fn link(ws: &Workspace, lib: &Path) -> anyhow::Result<()> {
    shared(&work(ws).join(ARCHIVE), &script(ws), FILE, &lib.join(FILE))
}

/// The names that a version script exports.
fn names(script: &str) -> Vec<&str> {
    let words = script.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let exported = |word: &&str| {
        ["ibv_", "_ibv_", "rdma_", "rsocket"]
            .iter()
            .any(|prefix| word.starts_with(prefix))
    };
    words.filter(exported).collect()
}

/// Everything in which the object differs from what it should be.
pub(crate) fn problems(ws: &Workspace, lib: &Path) -> anyhow::Result<Vec<String>> {
    let script = fs::read_to_string(script(ws))?;
    let object = Library::read(&lib.join(FILE))?;
    let found = object.problems_beside(&names(&script), &[]);
    Ok(found
        .iter()
        .map(|problem| format!("{FILE}: {problem}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_names_what_is_exported() {
        let script = "/* rdma-core */ IBVERBS_1.1 { global: ibv_a; _ibv_b; local: *; }; RDMACM_1.0 { rdma_c; };";
        assert_eq!(names(script), ["ibv_a", "_ibv_b", "rdma_c"]);
        let real = names(include_str!("../../../libfabric/verbs/exports.map"));
        assert!(real.contains(&"ibv_open_device") && real.contains(&"rdma_get_cm_event"));
    }
}
