//! Collective operations of endpoints in one process, each in a domain of its own, through the
//! object model.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::freed::unpark;
use crate::{common, nobody};
use ripstop_core::eq::{EqAttr, Event, EventError};
use ripstop_core::provider::{
    AddressVector, AvAttr, CollCall, CompletionQueue, CqAttr, Domain, Endpoint, Fabric, Group,
    JoinCall, Provider,
};
use ripstop_core::{Address, EventQueue, FidToken, Info};
use ripstop_mem::Parked;
use ripstop_tcp::TcpProvider;
use ripstop_types::{
    AtomicOp, CmEvent, Collective, Datatype, EpType, Errno, FiAddr, Flags, Progress, Threading,
    WaitObj,
};
use ripstop_wire::xnet::cm::{HEADER_LEN, Header, Kind};
use ripstop_wire::xnet::rdm::Greeting;

const PATIENCE: Duration = Duration::from_secs(60);

/// `FI_BARRIER_SET` to `FI_GATHER_SET`.
const ALL: Flags = Flags::from_bits_retain(0x1ff << 40);

fn info(provider: &TcpProvider, progress: Progress) -> Info {
    let caps = Flags::MSG | Flags::COLLECTIVE;
    let hints = common::hints(EpType::Rdm, caps, Threading::Domain, progress);
    common::first(provider, &hints)
}

type Dom = <<TcpProvider as Provider>::Fabric as Fabric>::SafeDomain;

struct Member {
    groups: Vec<Arc<<Dom as Domain>::Group>>,
    ep: Arc<<Dom as Domain>::Endpoint>,
    cq: Arc<<Dom as Domain>::Cq>,
    eq: Arc<EventQueue>,
    av: Arc<<Dom as Domain>::Av>,
    _domain: Arc<Dom>,
}

/// What an operation ended with: its context, or that and why.
type End = Result<usize, (usize, Errno)>;

impl Member {
    fn open(progress: Progress) -> Self {
        let provider = TcpProvider::new();
        let info = info(&provider, progress);
        let fabric = provider.fabric(&info.fabric).unwrap();
        assert!(<TcpProvider as Provider>::Fabric::needs_lock(&info));
        let domain = fabric.safe_domain(&info).unwrap();
        let cq = domain.cq(&CqAttr::default()).unwrap();
        let av = domain.av(&AvAttr::default()).unwrap();
        let eq = Arc::new(
            EventQueue::open(&EqAttr {
                wait_obj: WaitObj::Fd,
                ..EqAttr::default()
            })
            .unwrap(),
        );
        let ep = domain.endpoint(&info, FidToken(0)).unwrap();
        ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
        ep.bind_av(&av).unwrap();
        ep.bind_eq(&eq).unwrap();
        ep.enable().unwrap();
        Self {
            groups: Vec::new(),
            ep,
            cq,
            eq,
            av,
            _domain: domain,
        }
    }

    fn join(&mut self, members: &[u64], context: usize) {
        let members: Vec<FiAddr> = members.iter().map(|member| FiAddr(*member)).collect();
        let call = JoinCall {
            members: &members,
            operations: ALL,
            context,
        };
        let group = self.ep.join(&call, FidToken(context)).unwrap();
        self.groups.push(group);
    }

    /// The next event of a join.
    fn joined(&self) -> Option<Result<usize, EventError>> {
        match self.eq.read() {
            Ok(Event::Done { event, context, .. }) => {
                assert_eq!(event, CmEvent::JoinComplete);
                Some(Ok(context))
            }
            Ok(other) => panic!("{other:?}"),
            Err(Errno::EAVAIL) => Some(Err(self.eq.read_error(true).unwrap())),
            Err(_) => None,
        }
    }

    fn ended(&self) -> Option<End> {
        let mut context = 0;
        let note = |entry: &ripstop_types::Completion| {
            assert_eq!(entry.flags, Flags::COLLECTIVE);
            context = entry.context;
        };
        match self.cq.read(1, note) {
            Ok(_) => Some(Ok(context)),
            Err(Errno::EAVAIL) => {
                let mut found = (0, Errno::EOTHER);
                let note = |entry: &ripstop_types::CompletionError, _: &[u8]| {
                    assert_eq!(entry.entry.flags, Flags::COLLECTIVE);
                    found = (entry.entry.context, entry.err);
                };
                self.cq.read_error(note).unwrap();
                Some(Err(found))
            }
            Err(_) => None,
        }
    }
}

