//! Cross-memory attach: regions of another process are accessed by address while that process sleeps.

use std::io::BufRead as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::other::{Other, tell_parent};
use crate::common::{self, End, Safe, bytes, info_for, mr_attr, open, pattern, safe};
use crate::freed;
use ripstop_core::provider::{CompletionQueue as _, Domain as _, Endpoint as _, RmaCall, Sharing};
use ripstop_core::{Address, Info};
use ripstop_mem::{Parked, UserBuf, copy_in};
use ripstop_os::SharedBuf;
use ripstop_types::{Errno, FiAddr, Flags, Progress, RmaIov, Threading};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const ROLE: &str = "RIPSTOP_SHM_TEST_ATTACH";

/// Regions of the target: for all, only to be written, and one that is unmapped before it is
/// closed.
const KEY: u64 = 9;
const WRITTEN: u64 = 10;
const UNMAPPED: u64 = 11;

const LEN: usize = 3 << 20;

/// The shortest that is reached by its address, and one that is, in several pieces, too.
const SHORTEST: usize = 4 << 10;
const LARGE: usize = 8 << 10;

fn wanted() -> Info {
    let caps = Flags::MSG | Flags::RMA;
    info_for(caps, None, Threading::Safe, Progress::Manual)
}

fn region(domain: &Arc<Safe>, memory: UserBuf, key: u64, access: Flags) -> Arc<Mr> {
    let attr = mr_attr(memory, key, access, Sharing::Never);
    domain.mr(&attr).unwrap()
}

type Mr = <Safe as ripstop_core::provider::Domain>::Mr;

/// What the target runs; in the process of the tests it does nothing. It makes progress only while
/// it is told to.
#[test]
fn subprocess_target() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    if role == "secret" {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
    }
    let info = wanted();
    let domain = safe(&info);
    let end = open(&domain, &info);
    let both = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
    let memory = Parked::park(vec![0; LEN]);
    let mut mr = Some(region(&domain, memory.buf(), KEY, both));
    let other = Parked::park(vec![0; LEN]);
    let written = region(&domain, other.buf(), WRITTEN, Flags::REMOTE_WRITE);
    let mut gone = Some(SharedBuf::zeroed(LEN).unwrap());
    let lost = region(&domain, gone.as_ref().unwrap().buf(), UNMAPPED, both);
    let mut room = Parked::park(vec![0; LEN]);
    tell_parent(end.name());
    let said = std::io::stdin().lock().lines().map_while(Result::ok);
    let mut received = 0;
    end.post(&room);
    for line in said {
        let (what, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: u64 = number.parse().unwrap();
        let mut answer = String::new();
        match what {
            // For so many microseconds, and to the end of what has come.
            "progress" => {
                let stop = Instant::now() + Duration::from_micros(number);
                let mut polls = 0;
                while polls < 1000 || Instant::now() < stop {
                    polls += 1;
                    if end.cq.read(1, |_| ()).is_ok() {
                        received += 1;
                        bytes(std::mem::replace(&mut room, Parked::park(vec![0; LEN])));
                        end.post(&room);
                    }
                }
                answer = received.to_string();
            }
            "sum" => {
                let mut found = vec![0; LEN];
                copy_in(
                    &mut found,
                    if number == KEY {
                        memory.buf()
                    } else {
                        other.buf()
                    },
                );
                answer = sum(&found).to_string();
            }
            "close" => drop(mr.take()),
            "open" => mr = Some(region(&domain, memory.buf(), KEY, both)),
            // Without a word to the domain: what comes by the ring is not to be looked at any more.
            "unmap" => gone.take().into_iter().for_each(freed::free),
            other => panic!("no command {other}"),
        }
        tell_parent(answer);
    }
    drop((mr, written, lost));
    drop(end);
    [memory, other, room]
        .into_iter()
        .for_each(|parked| drop(bytes(parked)));
}

