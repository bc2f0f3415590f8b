//! A hostile peer: it completes the handshake, and then attacks the victim through the memory and the
//! socket of the pair, while the victim serves it and an honest third process. Those two check every
//! byte they exchange ([`common::load`](crate::common::load)).
//!
//! `RIPSTOP_HOSTILE_ROUNDS` is the number of rounds, `RIPSTOP_HOSTILE_SEED` the seed:
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

/// Rounds unless `RIPSTOP_HOSTILE_ROUNDS` is set.
const DEFAULT_ROUNDS: u64 = 200;

/// The numbers of the processes in their group.
const VICTIM: usize = 0;
const HONEST: usize = 1;
const HOSTILE: usize = 2;

/// Rounds before the victim is started anew.
const ROUNDS_PER_VICTIM: u64 = 50;

/// Bytes of unexpected messages that the victim's domain may keep.
const MAX_SAVED_BYTES: u64 = 64 << 20;

/// Messages that victim and honest process exchange during an attack, in each direction.
const MESSAGES_EACH_WAY: u32 = 3;

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The main function of victim and honest process; without their environment it does nothing.
#[test]
fn subprocess_member() {
    if let Some(setup) = Setup::from_env() {
        load::run(setup);
    }
}

/// What the hostile peer does with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Attack {
    /// Random words at random places.
    Noise,
    /// Nearly valid words where the victim reads words.
    NearlyValid,
    /// Credits, right and wrong ones.
    Credits,
    /// Well-formed entries with headers that make no sense.
    Forged,
    /// Valid headers with some bits flipped.
    Mutated,
    /// Any bytes in well-formed entries.
    Garbage,
    /// It neither reads nor writes.
    Stall,
    /// It shuts down its direction of the socket, and reads on.
    HalfClose,
    /// It reads everything and answers nothing.
    Sink,
}

const ATTACKS: [Attack; 9] = [
    Attack::Noise,
    Attack::NearlyValid,
    Attack::Credits,
    Attack::Forged,
    Attack::Mutated,
    Attack::Garbage,
    Attack::Stall,
    Attack::HalfClose,
    Attack::Sink,
];

/// What it does at the same time, in another thread.
#[derive(Clone, Copy, Debug, Default)]
struct SideAttacks {
    /// Doorbells without end.
    doorbells: bool,
    /// Punches out pages of the memory, and tries to change its size.
    punch_holes: bool,
    /// Sends descriptors that belong to no record.
    stray_descriptors: bool,
    /// Stores new odd sleep words all the time.
    sleep_words: bool,
    /// Sends records of regions that do not exist, change, or must not be mapped, by descriptor or by
    /// address, with a probe that may be wrong.
    forged_records: bool,
    /// Never clears its claims, and publishes wrong applied cursors.
    stuck_claims: bool,
}

/// The hostile peer's end of a connection.
struct HostilePeer {
    socket: Socket,
    layout: Layout,
    map: Arc<SharedMemory>,
    side: Side,
    writer: Writer,
    reader: Reader,
    /// The memory of the pair, and the hostile peer's status page.
    memory: OwnedFd,
    status_page: SharedMemory,
    /// Memory that the victim may write by address.
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

/// The byte order of headers that both sides have agreed on.
fn byte_order() -> ByteOrder {
    cm::Header::new(Kind::Request, &[]).unwrap().data_order()
}

/// Bytes of memory that the victim may write by address.
const SCRATCH_BYTES: usize = 1 << 20;

fn scratch() -> SharedMemory {
    MemFd::create("hostile-scratch", SCRATCH_BYTES)
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

fn poll_until<R>(what: &str, mut get: impl FnMut() -> Option<R>) -> R {
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
        name: Name::new(&load::name(group, HOSTILE)).unwrap(),
    };
    hello.emit()
}

fn socket_name(group: &str, member: usize) -> Vec<u8> {
    let name = Name::new(&load::name(group, member)).unwrap();
    name.socket(ripstop_os::user())
}

impl HostilePeer {
    /// Connects to the victim, with memory of its own.
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
        let bytes = message(
            Kind::Request,
            &hello(group, Greeting::request(0, 0, pid), layout),
        );
        let descriptors = [memory.as_fd(), descriptor.as_fd()];
        assert_eq!(socket.send_with(&bytes, &descriptors), Ok(bytes.len()));
        let (header, watched) = poll_until("the victim does not answer", || read(&socket));
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

