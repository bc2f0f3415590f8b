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

mod begin;
mod end;

use std::collections::HashMap;
use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use ripstop_core::Address;
use ripstop_core::provider::{
    AddressVector as _, AvAttr, CompletionQueue as _, CqAttr, Domain as _, Endpoint as _, MrAttr,
    Sharing, Token,
};
use ripstop_mem::Parked;
use ripstop_os::SharedBuf;
use ripstop_types::{FiAddr, Flags, Progress, Threading, WaitObj};

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
