//! Tries `verbs;ofi_rxm` with several processes, each of which talks to all others out of step: messages of
//! all ways, reads, writes and atomics, with data checked. Then a quarter is killed, and the others go on.
//! The laboratory runs it (`lab/cases/rxm_crowd.sh`): `rxm_crowd PROCESSES FOLDER [ROUNDS]`. In each round they are quiet
//! for a while, and then exchange messages.
#![forbid(unsafe_code)]

mod common;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/rxm.rs"]
mod rxm;
#[path = "common/until.rs"]
mod until;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_core::Address;
use ripstop_core::provider::{
    AddressVector as _, AtomicCall, Endpoint as _, MemoryRegion as _, RecvKind, RmaCall, SendKind,
};
use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};
use ripstop_types::{
    AtomicKind, AtomicOp, Completion, CompletionError, Datatype, EpType, Errno, FiAddr, Flags,
    Result, RmaIov, flags,
};
use ripstop_verbs::RxmVerbsProvider;

use rxm::{Av, Cq, Domain, Endpoint};
use until::until;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(100);
/// Lengths of messages: at once, as long as that gets, and announced.
const LENGTHS: [usize; 4] = [8, 5000, 16384, 100_000];
/// Short messages to each peer in a row: more than it has receives for.
const BURST: u64 = 150;
/// Bytes of each process that others write: so many for each of them.
const SHARE: usize = 64 << 10;
/// What each process adds to a number of process 0.
const ROUNDS: u64 = 5;
/// How long they are quiet in a round.
const QUIET: Duration = Duration::from_millis(1500);

/// What the processes tell each other, in files of a folder.
struct Board {
    folder: PathBuf,
    rank: usize,
    count: usize,
}

impl Board {
    fn tell(&self, what: &str, text: &str) {
        let path = self.folder.join(format!("{what}.{}", self.rank));
        let new = path.with_extension(format!("{}.new", self.rank));
        std::fs::write(&new, text).expect("written");
        std::fs::rename(&new, &path).expect("renamed");
    }

    fn hear(&self, what: &str, rank: usize) -> Option<String> {
        std::fs::read_to_string(self.folder.join(format!("{what}.{rank}"))).ok()
    }

    /// Until all have come here; `progress` is made meanwhile.
    fn barrier(&self, what: &str, count: usize, mut progress: impl FnMut()) {
        self.tell(what, "");
        until(PATIENCE, what, || {
            progress();
            let all = (0..count).all(|rank| self.hear(what, rank).is_some());
            all.then_some(())
        });
    }
}

/// A process.
struct Member {
    board: Board,
    ep: Arc<Endpoint>,
    cq: Arc<Cq>,
    av: Arc<Av>,
    mr: Arc<<Domain as ripstop_core::provider::Domain>::Mr>,
    memory: Parked,
    peers: Vec<FiAddr>,
    /// Where the memory of each begins, and its key.
    theirs: Vec<(u64, u64)>,
    _domain: Arc<Domain>,
}

fn pattern(from: usize, to: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at.wrapping_mul(7) ^ (from * 31 + to * 17 + len)) as u8)
        .collect()
}

fn read(buf: UserBuf) -> Vec<u8> {
    let mut bytes = vec![0; buf.len()];
    copy_in(&mut bytes, buf);
    bytes
}

impl Member {
    fn new(board: Board) -> Self {
        let provider = RxmVerbsProvider::new();
        let info = common::infos(&provider, EpType::Rdm, flags![MSG TAGGED RMA ATOMIC]);
        let info = info.into_iter().next().expect("an offer of IPv4");
        let (domain, ep, cq, av) = rxm::open(&provider, &info, board.count);
        let memory = Parked::park(vec![0; SHARE * (board.count + 1)]);
        let access = flags![SEND RECV READ WRITE REMOTE_READ REMOTE_WRITE];
        let mr = memory::register(&domain, memory.buf(), access);
        Self {
            board,
            ep,
            cq,
            av,
            mr,
            memory,
            peers: Vec::new(),
            theirs: Vec::new(),
            _domain: domain,
        }
    }

