//! Regions that peers map and access directly.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use ripstop_core::Info;
use ripstop_core::provider::{
    AtomicCall, CompletionQueue, Domain, Endpoint as _, RmaCall, SendKind, Sharing,
};
use ripstop_mem::{Parked, UserBuf};
use ripstop_os::SharedBuf;
use ripstop_types::{
    AtomicKind, AtomicOp, Datatype, Errno, FiAddr, Flags, Progress, Result, RmaIov, Threading,
};

use crate::common::{self, End, bytes, info_for, mr_attr, open, pattern};
use crate::outside::{Serial, serial};
use crate::{freed, turn};

fn wanted() -> Info {
    let caps = Flags::MSG | Flags::TAGGED | Flags::RMA | Flags::ATOMIC;
    info_for(caps, None, Threading::Domain, Progress::Manual)
}

/// Memory that the far end has registered.
struct Target {
    shared: Option<SharedBuf>,
    plain: Option<Parked>,
    mr: Option<Arc<<Serial as Domain>::Mr>>,
}

impl Target {
    fn new(domain: &Arc<Serial>, len: usize, key: u64, shared: bool) -> Self {
        let (shared, plain) = match shared {
            true => (Some(SharedBuf::zeroed(len).unwrap()), None),
            false => (None, Some(Parked::park(vec![0; len]))),
        };
        let memory = shared.as_ref().map(SharedBuf::buf);
        let memory = memory.or(plain.as_ref().map(Parked::buf)).unwrap();
        let sharing = shared.as_ref().map(|s| Sharing::Part(s.part().clone()));
        let access = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
        let attr = mr_attr(memory, key, access, sharing.unwrap_or(Sharing::Never));
        let mr = Some(domain.mr(&attr).unwrap());
        Self { shared, plain, mr }
    }

    fn bytes(&self) -> Vec<u8> {
        let memory = self.shared.as_ref().map(SharedBuf::buf);
        let memory = memory.or(self.plain.as_ref().map(Parked::buf)).unwrap();
        let mut found = vec![0; memory.len()];
        ripstop_mem::copy_in(&mut found, memory);
        found
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.mr.take());
        self.shared.take().into_iter().for_each(freed::free);
        let plain = self.plain.take().into_iter();
        plain.for_each(|parked| drop(freed::unpark(parked)));
    }
}

struct Two {
    _turn: MutexGuard<'static, ()>,
    near: End<Serial>,
    far: End<Serial>,
    domain: Arc<Serial>,
    to: FiAddr,
}

impl Two {
    fn new() -> Self {
        let turn = turn();
        let info = wanted();
        let domain = serial(&info);
        let (near, far) = (open(&serial(&info), &info), open(&domain, &info));
        let to = near.knows(&far.name());
        let two = Self {
            _turn: turn,
            near,
            far,
            domain,
            to,
        };
        two.meet();
        two
    }

    /// Both know of each other, and of all that was registered.
    fn meet(&self) {
        let (room, text) = (Parked::park(vec![0; 4]), Parked::park(vec![1; 4]));
        self.far.post(&room);
        self.near.send(&text, self.to).unwrap();
        self.until(2);
        drop((bytes(room), bytes(text)));
        self.rest();
    }

    /// Both make progress until so many operations are done.
    fn until(&self, mut count: usize) {
        let stop = Instant::now() + common::PATIENCE;
        while count > 0 {
            for end in [&self.near, &self.far] {
                count -= end.cq.read(count, |_| ()).unwrap_or(0);
            }
            assert!(Instant::now() < stop, "{count} are still to come");
        }
    }

    /// Both make progress until nothing is left to be told.
    fn rest(&self) {
        // Epoll is asked by number and by time.
        let end = Instant::now() + Duration::from_micros(100);
        let mut polls = 0;
        while polls < 700 || Instant::now() < end {
            polls += 1;
            for end in [&self.near, &self.far] {
                let _ = end.cq.read(0, |_| ());
            }
        }
    }

