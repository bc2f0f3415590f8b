//! A hostile peer that writes the words of joint copies, while the victim receives a long message from it or
//! sends it one, and an honest peer goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use ripstop_core::provider::{CompletionQueue as _, Endpoint as _, RecvKind, SendKind};
use ripstop_mem::Parked;
use ripstop_types::{Errno, FiAddr, Flags};
use ripstop_wire::xnet::base::{Header, Op};

use super::peer::{HostilePeer, JointWords, SCRATCH_BYTES};
use super::rig::{Rig, Victim};
use super::{StopOnDrop, env_number};
use crate::common::load::Numbers;
use crate::common::other::tell_parent;
use crate::common::{PATIENCE, bytes};

/// Bytes of the messages, and how many parts they have.
const LEN: usize = 512 << 10;
const PARTS: u64 = 4;

/// Bytes before and behind the victim's buffer, and those of the hostile peer's memory around its own.
const GUARD: [u8; 64] = [0xa5; 64];
const AROUND: usize = (SCRATCH_BYTES - LEN) / 2;

/// No call of the victim takes longer: the end of a connection waits for 1 s, and the machine may do much else.
const LONGEST_CALL: Duration = Duration::from_secs(5);

/// A message ends within this time after its peer has closed the connection, on a machine that is not busy. It is shorter than the
/// wait for a peer that has not closed it.
const SOON: Duration = Duration::from_millis(500);

/// Messages to the honest peer, and back, during a lie.
const PINGS: usize = 5;
const PING: u64 = 7;
const PONG: u64 = 8;

/// The contexts of the victim's operations.
const LONG: usize = 1;
const HEARD: usize = 2;
const ANSWERED: usize = 3;

/// What a hostile peer does to the first word from when a joint copy has begun.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// Sets it to what it was at the beginning, again and again.
    SetBack,
    /// Says that parts are claimed up to where both ends meet, and never copies them.
    NeverCopied,
    /// Claims parts that are not there.
    OutOfRange,
    /// Any value.
    Random,
    /// Values in which some fields are as they are.
    NearlyValid,
}

const LIES: [Lie; 5] = [
    Lie::SetBack,
    Lie::NeverCopied,
    Lie::OutOfRange,
    Lie::Random,
    Lie::NearlyValid,
];

impl Lie {
    /// What the word is set to next.
    fn next(self, first: u64, now: u64, random: &mut Numbers) -> u64 {
        match self {
            Self::SetBack => first,
            Self::NeverCopied => first & !0xffff | (PARTS / 2) << 8 | (PARTS / 2),
            Self::OutOfRange => first & !0xffff | 0xff00 | random.below(255),
            Self::Random => random.next(),
            Self::NearlyValid => {
                let kept = !(0xff_u64 << (8 * random.below(4)));
                now & kept | random.next() & !kept
            }
        }
    }
}

/// The victim's side of a long message.
#[derive(Clone, Copy, Debug)]
enum Way {
    Receives,
    Sends,
}

/// Memory for a long message, between guards.
fn guarded() -> Parked {
    Parked::park([&GUARD[..], &[0; LEN], &GUARD].concat())
}

