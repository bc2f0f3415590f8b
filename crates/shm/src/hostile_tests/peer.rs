//! One connection of a hostile peer, and its attacks.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ripstop_mem::ring::{
    Grant, Layout, Mapping as _, Reader, STATUS_PAGE_BYTES, Side, Source, Writer, pair,
};
use ripstop_os::{MemFd, SharedMemory, Socket};
use ripstop_types::Errno;
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::base::{Header, MAX_HEADER, Op};
use ripstop_wire::xnet::cm::{self, Extensions, Kind};
use ripstop_wire::xnet::rdm::Greeting;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

use super::forge::{forge_bytes, pick};
use super::{HOSTILE, VICTIM};
use crate::common::load::{self, Numbers};
use crate::greeting::Hello;
use crate::name::Name;
use crate::records::{RECORD_BYTES, Record, RecordReader};

/// What the hostile peer does with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Attack {
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

pub(super) const ATTACKS: [Attack; 9] = [
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
pub(super) struct SideAttacks {
    /// Doorbells without end.
    pub(super) doorbells: bool,
    /// Punches out pages of the memory, and tries to change its size.
    pub(super) punch_holes: bool,
    /// Sends descriptors that belong to no record.
    pub(super) stray_descriptors: bool,
    /// Stores new odd sleep words all the time.
    pub(super) sleep_words: bool,
    /// Sends records of regions that do not exist, change, or must not be mapped, by descriptor or by
    /// address, with a probe that may be wrong.
    pub(super) forged_records: bool,
    /// Stores words of joint copies, right and wrong ones.
    pub(super) joint_words: bool,
    /// Never clears its claims, and publishes wrong applied cursors.
    pub(super) stuck_claims: bool,
}

/// The hostile peer's end of a connection.
pub(super) struct HostilePeer {
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

pub(super) fn message(kind: Kind, data: &[u8]) -> Vec<u8> {
    let header = cm::Header {
        extensions: Extensions::all(),
        ..cm::Header::new(kind, data).unwrap()
    };
    [&header.emit().unwrap()[..], data].concat()
}

/// The byte order of headers that both sides have agreed on.
pub(super) fn byte_order() -> ByteOrder {
    cm::Header::new(Kind::Request, &[]).unwrap().data_order()
}

/// Bytes of memory that the victim may write by address.
pub(super) const SCRATCH_BYTES: usize = 1 << 20;

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
    // A valid address probe, so that the victim reaches memory of this process.
    let words = map.region().expect("it is writable");
    let token_address = map.start().addr().get() as u64 + 0x208;
    words
        .store_u64(0x200, token_address, Ordering::Relaxed)
        .unwrap();
    words.store_u64(0x208, 1, Ordering::Relaxed).unwrap();
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

pub(super) fn hello(group: &str, greeting: Greeting, layout: Layout) -> Vec<u8> {
    let hello = Hello {
        greeting,
        needs_fence: false,
        layout,
        name: Name::new(&load::name(group, HOSTILE)).unwrap(),
    };
    hello.emit()
}

pub(super) fn socket_name(group: &str, member: usize) -> Vec<u8> {
    let name = Name::new(&load::name(group, member)).unwrap();
    name.socket(ripstop_os::user())
}

impl HostilePeer {
    /// Connects to the victim, with memory of its own.
    pub(super) fn connect(group: &str, random: &mut Numbers) -> Self {
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
    pub(super) fn accept(group: &str, listener: &Socket) -> Self {
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
    pub(super) fn is_dropped(&self) -> bool {
        matches!(
            self.socket.recv(&mut [0; 4096]),
            Ok(0) | Err(Errno::ECONNRESET)
        )
    }

    pub(super) fn attack(&self, attack: Attack, random: &mut Numbers, stop: &AtomicBool) {
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
        let at = [0x000, 0x010, 0x100, 0x110][random.below(4) as usize];
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
    pub(super) fn side_attacks(&self, what: SideAttacks, random: &mut Numbers, stop: &AtomicBool) {
        let mut odd: u32 = 1;
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
                let _ = word.write(0x40, &odd.to_ne_bytes());
                odd = odd.wrapping_add(2);
            }
            if what.forged_records {
                self.write_poll_status(random);
                self.send_forged_record(random, stop);
            }
            if what.joint_words {
                self.change_joint_words(random);
            }
            if what.stuck_claims {
                let own = u64::from(self.side == Side::Acceptor);
                self.put(0x200 + 0x100 * own, 1 + random.below(70));
                self.put(0x108 - 0x100 * own, (1 << 32) + random.below(300));
            }
            std::thread::yield_now();
        }
    }

    /// Changes some fields of the words of joint copies in one direction.
    fn change_joint_words(&self, random: &mut Numbers) {
        let words = self.joint_words(random.below(2) == 0);
        let kept = pick(random, &[0, !0xff, !0xff00, !0xff_ffff]);
        // The victim may be about to write there, and must not write other memory of this process.
        let address = pick(random, &[self.scratch_address(), 8]);
        let what = [address, random.below(SCRATCH_BYTES as u64), random.below(4)];
        words.open(what, words.load() & kept | random.next() & !kept);
    }

    /// The words of joint copies of what the hostile peer sends, or else receives.
    pub(super) fn joint_words(&self, sends: bool) -> JointWords<'_> {
        let direction = u64::from((self.side == Side::Acceptor) == sends);
        JointWords {
            peer: self,
            at: 0x400 + 0x100 * direction,
        }
    }

    /// Claims a region of the victim, as if at an access there.
    pub(super) fn claim_something(&self) {
        let own = u64::from(self.side == Side::Acceptor);
        self.put(0x200 + 0x100 * own, 5);
    }

    /// The words of joint copies of reads and writes by the hostile peer, or else by the victim.
    pub(super) fn access_words(&self, by_hostile: bool) -> JointWords<'_> {
        let direction = u64::from((self.side == Side::Acceptor) == by_hostile);
        JointWords {
            peer: self,
            at: 0x600 + 0x100 * direction,
        }
    }

    /// Sends a record of a region.
    pub(super) fn send_record(&self, record: Record) {
        let bytes = record.emit();
        assert_eq!(self.socket.send(&bytes), Ok(bytes.len()));
    }

    /// The next record of the victim, if there is one.
    pub(super) fn next_record(&self) -> Option<Record> {
        let (mut reader, mut bytes, mut found) = (RecordReader::default(), [0; RECORD_BYTES], None);
        while found.is_none() {
            // A doorbell, or a whole record: the victim sends no part of one.
            let count = self
                .socket
                .recv(&mut bytes)
                .ok()
                .filter(|count| *count > 0)?;
            let records = reader.push(&bytes[..count], Some(Vec::new()), |record, _| {
                found = Some(record)
            });
            records.unwrap();
        }
        found
    }

    /// Grants the victim access to its scratch, for that reads what has come, and says that all of it is applied.
    pub(super) fn grant(&self, grant: Grant) {
        let status_page = self.status_page.region().expect("it is writable");
        let slot = 0x400 + 8 * grant.slot() as usize;
        let _ = status_page.store_u64(slot, grant.generation(), Ordering::Release);
    }

    /// Polls as a peer that is idle does.
    pub(super) fn seem_idle(&self) {
        let mut room = [0; 4096];
        while let Ok(1..) = self.reader.read(&mut room) {}
        self.reader.publish_applied();
        let status_page = self.status_page.region().expect("it is writable");
        let polls = status_page.load_u64(0x100, Ordering::Relaxed).unwrap();
        let _ = status_page.store_u64(0x100, polls + 1, Ordering::Relaxed);
    }

    /// Where the victim may write, in this process.
    pub(super) fn scratch_address(&self) -> u64 {
        self.scratch.start().addr().get() as u64
    }

    /// The first and the last bytes there.
    pub(super) fn scratch_around(&self, len: usize) -> Vec<u8> {
        let region = self.scratch.region().expect("it is writable");
        let mut around = vec![0; 2 * len];
        let (first, last) = around.split_at_mut(len);
        region.read(0, first).unwrap();
        region.read(SCRATCH_BYTES - len, last).unwrap();
        around
    }

    /// Sends a header without what follows it.
    pub(super) fn send_header(&self, header: &Header) {
        let mut bytes = [0; MAX_HEADER];
        let len = header.emit(byte_order(), &mut bytes).unwrap();
        assert_eq!(self.writer.write(Source::from(&bytes[..len])), Ok(len));
        // A doorbell, since the victim may sleep.
        let _ = self.socket.send(&[0]);
    }

    /// The index of the first message that the victim announces so; `None` if it sends the payload of one.
    pub(super) fn announced_index(&self, op: Op) -> Option<u16> {
        let mut bytes = Vec::new();
        poll_until("the victim sends nothing", || {
            let mut room = [0; 4096];
            let count = self.reader.read(&mut room).unwrap();
            bytes.extend_from_slice(&room[..count]);
            while let Ok(header) = Header::parse(byte_order(), &bytes) {
                match header.op {
                    found if found == op => return Some(Some(header.index(true))),
                    Op::Msg if header.payload_len > 0 => return Some(None),
                    _ => drop(bytes.drain(..header.len())),
                }
            }
            None
        })
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
    fn send_forged_record(&self, random: &mut Numbers, stop: &AtomicBool) {
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
            // A victim that has closed the connection reads no more, and may keep its end of the socket open.
            while !rest.is_empty()
                && self.socket.send(rest) == Err(Errno::EAGAIN)
                && !stop.load(Ordering::Relaxed)
            {
                std::thread::yield_now();
            }
        }
    }
}

/// The words of joint copies in one direction.
pub(super) struct JointWords<'a> {
    peer: &'a HostilePeer,
    at: u64,
}

