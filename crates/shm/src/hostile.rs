//! A peer that keeps to the handshake, gets the memory of a pair, and then does what it likes,
//! while the victim works for it and for an honest third process. Both check every byte
//! ([`common::load`](crate::common::load)).
//!
//! `RIPSTOP_HOSTILE_ROUNDS` says how often, `RIPSTOP_HOSTILE_SEED` which random numbers decide:
//!
//! ```text
//! RIPSTOP_HOSTILE_ROUNDS=5000 cargo test -p ripstop-shm --lib hostile -- --nocapture
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ripstop_mem::ring::{
    Layout, Mapping as _, Reader, STATUS_PAGE_BYTES, Side, Source, Writer, pair,
};
use ripstop_os::{MemFd, SharedMemory, Socket};
use ripstop_types::{Errno, RmaIov};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::base::{
    Answer, BaseFlags, Coll, CollKind, Header, MAX_HEADER, Op, Reason, RmaIovs,
};
use ripstop_wire::xnet::cm::{self, Extensions, Kind};
use ripstop_wire::xnet::rdm::Greeting;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

use crate::common::group::Group;
use crate::common::load::{self, Numbers, Setup};
use crate::greeting::Hello;
use crate::name::Name;
use crate::records::RECORD_BYTES;

/// Rounds if nobody says how many.
const ROUNDS: u64 = 200;

const VICTIM: usize = 0;
const FRIEND: usize = 1;
const FOE: usize = 2;

/// Rounds with one victim.
const VICTIMS: u64 = 50;

/// What a domain may keep of messages that nobody waits for, in bytes.
const SAVED: u64 = 64 << 20;

/// Messages, each way, that victim and friend exchange meanwhile.
const MESSAGES: u32 = 3;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What the honest processes run; in this one it does nothing.
#[test]
fn subprocess_member() {
    if let Some(setup) = Setup::from_env() {
        load::run(setup);
    }
}

/// What the foe does with what it has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    /// Random words at random places.
    Noise,
    /// Words that are nearly right where words are looked for.
    Near,
    /// Credits, right and wrong ones.
    Credits,
    /// Well-formed entries with headers that make no sense.
    Forged,
    /// Headers that were right once.
    Mutated,
    /// Any bytes in well-formed entries.
    Garbage,
    /// Nothing: it takes nothing, and gives nothing.
    Stall,
    /// It reads on, but ends its direction of the socket.
    HalfClose,
    /// It takes everything and answers nothing.
    Sink,
}

const ACTS: [Act; 9] = [
    Act::Noise,
    Act::Near,
    Act::Credits,
    Act::Forged,
    Act::Mutated,
    Act::Garbage,
    Act::Stall,
    Act::HalfClose,
    Act::Sink,
];

/// What it does besides.
#[derive(Clone, Copy, Debug, Default)]
struct Besides {
    /// Bells without end.
    bells: bool,
    /// Pages of the memory are punched out, and its length is to change.
    holes: bool,
    /// Descriptors that nobody asked for.
    gifts: bool,
    /// It says all the time that it begins to sleep.
    sleepy: bool,
    /// Regions to map that are none, change, or may not be mapped; and regions by their address that
    /// are none, in an address space that may be another one.
    offers: bool,
    /// It never leaves the regions of the victim, and says that it has applied what it has not.
    claims: bool,
}

/// The foe's end of a connection.
struct Foe {
    socket: Socket,
    layout: Layout,
    map: Arc<SharedMemory>,
    side: Side,
    writer: Writer,
    reader: Reader,
    /// The memory of the pair, and the status page.
    memory: OwnedFd,
    status_page: SharedMemory,
    /// What the victim may write by its address.
    scratch: SharedMemory,
    /// The status page of the victim.
    _watched: Option<OwnedFd>,
}

fn message(kind: Kind, data: &[u8]) -> Vec<u8> {
    let header = cm::Header {
        extensions: Extensions::ALL,
        ..cm::Header::new(kind, data).unwrap()
    };
    [&header.emit().unwrap()[..], data].concat()
}

