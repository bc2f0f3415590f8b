//! Debian packages, fetched from the archives that this machine is set up for, and unpacked without being installed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::lab::answers::Answers;
use crate::test::process::{self, End, Interrupt};

/// The longest that one call of apt may take.
const APT: Duration = Duration::from_secs(300);

/// The file of what apt has answered.
const ANSWERS: &str = "answers.json";

/// The file in an unpacked folder that says of which packages it is.
const STAMP: &str = "packages.txt";

/// Why the laboratory cannot be used on this machine: something is missing that is not part of the tree.
#[derive(Debug)]
pub(crate) struct Unavailable(pub(super) String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Fetches packages into folders below `folder`.
pub(super) struct Fetcher {
    pub(super) folder: PathBuf,
    pub(super) interrupt: Interrupt,
    /// Whether the package lists are as new as they get.
    is_updated: Cell<bool>,
    answers: RefCell<Answers>,
}

impl Fetcher {
    pub(super) fn new(folder: &Path, interrupt: &Interrupt) -> Self {
        Self {
            folder: folder.to_path_buf(),
            interrupt: interrupt.clone(),
            is_updated: Cell::new(false),
            answers: RefCell::new(Answers::load(&folder.join(ANSWERS))),
        }
    }

    /// What `fetch` finds and fetches; once more with new package lists where something is not to be had by the old
    /// ones: the archives drop a version when they have a newer one.
    pub(super) fn with_new_lists<T>(
        &self,
        fetch: impl Fn() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        match fetch() {
            Err(error) if error.is::<Unavailable>() && !self.is_updated.replace(true) => {
                self.update()?;
                *self.answers.borrow_mut() = Answers::load(&self.folder.join(ANSWERS));
                fetch()
            }
            fetched => fetched,
        }
    }

    /// The folder `name` with `packages` unpacked, only those files that match one of `patterns` if there are any;
    /// `finish` makes of it what is wanted. All this is done again only when the archive has other versions, or
    /// `recipe` has changed.
    pub(super) fn unpack(
        &self,
        name: &str,
        packages: &[String],
        patterns: &[&str],
        recipe: &str,
        finish: &dyn Fn(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        let place = self.folder.join(name);
        let stamp = format!("{}{patterns:?}\n{recipe}\n", self.uris(packages)?);
        if fs::read_to_string(place.join(STAMP)).is_ok_and(|found| found == stamp) {
            return Ok(place);
        }
        remove(&place)?;
        let debs = place.join("debs");
        fs::create_dir_all(&debs)?;
        self.download(packages, &debs)?;
        for deb in fs::read_dir(&debs)? {
            extract(&deb?.path(), &place, patterns)?;
        }
        remove(&debs)?;
        finish(&place)?;
        fs::write(place.join(STAMP), stamp)?;
        Ok(place)
    }

    /// The first package that `package` depends on and whose name begins with `start`.
    pub(super) fn dependency(&self, package: &str, start: &str) -> Option<String> {
        let text = self.depends(&[package.to_owned()]).ok()?;
        dependencies(&text)
            .find(|name| name.starts_with(start))
            .map(str::to_owned)
    }

    /// `packages` with the libraries that they depend on, but for those that every machine has.
    pub(super) fn with_libraries(&self, packages: &[&str]) -> anyhow::Result<Vec<String>> {
        let mut all: BTreeSet<String> = packages.iter().map(|name| (*name).to_owned()).collect();
        let mut new: Vec<String> = all.iter().cloned().collect();
        while !new.is_empty() {
            let text = self.depends(&new)?;
            let found: BTreeSet<String> = dependencies(&text)
                .filter(|name| is_library(name))
                .map(str::to_owned)
                .collect();
            new = found.difference(&all).cloned().collect();
            all.extend(new.iter().cloned());
        }
        Ok(all.into_iter().collect())
    }

    /// What `apt-cache depends` prints of `packages`.
    fn depends(&self, packages: &[String]) -> anyhow::Result<String> {
        self.ask("apt-cache", &["depends"], packages)
    }

    /// Where the archive has `packages`, a line for each with its version and checksum.
    fn uris(&self, packages: &[String]) -> anyhow::Result<String> {
        self.ask("apt-get", &["download", "--print-uris"], packages)
    }

    /// What `program` prints, now or when it was asked the same of these package lists.
    fn ask(&self, program: &str, words: &[&str], packages: &[String]) -> anyhow::Result<String> {
        let question = format!("{program} {} {}", words.join(" "), packages.join(" "));
        self.answers.borrow_mut().get(&question, || {
            output(Command::new(program).args(words).args(packages))
        })
    }

    /// Fetches the package lists anew; who may not do so goes on with those that are there.
    fn update(&self) -> anyhow::Result<()> {
        let mut command = match rustix::process::geteuid().is_root() {
            true => Command::new("apt-get"),
            false => {
                let mut sudo = Command::new("sudo");
                sudo.args(["-n", "apt-get"]);
                sudo
            }
        };
        command.args(["-q", "update"]);
        self.run(&mut command, "update.log").map(|_| ())
    }

    /// Fetches `packages` into `debs`.
    fn download(&self, packages: &[String], debs: &Path) -> anyhow::Result<()> {
        let mut command = Command::new("apt-get");
        command
            .args(["-q", "download"])
            .args(packages)
            .current_dir(debs);
        ensure!(
            self.run(&mut command, "download.log")?,
            Unavailable(format!(
                "cannot fetch Debian packages: see {}",
                self.folder.join("download.log").display()
            ))
        );
        Ok(())
    }

    /// Runs a call of apt with its output in the file `log`; whether it ended well.
    fn run(&self, command: &mut Command, log: &str) -> anyhow::Result<bool> {
        fs::create_dir_all(&self.folder)?;
        let log = File::create(self.folder.join(log))?;
        let end = process::run(command, &log, APT, &self.interrupt)?;
        Ok(end == End::Exit { success: true })
    }
}

/// What `command` prints, or why this machine cannot say.
pub(super) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| Unavailable(format!("cannot run {program}: {error}")))?;
    let told = String::from_utf8_lossy(&output.stderr);
    let told = told.lines().next().unwrap_or_default();
    ensure!(
        output.status.success(),
        Unavailable(format!("{program}: {told}"))
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The names of packages in what `apt-cache depends` prints: the first of several that would do, no virtual ones.
fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim);
    lines.filter_map(|line| {
        let name = line
            .trim_start_matches('|')
            .strip_prefix("Depends: ")
            .or_else(|| line.strip_prefix("PreDepends: "))?;
        (!name.starts_with('<')).then_some(name)
    })
}

