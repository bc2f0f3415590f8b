//! The short ways of frequent operations are taken. The long ways bring the same, so only the cost
//! would tell them apart: here a transport over shared memory notes what its links are asked for.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::provider::{
    CompletionQueue as _, Domain as _, Endpoint as _, Fabric as _, MrAttr, RecvKind, RmaCall,
    SendKind, Sharing,
};
use ripstop_mem::ring::{MAX_HEADER_BYTES, ShortEntry, SoleEntry};
use ripstop_mem::{Parked, UserBuf};
use ripstop_os::{Connect, Interest, IoVec, IoVecMut, Shutdown, Spare};
use ripstop_stream::{
    Fabric, HandshakeError, Link, Listener, Origin, Readiness, ReadyLink, Transport, Tunables,
};
use ripstop_types::{Errno, FiAddr, Flags, Progress, Result, RmaIov, Threading};
use ripstop_wire::xnet::base::{BASE_LEN, WRITE_LEN};
use ripstop_wire::xnet::rdm::Greeting;

use crate::common::{self, End, pattern};
use crate::link::ShmLink;
use crate::listener::ShmListener;
use crate::name::Name;
use crate::params::Params;
use crate::readiness::ShmReadiness;
use crate::transport::Shm;
use crate::windows::Windows;

/// What moved bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// A message with a header of so many bytes, from where it is.
    Message(usize),
    /// A short write, from where it is.
    Write,
    /// Anything else that is sent.
    Other,
    /// What is there, from where it is.
    SoleEntry,
    /// One of several that may be there, from where it is.
    ShortEntry,
    /// A read that was not in vain.
    Read,
    /// A payload, from the ring to where it belongs.
    AtHand,
}

/// What links of a fabric were asked for, in this order.
type Notes = Arc<Mutex<Vec<Moved>>>;

/// The provider's parameters, and where its links note things.
#[derive(Debug)]
struct Noting {
    params: Params,
    notes: Notes,
}

impl AsRef<Tunables> for Noting {
    fn as_ref(&self) -> &Tunables {
        self.params.as_ref()
    }
}

/// The transport under test, noted.
#[derive(Debug)]
struct Noted;

#[derive(Debug)]
struct NotedLink {
    link: Arc<ShmLink>,
    notes: Notes,
}

#[derive(Debug)]
struct NotedListener {
    listener: ShmListener,
    notes: Notes,
}

#[derive(Debug)]
struct NotedReadiness(ShmReadiness);

impl Noting {
    fn link(&self, link: ShmLink) -> NotedLink {
        NotedLink {
            link: Arc::new(link),
            notes: Arc::clone(&self.notes),
        }
    }

    fn listener(&self, listener: ShmListener) -> NotedListener {
        NotedListener {
            listener,
            notes: Arc::clone(&self.notes),
        }
    }
}

impl NotedLink {
    /// Notes what has moved something.
    fn note(&self, how: Moved, moved: Result<usize>) -> Result<usize> {
        if moved.is_ok() {
            self.notes.lock().push(how);
        }
        moved
    }
}

impl Transport for Noted {
    const NAME: &'static str = Shm::NAME;
    type Params = Noting;
    type Addr = Name;
    type Link = NotedLink;
    type Listener = NotedListener;
    type Readiness = NotedReadiness;

    fn default_source(noting: &Noting) -> Name {
        Shm::default_source(&noting.params)
    }

    fn bind(noting: &Noting, addr: &Name) -> Result<NotedListener> {
        Shm::bind(&noting.params, addr).map(|listener| noting.listener(listener))
    }

    fn bind_contexts(noting: &Noting, addr: &Name, count: usize) -> Result<Vec<NotedListener>> {
        let row = Shm::bind_contexts(&noting.params, addr, count)?;
        Ok(row.into_iter().map(|each| noting.listener(each)).collect())
    }

    fn connect(noting: &Noting, to: &Name, _: Origin<Self>) -> Result<(NotedLink, Connect)> {
        let (link, how) = Shm::connect(&noting.params, to, Origin::Address(None))?;
        Ok((noting.link(link), how))
    }

    fn prepare(noting: &Noting, link: &NotedLink, dscp: Option<u8>) -> Result<()> {
        Shm::prepare(&noting.params, &link.link, dscp)
    }

    fn request_data(
        readiness: &mut NotedReadiness,
        link: &NotedLink,
        own: &Name,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        Shm::request_data(&mut readiness.0, &link.link, own, greeting)
    }

