//! Direct writes that are interrupted: writer or owner is killed during one, or the owner closes the
//! region while the writer is stopped.
//!
//! The library has no hook for that moment. The writer writes different bytes without end, and is stopped
//! (`SIGSTOP`) and continued until the region has the start of one write and the rest of the previous
//! one: then it was stopped during a write.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use ripstop_core::log::{self, Imported, Record, Sink};
use ripstop_core::provider::{
    CompletionQueue as _, Domain, Endpoint as _, RecvKind, RmaCall, SendKind, Sharing,
};
use ripstop_core::{Address, Info};
use ripstop_mem::{Parked, UserBuf};
use ripstop_os::SharedBuf;
use ripstop_types::{Errno, FiAddr, Flags, Progress, Result, RmaIov, Threading};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};

use crate::common::other::{Other, tell_parent};
use crate::common::{
    End, PATIENCE, Safe, bytes, info_for, mr_attr, noticed_within, open, pattern, safe,
};
use crate::{freed, turn};

const ROLE: &str = "RIPSTOP_SHM_TEST_ROLE";
const PARENT: &str = "RIPSTOP_SHM_TEST_PARENT";
const TARGET: &str = "RIPSTOP_SHM_TEST_TARGET";

const KEY: u64 = 9;

/// Bytes of a write.
const LEN: usize = 16 << 20;

/// Bytes before and behind, which nobody writes.
const GUARD: usize = 5000;
const GUARDS: u8 = 0xa5;

/// How long a closing region waits for peers.
const CLOSING: Duration = Duration::from_secs(1);

/// What closing takes beyond that, at most, on a machine that does much else.
const LATE: Duration = Duration::from_millis(900);

/// How long a writer is helped where it may not reach the memory by itself yet.
const HELP: Duration = Duration::from_millis(10);

fn wanted() -> Info {
    let caps = Flags::MSG | Flags::RMA | Flags::SOURCE | Flags::DIRECTED_RECV;
    info_for(caps, None, Threading::Safe, Progress::Manual)
}

type Here = End<Safe>;

fn here() -> (Here, Arc<Safe>) {
    let info = wanted();
    let domain = safe(&info);
    (open(&domain, &info), domain)
}

/// Lines that a program would see.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Sink for Lines {
    fn log(&self, record: &Record<'_>) {
        let line = record.message.to_string();
        self.0.lock().unwrap().push(line);
    }
}

/// Takes all lines until it is dropped.
struct Heard {
    lines: Arc<Lines>,
    _imported: Imported,
}

impl Heard {
    fn new() -> Self {
        let lines = Arc::new(Lines::default());
        let imported = log::import(Arc::clone(&lines) as Arc<dyn Sink>).unwrap();
        Self {
            lines,
            _imported: imported,
        }
    }

    /// How many say that a peer did not leave a region in time.
    fn late(&self) -> usize {
        let lines = self.lines.0.lock().unwrap();
        let late = |line: &&String| line.contains("within 1s") && line.contains("may still write");
        lines.iter().filter(late).count()
    }
}

/// Memory that others write, between guards.
struct Region {
    shared: Option<SharedBuf>,
    plain: Option<Parked>,
    mr: Option<Arc<<Safe as Domain>::Mr>>,
}

/// Bytes as after the second of the two writes.
fn fill(memory: UserBuf) {
    for at in [0, GUARD + LEN] {
        ripstop_mem::copy_out(memory.skip(at).first(GUARD), &[GUARDS; GUARD]);
    }
    ripstop_mem::copy_out(memory.skip(GUARD).first(LEN), &TEXTS[1]);
}

impl Region {
    fn new(domain: &Arc<Safe>, mapped: bool) -> Self {
        Self::with_key(domain, mapped, KEY)
    }

    fn with_key(domain: &Arc<Safe>, mapped: bool, key: u64) -> Self {
        let len = LEN + 2 * GUARD;
        let (shared, plain) = match mapped {
            true => (Some(SharedBuf::zeroed(len).unwrap()), None),
            false => (None, Some(Parked::park(vec![0; len]))),
        };
        let buf = shared.as_ref().map(SharedBuf::buf);
        let buf = buf.or(plain.as_ref().map(Parked::buf)).unwrap();
        fill(buf);
        let sharing = match &shared {
            Some(shared) => Sharing::Part(shared.part().clone()),
            None => Sharing::Never,
        };
        let access = Flags::REMOTE_WRITE | Flags::REMOTE_READ;
        let attr = mr_attr(buf, key, access, sharing);
        let mr = Some(domain.mr(&attr).unwrap());
        Self { shared, plain, mr }
    }