/// Whether a package is a library that a guest may need. The C library and the compiler's are those of this machine,
/// as our programs need them.
fn is_library(name: &str) -> bool {
    const OF_THE_MACHINE: [&str; 3] = ["libc6", "libgcc-s1", "libc-bin"];
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    name.starts_with("lib") && !name.ends_with("-bin") && !OF_THE_MACHINE.contains(&name)
}

/// Unpacks a package below `place`.
fn extract(deb: &Path, place: &Path, patterns: &[&str]) -> anyhow::Result<()> {
    let mut source = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Unavailable(format!("cannot run dpkg-deb: {error}")))?;
    let archive = source.stdout.take().context("no pipe")?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "--no-same-owner", "-C"]).arg(place);
    if !patterns.is_empty() {
        tar.arg("--wildcards").args(patterns);
    }
    // A pattern that one of several kernels has no file for is no error: what is needed is looked for later.
    let unpacked = tar.stdin(archive).stderr(Stdio::null()).status()?;
    let read = source.wait()?;
    ensure!(
        read.success() && (unpacked.success() || !patterns.is_empty()),
        "cannot unpack {}",
        deb.display()
    );
    Ok(())
}

/// Removes a folder, if it is there.
pub(super) fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_told_apart_from_the_rest() {
        let text = "\
iproute2
 |Depends: debconf
  Depends: <debconf-2.0>
    cdebconf
  PreDepends: libc6
  Depends: libmnl0
  Suggests: libfoo
";
        let found: Vec<&str> = dependencies(text).collect();
        assert_eq!(found, ["debconf", "libc6", "libmnl0"]);
    }

    #[test]
    fn the_c_library_is_that_of_the_machine() {
        assert!(is_library("libibverbs1") && is_library("libnl-3-200"));
        assert!(!is_library("libc6") && !is_library("libc6:i386") && !is_library("debconf"));
    }
}
