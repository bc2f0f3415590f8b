//! Fabtests on RDMA devices, which this machine has none of: their runner in a guest of the laboratory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::outcome::Outcomes;
use crate::lab::{GuestScript, Series};
use crate::workspace::Workspace;

/// Memory of the guest, in MiB: ping-pongs and their like ask for 64 buffers of 8 MiB each way, on both sides.
const MEMORY: u32 = 5000;

/// Programs of this machine that the runner calls and guests do not have.
const PROGRAMS: [&str; 2] = ["/usr/bin/bash", "/usr/bin/getopt"];

/// In the place of `ps`, of which busybox's prints something else: all that there is to end in a guest is of the run.
const PS: &str = r#"#!/bin/bash
[ "$1" = -p ] && exec test -e "/proc/$2"
for place in /proc/[0-9]*; do
    echo "$(cat "$place/comm") ${place#/proc/}"
done 2>/dev/null
"#;

/// In the place of Python, which the runner asks for the numbers of two errors.
const PYTHON: &str = r#"#!/bin/bash
case $2 in
    *errno.ENODATA*) echo 61 ;;
    *errno.ENOSYS*) echo 38 ;;
    *) exit 1 ;;
esac
"#;

/// The provider and the kernel that a name of the list stands for, if it is of guests: `verbs/6.1`.
pub(super) fn parse(name: &str) -> Option<(&str, Series)> {
    let (provider, series) = name.split_once('/')?;
    let all = [Series::V6_1, Series::V6_12];
    let series = all.into_iter().find(|known| known.name() == series)?;
    Some((provider, series))
}

/// A set of one provider in a guest.
pub(super) struct GuestRun<'a> {
    pub(super) ws: &'a Workspace,
    /// Where fabtests are installed.
    pub(super) from: &'a Path,
    /// For the files of the run.
    pub(super) folder: &'a Path,
    pub(super) provider: &'a str,
    pub(super) series: Series,
    pub(super) set: &'a str,
    /// Variables of the library.
    pub(super) settings: &'a [(String, String)],
    /// Seconds that each test may take.
    pub(super) timeout: u64,
    /// The longest that the set may take.
    pub(super) limit: Duration,
}

impl GuestRun<'_> {
    /// Runs it; what the runner says goes to `outcomes`. Returns what went wrong with itself.
    ///
    /// # Errors
    /// [`crate::lab::Unavailable`] where this machine cannot run guests.
    pub(super) fn run(
        &self,
        ssh: &str,
        outcomes: &mut Outcomes,
        say: &(dyn Fn(&str) + Sync),
    ) -> anyhow::Result<Option<String>> {
        if self.folder.exists() {
            fs::remove_dir_all(self.folder)?;
        }
        let programs = self.stage(ssh)?;
        let script = self.folder.join("script");
        fs::write(&script, self.script())?;
        let mut added = vec![programs];
        added.extend(PROGRAMS.map(PathBuf::from));
        let guest = GuestScript {
            name: "fabtests",
            script: &script,
            series: self.series,
            added: &added,
            memory: MEMORY,
            limit: self.limit,
        };
        let out = self.folder.join("out");
        let failure = guest.run(self.ws, &out, say)?;
        let log = fs::read_to_string(out.join("log")).unwrap_or_default();
        for line in log.lines() {
            outcomes.read(line, self.provider, None);
        }
        Ok(failure)
    }

    /// A folder with their programs and what stands in for others.
    fn stage(&self, ssh: &str) -> anyhow::Result<PathBuf> {
        let stage = self.folder.join("fabtests");
        let (bin, stand_ins) = (stage.join("bin"), stage.join("stand-ins"));
        fs::create_dir_all(&bin)?;
        fs::create_dir_all(&stand_ins)?;
        for entry in fs::read_dir(self.from.join("bin"))? {
            let entry = entry?;
            fs::copy(entry.path(), bin.join(entry.file_name()))
                .with_context(|| format!("cannot copy {}", entry.path().display()))?;
        }
        for (name, text) in [("ssh", ssh), ("ps", PS), ("python3", PYTHON)] {
            let path = stand_ins.join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(stage)
    }

    /// What the guest runs.
    fn script(&self) -> String {
        let mut script = String::new();
        for (name, value) in self.settings {
            script += &format!("export {name}={}\n", quoted(value));
        }
        script
            + &format!(
                "exec sh /lab/fabtests.sh {} {} {}\n",
                quoted(self.provider),
                quoted(self.set),
                self.timeout
            )
    }
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Guests have the library of target/dist, and no set of combinations.
pub(super) fn require(ws: &Workspace, has_own_library: bool, set: &str) -> anyhow::Result<()> {
    ensure!(
        !has_own_library,
        "guests have the library of target/dist: leave out --lib"
    );
    ensure!(
        crate::lab::has_prefix(ws),
        "target/dist has no library: run `cargo xtask dist`"
    );
    ensure!(
        set != super::COMPLEX,
        "the set {set} does not run in guests"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_kernel_is_of_guests() {
        let parsed = |name| parse(name).map(|(provider, series)| (provider, series.name()));
        assert_eq!(parsed("verbs/6.1"), Some(("verbs", "6.1")));
        assert_eq!(
            parsed("verbs;ofi_rxm/6.12"),
            Some(("verbs;ofi_rxm", "6.12"))
        );
        assert_eq!(parsed("tcp;ofi_rxm"), None);
        assert_eq!(parsed("verbs/5.10"), None);
    }

    #[test]
    fn a_word_stays_one() {
        assert_eq!(quoted("verbs;ofi_rxm"), "'verbs;ofi_rxm'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
