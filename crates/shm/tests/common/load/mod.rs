//! A process that talks to the others of a group without end, and checks every byte: small tagged
//! messages, large ones, writes and reads of memory, and atomics, with all of them at once.
//!
//! Commands come by lines on its input, answers go by lines to its output:
//!
//! | command | what it does | answer |
//! |---|---|---|
//! | `alive PEER INCARNATION` | talks to that peer from now on | |
//! | `more PEER COUNT` | | `more PEER` after so many more messages each way |
//! | `dead PEER` | the peer was killed: all that waits for it has to end | `clean PEER MS` |
//! | `rest` | begins nothing more | `resting` once nothing it began is on its way |
//! | `end` | closes everything | `ended` |

use std::collections::HashMap;
use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use ripstop_core::Address;
use ripstop_core::provider::{
    AddressVector as _, AtomicCall, AvAttr, CompletionQueue as _, CqAttr, Domain as _,
    Endpoint as _, MrAttr, RecvKind, RmaCall, SendKind, Sharing, Token,
};
use ripstop_mem::{Parked, copy_out};
use ripstop_os::SharedBuf;
use ripstop_types::{
    AtomicKind, AtomicOp, Completion, Datatype, Errno, FiAddr, Flags, Progress, Result, RmaIov,
    Threading, WaitObj,
};

use super::flow::{Flow, Held, mix, pattern};
use super::{PATIENCE, Safe, info_for, noticed_within, safe};

pub(crate) use super::flow::Numbers;

/// Processes of a group, at most.
pub(crate) const MEMBERS: usize = 3;

/// Messages on their way to a peer that it has not answered.
const WINDOW: u32 = 6;

/// Receives posted for a peer: fewer than may come, so that some find none.
const POSTED: u32 = 4;

/// Bytes that each peer may write here.
pub(crate) const SLOT: usize = 1 << 20;

/// What is written behind the end of a message would change these.
const GUARD: [u8; 8] = [0xa5; 8];

pub(crate) const KEY: u64 = 77;

/// How long operations with a peer may fail before the command `dead` confirms that it was killed.
const SUSPICION_LIMIT: Duration = PATIENCE;

const SETUP: &str = "RIPSTOP_SHM_TEST_LOAD";

/// What a process of a group is told when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Beginning of the names of its endpoints.
    pub(crate) group: String,
    pub(crate) own: usize,
    pub(crate) incarnation: u32,
    /// The seed of its random numbers.
    pub(crate) seed: u64,
    /// The hostile member, if there is one: its bytes are not checked, and its errors are no failures.
    pub(crate) hostile: Option<usize>,
}

impl Setup {
    /// For the environment of the process.
    pub(crate) fn to_env(&self) -> (&'static str, String) {
        let hostile = self.hostile.map_or(-1, |hostile| hostile as i64);
        let Self {
            group,
            own,
            incarnation,
            seed,
            ..
        } = self;
        (
            SETUP,
            format!("{group} {own} {incarnation} {seed} {hostile}"),
        )
    }

    /// What the environment says, in a process that is started for it.
    pub(crate) fn from_env() -> Option<Self> {
        let text = std::env::var(SETUP).ok()?;
        let words: Vec<_> = text.split(' ').collect();
        Some(Self {
            group: words[0].to_owned(),
            own: words[1].parse().unwrap(),
            incarnation: words[2].parse().unwrap(),
            seed: words[3].parse().unwrap(),
            hostile: words[4].parse().ok(),
        })
    }
}

/// The name of a member's endpoint.
pub(crate) fn name(group: &str, member: usize) -> String {
    format!("load://{group}-{member}")
}

const MESSAGE: u64 = 1;
const REPLY: u64 = 2;
const RMA: u64 = 3;

/// An operation on its way, with the memory that it uses.
#[derive(Debug)]
struct Op {
    peer: usize,
    what: What,
    memory: Vec<Parked>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Send,
    Reply,
    RecvReply(u32),
    Recv(u32),
    Write,
    Read,
    Add,
}

#[derive(Clone, Copy, Debug)]
enum Life {
    None,
    Talking,
    /// Something failed; somebody has to say that it is dead soon.
    Suspect(Instant),
    Dead(Instant),
}