    fn read_request(
        readiness: &mut NotedReadiness,
        link: &NotedLink,
        from: &Name,
        data: &[u8],
    ) -> core::result::Result<(Greeting, Name), HandshakeError> {
        Shm::read_request(&mut readiness.0, &link.link, from, data)
    }

    fn reply_data(
        readiness: &mut NotedReadiness,
        link: &NotedLink,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        Shm::reply_data(&mut readiness.0, &link.link, greeting)
    }

    fn read_reply(
        readiness: &mut NotedReadiness,
        link: &NotedLink,
        data: &[u8],
    ) -> core::result::Result<Greeting, HandshakeError> {
        Shm::read_reply(&mut readiness.0, &link.link, data)
    }
}

impl AsFd for NotedLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl Link for NotedLink {
    type Addr = Name;

    const IN_PLACE: bool = ShmLink::IN_PLACE;

    fn send(&self, bytes: &[u8]) -> Result<usize> {
        self.note(Moved::Other, self.link.send(bytes))
    }

    fn sendv(&self, vecs: &[IoVec<'_>]) -> Result<usize> {
        self.note(Moved::Other, self.link.sendv(vecs))
    }

    fn send_message(
        &self,
        header: &[u8; MAX_HEADER_BYTES],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize> {
        let sent = self.link.send_message(header, header_len, payload);
        self.note(Moved::Message(header_len), sent)
    }

    fn has_room(&self) -> bool {
        self.link.has_room()
    }

    fn recv(&self, bytes: &mut [u8]) -> Result<usize> {
        self.note(Moved::Read, self.link.recv(bytes))
    }

    fn recv_once(&self, bytes: &mut [u8]) -> Result<usize> {
        self.note(Moved::Read, self.link.recv_once(bytes))
    }

    fn is_ready(&self) -> bool {
        self.link.is_ready()
    }

    fn sole_entry(&self) -> Option<SoleEntry<'_>> {
        let alone = self.link.sole_entry()?;
        self.notes.lock().push(Moved::SoleEntry);
        Some(alone)
    }

    fn short_entry(&self) -> Option<ShortEntry<'_>> {
        let short = self.link.short_entry()?;
        self.notes.lock().push(Moved::ShortEntry);
        Some(short)
    }

    fn return_credits(&self) {
        self.link.return_credits();
    }

    fn send_short(&self, header: &[u8; MAX_HEADER_BYTES], payload: UserBuf) -> bool {
        let sent = self.link.send_short(header, payload);
        if sent {
            self.notes.lock().push(Moved::Write);
        }
        sent
    }

    fn sends_whole(&self, payload: usize) -> bool {
        self.link.sends_whole(payload)
    }

    fn payload_ready(&self) -> usize {
        self.link.payload_ready()
    }

    fn recv_payload(&self, room: UserBuf) -> usize {
        self.notes.lock().push(Moved::AtHand);
        self.link.recv_payload(room)
    }

    fn await_room(&self) -> bool {
        self.link.await_room()
    }

    fn recvv(&self, vecs: &mut [IoVecMut<'_>]) -> Result<usize> {
        self.note(Moved::Read, self.link.recvv(vecs))
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.link.shutdown(how)
    }

    fn take_error(&self) -> Result<()> {
        self.link.take_error()
    }

    fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    fn start(&self) {
        self.link.start();
    }

    type Windows = ();

    fn drain_doorbell(&self, (): &mut ()) {
        self.link.drain_doorbell(&mut Windows::default());
    }

    fn has_ended(&self) -> bool {
        self.link.has_ended()
    }

    fn unread_bytes(&self) -> u64 {
        self.link.unread_bytes()
    }

    fn peer_fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.peer_fd()
    }

    fn local_addr(&self) -> Result<Name> {
        self.link.local_addr()
    }
}

impl AsFd for NotedListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Listener for NotedListener {
    type Link = NotedLink;
    type Addr = Name;

    fn local_addr(&self) -> Result<Name> {
        self.listener.local_addr()
    }

    fn listen(&self, backlog: i32) -> Result<()> {
        self.listener.listen(backlog)
    }

    fn accept(&self) -> Result<Option<(NotedLink, Name)>> {
        let accepted = self.listener.accept()?;
        Ok(accepted.map(|(link, name)| {
            let link = NotedLink {
                link: Arc::new(link),
                notes: Arc::clone(&self.notes),
            };
            (link, name)
        }))
    }

    fn turn_away(&self, spare: &mut Spare) -> Option<Name> {
        self.listener.turn_away(spare)
    }
}

impl Readiness<NotedLink> for NotedReadiness {
    const POLLS_LINKS: bool = <ShmReadiness as Readiness<ShmLink>>::POLLS_LINKS;