    fn call<'a>(&self, place: &'a [RmaIov], flags: Option<Flags>) -> RmaCall<'a> {
        RmaCall {
            remote: place,
            peer: self.to,
            data: None,
            context: 7,
            flags,
        }
    }

    fn write(&self, text: &Parked, place: RmaIov) -> Result<()> {
        self.near
            .ep
            .write(&[text.buf()], &self.call(&[place], None))
    }

    /// Completions that are there without the far end.
    fn alone(&self) -> usize {
        self.near
            .cq
            .read(8, |entry| assert_eq!(entry.context, 7))
            .unwrap_or(0)
    }

    fn atomic(
        &self,
        (kind, op): (AtomicKind, AtomicOp),
        operand: u64,
        compare: Option<u64>,
        place: RmaIov,
    ) -> u64 {
        let park = |value: u64| Parked::park(value.to_ne_bytes().to_vec());
        let (operand, compare) = (park(operand), compare.map(park));
        let result = Parked::park(vec![0; 8]);
        let compared: Vec<UserBuf> = compare.iter().map(Parked::buf).collect();
        let fetched = [result.buf()];
        let call = AtomicCall {
            kind,
            datatype: Datatype::Uint64,
            op,
            compare: &compared,
            result: match kind {
                AtomicKind::Plain => &[],
                _ => &fetched,
            },
            remote: &[place],
            peer: self.to,
            data: None,
            context: 7,
            flags: None,
        };
        self.near.ep.atomic(&[operand.buf()], &call).unwrap();
        assert_eq!(self.alone(), 1, "{kind:?} without the far end");
        drop(bytes(operand));
        compare.into_iter().for_each(|c| drop(bytes(c)));
        u64::from_ne_bytes(bytes(result).try_into().unwrap())
    }
}

const fn place(addr: u64, len: u64, key: u64) -> RmaIov {
    RmaIov { addr, len, key }
}

#[test]
fn mapped_regions_are_accessed_while_the_owner_computes() {
    let two = Two::new();
    let target = Target::new(&two.domain, 3 << 20, 9, true);
    two.rest();
    let mut want = target.bytes();
    for (at, len) in [(0, 8), (3, 1), (100, 1000), (4095, 70_000), (0, 3 << 20)] {
        let text = Parked::park(pattern(len, at + 1));
        two.write(&text, place(at as u64, len as u64, 9)).unwrap();
        assert_eq!(two.alone(), 1, "{len} bytes are written at once");
        want[at..at + len].copy_from_slice(&bytes(text));
        assert!(target.bytes() == want, "{len} bytes at {at}");
        let [one, two_] = [1, len - 1].map(|len| Parked::park(vec![0; len]));
        let iov = [one.buf(), two_.buf()];
        let place = [place(at as u64, len as u64, 9)];
        two.near.ep.read(&iov, &two.call(&place, None)).unwrap();
        assert_eq!(two.alone(), 1, "{len} bytes are read at once");
        let found = [bytes(one), bytes(two_)].concat();
        assert!(found == want[at..at + len], "{len} bytes at {at}");
    }
    let word = place(16, 8, 9);
    let plain = (AtomicKind::Plain, AtomicOp::AtomicWrite);
    two.atomic(plain, 40, None, word);
    let fetch = (AtomicKind::Fetch, AtomicOp::Sum);
    assert_eq!(two.atomic(fetch, 2, None, word), 40);
    let swap = (AtomicKind::Compare, AtomicOp::Cswap);
    assert_eq!(two.atomic(swap, 5, Some(41), word), 42);
    assert_eq!(two.atomic(swap, 6, Some(42), word), 42);
    assert_eq!(target.bytes()[16..24], 6_u64.to_ne_bytes());
    let small = Parked::park(vec![3; 16]);
    let to = place(1, 16, 9);
    two.near
        .ep
        .inject_write(small.buf(), to, None, two.to)
        .unwrap();
    drop(bytes(small));
    assert_eq!(target.bytes()[1..17], [3; 16]);
}