    fn buf(&self) -> UserBuf {
        let buf = self.shared.as_ref().map(SharedBuf::buf);
        buf.or(self.plain.as_ref().map(Parked::buf)).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        let buf = self.buf();
        let mut found = vec![0; buf.len()];
        ripstop_mem::copy_in(&mut found, buf);
        found
    }

    /// Takes it away from peers. Returns how long that took.
    fn close(&mut self) -> Duration {
        let start = Instant::now();
        drop(self.mr.take().unwrap());
        start.elapsed()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        drop(self.mr.take());
        self.shared.take().into_iter().for_each(freed::free);
        let plain = self.plain.take().into_iter();
        plain.for_each(|parked| drop(freed::unpark(parked)));
    }
}

/// What the two writes that take turns write. No byte is the same in both.
static TEXTS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [1, 2].map(|seed| pattern(LEN, seed)));

/// How far writes have come: which of the two was begun last, and so many bytes of it are there.
/// Behind them all is of the one before, and no other byte was written.
fn progress(found: &[u8]) -> (usize, usize) {
    let (front, rest) = found.split_at(GUARD);
    let (written, back) = rest.split_at(LEN);
    for guard in [front, back] {
        assert_eq!(*guard, [GUARDS; GUARD], "outside what is written");
    }
    let later = TEXTS.iter().position(|text| text[0] == written[0]);
    let later = later.expect("a first byte of one of them");
    let both = written.iter().zip(&TEXTS[later]);
    let at = both.take_while(|(found, want)| found == want).count();
    assert!(written[at..] == TEXTS[1 - later][at..], "behind byte {at}");
    (later, at)
}

/// Stops a writer in the middle of a write that needs nobody else. Others help it for a while, or do
/// nothing more, as `helped` is told. Returns how far it has come.
fn stop_in_the_middle(
    writer: &There,
    mut helped: impl FnMut(bool),
    look: impl Fn() -> Vec<u8>,
) -> (usize, usize) {
    // More than is on its way anywhere where nobody takes it.
    const MUCH: usize = 1 << 20;
    let stop = Instant::now() + PATIENCE;
    loop {
        helped(true);
        helped(false);
        writer.stop();
        let before = progress(&look());
        writer.go_on();
        std::thread::sleep(Duration::from_millis(1));
        writer.stop();
        let (later, at) = progress(&look());
        let place = |(later, at): (usize, usize)| later * LEN + at;
        let moved = (2 * LEN + place((later, at)) - place(before)) % (2 * LEN);
        if moved > MUCH && at < LEN {
            return (later, at);
        }
        writer.go_on();
        assert!(Instant::now() < stop, "it is never seen in the middle");
    }
}

/// Leaves the processor to others.
fn rest() {
    std::thread::sleep(Duration::from_micros(200));
}

/// Another process; killed when it is dropped.
struct There {
    child: Other,
    name: Address,
}

impl There {
    fn start(role: &str, parent: &Here, target: &Address) -> Self {
        let (parent, target) = (parent.name().to_string(), target.to_string());
        let environment = [
            (ROLE, role),
            (PARENT, &parent),
            (TARGET, &target),
            // What is not mapped passes through the rings.
            ("FI_SHM_DISABLE_CMA", "1"),
        ];
        let child = Other::start("direct::subprocess_peer", &environment);
        let name = Address::Str(String::new());
        let mut there = Self { child, name };
        there.name = Address::Str(there.hear("name", rest));
        there
    }

    /// Waits until it says something that begins like this; returns the rest.
    fn hear(&self, what: &str, mut turn: impl FnMut()) -> String {
        let stop = Instant::now() + PATIENCE;
        loop {
            let said = self.child.said.try_recv();
            assert_ne!(
                said,
                Err(TryRecvError::Disconnected),
                "{what}: it has ended"
            );
            if let Ok(line) = said
                && let Some(rest) = line.strip_prefix(what)
            {
                return rest.trim().to_owned();
            }
            assert!(Instant::now() < stop, "it does not say: {what}");
            turn();
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child.child)
    }

    /// It runs no instruction any more once this returns.
    fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED)
            .unwrap()
            .unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }
}