/// Calls until all have an answer.
fn all<T>(members: &[Member], next: impl Fn(&Member) -> Option<T>) -> Vec<T> {
    let end = Instant::now() + PATIENCE;
    let mut found: Vec<Option<T>> = members.iter().map(|_| None).collect();
    while found.iter().any(Option::is_none) {
        for (member, found) in members.iter().zip(&mut found) {
            match found {
                None => *found = next(member),
                Some(_) => drop(member.cq.poll()),
            }
        }
        assert!(Instant::now() < end, "nothing comes");
    }
    found.into_iter().flatten().collect()
}

/// Endpoints that know each other, in one order.
fn open(n: usize, progress: Progress) -> Vec<Member> {
    let members: Vec<Member> = (0..n).map(|_| Member::open(progress)).collect();
    for member in &members {
        for (rank, other) in (0..).zip(&members) {
            let addr = member.av.insert(&other.ep.name().unwrap()).unwrap();
            assert_eq!(addr, FiAddr(rank));
        }
    }
    members
}

/// As [`open`], all in one group.
fn group(n: usize) -> Vec<Member> {
    let mut members = open(n, Progress::Manual);
    let ranks: Vec<u64> = (0..n as u64).collect();
    for member in &mut members {
        member.join(&ranks, 5);
    }
    for joined in all(&members, Member::joined) {
        assert_eq!(joined.unwrap(), 5);
    }
    members
}

fn words(words: &[u64]) -> Parked {
    Parked::park(words.iter().flat_map(|word| word.to_ne_bytes()).collect())
}

