//! Guests: QEMU runs one for each node, in this process's time and to its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::lab::console::{Console, Line};
use crate::lab::kernel::Kernel;
use crate::test::process::{self, End, Interrupt};

/// The program that runs guests.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// The status of a script that its watchdog has ended.
pub(super) const HUNG: u8 = 124;

/// The status where a guest has ended and has told of none: its kernel died, or nothing has run at all.
pub(super) const LOST: u8 = 125;

/// What a guest gets beyond the limit of its script, for booting and to end by itself. A busy machine boots it in
/// ten seconds, and its own watchdog is the better one: it says what ran.
const AROUND: Duration = Duration::from_secs(90);

/// Memory of a guest, in MiB, if nothing else is asked for.
pub(super) const MEMORY: u32 = 768;

/// The name under which a guest finds the folder that it shares with this machine.
const TAG: &str = "lab";

/// The folder of the shared one into which scripts write what comes back.
const OUT: &str = "out";

/// What guests boot and run.
pub(super) struct Task<'a> {
    pub(super) kernel: &'a Kernel,
    /// The packed initial file system.
    pub(super) initrd: &'a Path,
    /// The script; an interactive shell if there is none.
    pub(super) script: Option<&'a Path>,
    pub(super) nodes: u8,
    /// The kind of RDMA device, `none` if there is none.
    pub(super) rdma: &'a str,
    /// Memory of each guest, in MiB.
    pub(super) memory: u32,
    /// The longest that the script may take.
    pub(super) limit: Duration,
    /// A folder of this run's own.
    pub(super) folder: &'a Path,
}

/// What became of a guest.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    pub(super) node: u8,
    /// The exit status of its script, [`HUNG`] or [`LOST`].
    pub(super) status: u8,
    /// What went wrong besides the script.
    pub(super) remark: Option<String>,
    /// From the start of QEMU to its end.
    pub(super) seconds: f64,
    pub(super) console: Vec<Line>,
}

/// What became of a task.
#[derive(Debug, Serialize)]
pub(super) struct Ended {
    pub(super) kernel: String,
    /// The first status that is not 0.
    pub(super) status: u8,
    pub(super) nodes: Vec<Node>,
    /// The files that came back.
    pub(super) out: PathBuf,
}

impl Task<'_> {
    /// Boots the guests, runs the script in each, and gives each line of a console to `say`, with its node.
    pub(super) fn run(
        &self,
        interrupt: &Interrupt,
        say: &(dyn Fn(u8, &Line) + Sync),
    ) -> anyhow::Result<Ended> {
        let share = self.share()?;
        let said = Mutex::new(say);
        let nodes = thread::scope(|scope| {
            let start = |node| {
                let said = &said;
                scope.spawn(move || {
                    self.run_node(node, interrupt, &|line| {
                        let say = said.lock().unwrap_or_else(|held| held.into_inner());
                        say(node, line);
                    })
                })
            };
            let threads: Vec<_> = (1..=self.nodes).map(start).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
                .collect::<anyhow::Result<Vec<Node>>>()
        })?;
        let bad = nodes.iter().map(|node| node.status).find(|code| *code != 0);
        Ok(Ended {
            kernel: self.kernel.release.clone(),
            status: bad.unwrap_or(0),
            nodes,
            out: share.join(OUT),
        })
    }

    /// A shell in a guest, on the terminal of this process; its exit status.
    pub(super) fn shell(&self) -> anyhow::Result<u8> {
        let share = self.share()?;
        let mut command = self.qemu(1);
        command.args(["-serial", "mon:stdio"]);
        let ended = command.status().context("cannot run QEMU")?;
        Ok(status(&share, 1).unwrap_or(if ended.success() { 0 } else { LOST }))
    }

    /// The folder that the guests share with this machine, new.
    fn share(&self) -> anyhow::Result<PathBuf> {
        let share = self.folder.join("share");
        fs::create_dir_all(share.join(OUT))?;
        if let Some(script) = self.script {
            fs::copy(script, share.join("script"))
                .with_context(|| format!("cannot read {}", script.display()))?;
        }
        Ok(share)
    }

    fn run_node(
        &self,
        node: u8,
        interrupt: &Interrupt,
        say: &dyn Fn(&Line),
    ) -> anyhow::Result<Node> {
        let log = self.folder.join(format!("console.{node}"));
        let writer = File::create(&log)?;
        let mut console = Console::new(File::open(&log)?);
        let mut command = self.qemu(node);
        command.args(["-serial", "stdio"]);
        let started = Instant::now();
        let limit = self.limit + AROUND;
        let end = process::watch(&mut command, &writer, limit, interrupt, &mut || {
            // What cannot be read now is read at the end, or fails there.
            for line in console.read(started.elapsed()).unwrap_or_default() {
                say(line);
            }
        })?;
        let took = started.elapsed();
        for line in console.finish(took)? {
            say(line);
        }
        let share = self.folder.join("share");
        let (status, remark) = judge(status(&share, node), end, limit);
        Ok(Node {
            node,
            status,
            remark,
            seconds: took.as_secs_f64(),
            console: console.lines,
        })
    }

    /// The command for a guest, without its console. It runs in the folder of the run, so that the names of sockets
    /// are short.
    fn qemu(&self, node: u8) -> Command {
        let mut command = Command::new(QEMU);
        command
            .current_dir(self.folder)
            .args(["-M", "pc", "-accel", "tcg", "-cpu", "max", "-smp", "2"])
            .args([
                "-m",
                &self.memory.to_string(),
                "-nodefaults",
                "-no-user-config",
            ])
            .args(["-display", "none", "-no-reboot"])
            .arg("-kernel")
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(self.initrd)
            .args(["-append", &self.kernel_line(node)])
            .args([
                "-virtfs",
                &format!("local,path=share,mount_tag={TAG},security_model=none"),
            ]);
        if self.nodes > 1 {
            command.args(network(node));
        }
        command
    }

    /// What the kernel hands to `init` as its environment, and what is for itself: it ends when it dies, does not
    /// look whether the timer is on time, which it is not on a busy machine, and does not test its ciphers.
    fn kernel_line(&self, node: u8) -> String {
        let mode = self.script.map_or("shell", |_| "script");
        format!(
            "console=ttyS0 quiet panic=-1 no_timer_check cryptomgr.notests LAB_NODE={node} LAB_NODES={} LAB_RDMA={} LAB_LIMIT={} LAB_MODE={mode}",
            self.nodes,
            self.rdma,
            self.limit.as_secs()
        )
    }
}