/// Descriptors, and mappings of memory that has some: those of regions of peers, and others.
fn held() -> (usize, usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of = |name: &str| maps.lines().filter(|line| line.contains(name)).count();
    let regions = of("/memfd:ripstop-region");
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (descriptors, of("/memfd:") - regions, regions)
}

/// Waits until as much is held as before.
fn lets_go(end: &Here, before: (usize, usize, usize)) {
    let start = Instant::now();
    while held() != before {
        let _ = end.cq.read(0, |_| ());
        let held = held();
        assert!(
            start.elapsed() < noticed_within(),
            "held: {held:?}, before: {before:?}"
        );
    }
}

/// What the other processes run; in this one it does nothing.
#[test]
fn subprocess_peer() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // Nobody is left behind that writes or polls for ever.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let (end, domain) = here();
    let own = (role == "target").then(|| Region::new(&domain, true));
    tell_parent(format_args!("name {}", end.name()));
    let parent = end.knows(&Address::Str(std::env::var(PARENT).unwrap()));
    let target = std::env::var(TARGET).unwrap();
    match role.as_str() {
        "echo" => loop {
            echo(&end, parent);
        },
        "target" => {
            let memory = own.as_ref().and_then(|own| own.shared.as_ref()).unwrap();
            tell_parent(format_args!("memory {}", memory.part().as_fd().as_raw_fd()));
            let room = Parked::park(vec![0; 8]);
            end.post(&room);
            loop {
                let _ = end.cq.read(1, |_| ());
            }
        }
        "writer" => {
            say(&end, parent);
            let to = match target == std::env::var(PARENT).unwrap() {
                true => parent,
                false => end.knows(&Address::Str(target)),
            };
            write_on(&end, parent, to);
        }
        other => panic!("no role {other}"),
    }
}

/// Sends back what comes from the peer.
fn echo(end: &Here, peer: FiAddr) {
    let room = Parked::park(vec![0; 8]);
    end.post(&room);
    end.poll(1);
    end.send(&room, peer).unwrap();
    end.poll(1);
    drop(bytes(room));
}

/// Sends a message that the peer waits for.
fn say(end: &Here, peer: FiAddr) {
    let text = Parked::park(vec![1; 8]);
    end.send(&text, peer).unwrap();
    end.poll(1);
    drop(bytes(text));
}

fn write(end: &Here, peer: FiAddr, text: &Parked) -> Result<()> {
    let remote = [RmaIov {
        addr: GUARD as u64,
        len: LEN as u64,
        key: KEY,
    }];
    let call = RmaCall {
        remote: &remote,
        peer,
        data: None,
        context: 3,
        flags: Some(Flags::COMPLETION | Flags::DELIVERY_COMPLETE),
    };
    while let Err(error) = end.ep.write(&[text.buf()], &call) {
        if error != Errno::EAGAIN {
            return Err(error);
        }
        let _ = end.cq.read(0, |_| ());
    }
    loop {
        match end.cq.read(1, |_| ()) {
            Ok(_) => return Ok(()),
            Err(Errno::EAGAIN) => {}
            Err(_) => {
                let mut found = Errno::EOTHER;
                end.cq.read_error(|error, _| found = error.err).unwrap();
                return Err(found);
            }
        }
    }
}

/// Writes to a peer until that fails, gives back what it has of it, and says each to the parent.
fn write_on(end: &Here, parent: FiAddr, peer: FiAddr) {
    let texts = TEXTS.clone().map(Parked::park);
    let before = held();
    for text in &texts {
        write(end, peer, text).unwrap();
    }
    tell_parent("writing");
    let fails = |round: usize| write(end, peer, &texts[round % 2]).err();
    let error = (0..).find_map(fails).unwrap();
    tell_parent(format_args!("failed {error}"));
    // What it has mapped of the parent's is not there any more either.
    lets_go(end, (before.0, before.1, 0));
    tell_parent("clean");
    say(end, parent);
    texts.into_iter().for_each(|text| drop(bytes(text)));
    std::thread::sleep(2 * PATIENCE);
}

/// Both directions work.
fn exchange(here: &Here, peer: FiAddr) {
    let (room, text) = (Parked::park(vec![0; 8]), Parked::park(pattern(8, 5)));
    here.post(&room);
    here.send(&text, peer).unwrap();
    here.poll(2);
    assert_eq!(bytes(room), pattern(8, 5));
    drop(bytes(text));
}

/// Waits for the message of a writer.
fn listen(here: &Here) {
    let room = Parked::park(vec![0; 8]);
    here.post(&room);
    here.poll(1);
    assert_eq!(bytes(room), [1; 8]);
}