    fn meet(&mut self) {
        let Ok(Address::Ip(name)) = self.ep.name() else {
            panic!("no address");
        };
        let (at, key) = (self.memory.buf().addr(), self.mr.key());
        self.board.tell("name", &format!("{name} {at} {key}"));
        for rank in 0..self.board.count {
            let told = until(PATIENCE, "name", || self.board.hear("name", rank));
            let mut words = told.split(' ');
            let mut word = || words.next().expect("a word");
            let name = Address::Ip(word().parse().expect("an address"));
            self.peers.push(self.av.insert(&name).expect("inserted"));
            let mut number = || word().parse().expect("a number");
            self.theirs.push((number(), number()));
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.board.rank;
        (0..self.board.count).filter(move |other| *other != rank)
    }

    fn next(&self) -> Option<std::result::Result<Completion, CompletionError>> {
        common::next(&*self.cq, None).map(|ended| ended.map_err(|(error, _)| error))
    }

    /// Waits for so many successes.
    fn complete(&self, what: &str, count: usize) {
        for done in 0..count {
            let entry = until(PATIENCE, what, || self.next());
            entry.unwrap_or_else(|error| panic!("{what} {done} of {count}: {error:?}"));
        }
    }

    /// Posts, as soon as there is room.
    fn post(&self, mut done: impl FnMut(&Completion), mut post: impl FnMut() -> Result<()>) {
        until(PATIENCE, "room", || match post() {
            Ok(()) => Some(()),
            Err(Errno::EAGAIN) => {
                if let Some(entry) = self.next() {
                    done(&entry.expect("a success"));
                }
                None
            }
            Err(error) => panic!("{error}"),
        });
    }

    /// A message of each length to each peer, and from it.
    fn messages(&self) {
        let rank = self.board.rank;
        let tag = |from: usize, len: usize| (from << 32 | len) as u64;
        let mut sent = Vec::new();
        let mut got = Vec::new();
        let mut count = 0;
        for other in self.others() {
            for len in LENGTHS {
                let kind = RecvKind::Tagged {
                    tag: tag(other, len),
                    ignore: 0,
                };
                let room = Parked::park(vec![0; len + 8]);
                self.post(
                    |_| count += 1,
                    || self.ep.recv(kind, &[room.buf()], FiAddr::UNSPEC, 1, None),
                );
                got.push((other, len, room));
            }
        }
        for len in LENGTHS {
            for other in self.others() {
                let bytes = Parked::park(pattern(rank, other, len));
                let kind = SendKind::Tagged(tag(rank, len));
                let to = self.peers[other];
                self.post(
                    |_| count += 1,
                    || self.ep.send(kind, &[bytes.buf()], None, to, 2, None),
                );
                sent.push(bytes);
            }
        }
        self.complete("message", sent.len() + got.len() - count);
        for (other, len, room) in &got {
            let bytes = read(room.buf());
            assert!(
                bytes[..*len] == pattern(*other, rank, *len)[..],
                "{len} bytes of {other}"
            );
            assert_eq!(bytes[*len..], [0; 8]);
        }
    }

    /// Many short messages in a row, before any of them is received.
    fn burst(&self) {
        let others = self.others().count();
        let mut sums = vec![0; self.board.count];
        let rooms: Vec<_> = (0..BURST as usize * others)
            .map(|_| Parked::park(vec![0; 16]))
            .collect();
        let mut ended = 0;
        for room in &rooms {
            self.post(
                |_| ended += 1,
                || {
                    self.ep
                        .recv(RecvKind::Msg, &[room.buf()], FiAddr::UNSPEC, 3, None)
                },
            );
        }
        let bytes = Parked::park(vec![0; 16]);
        for number in 0..BURST {
            for other in self.others() {
                copy_out(
                    bytes.buf(),
                    &[(self.board.rank as u64).to_ne_bytes(), number.to_ne_bytes()].concat(),
                );
                self.post(
                    |_| ended += 1,
                    || {
                        let to = self.peers[other];
                        self.ep.inject(SendKind::Msg, bytes.buf(), None, to)
                    },
                );
            }
        }
        self.complete("short message", rooms.len() - ended);
        for room in &rooms {
            let bytes = read(room.buf());
            let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8"));
            sums[number(0) as usize] += number(8);
        }
        for other in self.others() {
            assert_eq!(sums[other], BURST * (BURST - 1) / 2, "from {other}");
        }
    }

    fn remote(&self, of: usize, at: usize, len: usize) -> RmaIov {
        let (start, key) = self.theirs[of];
        RmaIov {
            addr: start + at as u64,
            len: len as u64,
            key,
        }
    }

    /// Writes to this process' share of each other's memory, reads it back, and adds to a number.
    fn one_sided(&self) {
        let rank = self.board.rank;
        let flags = Some(Flags::COMPLETION | Flags::DELIVERY_COMPLETE);
        for other in self.others() {
            for len in [8, 20_000, SHARE] {
                let here = Parked::park(pattern(rank, other, len));
                let back = Parked::park(vec![0; len]);
                let remote = [self.remote(other, rank * SHARE, len)];
                let call = RmaCall {
                    remote: &remote,
                    peer: self.peers[other],
                    data: None,
                    context: 4,
                    flags,
                };
                self.post(|_| (), || self.ep.write(&[here.buf()], &call));
                self.complete("write", 1);
                let call = RmaCall {
                    flags: None,
                    ..call
                };
                self.post(|_| (), || self.ep.read(&[back.buf()], &call));
                self.complete("read", 1);
                assert!(
                    read(back.buf()) == read(here.buf()),
                    "{len} bytes at {other}"
                );
            }
        }
        self.write_from_region();
        let (one, before) = (Parked::park(vec![0; 8]), Parked::park(vec![0; 8]));
        copy_out(one.buf(), &1_u64.to_ne_bytes());
        let mut last = None;
        for _ in 0..ROUNDS {
            if rank == 0 {
                break;
            }
            let call = AtomicCall {
                kind: AtomicKind::Fetch,
                datatype: Datatype::Uint64,
                op: AtomicOp::Sum,
                compare: &[],
                result: &[before.buf()],
                remote: &[self.remote(0, SHARE * self.board.count, 8)],
                peer: self.peers[0],
                data: None,
                context: 5,
                flags: None,
            };
            self.post(|_| (), || self.ep.atomic(&[one.buf()], &call));
            self.complete("atomic", 1);
            let number = u64::from_ne_bytes(read(before.buf()).try_into().expect("8"));
            assert!(last < Some(number), "{last:?}, then {number}");
            last = Some(number);
        }
    }

    /// Writes from registered memory, which may be used again once that is completed.
    fn write_from_region(&self) {
        let rank = self.board.rank;
        // Nobody else writes to this process' share of its own memory.
        let here = self.memory.buf().slice(rank * SHARE, SHARE);
        let here = here.expect("inside");
        for other in self.others() {
            let expected = pattern(rank, other, SHARE);
            copy_out(here, &expected);
            let remote = [self.remote(other, rank * SHARE, SHARE)];
            let call = RmaCall {
                remote: &remote,
                peer: self.peers[other],
                data: None,
                context: 7,
                flags: Some(Flags::COMPLETION),
            };
            self.post(|_| (), || self.ep.write(&[here], &call));
            self.complete("write from a region", 1);
            copy_out(here, &vec![0; SHARE]);
            self.post(|_| (), || self.ep.read(&[here], &call));
            self.complete("read into a region", 1);
            assert!(read(here) == expected, "written at {other}");
        }
    }

    /// What the others have written, once all are done.
    fn check_memory(&self) {
        let rank = self.board.rank;
        for other in self.others() {
            let share = self.memory.buf().slice(other * SHARE, SHARE);
            let share = read(share.expect("inside"));
            assert!(share == pattern(other, rank, SHARE), "written by {other}");
        }
        if rank == 0 {
            let number = self.memory.buf().slice(SHARE * self.board.count, 8);
            let number = read(number.expect("inside"));
            let adders = self.board.count as u64 - 1;
            assert_eq!(number, (adders * ROUNDS).to_ne_bytes());
        }
    }

    /// A process is dead: what is sent to it fails in the end, the others are there.
    fn go_on_without(&self, dead: usize) {
        let bytes = Parked::park(vec![1; 8]);
        let first = self.failure(dead, &bytes);
        // Nobody listens there any more.
        let start = Instant::now();
        let second = self.failure(dead, &bytes);
        let took = start.elapsed();
        println!(
            "process {}: {first} of the dead one, then {second} after {took:?}",
            self.board.rank
        );
        assert_eq!(second, Errno::ECONNREFUSED);
        assert!(took < Duration::from_secs(20));
    }

    /// How a send to the dead one fails.
    fn failure(&self, dead: usize, bytes: &Parked) -> Errno {
        let failure = until(PATIENCE, "error", || {
            let to = self.peers[dead];
            let sent = self
                .ep
                .send(SendKind::Msg, &[bytes.buf()], None, to, 6, None);
            match sent {
                Ok(()) => until(PATIENCE, "end", || self.next()).err(),
                Err(Errno::EAGAIN) => self.next().and_then(std::result::Result::err),
                Err(error) => panic!("{error}"),
            }
        });
        failure.err
    }
}

fn run(board: Board, rounds: usize) {
    let mut member = Member::new(board);
    member.meet();
    let (rank, count) = (member.board.rank, member.board.count);
    // Out of step, and busy with something else meanwhile.
    std::thread::sleep(Duration::from_millis(70 * rank as u64));
    member.messages();
    member.burst();
    std::thread::sleep(Duration::from_millis(50 * (count - rank) as u64));
    member.one_sided();
    let quiet = |member: &Member| assert!(member.next().is_none(), "nothing else");
    member.board.barrier("written", count, || quiet(&member));
    member.check_memory();
    member.board.barrier("checked", count, || quiet(&member));
    for round in 0..rounds {
        let start = Instant::now();
        while start.elapsed() < QUIET {
            quiet(&member);
            std::thread::sleep(Duration::from_millis(1));
        }
        member.messages();
        member
            .board
            .barrier(&format!("round {round}"), count, || quiet(&member));
    }
    let left = survivors(count);
    if rank >= left {
        // Without closing anything.
        std::process::abort();
    }
    (left..count).for_each(|dead| member.go_on_without(dead));
    member.board.barrier("alone", left, || {
        // What else was under way to them.
        member.next();
    });
    member.board.count = left;
    member.messages();
    member.board.barrier("done", left, || quiet(&member));
}

/// How many of so many processes are not killed: the first ones.
const fn survivors(count: usize) -> usize {
    count - count.div_ceil(4)
}

fn start(rank: usize, count: usize, folder: &Path, rounds: usize) -> Child {
    let own = std::env::current_exe().expect("a program");
    Command::new(own)
        .arg(count.to_string())
        .arg(folder)
        .args([rounds.to_string(), rank.to_string()])
        .spawn()
        .expect("started")
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = || args.next()?.parse::<usize>().ok();
    let count = number().expect("how many processes");
    let folder = PathBuf::from(std::env::args().nth(2).expect("a folder"));
    let rounds = std::env::args().nth(3);
    let rounds = rounds.map_or(0, |rounds| rounds.parse().expect("a number"));
    if let Some(rank) = std::env::args().nth(4) {
        let rank = rank.parse().expect("a number");
        let board = Board {
            folder,
            rank,
            count,
        };
        return run(board, rounds);
    }
    std::fs::create_dir_all(&folder).expect("a folder");
    let members: Vec<_> = (0..count)
        .map(|rank| start(rank, count, &folder, rounds))
        .collect();
    for (rank, mut member) in members.into_iter().enumerate() {
        let status = member.wait().expect("ended");
        assert_eq!(
            status.success(),
            rank < survivors(count),
            "process {rank}: {status}"
        );
    }
    let killed = count - survivors(count);
    println!("{count} processes, of which {killed} were killed");
}
