//! Reads and writes of 64 KiB and more, of which initiator and owner each copy a part, between two processes that are
//! both. The log of each says at the end of a connection how many payloads took which way.

use std::io::{BufRead as _, Read as _};
use std::process::Stdio;
use std::sync::mpsc::{TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ripstop_abi::fi_addr_t;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::c::side::{Memory, REMOTE, Region, Side};
use super::c::{PATIENCE, close, insert, until};
use super::{Target, introduced, introduction, say, subprocess, sum, text};

/// Whether the peer may reach the memory of a process (`open`) or not (`secret`).
const ROLE: &str = "RIPSTOP_JOINT_ROLE";

/// Bytes of a region.
const LEN: usize = (4 << 20) + 70_001;

/// Where, and how long, what is written and read is. The last is too short for the owner to help.
const PLACES: [(usize, usize); 8] = [
    (0, 64 << 10),
    (1, (64 << 10) + 1),
    (4097, 1 << 20),
    (77, (256 << 10) - 1),
    (70_001, 4 << 20),
    (13, (4 << 20) - 4095),
    (LEN - 300_001, 300_001),
    (3, (64 << 10) - 1),
];

/// Writes of a process in one go, each of which it reads back: all places several times, or once where they go through
/// the ring, which takes long where others want the processors.
const MANY: usize = 5 * PLACES.len();
const FEW: usize = PLACES.len();

/// An owner that polls now and then: so many polls, and so much time.
const POLLS: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);

/// How long a killed owner may take to be noticed.
const GONE: Duration = Duration::from_secs(3);

/// One of the two processes.
struct Member {
    side: Side,
    memory: Memory,
    region: Region,
    /// The other one, and its region.
    peer: Option<(fi_addr_t, Region)>,
    /// What is written, and where it is read to.
    buffer: Vec<u8>,
    /// What the region of the peer has.
    written: Vec<u8>,
    /// Exchanges so far.
    count: usize,
}

impl Member {
    fn open() -> Self {
        let side = Side::open(0);
        let memory = Memory::anonymous_of(LEN);
        Self {
            region: side.register(&memory, REMOTE, 3),
            side,
            memory,
            peer: None,
            buffer: vec![0; LEN],
            written: vec![0; LEN],
            count: 0,
        }
    }

    /// Writes to the next place, changes the buffer as soon as it may, and reads what was written; the error of what
    /// failed.
    fn exchange(&mut self) -> Result<(), i32> {
        let (to, region) = self.peer.unwrap();
        let (at, len) = PLACES[self.count % PLACES.len()];
        self.count += 1;
        let given = text(len, self.count);
        let buffer = &mut self.buffer[..len];
        buffer.copy_from_slice(&given);
        self.side.write(to, region, at as u64, buffer);
        until("the write", || self.side.poll())?;
        self.written[at..at + len].copy_from_slice(&given);
        buffer.fill(0xee);
        self.side.read(to, region, at as u64, buffer);
        until("the read", || self.side.poll())?;
        assert!(*buffer == *given, "{len} bytes at {at}");
        Ok(())
    }

    /// The answer to a command, if it has one.
    fn obey(&mut self, command: &str) -> Option<String> {
        match command.split_once(' ') {
            Some(("meet", said)) => {
                let (name, region) = introduced(said);
                self.peer = Some((insert(self.side.av, &name), region));
                None
            }
            Some(("exchange", count)) => {
                let count = count.parse().unwrap();
                let failed = (0..count).find_map(|_: usize| self.exchange().err());
                Some(match failed {
                    Some(_) => "failed".to_owned(),
                    None => sum(&self.written).to_string(),
                })
            }
            _ if command == "sum" => Some(sum(&self.memory.bytes(0, LEN)).to_string()),
            _ => panic!("no command {command}"),
        }
    }
}

