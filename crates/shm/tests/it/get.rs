//! Long messages, whose payload the receiver gets from the memory of the sender.

use std::io::BufRead as _;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::other::{Other, tell_parent};
use crate::common::{self, End, Safe, bytes, info, open, pattern, safe};
use ripstop_core::Address;
use ripstop_core::provider::{
    CompletionQueue as _, Copied, Copies, Domain as _, Endpoint as _, RecvKind, SendKind,
};
use ripstop_mem::{Parked, copy_out};
use ripstop_types::{Errno, FiAddr, Flags, Threading};

const ROLE: &str = "RIPSTOP_SHM_TEST_GET";
const PARENT: &str = "RIPSTOP_SHM_TEST_PARENT";

/// More than a ring holds.
const LONG: usize = 1_500_000;

/// The lengths of messages that are sent in one go.
const MANY: [usize; 12] = [
    20_000, 16_384, 16_384, 300_000, 9_000, 16_384, 70_000, 70_000, 8, 20_000, 20_000, 16_385,
];

/// How often they are sent.
const ROUNDS: usize = 20;

/// The seed of the pattern of the first of those.
const FIRST_SEED: usize = 10;

/// The longest message that may be injected.
const INJECT_SIZE: usize = 4096;

/// So many are injected in a row, one of each kind: a ring holds them.
const INJECTED: usize = 4;

const TAG: u64 = 9;
const DATA: u64 = 0x0102_0304;

/// Each kind of injected message in turn: the tag and the data of this one.
fn kind_of_injected(number: usize) -> (Option<u64>, Option<u64>) {
    (
        number.is_multiple_of(2).then_some(TAG),
        (number % 4 < 2).then_some(DATA),
    )
}

/// This side, with its domain.
struct Here {
    domain: Arc<Safe>,
    end: End<Safe>,
}

impl Deref for Here {
    type Target = End<Safe>;

    fn deref(&self) -> &End<Safe> {
        &self.end
    }
}

fn here() -> Here {
    let info = info(None, Threading::Safe);
    let domain = safe(&info);
    let end = open(&domain, &info);
    Here { domain, end }
}

/// The sender, in another process.
struct Sender {
    process: Other,
}

impl Sender {
    fn start(parent: &Here, copy: &str) -> Self {
        let name = parent.name().to_string();
        let process = Other::start(
            "get::subprocess_sender",
            &[(ROLE, "sender"), (PARENT, &name), ("FI_SHM_COPY", copy)],
        );
        parent.knows(&Address::Str(process.hear()));
        Self { process }
    }

    /// The long payloads that it has sent through the ring.
    fn through_the_ring(&mut self) -> Copied {
        self.process.tell("ways");
        let answer = self.process.hear();
        let (payloads, bytes) = answer.split_once(' ').unwrap();
        Copied {
            payloads: payloads.parse().unwrap(),
            bytes: bytes.parse().unwrap(),
        }
    }

    /// Has it do something; returns when that is done.
    fn tell(&mut self, order: &str) {
        self.process.tell(order);
        assert_eq!(self.process.hear(), order);
    }
}

