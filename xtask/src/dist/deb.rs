//! The two Debian packages: `ripstop` has everything below `/usr/lib/ripstop`, beside a C library, and
//! `libfabric1-ripstop` puts that library in front of all others. `docs/design/packages.md` says why there are two.

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::dist::package::{self, Needs, VERSION};
use crate::dist::program;
use crate::workspace::Workspace;

/// What is behind the version: the first packaging of it.
const REVISION: &str = "1";

/// The package with the files, and the one that switches.
const NAMES: [&str; 2] = ["ripstop", "libfabric1-ripstop"];

/// Where the files are; programs look there only if they are told to.
const HOME: &str = "usr/lib/ripstop";

/// Man pages whose names the C library's packages have: they stay beside the tools, where man looks for those who have
/// the tools in their `PATH`.
const SHARED_NAMES: [&str; 3] = ["fi_info.1", "fi_pingpong.1", "fi_strerror.1"];

/// Programs that this needs.
const PROGRAMS: [&str; 2] = ["dpkg-deb", "gzip"];

/// Makes both packages; returns their files.
///
/// # Errors
/// When a program is not installed, or a binary needs something that is in no package known here.
pub(crate) fn make(ws: &Workspace, prefix: &Path) -> anyhow::Result<Vec<PathBuf>> {
    check()?;
    let maker = Maker {
        ws,
        prefix,
        epoch: package::epoch(ws)?,
    };
    Ok(vec![maker.files()?, maker.switch()?])
}

/// Whether all programs are there.
///
/// # Errors
/// Names the one that is missing.
pub(crate) fn check() -> anyhow::Result<()> {
    for program in PROGRAMS {
        run(Command::new(program).arg("--version"))
            .with_context(|| format!("{program} is needed to make Debian packages"))?;
    }
    Ok(())
}

/// Makes packages of one install prefix.
struct Maker<'a> {
    ws: &'a Workspace,
    prefix: &'a Path,
    epoch: u64,
}