/// The order of headers that both sides agree on.
fn order() -> ByteOrder {
    cm::Header::new(Kind::Request, &[]).unwrap().data_order()
}

/// Bytes that the victim may write by their address.
const SCRATCH: usize = 1 << 20;

fn scratch() -> SharedMemory {
    MemFd::create("hostile-scratch", SCRATCH)
        .unwrap()
        .map()
        .unwrap()
}

fn status_page() -> (SharedMemory, OwnedFd) {
    let status_page = MemFd::create("hostile-status-page", STATUS_PAGE_BYTES).unwrap();
    let map = status_page.map().unwrap();
    status_page.seal_for_readers().unwrap();
    (map, status_page.into())
}

fn patience<R>(what: &str, mut get: impl FnMut() -> Option<R>) -> R {
    let stop = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = get() {
            return found;
        }
        assert!(Instant::now() < stop, "{what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn hello(group: &str, greeting: Greeting, layout: Layout) -> Vec<u8> {
    let hello = Hello {
        greeting,
        needs_fence: false,
        layout,
        name: Name::new(&load::name(group, FOE)).unwrap(),
    };
    hello.emit()
}

fn socket_name(group: &str, member: usize) -> Vec<u8> {
    let name = Name::new(&load::name(group, member)).unwrap();
    name.socket(ripstop_os::user())
}

impl Foe {
    /// It connects to the victim, with memory of its own.
    fn connect(group: &str, random: &mut Numbers) -> Self {
        let sizes = [(256, 65536), (4, 256), (128, 16384), (1024, 1 << 20)];
        let (entries, buffer) = sizes[random.below(4) as usize];
        let layout = Layout::new(entries, buffer).unwrap();
        let memory = MemFd::create("hostile", layout.len()).unwrap();
        memory.seal().unwrap();
        let map = Arc::new(memory.map().unwrap());
        let memory = OwnedFd::from(memory);
        let (status_page, descriptor) = status_page();
        let socket = Socket::unix_connect(&socket_name(group, VICTIM)).unwrap();
        let pid = 1 + random.below(1 << 30) as u32;
        let said = message(
            Kind::Request,
            &hello(group, Greeting::request(0, 0, pid), layout),
        );
        let descriptors = [memory.as_fd(), descriptor.as_fd()];
        assert_eq!(socket.send_with(&said, &descriptors), Ok(said.len()));
        let (header, watched) = patience("the victim does not answer", || read(&socket));
        assert_eq!(header.kind, Kind::Response);
        let (writer, reader) = pair(map.clone(), layout, Side::Connector).unwrap();
        Self {
            socket,
            layout,
            map,
            side: Side::Connector,
            writer,
            reader,
            memory,
            status_page,
            scratch: scratch(),
            _watched: watched.into_iter().next(),
        }
    }

    /// It lets the victim connect, and gets the victim's memory.
    fn accept(group: &str, listener: &Socket) -> Self {
        let mut data = [0; 512];
        let socket = patience("the victim does not connect", || {
            listener.accept_unix().unwrap()
        });
        let (len, descriptors) = patience("the victim does not ask", || {
            socket.recv_with(&mut data).ok()
        });
        let asked = Hello::parse(&data[cm::HEADER_LEN..len]).unwrap();
        let mut descriptors = descriptors.into_iter();
        let memory = descriptors.next().expect("memory");
        let copy = memory.try_clone().unwrap();
        let map = MemFd::received(copy, asked.layout.len()).unwrap();
        let map = Arc::new(map.map().unwrap());
        let (status_page, descriptor) = status_page();
        let data = hello(group, asked.greeting.answer(7), asked.layout);
        let said = message(Kind::Response, &data);
        let sent = socket.send_with(&said, &[descriptor.as_fd()]);
        assert_eq!(sent, Ok(said.len()));
        let (writer, reader) = pair(map.clone(), asked.layout, Side::Acceptor).unwrap();
        Self {
            socket,
            layout: asked.layout,
            map,
            side: Side::Acceptor,
            writer,
            reader,
            memory,
            status_page,
            scratch: scratch(),
            _watched: descriptors.next(),
        }
    }

    /// Whether the victim has ended the connection.
    fn is_dropped(&self) -> bool {
        matches!(
            self.socket.recv(&mut [0; 4096]),
            Ok(0) | Err(Errno::ECONNRESET)
        )
    }

    fn act(&self, act: Act, random: &mut Numbers, stop: &AtomicBool) {
        let mut written = Vec::new();
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            match act {
                Act::Noise => self.noise(random),
                Act::Near => self.near(random),
                Act::Credits => self.credits(random),
                Act::Forged | Act::Mutated | Act::Garbage => {
                    self.drain();
                    if done == written.len() {
                        (written, done) = (invent(act, random), 0);
                    }
                    let count = self.writer.write(Source::from(&written[done..]));
                    done += count.unwrap_or(0);
                    // A bell: the victim may sleep.
                    let _ = self.socket.send(&[0]);
                }
                Act::Stall => std::thread::sleep(Duration::from_millis(1)),
                Act::HalfClose => {
                    let _ = self.socket.shutdown(ripstop_os::Shutdown::Write);
                    self.drain();
                }
                Act::Sink => self.drain(),
            }
        }
    }

    /// Takes what has come.
    fn drain(&self) {
        let mut room = [0; 4096];
        while let Ok(1..) = self.reader.read(&mut room) {}
        std::thread::yield_now();
    }

    fn put(&self, at: u64, value: u64) {
        let region = self.map.region().expect("it is writable");
        let _ = region.store_u64(at as usize, value, Ordering::Release);
    }

    fn noise(&self, random: &mut Numbers) {
        let words = self.layout.len() as u64 / 8;
        for _ in 0..64 {
            self.put(random.below(words) * 8, random.next());
        }
    }

    /// Where the entries begin that the foe writes.
    fn entries(&self) -> u64 {
        let direction = u64::from(self.side == Side::Acceptor);
        0x1000 + direction * 64 * u64::from(self.layout.entries())
    }

    fn near(&self, random: &mut Numbers) {
        let entry = self.entries() + 64 * random.below(u64::from(self.layout.entries()));
        let lap = (1 + random.below(8)) << 32;
        let kind = [0, 1, 1, 2, 2, 2, 3, 255][random.below(8) as usize] << 8;
        let len = [0, 1, 8, 16, 48, 49, 56, 57, 64, 255][random.below(10) as usize];
        let chunk = u64::from(self.layout.buffer()) / 4;
        let chunk =
            [0, 1, 64, chunk - 1, chunk, chunk + 1, 1 << 32, u64::MAX][random.below(8) as usize];
        self.put(entry + 8, chunk);
        self.put(entry, lap | kind | len);
        if random.below(64) == 0 {
            let _ = self.socket.send(&[0]);
        }
    }

    fn credits(&self, random: &mut Numbers) {
        let at = [0x000, 0x100][random.below(2) as usize];
        let small = |random: &mut Numbers| random.below(600);
        let value = match random.below(8) {
            0 => random.next(),
            1 => u64::MAX,
            2 => small(random) << 32,
            3 => small(random),
            _ => small(random) << 32 | small(random),
        };
        self.put(at, value);
        self.drain();
    }

    /// What it does besides, until it is told to stop.
    fn besides(&self, what: Besides, random: &mut Numbers, stop: &AtomicBool) {
        let mut odd = 1;
        while !stop.load(Ordering::Relaxed) {
            if what.bells {
                let _ = self.socket.send(&[0; 256]);
            }
            if what.holes {
                let pages = self.layout.len() as u64 / 4096;
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = fallocate(&self.memory, flags, random.below(pages) * 4096, 4096);
                assert!(ftruncate(&self.memory, 0).is_err());
                assert!(ftruncate(&self.memory, 1 << 30).is_err());
            }
            if what.gifts {
                let some = [self.memory.as_fd(); 4];
                let _ = self.socket.send_with(b"gift", &some);
            }
            if what.sleepy {
                let word = self.status_page.region().expect("it is writable");
                let _ = word.store_u32(0x40, odd, Ordering::Relaxed);
                odd = odd.wrapping_add(2);
            }
            if what.offers {
                self.testify(random);
                self.offer(random);
            }
            if what.claims {
                let own = u64::from(self.side == Side::Acceptor);
                self.put(0x200 + 0x100 * own, 1 + random.below(70));
                self.put(0x108 - 0x100 * own, (1 << 32) + random.below(300));
            }
            std::thread::yield_now();
        }
    }

    /// Says where it is, mostly right, and that it looks at its rings, or not.
    fn testify(&self, random: &mut Numbers) {
        let status_page = self.status_page.region().expect("it is writable");
        let token = status_page.load_u64(0x208, Ordering::Relaxed).unwrap();
        let right = self.status_page.start().addr().get() as u64 + 0x208;
        let addr = pick(random, &[right, right, right, 8, u64::MAX - 3]);
        let _ = status_page.store_u64(0x200, addr, Ordering::Relaxed);
        let _ = status_page.store_u64(0x208, token.max(1), Ordering::Relaxed);
        if random.below(4) == 0 {
            let _ = status_page.store_u64(0x100, random.next(), Ordering::Relaxed);
        }
    }

    /// Says something of a region, mostly as it should be said.
    fn offer(&self, random: &mut Numbers) {
        let slot = random.below(64);
        // Sometimes what was said last still stands, and sometimes it does not.
        let status_page = self.status_page.region().expect("it is writable");
        let stands = 2 * random.below(4) + 1;
        let at = 0x400 + 8 * slot as usize;
        let _ = status_page.store_u64(at, stands - random.below(2), Ordering::Release);
        let len = pick(random, &[1, 4096, 4097, 1 << 20, 1 << 38, u64::MAX]);
        let other = random.next();
        let key = pick(random, &[load::KEY, load::KEY, other]);
        let mut words = [
            stands,
            key,
            random.below(2) * 4096,
            len,
            random.below(3) * 8,
        ];
        let mut said = [0; RECORD_BYTES];
        said[0] = 1 + random.below(4) as u8;
        said[4] = slot as u8;
        if said[0] == 3 {
            said[1] = 1 + random.below(3) as u8;
            // Nothing else of this process is to be written.
            let own = self.scratch.start().addr().get() as u64;
            let places = [(own, SCRATCH as u64), (own, SCRATCH as u64), (8, 1 << 30)];
            let (addr, len) = pick(random, &places);
            words = [stands, key, 0, len, addr];
        }
        for (place, word) in said[8..].as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        // Not an address that is one of this process, by chance.
        if random.below(500) == 0 && said[0] != 3 {
            said[random.below(RECORD_BYTES as u64) as usize] = random.next() as u8;
        }
        match said[0] {
            2 => said[16..].fill(0),
            4 => {
                said[4..16].fill(0);
                said[24..].fill(0);
            }
            _ => {}
        }
        let region = MemFd::create("hostile-region", 4096).unwrap();
        if random.below(4) > 0 {
            region.seal().unwrap();
        }
        let open = memfd_create("hostile-open", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&open, 8192).unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        let descriptors = match random.below(8) {
            0 => [file.as_fd()],
            1 => [self.memory.as_fd()],
            2 => [open.as_fd()],
            _ => [region.as_fd()],
        };
        let count = usize::from(said[0] == 1);
        // In two parts now and then.
        let cut = match random.below(4) {
            0 => 1 + random.below(RECORD_BYTES as u64 - 1) as usize,
            _ => RECORD_BYTES,
        };
        if self.socket.send_with(&said[..cut], &descriptors[..count]) == Ok(cut) {
            let rest = &said[cut..];
            while !rest.is_empty() && self.socket.send(rest) == Err(Errno::EAGAIN) {
                std::thread::yield_now();
            }
        }
    }
}

