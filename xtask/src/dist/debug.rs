//! Debug information in files of their own, so that products are small and debuggers still know them.
//!
//! It goes where gdb, valgrind and the backtraces of Rust look without being told: for `lib/NAME` into
//! `lib/.debug/NAME.debug`. A section of the product names that file and its checksum.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::dist::binutils;

/// The folder beside a product in which debuggers look.
const FOLDER: &str = ".debug";

/// Moves symbols and debug information out of a linked `product`; returns the file that has them.
///
/// What the loader needs stays in the product: its dynamic symbols and their versions, and the tables by
/// which the stack is unwound.
pub(crate) fn split(product: &Path) -> anyhow::Result<PathBuf> {
    let (folder, name) = product
        .parent()
        .zip(product.file_name())
        .with_context(|| format!("{} is no file in a folder", product.display()))?;
    let folder = folder.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let mut file = folder.join(name).into_os_string();
    file.push(".debug");
    let file = PathBuf::from(file);
    binutils::run("objcopy", |objcopy| {
        objcopy.arg("--only-keep-debug").arg(product).arg(&file)
    })?;
    // It has the mode of the product, but is no program.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    binutils::run("objcopy", |objcopy| {
        let mut link = OsString::from("--add-gnu-debuglink=");
        link.push(&file);
        objcopy.arg("--strip-all").arg(link).arg(product)
    })?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::dist::verify::Library;

    fn sections(file: &Path) -> String {
        let output = Command::new("objdump")
            .arg("-h")
            .arg(file)
            .output()
            .expect("objdump");
        String::from_utf8(output.stdout).expect("text")
    }

    #[test]
    fn a_library_keeps_what_the_loader_needs() {
        let folder = std::env::temp_dir().join(format!("xtask-debug-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (source, map) = (folder.join("a.c"), folder.join("a.map"));
        fs::write(&source, "int fi_a(void) { return 1; }").expect("a source");
        fs::write(&map, "FABRIC_1.0 { global: fi_a; local: *; };").expect("a script");
        let library = folder.join("liba.so");
        let linked = Command::new("cc")
            .args(["-g", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .arg(format!("-Wl,--version-script={}", map.display()))
            .status();
        assert!(linked.expect("cc").success());
        assert!(sections(&library).contains(".debug_info"));
        let before = Library::read(&library).expect("a library");

        let file = split(&library).expect("binutils");
        assert_eq!(file, folder.join(".debug/liba.so.debug"));
        let left = sections(&library);
        assert!(!left.contains(".debug_info") && left.contains(".gnu_debuglink"));
        assert!(sections(&file).contains(".debug_info"));
        let after = Library::read(&library).expect("a library");
        assert_eq!(after.exports.len(), 1);
        assert_eq!(after.exports, before.exports);
        fs::remove_dir_all(&folder).expect("the folder goes");
    }

    #[test]
    fn what_cannot_be_split_is_an_error() {
        let missing = std::env::temp_dir().join("xtask-no-such-folder/lib.so");
        assert!(split(&missing).is_err());
        let _ = fs::remove_dir_all(missing.parent().expect("a folder"));
    }
}