impl Maker<'_> {
    /// `ripstop`.
    fn files(&self) -> anyhow::Result<PathBuf> {
        let root = package::staging(self.ws, NAMES[0])?;
        let home = root.join(HOME);
        for file in package::files(self.prefix)? {
            let from = self.prefix.join(&file);
            let part = |name: &str| file.components().any(|part| part.as_os_str() == name);
            if part(".debug") || part("doc") {
                continue;
            }
            if part("man") {
                self.man_page(&root, &file)?;
            } else if from.is_symlink() {
                let link = home.join(&file);
                fs::create_dir_all(link.parent().context("a link has a folder")?)?;
                symlink(fs::read_link(&from)?, link)?;
            } else {
                package::copy(&from, &home.join(&file))?;
            }
        }
        fs::create_dir_all(root.join("usr/bin"))?;
        symlink("../lib/ripstop/bin/ripstop", root.join("usr/bin/ripstop"))?;
        let doc = root.join("usr/share/doc").join(NAMES[0]);
        self.compressed(
            &self.ws.root.join("CHANGELOG.md"),
            &doc.join("changelog.gz"),
        )?;
        let licences = self.prefix.join("share/doc/ripstop/THIRD-PARTY.txt");
        self.compressed(&licences, &doc.join("THIRD-PARTY.txt.gz"))?;
        package::write(&root.join("DEBIAN/shlibs"), SHLIBS)?;
        let depends = depends(&Needs::of(self.prefix)?)?;
        self.close(NAMES[0], architecture()?, &depends)
    }

    /// `libfabric1-ripstop`.
    fn switch(&self) -> anyhow::Result<PathBuf> {
        let root = package::staging(self.ws, NAMES[1])?;
        for script in ["postinst", "postrm"] {
            let from = self.source(&format!("{}.{script}", NAMES[1]));
            package::copy(&from, &root.join("DEBIAN").join(script))?;
        }
        // The dynamic linker's cache is rebuilt when the package comes and when it goes.
        package::write(&root.join("DEBIAN/triggers"), "activate-noawait ldconfig\n")?;
        self.close(
            NAMES[1],
            "all",
            &format!("{} (= {VERSION}-{REVISION})", NAMES[0]),
        )
    }

    /// Adds what each package has, and packs it.
    fn close(&self, name: &str, architecture: &str, depends: &str) -> anyhow::Result<PathBuf> {
        let root = package::folder(self.ws).join("staging").join(name);
        let doc = root.join("usr/share/doc").join(name);
        package::copy(&self.source("copyright"), &doc.join("copyright"))?;
        let changelog = root.join("changelog");
        package::write(&changelog, self.changelog()?)?;
        self.compressed(&changelog, &doc.join("changelog.Debian.gz"))?;
        fs::remove_file(&changelog)?;

        let control = root.join("DEBIAN");
        fs::create_dir_all(&control)?;
        let (sums, size) = sums(&root)?;
        package::write(&control.join("md5sums"), sums)?;
        let about = fs::read_to_string(self.source(&format!("{name}.description")))?;
        package::write(
            &control.join("control"),
            format!(
                "Package: {name}\nVersion: {VERSION}-{REVISION}\nArchitecture: {architecture}\n\
                 Maintainer: {}\nInstalled-Size: {size}\nDepends: {depends}\n{about}",
                self.maintainer()?
            ),
        )?;
        package::set_modes(&root, |file| {
            file.starts_with(Path::new(HOME).join("bin"))
                || file.ends_with("postinst")
                || file.ends_with("postrm")
        })?;
        let file = format!("{name}_{VERSION}-{REVISION}_{architecture}.deb");
        let deb = package::folder(self.ws).join(file);
        pack(&root, &deb, self.epoch)?;
        Ok(deb)
    }

    /// A page of `share/man` where man finds it.
    fn man_page(&self, root: &Path, file: &Path) -> anyhow::Result<()> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_shared = SHARED_NAMES.contains(&&*name);
        let above = root.join(if is_shared { HOME } else { "usr" }).join(file);
        self.compressed(
            &self.prefix.join(file),
            &above.with_file_name(format!("{name}.gz")),
        )
    }

    /// Writes a file compressed as Debian wants it, without name and time.
    fn compressed(&self, from: &Path, to: &Path) -> anyhow::Result<()> {
        package::write(to, run(Command::new("gzip").arg("-9nc").arg(from))?)
    }

    /// A file that only the Debian packages have.
    fn source(&self, name: &str) -> PathBuf {
        self.ws
            .root
            .join(package::SOURCES)
            .join("debian")
            .join(name)
    }

    /// The changelog of the packaging.
    fn changelog(&self) -> anyhow::Result<String> {
        let time = format!("@{}", self.epoch);
        let date = run(Command::new("date")
            .args(["-R", "-u", "-d", &time])
            .env("LC_ALL", "C"))?;
        let date = String::from_utf8_lossy(&date).trim().to_owned();
        Ok(format!(
            "ripstop ({VERSION}-{REVISION}) unstable; urgency=medium\n\n  \
             * Made by `cargo xtask dist --deb`; changelog.gz of ripstop says what is new.\n\n \
             -- {}  {date}\n",
            self.maintainer()?
        ))
    }

    /// Who answers for the packages: whoever makes them, as Debian's own tools ask it (`deb-changelog(5)`).
    fn maintainer(&self) -> anyhow::Result<String> {
        let said = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let default = fs::read_to_string(self.source("maintainer"))?;
        Ok(match (said("DEBFULLNAME"), said("DEBEMAIL")) {
            (Some(name), Some(address)) => format!("{name} <{address}>"),
            _ => default.trim().to_owned(),
        })
    }
}

/// What a package built on a machine with ours in front depends on (`deb-shlibs(5)`): a C library that has all symbols,
/// or ours.
const SHLIBS: &str = "libfabric 1 libfabric1 (>= 2.6.0) | libfabric1-ripstop\n";