/// Of bytes and their places.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum: u64, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    })
}

struct Two {
    near: End<Safe>,
    to: FiAddr,
    target: Other,
}

impl Two {
    /// A target that knows of this end, and has applied all there was.
    fn new(role: &str) -> Self {
        let info = wanted();
        let near = open(&safe(&info), &info);
        let target = Other::start("attach::subprocess_target", &[(ROLE, role)]);
        let to = near.knows(&Address::Str(target.hear()));
        let mut two = Self { near, to, target };
        // The connection, and what both ask and say of each other.
        let text = Parked::park(vec![1; 8]);
        two.near.send(&text, two.to).unwrap();
        two.settle(1);
        drop(bytes(text));
        two
    }

    /// What the target has to say to a command.
    fn tell(&mut self, command: &str) -> String {
        self.target.tell(command);
        self.target.hear()
    }

    fn sum(&mut self, key: u64) -> u64 {
        self.tell(&format!("sum {key}")).parse().unwrap()
    }

    /// Both make progress, until so many operations here are done and there is nothing left to tell.
    fn settle(&mut self, mut count: usize) {
        let stop = Instant::now() + common::PATIENCE;
        let mut rounds = 0;
        while count > 0 || rounds < 3 {
            self.tell("progress 200");
            let rest = Instant::now() + Duration::from_micros(200);
            let mut polls = 0;
            while polls < 1000 || Instant::now() < rest {
                polls += 1;
                count -= self.near.cq.read(count, |_| ()).unwrap_or(0);
            }
            rounds += 1;
            assert!(Instant::now() < stop, "{count} are still to come");
        }
    }

    /// The target offers a region, after it was asked by an operation there.
    fn asked(key: u64) -> Self {
        let mut two = Self::new("target");
        let text = Parked::park(vec![0; LARGE]);
        two.write(&text, 0, key);
        two.settle(1);
        drop(bytes(text));
        two
    }

    fn write(&self, text: &Parked, at: usize, key: u64) {
        let place = [place(at, text.buf().len(), key)];
        let delivered = Flags::DELIVERY_COMPLETE | Flags::COMPLETION;
        let call = self.call(&place, delivered);
        self.near.ep.write(&[text.buf()], &call).unwrap();
    }

    const fn call<'a>(&self, remote: &'a [RmaIov], flags: Flags) -> RmaCall<'a> {
        RmaCall {
            remote,
            peer: self.to,
            data: None,
            context: 7,
            flags: Some(flags),
        }
    }

    /// Completions that are there without the target.
    fn alone(&self) -> usize {
        let mut count = 0;
        for _ in 0..300 {
            count += self.near.cq.read(8, |_| ()).unwrap_or(0);
        }
        count
    }

    /// How the next operation fails.
    fn refused(&mut self) -> Errno {
        let stop = Instant::now() + common::PATIENCE;
        loop {
            self.tell("progress 200");
            match self.near.cq.read(1, |_| ()) {
                Err(Errno::EAVAIL) => break,
                other => assert_eq!(other, Err(Errno::EAGAIN)),
            }
            assert!(Instant::now() < stop, "not refused");
        }
        let mut found = None;
        let read = self.near.cq.read_error(|error, _| found = Some(error.err));
        read.unwrap();
        self.settle(0);
        found.unwrap()
    }
}

const fn place(at: usize, len: usize, key: u64) -> RmaIov {
    RmaIov {
        addr: at as u64,
        len: len as u64,
        key,
    }
}