/// What the other process runs; in this one it does nothing. It makes progress only while it carries
/// out an order.
#[test]
fn subprocess_sender() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    let info = info(None, Threading::Safe);
    // It outlives the endpoint.
    let domain = safe(&info);
    let mut end = Some(open(&domain, &info));
    tell_parent(end.as_ref().unwrap().name());
    let parent = std::env::var(PARENT).unwrap();
    let parent = end.as_ref().unwrap().knows(&Address::Str(parent));
    let text = Parked::park(pattern(LONG, 3));
    let short = Parked::park(vec![1; 8]);
    for order in std::io::stdin().lock().lines().map_while(Result::ok) {
        match (order.as_str(), &end) {
            ("short", Some(end)) => {
                end.send(&short, parent).unwrap();
                end.poll(1);
            }
            // Until it is under way, and no longer.
            ("long", Some(end)) => {
                end.send(&text, parent).unwrap();
                for _ in 0..100 {
                    assert_eq!(end.cq.read(1, |_| ()), Err(Errno::EAGAIN));
                }
            }
            ("many", Some(end)) => {
                let texts = MANY.iter().zip(FIRST_SEED..);
                let texts = texts.map(|(len, seed)| Parked::park(pattern(*len, seed)));
                let texts: Vec<Parked> = texts.collect();
                for text in &texts {
                    end.send(text, parent).unwrap();
                }
                end.poll(MANY.len());
                texts.into_iter().for_each(|text| drop(bytes(text)));
            }
            ("inject", Some(end)) => inject(end, parent),
            // It hears what the other side says of gets.
            ("listen", Some(end)) => {
                for _ in 0..1000 {
                    assert_eq!(end.cq.read(1, |_| ()), Err(Errno::EAGAIN));
                }
            }
            ("done", Some(end)) => end.poll(1),
            ("leave", _) => {
                end = None;
                copy_out(text.buf(), &vec![0xff; LONG]);
            }
            ("ways", _) => {
                let Copied { payloads, bytes } = domain.copies().unwrap().ring;
                tell_parent(format_args!("{payloads} {bytes}"));
                continue;
            }
            (other, _) => panic!("no order {other}"),
        }
        tell_parent(order);
    }
    drop((bytes(text), bytes(short), domain));
}

/// Injects [`INJECTED`] messages, from memory that has other contents once each call has returned.
fn inject(end: &End<Safe>, parent: FiAddr) {
    let text = Parked::park(vec![0; INJECT_SIZE]);
    let stop = Instant::now() + common::PATIENCE;
    for number in 0..INJECTED {
        copy_out(text.buf(), &pattern(INJECT_SIZE, number));
        let (tag, data) = kind_of_injected(number);
        let kind = tag.map_or(SendKind::Msg, SendKind::Tagged);
        while let Err(error) = end.ep.inject(kind, text.buf(), data, parent) {
            assert_eq!(error, Errno::EAGAIN);
            assert!(Instant::now() < stop, "message {number} is not taken");
            assert_eq!(end.cq.read(1, |_| ()), Err(Errno::EAGAIN));
        }
        copy_out(text.buf(), &vec![0xee; INJECT_SIZE]);
    }
    drop(bytes(text));
}

fn connected(copy: &str) -> (Here, Sender) {
    let here = here();
    let mut sender = Sender::start(&here, copy);
    let room = Parked::park(vec![0; 8]);
    here.post(&room);
    sender.process.tell("short");
    here.poll(1);
    assert_eq!(sender.process.hear(), "short");
    assert_eq!(bytes(room), [1; 8]);
    sender.tell("listen");
    (here, sender)
}

#[test]
fn a_long_message_needs_nothing_more_of_its_sender() {
    let (here, mut sender) = connected("auto");
    sender.tell("long");
    let room = Parked::park(vec![0; LONG + 10]);
    here.post(&room);
    // The sender waits for orders meanwhile.
    here.poll(1);
    assert_eq!(bytes(room)[..LONG], pattern(LONG, 3));
    sender.tell("done");
}

/// Those that come together are got by one call, each to its place, also behind some that are sent.
#[test]
fn many_messages_come_whole_and_in_order() {
    for copy in ["auto", "attach", "ring"] {
        let (here, mut sender) = connected(copy);
        for round in 0..ROUNDS {
            let rooms = MANY.map(|len| Parked::park(vec![0; len]));
            // Some of them wait for their receives.
            let before = [MANY.len(), 0, 5][round % 3];
            rooms[..before].iter().for_each(|room| here.post(room));
            sender.process.tell("many");
            here.poll(before);
            rooms[before..].iter().for_each(|room| here.post(room));
            here.poll(MANY.len() - before);
            assert_eq!(sender.process.hear(), "many");
            for ((room, len), seed) in rooms.into_iter().zip(MANY).zip(FIRST_SEED..) {
                assert_eq!(bytes(room), pattern(len, seed), "{copy}: {len} bytes");
            }
        }
        let attach = here.domain.copies().unwrap().attach;
        all_are_counted(copy, sender.through_the_ring(), attach);
    }
}