/// The name that Debian has for the processor.
fn architecture() -> anyhow::Result<&'static str> {
    Ok(match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!(
            "no name that Debian has for {other} is known here: add it to {}",
            file!()
        ),
    })
}

/// The packages with the libraries that are needed, in the versions that have every symbol.
fn depends(needs: &Needs) -> anyhow::Result<String> {
    let (major, minor) = needs.glibc;
    let mut packages = vec![format!("libc6 (>= {major}.{minor})")];
    for library in &needs.libraries {
        match library.as_str() {
            "libgcc_s.so.1" => packages.push("libgcc-s1 (>= 4.2)".to_owned()),
            name if ["libc.so.6", "libm.so.6"].contains(&name) || name.starts_with("ld-linux") => {}
            name => bail!(
                "no Debian package is known for {name}: add it to {}",
                file!()
            ),
        }
    }
    Ok(packages.join(", "))
}

/// Packs a folder, whose files get this time.
fn pack(root: &Path, deb: &Path, epoch: u64) -> anyhow::Result<()> {
    // One thread: how xz divides its input shows in what it writes.
    run(Command::new("dpkg-deb")
        .args([
            "--root-owner-group",
            "--uniform-compression",
            "-Zxz",
            "--build",
        ])
        .args([root, deb])
        .env("SOURCE_DATE_EPOCH", epoch.to_string())
        .env("DPKG_DEB_THREADS_MAX", "1"))
    .map(drop)
}

/// Checksums of the files below `root` (`deb-md5sums(5)`), and what they take on a disk, in KiB.
fn sums(root: &Path) -> anyhow::Result<(Vec<u8>, u64)> {
    let mut sums = Command::new("md5sum");
    let mut size = 0;
    for file in package::files(root)? {
        if file.starts_with("DEBIAN") {
            continue;
        }
        let meta = fs::symlink_metadata(root.join(&file))?;
        size += meta.len().div_ceil(1024).max(1);
        if meta.is_file() {
            sums.arg(file);
        }
    }
    Ok((run(sums.current_dir(root))?, size))
}

/// Runs a program; returns what it printed.
fn run(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    program::output(command, "is it installed?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(libraries: &[&str]) -> Needs {
        Needs {
            glibc: (2, 34),
            libraries: libraries.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn libraries_become_packages() {
        let known = needs(&[
            "libc.so.6",
            "libgcc_s.so.1",
            "libm.so.6",
            "ld-linux-x86-64.so.2",
        ]);
        let said = depends(&known).expect("packages");
        assert_eq!(said, "libc6 (>= 2.34), libgcc-s1 (>= 4.2)");
        assert_eq!(
            depends(&needs(&["libc.so.6"])).expect("packages"),
            "libc6 (>= 2.34)"
        );
        let error = depends(&needs(&["libssl.so.3"])).expect_err("unknown");
        assert!(error.to_string().contains("libssl.so.3"), "{error}");
    }
    #[test]
    fn a_package_is_the_same_whenever_it_is_made() {
        if let Err(why) = check() {
            println!("SKIP: {why:#}");
            return;
        }
        let folder = std::env::temp_dir().join(format!("xtask-deb-{}", std::process::id()));
        let make = |name: &str, files: &[&str]| {
            let root = folder.join(name);
            let control =
                "Package: a\nVersion: 1\nArchitecture: all\nMaintainer: a <a@a>\nDescription: a\n";
            package::write(&root.join("DEBIAN/control"), control).expect("a file");
            for file in files {
                package::write(&root.join(file), "text").expect("a file");
            }
            package::set_modes(&root, |_| false).expect("modes");
            let deb = folder.join(format!("{name}.deb"));
            pack(&root, &deb, 1_000_000_000).expect("dpkg-deb");
            fs::read(deb).expect("a package")
        };
        let first = make("first", &["usr/a", "usr/b"]);
        let second = make("second", &["usr/b", "usr/a"]);
        assert!(!first.is_empty() && first == second);
        fs::remove_dir_all(&folder).expect("the folder goes");
    }
}
