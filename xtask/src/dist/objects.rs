//! Our providers as objects that other libraries load (`fi_provider(7)`), in the folder `libfabric` beside the
//! library, where they look for such.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist::verify::Library;
use crate::dist::{LINK_OPTIONS, compiler, complete, renamed, shared};

/// The object that has the code, and the provider tcp.
const TCP: &str = "libfabric/libripstop-fi.so";

/// The one that has the provider shm from it.
const SHM: &str = "libfabric/libripstop_shm-fi.so";

/// What is made, and what each provides.
pub(crate) const PRODUCTS: [(&str, &str); 2] = [(TCP, "tcp"), (SHM, "shm")];

/// What every object exports: the function that returns its provider.
const ENTRY: &str = "fi_prov_ini";

/// What the object with the code exports for the other one.
const SECOND: &str = "ripstop_shm_prov_ini";

/// The archive of the object for shm (`libfabric/shm`), below the folder of the build.
const SHM_ARCHIVE: &str = "release/libripstop_shm_object.a";

/// Links the objects with the code in `archive` into a folder of libraries; returns them. `work` has the other
/// archive, and takes files in between.
pub(crate) fn link(work: &Path, archive: &Path, lib: &Path) -> anyhow::Result<Vec<PathBuf>> {
    fs::create_dir_all(lib.join("libfabric"))?;
    let (tcp, shm) = (lib.join(TCP), lib.join(SHM));
    let (renames, script) = (work.join("external.txt"), work.join("external.map"));
    fs::write(&renames, format!("ripstop_{ENTRY} {ENTRY}\n"))?;
    fs::write(&script, version_script(&[ENTRY, SECOND]))?;
    let archive = renamed(archive, &renames, &work.join("external.a"))?;
    shared(&archive, &script, &file_name(TCP), &tcp)?;

    let script = work.join("external_shm.map");
    fs::write(&script, version_script(&[ENTRY]))?;
    link_shm(&work.join(SHM_ARCHIVE), &script, &tcp, &shm)?;
    Ok(vec![tcp, shm])
}

/// Links the object for shm, which finds the one with the code in its own folder.
fn link_shm(archive: &Path, script: &Path, code: &Path, object: &Path) -> anyhow::Result<()> {
    let mut cc = Command::new(compiler());
    cc.arg("-shared").arg("-o").arg(object);
    // Only what the entry needs is taken out of the archive, not the whole of Rust's library.
    cc.arg(format!("-Wl,-u,{ENTRY}")).arg(archive).arg(code);
    cc.args(LINK_OPTIONS)
        .arg(format!("-Wl,-soname,{}", file_name(SHM)));
    cc.arg("-Wl,--enable-new-dtags,-rpath,$ORIGIN");
    complete(cc.arg(format!("-Wl,--version-script={}", script.display())))
}

/// A script by which these names are exported, without a version, and no others.
fn version_script(names: &[&str]) -> String {
    format!("{{ global: {}; local: *; }};\n", names.join("; "))
}

fn file_name(object: &str) -> String {
    let name = Path::new(object).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Everything in which the objects of a folder of libraries differ from what they should be.
pub(crate) fn problems(lib: &Path) -> anyhow::Result<Vec<String>> {
    let code = file_name(TCP);
    let wanted: [(&str, &[&str], &[&str]); 2] = [
        (TCP, &[ENTRY, SECOND], &[]),
        (SHM, &[ENTRY], &[code.as_str()]),
    ];
    let mut problems = Vec::new();
    for (name, exported, needed) in wanted {
        let object = Library::read(&lib.join(name))?;
        let found = object.problems_beside(exported, needed);
        problems.extend(found.iter().map(|problem| format!("{name}: {problem}")));
    }
    Ok(problems)
}