/// Those may not wait, so none of them is got, though others of their length are.
#[test]
fn injected_messages_of_the_longest_size_are_taken() {
    for copy in ["auto", "attach", "ring"] {
        let (here, mut sender) = connected(copy);
        for round in 0..ROUNDS {
            let rooms = MANY.map(|len| Parked::park(vec![0; len]));
            rooms.iter().for_each(|room| here.post(room));
            sender.process.tell("many");
            here.poll(MANY.len());
            assert_eq!(sender.process.hear(), "many");
            rooms.into_iter().for_each(|room| drop(bytes(room)));
            // In every other round nothing is read before all are injected.
            receive_injected(&here, &mut sender, round % 2 == 0);
        }
    }
}

fn receive_injected(here: &Here, sender: &mut Sender, reads_at_the_end: bool) {
    let rooms = [(); INJECTED].map(|()| Parked::park(vec![0; INJECT_SIZE]));
    for (number, room) in rooms.iter().enumerate() {
        let kind = match kind_of_injected(number) {
            (Some(tag), _) => RecvKind::Tagged { tag, ignore: 0 },
            (None, _) => RecvKind::Msg,
        };
        let buf = &[room.buf()];
        let posted = here.ep.recv(kind, buf, FiAddr::UNSPEC, number, None);
        posted.unwrap();
    }
    sender.process.tell("inject");
    if reads_at_the_end {
        assert_eq!(sender.process.hear(), "inject");
    }
    let mut found = [None; INJECTED];
    let stop = Instant::now() + common::PATIENCE;
    while found.iter().any(Option::is_none) {
        assert!(Instant::now() < stop, "some do not arrive: {found:?}");
        let read = here.cq.read(1, |done| {
            let data = done.flags.contains(Flags::REMOTE_CQ_DATA);
            found[done.context] = Some(data.then_some(done.data));
        });
        assert!(matches!(read, Ok(_) | Err(Errno::EAGAIN)), "{read:?}");
    }
    if !reads_at_the_end {
        assert_eq!(sender.process.hear(), "inject");
    }
    for (number, room) in rooms.into_iter().enumerate() {
        let (_, data) = kind_of_injected(number);
        assert_eq!(found[number], Some(data), "message {number}");
        assert_eq!(
            bytes(room),
            pattern(INJECT_SIZE, number),
            "message {number}"
        );
    }
}

/// Each long payload of [`MANY`] is counted for one way; by attach only those of a sender that permits it.
fn all_are_counted(copy: &str, ring: Copied, attach: Copied) {
    let long = MANY.iter().map(|len| *len as u64);
    let long = long.filter(|len| *len >= Copies::MIN_BYTES);
    let payloads = (ROUNDS * long.clone().count()) as u64;
    let bytes = ROUNDS as u64 * long.sum::<u64>();
    let ways = format!("{copy}: {ring} through the ring, {attach} by attach");
    assert_eq!(ring + attach, Copied { payloads, bytes }, "{ways}");
    assert_eq!(attach.payloads == 0, copy == "ring", "{ways}");
}

#[test]
fn a_sender_that_wants_the_ring_has_to_send() {
    let (here, mut sender) = connected("ring");
    sender.tell("long");
    let room = Parked::park(vec![0; LONG]);
    here.post(&room);
    let pause = Instant::now() + Duration::from_millis(50);
    while Instant::now() < pause {
        assert_eq!(here.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
    sender.process.tell("done");
    here.poll(1);
    assert_eq!(sender.process.hear(), "done");
    assert_eq!(bytes(room), pattern(LONG, 3));
}

/// The memory of a message is its sender's again when that has closed its endpoint.
#[test]
fn nothing_is_got_from_a_sender_that_has_left() {
    let (here, mut sender) = connected("auto");
    let room = Parked::park(vec![0; LONG]);
    sender.tell("long");
    sender.tell("leave");
    here.post(&room);
    let stop = Instant::now() + common::PATIENCE;
    loop {
        match here.cq.read(1, |_| ()) {
            Err(Errno::EAGAIN) => assert!(Instant::now() < stop, "neither got nor failed"),
            outcome => break assert_eq!(outcome, Err(Errno::EAVAIL)),
        }
    }
    here.fails();
    drop(bytes(room));
}
