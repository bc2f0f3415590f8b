//! A group of processes under [load](super::load), as whoever starts and kills them sees it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::load::{MEMBERS, Setup};

/// Longest time that any answer may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process of a group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(super) child: Child,
    says: Receiver<String>,
    pub(crate) incarnation: u32,
}

/// The processes of a group; they are killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Group {
    /// The path of the test that a process of the group runs.
    entry: String,
    pub(crate) name: String,
    seed: u64,
    pub(super) hostile: Option<usize>,
    /// Where log lines go.
    log: Option<std::fs::File>,
    /// Parameters of the provider.
    pub(super) params: Vec<(String, String)>,
    pub(crate) members: [Option<Member>; MEMBERS],
    lives: u32,
    /// The longest time that a death has taken to be noticed, in milliseconds each.
    pub(crate) noticed: Vec<u64>,
}

impl Group {
    pub(crate) fn new(entry: &str, name: String, seed: u64) -> Self {
        Self {
            entry: entry.to_owned(),
            name,
            seed,
            hostile: None,
            log: None,
            params: Vec::new(),
            members: [const { None }; MEMBERS],
            lives: 0,
            noticed: Vec::new(),
        }
    }

    /// Log lines of the members go there.
    pub(crate) fn with_log(mut self, log: std::fs::File) -> Self {
        self.log = Some(log);
        self
    }

    /// Starts a member; it and those that live know each other. Returns once it is open.
    pub(crate) fn start(&mut self, own: usize) {
        self.lives += 1;
        let setup = Setup {
            group: self.name.clone(),
            own,
            incarnation: self.lives,
            seed: self.seed,
            hostile: self.hostile,
        };
        let (key, value) = setup.to_env();
        let errors = match &self.log {
            Some(log) => log.try_clone().unwrap().into(),
            None => Stdio::null(),
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &self.entry, "--nocapture", "--test-threads=1"])
            .env(key, value)
            .envs(self.params.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, says) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        self.members[own] = Some(Member {
            child,
            says,
            incarnation: self.lives,
        });
        self.hear(own, "open");
        let incarnation = self.lives;
        for other in (0..MEMBERS).filter(|other| *other != own) {
            if let Some(member) = &self.members[other] {
                let life = member.incarnation;
                self.tell(other, &format!("alive {own} {incarnation}"));
                self.tell(own, &format!("alive {other} {life}"));
            }
        }
    }

    /// The members that live.
    pub(crate) fn living(&self) -> Vec<usize> {
        let lives = |member: &usize| self.members[*member].is_some();
        (0..MEMBERS).filter(lives).collect()
    }

    pub(crate) fn tell(&mut self, own: usize, line: &str) {
        let member = self.members[own].as_mut().expect("a member that lives");
        let input = member.child.stdin.as_mut().unwrap();
        if writeln!(input, "{line}").is_err() {
            self.hear(own, "an end by command");
        }
    }

    /// Waits until a member says something that begins like this; returns the rest.
    pub(crate) fn hear(&mut self, own: usize, what: &str) -> String {
        let member = self.members[own].as_mut().expect("a member that lives");
        let stop = Instant::now() + PATIENCE;
        loop {
            let left = stop.saturating_duration_since(Instant::now());
            match member.says.recv_timeout(left) {
                Ok(line) if line.starts_with("wrong") => panic!("member {own}: {line}"),
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(what) {
                        return rest.trim().to_owned();
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("member {own} does not say: {what}"),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = member.child.wait().unwrap();
                    panic!("member {own} has ended, {status}, in place of: {what}");
                }
            }
        }
    }

    /// Waits until these have each exchanged so many messages more.
    pub(crate) fn exchange(&mut self, near: usize, far: usize, count: u32) {
        for (own, peer) in [(near, far), (far, near)] {
            self.tell(own, &format!("more {peer} {count}"));
        }
        for (own, peer) in [(near, far), (far, near)] {
            self.hear(own, &format!("more {peer}"));
        }
    }

    /// All end by themselves.
    pub(crate) fn end(mut self) -> Vec<u64> {
        let living = self.living();
        for (command, answer) in [("rest", "resting"), ("end", "ended")] {
            for own in &living {
                self.tell(*own, command);
            }
            for own in &living {
                self.hear(*own, answer);
            }
        }
        for own in living {
            let mut member = self.members[own].take().expect("a member that lives");
            drop(member.child.stdin.take());
            let status = member.child.wait().unwrap();
            assert!(status.success(), "member {own}: {status}");
        }
        std::mem::take(&mut self.noticed)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for member in self.members.iter_mut().flatten() {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}