/// The options for a network card that is joined to that of the other of two nodes by a pair of local sockets.
fn network(node: u8) -> Vec<String> {
    let other = 3 - node;
    vec![
        "-netdev".to_owned(),
        format!(
            "dgram,id=net,local.type=unix,local.path=net.{node},remote.type=unix,remote.path=net.{other}"
        ),
        "-device".to_owned(),
        format!("virtio-net-pci,netdev=net,mac=52:54:00:12:34:0{node},romfile="),
    ]
}

/// The status that a guest has told of its script.
fn status(share: &Path, node: u8) -> Option<u8> {
    let text = fs::read_to_string(share.join(format!("status.{node}"))).ok()?;
    text.trim().parse().ok()
}

/// The status of a node, and what to say about it, from what it has told and how QEMU ended.
fn judge(told: Option<u8>, end: End, limit: Duration) -> (u8, Option<String>) {
    let limit = limit.as_secs();
    match (told, end) {
        (_, End::Unstarted(why)) => (LOST, Some(why)),
        (_, End::Timeout) => (
            HUNG,
            Some(format!("the guest had not ended after {limit} s")),
        ),
        (Some(HUNG), _) => (
            HUNG,
            Some("the watchdog in the guest has ended the script".to_owned()),
        ),
        (Some(status), _) => (status, None),
        (None, End::Exit { .. }) => (
            LOST,
            Some("the guest has ended without a word: see its console".to_owned()),
        ),
    }
}

/// Whether QEMU is here, by its version.
pub(super) fn version() -> Option<String> {
    let output = Command::new(QEMU)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next()?.to_owned();
    output.status.success().then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn the_status_of_the_script_is_that_of_the_node() {
        let ended = || End::Exit { success: true };
        assert_eq!(judge(Some(0), ended(), LIMIT), (0, None));
        assert_eq!(judge(Some(3), ended(), LIMIT), (3, None));
    }

    #[test]
    fn what_went_wrong_has_a_status_and_a_reason() {
        let cases = [
            (Some(HUNG), End::Exit { success: true }, HUNG),
            (None, End::Exit { success: true }, LOST),
            (None, End::Exit { success: false }, LOST),
            (Some(0), End::Timeout, HUNG),
            (None, End::Unstarted("no QEMU".to_owned()), LOST),
        ];
        for (told, end, expected) in cases {
            let (status, remark) = judge(told, end, LIMIT);
            assert_eq!(status, expected);
            assert!(remark.is_some());
        }
    }

    #[test]
    fn two_nodes_use_each_others_socket() {
        let text = |node| network(node).join(" ");
        assert!(text(1).contains("local.path=net.1") && text(1).contains("remote.path=net.2"));
        assert!(text(2).contains("local.path=net.2") && text(2).contains("remote.path=net.1"));
    }

    #[test]
    fn a_guest_tells_its_status_in_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(status(folder.path(), 1), None);
        fs::write(folder.path().join("status.1"), "7\n").expect("written");
        assert_eq!(status(folder.path(), 1), Some(7));
        assert_eq!(status(folder.path(), 2), None);
    }
}