#[test]
fn sleeping_target_is_accessed_by_address() {
    let mut two = Two::asked(KEY);
    let mut want = vec![0; LEN];
    for (at, len) in [(0, LARGE), (4095, 100_000), (0, LEN), (LEN - LARGE, LARGE)] {
        let text = Parked::park(pattern(len, at + 1));
        two.write(&text, at, KEY);
        assert_eq!(two.alone(), 1, "{len} bytes are written at once");
        want[at..at + len].copy_from_slice(&bytes(text));
        assert_eq!(two.sum(KEY), sum(&want), "{len} bytes at {at}");
        let parts = [1, 4096, len - 5000, 903].map(|len| Parked::park(vec![0; len]));
        let iov = parts.each_ref().map(Parked::buf);
        let from = [place(at, len, KEY)];
        let call = two.call(&from, Flags::COMPLETION);
        two.near.ep.read(&iov, &call).unwrap();
        assert_eq!(two.alone(), 1, "{len} bytes are read at once");
        let found = parts.map(bytes).concat();
        assert!(found == want[at..at + len], "{len} bytes at {at}");
        let text = Parked::park(pattern(len, at + 7));
        let [one, more] = [text.buf().first(17), text.buf().skip(17)];
        let call = two.call(&from, Flags::COMPLETION);
        two.near.ep.write(&[one, more], &call).unwrap();
        assert_eq!(two.alone(), 1, "{len} bytes are written at once");
        want[at..at + len].copy_from_slice(&bytes(text));
        assert_eq!(
            two.sum(KEY),
            sum(&want),
            "{len} bytes at {at} in two pieces"
        );
    }
    // A shorter one waits for the target.
    let text = Parked::park(pattern(SHORTEST - 1, 3));
    two.write(&text, 0, KEY);
    assert_eq!(two.alone(), 0);
    assert_eq!(two.sum(KEY), sum(&want));
    two.settle(1);
    want[..SHORTEST - 1].copy_from_slice(&bytes(text));
    assert_eq!(two.sum(KEY), sum(&want));
}

/// Earlier operations are applied first.
#[test]
fn attach_does_not_overtake_earlier_operations() {
    let mut two = Two::asked(KEY);
    let before = two.sum(KEY);
    let got: u32 = two.tell("progress 0").parse().unwrap();
    let texts = [1, 2].map(|seed| Parked::park(pattern(2 * LARGE, seed)));
    // A message, then a write, then another one over it.
    two.near.send(&texts[0], two.to).unwrap();
    for text in &texts {
        two.write(text, 0, KEY);
    }
    assert_eq!(two.sum(KEY), before, "before the message");
    two.settle(3);
    assert_eq!(two.tell("progress 0").parse(), Ok(got + 1));
    let mut want = vec![0; LEN];
    let [_, last] = texts.map(bytes);
    want[..last.len()].copy_from_slice(&last);
    assert_eq!(two.sum(KEY), sum(&want), "in order");
    // Now nothing is under way.
    let text = Parked::park(pattern(LARGE, 3));
    two.write(&text, 0, KEY);
    assert_eq!(two.alone(), 1, "past the stream again");
    want[..LARGE].copy_from_slice(&bytes(text));
    assert_eq!(two.sum(KEY), sum(&want));
}

#[test]
fn rights_and_bounds_are_checked() {
    let mut two = Two::asked(WRITTEN);
    let text = Parked::park(pattern(LARGE, 1));
    two.write(&text, LARGE, WRITTEN);
    assert_eq!(two.alone(), 1, "written at once");
    let before = two.sum(WRITTEN);
    let from = [place(0, LARGE, WRITTEN)];
    let call = two.call(&from, Flags::COMPLETION);
    two.near.ep.read(&[text.buf()], &call).unwrap();
    assert_eq!(two.alone(), 0);
    assert_eq!(two.refused(), Errno::EACCES);
    for at in [LEN - LARGE + 1, usize::MAX - 7] {
        two.write(&text, at, WRITTEN);
        two.refused();
    }
    assert_eq!(two.sum(WRITTEN), before);
    drop(bytes(text));
}