/// What waits for the far end in any other way.
#[test]
fn other_operations_go_by_the_ring() {
    let two = Two::new();
    let target = Target::new(&two.domain, 4096, 9, true);
    two.rest();
    let text = Parked::park(vec![5; 64]);
    let refused = |place: RmaIov| {
        let flags = Some(Flags::DELIVERY_COMPLETE | Flags::COMPLETION);
        let place = [place];
        let call = two.call(&place, flags);
        two.near.ep.write(&[text.buf()], &call).unwrap();
        let stop = Instant::now() + common::PATIENCE;
        loop {
            let _ = two.far.cq.read(0, |_| ());
            match two.near.cq.read(1, |_| ()) {
                Err(Errno::EAVAIL) => break,
                other => assert_eq!(other, Err(Errno::EAGAIN)),
            }
            assert!(Instant::now() < stop, "not refused");
        }
        let mut found = None;
        let read = two.near.cq.read_error(|error, _| found = Some(error.err));
        read.unwrap();
        two.rest();
        found
    };
    assert!(refused(place(4096 - 63, 64, 9)).is_some(), "bounds");
    assert!(refused(place(u64::MAX, 64, 9)).is_some(), "bounds");
    assert!(refused(place(0, 64, 8)).is_some(), "key");
    assert_eq!(target.bytes(), vec![0; 4096]);
    // With data for the far end, and then what follows it.
    let to = [place(0, 64, 9)];
    let call = RmaCall {
        data: Some(4),
        ..two.call(&to, None)
    };
    two.near.ep.write(&[text.buf()], &call).unwrap();
    two.write(&text, place(64, 64, 9)).unwrap();
    assert_eq!(target.bytes(), vec![0; 4096], "in order");
    two.until(3);
    two.rest();
    assert_eq!(target.bytes()[..128], [5; 128]);
    two.write(&text, place(128, 64, 9)).unwrap();
    assert_eq!(target.bytes()[..192], [5; 192], "past the stream again");
    assert_eq!(two.alone(), 1);
    drop(target);
    assert!(refused(place(0, 64, 9)).is_some(), "closed");
    // The key names other memory now.
    let target = Target::new(&two.domain, 4096, 9, false);
    two.write(&text, place(0, 64, 9)).unwrap();
    two.rest();
    assert_eq!(target.bytes()[..64], [5; 64]);
    drop(target);
    let target = Target::new(&two.domain, 4096, 9, true);
    // A queue that has something is read without progress.
    two.alone();
    two.rest();
    two.write(&text, place(0, 64, 9)).unwrap();
    assert_eq!(target.bytes()[..64], [5; 64]);
    drop(bytes(text));
}

/// Random numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Bytes of each region, and how many there are.
const LEN: usize = 40_000;
const REGIONS: usize = 3;

/// A random program of both ends beside a plain model of the memory: what is done in order is seen
/// in order, whichever way each operation takes.
struct Program {
    two: Two,
    random: Numbers,
    targets: Vec<Option<Target>>,
    model: Vec<Vec<u8>>,
    /// Operations that were posted and are not done, and messages that were received.
    open: usize,
    sent: u64,
    got: u64,
    lent: Vec<Parked>,
    /// Reads: where the bytes go, and what they are.
    reads: Vec<(Parked, Vec<u8>)>,
    /// Some may not have come yet: what changes memory has to wait for them (no `FI_ORDER_WAR`).
    reading: bool,
    room: Parked,
}

impl Program {
    fn new(seed: u64) -> Self {
        let two = Two::new();
        let mut random = Numbers(seed);
        let open = |at| Some(Target::new(&two.domain, LEN, at, random.below(3) > 0));
        let targets = (0..REGIONS as u64).map(open).collect();
        let room = Parked::park(vec![0; 8]);
        two.far.post(&room);
        Self {
            two,
            random,
            targets,
            model: vec![vec![0; LEN]; REGIONS],
            open: 0,
            sent: 0,
            got: 0,
            lent: Vec::new(),
            reads: Vec::new(),
            reading: false,
            room,
        }
    }

