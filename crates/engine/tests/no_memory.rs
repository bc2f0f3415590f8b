//! Collective operations when memory runs out: what has been accepted ends, and a connection never
//! writes into memory whose owner has it back.
//!
//! It has no harness, because memory runs out for the whole process.

mod common;

use std::alloc::System;

use cap::Cap;
use common::Mem;
use ripstop_engine::Buffer as _;
use ripstop_engine::coll::{Action, Arrival, Collectives, Joining, Kind, Message, Request};
use ripstop_engine::counter::Counter;
use ripstop_engine::cq::{CompletionQueue, ErrorEntry};
use ripstop_engine::id::{ConnId, CqId, EpId, GroupId, SlotId};
use ripstop_engine::matching::Matcher;
use ripstop_engine::stream::{
    Chunk, CollAction, CollPlan, ConnConfig, Engine, EpConfig, Limits, PEER_NAME, RxWant, Terms,
};
use ripstop_types::{AtomicOp, Collective, Completion, Datatype, Errno, FiAddr, Flags};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::base::{Coll, CollKind, Header, MAX_HEADER};
use ripstop_wire::xnet::cm::Extensions;

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

/// Nothing more can be had while this lives.
struct RunOut;

impl RunOut {
    fn now() -> Self {
        while ALLOCATED.set_limit(ALLOCATED.allocated()).is_err() {}
        Self
    }
}

impl Drop for RunOut {
    fn drop(&mut self) {
        ALLOCATED.set_limit(usize::MAX).unwrap();
    }
}

const LIMITS: Limits = Limits {
    tx_buffer: 64 << 10,
    inline: 64,
    eager_max: 1 << 20,
    kept_bytes: 1 << 20,
    kept_messages: 1000,
    kept_longest: u64::MAX,
    kept_total: 1 << 20,
    ask_first: 1 << 20,
};

/// Members by rank; the first is this one.
const MEMBERS: [FiAddr; 2] = [FiAddr(0), FiAddr(7)];
/// What the members have in common.
const DIGEST: u64 = 77;
/// Bytes of a block.
const LEN: usize = 5000;

/// Operations under way at once.
const OPS: usize = 40;

/// What an operation gets: a block of each member.
fn result(context: usize) -> Mem {
    Mem((context + 1) << 20, 2 * LEN)
}

/// So that the errors of all operations can be reported without memory.
fn make_room_for_errors(cq: &mut CompletionQueue) {
    let entry = Completion {
        flags: Flags::COLLECTIVE,
        ..Completion::BLANK
    };
    for _ in 0..OPS {
        cq.push_error(ErrorEntry::new(entry, Errno::ECANCELED));
    }
    while cq.pop_error().is_ok() {}
}

/// Member 0 of a group of two.
struct Member {
    engine: Engine<Mem>,
    cq: CqId,
    conn: ConnId,
    group: GroupId,
    /// The header of the first data that this member sent.
    data: Option<Coll>,
}

impl Member {
    fn open() -> Self {
        let mut engine = Engine::new(LIMITS);
        let srx = engine.open_srx(Matcher::new(16, true)).unwrap();
        let cq = engine.open_cq(256).unwrap();
        make_room_for_errors(engine.cq_mut(cq).unwrap());
        let counter = engine.open_counter(Counter::default()).unwrap();
        let config = EpConfig {
            srx: Some(srx),
            tx_cq: Some(cq),
            rx_cq: Some(cq),
            rx_counter: Some(counter),
            tx_size: 1000,
            ..EpConfig::NONE
        };
        let ep = engine.open_ep(config).unwrap();
        let config = ConnConfig {
            ep,
            src: MEMBERS[1],
            name: [0; PEER_NAME],
            name_len: 0,
        };
        let conn = engine.open_conn(config).unwrap();
        let terms = Terms {
            packets: None,
            order: ByteOrder::Little,
            has_rendezvous: true,
            extensions: Extensions::all(),
        };
        engine.conn_up(conn, terms);
        let joining = Joining {
            ep,
            members: &MEMBERS,
            me: 0,
            digest: DIGEST,
        };
        let group = engine.join_group(&joining).unwrap();
        let mut member = Self {
            engine,
            cq,
            conn,
            group,
            data: None,
        };
        let join = Coll {
            kind: CollKind::Join,
            group: DIGEST,
            check: MEMBERS.len() as u64,
            seq: 1,
            tag: 0,
            from: 1,
            len: 0,
        };
        member.arrives(join, 0).unwrap();
        member.drive();
        assert!(member.engine.group_members(group).is_some(), "it is not up");
        member
    }