/// A region is closed while it is written, and nothing is written there afterwards; its key then
/// names it anew.
#[test]
fn closed_region_is_not_accessed() {
    let mut two = Two::asked(KEY);
    let stop = AtomicBool::new(false);
    let texts = [1, 2, 3].map(|seed| Parked::park(pattern(LEN, seed)));
    for round in 0..5 {
        let (ep, cq, to) = (two.near.ep.clone(), two.near.cq.clone(), two.to);
        stop.store(false, Ordering::Relaxed);
        let written = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let remote = [place(0, LEN, KEY)];
                    let call = RmaCall {
                        remote: &remote,
                        peer: to,
                        data: None,
                        context: 7,
                        flags: Some(Flags::DELIVERY_COMPLETE | Flags::COMPLETION),
                    };
                    let text = texts[written.load(Ordering::Relaxed) % 3].buf();
                    ep.write(&[text], &call).unwrap();
                    while let Err(Errno::EAGAIN) = cq.read(1, |_| ()) {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
            let patience = Instant::now() + common::PATIENCE;
            while written.load(Ordering::Relaxed) < 3 && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(1));
            }
            two.tell("close");
            let after = two.sum(KEY);
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(two.sum(KEY), after, "written after it was closed");
            stop.store(true, Ordering::Relaxed);
        });
        assert!(
            written.into_inner() > 2,
            "nothing was written in round {round}"
        );
        // The one that was under way is refused.
        two.refused();
        two.tell("open");
        // Requested and accessed again; a peer that was seen polling is not asked at once.
        let reached = (0..64).any(|_| {
            two.write(&texts[1], 0, KEY);
            let alone = two.alone();
            two.settle(1 - alone);
            alone == 1
        });
        assert!(reached);
    }
    texts.into_iter().for_each(|text| drop(bytes(text)));
}

/// An access to unmapped memory is left to the ring, which is not served here.
#[test]
fn unmapped_memory_is_left_to_the_ring() {
    let mut two = Two::asked(UNMAPPED);
    let text = Parked::park(pattern(LARGE, 1));
    two.write(&text, 0, UNMAPPED);
    assert_eq!(two.alone(), 1);
    two.tell("unmap");
    two.write(&text, 0, UNMAPPED);
    assert_eq!(two.alone(), 0);
    drop(two);
    drop(bytes(text));
}

/// What [`ring_is_used_where_attach_is_forbidden`] runs, in a process whose log it reads.
#[test]
fn subprocess_refused_initiator() {
    if std::env::var(ROLE).as_deref() != Ok("refused") {
        return;
    }
    // Whoever may trace all may reach all.
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::SYS_PTRACE);
    set_capabilities(None, sets).unwrap();
    let mut two = Two::new("secret");
    for (key, count) in [(KEY, 3), (WRITTEN, 2)] {
        for seed in 0..count {
            let text = Parked::park(pattern(LEN, seed));
            two.write(&text, 0, key);
            assert_eq!(two.alone(), 0, "it waits for the target");
            two.settle(1);
            assert_eq!(two.sum(key), sum(&bytes(text)));
        }
    }
    println!("done");
}

#[test]
fn ring_is_used_where_attach_is_forbidden() {
    let run = |disabled: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "attach::subprocess_refused_initiator",
                "--nocapture",
            ])
            .env(ROLE, "refused")
            .env("FI_LOG_LEVEL", "info")
            .env("FI_SHM_DISABLE_CMA", disabled)
            .output()
            .unwrap();
        let [out, log] = [output.stdout, output.stderr].map(|o| String::from_utf8(o).unwrap());
        assert!(
            output.status.success() && out.contains("done"),
            "{out}{log}"
        );
        let refused = |count| format!("connections on which attach is refused: {count}");
        let counted = [0, 1].map(|count| log.matches(&refused(count)).count());
        (log.matches("Cross-memory attach needs").count(), counted)
    };
    assert_eq!(run("0"), (1, [0, 1]), "said once");
    assert_eq!(run("1"), (0, [1, 0]), "not tried");
}