    fn progress(&mut self) {
        let near = &self.two.near.cq;
        match near.read(16, |_| ()) {
            Ok(count) => self.open -= count,
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
    }

    fn progress_far(&mut self) {
        if self.two.far.cq.read(1, |_| ()) == Ok(1) {
            self.got += 1;
            let mut found = [0; 8];
            ripstop_mem::copy_in(&mut found, self.room.buf());
            assert_eq!(u64::from_ne_bytes(found), self.got, "messages in order");
            self.two.far.post(&self.room);
        }
    }

    fn drain(&mut self) {
        let stop = Instant::now() + common::PATIENCE;
        while self.open > 0 || self.got < self.sent {
            self.progress();
            self.progress_far();
            assert!(Instant::now() < stop, "{} are not done", self.open);
        }
        self.two.rest();
        self.reading = false;
        for (memory, want) in self.reads.drain(..) {
            assert!(bytes(memory) == want, "a read of {} bytes", want.len());
        }
        self.lent.drain(..).for_each(|memory| drop(bytes(memory)));
        for (target, want) in self.targets.iter().zip(&self.model) {
            if let Some(target) = target {
                assert!(target.bytes() == *want, "the memory is another");
            }
        }
    }

    fn place(&mut self) -> (usize, usize, usize) {
        let region = self.random.below(REGIONS as u64) as usize;
        let most = [8, 64, 3000, LEN as u64][self.random.below(4) as usize];
        let len = 1 + self.random.below(most);
        let at = self.random.below(LEN as u64 - len + 1);
        (region, at as usize, len as usize)
    }

    /// Posts until it is taken.
    fn post(&mut self, post: impl Fn(&Two) -> Result<()>) {
        let stop = Instant::now() + common::PATIENCE;
        while let Err(error) = post(&self.two) {
            assert_eq!(error, Errno::EAGAIN);
            self.progress();
            self.progress_far();
            assert!(Instant::now() < stop, "no room");
        }
        self.open += 1;
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..5 => self.write(),
            5..9 => self.read(),
            9..13 => self.add(),
            13..15 => self.send(),
            15..17 => self.progress_far(),
            17 => self.two.rest_far(),
            18 => self.progress(),
            _ => self.change(),
        }
    }

    fn write(&mut self) {
        let (region, at, len) = self.place();
        if self.targets[region].is_none() {
            return;
        }
        let text = pattern(len, self.random.below(256) as usize);
        self.model[region][at..at + len].copy_from_slice(&text);
        let text = Parked::park(text);
        let (buf, to) = (text.buf(), place(at as u64, len as u64, region as u64));
        let delivered = Flags::DELIVERY_COMPLETE | Flags::COMPLETION;
        let flags = (self.random.below(3) == 0).then_some(delivered);
        let flags = self.fence().or(flags);
        self.post(|two| two.near.ep.write(&[buf], &two.call(&[to], flags)));
        self.lent.push(text);
    }

    fn read(&mut self) {
        let (region, at, len) = self.place();
        if self.targets[region].is_none() {
            return;
        }
        let want = self.model[region][at..at + len].to_vec();
        let room = Parked::park(vec![0; len]);
        let (buf, from) = (room.buf(), place(at as u64, len as u64, region as u64));
        let fence = (self.random.below(4) == 0).then_some(Flags::FENCE | Flags::COMPLETION);
        self.reading = true;
        self.post(|two| two.near.ep.read(&[buf], &two.call(&[from], fence)));
        self.reads.push((room, want));
    }

    /// Flags of what changes memory.
    fn fence(&mut self) -> Option<Flags> {
        let reading = std::mem::take(&mut self.reading);
        reading.then_some(Flags::FENCE | Flags::COMPLETION)
    }