/// What a process knows of another.
#[derive(Debug)]
struct Pair {
    addr: FiAddr,
    life: Life,
    incarnation: u32,
    /// Messages sent, and those that were answered.
    sent: u32,
    answered: u32,
    /// Receives posted, and messages that have come.
    posted: u32,
    got: u32,
    /// To be answered.
    owed: Vec<u32>,
    /// The next step at the peer's memory, unless it is under way.
    rma: Option<What>,
    rounds: u32,
    sums: u64,
    /// When `more` is to be said: both counts.
    goal: Option<(u32, u32)>,
}

/// See [the module](self).
struct Load {
    setup: Setup,
    cq: Arc<<Safe as ripstop_core::provider::Domain>::Cq>,
    ep: Arc<<Safe as ripstop_core::provider::Domain>::Endpoint>,
    region: Option<SharedBuf>,
    mr: Option<Arc<<Safe as ripstop_core::provider::Domain>::Mr>>,
    pairs: Vec<Pair>,
    ops: HashMap<usize, Op>,
    /// What gives the memory of an operation back that is over.
    unpark: Unpark,
    next: usize,
    random: Numbers,
    sleeps: bool,
    resting: bool,
    /// When this process looked for completions last, and the longest time between two such looks
    /// since it was told of a death: what is more than half a second, it was not let run.
    ran: Instant,
    away: Duration,
    /// What is open without any connection.
    before: Held,
}

/// Gives the vector of a buffer back, or a copy of it: unit tests of the crate run this too, and the
/// crate forbids them the `unsafe` that frees such memory.
pub(crate) type Unpark = fn(Parked) -> Vec<u8>;

/// What a process runs that was started for it.
pub(crate) fn run(setup: Setup, unpark: Unpark) {
    std::panic::set_hook(Box::new(|what| {
        println!("\nwrong: {}", what.to_string().replace('\n', " "));
    }));
    let nothing = Held::now();
    let mut load = Load::open(setup, unpark);
    let (tell, told) = channel();
    let cq = Arc::downgrade(&load.cq);
    std::thread::spawn(move || {
        for line in std::io::stdin()
            .lock()
            .lines()
            .map_while(std::result::Result::ok)
        {
            if tell.send(line).is_err() {
                break;
            }
            if let Some(cq) = cq.upgrade() {
                let _ = cq.signal();
            }
        }
    });
    println!("\nopen");
    load.talk(&told);
    load.close();
    // The memory of its own region stays mapped.
    let nothing = nothing.with(0, 1);
    let stop = Instant::now() + noticed_within();
    while Held::now() != nothing {
        assert!(Instant::now() < stop, "left: {:?}", Held::now());
    }
    println!("\nended");
}

impl Load {
    fn open(setup: Setup, unpark: Unpark) -> Self {
        let mut random = Numbers(setup.seed ^ mix(u64::from(setup.incarnation) + 1));
        let (automatic, sleeps) = match random.below(4) {
            0 => (true, true),
            1 => (false, true),
            _ => (false, false),
        };
        let progress = if automatic {
            Progress::Auto
        } else {
            Progress::Manual
        };
        let caps = Flags::MSG
            | Flags::TAGGED
            | Flags::RMA
            | Flags::ATOMIC
            | Flags::DIRECTED_RECV
            | Flags::SOURCE;
        let own = name(&setup.group, setup.own);
        let info = info_for(caps, Some(&own), Threading::Safe, progress);
        let domain = safe(&info);
        let attr = CqAttr {
            wait: WaitObj::Unspec,
            ..CqAttr::default()
        };
        let cq = domain.cq(&attr).unwrap();
        let av = domain.av(&AvAttr::default()).unwrap();
        let ep = domain.endpoint(&info, Token(0)).unwrap();
        ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
        ep.bind_av(&av).unwrap();
        // Before anybody can write there.
        let region = SharedBuf::zeroed(MEMBERS * (8 + SLOT)).unwrap();
        // The same for all incarnations: some members let their peers map it.
        let maps = mix(setup.seed ^ setup.own as u64) & 1 == 0;
        let attr = MrAttr {
            iov: vec![region.buf()],
            access: Flags::REMOTE_READ | Flags::REMOTE_WRITE,
            offset: 0,
            requested_key: KEY,
            flags: Flags::empty(),
            shared: match maps {
                true => Sharing::Part(region.part().clone()),
                false => Sharing::Never,
            },
        };
        let mr = domain.mr(&attr).unwrap();
        ep.enable().unwrap();
        let pairs = (0..MEMBERS)
            .map(|member| {
                let peer = Address::Str(name(&setup.group, member));
                Pair::new(av.insert(&peer).unwrap())
            })
            .collect();
        Self {
            setup,
            cq,
            ep,
            region: Some(region),
            mr: Some(mr),
            pairs,
            ops: HashMap::new(),
            unpark,
            next: 1,
            random,
            sleeps,
            resting: false,
            ran: Instant::now(),
            away: Duration::ZERO,
            before: Held::now(),
        }
    }

