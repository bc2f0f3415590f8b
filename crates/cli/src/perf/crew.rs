//! The measuring processes, seen from the one that starts them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::args::WORKER;
use super::protocol::{Answer, Measured, Order, Sample, Setup, Side, Test};
use super::subject::{Lacks, Subject, Wanted};
use crate::exit::ClosedPipesAreErrors;

/// How long a process may take to close what it has open, which is when hooks of a library write their files.
const CLOSING: Duration = Duration::from_secs(5);

/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(1);

/// How to start the processes of a subject.
#[derive(Clone, Debug)]
pub struct Start<'a> {
    /// What they measure.
    pub subject: &'a Subject,
    /// How many there are: client and server, one and its peers, the members of a group, or one alone.
    pub processes: usize,
    /// Where each of them runs, by rank. Anywhere, when there are not as many.
    pub cores: Vec<usize>,
    /// What they open. The rank is set for each of them.
    pub setup: Setup,
}

impl Start<'_> {
    /// The process of this rank in messages to the user.
    fn name(&self, rank: usize) -> String {
        let subject = self.subject;
        match (self.setup.wanted, Side::of(rank)) {
            (Wanted::Groups, _) => format!("rank {rank} of {subject}"),
            (_, Side::Client) => format!("client of {subject}"),
            (_, Side::Server) if self.processes > 2 => format!("peer {rank} of {subject}"),
            (_, Side::Server) => format!("server of {subject}"),
        }
    }
}

/// One process. When this is dropped, it closes what it has open, or is stopped where it cannot be asked to.
struct Process {
    child: Child,
    /// It ends when these do.
    orders: Option<ChildStdin>,
    /// Whether it opens what it measures, or carries out an order: that may never end.
    is_busy: bool,
    answers: BufReader<ChildStdout>,
    name: String,
    address: Vec<u8>,
    /// What it has opened.
    provider: Measured,
}

impl Process {
    /// Starts a process.
    ///
    /// # Errors
    /// When the system does not.
    fn start(start: &Start<'_>, rank: usize) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let setup = Setup {
            rank,
            core: start.cores.get(rank).copied(),
            ..start.setup.clone()
        };
        let mut command = Command::new(program);
        command.args([WORKER, &serde_json::to_string(&setup)?]);
        if let Some(path) = start.subject.path() {
            command.arg("--lib").arg(path);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a second process")?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("cannot talk to a second process");
        };
        Ok(Self {
            child,
            orders: Some(orders),
            is_busy: true,
            answers: BufReader::new(answers),
            name: start.name(rank),
            address: Vec::new(),
            provider: Measured::default(),
        })
    }

    /// Waits until it is open.
    ///
    /// # Errors
    /// When it does not come so far, with its own words.
    fn wait_open(&mut self) -> Result<()> {
        match self.answer()? {
            Answer::Ready { address, provider } => {
                (self.address, self.provider) = (address, provider);
                Ok(())
            }
            other => bail!("{}: unexpected {other:?}", self.name),
        }
    }

    /// Gives an order.
    ///
    /// # Errors
    /// For one that makes no line.
    fn order(&mut self, order: &Order) -> Result<()> {
        let line = serde_json::to_string(order)?;
        let _errors = ClosedPipesAreErrors::new();
        // A process that is gone has said why, or says so by the end of its answers.
        if let Some(orders) = &mut self.orders {
            let _ = writeln!(orders, "{line}").and_then(|()| orders.flush());
        }
        self.is_busy = true;
        Ok(())
    }

    /// Waits for the answer to the last order.
    ///
    /// # Errors
    /// Its own words, and how it ended.
    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.with_context(|| self.name.clone())? == 0 {
            let status = self.child.wait()?;
            bail!("{} ended without a word: {status}", self.name);
        }
        self.is_busy = false;
        match serde_json::from_str(&line) {
            Ok(Answer::Failed(why)) => bail!("{}: {why}", self.name),
            Ok(Answer::Lacks(what)) => Err(Lacks(what).into()),
            Ok(answer) => Ok(answer),
            // Libraries should not write here, but what they say may help.
            Err(_) => bail!("{} printed {line:?}", self.name),
        }
    }

    /// Waits for what an order took.
    fn took(&mut self) -> Result<Sample> {
        match self.answer()? {
            Answer::Took(sample) => Ok(sample),
            other => bail!("{}: unexpected {other:?}", self.name),
        }
    }

    /// What it said last, if it has ended with an error.
    fn last_words(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(Some(_)) => self.answer().err().map(|error| format!("{error:#}")),
            _ => None,
        }
    }
}

