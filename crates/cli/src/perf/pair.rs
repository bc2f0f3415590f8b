//! The measuring processes, seen from the one that starts them.

use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::args::{Side, WORKER};
use super::protocol::{Answer, Order, Test};
use super::subject::{Lacks, Subject, Wanted};

/// How to start the processes of a subject.
#[derive(Clone, Debug)]
pub(super) struct Start<'a> {
    /// What they measure.
    pub(super) subject: &'a Subject,
    /// Over which provider.
    pub(super) provider: &'a str,
    /// Where each of them runs: client and server, or by rank. Anywhere, when there are not as
    /// many.
    pub(super) cores: Vec<usize>,
    /// The largest message there will be.
    pub(super) largest: usize,
    /// What their endpoints must do.
    pub(super) wanted: Wanted,
    /// Libraries register memory that peers can map.
    pub(super) memfd: bool,
}

/// Which of its processes one is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// An end of a pair.
    Side(Side),
    /// A member of a group.
    Rank(usize),
}

impl Role {
    /// Its place among the cores.
    fn number(self) -> usize {
        match self {
            Self::Side(Side::Client) => 0,
            Self::Side(Side::Server) => 1,
            Self::Rank(rank) => rank,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Side(Side::Client) => f.write_str("client"),
            Self::Side(Side::Server) => f.write_str("server"),
            Self::Rank(rank) => write!(f, "rank {rank}"),
        }
    }
}

/// One process. It is stopped when this is dropped.
pub(super) struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    name: String,
    pub(super) address: Vec<u8>,
    /// The provider's full name.
    pub(super) provider: String,
    /// The interface version of its library.
    pub(super) api: String,
}

impl Process {
    /// Starts a process and waits until it is open.
    ///
    /// # Errors
    /// When it does not come so far, with its own words.
    pub(super) fn start(start: &Start<'_>, role: Role) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args([WORKER, "--provider", start.provider]);
        command.args(["--largest", &start.largest.to_string()]);
        match role {
            Role::Side(_) => command.args(["--side", &role.to_string()]),
            Role::Rank(rank) => command.args(["--rank", &rank.to_string()]),
        };
        if start.wanted == Wanted::Memory {
            command.arg("--rma");
        }
        if start.memfd && start.subject.path().is_some() {
            command.arg("--memfd");
        }
        if let Some(path) = start.subject.path() {
            command.arg("--lib").arg(path);
        }
        if let Some(core) = start.cores.get(role.number()) {
            command.args(["--core", &core.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a second process")?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("cannot talk to a second process");
        };
        let mut process = Self {
            child,
            orders,
            answers: BufReader::new(answers),
            name: format!("{role} of {}", start.subject),
            address: Vec::new(),
            provider: String::new(),
            api: String::new(),
        };
        match process.answer()? {
            Answer::Ready {
                address,
                provider,
                api,
            } => {
                process.address = address;
                process.provider = provider;
                process.api = api;
                Ok(process)
            }
            other => bail!("{}: unexpected {other:?}", process.name),
        }
    }

    /// Gives an order.
    ///
    /// # Errors
    /// For one that makes no line.
    pub(super) fn order(&mut self, order: &Order) -> Result<()> {
        let line = serde_json::to_string(order)?;
        // A process that is gone has said why, or says so by the end of its answers.
        let _ = writeln!(self.orders, "{line}").and_then(|()| self.orders.flush());
        Ok(())
    }

    /// Waits for the answer to the last order.
    ///
    /// # Errors
    /// Its own words, and how it ended.
    pub(super) fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.with_context(|| self.name.clone())? == 0 {
            let status = self.child.wait()?;
            bail!("{} ended without a word: {status}", self.name);
        }
        match serde_json::from_str(&line) {
            Ok(Answer::Failed(why)) => bail!("{}: {why}", self.name),
            Ok(Answer::Lacks(what)) => Err(Lacks(what).into()),
            Ok(answer) => Ok(answer),
            // Libraries should not write here, but what they say may help.
            Err(_) => bail!("{} printed {line:?}", self.name),
        }
    }

    /// What it said last, if it has ended with an error.
    pub(super) fn last_words(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(Some(_)) => self.answer().err().map(|error| format!("{error:#}")),
            _ => None,
        }
    }

    /// Inserts peers into an address vector: nanoseconds and bytes.
    ///
    /// # Errors
    /// Its own words.
    pub(super) fn insert(&mut self, count: u32) -> Result<(u64, u64)> {
        self.order(&Order::Insert(count))?;
        match self.answer()? {
            Answer::Inserted { nanos, bytes } => Ok((nanos, bytes)),
            other => bail!("{}: unexpected {other:?}", self.name),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be in the middle of a test that will not end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes of one subject that measure together.
pub(super) trait Crew {
    /// Any of them: all are alike.
    fn one(&self) -> &Process;
    /// Takes a sample: nanoseconds for all messages or operations.
    ///
    /// # Errors
    /// What any of them says, and how it ended.
    fn take(&mut self, test: Test) -> Result<u64>;
}

/// Two processes of one subject that know each other.
pub(super) struct Pair {
    client: Process,
    server: Process,
}

impl Pair {
    /// Starts both.
    ///
    /// # Errors
    /// What either says.
    pub(super) fn start(start: &Start<'_>) -> Result<Self> {
        let mut pair = Self {
            server: Process::start(start, Role::Side(Side::Server))?,
            client: Process::start(start, Role::Side(Side::Client))?,
        };
        pair.client
            .order(&Order::Peer(pair.server.address.clone()))?;
        pair.server
            .order(&Order::Peer(pair.client.address.clone()))?;
        for process in [&mut pair.client, &mut pair.server] {
            match process.answer()? {
                Answer::Introduced => {}
                other => bail!("{}: unexpected {other:?}", process.name),
            }
        }
        Ok(pair)
    }

    /// Hands a cache line over, `count` times there and back: nanoseconds for all.
    ///
    /// # Errors
    /// As for [`Crew::take`].
    pub(super) fn hand_over(&mut self, count: u32) -> Result<u64> {
        let name = format!("perf-{}", std::process::id());
        self.timed(&Order::HandOver { name, count })
    }

    /// What the client's side of an order for both took.
    fn timed(&mut self, order: &Order) -> Result<u64> {
        self.server.order(order)?;
        self.client.order(order)?;
        let client = self.client.answer();
        // The side that failed first knows why; the other one only waits in vain.
        let server = match &client {
            Ok(_) => self.server.answer(),
            Err(_) => return Err(self.blame(client)),
        };
        match (client?, server?) {
            (Answer::Took { nanos }, Answer::Took { .. }) => Ok(nanos),
            (client, server) => bail!("unexpected {client:?}, {server:?}"),
        }
    }

    /// The client's error, and the server's if it has ended too.
    fn blame(&mut self, client: Result<Answer>) -> anyhow::Error {
        let Err(error) = client else {
            return anyhow::anyhow!("no error");
        };
        match self.server.last_words() {
            Some(words) => error.context(words),
            None => error,
        }
    }
}

impl Crew for Pair {
    fn one(&self) -> &Process {
        &self.client
    }

    fn take(&mut self, test: Test) -> Result<u64> {
        self.timed(&Order::Run(test))
    }
}