/// A message of the handshake, and what came with it.
fn read(socket: &Socket) -> Option<(cm::Header, Vec<OwnedFd>)> {
    let mut data = [0; 512];
    match socket.recv_with(&mut data) {
        Ok((len, descriptors)) => {
            assert!(len > 0, "the victim hangs up");
            Some((cm::Header::parse(&data).unwrap(), descriptors))
        }
        Err(Errno::EAGAIN) => None,
        Err(error) => panic!("the victim hangs up: {error}"),
    }
}

fn pick<T: Copy>(random: &mut Numbers, some: &[T]) -> T {
    some[random.below(some.len() as u64) as usize]
}

fn length(random: &mut Numbers) -> u64 {
    match random.below(8) {
        0 => 0,
        1..5 => random.below(300),
        5 => random.below(20_000),
        6 => random.below(1 << 30),
        _ => u64::MAX - random.below(200),
    }
}

/// A header of any kind, and so many bytes that follow it. What the friend has in the victim's
/// memory, and its tags, are left alone: who has the key of a region may write there.
fn header(random: &mut Numbers) -> (Header, usize) {
    let op = pick(
        random,
        &[
            Op::Msg,
            Op::Tag,
            Op::ReadReq,
            Op::ReadRsp,
            Op::Write,
            Op::TagRts,
            Op::Cts,
            Op::Data,
            Op::Refuse,
            Op::Atomic,
            Op::FetchAtomic,
            Op::CompareAtomic,
            Op::Coll,
            Op::EagerLimit,
        ],
    );
    let len = if op.may_have_payload() {
        length(random)
    } else {
        0
    };
    let mut header = Header::new(op, len);
    header.flags = BaseFlags::from_bits(random.next() as u16 & !1);
    header.op_data = if op == Op::Msg && random.below(3) == 0 {
        header.payload_len = 0;
        2
    } else {
        random.next() as u8
    };
    header.atomic = random.below(24) as u8;
    header.tag = random.next();
    header.rts_size = length(random);
    if op.may_carry_cq_data() && header.op_data != 2 && random.below(4) == 0 {
        header.cq_data = Some(random.next());
    }
    if op.has_rma() {
        let own = (load::MEMBERS * 8 + FOE * load::SLOT) as u64;
        let iov = RmaIov {
            addr: pick(random, &[own, own + 4096, u64::MAX - 8, 1 << 40]),
            len: match op {
                Op::ReadReq => length(random),
                _ => header.payload_len,
            },
            key: pick(random, &[load::KEY, 0, u64::MAX, 1 << 40]),
        };
        // No longer than its own part.
        if iov.key == load::KEY && iov.addr < 1 << 40 && iov.len > 4096 {
            return (Header::new(Op::Msg, 0), 0);
        }
        header.rma = RmaIovs::one(iov);
    }
    if op == Op::Refuse {
        let answer = [0, 1, 2, 3].map(Answer::from_byte);
        let reason = [0, 1, 2, 3, 4].map(Reason::from_byte);
        header.refusal = pick(random, &answer).zip(pick(random, &reason));
    }
    if op == Op::Coll {
        let kind = CollKind::from_byte(1 + random.below(8) as u8).unwrap();
        header.coll = Some(Coll {
            kind,
            ..Coll::default()
        });
    }
    (header, header.payload_len.min(9_000) as usize)
}