    fn open() -> Result<Self> {
        ShmReadiness::open().map(Self)
    }

    fn add(&mut self, id: u32, link: &Arc<NotedLink>) {
        self.0.add(id, &link.link);
    }

    fn modify(&mut self, id: u32, interest: Interest) {
        self.0.modify(id, interest);
    }

    fn remove(&mut self, id: u32) {
        self.0.remove(id);
    }

    fn is_due(&mut self) -> bool {
        self.0.is_due()
    }

    fn poll(&mut self, ready: &mut Vec<ReadyLink>) {
        self.0.poll(ready);
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }
}

type Serial = <Fabric<Noted> as ripstop_core::provider::Fabric>::SerialDomain;

/// An endpoint, its domain, and what the links there were asked for.
struct Side {
    end: End<Serial>,
    domain: Arc<Serial>,
    notes: Notes,
}

impl Side {
    fn open() -> Self {
        let caps = Flags::MSG | Flags::TAGGED | Flags::RMA;
        let info = common::info_for(caps, None, Threading::Domain, Progress::Manual);
        let notes = Notes::default();
        let noting = Noting {
            params: Params::read(),
            notes: Arc::clone(&notes),
        };
        let fabric = Fabric::<Noted>::new(info.fabric.clone(), Arc::new(noting));
        let domain = Arc::new(fabric).serial_domain(&info).unwrap();
        Self {
            end: common::open(&domain, &info),
            domain,
            notes,
        }
    }

    /// What has moved bytes since this was last asked.
    fn moved(&self) -> Vec<Moved> {
        std::mem::take(&mut self.notes.lock())
    }
}

/// An endpoint, and others that have sent it something and know where it is.
fn open<const PEERS: usize>() -> (Side, [(Side, FiAddr); PEERS]) {
    let far = Side::open();
    let peers = std::array::from_fn(|_| {
        let near = Side::open();
        let to = near.end.knows(&far.end.name());
        let (room, text) = (Parked::park(vec![0; 8]), Parked::park(vec![1; 8]));
        far.end.post(&room);
        near.end.send(&text, to).unwrap();
        let (mut sent, mut got) = (0, 0);
        let stop = std::time::Instant::now() + common::PATIENCE;
        while sent + got < 2 {
            sent += near.end.cq.read(1, |_| ()).unwrap_or(0);
            got += far.end.cq.read(1, |_| ()).unwrap_or(0);
            assert!(std::time::Instant::now() < stop, "it does not arrive");
        }
        drop((common::bytes(room), common::bytes(text)));
        near.moved();
        (near, to)
    });
    far.moved();
    (far, peers)
}

/// Some reads look at all links and not only at that which was just active.
const ROUNDS: usize = 100;
const MOST: usize = 80;

fn count(moved: &[Moved], how: Moved) -> usize {
    moved.iter().filter(|each| **each == how).count()
}

#[test]
fn small_messages_are_read_in_place() {
    let (far, [(near, to)]) = open();
    for (tag, header_len) in [(None, BASE_LEN), (Some(5), BASE_LEN + size_of::<u64>())] {
        for round in 0..ROUNDS {
            let (room, text) = (Parked::park(vec![0; 8]), Parked::park(vec![round as u8; 8]));
            let (send, recv) = match tag {
                Some(tag) => (SendKind::Tagged(tag), RecvKind::Tagged { tag, ignore: 0 }),
                None => (SendKind::Msg, RecvKind::Msg),
            };
            let (ep, text_buf) = (&near.end.ep, text.buf());
            far.end
                .ep
                .recv(recv, &[room.buf()], FiAddr::UNSPEC, 1, None)
                .unwrap();
            ep.send(send, &[text_buf], None, to, 2, None).unwrap();
            assert_eq!(near.moved(), [Moved::Message(header_len)]);
            near.end.poll(1);
            far.end.poll(1);
            assert_eq!(common::bytes(room), [round as u8; 8]);
            drop(common::bytes(text));
        }
        let moved = far.moved();
        let past = ROUNDS - count(&moved, Moved::Read);
        assert!(past >= MOST, "{past} of {ROUNDS} without a read: {moved:?}");
    }
}

/// Payloads above what a read takes along go from the ring to their place.
const LONG: usize = 4096;