    /// A header comes from the peer.
    fn arrives(&mut self, coll: Coll, len: u64) -> Result<(), Errno> {
        let mut bytes = [0; MAX_HEADER];
        let used = Header::coll(Coll { len, ..coll })
            .emit(ByteOrder::Little, &mut bytes)
            .unwrap();
        self.engine.rx_header(self.conn, &bytes[..used]).map(drop)
    }

    /// Starts an operation in which each member sends to the other.
    fn start(&mut self, context: usize) -> Result<(), Errno> {
        self.engine.start_coll(
            self.group,
            Request {
                coll: Collective::Allgather,
                datatype: Datatype::Uint8,
                op: AtomicOp::Sum,
                count: LEN as u64,
                root: 0,
                input: Mem(1 << 40, LEN),
                result: result(context),
                context,
            },
        )
    }

    /// The peer's data for the operation of this number begins to come.
    fn receive(&mut self, number: usize) -> Result<(), Errno> {
        let sent = self.data.expect("data was sent for the first one");
        let data = Coll {
            seq: sent.seq + number as u32,
            from: 1,
            ..sent
        };
        self.arrives(data, LEN as u64)
    }

    /// Does all that there is to do, as a driver does.
    fn drive(&mut self) {
        while self.engine.pop_output().is_some() {}
        while let Some(action) = self.engine.coll_next() {
            if let CollAction::Send { ep, to, send } = action {
                let mut bytes = [0; MAX_HEADER];
                let staged = match self.engine.post_coll(self.conn, &send, &mut bytes) {
                    Ok(CollPlan::Append(staged)) => staged,
                    Ok(CollPlan::Postpone) => panic!("it waits for its turn"),
                    Err(error) => {
                        assert_eq!(error, Errno::ENOMEM);
                        self.engine.coll_unreachable(ep, to, &send, error);
                        continue;
                    }
                };
                let header = Header::parse(ByteOrder::Little, &bytes[..staged.header_len]).unwrap();
                let data = header.coll.filter(|coll| coll.kind == CollKind::Data);
                self.data = self.data.or(data);
                self.flush();
            }
        }
        self.engine.coll_job_done(self.conn);
    }

    /// Writes everything there is.
    fn flush(&mut self) {
        let mut chunks = [Chunk::TxBuffer(0); 32];
        loop {
            let count = self.engine.transmit(self.conn, &mut chunks);
            let len = |chunk: &Chunk<Mem>| match chunk {
                Chunk::Control {
                    header: bytes,
                    skip,
                } => bytes.len() - usize::from(*skip),
                Chunk::TxBuffer(len) | Chunk::User { len, .. } | Chunk::Slot { len, .. } => *len,
            };
            let whole: usize = chunks[..count].iter().map(len).sum();
            if whole == 0 {
                return;
            }
            self.engine.sent(self.conn, whole);
        }
    }

    /// The memory that the connection would write next.
    fn writes(&self) -> Option<usize> {
        match self.engine.rx_want(self.conn) {
            RxWant::Place { iov, .. } => Some(iov.segments()[0].address()),
            _ => None,
        }
    }

    /// The contexts of the errors that were reported.
    fn failed(&mut self) -> Vec<(usize, Errno)> {
        let cq = self.engine.cq_mut(self.cq).unwrap();
        std::iter::from_fn(|| cq.pop_error().ok())
            .map(|entry| (entry.error.entry.context, entry.error.err))
            .collect()
    }
}

