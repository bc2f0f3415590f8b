//! Long queues beside plain lists: whatever is posted, arrives, is claimed, cancelled or lost, a
//! message goes to the first receive that fits, and a receive takes the first message that fits
//! (`fi_msg(3)`, `fi_tagged(3)`), in lists as well as in tables.

use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::common::Mem;
use crate::id::{MessageId, RecvId};

/// What a receive ignores of a tag: more than there are classes.
const IGNORED: [u64; 11] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 1 << 63, u64::MAX];

#[derive(Clone, Debug)]
enum Step {
    /// A receive, which may be a multi-receive buffer.
    Post(Want, bool),
    /// A message.
    Arrive(Option<u64>, FiAddr),
    /// A peek sets a message aside.
    Claim(Want),
    /// The n-th of those set aside is received.
    TakeClaimed(usize),
    /// The n-th posted receive is cancelled.
    Cancel(usize),
    /// The n-th multi-receive buffer is full.
    Fill(usize),
    /// The n-th message is taken, whatever fits.
    Take(usize),
    /// All receives for this source fail, and all messages from there are lost.
    Leave(FiAddr),
    /// The peer with this address has another one now.
    Rename(FiAddr, FiAddr),
    /// Long walks were counted.
    Index(Want),
}

fn peers() -> impl Strategy<Value = FiAddr> {
    (0..3u64).prop_map(FiAddr)
}

fn wants() -> impl Strategy<Value = Want> {
    let tags = prop_oneof![
        8 => (0..6u64, 0..2usize),
        2 => (0..6u64, 0..IGNORED.len()),
    ];
    let tag = prop::option::weighted(0.8, tags.prop_map(|(tag, at)| (tag, IGNORED[at])));
    let src = prop_oneof![peers(), Just(FiAddr::UNSPEC)];
    (tag, src).prop_map(|(tag, src)| Want { tag, src })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let from = || prop_oneof![9 => peers(), 1 => Just(FiAddr::NOTAVAIL)];
    let tag = || prop::option::weighted(0.8, 0..6u64);
    let arrive = move || (tag(), from()).prop_map(|(tag, src)| Step::Arrive(tag, src));
    let post = || (wants(), prop::bool::weighted(0.05)).prop_map(|(w, m)| Step::Post(w, m));
    let rest = prop_oneof![
        wants().prop_map(Step::Claim),
        any::<usize>().prop_map(Step::TakeClaimed),
        any::<usize>().prop_map(Step::Cancel),
        any::<usize>().prop_map(Step::Fill),
        any::<usize>().prop_map(Step::Take),
        wants().prop_map(Step::Index),
        wants().prop_map(Step::Index),
    ];
    let seldom = prop_oneof![
        peers().prop_map(Step::Leave),
        (peers(), peers()).prop_map(|(old, new)| Step::Rename(old, new)),
    ];
    // Queues get long where one of the two prevails for a while.
    (1..30u32, 1..30u32).prop_flat_map(move |(posts, arrivals)| {
        let step = prop_oneof![
            posts => post(),
            arrivals => arrive(),
            6 => rest.clone(),
        ];
        let many = prop::collection::vec(step, 0..500);
        let few = prop::collection::vec(seldom.clone(), 0..3);
        (many, few, any::<usize>()).prop_map(|(mut steps, few, at)| {
            for step in few {
                let at = at % (steps.len() + 1);
                steps.insert(at, step);
            }
            steps
        })
    })
}

/// The queues as lists.
#[derive(Default)]
struct Lists {
    recvs: Vec<(Context, Want, bool)>,
    messages: Vec<(MessageId, Envelope, Option<Context>)>,
}

impl Lists {
    fn message_for(&self, want: &Want, claim: Option<Context>) -> Option<MessageId> {
        let fits = |(_, envelope, claimed): &&(MessageId, Envelope, Option<Context>)| {
            *claimed == claim && want.accepts(envelope.tag, envelope.src)
        };
        Some(self.messages.iter().find(fits)?.0)
    }

    fn drop_message(&mut self, id: MessageId) {
        self.messages.retain(|(other, ..)| *other != id);
    }
}

/// The queues, and the same as lists.
struct Pair {
    matcher: Matcher<Mem>,
    pool: Pool<MessageId, Unexpected>,
    lists: Lists,
    count: usize,
}

impl Pair {
    fn new() -> Self {
        Self {
            matcher: Matcher::new(0, true),
            pool: Pool::new(),
            lists: Lists::default(),
            count: 0,
        }
    }

