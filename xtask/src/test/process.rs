//! Running a program to its end or to its time limit, with everything it printed in a file.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::process::{Pid, Signal, kill_process_group};

/// How often a running program is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// What a program gets between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(2);

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It could not be started, for this reason.
    Unstarted(String),
    /// By itself, well or badly.
    Exit { success: bool },
    /// It was killed at its time limit.
    Timeout,
}

/// Set when the user or the machine asks this tool to stop.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for `SIGINT` and `SIGTERM`.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs `command` in a process group of its own, for `limit` at most; nothing of the group is left behind.
/// An error means that this tool was interrupted.
pub(crate) fn run(
    command: &mut Command,
    log: &File,
    limit: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<End> {
    watch(command, log, limit, interrupt, &mut || ())
}

/// Like [`run`]; meanwhile, `look` is called again and again.
pub(crate) fn watch(
    command: &mut Command,
    log: &File,
    limit: Duration,
    interrupt: &Interrupt,
    look: &mut dyn FnMut(),
) -> anyhow::Result<End> {
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = match command.process_group(0).spawn() {
        Ok(child) => child,
        Err(error) => return Ok(End::Unstarted(format!("cannot run {program}: {error}"))),
    };
    let deadline = Instant::now() + limit;
    let end = loop {
        if let Some(status) = child.try_wait()? {
            break End::Exit {
                success: status.success(),
            };
        }
        if interrupt.is_set() {
            stop(&mut child)?;
            bail!("interrupted while {program} ran");
        }
        if Instant::now() >= deadline {
            stop(&mut child)?;
            break End::Timeout;
        }
        look();
        thread::sleep(GLANCE);
    };
    signal_group(&child, Signal::KILL);
    Ok(end)
}

/// Asks the group to end, then ends it.
fn stop(child: &mut Child) -> anyhow::Result<()> {
    signal_group(child, Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline && child.try_wait()?.is_none() {
        thread::sleep(GLANCE);
    }
    signal_group(child, Signal::KILL);
    child.wait()?;
    Ok(())
}

/// Sends to every process of the group; a group that is gone needs no signal.
fn signal_group(child: &Child, signal: Signal) {
    let _ = kill_process_group(Pid::from_child(child), signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_shell(script: &str, limit: Duration) -> (anyhow::Result<End>, Duration) {
        let log = File::create("/dev/null").expect("a log");
        let interrupt = Interrupt(Arc::new(AtomicBool::new(false)));
        let started = Instant::now();
        let end = run(
            Command::new("sh").args(["-c", script]),
            &log,
            limit,
            &interrupt,
        );
        (end, started.elapsed())
    }

    #[test]
    fn the_status_is_reported() {
        let (end, _) = run_shell("exit 3", Duration::from_secs(60));
        assert_eq!(end.expect("ran"), End::Exit { success: false });
    }

    #[test]
    fn children_of_a_hanging_program_end_with_it() {
        let (end, took) = run_shell("sleep 600 & wait", Duration::from_millis(100));
        assert_eq!(end.expect("ran"), End::Timeout);
        assert!(took < Duration::from_secs(60));
    }

    #[test]
    fn an_unknown_program_is_reported() {
        let log = File::create("/dev/null").expect("a log");
        let interrupt = Interrupt(Arc::new(AtomicBool::new(false)));
        let mut command = Command::new("/no/such/program");
        let end = run(&mut command, &log, GRACE, &interrupt).expect("not interrupted");
        assert!(matches!(end, End::Unstarted(_)));
    }
}