fn back(parked: Parked) -> Vec<u64> {
    let bytes = unpark(parked);
    let words = bytes.chunks_exact(8);
    words
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

fn call(coll: Collective, count: usize, group: FiAddr, root: u64, context: usize) -> CollCall {
    CollCall {
        coll,
        datatype: Datatype::Uint64,
        op: AtomicOp::Sum,
        count,
        group,
        root: FiAddr(root),
        context,
        flags: None,
    }
}

fn input(rank: usize, index: usize) -> u64 {
    (rank * 1_000_003 + index) as u64
}

/// What a member puts in and gets, in blocks, and what it gets.
fn model(coll: Collective, n: usize, count: usize, me: usize, root: usize) -> Vec<u64> {
    let sum = |index| (0..n).map(|rank| input(rank, index)).sum();
    let mine = me * count..(me + 1) * count;
    let of_all = || (0..n).flat_map(|rank| (0..count).map(move |index| input(rank, index)));
    match coll {
        Collective::Barrier => Vec::new(),
        Collective::Broadcast => (0..count).map(|index| input(root, index)).collect(),
        Collective::Alltoall => (0..n)
            .flat_map(|rank| mine.clone().map(move |index| input(rank, index)))
            .collect(),
        Collective::Allreduce => (0..count).map(sum).collect(),
        Collective::Allgather => of_all().collect(),
        Collective::ReduceScatter => mine.map(sum).collect(),
        Collective::Reduce if me == root => (0..count).map(sum).collect(),
        Collective::Scatter => mine.map(|index| input(root, index)).collect(),
        Collective::Gather if me == root => of_all().collect(),
        Collective::Reduce | Collective::Gather => Vec::new(),
    }
}

/// The buffers of a member.
fn buffers(coll: Collective, n: usize, count: usize, me: usize, root: usize) -> (Parked, Parked) {
    let blocks = match coll {
        Collective::Barrier | Collective::Broadcast => 0,
        Collective::Scatter if me != root => 0,
        Collective::Alltoall | Collective::ReduceScatter | Collective::Scatter => n,
        _ => 1,
    };
    let given: Vec<u64> = (0..blocks * count).map(|index| input(me, index)).collect();
    let mut result = vec![u64::MAX; model(coll, n, count, me, root).len()];
    if coll == Collective::Broadcast && me == root {
        result = model(coll, n, count, me, root);
    }
    (words(&given), words(&result))
}

fn run(members: &[Member], coll: Collective, count: usize, root: usize) {
    let n = members.len();
    let mut memory: Vec<_> = (0..n).map(|me| buffers(coll, n, count, me, root)).collect();
    for (member, (input, result)) in members.iter().zip(&mut memory) {
        let call = call(coll, count, member.groups[0].addr(), root as u64, 9);
        let (input, result) = (input.buf(), result.buf());
        member.ep.collective(input, result, &call).unwrap();
    }
    for ended in all(members, Member::ended) {
        assert_eq!(ended, Ok(9), "{coll:?} {n} {count} {root}");
    }
    for (me, (_, result)) in memory.into_iter().enumerate() {
        let expected = model(coll, n, count, me, root);
        assert!(back(result) == expected, "{coll:?} {n} {count} {root} {me}");
    }
}

#[test]
fn groups_are_joined_in_any_order_and_several_at_once() {
    let mut members = open(4, Progress::Manual);
    // Sets that differ in who is in them, and in the order; the first one twice.
    let sets: [&[u64]; 5] = [&[0, 1, 2, 3], &[3, 1], &[2, 0, 3], &[0, 1, 2, 3], &[1]];
    let order = |me: usize| (0..sets.len()).map(move |index| (index + me) % sets.len());
    let mut joins = 0;
    for (me, member) in members.iter_mut().enumerate() {
        for index in order(me) {
            if sets[index].contains(&(me as u64)) {
                member.join(sets[index], index);
                joins += 1;
            }
        }
    }
    let end = Instant::now() + PATIENCE;
    let mut up: Vec<Vec<usize>> = vec![Vec::new(); members.len()];
    while up.iter().map(Vec::len).sum::<usize>() < joins {
        for (member, up) in members.iter().zip(&mut up) {
            up.extend(member.joined().map(Result::unwrap));
        }
        assert!(Instant::now() < end, "{up:?}");
    }
    // One sum in each group, all at once.
    let mut memory = Vec::new();
    for (me, member) in members.iter().enumerate() {
        let mine = order(me).filter(|index| sets[*index].contains(&(me as u64)));
        for (index, group) in mine.zip(&member.groups) {
            let buffers = (words(&[1 << (8 * me)]), words(&[0]));
            assert_eq!(member.ep.group_size(group.addr()), Ok(sets[index].len()));
            let call = call(Collective::Allreduce, 1, group.addr(), 0, index);
            let (input, result) = (buffers.0.buf(), buffers.1.buf());
            member.ep.collective(input, result, &call).unwrap();
            memory.push((index, buffers.1));
        }
    }
    let mut done = 0;
    while done < joins {
        done += members
            .iter()
            .filter_map(Member::ended)
            .map(Result::unwrap)
            .count();
        assert!(Instant::now() < end, "{done} of {joins}");
    }
    for (index, result) in memory {
        let expected = sets[index].iter().map(|rank| 1u64 << (8 * rank)).sum();
        assert_eq!(back(result), [expected]);
    }
}

#[test]
fn members_that_disagree_get_errors_and_go_on() {
    for n in [2, 3, 5] {
        let members = group(n);
        let addr = |member: &Member| member.groups[0].addr();
        // The last one has another size, another operation, or another root in mind.
        let odd: [(Collective, usize, u64); 3] = [
            (Collective::Allreduce, 3, 0),
            (Collective::Barrier, 0, 0),
            (Collective::Broadcast, 2, 1),
        ];
        for (round, (coll, count, root)) in odd.into_iter().enumerate() {
            let mut memory = Vec::new();
            for (me, member) in members.iter().enumerate() {
                let buffers = (words(&[1; 3]), words(&[7; 3]));
                let call = match me + 1 < n {
                    true => call(Collective::Allreduce, 2, addr(member), 0, round),
                    false => call(coll, count, addr(member), root, round),
                };
                let (input, result) = (buffers.0.buf(), buffers.1.buf());
                member.ep.collective(input, result, &call).unwrap();
                memory.push(buffers);
            }
            for (me, ended) in all(&members, Member::ended).into_iter().enumerate() {
                // Who only had to send may be done before it is known.
                let sent = me + 1 == n && coll == Collective::Broadcast;
                assert!(
                    ended == Err((round, Errno::EINVAL)) || sent && ended == Ok(round),
                    "{n} {coll:?} {me}: {ended:?}"
                );
            }
        }
        for coll in Collective::ALL {
            run(&members, coll, 10, 0);
        }
    }
}

#[test]
fn a_member_that_waits_for_one_that_never_sends_is_told() {
    let members = group(3);
    // Each of the last two takes the other one for the root.
    let buffers: Vec<Parked> = members.iter().map(|_| words(&[1])).collect();
    for ((member, buffer), root) in members.iter().zip(&buffers).zip([0, 2, 1]) {
        let call = call(Collective::Broadcast, 1, member.groups[0].addr(), root, 3);
        let none = ripstop_mem::UserBuf::EMPTY;
        member.ep.collective(none, buffer.buf(), &call).unwrap();
    }
    let ended = all(&members, Member::ended);
    assert_eq!(ended[1..], [Err((3, Errno::EINVAL)); 2]);
    for coll in Collective::ALL {
        run(&members, coll, 10, 0);
    }
}

#[test]
fn a_member_that_dies_ends_what_needs_it() {
    let mut members = group(4);
    run(&members, Collective::Barrier, 0, 0);
    let dead = members.pop().unwrap();
    for member in &members {
        let call = call(Collective::Barrier, 0, member.groups[0].addr(), 0, 4);
        let none = ripstop_mem::UserBuf::EMPTY;
        member.ep.collective(none, none, &call).unwrap();
    }
    let begin = Instant::now();
    let Member { groups, ep, .. } = dead;
    drop((groups, ep));
    for ended in all(&members, Member::ended) {
        let (context, error) = ended.unwrap_err();
        assert_eq!(context, 4);
        assert_ne!(error, Errno::EINVAL);
    }
    // The next one fails as well, and soon.
    for member in &members {
        let call = call(Collective::Barrier, 0, member.groups[0].addr(), 0, 5);
        let none = ripstop_mem::UserBuf::EMPTY;
        member.ep.collective(none, none, &call).unwrap();
    }
    for ended in all(&members, Member::ended) {
        assert_eq!(ended.unwrap_err().0, 5);
    }
    assert!(begin.elapsed() < PATIENCE);
    // The others make a group of their own.
    for member in &mut members {
        member.groups.clear();
        member.join(&[0, 1, 2], 6);
    }
    for joined in all(&members, Member::joined) {
        assert_eq!(joined.unwrap(), 6);
    }
    run(&members, Collective::Allreduce, 1000, 0);
}

#[test]
fn nobody_joins_without_the_others() {
    let mut members = open(2, Progress::Manual);
    let nobody = nobody();
    for member in &mut members {
        assert_eq!(member.av.insert(&nobody), Ok(FiAddr(2)));
        member.join(&[0, 1, 2], 1);
        let group = member.groups[0].addr();
        assert_eq!(member.ep.group_size(group), Err(Errno::EOPBADSTATE));
    }
    for joined in all(&members, Member::joined) {
        assert_eq!(joined.unwrap_err().context, 1);
    }
    // One that leaves before all have come.
    for member in &mut members {
        member.groups.clear();
    }
    members[1].join(&[0, 1], 2);
    members[1].groups.clear();
    members[0].join(&[0, 1], 2);
    // They had met, but it is not there any more.
    assert_eq!(all(&members[..1], Member::joined)[0].as_ref(), Ok(&2));
    let call = call(Collective::Barrier, 0, members[0].groups[0].addr(), 0, 3);
    let none = ripstop_mem::UserBuf::EMPTY;
    members[0].ep.collective(none, none, &call).unwrap();
    let ended = all(&members[..1], Member::ended);
    assert_eq!(ended, [Err((3, Errno::ECANCELED))]);
    // The next time it stays.
    for member in &mut members {
        member.groups.clear();
        member.join(&[0, 1], 4);
    }
    for joined in all(&members, Member::joined) {
        assert_eq!(joined.unwrap(), 4);
    }
    run(&members, Collective::Allreduce, 5, 0);
}

#[test]
fn members_of_different_sets_do_not_wait_for_each_other_for_ever() {
    let mut members = open(2, Progress::Manual);
    members[0].join(&[0, 1], 1);
    members[1].join(&[1, 0], 1);
    let begin = Instant::now();
    for joined in all(&members, Member::joined) {
        let error = joined.unwrap_err();
        assert_eq!((error.context, error.err), (1, Errno::EINVAL));
    }
    // Not at once: the other join might have come yet.
    assert!(begin.elapsed() > Duration::from_secs(5));
    for member in &mut members {
        member.groups.clear();
        member.join(&[1, 0], 2);
    }
    for joined in all(&members, Member::joined) {
        assert_eq!(joined.unwrap(), 2);
    }
}

#[test]
fn members_that_wait_in_a_circle_do_not_wait_for_ever() {
    const N: u64 = 4;
    let mut members = open(N as usize, Progress::Manual);
    let begin = Instant::now();
    // Each is in a set with the next one, which joins another.
    for (member, me) in members.iter_mut().zip(0..) {
        member.join(&[me, (me + 1) % N], me as usize);
    }
    let ended = all(&members, Member::joined);
    assert!(begin.elapsed() > Duration::from_secs(8));
    for (me, ended) in ended.into_iter().enumerate() {
        let error = ended.expect_err("a join");
        assert_eq!((error.err, error.context), (Errno::EINVAL, me));
    }
    // The same in an order that all can keep.
    for (member, me) in members.iter_mut().zip(0..) {
        member.join(&[me, (me + 1) % N], 10);
        member.join(&[(me + N - 1) % N, me], 10);
    }
    for _ in 0..2 {
        for joined in all(&members, Member::joined) {
            assert_eq!(joined.expect("a group"), 10);
        }
    }
}

#[test]
fn many_are_in_flight_and_buffers_may_be_one() {
    let members = group(3);
    let memory: Vec<Vec<Parked>> = members
        .iter()
        .map(|_| (0..100).map(|_| words(&[2; 700])).collect())
        .collect();
    for index in 0..100 {
        for (member, memory) in members.iter().zip(&memory) {
            let call = call(
                Collective::Allreduce,
                700,
                member.groups[0].addr(),
                0,
                index,
            );
            let buffer = memory[index].buf();
            member.ep.collective(buffer, buffer, &call).unwrap();
        }
    }
    for _ in 0..100 {
        for ended in all(&members, Member::ended) {
            ended.unwrap();
        }
    }
    for parked in memory.into_iter().flatten() {
        assert_eq!(back(parked), [6; 700]);
    }
}

#[test]
fn a_queue_without_room_says_so() {
    let members = group(2);
    let none = ripstop_mem::UserBuf::EMPTY;
    let barrier = call(Collective::Barrier, 0, members[0].groups[0].addr(), 0, 1);
    let mut started = 0;
    let full = loop {
        match members[0].ep.collective(none, none, &barrier) {
            Ok(()) => started += 1,
            Err(error) => break error,
        }
        assert!(started < 10_000);
    };
    assert_eq!(full, Errno::EAGAIN);
    let other = call(Collective::Barrier, 0, members[1].groups[0].addr(), 0, 1);
    for _ in 0..started {
        members[1].ep.collective(none, none, &other).unwrap();
    }
    for _ in 0..started {
        for ended in all(&members, Member::ended) {
            ended.unwrap();
        }
    }
}

#[test]
fn with_automatic_progress_nobody_has_to_look() {
    let mut members = open(3, Progress::Auto);
    for member in &mut members {
        member.join(&[0, 1, 2], 1);
    }
    for member in &members {
        let event = member.eq.sread(Some(PATIENCE)).unwrap();
        assert_eq!(event.code(), CmEvent::JoinComplete.raw());
    }
    let memory: Vec<_> = (0..3)
        .map(|_| (words(&[1; 20_000]), words(&[0; 20_000])))
        .collect();
    for (member, (input, result)) in members.iter().zip(&memory) {
        let call = call(Collective::Allreduce, 20_000, member.groups[0].addr(), 0, 1);
        let (input, result) = (input.buf(), result.buf());
        member.ep.collective(input, result, &call).unwrap();
    }
    let end = Instant::now() + PATIENCE;
    // Only the last one is looked at; the others do their part all the same.
    while members[2].ended().is_none() {
        assert!(Instant::now() < end);
    }
    assert!(
        back(memory.into_iter().last().unwrap().1)
            .iter()
            .all(|word| *word == 3)
    );
}

#[test]
fn a_peer_without_collectives_is_refused() {
    // Accepts as the C library does: without a word of extensions.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; HEADER_LEN + 8];
        stream.read_exact(&mut request).unwrap();
        let greeting = Greeting::parse(&request[HEADER_LEN..]).unwrap();
        let answer = greeting.answer(1).emit();
        let header = Header::new(Kind::Response, &answer)
            .unwrap()
            .emit()
            .unwrap();
        stream.write_all(&[&header[..], &answer].concat()).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        rest
    });
    let mut members = vec![Member::open(Progress::Manual)];
    let member = &mut members[0];
    member.av.insert(&member.ep.name().unwrap()).unwrap();
    member.av.insert(&Address::Ip(addr)).unwrap();
    // It would be member 0, or is waited for.
    for (context, ranks) in [[1, 0], [0, 1]].iter().enumerate() {
        members[0].join(ranks, context);
        let error = all(&members, Member::joined).remove(0).unwrap_err();
        assert_eq!((error.context, error.err), (context, Errno::EOPNOTSUPP));
    }
    // The connection lives on until the endpoint goes, and nothing was sent there.
    assert!(!peer.is_finished());
    drop(members);
    assert!(peer.join().unwrap().is_empty());
}
