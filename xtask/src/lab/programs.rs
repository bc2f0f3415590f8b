//! Programs with the libraries that they need, as the dynamic linker of this machine finds them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::lab::image::Image;

/// Where libraries go in the guest.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// Where libraries are in a tree of unpacked packages.
const IN_TREE: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// A library that a program needs.
#[derive(Debug, PartialEq, Eq)]
struct Library {
    /// Its name, or the path under which the kernel looks for the linker.
    name: String,
    file: PathBuf,
}

/// Puts `file` at `path`, with its libraries: those of `tree` before those of this machine.
pub(super) fn add(image: &mut Image, path: &str, file: &Path, tree: &Path) -> anyhow::Result<()> {
    image.copy(path, file)?;
    add_libraries(image, file, tree)
}

/// Puts the libraries of `file` into the image.
pub(super) fn add_libraries(image: &mut Image, file: &Path, tree: &Path) -> anyhow::Result<()> {
    let places = IN_TREE.map(|place| tree.join(place));
    let output = Command::new("ldd")
        .arg(file)
        .env("LD_LIBRARY_PATH", std::env::join_paths(places)?)
        .env("LC_ALL", "C")
        .output()
        .context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    if format!("{text}{told}").contains("not a dynamic executable") {
        return Ok(());
    }
    ensure!(
        output.status.success(),
        "ldd {}: {}",
        file.display(),
        told.trim()
    );
    let libraries = parse(&text).with_context(|| format!("{}", file.display()))?;
    for Library { name, file } in libraries {
        let place = match name.starts_with('/') {
            true => name,
            false => format!("{LIBRARIES}/{name}"),
        };
        if !image.contains(&place) {
            image.copy(&place, &file)?;
        }
    }
    Ok(())
}

/// Reads what `ldd` prints.
fn parse(text: &str) -> anyhow::Result<Vec<Library>> {
    let mut libraries = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line == "statically linked" {
            continue;
        }
        let line = line.split_once(" (0x").map_or(line, |(line, _)| line);
        let (name, file) = match line.split_once(" => ") {
            Some((name, "not found")) => bail!("its library {name} is not there"),
            Some(found) => found,
            None => (line, line),
        };
        // What the kernel itself brings has no file.
        if file.starts_with('/') {
            libraries.push(Library {
                name: name.to_owned(),
                file: file.into(),
            });
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_linker_are_found() {
        let text = "
\tlinux-vdso.so.1 (0x00007ffc)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f)
";
        let found = parse(text).expect("libraries");
        let expected = [
            ("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
            ("/lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"),
        ];
        let expected = expected.map(|(name, file)| Library {
            name: name.to_owned(),
            file: file.into(),
        });
        assert_eq!(found, expected);
        assert_eq!(parse("\tstatically linked\n").expect("none"), []);
    }

    #[test]
    fn a_missing_library_is_told() {
        let error = parse("\tlibefa.so.1 => not found\n").expect_err("missing");
        assert!(error.to_string().contains("libefa.so.1"));
    }
}