    /// Until it is told to end.
    fn talk(&mut self, told: &Receiver<String>) {
        // Silence means that whoever started this process is gone.
        let mut heard = Instant::now();
        loop {
            match told.try_recv() {
                Ok(line) => {
                    heard = Instant::now();
                    if line == "end" {
                        return;
                    }
                    self.obey(&line);
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            assert!(heard.elapsed() < 10 * PATIENCE, "nobody speaks");
            for peer in 0..MEMBERS {
                self.go_on(peer);
            }
            self.collect();
            for peer in 0..MEMBERS {
                self.judge(peer);
            }
            if self.resting && !self.has_begun() {
                self.resting = false;
                println!("\nresting");
            }
        }
    }

    fn obey(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        match words[0] {
            "alive" => {
                let pair = &mut self.pairs[number(1)];
                *pair = Pair::new(pair.addr);
                pair.incarnation = number(2) as u32;
                pair.life = Life::Talking;
            }
            "dead" => {
                self.pairs[number(1)].life = Life::Dead(Instant::now());
                self.away = Duration::ZERO;
            }
            "more" => {
                let pair = &mut self.pairs[number(1)];
                let more = number(2) as u32;
                pair.goal = Some((pair.answered + more, pair.got + more));
            }
            "rest" => self.resting = true,
            other => panic!("no command {other}"),
        }
    }

    /// Whether operations are on their way that this process has begun by itself.
    fn has_begun(&self) -> bool {
        let begun = |op: &Op| !matches!(op.what, What::Recv(_));
        self.ops.values().any(begun)
    }

    fn out(&self, peer: usize) -> Flow {
        Flow {
            from: self.setup.own,
            from_life: self.setup.incarnation,
            to: peer,
            to_life: self.pairs[peer].incarnation,
        }
    }

    fn back(&self, peer: usize) -> Flow {
        let out = self.out(peer);
        Flow {
            from: out.to,
            from_life: out.to_life,
            to: out.from,
            to_life: out.from_life,
        }
    }

    /// Begins what is next with a peer.
    fn go_on(&mut self, peer: usize) {
        if peer == self.setup.own || !matches!(self.pairs[peer].life, Life::Talking) {
            return;
        }
        let pair = &self.pairs[peer];
        if pair.posted < pair.got + POSTED {
            self.post(peer);
        }
        let pair = &self.pairs[peer];
        if let Some(seq) = pair.owed.first().copied() {
            self.reply(peer, seq);
        }
        let pair = &self.pairs[peer];
        if self.is_idle() {
            return;
        }
        if pair.sent < pair.answered + WINDOW {
            self.send(peer);
        }
        self.reach(peer);
    }

    /// Whether nothing new is begun.
    const fn is_idle(&self) -> bool {
        self.resting
    }

    /// Notes what has become of a call. Where it was refused for now, it is done again later.
    fn begun(&mut self, op: Op, outcome: Result<()>) -> bool {
        let context = self.next;
        match outcome {
            Ok(()) => {
                self.next += 1;
                self.ops.insert(context, op);
                true
            }
            Err(error) => {
                let peer = op.peer;
                op.memory
                    .into_iter()
                    .for_each(|memory| drop((self.unpark)(memory)));
                if error != Errno::EAGAIN {
                    self.suspect(peer, error);
                }
                false
            }
        }
    }

    fn post(&mut self, peer: usize) {
        let pair = &self.pairs[peer];
        let (seq, flow) = (pair.posted, self.back(peer));
        let room = flow.len(seq) + GUARD.len();
        let memory = Parked::park(GUARD.iter().copied().cycle().take(room).collect());
        let buf = memory.buf().first(room - GUARD.len());
        let kind = RecvKind::Tagged {
            tag: flow.whose(MESSAGE, seq),
            ignore: 0,
        };
        let from = self.source(peer, seq);
        let outcome = self.ep.recv(kind, &[buf], from, self.next, None);
        let what = What::Recv(seq);
        let op = Op {
            peer,
            what,
            memory: vec![memory],
        };
        if self.begun(op, outcome) {
            self.pairs[peer].posted += 1;
        }
    }

    /// Where a receive takes its message from: most from anybody, by the tag alone.
    fn source(&self, peer: usize, seq: u32) -> FiAddr {
        // What is directed takes longer to fail, so this is for a part of the lives.
        let directed = mix(self.out(peer).whose(0, 0)).is_multiple_of(4);
        match directed && seq.is_multiple_of(2) {
            true => self.pairs[peer].addr,
            false => FiAddr::UNSPEC,
        }
    }

    fn send(&mut self, peer: usize) {
        let (seq, flow, to) = (self.pairs[peer].sent, self.out(peer), self.pairs[peer].addr);
        // First the place for the answer.
        let answer = Parked::park(vec![0; 8]);
        let kind = RecvKind::Tagged {
            tag: flow.whose(REPLY, seq),
            ignore: 0,
        };
        let from = self.source(peer, seq);
        let outcome = self.ep.recv(kind, &[answer.buf()], from, self.next, None);
        let op = Op {
            peer,
            what: What::RecvReply(seq),
            memory: vec![answer],
        };
        if !self.begun(op, outcome) {
            return;
        }
        let whose = flow.whose(MESSAGE, seq);
        let text = Parked::park(pattern(flow.len(seq), whose));
        let outcome = loop {
            let kind = SendKind::Tagged(whose);
            let outcome = self.ep.send(kind, &[text.buf()], None, to, self.next, None);
            match outcome {
                Err(Errno::EAGAIN) => self.collect(),
                outcome => break outcome,
            }
        };
        let op = Op {
            peer,
            what: What::Send,
            memory: vec![text],
        };
        if self.begun(op, outcome) {
            self.pairs[peer].sent += 1;
        }
    }

    fn reply(&mut self, peer: usize, seq: u32) {
        let (flow, to) = (self.back(peer), self.pairs[peer].addr);
        let whose = flow.whose(REPLY, seq);
        let text = Parked::park(pattern(8, whose));
        let kind = SendKind::Tagged(whose);
        let outcome = self.ep.send(kind, &[text.buf()], None, to, self.next, None);
        let op = Op {
            peer,
            what: What::Reply,
            memory: vec![text],
        };
        if self.begun(op, outcome) {
            self.pairs[peer].owed.remove(0);
        }
    }

    /// Where this process may write in a peer's memory, and what it writes in this round.
    fn slot(&self, peer: usize) -> (RmaIov, Vec<u8>) {
        let round = self.pairs[peer].rounds;
        let whose = self.out(peer).whose(RMA, round);
        let random = mix(whose ^ 1);
        let len = match random % 8 {
            ..4 => 1 + random % 64,
            4..7 => 1 + random % 8192,
            _ => 1 + random % SLOT as u64,
        };
        let remote = RmaIov {
            addr: (MEMBERS * 8 + self.setup.own * SLOT) as u64,
            len,
            key: KEY,
        };
        (remote, pattern(len as usize, whose))
    }

    /// The next step at the peer's memory: write, read it back, add.
    fn reach(&mut self, peer: usize) {
        let Some(what) = self.pairs[peer].rma else {
            return;
        };
        let (slot, bytes) = self.slot(peer);
        let call = |remote, flags| RmaCall {
            remote,
            peer: self.pairs[peer].addr,
            data: None,
            context: self.next,
            flags: Some(flags),
        };
        let (memory, outcome) = match what {
            What::Write => {
                let text = Parked::park(bytes);
                let remote = [slot];
                let call = call(&remote, Flags::DELIVERY_COMPLETE);
                let outcome = self.ep.write(&[text.buf()], &call);
                (vec![text], outcome)
            }
            What::Read => {
                let room = Parked::park(vec![0; bytes.len()]);
                let remote = [slot];
                let call = call(&remote, Flags::empty());
                let outcome = self.ep.read(&[room.buf()], &call);
                (vec![room], outcome)
            }
            _ => {
                let [one, sum] = [1_u64, 0].map(|word| Parked::park(word.to_ne_bytes().to_vec()));
                let remote = [RmaIov {
                    addr: 8 * self.setup.own as u64,
                    len: 8,
                    key: KEY,
                }];
                let call = AtomicCall {
                    kind: AtomicKind::Fetch,
                    datatype: Datatype::Uint64,
                    op: AtomicOp::Sum,
                    compare: &[],
                    result: &[sum.buf()],
                    remote: &remote,
                    peer: self.pairs[peer].addr,
                    data: None,
                    context: self.next,
                    flags: Some(Flags::empty()),
                };
                let outcome = self.ep.atomic(&[one.buf()], &call);
                (vec![sum, one], outcome)
            }
        };
        if self.begun(Op { peer, what, memory }, outcome) {
            self.pairs[peer].rma = None;
        }
    }

    /// Takes what has completed.
    fn collect(&mut self) {
        let mut done: Vec<Completion> = Vec::new();
        let take = |entry: &Completion| done.push(*entry);
        let read = match self.sleeps && self.random.below(4) != 0 {
            true => {
                let long = Some(Duration::from_millis(500));
                self.cq.sread(64, 1, long, take)
            }
            false => self.cq.read(64, take),
        };
        let gap = self.ran.elapsed();
        self.ran = Instant::now();
        self.away = self.away.max(gap);
        for entry in done {
            match self.ops.remove(&entry.context) {
                Some(op) => self.completed(op, entry),
                None => assert!(self.is_foreign(entry.context), "{entry:?} of no operation"),
            }
        }
        match read {
            Ok(_) | Err(Errno::EAGAIN | Errno::ECANCELED) => {}
            Err(Errno::EAVAIL) => self.take_error(),
            Err(error) => panic!("the queue fails: {error}"),
        }
    }

    fn take_error(&mut self) {
        let (mut context, mut why) = (0, Errno::EOTHER);
        let note = |error: &ripstop_types::CompletionError, _: &[u8]| {
            (context, why) = (error.entry.context, error.err);
        };
        self.cq.read_error(note).unwrap();
        let Some(op) = self.ops.remove(&context) else {
            assert!(self.is_foreign(context), "{why} of no operation");
            return;
        };
        let peer = op.peer;
        op.memory
            .into_iter()
            .for_each(|memory| drop((self.unpark)(memory)));
        let cancelled = why == Errno::ECANCELED && matches!(self.pairs[peer].life, Life::Dead(_));
        if !cancelled {
            self.suspect(peer, why);
        }
    }

    /// Whether an entry is of what a peer did here that may do what it likes: writes with data.
    const fn is_foreign(&self, context: usize) -> bool {
        context == 0 && self.setup.hostile.is_some()
    }

    fn suspect(&mut self, peer: usize, why: Errno) {
        let life = &mut self.pairs[peer].life;
        if matches!(life, Life::Talking) {
            *life = Life::Suspect(Instant::now());
            println!("\nsuspect {peer} {why}");
        }
    }

    fn completed(&mut self, op: Op, entry: Completion) {
        let peer = op.peer;
        let (back, out) = (self.back(peer), self.out(peer));
        let mut memory = op.memory.into_iter().map(self.unpark);
        let first = memory.next().unwrap_or_default();
        memory.for_each(drop);
        let trusted = self.setup.hostile != Some(peer);
        let pair = &self.pairs[peer];
        let right = match op.what {
            What::Send | What::Reply | What::Write => true,
            What::Recv(seq) => {
                let text = pattern(back.len(seq), back.whose(MESSAGE, seq));
                let (found, guard) = first.split_at(text.len());
                assert_eq!(guard, GUARD, "behind message {seq} of {peer}");
                entry.len == text.len() && found == text
            }
            What::RecvReply(seq) => entry.len == 8 && first == pattern(8, out.whose(REPLY, seq)),
            What::Read => first == self.slot(peer).1,
            What::Add => first == pair.sums.to_ne_bytes(),
        };
        assert!(right || !trusted, "{:?} of {peer}: wrong bytes", op.what);
        let pair = &mut self.pairs[peer];
        match op.what {
            What::Send | What::Reply => {}
            What::Recv(seq) => {
                pair.got += 1;
                pair.owed.push(seq);
            }
            What::RecvReply(_) => pair.answered += 1,
            What::Write => pair.rma = Some(What::Read),
            What::Read => {
                pair.rounds += 1;
                pair.rma = Some(What::Add);
            }
            What::Add => {
                pair.sums += 1;
                pair.rma = Some(What::Write);
            }
        }
        if let Some((answered, got)) = pair.goal
            && pair.answered >= answered
            && pair.got >= got
        {
            pair.goal = None;
            println!("\nmore {peer}");
        }
    }

    /// Sees to it that a peer's end is noticed in time, and leaves nothing.
    fn judge(&mut self, peer: usize) {
        match self.pairs[peer].life {
            Life::Suspect(since) if self.setup.hostile != Some(peer) => {
                assert!(
                    since.elapsed() < SUSPICION_LIMIT,
                    "{peer} failed, and is not dead"
                );
            }
            Life::Dead(since) => {
                self.cancel(peer);
                let left: Vec<_> = self.ops.values().filter(|op| op.peer == peer).collect();
                assert!(
                    since.elapsed() < noticed_within() || left.is_empty(),
                    "not ended: {:?}; this process was away for up to {:?}",
                    left.iter().map(|op| op.what).collect::<Vec<_>>(),
                    self.away
                );
                if left.is_empty() && self.has_let_go(since) {
                    self.clean(peer, since);
                }
            }
            _ => {}
        }
    }

    /// Cancels receives that any peer could fill.
    fn cancel(&mut self, peer: usize) {
        let any = |op: &Op, load: &Self| match op.what {
            What::Recv(seq) | What::RecvReply(seq) => {
                op.peer == peer && load.source(peer, seq) == FiAddr::UNSPEC
            }
            _ => false,
        };
        let contexts = self.ops.iter().filter(|(_, op)| any(op, self));
        let contexts: Vec<_> = contexts.map(|(context, _)| *context).collect();
        for context in contexts {
            // One that has begun ends by itself.
            let cancelled = self.ep.cancel(context);
            assert!(matches!(cancelled, Ok(()) | Err(Errno::ENOENT)));
        }
    }

    /// Whether all that is held is of peers that live.
    fn has_let_go(&self, since: Instant) -> bool {
        let talking = |pair: &&Pair| matches!(pair.life, Life::Talking);
        let living = self.pairs.iter().filter(talking).count();
        let held = Held::now();
        // Each lets its region be mapped, or not.
        let allowed = (0..=living)
            .flat_map(|count| (0..=count).map(move |mapped| (count, mapped)))
            .any(|(count, mapped)| held == self.before.with(count, mapped));
        assert!(
            allowed || since.elapsed() < noticed_within(),
            "held: {held:?}, before: {:?}, {living} peers live",
            self.before
        );
        allowed
    }

    fn clean(&mut self, peer: usize, since: Instant) {
        // Nobody writes there any more: its successor begins with zero.
        if let Some(region) = &self.region {
            copy_out(region.buf().skip(8 * peer).first(8), &[0; 8]);
        }
        self.pairs[peer].life = Life::None;
        println!("\nclean {peer} {}", since.elapsed().as_millis());
    }

    fn close(mut self) {
        drop(self.mr.take());
        let region = self.region.take();
        drop(self);
        // Its memory goes with the process.
        drop(region);
    }
}

impl Pair {
    const fn new(addr: FiAddr) -> Self {
        Self {
            addr,
            life: Life::None,
            incarnation: 0,
            sent: 0,
            answered: 0,
            posted: 0,
            got: 0,
            owed: Vec::new(),
            rma: Some(What::Write),
            rounds: 0,
            sums: 0,
            goal: None,
        }
    }
}