/// The main function of the victim; without its environment it does nothing. It says when a long message has
/// ended, and how many milliseconds its longest call took until then.
#[test]
fn subprocess_joint_victim() {
    let Some(victim) = Victim::open(Flags::MSG | Flags::TAGGED) else {
        return;
    };
    let (end, honest, hostile) = (&victim.end, victim.honest, victim.hostile);
    let (ping, pong) = (Parked::park(vec![0; 8]), Parked::park(vec![1; 8]));
    let hear = || {
        let kind = RecvKind::Tagged {
            tag: PING,
            ignore: 0,
        };
        let posted = end
            .ep
            .recv(kind, &[ping.buf()], FiAddr::UNSPEC, HEARD, None);
        posted.unwrap();
    };
    hear();
    tell_parent("open");
    let (mut long, mut longest) = (None, Duration::ZERO);
    loop {
        let order = victim.orders.try_recv();
        match order.as_deref() {
            Ok("receive") => {
                let room = long.insert(guarded());
                let into = room.buf().skip(GUARD.len()).first(LEN);
                let kind = RecvKind::Msg;
                let posted = end.ep.recv(kind, &[into], FiAddr::UNSPEC, LONG, None);
                posted.unwrap();
                tell_parent("posted");
            }
            Ok("send") => {
                let text = long.insert(guarded());
                let from = text.buf().skip(GUARD.len()).first(LEN);
                let kind = SendKind::Msg;
                let sent = end.ep.send(kind, &[from], None, hostile, LONG, None);
                sent.unwrap();
            }
            Ok(other) => panic!("no order {other}"),
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {}
        }
        let (began, mut done) = (Instant::now(), 0);
        let read = end.cq.read(1, |entry| done = entry.context);
        longest = longest.max(began.elapsed());
        match read {
            Ok(_) => {}
            Err(Errno::EAVAIL) => {
                let read = end.cq.read_error(|error, _| done = error.entry.context);
                read.unwrap();
            }
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
        match done {
            LONG => {
                let memory = bytes(long.take().unwrap());
                assert!(memory.starts_with(&GUARD) && memory.ends_with(&GUARD));
                tell_parent(longest.as_millis());
                longest = Duration::ZERO;
            }
            HEARD => {
                let kind = SendKind::Tagged(PONG);
                let sent = end
                    .ep
                    .send(kind, &[pong.buf()], None, honest, ANSWERED, None);
                sent.unwrap();
                hear();
            }
            _ => {}
        }
    }
}

impl Rig {
    /// The honest peer and the victim exchange messages.
    fn ping(&self) {
        let [text, room] = [0; 2].map(|byte| Parked::park(vec![byte; 8]));
        for _ in 0..PINGS {
            let kind = RecvKind::Tagged {
                tag: PONG,
                ignore: 0,
            };
            let ep = &self.honest.ep;
            let posted = ep.recv(kind, &[room.buf()], FiAddr::UNSPEC, 1, None);
            posted.unwrap();
            let kind = SendKind::Tagged(PING);
            let sent = ep.send(kind, &[text.buf()], None, self.to, 2, None);
            sent.unwrap();
            self.honest.poll(2);
        }
        drop((bytes(text), bytes(room)));
    }

    /// Tells one lie. Returns how long after the close of the connection the message ended; `None` if no joint copy began.
    fn lie(&mut self, lie: Lie, way: Way) -> Option<Duration> {
        let peer = HostilePeer::connect(&self.group, &mut self.random);
        let words = peer.joint_words(matches!(way, Way::Receives));
        match way {
            Way::Receives => {
                self.victim.tell("receive");
                assert_eq!(self.victim.hear(), "posted");
            }
            Way::Sends => {
                peer.send_header(&Header::with_get_limit(14));
                // The victim has seen that: it goes on in the order of what was written.
                self.ping();
                self.victim.tell("send");
            }
        }
        let (stop, mut random) = (AtomicBool::new(false), self.random.clone());
        self.random.next();
        let begun = std::thread::scope(|scope| {
            let _stop_on_drop = StopOnDrop(&stop);
            scope.spawn(|| {
                // The number of the joint copy, which is stored last.
                while words.load() >> 25 == 0 && !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                let first = words.load() & !0x1ff_ffff | PARTS << 8;
                while !stop.load(Ordering::Relaxed) {
                    words.store(lie.next(first, words.load(), &mut random));
                }
            });
            let begun = match way {
                Way::Receives => self.await_begin(&peer, &words),
                Way::Sends => self.begin(&peer, &words),
            };
            if begun {
                self.ping();
            }
            begun
        });
        let around = peer.scratch_around(AROUND);
        assert!(around.iter().all(|byte| *byte == 0), "{lie:?}, {way:?}");
        drop(peer);
        let gone = Instant::now();
        let longest = Duration::from_millis(self.victim.hear().parse().unwrap());
        assert!(longest < LONGEST_CALL, "{lie:?}, {way:?}: {longest:?}");
        begun.then(|| gone.elapsed())
    }

    /// Announces a message, and waits until the victim has begun a joint copy. It copies alone where it has no
    /// processor for long.
    fn await_begin(&self, peer: &HostilePeer, words: &JointWords<'_>) -> bool {
        let message = Header {
            address: peer.scratch_address() + AROUND as u64,
            ..Header::new(Op::MsgGet, LEN as u64).with_index(1)
        };
        peer.send_header(&message);
        let stop = Instant::now() + Duration::from_secs(2);
        while words.address() == 0 {
            if Instant::now() > stop {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Waits until the victim has announced its message, and says that it is copied jointly.
    fn begin(&mut self, peer: &HostilePeer, words: &JointWords<'_>) -> bool {
        let Some(index) = peer.announced_index(Op::MsgGet) else {
            return false;
        };
        let own = peer.scratch_address() + AROUND as u64;
        // At last some that make no sense.
        let (address, len, index) = match self.random.below(8) {
            0 => (8, LEN as u64, index),
            1 => (own, u64::MAX, index),
            2 => (own, LEN as u64, self.random.next() as u16),
            _ => (own, LEN as u64, index),
        };
        words.open([address, len, index.into()], 1 << 25 | PARTS << 8);
        peer.send_header(&Header::joint());
        true
    }
}

#[test]
fn hostile_words_of_joint_copies_harm_nobody() {
    let seed = env_number("RIPSTOP_HOSTILE_SEED").unwrap_or_else(|| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        now.as_nanos() as u64
    });
    println!("RIPSTOP_HOSTILE_SEED={seed}");
    let main = "hostile_tests::joint::subprocess_joint_victim";
    let mut rig = Rig::start("joint", main, seed);
    rig.ping();
    for way in [Way::Receives, Way::Sends] {
        for lie in LIES {
            let stop = Instant::now() + PATIENCE;
            let mut ended = Vec::new();
            while ended.len() < 3 {
                assert!(Instant::now() < stop, "{lie:?}, {way:?}: never begun");
                ended.extend(rig.lie(lie, way));
            }
            // The victim does not wait for parts that a peer has claimed whose connection is closed.
            let soonest = ended.iter().min();
            assert!(
                soonest < Some(&SOON),
                "{lie:?}, {way:?}: ended after {ended:?}"
            );
            rig.ping();
        }
    }
}