/// The places where memory runs out: as each operation starts, and as data comes.
const PLACES: usize = OPS + 1;

/// Memory runs out at a place for a moment, and again as the group is left with all that is under
/// way. Returns whether the first time was noticed. Operations that do not `go_on` have only been
/// started until then, and no data comes.
fn runs_out_at(place: usize, go_on: bool) -> bool {
    let mut member = Member::open();
    let mut accepted = Vec::new();
    let mut refused = false;
    for context in 0..OPS {
        let out = (place == context).then(RunOut::now);
        let started = member.start(context);
        drop(out);
        match started {
            Ok(()) => accepted.push(context),
            Err(error) => {
                assert_eq!((error, place), (Errno::ENOMEM, context));
                refused = true;
            }
        }
        if go_on {
            member.drive();
        }
    }
    if go_on {
        refused |= !begins(&mut member, &accepted, place == OPS);
    }

    let out = RunOut::now();
    member.engine.close_group(member.group);
    member.drive();
    drop(out);
    // From here on the memory is the caller's again.
    assert_eq!(member.writes(), None, "memory given back is written");
    let mut ended: Vec<usize> = member
        .failed()
        .into_iter()
        .map(|(ended, _)| ended)
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, accepted, "memory ran out at place {place}, {go_on}");
    refused
}

/// Data for the last operation begins to come, as memory has run out if so said: whether it goes
/// to its place. The notes on the others' ends come before those on this one.
fn begins(member: &mut Member, accepted: &[usize], out: bool) -> bool {
    let last = accepted.len() - 1;
    let place = result(accepted[last]);
    let run_out = out.then(RunOut::now);
    let came = member.receive(last);
    drop(run_out);
    member.drive();
    match came {
        Ok(()) => {
            let block = place.address()..place.address() + place.len();
            let writes = member.writes();
            assert!(writes.is_some_and(|at| block.contains(&at)), "{writes:?}");
            member.engine.rx_placed(member.conn, 1000);
            true
        }
        Err(error) => {
            assert_eq!((error, out), (Errno::ENOMEM, true));
            false
        }
    }
}

/// Members of a group in which much comes early; the second is this one.
const CROWD: u32 = 17;
/// What the first member names it.
const NAME: u64 = 78;
/// Steps of an operation that are looked through for what comes early.
const STEPS: u32 = 15;

/// A message comes from a member, on a connection of its own.
fn comes(coll: &mut Collectives<Mem>, message: &Message) -> Arrival<Mem> {
    let conn = ConnId::new(message.from + 1).unwrap();
    let from = (EpId::FIRST, FiAddr(message.from.into()), conn);
    let arrival = coll.handle_message(from, message);
    if let Arrival::Keep = arrival {
        coll.keep(from, *message, None).unwrap();
    }
    arrival
}

/// Does all that there is to do; returns the data that was sent, and counts [`Ends`].
fn act(coll: &mut Collectives<Mem>, ends: &mut Ends) -> Option<Message> {
    let mut data = None;
    while let Some(action) = coll.next_action() {
        match action {
            Action::Send { op, message, .. } => {
                op.into_iter().for_each(|op| coll.sent(op));
                data = data.or((message.kind == Kind::Data).then_some(message));
            }
            Action::Drop { .. } => ends.dropped += 1,
            Action::Forget { .. } => ends.forgotten += 1,
            Action::Free { .. } => ends.freed += 1,
            Action::Ended(_) => ends.ended += 1,
            _ => {}
        }
    }
    data
}

/// What became of what was under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    /// Data that was arriving.
    dropped: u32,
    /// Early messages.
    forgotten: u32,
    /// Slots.
    freed: u32,
    /// Operations.
    ended: u32,
}