#[test]
fn long_payloads_are_copied_from_the_ring_once() {
    fn exchange<const PEERS: usize>() {
        let (far, peers) = open::<PEERS>();
        for round in 0..ROUNDS {
            let text = Parked::park(pattern(LONG, round));
            let rooms = [(); PEERS].map(|()| Parked::park(vec![0; LONG]));
            rooms.iter().for_each(|room| far.end.post(room));
            for (near, to) in &peers {
                near.end.send(&text, *to).unwrap();
                near.end.poll(1);
            }
            far.end.poll(PEERS);
            assert_eq!(count(&far.moved(), Moved::AtHand), PEERS, "in {round}");
            for room in rooms {
                assert!(common::bytes(room) == pattern(LONG, round));
            }
            drop(common::bytes(text));
        }
    }
    // From what was just active, and from more peers than are remembered.
    exchange::<1>();
    exchange::<3>();
}

const KEY: u64 = 7;

/// Memory that peers may write, with this key and from address 0 on.
fn open_to_writes(memory: &Parked) -> MrAttr {
    MrAttr {
        iov: vec![memory.buf()],
        access: Flags::REMOTE_WRITE,
        offset: 0,
        requested_key: KEY,
        flags: Flags::empty(),
        shared: Sharing::Never,
    }
}

/// Writes of a burst.
const BURST: usize = 5;

#[test]
fn short_writes_use_short_entries() {
    let len = 8 * BURST * ROUNDS;
    let (far, [(near, to)]) = open();
    let memory = Parked::park(vec![0; len]);
    let region = far.domain.mr(&open_to_writes(&memory)).unwrap();
    let text = Parked::park(pattern(len, 1));
    for round in 0..ROUNDS {
        let burst = 1 + round % BURST;
        for index in 0..burst {
            let addr = 8 * (BURST * round + index);
            let call = RmaCall {
                remote: &[RmaIov {
                    addr: addr as u64,
                    len: 8,
                    key: KEY,
                }],
                peer: to,
                data: None,
                context: 3,
                flags: None,
            };
            let piece = text.buf().skip(addr).first(8);
            near.end.ep.write(&[piece], &call).unwrap();
        }
        near.end.poll(burst);
        // Nothing tells of writes.
        assert_eq!(far.end.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
    // It comes behind them.
    let (room, last) = (Parked::park(vec![0; 8]), Parked::park(vec![1; 8]));
    far.end.post(&room);
    near.end.send(&last, to).unwrap();
    near.end.poll(1);
    far.end.poll(1);
    let all = (0..ROUNDS).map(|round| 1 + round % BURST).sum::<usize>();
    // Now and then room is looked for first.
    for (side, how) in [(&near, Moved::Write), (&far, Moved::ShortEntry)] {
        let moved = side.moved();
        let past = count(&moved, how);
        assert!(past * ROUNDS >= all * MOST, "{past} of {all}: {moved:?}");
    }
    drop((common::bytes(room), common::bytes(last)));
    drop(region);
    let (memory, text) = (common::bytes(memory), common::bytes(text));
    for (round, part) in memory.chunks(8 * BURST).enumerate() {
        let (written, rest) = part.split_at(8 * (1 + round % BURST));
        let from = 8 * BURST * round;
        assert_eq!(written, &text[from..from + written.len()], "in {round}");
        assert!(rest.iter().all(|byte| *byte == 0), "behind {round}");
    }
}

#[test]
fn plain_writes_are_sent_at_once_and_copied_once() {
    let (far, [(near, to)]) = open();
    let memory = Parked::park(vec![0; 3 * LONG]);
    let region = far.domain.mr(&open_to_writes(&memory)).unwrap();
    let text = Parked::park(pattern(3 * LONG, 1));
    let writes: Vec<RmaIov> = (0..3)
        .map(|index| RmaIov {
            addr: index * LONG as u64,
            len: LONG as u64,
            key: KEY,
        })
        .collect();
    for one in writes.chunks(1) {
        let call = RmaCall {
            remote: one,
            peer: to,
            data: None,
            context: 3,
            flags: None,
        };
        let piece = text.buf().skip(one[0].addr as usize).first(LONG);
        near.end.ep.write(&[piece], &call).unwrap();
    }
    assert_eq!(near.moved(), [Moved::Message(WRITE_LEN); 3]);
    near.end.poll(3);
    // It comes behind them.
    let (room, last) = (Parked::park(vec![0; 8]), Parked::park(vec![1; 8]));
    far.end.post(&room);
    near.end.send(&last, to).unwrap();
    near.end.poll(1);
    far.end.poll(1);
    assert_eq!(count(&far.moved(), Moved::AtHand), 3);
    drop((common::bytes(room), common::bytes(last)));
    drop(region);
    assert!(common::bytes(memory) == pattern(3 * LONG, 1));
    drop(common::bytes(text));
}
