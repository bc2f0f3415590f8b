//! The Python wheel `ripstop-libfabric`: the library, the tools and a module that says where they are, for MPI libraries
//! that come from PyPI.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::dist::package::{self, BINARIES, Needs, VERSION};
use crate::workspace::Workspace;

/// The module and, as file names spell it, the package.
const MODULE: &str = "ripstop_libfabric";

/// What an index of packages says of it.
const SUMMARY: &str = "OpenFabrics Interfaces (libfabric) in Rust";

/// Tools that are installed as commands; each starts the one executable under its name.
const TOOLS: [&str; 4] = ["ripstop", "fi_info", "fi_pingpong", "fi_strerror"];

/// Makes the wheel; returns its file.
///
/// # Errors
/// When python3 is not installed, or a file cannot be written.
pub(crate) fn make(ws: &Workspace, prefix: &Path) -> anyhow::Result<PathBuf> {
    let root = package::staging(ws, "wheel")?;
    let sources = ws.root.join(package::SOURCES).join("python");
    for file in ["__init__.py", "__main__.py"] {
        let file = Path::new(MODULE).join(file);
        package::copy(&sources.join(&file), &root.join(&file))?;
    }
    for binary in BINARIES {
        package::copy(&prefix.join(binary), &root.join(MODULE).join(binary))?;
    }
    let data = root.join(format!("{MODULE}-{VERSION}.data/data"));
    for page in package::files(&prefix.join("share/man"))? {
        let page = Path::new("share/man").join(page);
        package::copy(&prefix.join(&page), &data.join(&page))?;
    }
    let info = root.join(format!("{MODULE}-{VERSION}.dist-info"));
    let tag = tag(&Needs::of(prefix)?);
    for (name, text) in [
        (
            "METADATA",
            metadata(&std::fs::read_to_string(sources.join("README.md"))?),
        ),
        ("WHEEL", wheel(&tag)),
        ("entry_points.txt", entry_points()),
        ("top_level.txt", format!("{MODULE}\n")),
    ] {
        package::write(&info.join(name), text)?;
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.txt"] {
        package::copy(
            &prefix.join("share/doc/ripstop").join(licence),
            &info.join(licence),
        )?;
    }
    package::set_modes(&root, |file| file.ends_with("bin/ripstop"))?;
    let wheel = package::folder(ws).join(format!("{MODULE}-{VERSION}-{tag}.whl"));
    pack(&sources, &root, &wheel, package::epoch(ws)?)?;
    Ok(wheel)
}

/// Packs a folder, whose files get this time.
fn pack(sources: &Path, root: &Path, wheel: &Path, epoch: u64) -> anyhow::Result<()> {
    let status = Command::new("python3")
        .arg(sources.join("pack.py"))
        .args([root, wheel])
        .arg(epoch.to_string())
        .status()
        .context("cannot run python3, which is needed to make the wheel: install it")?;
    ensure!(status.success(), "packages/python/pack.py failed");
    Ok(())
}

/// Any Python 3, and any system whose glibc has the symbols (PEP 600).
fn tag(needs: &Needs) -> String {
    let (major, minor) = needs.glibc;
    format!("py3-none-manylinux_{major}_{minor}_{ARCH}")
}

fn metadata(readme: &str) -> String {
    format!(
        "Metadata-Version: 2.1\nName: ripstop-libfabric\nVersion: {VERSION}\nSummary: {SUMMARY}\n\
         License: MIT OR Apache-2.0\nRequires-Python: >=3.8\nClassifier: Operating System :: POSIX :: Linux\n\
         Classifier: Programming Language :: Rust\nDescription-Content-Type: text/markdown\n\n{readme}"
    )
}

fn wheel(tag: &str) -> String {
    format!(
        "Wheel-Version: 1.0\nGenerator: xtask ({VERSION})\nRoot-Is-Purelib: false\nTag: {tag}\n"
    )
}

fn entry_points() -> String {
    let line = |tool| format!("{tool} = {MODULE}:{tool}\n");
    let lines: String = TOOLS.iter().map(line).collect();
    format!("[console_scripts]\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_names_the_oldest_glibc() {
        let needs = Needs {
            glibc: (2, 34),
            ..Needs::default()
        };
        assert_eq!(tag(&needs), format!("py3-none-manylinux_2_34_{ARCH}"));
    }

    #[test]
    fn each_command_has_its_function() {
        let module = include_str!("../../../packages/python/ripstop_libfabric/__init__.py");
        for tool in TOOLS {
            assert!(module.contains(&format!("\ndef {tool}():\n")), "{tool}");
            assert!(entry_points().contains(&format!("\n{tool} = {MODULE}:{tool}\n")));
        }
    }
    #[test]
    fn a_wheel_is_the_same_whenever_it_is_made_and_lists_its_files() {
        let folder = std::env::temp_dir().join(format!("xtask-wheel-{}", std::process::id()));
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packages/python");
        let make = |name: &str, files: &[&str]| {
            let root = folder.join(name);
            for file in files {
                package::write(&root.join(file), "text").expect("a file");
            }
            package::set_modes(&root, |file| file.ends_with("tool")).expect("modes");
            let wheel = folder.join(format!("{name}.whl"));
            pack(&sources, &root, &wheel, 1_000_000_000).expect("python3");
            std::fs::read(wheel).expect("a wheel")
        };
        let first = make("first", &["a/tool", "a/text", "a-1.dist-info/WHEEL"]);
        let second = make("second", &["a-1.dist-info/WHEEL", "a/text", "a/tool"]);
        assert!(!first.is_empty() && first == second);
        let listed = Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .args([&folder.join("first.whl"), &folder.join("out")])
            .status();
        assert!(listed.expect("python3").success());
        let record = folder.join("out/a-1.dist-info/RECORD");
        let record = std::fs::read_to_string(record).expect("the list");
        let of_text = "sha256=mC2ePrmW9VnmM_TRlN7zdh2Qn1o7ZH0ahR_q1nwyydE,4";
        for file in ["a/text", "a/tool", "a-1.dist-info/WHEEL"] {
            let line = format!("{file},{of_text}");
            assert!(record.lines().any(|listed| listed == line), "{record}");
        }
        assert_eq!(record.lines().last(), Some("a-1.dist-info/RECORD,,"));
        assert_eq!(record.lines().count(), 4);
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    }
}
