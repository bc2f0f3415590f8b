//! C programs whose ordinary memory is reached by its address, while they do nothing.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

#[path = "../c/mod.rs"]
mod c;
mod joint;

use core::fmt::Display;
use core::ptr;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use c::side::*;
use c::*;
use ripstop_abi::*;

const ROLE: &str = "RIPSTOP_ATTACHED_ROLE";

/// What a line of the target begins with, among those of the tests.
const SAYS: &str = "target says ";

/// The first bytes that are reached so, and those of the region.
const SHORTEST: usize = 4 << 10;

/// What the target runs; in the process of the tests it does nothing. Between two commands it
/// waits for the next, and makes no progress.
#[test]
fn subprocess_target() {
    let Ok(mr_mode) = std::env::var(ROLE) else {
        return;
    };
    let side = Side::open(mr_mode.parse().unwrap());
    let memory = Memory::anonymous();
    let region = side.register(&memory, REMOTE, 3);
    say(introduction(&side, region));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let answer = match line.as_str() {
            "progress" => {
                for _ in 0..2000 {
                    side.poll();
                }
                String::new()
            }
            "sum" => sum(&memory.bytes(0, LEN)).to_string(),
            other => panic!("no command {other}"),
        };
        say(answer);
    }
    assert_eq!(close(region.mr), 0);
}

/// What a target says: a line for [`Target::answer`].
fn say(what: impl Display) {
    // What the test harness prints has no end of line yet.
    println!("\n{SAYS}{what}");
}

/// The address of an endpoint and its region, for [`introduced`].
fn introduction(side: &Side, region: Region) -> String {
    let name = String::from_utf8(side.name()).unwrap();
    let name = name.trim_end_matches('\0');
    format!("{name} {} {}", region.key, region.base)
}

/// What the peer needs of that.
fn introduced(said: &str) -> (Vec<u8>, Region) {
    let mut words = said.split(' ');
    let mut word = || words.next().unwrap();
    let mut name = word().as_bytes().to_vec();
    name.push(0);
    let region = Region {
        mr: ptr::null_mut(),
        key: word().parse().unwrap(),
        base: word().parse().unwrap(),
    };
    (name, region)
}

/// Of bytes and their places.
fn sum(bytes: &[u8]) -> u64 {
    let places = 1..;
    let terms = bytes.iter().zip(places).map(|(b, at)| u64::from(*b) * at);
    terms.fold(0, u64::wrapping_add)
}

/// One test of this program in a process of its own.
fn subprocess(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command
}

struct Target {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    killed: bool,
}

impl Target {
    /// Returns its address and region as well.
    fn start(mr_mode: i32, variable: Option<(&str, &str)>) -> (Self, Vec<u8>, Region) {
        let mut command = subprocess("subprocess_target");
        let mut target = Self::run(command.env(ROLE, mr_mode.to_string()).envs(variable));
        let (name, region) = introduced(&target.answer());
        (target, name, region)
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            stdin,
            lines,
            killed: false,
        }
    }

    fn answer(&mut self) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        let said = lines.find_map(|line| line.strip_prefix(SAYS).map(str::to_owned));
        said.expect("a target that says something")
    }

    fn tell(&mut self, command: &str) -> String {
        self.order(command);
        self.answer()
    }

    /// Does not wait for an answer.
    fn order(&self, command: &str) {
        writeln!(self.stdin.as_ref().unwrap(), "{command}").unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.killed = true;
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stdin = None;
        let done = self.child.wait().unwrap();
        assert!(done.success() || self.killed || std::thread::panicking());
    }
}

/// A side that writes and reads, and what it knows of the target.
struct Initiator {
    side: Side,
    to: fi_addr_t,
    region: Region,
    target: Target,
}

impl Initiator {
    /// The target has been asked for its region, and has applied all.
    fn new(mr_mode: i32, variable: Option<(&str, &str)>) -> Self {
        let (target, name, region) = Target::start(mr_mode, variable);
        let side = Side::open(mr_mode);
        let to = insert(side.av, &name);
        let mut it = Self {
            side,
            to,
            region,
            target,
        };
        // What is written first is never written by its address.
        for len in [8, SHORTEST, SHORTEST] {
            it.write(0, &vec![0; len]);
            it.settle(1);
        }
        it
    }

    fn write(&self, at: usize, text: &[u8]) {
        self.side.write(self.to, self.region, at as u64, text);
    }

    fn read(&self, at: usize, room: &mut [u8]) {
        self.side.read(self.to, self.region, at as u64, room);
    }

    /// Both make progress until so many operations are done, and nothing is left to be told.
    fn settle(&mut self, count: usize) {
        let mut done = 0;
        until("operations", || {
            self.target.tell("progress");
            for _ in 0..1000 {
                done += usize::from(self.side.poll().is_some_and(|done| done == Ok(7)));
            }
            (done == count).then_some(())
        });
        self.target.tell("progress");
        for _ in 0..1000 {
            assert_eq!(self.side.poll(), None);
        }
    }

    /// Whether the operation is done though the target sleeps.
    fn is_alone(&self) -> bool {
        (0..1000).any(|_| match self.side.poll() {
            Some(done) => {
                assert_eq!(done, Ok(7));
                true
            }
            None => false,
        })
    }
}

fn text(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (((i + seed) * 31) >> 3) as u8).collect()
}

#[test]
fn ordinary_memory_is_reached_while_its_owner_sleeps() {
    let usual = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    for mr_mode in [0, FI_MR_ALLOCATED, usual, FI_MR_BASIC] {
        let mut it = Initiator::new(mr_mode, None);
        let mut expected = vec![0; LEN];
        for (at, len) in [
            (0, SHORTEST),
            (4097, 70_001),
            (0, LEN),
            (LEN - SHORTEST, SHORTEST),
        ] {
            let given = text(len, at + len);
            it.write(at, &given);
            assert!(it.is_alone(), "{mr_mode:#x}: {len} bytes to {at}");
            expected[at..at + len].copy_from_slice(&given);
            let mut room = vec![0; len];
            it.read(at, &mut room);
            assert!(it.is_alone(), "{mr_mode:#x}: {len} bytes from {at}");
            assert!(room == given);
        }
        assert_eq!(it.target.tell("sum"), sum(&expected).to_string());
        // Less than is worth a system call, with what comes behind it.
        it.write(5, &[1; SHORTEST - 1]);
        it.write(9, &[2; SHORTEST]);
        assert!(!it.is_alone());
        it.settle(2);
        expected[5..5 + SHORTEST - 1].fill(1);
        expected[9..9 + SHORTEST].fill(2);
        assert_eq!(it.target.tell("sum"), sum(&expected).to_string());
    }
}

/// Bounds are the same there as by the ring, and end nothing.
#[test]
fn what_is_not_in_the_region_is_refused() {
    let mut it = Initiator::new(0, None);
    it.write(LEN - SHORTEST + 1, &[1; SHORTEST]);
    assert!(!it.is_alone());
    let failed = until("a failure", || {
        it.target.tell("progress");
        it.side.poll()
    });
    assert!(failed.is_err());
    assert_eq!(it.target.tell("sum"), "0");
    it.write(0, &[1; SHORTEST]);
    assert!(it.is_alone());
}

#[test]
fn who_does_not_want_it_is_not_reached_so() {
    let variable = Some(("FI_SHM_DISABLE_CMA", "1"));
    let mut it = Initiator::new(0, variable);
    it.write(0, &[1; SHORTEST]);
    assert!(!it.is_alone());
    it.settle(1);
}