/// What each of the two runs; in the process of the tests it does nothing. Between two commands it polls, all the time
/// or now and then.
#[test]
fn subprocess_member() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // Whoever may trace all may reach all.
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::SYS_PTRACE);
    set_capabilities(None, sets).unwrap();
    if role == "secret" {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
    }
    let mut member = Member::open();
    say(introduction(&member.side, member.region));
    let (order, orders) = channel();
    std::thread::spawn(move || {
        let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
        lines.all(|line| order.send(line).is_ok())
    });
    let mut pauses = false;
    loop {
        match orders.try_recv().as_deref() {
            Ok("pause") => pauses = true,
            Ok(command) => {
                if let Some(answer) = member.obey(command) {
                    say(answer);
                }
            }
            Err(TryRecvError::Empty) => {
                for _ in 0..POLLS {
                    assert_eq!(member.side.poll(), None);
                }
                if pauses {
                    std::thread::sleep(PAUSE);
                }
            }
            Err(TryRecvError::Disconnected) => break,
        }
    }
    assert_eq!(close(member.region.mr), 0);
}

/// The payloads of a process, by the way that they took.
#[derive(Debug, Default)]
struct Ways {
    ring: u64,
    attach: u64,
    /// How many of those by attach both sides copied.
    joint: u64,
    /// Connections on which attach is refused.
    refused: u64,
}

impl Ways {
    /// As the log says when the domain closes, if there were any.
    fn of(log: &str) -> Self {
        const REFUSED: &str = "; connections on which attach is refused: ";
        let mut lines = log.lines();
        let Some(line) = lines.find(|line| line.contains(REFUSED)) else {
            return Self::default();
        };
        let number = |text: &str| text.split(' ').next().unwrap().parse().expect(line);
        // The number that is said to be `what`.
        let count = |what: &str| {
            let (before, _) = line.split_once(what).expect(line);
            let (_, said) = before.rsplit_once([',', ':']).expect(line);
            number(said.trim_start())
        };
        Self {
            ring: count(" were sent through the ring"),
            attach: count(" were copied by cross-memory attach"),
            joint: count(" of them by both sides"),
            refused: number(line.split_once(REFUSED).unwrap().1),
        }
    }
}

/// The two processes.
struct Two {
    near: Target,
    far: Target,
    logs: [JoinHandle<String>; 2],
}

impl Two {
    fn start(copy: &str, [near, far]: [&str; 2]) -> Self {
        let run = |role: &str| {
            let mut command = subprocess("joint::subprocess_member");
            command.env(ROLE, role).env("FI_SHM_COPY", copy);
            command.env("FI_LOG_LEVEL", "info").stderr(Stdio::piped());
            let mut member = Target::run(&mut command);
            let mut errors = member.child.stderr.take().unwrap();
            let log = std::thread::spawn(move || {
                let mut log = String::new();
                errors.read_to_string(&mut log).unwrap();
                log
            });
            (member, log)
        };
        let ((mut near, near_log), (mut far, far_log)) = (run(near), run(far));
        let said = [near.answer(), far.answer()];
        near.order(&format!("meet {}", said[1]));
        far.order(&format!("meet {}", said[0]));
        Self {
            near,
            far,
            logs: [near_log, far_log],
        }
    }

    /// The near one writes and reads so often, and the far one too if `both`. Each region has what its peer wrote.
    fn exchange(&mut self, count: usize, both: bool) {
        let command = format!("exchange {count}");
        self.near.order(&command);
        if both {
            self.far.order(&command);
            let written = self.far.answer();
            assert_eq!(self.near.answer(), self.far.tell("sum"));
            assert_eq!(self.near.tell("sum"), written);
        } else {
            assert_eq!(self.near.answer(), self.far.tell("sum"));
        }
    }

    /// Ends both; the logs of the near one and the far one.
    fn end(self) -> [String; 2] {
        drop((self.near, self.far));
        self.logs.map(|log| log.join().unwrap())
    }
}

/// Each may reach the memory of the other.
const OPEN: [&str; 2] = ["open"; 2];