    /// The next number of something.
    fn number(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    fn find(&mut self, want: Want, claim: Option<Context>) -> Option<MessageId> {
        let expected = self.lists.message_for(&want, claim);
        let found = self.matcher.find_unexpected(&mut self.pool, want, claim);
        assert_eq!(found, expected, "{want:?} {claim:?}");
        found
    }

    fn take_message(&mut self, id: MessageId) {
        assert!(self.matcher.remove_unexpected(&mut self.pool, id));
        self.pool.remove(id);
        self.lists.drop_message(id);
    }

    fn post(&mut self, want: Want, multi: bool) {
        let context = self.number();
        if let Some(id) = self.find(want, None) {
            return self.take_message(id);
        }
        let recv = Recv {
            multi,
            ..Recv::new(Iov::one(Mem(0, 10)), want, context)
        };
        self.matcher.post(recv).unwrap();
        self.lists.recvs.push((context, want, multi));
    }

    fn arrive(&mut self, tag: Option<u64>, src: FiAddr) {
        let fits = |(_, want, _): &(Context, Want, bool)| want.accepts(tag, src);
        let expected = self.lists.recvs.iter().position(fits);
        let found = self.matcher.match_message(tag, src);
        let context = found.map(|id| self.matcher.recv(id).unwrap().context);
        assert_eq!(context, expected.map(|at| self.lists.recvs[at].0));
        match (found, expected) {
            (Some(id), Some(at)) if !self.lists.recvs[at].2 => {
                self.lists.recvs.remove(at);
                self.matcher.finish(id);
            }
            (Some(_), _) => {}
            (None, _) => self.wait(tag, src),
        }
    }

    fn wait(&mut self, tag: Option<u64>, src: FiAddr) {
        let envelope = Envelope {
            tag,
            src,
            data: None,
            len: 0,
            ack: false,
        };
        let message = Unexpected {
            envelope,
            ep: None,
            conn: None,
            departed: None,
            slot: None,
            kept: 0,
            parked: false,
            rts: None,
            claimed: None,
            holder: None,
            ask_first: false,
            lost: None,
        };
        let id = self.pool.insert(message).unwrap();
        self.matcher.add_unexpected(&mut self.pool, id);
        self.lists.messages.push((id, envelope, None));
    }

    fn leave(&mut self, src: FiAddr) {
        let mut failed = self.matcher.split_posted(|recv| recv.want.src == src);
        let mut contexts = Vec::new();
        while let Some(id) = self.matcher.next_of(&mut failed) {
            contexts.push(self.matcher.finish(id).unwrap().context);
        }
        let left = |want: &Want| want.src == src;
        let recvs = self.lists.recvs.iter();
        let mut expected: Vec<_> = recvs.filter(|(_, want, _)| left(want)).collect();
        expected.sort_by_key(|(_, want, _)| want.tag.is_none());
        assert_eq!(
            contexts,
            expected.iter().map(|recv| recv.0).collect::<Vec<_>>()
        );
        self.lists.recvs.retain(|(_, want, _)| !left(want));

        let from = |message: &Unexpected| message.envelope.src == src;
        let mut lost = self.matcher.split_unexpected(&mut self.pool, from);
        while let Some(id) = lost.pop_front(&mut self.pool) {
            self.pool.remove(id);
            let first = self.lists.messages.iter().find(|(_, e, _)| e.src == src);
            assert_eq!(first.map(|message| message.0), Some(id));
            self.lists.drop_message(id);
        }
        assert!(self.lists.messages.iter().all(|(_, e, _)| e.src != src));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Post(want, multi) => self.post(want, multi),
            Step::Arrive(tag, src) => self.arrive(tag, src),
            Step::Claim(want) => {
                let context = self.number();
                if let Some(id) = self.find(want, None) {
                    self.pool.get_mut(id).unwrap().claimed = Some(context);
                    let messages = &mut self.lists.messages;
                    messages
                        .iter_mut()
                        .find(|(other, ..)| *other == id)
                        .unwrap()
                        .2 = Some(context);
                }
            }
            Step::TakeClaimed(at) => {
                let claimed = self.lists.messages.iter().filter(|(.., c)| c.is_some());
                let claimed: Vec<_> = claimed.copied().collect();
                let Some((id, envelope, claim)) = pick(&claimed, at) else {
                    return;
                };
                let want = Want {
                    tag: envelope.tag.map(|tag| (tag, 0)),
                    src: FiAddr::UNSPEC,
                };
                assert_eq!(self.find(want, claim), Some(id));
                self.take_message(id);
            }
            Step::Cancel(at) => {
                let Some((context, ..)) = pick(&self.lists.recvs, at) else {
                    return;
                };
                let id = self.matcher.cancel(context).unwrap();
                assert_eq!(self.matcher.finish(id).unwrap().context, context);
                self.lists.recvs.retain(|(other, ..)| *other != context);
            }
            Step::Fill(at) => {
                let buffers = self.lists.recvs.iter().filter(|(.., multi)| *multi);
                let buffers: Vec<_> = buffers.copied().collect();
                let Some((context, ..)) = pick(&buffers, at) else {
                    return;
                };
                let ids: Vec<_> = self.matcher.recvs.ids().collect();
                let is_it = |id: &RecvId| self.matcher.recv(*id).unwrap().context == context;
                let id = ids.into_iter().find(is_it).unwrap();
                assert!(self.matcher.unpost(id) && !self.matcher.unpost(id));
                self.matcher.finish(id);
                self.lists.recvs.retain(|(other, ..)| *other != context);
            }
            Step::Take(at) => {
                if let Some((id, ..)) = pick(&self.lists.messages, at) {
                    self.take_message(id);
                }
            }
            Step::Leave(src) => self.leave(src),
            Step::Rename(old, new) => {
                let renamed = |m: &Unexpected| (m.envelope.src == old).then_some(new);
                self.matcher.rename_unexpected(&mut self.pool, renamed);
                for (_, envelope, _) in &mut self.lists.messages {
                    if envelope.src == old {
                        envelope.src = new;
                    }
                }
            }
            Step::Index(want) => {
                let Matcher {
                    recvs,
                    msg,
                    tagged,
                    unexpected,
                    ..
                } = &mut self.matcher;
                let posted = if want.tag.is_some() { tagged } else { msg };
                posted.index(recvs);
                unexpected.index_for(&mut self.pool, &want);
            }
        }
    }