/// Member 1 of the group that is up.
fn crowd() -> (Collectives<Mem>, GroupId) {
    let members: Vec<FiAddr> = (0..CROWD).map(|rank| FiAddr(rank.into())).collect();
    let mut coll = Collectives::new();
    let joining = Joining {
        ep: EpId::FIRST,
        members: &members,
        me: 1,
        digest: DIGEST,
    };
    let group = coll.join(&joining).unwrap();
    let Some(Action::Send { message: join, .. }) = coll.next_action() else {
        panic!("it asks to join");
    };
    let joined = Message {
        kind: Kind::Joined,
        check: NAME,
        from: 0,
        ..join
    };
    comes(&mut coll, &joined);
    act(&mut coll, &mut Ends::default());
    assert!(coll.members(group).is_some(), "it is not up");
    (coll, group)
}

/// An operation of the group.
fn of_crowd(coll: Collective, context: usize) -> Request<Mem> {
    Request {
        coll,
        datatype: Datatype::Uint8,
        op: AtomicOp::Sum,
        count: 100,
        root: 0,
        input: Mem(1 << 40, 100 * CROWD as usize),
        result: Mem(1 << 41, 100 * CROWD as usize),
        context,
    }
}

/// An operation that needs a slot has been started and no more; then the group is left without
/// memory.
fn leaves_at_once() {
    let (mut coll, group) = crowd();
    let mut ends = Ends::default();
    let request = of_crowd(Collective::Allreduce, 0);
    let plan = coll.plan(group, &request).unwrap();
    assert!(Collectives::scratch(&plan, &request) > 0, "it needs none");
    coll.start(group, request, Some(SlotId::FIRST)).unwrap();
    let out = RunOut::now();
    coll.close(group);
    act(&mut coll, &mut ends);
    drop(out);
    let told = Ends {
        freed: 1,
        ended: 1,
        ..Ends::default()
    };
    assert_eq!(ends, told);
}

/// Each of these members is in the midst of sending data for one of so many operations, and this
/// many messages are kept for a later one; then the group is left without memory. All of it is
/// told.
fn leaves_early_ones(ops: u32, kept: u32) {
    let (mut coll, group) = crowd();
    let (mut ends, mut last) = (Ends::default(), None);
    for op in 0..ops {
        let request = of_crowd(Collective::Alltoall, op as usize);
        coll.start(group, request, None).unwrap();
        let data = act(&mut coll, &mut ends).expect("data is sent");
        for step in (1..=STEPS).filter(|step| step % ops == op) {
            let message = Message {
                tag: step,
                from: (1 + CROWD - step) % CROWD,
                ..data
            };
            let arrival = comes(&mut coll, &message);
            let placed = matches!(arrival, Arrival::Into { .. });
            assert!(placed, "{arrival:?}");
        }
        last = Some(data);
    }
    let last = last.expect("one was started");
    let ready = Message {
        kind: Kind::Ready,
        seq: last.seq + 1,
        tag: 1,
        from: 0,
        len: 0,
        ..last
    };
    for _ in 0..kept {
        assert!(matches!(comes(&mut coll, &ready), Arrival::Keep));
    }
    assert_eq!(ends, Ends::default());

    let out = RunOut::now();
    coll.close(group);
    act(&mut coll, &mut ends);
    drop(out);
    let told = Ends {
        dropped: STEPS,
        forgotten: kept,
        freed: 0,
        ended: ops,
    };
    assert_eq!(ends, told, "{ops} operations, {kept} kept");
}

/// A panic needs memory to say what it is.
fn let_panics_speak() {
    let speak = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        ALLOCATED.set_limit(usize::MAX).unwrap();
        speak(panic);
    }));
}

/// What was accepted ends, and nothing is written behind that.
fn main() {
    let_panics_speak();
    for go_on in [true, false] {
        let noticed = (0..PLACES)
            .filter(|place| runs_out_at(*place, go_on))
            .count();
        assert!(noticed > 0, "memory never ran out");
    }
    leaves_at_once();
    for ops in 1..=STEPS {
        for kept in [0, 1, 40] {
            leaves_early_ones(ops, kept);
        }
    }
    // As the harness says it.
    println!("test result: ok. 1 passed; 0 failed; 0 ignored");
}