/// Whether an owner can help; else it says so.
fn may_help() -> bool {
    let processors = std::thread::available_parallelism().unwrap().get();
    if processors == 1 {
        println!("SKIP: with one processor the initiator copies alone");
    }
    processors > 1
}

/// Exchanges between new processes until both have copied some of what the near one writes and reads. Where others want
/// the processors, each side copies alone what comes meanwhile.
fn until_joint(copy: &str, exchange: impl Fn(&mut Two)) {
    let stop = Instant::now() + PATIENCE;
    loop {
        let mut two = Two::start(copy, OPEN);
        exchange(&mut two);
        let [near, _] = two.end();
        let ways = Ways::of(&near);
        assert!(ways.joint <= ways.attach && ways.refused == 0, "{ways:?}");
        if ways.joint > 0 {
            return;
        }
        assert!(Instant::now() < stop, "FI_SHM_COPY={copy}: {ways:?}");
    }
}

#[test]
fn an_owner_that_polls_copies_a_part() {
    for copy in ["attach", "auto"] {
        if may_help() {
            until_joint(copy, |two| two.exchange(MANY, false));
        }
    }
}

#[test]
fn both_copy_while_both_write_and_read() {
    for copy in ["attach", "auto"] {
        if may_help() {
            until_joint(copy, |two| two.exchange(MANY, true));
        }
    }
}

#[test]
fn an_owner_that_polls_now_and_then_copies_what_it_comes_to() {
    if may_help() {
        until_joint("attach", |two| {
            two.far.order("pause");
            two.exchange(MANY, false);
        });
    }
}

/// With `FI_SHM_COPY=ring` it goes another way only while the owner does not poll.
#[test]
fn the_ring_carries_what_is_to_go_there() {
    let mut two = Two::start("ring", OPEN);
    two.exchange(FEW, false);
    for log in two.end() {
        let ways = Ways::of(&log);
        assert!(ways.ring > 0 && ways.refused == 0, "{ways:?}");
    }
}

/// An initiator that may not reach its owner uses the ring; an owner that may not reach its initiator does not help.
#[test]
fn who_is_refused_copies_nothing() {
    for (copy, roles) in [
        ("auto", ["open", "secret"]),
        ("auto", ["secret"; 2]),
        ("ring", ["open", "secret"]),
        ("attach", ["open", "secret"]),
    ] {
        let mut two = Two::start(copy, roles);
        two.exchange(FEW, true);
        let logs = two.end();
        for (log, peer) in [(&logs[0], roles[1]), (&logs[1], roles[0])] {
            let (ways, refused) = (Ways::of(log), u64::from(peer == "secret"));
            let found = (ways.joint, ways.refused);
            assert_eq!(found, (0, refused), "{copy}, {roles:?}");
            assert!(refused == 0 || ways.attach == 0, "{copy}, {roles:?}");
            let lines = log.matches("Cross-memory attach needs").count() as u64;
            assert_eq!(lines, refused, "{log}");
        }
    }
}

/// One of the two is killed in the middle of whatever it does. What waits for an owner fails soon; an owner goes on.
#[test]
fn who_is_killed_holds_up_nobody() {
    let (stop, mut joint, mut run) = (Instant::now() + PATIENCE, 0, 0);
    let helps = may_help();
    while run < 16 || helps && joint == 0 {
        assert!(Instant::now() < stop, "no owner has helped");
        let mut two = Two::start("attach", OPEN);
        two.near.order("exchange 1000000");
        std::thread::sleep(Duration::from_millis(20 + 7 * (run % 8)));
        let killed = Instant::now();
        if run % 2 == 0 {
            two.far.kill();
            assert_eq!(two.near.answer(), "failed");
            let took = killed.elapsed();
            assert!(took < GONE, "{took:?}");
            joint += Ways::of(&two.end()[0]).joint;
        } else {
            two.near.kill();
            two.far.tell("sum");
            two.end();
        }
        run += 1;
    }
}