impl Process {
    /// Asks it to end.
    fn dismiss(&mut self) {
        self.orders = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.dismiss();
        let end = Instant::now() + CLOSING;
        while !self.is_busy && matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            thread::sleep(LOOK);
        }
        // One that has ended is not there to be stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes of one subject, by rank, which measure together.
pub struct Crew(Vec<Process>);

impl Drop for Crew {
    fn drop(&mut self) {
        // They close at the same time: endpoints may wait for each other.
        self.0.iter_mut().for_each(Process::dismiss);
    }
}

impl Crew {
    /// Starts all, and waits until they know each other.
    ///
    /// # Errors
    /// What any of them says.
    pub fn start(start: &Start<'_>) -> Result<Self> {
        let ranks = 0..start.processes;
        let mut crew = Self(
            ranks
                .map(|rank| Process::start(start, rank))
                .collect::<Result<_>>()?,
        );
        // Libraries may take seconds to open: all do so at once.
        crew.0.iter_mut().try_for_each(Process::wait_open)?;
        if start.processes > 1 {
            let addresses = crew.0.iter().map(|process| process.address.clone());
            crew.carry_out(&Order::Meet(addresses.collect()))?;
        }
        Ok(crew)
    }

    /// What all of them have opened.
    pub fn provider(&self) -> &Measured {
        &self.0[0].provider
    }

    /// Takes a sample, at the client or at the one that took longest.
    ///
    /// # Errors
    /// What any of them says, and how it ended.
    pub fn take(&mut self, test: Test) -> Result<Sample> {
        let samples = self.carry_out(&Order::Run(test))?;
        let longest = samples.iter().max_by_key(|sample| sample.nanos);
        let sample = match test.kind.is_of_all() {
            true => longest,
            false => samples.first(),
        };
        Ok(sample.copied().unwrap_or_default())
    }

    /// Hands a cache line over, `count` times there and back: nanoseconds for all.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub fn hand_over(&mut self, count: u32) -> Result<u64> {
        let name = format!("perf-{}", std::process::id());
        let samples = self.carry_out(&Order::HandOver { name, count })?;
        Ok(samples[0].nanos)
    }

    /// Gives an order to all, the client last, and waits for what it took each of them.
    fn carry_out(&mut self, order: &Order) -> Result<Vec<Sample>> {
        for process in self.0.iter_mut().rev() {
            process.order(order)?;
        }
        let mut samples = Vec::with_capacity(self.0.len());
        for rank in 0..self.0.len() {
            match self.0[rank].took() {
                Ok(sample) => samples.push(sample),
                Err(error) if error.is::<Lacks>() => return Err(error),
                Err(error) => return Err(self.blame(rank, error)),
            }
        }
        Ok(samples)
    }

    /// The error of one, and what others said that have ended too: who failed first knows why, and
    /// the others only wait in vain.
    fn blame(&mut self, rank: usize, error: anyhow::Error) -> anyhow::Error {
        let others = self
            .0
            .iter_mut()
            .enumerate()
            .filter(|(other, _)| *other != rank);
        let words = others.filter_map(|(_, process)| process.last_words());
        words.fold(error, |error, words| error.context(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that carries out an order or not.
    fn process(command: &mut Command, is_busy: bool) -> Process {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        Process {
            orders: child.stdin.take(),
            is_busy,
            answers: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
            name: String::new(),
            address: Vec::new(),
            provider: Measured::default(),
        }
    }

    #[test]
    fn a_process_closes_what_it_has_open() {
        let says = std::env::temp_dir().join(format!("ripstop-crew-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", r#"cat; echo closed >"$0""#]).arg(&says);
        drop(Crew(vec![process(&mut command, false)]));
        let said = std::fs::read_to_string(&says).expect("it was not stopped before");
        std::fs::remove_file(&says).expect("it is there");
        assert_eq!(said, "closed\n");
    }

    #[test]
    fn one_in_the_middle_of_an_order_is_stopped() {
        let busy = process(Command::new("sleep").arg("1000"), true);
        let start = Instant::now();
        drop(busy);
        assert!(start.elapsed() < CLOSING);
    }
}