impl JointWords<'_> {
    fn word(&self, at: u64) -> u64 {
        let region = self.peer.map.region().expect("it is writable");
        region.load_u64(at as usize, Ordering::Acquire).unwrap()
    }

    /// The first word.
    pub(super) fn load(&self) -> u64 {
        self.word(self.at)
    }

    pub(super) fn store(&self, word: u64) {
        self.peer.put(self.at, word);
    }

    /// Claims the last part as a helper does, if a joint copy of so many parts has just begun.
    pub(super) fn claim_last(&self, parts: u64) -> bool {
        let word = self.load();
        let is_open = word >> 25 > 0 && word >> 8 & 0xff == parts && word & 0xff < parts - 1;
        let region = self.peer.map.region().expect("it is writable");
        is_open
            && region
                .compare_exchange_u64(self.at as usize, word, word - (1 << 8))
                .is_ok_and(|swapped| swapped.is_ok())
    }

    /// Where the receiver has its buffer, once it has begun a joint copy.
    pub(super) fn address(&self) -> u64 {
        self.word(self.at + 8)
    }

    /// Stores what is copied, and the first word.
    pub(super) fn open<const N: usize>(&self, what: [u64; N], word: u64) {
        for (at, value) in (1..).zip(what) {
            self.peer.put(self.at + 8 * at, value);
        }
        self.store(word);
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