/// What is written next.
fn invent(act: Act, random: &mut Numbers) -> Vec<u8> {
    if act == Act::Garbage {
        let len = 1 + random.below(400) as usize;
        return (0..len).map(|_| random.next() as u8).collect();
    }
    let (header, follows) = header(random);
    let mut bytes = [0; MAX_HEADER + 64];
    let Ok(len) = header.emit(order(), &mut bytes) else {
        return vec![0; 1];
    };
    let mut bytes = bytes[..len].to_vec();
    if act == Act::Mutated && !header.op.has_rma() {
        for _ in 0..1 + random.below(3) {
            let at = random.below(len as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        // A write to others' memory would be none of the victim's faults.
        if Header::parse(order(), &bytes).is_ok_and(|header| header.op.has_rma()) {
            return vec![0xff; 16];
        }
    }
    let follows = match random.below(8) {
        0 => follows / 2,
        _ => follows,
    };
    bytes.resize(len + follows, random.next() as u8);
    bytes
}

/// A handshake that comes to nothing: what it holds meanwhile is to be given back.
fn half_a_handshake(group: &str, random: &mut Numbers) -> Socket {
    let layout = Layout::new(256, 65536).unwrap();
    let memory = MemFd::create("hostile", layout.len()).unwrap();
    memory.seal().unwrap();
    let memory = OwnedFd::from(memory);
    let socket = Socket::unix_connect(&socket_name(group, VICTIM)).unwrap();
    let greeting = Greeting::request(0, 0, 1 + random.below(1 << 30) as u32);
    let mut said = message(Kind::Request, &hello(group, greeting, layout));
    // One that is right but for its descriptors would be another one that is accepted.
    let at = random.below(said.len() as u64) as usize;
    match random.below(2) {
        0 => said.truncate(at.max(1)),
        _ => said[at] ^= 0x80,
    }
    let some = [memory.as_fd(); 4];
    let count = pick(random, &[0, 1, 3, 4]);
    let few: &[BorrowedFd<'_>] = &some[..count];
    let _ = socket.send_with(&said, few);
    socket
}

/// One connection of the foe. Returns whether the victim has ended it.
fn round(group: &mut Group, life: u64, random: &mut Numbers) -> (Act, bool) {
    let act = pick(random, &ACTS);
    let besides = Besides {
        bells: random.below(3) == 0,
        holes: random.below(3) == 0,
        gifts: random.below(3) == 0,
        sleepy: random.below(3) == 0,
        offers: random.below(3) == 0,
        claims: random.below(3) == 0,
    };
    println!("{act:?}, {besides:?}");
    let name = group.name.clone();
    let alive = format!("alive {FOE} {life}");
    let halves: Vec<_> = (0..random.below(3))
        .map(|_| half_a_handshake(&name, random))
        .collect();
    let (foe, listener) = match random.below(2) {
        0 => {
            let foe = Foe::connect(&name, random);
            group.tell(VICTIM, &alive);
            (foe, None)
        }
        _ => {
            let listener = Socket::unix_bound(&socket_name(&name, FOE)).unwrap();
            listener.listen(16).unwrap();
            group.tell(VICTIM, &alive);
            (Foe::accept(&name, &listener), Some(listener))
        }
    };
    let (stop, mut numbers) = (AtomicBool::new(false), random.clone());
    let least = Instant::now() + Duration::from_millis(5 + random.below(40));
    let mut dropped = false;
    std::thread::scope(|scope| {
        scope.spawn(|| foe.act(act, random, &stop));
        scope.spawn(|| foe.besides(besides, &mut numbers, &stop));
        // The foe stops also where this panics.
        let _stops = Stops(&stop);
        group.exchange(VICTIM, FRIEND, MESSAGES);
        while Instant::now() < least && !dropped {
            dropped = foe.is_dropped();
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    dropped |= foe.is_dropped();
    drop((foe, listener, halves));
    group.tell(VICTIM, &format!("dead {FOE}"));
    let took = group.hear(VICTIM, &format!("clean {FOE}"));
    group.noticed.push(took.parse().unwrap());
    group.exchange(VICTIM, FRIEND, MESSAGES);
    (act, dropped)
}

struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What has become of the rounds.
#[derive(Debug, Default)]
struct Tally {
    /// Rounds of each act, and how many of them the victim has ended.
    acts: BTreeMap<Act, (u32, u32)>,
    /// Lines of the log that name the foe.
    lines: usize,
    /// How long it took to notice that the foe was gone, in milliseconds.
    noticed: Vec<u64>,
    /// The most memory that a victim has used, in kilobytes.
    peak: u64,
}

impl Tally {
    /// Whether each act that is against the rules was ended by a victim, and the log says by whom.
    fn is_complete(&self) -> bool {
        let wrong = [
            Act::Noise,
            Act::Near,
            Act::Credits,
            Act::Forged,
            Act::Mutated,
            Act::Garbage,
        ];
        let ended = |act: &Act| self.acts.get(act).is_some_and(|(_, ended)| *ended > 0);
        wrong.iter().all(ended) && self.lines > 0
    }
}

/// Some rounds with one victim.
fn rounds(lives: Range<u64>, seed: u64, tally: &mut Tally) {
    let path = std::env::temp_dir().join(format!("ripstop-hostile-{}", ripstop_os::pid()));
    let log = File::create(&path).unwrap();
    let name = format!("{}-{}", ripstop_os::pid(), lives.start);
    let mut group = Group::new(
        "hostile::subprocess_member",
        name.clone(),
        seed ^ lives.start,
    )
    .with_liar(FOE)
    .with_log(log)
    .with_param("FI_SHM_MAX_SAVED_BYTES", SAVED / 8)
    .with_param("FI_SHM_MAX_SAVED_TOTAL", SAVED);
    group.start(VICTIM);
    group.start(FRIEND);
    for life in lives {
        // Each round by its own numbers.
        let mut random = Numbers(seed.wrapping_add(life.wrapping_mul(0x1234_5678_9abc)));
        println!("round {life}");
        let (act, dropped) = round(&mut group, 100 + life, &mut random);
        let entry = tally.acts.entry(act).or_default();
        entry.0 += 1;
        entry.1 += u32::from(dropped);
    }
    tally.peak = tally.peak.max(group.peak(VICTIM));
    tally.noticed.extend(group.end());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let foe = load::name(&name, FOE);
    tally.lines += text.lines().filter(|line| line.contains(&foe)).count();
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn hostile_peer_with_the_memory_harms_nobody() {
    let seed = number("RIPSTOP_HOSTILE_SEED").unwrap_or_else(|| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        now.as_nanos() as u64
    });
    let count = number("RIPSTOP_HOSTILE_ROUNDS").unwrap_or(ROUNDS);
    let first = number("RIPSTOP_HOSTILE_FIRST").unwrap_or(0);
    println!("RIPSTOP_HOSTILE_SEED={seed} RIPSTOP_HOSTILE_ROUNDS={count}");
    let (start, mut tally) = (Instant::now(), Tally::default());
    for from in (first..first + count).step_by(VICTIMS as usize) {
        let to = (from + VICTIMS).min(first + count);
        rounds(from..to, seed, &mut tally);
    }
    // What comes of a round depends on how the machine lets the processes run: on until each wrong
    // act has been ended once.
    let mut next = first + count;
    while count >= ROUNDS && !tally.is_complete() {
        assert!(next < first + 50 * count, "never ended: {tally:?}");
        rounds(next..next + VICTIMS, seed, &mut tally);
        next += VICTIMS;
    }
    println!(
        "{} rounds in {:?}; of each, and ended by the victim: {:?}",
        next - first,
        start.elapsed(),
        tally.acts
    );
    println!(
        "{} lines of the log name the foe; its end was noticed after {:?} ms at most; the victim \
         used {} kB at most",
        tally.lines,
        tally.noticed.iter().max(),
        tally.peak
    );
    assert!(tally.peak * 1024 < 4 * SAVED, "{} kB", tally.peak);
}