    /// Both are the same.
    fn check(&mut self) {
        assert_eq!(self.matcher.len(), self.lists.recvs.len());
        let mut waiting = Vec::new();
        self.matcher
            .each_unexpected(&mut self.pool, |id, _| waiting.push(id));
        let expected = self.lists.messages.iter();
        assert_eq!(
            waiting,
            expected.map(|message| message.0).collect::<Vec<_>>()
        );
        assert_eq!(self.matcher.nothing_unexpected(), waiting.is_empty());
        for (context, ..) in &self.lists.recvs {
            assert!(self.matcher.any_posted(|recv| recv.context == *context));
        }
    }
}

fn pick<T: Copy>(items: &[T], at: usize) -> Option<T> {
    items.get(at.checked_rem(items.len())?).copied()
}

proptest! {
    #[test]
    fn queues_are_as_lists(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
        pair.check();
    }
}

/// A want for one tag; as MPI programs have it, with some bits that never matter.
fn exact(tag: u64, src: FiAddr) -> Want {
    Want {
        tag: Some((tag, 7 << 61)),
        src,
    }
}

const MANY: u64 = 100_000;

#[test]
fn many_receives_are_found_in_any_order() {
    let mut pair = Pair::new();
    for tag in 0..MANY {
        let recv = Recv::new(
            Iov::one(Mem(0, 1)),
            exact(tag, FiAddr(tag % 8)),
            tag as usize,
        );
        pair.matcher.post(recv).unwrap();
    }
    for tag in (0..MANY).rev() {
        let id = pair
            .matcher
            .match_message(Some(tag), FiAddr(tag % 8))
            .unwrap();
        assert_eq!(pair.matcher.finish(id).unwrap().context, tag as usize);
    }
    assert!(pair.matcher.is_empty());
}

#[test]
fn many_messages_are_found_in_any_order() {
    for by_peer in [false, true] {
        let mut pair = Pair::new();
        for tag in 0..MANY {
            pair.wait(Some(tag), FiAddr(tag % 8));
        }
        let mut tags: Vec<u64> = (0..MANY).rev().collect();
        if by_peer {
            // All of the first peer, which are among those of the others, then all of the next.
            tags.sort_by_key(|tag| (tag % 8, *tag));
        }
        for tag in tags {
            let want = exact(tag, FiAddr(tag % 8));
            let id = pair
                .matcher
                .find_unexpected(&mut pair.pool, want, None)
                .unwrap();
            assert_eq!(pair.pool.get(id).unwrap().envelope.tag, Some(tag));
            assert!(pair.matcher.remove_unexpected(&mut pair.pool, id));
        }
        assert!(pair.matcher.nothing_unexpected());
    }
}

#[test]
fn many_receives_are_ended_in_one_go() {
    let mut pair = Pair::new();
    for tag in 0..MANY {
        let recv = Recv::new(
            Iov::one(Mem(0, 1)),
            exact(tag, FiAddr(tag % 2)),
            tag as usize,
        );
        pair.matcher.post(recv).unwrap();
    }
    let mut failed = pair.matcher.split_posted(|recv| recv.want.src == FiAddr(1));
    for tag in (1..MANY).step_by(2) {
        let id = pair.matcher.next_of(&mut failed).unwrap();
        assert_eq!(pair.matcher.finish(id).unwrap().context, tag as usize);
    }
    assert_eq!(pair.matcher.next_of(&mut failed), None);
    for tag in (0..MANY).step_by(2) {
        assert!(pair.matcher.cancel(tag as usize).is_some());
    }
}
