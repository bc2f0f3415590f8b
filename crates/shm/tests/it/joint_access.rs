//! Long reads and writes that their initiator and the owner of the memory copy together, and owners that are stopped or
//! killed meanwhile.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::other::{Other, tell_parent};
use crate::common::{End, PATIENCE, Safe, info_for, mr_attr, open, pattern, safe};
use ripstop_core::provider::{CompletionQueue as _, Domain as _, Endpoint as _, RmaCall, Sharing};
use ripstop_core::{Address, Info};
use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};
use ripstop_types::{Errno, FiAddr, Flags, Progress, RmaIov, Threading};

const OWNER: &str = "RIPSTOP_SHM_TEST_JOINT_OWNER";

/// The region of the owner.
const KEY: u64 = 5;
const LEN: usize = 5 << 20;

/// Where, and how long, what is written and read is.
const PLACES: [(usize, usize); 5] = [
    (0, 256 << 10),
    (4097, 4 << 20),
    (0, LEN),
    (77, (1 << 20) + 1),
    (LEN - 300_001, 300_001),
];

/// Exchanges of one connection.
const EXCHANGES: usize = 100;

/// How long a killed owner may take to be noticed.
const GONE: Duration = Duration::from_secs(2);

fn wanted() -> Info {
    let caps = Flags::MSG | Flags::RMA;
    info_for(caps, None, Threading::Safe, Progress::Manual)
}

/// What the owner runs; in this process it does nothing. It polls until the parent has gone.
#[test]
fn subprocess_owner() {
    if std::env::var(OWNER).is_err() {
        return;
    }
    let info = wanted();
    let domain = safe(&info);
    let end = open(&domain, &info);
    let memory = Parked::park(vec![0; LEN]);
    let both = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
    let attr = mr_attr(memory.buf(), KEY, both, Sharing::Never);
    let _mr = domain.mr(&attr).unwrap();
    tell_parent(end.name());
    std::thread::spawn(|| {
        std::io::stdin().lines().for_each(drop);
        std::process::exit(0);
    });
    loop {
        let _ = end.cq.read(1, |_| ());
    }
}

/// An initiator, and its owner.
struct Two {
    end: End<Safe>,
    to: FiAddr,
    owner: Other,
    domain: Arc<Safe>,
    /// What is written, and where it is read to.
    buffer: Parked,
    /// Exchanges so far.
    count: usize,
    /// The longest call.
    longest: Duration,
}

/// What has become of an operation.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed,
    /// It hangs, with its buffer.
    Waits,
}

impl Two {
    fn new() -> Self {
        let info = wanted();
        let domain = safe(&info);
        let end = open(&domain, &info);
        let owner = Other::start("joint_access::subprocess_owner", &[(OWNER, "")]);
        let to = end.knows(&Address::Str(owner.hear()));
        Self {
            end,
            to,
            owner,
            domain,
            buffer: Parked::park(vec![0; LEN]),
            count: 0,
            longest: Duration::ZERO,
        }
    }

    /// Posts a read or write of the whole buffer.
    fn post(&mut self, write: bool, at: usize, buffer: UserBuf) -> Result<(), Errno> {
        let remote = [RmaIov {
            addr: at as u64,
            len: buffer.len() as u64,
            key: KEY,
        }];
        let call = RmaCall {
            remote: &remote,
            peer: self.to,
            data: None,
            context: 1,
            flags: Some(Flags::COMPLETION),
        };
        let stop = Instant::now() + PATIENCE;
        loop {
            let began = Instant::now();
            let posted = match write {
                true => self.end.ep.write(&[buffer], &call),
                false => self.end.ep.read(&[buffer], &call),
            };
            self.longest = self.longest.max(began.elapsed());
            if posted != Err(Errno::EAGAIN) || Instant::now() > stop {
                return posted;
            }
            let _ = self.end.cq.read(0, |_| ());
        }
    }

