//! The measuring processes of one library, seen from the one that starts them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use ripstop_cli::exit::ClosedPipesAreErrors;

use super::protocol::{Answer, Job, Order, Setup, WORKER, after};
use super::record::{Figure, Figures};

/// Endpoints of one process: each may have several descriptors.
const ENDPOINTS: u64 = 2_500;

/// Peers whose memory can be told from changes of the machine's.
const MANY: u64 = 9_000;

/// How a sample is taken.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    pub(super) lib: &'a Path,
    pub(super) provider: &'a str,
    /// Where the process that takes times runs, and where what it exchanges messages with does.
    pub(super) cores: Option<(usize, usize)>,
    /// When the sample is given up.
    pub(super) until: Instant,
}

/// One process. It is stopped when this is dropped.
struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    until: Instant,
}

impl Start<'_> {
    fn process(&self, job: Job, core: Option<usize>) -> Result<Process> {
        let setup = Setup {
            provider: self.provider.to_owned(),
            job,
            core,
        };
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args([WORKER, &serde_json::to_string(&setup)?]);
        command.arg("--lib").arg(self.lib);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a process")?;
        let (Some(orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("cannot talk to a process");
        };
        let (to, answers) = channel();
        // Ends with the output of the process.
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines();
            lines
                .map_while(Result::ok)
                .all(|line| to.send(line).is_ok())
        });
        Ok(Process {
            child,
            orders,
            answers,
            until: self.until,
        })
    }

    fn first_core(&self) -> Option<usize> {
        self.cores.map(|(first, _)| first)
    }

    /// A sample of what one process measures alone.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn alone(&self, job: Job) -> Result<Figures> {
        self.process(job, self.first_core())?.took()
    }

    /// A sample of an endpoint with so many connected peers.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn peers(&self, count: u64) -> Result<Figures> {
        let mut hub = self.process(Job::Hub, self.first_core())?;
        let active = self.cores.map(|(_, second)| second);
        let mut peers = vec![self.process(Job::Peers(1), active)?];
        let quiet = parts(count.saturating_sub(1), ENDPOINTS);
        for part in quiet {
            peers.push(self.process(Job::Peers(part), None)?);
        }
        let hub_address = hub.open()?;
        let mut addresses = Vec::new();
        for process in &mut peers {
            let before = addresses.len() as u64;
            addresses.extend(process.open().map_err(|error| after(before, error))?);
        }
        let before = available()?;
        let hub_address = hub_address.into_iter().next().context("no address")?;
        for process in &mut peers {
            process.order(&Order::Answer(hub_address.clone()))?;
        }
        hub.order(&Order::Connect(addresses))?;
        let mut figures = hub.took()?;
        for process in &mut peers {
            process.took()?;
        }
        let used = before.saturating_sub(available()?);
        // Other programs use memory too.
        if count >= MANY {
            figures.insert(Figure::MachineMemory, used as f64 / count as f64);
        }
        let active = &mut peers[0];
        active.order(&Order::Serve)?;
        hub.order(&Order::RoundTrips)?;
        figures.extend(hub.took()?);
        active.took()?;
        hub.order(&Order::Idle)?;
        figures.extend(hub.took()?);
        Ok(figures)
    }
}

/// A number as parts of at most so many.
fn parts(mut number: u64, most: u64) -> Vec<u64> {
    let mut parts = Vec::new();
    while number > 0 {
        parts.push(number.min(most));
        number -= number.min(most);
    }
    parts
}

/// Bytes of memory that the machine has for new programs.
fn available() -> Result<u64> {
    let path = "/proc/meminfo";
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    available_of(&text).with_context(|| format!("{path} has no MemAvailable"))
}

fn available_of(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes = line.trim().strip_suffix("kB")?.trim();
    Some(kilobytes.parse::<u64>().ok()? << 10)
}

impl Process {
    fn order(&mut self, order: &Order) -> Result<()> {
        let line = serde_json::to_string(order)?;
        let _errors = ClosedPipesAreErrors::new();
        // A process that is gone has said why, or says so by the end of its answers.
        let _ = writeln!(self.orders, "{line}").and_then(|()| self.orders.flush());
        Ok(())
    }

    fn answer(&mut self) -> Result<Answer> {
        let left = self.until.saturating_duration_since(Instant::now());
        match self.answers.recv_timeout(left) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(Answer::Ended(ends)) => Err(ends.into()),
                Ok(Answer::Failed(why)) => bail!(why),
                Ok(answer) => Ok(answer),
                // Libraries should not write here, but what they say may help.
                Err(_) => bail!("a process printed {line:?}"),
            },
            Err(RecvTimeoutError::Timeout) => bail!("takes longer than the time limit"),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                bail!("a process ended without a word: {status}")
            }
        }
    }

    fn open(&mut self) -> Result<Vec<Vec<u8>>> {
        match self.answer()? {
            Answer::Open(addresses) => Ok(addresses),
            other => bail!("unexpected {other:?}"),
        }
    }

    fn took(&mut self) -> Result<Figures> {
        match self.answer()? {
            Answer::Took(figures) => Ok(figures),
            other => bail!("unexpected {other:?}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be in the middle of what will not end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_spread_over_processes() {
        assert_eq!(parts(0, 4), Vec::<u64>::new());
        assert_eq!(parts(3, 4), [3]);
        assert_eq!(parts(9, 4), [4, 4, 1]);
    }

    #[test]
    fn available_memory_is_found() {
        let text = "MemTotal:  100 kB\nMemAvailable:   12 kB\nBuffers: 3 kB\n";
        assert_eq!(available_of(text), Some(12 << 10));
        assert_eq!(available_of("MemTotal: 1 kB"), None);
    }
}