    /// Accepts a connection of the victim, with the victim's memory.
    fn accept(group: &str, listener: &Socket) -> Self {
        let mut data = [0; 512];
        let socket = poll_until("the victim does not connect", || {
            listener.accept_unix().unwrap()
        });
        let (len, descriptors) = poll_until("the victim does not ask", || {
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
        let bytes = message(Kind::Response, &data);
        let sent = socket.send_with(&bytes, &[descriptor.as_fd()]);
        assert_eq!(sent, Ok(bytes.len()));
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

    fn attack(&self, attack: Attack, random: &mut Numbers, stop: &AtomicBool) {
        let mut written = Vec::new();
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            match attack {
                Attack::Noise => self.noise(random),
                Attack::NearlyValid => self.nearly_valid(random),
                Attack::Credits => self.credits(random),
                Attack::Forged | Attack::Mutated | Attack::Garbage => {
                    self.drain();
                    if done == written.len() {
                        (written, done) = (forge_bytes(attack, random), 0);
                    }
                    let count = self.writer.write(Source::from(&written[done..]));
                    done += count.unwrap_or(0);
                    // A doorbell, since the victim may sleep.
                    let _ = self.socket.send(&[0]);
                }
                Attack::Stall => std::thread::sleep(Duration::from_millis(1)),
                Attack::HalfClose => {
                    let _ = self.socket.shutdown(ripstop_os::Shutdown::Write);
                    self.drain();
                }
                Attack::Sink => self.drain(),
            }
        }
    }

    /// Reads everything that has arrived.
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

    /// The offset of the entries that the hostile peer writes.
    fn entries(&self) -> u64 {
        let direction = u64::from(self.side == Side::Acceptor);
        0x1000 + direction * 64 * u64::from(self.layout.entries())
    }

    fn nearly_valid(&self, random: &mut Numbers) {
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

    /// Runs the side attacks until `stop` is set.
    fn side_attacks(&self, what: SideAttacks, random: &mut Numbers, stop: &AtomicBool) {
        let mut odd = 1;
        while !stop.load(Ordering::Relaxed) {
            if what.doorbells {
                let _ = self.socket.send(&[0; 256]);
            }
            if what.punch_holes {
                let pages = self.layout.len() as u64 / 4096;
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = fallocate(&self.memory, flags, random.below(pages) * 4096, 4096);
                assert!(ftruncate(&self.memory, 0).is_err());
                assert!(ftruncate(&self.memory, 1 << 30).is_err());
            }
            if what.stray_descriptors {
                let some = [self.memory.as_fd(); 4];
                let _ = self.socket.send_with(b"gift", &some);
            }
            if what.sleep_words {
                let word = self.status_page.region().expect("it is writable");
                let _ = word.store_u32(0x40, odd, Ordering::Relaxed);
                odd = odd.wrapping_add(2);
            }
            if what.forged_records {
                self.write_poll_status(random);
                self.send_forged_record(random);
            }
            if what.stuck_claims {
                let own = u64::from(self.side == Side::Acceptor);
                self.put(0x200 + 0x100 * own, 1 + random.below(70));
                self.put(0x108 - 0x100 * own, (1 << 32) + random.below(300));
            }
            std::thread::yield_now();
        }
    }

    /// Stores an address probe, mostly a valid one, and sometimes changes the poll count.
    fn write_poll_status(&self, random: &mut Numbers) {
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

    /// Sends a record of a region, mostly well-formed.
    fn send_forged_record(&self, random: &mut Numbers) {
        let slot = random.below(64);
        // The grant of the previous record is sometimes valid still, and sometimes not.
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
        let mut record = [0; RECORD_BYTES];
        record[0] = 1 + random.below(4) as u8;
        record[4] = slot as u8;
        if record[0] == 3 {
            record[1] = 1 + random.below(3) as u8;
            // The victim must not write other memory of this process.
            let own = self.scratch.start().addr().get() as u64;
            let places = [
                (own, SCRATCH_BYTES as u64),
                (own, SCRATCH_BYTES as u64),
                (8, 1 << 30),
            ];
            let (addr, len) = pick(random, &places);
            words = [stands, key, 0, len, addr];
        }
        for (place, word) in record[8..].as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        // Records with an address stay as they are: a random one might be mapped here.
        if random.below(500) == 0 && record[0] != 3 {
            record[random.below(RECORD_BYTES as u64) as usize] = random.next() as u8;
        }
        match record[0] {
            2 => record[16..].fill(0),
            4 => {
                record[4..16].fill(0);
                record[24..].fill(0);
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
        let count = usize::from(record[0] == 1);
        // Sometimes in two parts.
        let cut = match random.below(4) {
            0 => 1 + random.below(RECORD_BYTES as u64 - 1) as usize,
            _ => RECORD_BYTES,
        };
        if self.socket.send_with(&record[..cut], &descriptors[..count]) == Ok(cut) {
            let rest = &record[cut..];
            while !rest.is_empty() && self.socket.send(rest) == Err(Errno::EAGAIN) {
                std::thread::yield_now();
            }
        }
    }
}

/// Reads a message of the handshake with its descriptors.
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

fn random_length(random: &mut Numbers) -> u64 {
    match random.below(8) {
        0 => 0,
        1..5 => random.below(300),
        5 => random.below(20_000),
        6 => random.below(1 << 30),
        _ => u64::MAX - random.below(200),
    }
}

/// A random header, and the number of payload bytes that follow it. It spares the honest process's part of
/// the victim's region, and its tags: whoever has the key of a region may write there.
fn random_header(random: &mut Numbers) -> (Header, usize) {
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
        random_length(random)
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
    header.rts_size = random_length(random);
    if op.may_carry_cq_data() && header.op_data != 2 && random.below(4) == 0 {
        header.cq_data = Some(random.next());
    }
    if op.has_rma() {
        let own = (load::MEMBERS * 8 + HOSTILE * load::SLOT) as u64;
        let iov = RmaIov {
            addr: pick(random, &[own, own + 4096, u64::MAX - 8, 1 << 40]),
            len: match op {
                Op::ReadReq => random_length(random),
                _ => header.payload_len,
            },
            key: pick(random, &[load::KEY, 0, u64::MAX, 1 << 40]),
        };
        // Not beyond its own part of the region.
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

/// The bytes that an attack writes next.
fn forge_bytes(attack: Attack, random: &mut Numbers) -> Vec<u8> {
    if attack == Attack::Garbage {
        let len = 1 + random.below(400) as usize;
        return (0..len).map(|_| random.next() as u8).collect();
    }
    let (header, follows) = random_header(random);
    let mut bytes = [0; MAX_HEADER + 64];
    let Ok(len) = header.emit(byte_order(), &mut bytes) else {
        return vec![0; 1];
    };
    let mut bytes = bytes[..len].to_vec();
    if attack == Attack::Mutated && !header.op.has_rma() {
        for _ in 0..1 + random.below(3) {
            let at = random.below(len as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        // A valid write to the honest process's part would be no fault of the victim.
        if Header::parse(byte_order(), &bytes).is_ok_and(|header| header.op.has_rma()) {
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

/// Begins a handshake that fails; the victim has to free what it holds for it.
fn broken_handshake(group: &str, random: &mut Numbers) -> Socket {
    let layout = Layout::new(256, 65536).unwrap();
    let memory = MemFd::create("hostile", layout.len()).unwrap();
    memory.seal().unwrap();
    let memory = OwnedFd::from(memory);
    let socket = Socket::unix_connect(&socket_name(group, VICTIM)).unwrap();
    let greeting = Greeting::request(0, 0, 1 + random.below(1 << 30) as u32);
    let mut bytes = message(Kind::Request, &hello(group, greeting, layout));
    // The message is always damaged, since a valid one might be accepted.
    let at = random.below(bytes.len() as u64) as usize;
    match random.below(2) {
        0 => bytes.truncate(at.max(1)),
        _ => bytes[at] ^= 0x80,
    }
    let some = [memory.as_fd(); 4];
    let count = pick(random, &[0, 1, 3, 4]);
    let few: &[BorrowedFd<'_>] = &some[..count];
    let _ = socket.send_with(&bytes, few);
    socket
}

/// One connection of the hostile peer. Returns its attack, and whether the victim has ended the connection.
fn round(group: &mut Group, life: u64, random: &mut Numbers) -> (Attack, bool) {
    let attack = pick(random, &ATTACKS);
    let side_attacks = SideAttacks {
        doorbells: random.below(3) == 0,
        punch_holes: random.below(3) == 0,
        stray_descriptors: random.below(3) == 0,
        sleep_words: random.below(3) == 0,
        forged_records: random.below(3) == 0,
        stuck_claims: random.below(3) == 0,
    };
    println!("{attack:?}, {side_attacks:?}");
    let name = group.name.clone();
    let alive = format!("alive {HOSTILE} {life}");
    let halves: Vec<_> = (0..random.below(3))
        .map(|_| broken_handshake(&name, random))
        .collect();
    let (peer, listener) = match random.below(2) {
        0 => {
            let peer = HostilePeer::connect(&name, random);
            group.tell(VICTIM, &alive);
            (peer, None)
        }
        _ => {
            let listener = Socket::unix_bound(&socket_name(&name, HOSTILE)).unwrap();
            listener.listen(16).unwrap();
            group.tell(VICTIM, &alive);
            (HostilePeer::accept(&name, &listener), Some(listener))
        }
    };
    let (stop, mut numbers) = (AtomicBool::new(false), random.clone());
    let least = Instant::now() + Duration::from_millis(5 + random.below(40));
    let mut dropped = false;
    std::thread::scope(|scope| {
        scope.spawn(|| peer.attack(attack, random, &stop));
        scope.spawn(|| peer.side_attacks(side_attacks, &mut numbers, &stop));
        // Its threads stop also if this one panics.
        let _stop_on_drop = StopOnDrop(&stop);
        group.exchange(VICTIM, HONEST, MESSAGES_EACH_WAY);
        while Instant::now() < least && !dropped {
            dropped = peer.is_dropped();
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    dropped |= peer.is_dropped();
    drop((peer, listener, halves));
    group.tell(VICTIM, &format!("dead {HOSTILE}"));
    let took = group.hear(VICTIM, &format!("clean {HOSTILE}"));
    group.noticed.push(took.parse().unwrap());
    group.exchange(VICTIM, HONEST, MESSAGES_EACH_WAY);
    (attack, dropped)
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The results of the rounds.
#[derive(Debug, Default)]
struct Summary {
    /// Rounds of each attack, and how many of them the victim has ended.
    attacks: BTreeMap<Attack, (u32, u32)>,
    /// Lines of the victims' logs that name the hostile peer.
    lines: usize,
    /// How long victims took to notice the end of the connection, in milliseconds.
    noticed: Vec<u64>,
    /// The most memory that a victim has used, in kilobytes.
    peak: u64,
}

impl Summary {
    /// Whether a victim has ended each kind of attack that breaks the protocol, and has logged the peer.
    fn is_complete(&self) -> bool {
        let wrong = [
            Attack::Noise,
            Attack::NearlyValid,
            Attack::Credits,
            Attack::Forged,
            Attack::Mutated,
            Attack::Garbage,
        ];
        let ended = |attack: &Attack| {
            self.attacks
                .get(attack)
                .is_some_and(|(_, ended)| *ended > 0)
        };
        wrong.iter().all(ended) && self.lines > 0
    }
}

/// Rounds with one victim.
fn rounds(lives: Range<u64>, seed: u64, summary: &mut Summary) {
    let path = std::env::temp_dir().join(format!("ripstop-hostile-{}", ripstop_os::pid()));
    let log = File::create(&path).unwrap();
    let name = format!("{}-{}", ripstop_os::pid(), lives.start);
    let mut group = Group::new(
        "hostile::subprocess_member",
        name.clone(),
        seed ^ lives.start,
    )
    .with_liar(HOSTILE)
    .with_log(log)
    .with_param("FI_SHM_MAX_SAVED_BYTES", MAX_SAVED_BYTES / 8)
    .with_param("FI_SHM_MAX_SAVED_TOTAL", MAX_SAVED_BYTES);
    group.start(VICTIM);
    group.start(HONEST);
    for life in lives {
        // Each round has its own random numbers, so that it can be repeated alone.
        let mut random = Numbers(seed.wrapping_add(life.wrapping_mul(0x1234_5678_9abc)));
        println!("round {life}");
        let (attack, dropped) = round(&mut group, 100 + life, &mut random);
        let entry = summary.attacks.entry(attack).or_default();
        entry.0 += 1;
        entry.1 += u32::from(dropped);
    }
    summary.peak = summary.peak.max(group.peak(VICTIM));
    summary.noticed.extend(group.end());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let peer = load::name(&name, HOSTILE);
    summary.lines += text.lines().filter(|line| line.contains(&peer)).count();
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn hostile_peer_with_the_memory_harms_nobody() {
    let seed = env_number("RIPSTOP_HOSTILE_SEED").unwrap_or_else(|| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        now.as_nanos() as u64
    });
    let count = env_number("RIPSTOP_HOSTILE_ROUNDS").unwrap_or(DEFAULT_ROUNDS);
    let first = env_number("RIPSTOP_HOSTILE_FIRST").unwrap_or(0);
    println!("RIPSTOP_HOSTILE_SEED={seed} RIPSTOP_HOSTILE_ROUNDS={count}");
    let (start, mut summary) = (Instant::now(), Summary::default());
    for from in (first..first + count).step_by(ROUNDS_PER_VICTIM as usize) {
        let to = (from + ROUNDS_PER_VICTIM).min(first + count);
        rounds(from..to, seed, &mut summary);
    }
    // The outcome of a round depends on scheduling: further rounds, until each kind of attack that breaks
    // the protocol was ended once.
    let mut next = first + count;
    while count >= DEFAULT_ROUNDS && !summary.is_complete() {
        assert!(next < first + 50 * count, "never ended: {summary:?}");
        rounds(next..next + ROUNDS_PER_VICTIM, seed, &mut summary);
        next += ROUNDS_PER_VICTIM;
    }
    println!(
        "{} rounds in {:?}; of each, and ended by the victim: {:?}",
        next - first,
        start.elapsed(),
        summary.attacks
    );
    println!(
        "{} lines of the log name the peer; its end was noticed after {:?} ms at most; the victim \
         used {} kB at most",
        summary.lines,
        summary.noticed.iter().max(),
        summary.peak
    );
    assert!(
        summary.peak * 1024 < 4 * MAX_SAVED_BYTES,
        "{} kB",
        summary.peak
    );
}