    /// What becomes of what was posted in that time.
    fn outcome(&self, patience: Duration) -> Outcome {
        let stop = Instant::now() + patience;
        loop {
            match self.end.cq.read(1, |_| ()) {
                Ok(_) => return Outcome::Done,
                Err(Errno::EAGAIN) if Instant::now() < stop => {}
                Err(Errno::EAGAIN) => return Outcome::Waits,
                Err(_) => {
                    self.end.fails();
                    return Outcome::Failed;
                }
            }
        }
    }

    /// The part of the buffer that is used for so many bytes.
    fn buf(&self, len: usize) -> UserBuf {
        self.buffer.buf().first(len)
    }

    /// Writes to the next place, changes the buffer as soon as it may, and reads what was written.
    fn exchange(&mut self, patience: Duration) -> Outcome {
        let (at, len) = PLACES[self.count % PLACES.len()];
        self.count += 1;
        copy_out(self.buf(len), &pattern(len, self.count));
        for write in [true, false] {
            if self.post(write, at, self.buf(len)).is_err() {
                return Outcome::Failed;
            }
            match self.outcome(patience) {
                Outcome::Done if write => copy_out(self.buf(len), &vec![0xee; len]),
                Outcome::Done => self.check(at, len, self.count),
                other => return other,
            };
        }
        Outcome::Done
    }

    /// The buffer has what was written.
    fn check(&self, at: usize, len: usize, seed: usize) -> usize {
        let mut found = vec![0; len];
        copy_in(&mut found, self.buf(len));
        let differs = found
            .iter()
            .zip(pattern(len, seed))
            .position(|(found, want)| *found != want);
        assert_eq!(differs, None, "of {len} bytes at {at}");
        len
    }
}

/// An owner that polls copies a part of what is read and written.
#[test]
fn both_sides_copy_reads_and_writes() {
    if std::thread::available_parallelism().unwrap().get() == 1 {
        println!("SKIP: with one processor the initiator copies alone");
        return;
    }
    // Where others want the processors, each side copies alone what comes meanwhile; and a connection that has found the
    // ring faster then seldom looks again.
    let (stop, mut joint) = (Instant::now() + PATIENCE, 0);
    while joint == 0 {
        assert!(
            Instant::now() < stop,
            "the owner has copied no part of any operation"
        );
        let mut two = Two::new();
        for _ in 0..EXCHANGES {
            assert_eq!(two.exchange(PATIENCE), Outcome::Done);
        }
        let copies = two.domain.copies().unwrap();
        assert!(copies.joint <= copies.attach.payloads, "{copies}");
        joint = copies.joint;
    }
}

#[test]
fn reads_and_writes_end_when_their_owner_is_killed() {
    for run in 0..8 {
        let mut two = Two::new();
        let kill_at = Instant::now() + Duration::from_millis(20 + 7 * run);
        while Instant::now() < kill_at {
            assert_eq!(two.exchange(PATIENCE), Outcome::Done);
        }
        two.owner.kill();
        let stop = Instant::now() + GONE;
        loop {
            let outcome = two.exchange(GONE);
            if outcome == Outcome::Failed {
                break;
            }
            assert_eq!(outcome, Outcome::Done, "an operation hangs");
            assert!(Instant::now() < stop, "memory of a dead process is written");
        }
    }
}

/// An owner that is stopped in the middle of whatever it does holds up no call for long, and nothing is lost: what it
/// goes on with later is no other memory.
#[test]
fn an_owner_that_is_stopped_goes_on_later() {
    let mut two = Two::new();
    let owner = two.owner.id();
    let stops = std::thread::spawn(move || {
        for run in 0..40_u64 {
            std::thread::sleep(Duration::from_micros(3000 + 177 * run));
            for (what, millis) in [("-STOP", 10), ("-CONT", 0)] {
                let kill = Command::new("kill").args([what, &owner]).status();
                assert!(kill.unwrap().success());
                std::thread::sleep(Duration::from_millis(millis));
            }
        }
    });
    while !stops.is_finished() {
        assert_eq!(two.exchange(PATIENCE), Outcome::Done);
    }
    stops.join().unwrap();
    assert!(
        two.longest < Duration::from_secs(1),
        "a call took {:?}",
        two.longest
    );
}