/// A writer that writes here, and is stopped in the middle.
fn writer_in_the_middle(here: &Here, region: &Region) -> (There, FiAddr, (usize, usize)) {
    let writer = There::start("writer", here, &here.name());
    let to = here.knows(&writer.name);
    listen(here);
    writer.hear("writing", || _ = here.cq.read(0, |_| ()));
    let helped = |yes| {
        let end = Instant::now() + HELP;
        while yes && Instant::now() < end {
            let _ = here.cq.read(0, |_| ());
        }
    };
    let at = stop_in_the_middle(&writer, helped, || region.bytes());
    (writer, to, at)
}

/// What becomes of others when a writer is killed in the middle. The region is closed before
/// anything else is done, or goes on.
fn writer_is_killed(closes: bool) {
    let _turn = turn();
    let (here, domain) = here();
    let other = There::start("echo", &here, &here.name());
    let other_addr = here.knows(&other.name);
    exchange(&here, other_addr);
    let mut region = Region::new(&domain, true);
    let heard = Heard::new();
    let before = held();
    let (mut writer, to, at) = writer_in_the_middle(&here, &region);
    // More than the rings have room for, and a receive from it alone.
    let (room, text) = (Parked::park(vec![0; 8]), Parked::park(vec![5; 10_000_000]));
    here.send(&text, to).unwrap();
    if closes {
        let kind = RecvKind::Msg;
        here.ep.recv(kind, &[room.buf()], to, 1, None).unwrap();
    }
    for _ in 0..100 {
        assert_eq!(here.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
    writer.child.kill();
    let killed = Instant::now();
    if closes {
        // Its end is not seen yet, and what it has claimed it never gives back.
        region.close();
        assert_eq!(heard.late(), 0, "nobody waits for the dead");
    }
    for _ in 0..1 + usize::from(closes) {
        here.fails();
        assert!(killed.elapsed() < noticed_within());
    }
    exchange(&here, other_addr);
    assert_eq!(progress(&region.bytes()), at);
    drop((writer, bytes(room), bytes(text)));
    if !closes {
        lets_go(&here, before);
        fill(region.buf());
        drop(writer_in_the_middle(&here, &region));
        region.close();
        assert_eq!(heard.late(), 0, "nobody waits for the dead");
    }
    lets_go(&here, before);
    exchange(&here, other_addr);
}

#[test]
fn region_serves_others_when_a_writer_is_killed_during_a_write() {
    writer_is_killed(false);
}

#[test]
fn region_closes_at_once_when_its_writer_was_killed_during_a_write() {
    writer_is_killed(true);
}

#[test]
fn writer_continues_when_the_owner_is_killed_during_a_write() {
    let _turn = turn();
    let (here, _) = here();
    let mut target = There::start("target", &here, &here.name());
    let memory = target.hear("memory", rest);
    let memory = File::open(format!("/proc/{}/fd/{memory}", target.child.id())).unwrap();
    let look = || {
        let mut found = vec![0; LEN + 2 * GUARD];
        memory.read_exact_at(&mut found, 0).unwrap();
        found
    };
    let writer = There::start("writer", &here, &target.name);
    listen(&here);
    writer.hear("writing", rest);
    let (later, _) = stop_in_the_middle(
        &writer,
        |yes| match yes {
            true => {
                target.go_on();
                std::thread::sleep(HELP);
            }
            false => target.stop(),
        },
        look,
    );
    target.child.kill();
    let killed = Instant::now();
    writer.go_on();
    let help = || _ = here.cq.read(0, |_| ());
    writer.hear("failed", help);
    assert!(killed.elapsed() < noticed_within());
    writer.hear("clean", help);
    listen(&here);
    assert_eq!(
        progress(&look()).1,
        LEN,
        "write {later} was begun, and is whole"
    );
}

/// Both ends live, but the writer stands still.
#[test]
fn closing_a_region_waits_bounded_time_for_a_direct_write() {
    let _turn = turn();
    let (here, domain) = here();
    let mut region = Region::new(&domain, true);
    let heard = Heard::new();
    let (writer, _, (later, at)) = writer_in_the_middle(&here, &region);
    let took = region.close();
    assert!((CLOSING..CLOSING + LATE).contains(&took), "{took:?}");
    assert_eq!(heard.late(), 1);
    assert_eq!(progress(&region.bytes()), (later, at));
    writer.go_on();
    let help = || _ = here.cq.read(0, |_| ());
    writer.hear("failed", help);
    writer.hear("clean", help);
    listen(&here);
    // What was begun has ended there, and nothing was begun since.
    assert_eq!(progress(&region.bytes()), (later, LEN));
}

/// What the owner does when its endpoint, and with it the connection, is closed while the writer is in the middle of a
/// write. The writer stands still until the region is closed, or is killed.
fn endpoint_is_closed_first(killed: bool) {
    let _turn = turn();
    let info = wanted();
    let domain = safe(&info);
    let mut region = Region::new(&domain, true);
    // While it is open, the link of the closed connection is kept.
    let other_region = Region::with_key(&domain, true, KEY + 1);
    let heard = Heard::new();
    let others = open(&domain, &info);
    let mut before = held();
    let here = open(&domain, &info);
    let (mut writer, _, at) = writer_in_the_middle(&here, &region);
    drop(here);
    if killed {
        writer.child.kill();
    }
    let took = region.close();
    assert_eq!(progress(&region.bytes()), at);
    if killed {
        assert!(took < LATE, "{took:?}");
        assert_eq!(heard.late(), 0, "nobody waits for the dead");
    } else {
        assert!((CLOSING..CLOSING + LATE).contains(&took), "{took:?}");
        assert_eq!(heard.late(), 1);
        // What it is at is no part of the next region.
        let took = Region::new(&domain, true).close();
        assert!(took < LATE, "{took:?}");
        assert_eq!(heard.late(), 1);
        writer.go_on();
        writer.hear("failed", || _ = others.cq.read(0, |_| ()));
        assert_eq!(progress(&region.bytes()), (at.0, LEN));
        // It lives on, and has two pipes to here.
        before.0 += 2;
    }
    lets_go(&others, before);
    drop(other_region);
}

#[test]
fn closing_a_region_waits_for_a_direct_write_over_a_connection_that_was_closed() {
    endpoint_is_closed_first(false);
}

#[test]
fn closing_a_region_does_not_wait_for_a_killed_writer_whose_connection_was_closed() {
    endpoint_is_closed_first(true);
}

/// The same where the payload passes through the rings: nothing is written any more afterwards.
#[test]
fn closing_a_region_waits_bounded_time_for_a_ring_write() {
    let _turn = turn();
    let (here, domain) = here();
    let mut region = Region::new(&domain, false);
    let heard = Heard::new();
    let writer = There::start("writer", &here, &here.name());
    listen(&here);
    writer.hear("writing", || _ = here.cq.read(0, |_| ()));
    let [begun, other] = &*TEXTS;
    let stop = Instant::now() + PATIENCE;
    let memory = region.buf();
    let byte = |at| {
        let mut found = [0];
        ripstop_mem::copy_in(&mut found, memory.skip(GUARD + at).first(1));
        found[0]
    };
    // One is begun, and half of it is missing.
    while byte(0) != begun[0] || byte(LEN / 2) != other[LEN / 2] {
        let _ = here.cq.read(0, |_| ());
        assert!(Instant::now() < stop, "it does not write");
    }
    writer.stop();
    let took = region.close();
    assert!((CLOSING..CLOSING + LATE).contains(&took), "{took:?}");
    assert_eq!(heard.late(), 0, "nobody writes there");
    let at = progress(&region.bytes());
    assert!(at.1 < LEN, "{at:?}");
    writer.go_on();
    let help = || _ = here.cq.read(0, |_| ());
    writer.hear("failed", help);
    writer.hear("clean", help);
    listen(&here);
    assert_eq!(progress(&region.bytes()), at);
}

#[test]
fn closing_an_endpoint_does_not_wait_for_a_peer_that_does_not_read() {
    let _turn = turn();
    let (here, domain) = here();
    let other = There::start("echo", &here, &here.name());
    let to = here.knows(&other.name);
    exchange(&here, to);
    other.stop();
    let text = Parked::park(vec![1; 64]);
    // What is accepted is in the rings, and more than they have room for is not.
    let stop = Instant::now() + PATIENCE;
    while here.ep.inject(SendKind::Msg, text.buf(), None, to) != Err(Errno::EAGAIN) {
        assert!(Instant::now() < stop, "there is room for ever");
    }
    let start = Instant::now();
    drop(here);
    let took = start.elapsed();
    assert!(took < LATE, "{took:?}");
    drop((bytes(text), domain));
}