    /// A sum that is fetched.
    fn add(&mut self) {
        let region = self.random.below(REGIONS as u64) as usize;
        if self.targets[region].is_none() {
            return;
        }
        let at = 8 * self.random.below(LEN as u64 / 8) as usize;
        let add = self.random.below(1 << 60);
        let word = &mut self.model[region][at..at + 8];
        let old = word.to_vec();
        let sum = u64::from_ne_bytes(old.clone().try_into().unwrap()).wrapping_add(add);
        word.copy_from_slice(&sum.to_ne_bytes());
        let operand = Parked::park(add.to_ne_bytes().to_vec());
        let result = Parked::park(vec![0; 8]);
        let (from, into) = (operand.buf(), result.buf());
        let flags = self.fence();
        self.post(|two| {
            let call = AtomicCall {
                kind: AtomicKind::Fetch,
                datatype: Datatype::Uint64,
                op: AtomicOp::Sum,
                compare: &[],
                result: &[into],
                remote: &[place(at as u64, 8, region as u64)],
                peer: two.to,
                data: None,
                context: 7,
                flags,
            };
            two.near.ep.atomic(&[from], &call)
        });
        self.lent.push(operand);
        self.reads.push((result, old));
    }

    fn send(&mut self) {
        self.sent += 1;
        let text = Parked::park(self.sent.to_ne_bytes().to_vec());
        let buf = text.buf();
        self.post(|two| {
            let ep = &two.near.ep;
            ep.send(SendKind::Msg, &[buf], None, two.to, 7, None)
        });
        self.lent.push(text);
    }

    /// Closes a region, or registers one again under its key.
    fn change(&mut self) {
        let region = self.random.below(REGIONS as u64) as usize;
        // What is on its way there would be refused.
        self.drain();
        self.targets[region] = match self.targets[region].take() {
            Some(target) => {
                drop(target);
                None
            }
            None => {
                let shared = self.random.below(3) > 0;
                self.model[region].fill(0);
                Some(Target::new(&self.two.domain, LEN, region as u64, shared))
            }
        };
        if self.random.below(2) == 0 {
            self.two.rest();
        }
    }
}

impl Two {
    /// Rests, and reads all there is: a queue that has something is read without progress.
    fn drain(&self) {
        for _ in 0..4 {
            while let Ok(_) | Err(Errno::EAVAIL) = self.near.cq.read(8, |_| ()) {
                let _ = self.near.cq.read_error(|_, _| ());
            }
            self.rest();
        }
    }

    fn rest_far(&self) {
        // As many looks as it takes until all is told.
        for _ in 0..300 {
            let _ = self.far.cq.read(0, |_| ());
        }
    }
}

#[test]
fn random_programs_see_memory_in_order() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = number("RIPSTOP_MAPPED_SEED").unwrap_or_else(|| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        now.as_millis() as u64
    });
    for seed in first..first + number("RIPSTOP_MAPPED_PROGRAMS").unwrap_or(30) {
        println!("RIPSTOP_MAPPED_SEED={seed}");
        let mut program = Program::new(seed);
        for _ in 0..400 {
            program.step();
        }
        program.drain();
        let Program {
            two, targets, room, ..
        } = program;
        drop((targets, two));
        drop(bytes(room));
    }
}

#[test]
fn closed_regions_leave_no_mapping_or_descriptor() {
    fn descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }
    fn mappings() -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.matches("ripstop-region").count()
    }
    let two = Two::new();
    let round = || {
        let targets: Vec<_> = (0..100)
            .map(|key| Target::new(&two.domain, 4096, key, true))
            .collect();
        two.rest();
        let text = Parked::park(vec![1; 8]);
        for key in 0..100 {
            two.write(&text, place(0, 8, key)).unwrap();
        }
        two.drain();
        drop(targets);
        // They are seen not to stand any more, and refused by the far end.
        for key in 0..100 {
            two.write(&text, place(0, 8, key)).unwrap();
        }
        two.drain();
        drop(bytes(text));
    };
    round();
    let before = descriptors();
    for _ in 0..5 {
        round();
        assert_eq!(descriptors(), before);
    }
    let stop = Instant::now() + common::PATIENCE;
    while mappings() > 0 {
        two.drain();
        assert!(Instant::now() < stop, "{} are left", mappings());
    }
}
