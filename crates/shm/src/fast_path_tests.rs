//! Frequent operations take their fast paths. The other paths have the same results and only cost more,
//! so these tests run over a transport that logs which methods of its links are called.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::link::RingInPlace;
use parking_lot::Mutex;
use ripstop_core::provider::{
    CompletionQueue as _, Domain as _, Endpoint as _, Fabric as _, MrAttr, RecvKind, RmaCall,
    SendKind, Sharing,
};
use ripstop_mem::ring::{MAX_HEADER_BYTES, ShortEntry, SoleEntry};
use ripstop_mem::{Parked, UserBuf};
use ripstop_os::{Connect, Interest, IoVec, IoVecMut, Process, Remote, Shutdown, Spare};
use ripstop_stream::{
    ConnId, DirectAccess, Fabric, GetPieces, Got, HandshakeError, InPlace, Link, Listener, Origin,
    Payload, Readiness, ReadyLink, Transport, Tunables,
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

/// A call of a link that moved bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkCall {
    /// `send_message`, with a header of this length.
    SendMessage(usize),
    /// `send_short`: a short write in a few entries.
    SendShort,
    /// Any other send.
    Send,
    /// The sole entry, read in place.
    SoleEntry,
    /// A short entry, read in place, and those behind it that belong to the same write.
    ShortEntry,
    /// A read that delivered bytes.
    Read,
    /// A chunk, copied from the ring to its place.
    ReadChunk,
    /// A payload was got from the memory of its sender.
    Get,
    /// The link was told that its peer has got payloads.
    PeerGot,
}

/// The calls of all links of a fabric, in order.
type CallLog = Arc<Mutex<Vec<LinkCall>>>;

/// The provider's parameters, and the log of its links.
#[derive(Debug)]
struct RecordingParams {
    params: Params,
    calls: CallLog,
    /// Whether receivers get messages of 4 KiB and more.
    gets: bool,
}

impl AsRef<Tunables> for RecordingParams {
    fn as_ref(&self) -> &Tunables {
        self.params.as_ref()
    }
}

/// The transport under test, with its calls logged.
#[derive(Debug)]
struct Recording;

#[derive(Debug)]
struct RecordingLink {
    link: Arc<ShmLink>,
    calls: CallLog,
    /// Whether the peer is to be told from which length on this side gets messages.
    tells_limit: AtomicBool,
}

#[derive(Debug)]
struct RecordingListener {
    listener: ShmListener,
    calls: CallLog,
    gets: bool,
}

#[derive(Debug)]
struct RecordingReadiness(ShmReadiness);

impl RecordingParams {
    fn link(&self, link: ShmLink) -> RecordingLink {
        RecordingLink::new(link, &self.calls, self.gets)
    }

    fn listener(&self, listener: ShmListener) -> RecordingListener {
        RecordingListener {
            listener,
            calls: Arc::clone(&self.calls),
            gets: self.gets,
        }
    }
}

impl RecordingLink {
    fn new(link: ShmLink, calls: &CallLog, gets: bool) -> Self {
        Self {
            link: Arc::new(link),
            calls: Arc::clone(calls),
            tells_limit: AtomicBool::new(gets),
        }
    }

    /// Logs a call that moved bytes.
    fn log(&self, how: LinkCall, moved: Result<usize>) -> Result<usize> {
        if moved.is_ok() {
            self.calls.lock().push(how);
        }
        moved
    }
}

impl Transport for Recording {
    const NAME: &'static str = Shm::NAME;
    const AFTER_READS: bool = Shm::AFTER_READS;
    type Params = RecordingParams;
    type Addr = Name;
    type Link = RecordingLink;
    type Listener = RecordingListener;
    type System = ripstop_stream::Os;
    type Readiness = RecordingReadiness;

    fn default_source(params: &RecordingParams) -> Name {
        Shm::default_source(&params.params)
    }

    fn bind(params: &RecordingParams, addr: &Name) -> Result<RecordingListener> {
        Shm::bind(&params.params, addr).map(|listener| params.listener(listener))
    }

    fn bind_contexts(
        params: &RecordingParams,
        addr: &Name,
        count: usize,
    ) -> Result<Vec<RecordingListener>> {
        let row = Shm::bind_contexts(&params.params, addr, count)?;
        Ok(row.into_iter().map(|each| params.listener(each)).collect())
    }

    fn connect(
        params: &RecordingParams,
        to: &Name,
        _: Origin<Self>,
    ) -> Result<(RecordingLink, Connect)> {
        let (link, how) = Shm::connect(&params.params, to, Origin::Address(None))?;
        Ok((params.link(link), how))
    }

    fn gets_messages(params: &RecordingParams, _: &RecordingLink) -> bool {
        params.gets
    }

    fn prepare(params: &RecordingParams, link: &RecordingLink, dscp: Option<u8>) -> Result<()> {
        Shm::prepare(&params.params, &link.link, dscp)
    }

    fn request_data(
        params: &RecordingParams,
        readiness: &mut RecordingReadiness,
        link: &RecordingLink,
        own: &Name,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        Shm::request_data(&params.params, &mut readiness.0, &link.link, own, greeting)
    }

    fn read_request(
        params: &RecordingParams,
        readiness: &mut RecordingReadiness,
        link: &RecordingLink,
        from: &Name,
        data: &[u8],
    ) -> core::result::Result<(Greeting, Name), HandshakeError> {
        Shm::read_request(&params.params, &mut readiness.0, &link.link, from, data)
    }

    fn reply_data(
        readiness: &mut RecordingReadiness,
        link: &RecordingLink,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        Shm::reply_data(&mut readiness.0, &link.link, greeting)
    }

    fn read_reply(
        readiness: &mut RecordingReadiness,
        link: &RecordingLink,
        data: &[u8],
    ) -> core::result::Result<Greeting, HandshakeError> {
        Shm::read_reply(&mut readiness.0, &link.link, data)
    }
}

impl AsFd for RecordingLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl Link for RecordingLink {
    type Addr = Name;

    type InPlace = RecordingInPlace;
    type Direct = RecordingDirect;
    type Joint = ();
    type Registering = ();

    fn send(&self, bytes: &[u8]) -> Result<usize> {
        self.log(LinkCall::Send, self.link.send(bytes))
    }

    fn sendv(&self, vecs: &[IoVec<'_>]) -> Result<usize> {
        self.log(LinkCall::Send, self.link.sendv(vecs))
    }

    fn has_room(&self) -> bool {
        self.link.has_room()
    }

    fn recv(&self, bytes: &mut [u8]) -> Result<usize> {
        self.log(LinkCall::Read, self.link.recv(bytes))
    }

    fn recv_once(&self, bytes: &mut [u8]) -> Result<usize> {
        self.log(LinkCall::Read, self.link.recv_once(bytes))
    }

    fn await_room(&self) -> bool {
        self.link.await_room()
    }

    fn recvv(&self, vecs: &mut [IoVecMut<'_>]) -> Result<usize> {
        self.log(LinkCall::Read, self.link.recvv(vecs))
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

/// Messages that are got by their receiver; no regions.
#[derive(Debug)]
struct RecordingDirect;

impl DirectAccess<RecordingLink> for RecordingDirect {
    const SUPPORTED: bool = true;

    type Windows = ();

    /// The peer is in this process, where the links of the provider get nothing.
    fn get(link: &RecordingLink, from: &[Payload], mut into: GetPieces<'_>) -> Got {
        let place = |payload: &Payload| Remote {
            base: payload.address as usize,
            len: payload.len as usize,
        };
        let from: Vec<_> = from.iter().map(place).collect();
        let own = Process::open(std::process::id()).expect("this process");
        own.read(&from, &mut into).expect("memory of this process");
        link.calls.lock().push(LinkCall::Get);
        Got::Done
    }

    fn note_peer_got(link: &RecordingLink) {
        link.calls.lock().push(LinkCall::PeerGot);
    }

    fn take_get_limit(link: &RecordingLink) -> Option<u8> {
        let tells = link.tells_limit.swap(false, Ordering::Relaxed);
        tells.then_some(LONG_BYTES.ilog2() as u8)
    }
}

#[derive(Debug)]
struct RecordingInPlace;

impl InPlace<RecordingLink> for RecordingInPlace {
    const SUPPORTED: bool = true;

    fn send_message(
        link: &RecordingLink,
        header: &[u8; MAX_HEADER_BYTES],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize> {
        let sent = RingInPlace::send_message(&link.link, header, header_len, payload);
        link.log(LinkCall::SendMessage(header_len), sent)
    }

    fn is_ready(link: &RecordingLink) -> bool {
        RingInPlace::is_ready(&link.link)
    }

    fn sole_entry(link: &RecordingLink) -> Option<SoleEntry<'_>> {
        let alone = RingInPlace::sole_entry(&link.link)?;
        link.calls.lock().push(LinkCall::SoleEntry);
        Some(alone)
    }

    fn short_entry(link: &RecordingLink) -> Option<ShortEntry<'_>> {
        let short = RingInPlace::short_entry(&link.link)?;
        link.calls.lock().push(LinkCall::ShortEntry);
        Some(short)
    }

    fn return_credits(link: &RecordingLink) {
        RingInPlace::return_credits(&link.link);
    }

    fn send_short(link: &RecordingLink, header: &[u8; MAX_HEADER_BYTES], payload: UserBuf) -> bool {
        let sent = RingInPlace::send_short(&link.link, header, payload);
        if sent {
            link.calls.lock().push(LinkCall::SendShort);
        }
        sent
    }

    fn sends_whole(link: &RecordingLink, payload: usize) -> bool {
        RingInPlace::sends_whole(&link.link, payload)
    }

    fn payload_ready(link: &RecordingLink) -> usize {
        RingInPlace::payload_ready(&link.link)
    }

    fn recv_payload(link: &RecordingLink, room: UserBuf) -> usize {
        link.calls.lock().push(LinkCall::ReadChunk);
        RingInPlace::recv_payload(&link.link, room)
    }
}

impl AsFd for RecordingListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Listener for RecordingListener {
    type Link = RecordingLink;
    type Addr = Name;

    fn local_addr(&self) -> Result<Name> {
        self.listener.local_addr()
    }

    fn listen(&self, backlog: i32) -> Result<()> {
        self.listener.listen(backlog)
    }

    fn accept(&self) -> Result<Option<(RecordingLink, Name)>> {
        let accepted = self.listener.accept()?;
        Ok(accepted.map(|(link, name)| {
            let link = RecordingLink::new(link, &self.calls, self.gets);
            (link, name)
        }))
    }

    fn turn_away(&self, spare: &mut Spare) -> Option<Name> {
        self.listener.turn_away(spare)
    }
}

impl Readiness<RecordingLink> for RecordingReadiness {
    const POLLS_LINKS: bool = <ShmReadiness as Readiness<ShmLink>>::POLLS_LINKS;

    fn open() -> Result<Self> {
        ShmReadiness::open().map(Self)
    }

    fn add(&mut self, id: ConnId, link: &Arc<RecordingLink>) {
        self.0.add(id, &link.link);
    }

    fn modify(&mut self, id: ConnId, interest: Interest) {
        self.0.modify(id, interest);
    }

    fn remove(&mut self, id: ConnId) {
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

type Serial = <Fabric<Recording> as ripstop_core::provider::Fabric>::SerialDomain;

/// An endpoint, its domain, and the log of its links.
struct Side {
    end: End<Serial>,
    domain: Arc<Serial>,
    calls: CallLog,
}

impl Side {
    fn open(gets: bool) -> Self {
        let caps = Flags::MSG | Flags::TAGGED | Flags::RMA;
        let info = common::info_for(caps, None, Threading::Domain, Progress::Manual);
        let calls = CallLog::default();
        let params = RecordingParams {
            params: Params::read(),
            calls: Arc::clone(&calls),
            gets,
        };
        let fabric = Fabric::<Recording>::new(info.fabric.clone(), Arc::new(params));
        let domain = Arc::new(fabric).serial_domain(&info).unwrap();
        Self {
            end: common::open(&domain, &info),
            domain,
            calls,
        }
    }

    /// The calls since this was last called.
    fn take_calls(&self) -> Vec<LinkCall> {
        std::mem::take(&mut self.calls.lock())
    }
}

/// Polls both sides by turns until one has sent a message and the other has received it.
fn complete(from: &Side, at: &Side) {
    let (mut sent, mut got) = (0, 0);
    let stop = std::time::Instant::now() + common::PATIENCE;
    while sent + got < 2 {
        sent += from.end.cq.read(1, |_| ()).unwrap_or(0);
        got += at.end.cq.read(1, |_| ()).unwrap_or(0);
        assert!(std::time::Instant::now() < stop, "it does not arrive");
    }
}

/// An endpoint, and peers that are connected to it. All data goes through the rings.
fn open<const PEERS: usize>() -> (Side, [(Side, FiAddr); PEERS]) {
    open_that(false)
}

/// As [`open`]; receivers get messages of 4 KiB and more if `gets` says so.
fn open_that<const PEERS: usize>(gets: bool) -> (Side, [(Side, FiAddr); PEERS]) {
    let far = Side::open(gets);
    let peers = std::array::from_fn(|_| {
        let near = Side::open(gets);
        let to = near.end.knows(&far.end.name());
        let (room, text) = (Parked::park(vec![0; 8]), Parked::park(vec![1; 8]));
        far.end.post(&room);
        near.end.send(&text, to).unwrap();
        complete(&near, &far);
        drop((common::bytes(room), common::bytes(text)));
        near.take_calls();
        (near, to)
    });
    far.take_calls();
    (far, peers)
}

/// Some reads poll all links and not only the active one, and take the other path.
const ROUNDS: usize = 100;
const MIN_FAST_ROUNDS: usize = 80;

fn count(moved: &[LinkCall], how: LinkCall) -> usize {
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
            assert_eq!(near.take_calls(), [LinkCall::SendMessage(header_len)]);
            near.end.poll(1);
            far.end.poll(1);
            assert_eq!(common::bytes(room), [round as u8; 8]);
            drop(common::bytes(text));
        }
        let moved = far.take_calls();
        let fast = ROUNDS - count(&moved, LinkCall::Read);
        assert!(
            fast >= MIN_FAST_ROUNDS,
            "{fast} of {ROUNDS} without a read: {moved:?}"
        );
    }
}

/// Longer than what a read delivers with its header: copied from the ring straight to its place.
const LONG_BYTES: usize = 4096;

#[test]
fn long_payloads_are_copied_from_the_ring_once() {
    fn exchange<const PEERS: usize>() {
        let (far, peers) = open::<PEERS>();
        for round in 0..ROUNDS {
            let text = Parked::park(pattern(LONG_BYTES, round));
            let rooms = [(); PEERS].map(|()| Parked::park(vec![0; LONG_BYTES]));
            rooms.iter().for_each(|room| far.end.post(room));
            for (near, to) in &peers {
                near.end.send(&text, *to).unwrap();
                near.end.poll(1);
            }
            far.end.poll(PEERS);
            assert_eq!(
                count(&far.take_calls(), LinkCall::ReadChunk),
                PEERS,
                "in {round}"
            );
            for room in rooms {
                assert!(common::bytes(room) == pattern(LONG_BYTES, round));
            }
            drop(common::bytes(text));
        }
    }
    // From what was just active, and from more peers than are remembered.
    exchange::<1>();
    exchange::<3>();
}

/// Messages that are got.
const GOT_BYTES: usize = 16 << 10;

#[test]
fn a_side_that_gets_nothing_itself_hears_that_its_peer_does() {
    let (far, [(near, to)]) = open_that(true);
    for round in 0..ROUNDS {
        let text = Parked::park(pattern(GOT_BYTES, round));
        let room = Parked::park(vec![0; GOT_BYTES]);
        far.end.post(&room);
        near.end.send(&text, to).unwrap();
        complete(&near, &far);
        // It finds no more, and hears what the peer says.
        assert_eq!(near.end.cq.read(1, |_| ()), Err(Errno::EAGAIN));
        assert!(common::bytes(room) == pattern(GOT_BYTES, round));
        drop(common::bytes(text));
    }
    // Some messages are trials, which are sent.
    let got = count(&far.take_calls(), LinkCall::Get);
    let told = count(&near.take_calls(), LinkCall::PeerGot);
    assert!(got >= ROUNDS / 2, "{got} of {ROUNDS} were got");
    assert!(told >= 2, "told {told} times of {got}");
}

const KEY: u64 = 7;

/// A region that peers may write, with this key, from address 0 on.
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

/// Writes of a burst, at most.
const MAX_BURST: usize = 5;

#[test]
fn short_writes_use_short_entries() {
    // One entry, two, three, and as many as there are.
    [8, 64, 100, 184].into_iter().for_each(write_short);
}

/// Bursts of writes of `size` bytes each, one of which is injected.
fn write_short(size: usize) {
    let len = size * MAX_BURST * ROUNDS;
    let (far, [(near, to)]) = open();
    let memory = Parked::park(vec![0; len]);
    let region = far.domain.mr(&open_to_writes(&memory)).unwrap();
    let text = Parked::park(pattern(len, 1));
    for round in 0..ROUNDS {
        let burst = 1 + round % MAX_BURST;
        for index in 0..burst {
            let addr = size * (MAX_BURST * round + index);
            let place = RmaIov {
                addr: addr as u64,
                len: size as u64,
                key: KEY,
            };
            let call = RmaCall {
                remote: &[place],
                peer: to,
                data: None,
                context: 3,
                flags: None,
            };
            let piece = text.buf().skip(addr).first(size);
            match index {
                0 => near.end.ep.inject_write(piece, place, None, to).unwrap(),
                _ => near.end.ep.write(&[piece], &call).unwrap(),
            }
        }
        near.end.poll(burst - 1);
        // Writes are not reported at the target.
        assert_eq!(far.end.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    }
    // This message arrives after the writes.
    let (room, last) = (Parked::park(vec![0; 8]), Parked::park(vec![1; 8]));
    far.end.post(&room);
    near.end.send(&last, to).unwrap();
    near.end.poll(1);
    far.end.poll(1);
    let all = (0..ROUNDS)
        .map(|round| 1 + round % MAX_BURST)
        .sum::<usize>();
    // Sometimes the writer loads the credit first, and takes the other path.
    for (side, how) in [(&near, LinkCall::SendShort), (&far, LinkCall::ShortEntry)] {
        let moved = side.take_calls();
        let fast = count(&moved, how);
        assert!(
            fast * ROUNDS >= all * MIN_FAST_ROUNDS,
            "{fast} of {all}: {moved:?}"
        );
    }
    drop((common::bytes(room), common::bytes(last)));
    drop(region);
    let (memory, text) = (common::bytes(memory), common::bytes(text));
    for (round, part) in memory.chunks(size * MAX_BURST).enumerate() {
        let (written, rest) = part.split_at(size * (1 + round % MAX_BURST));
        let from = size * MAX_BURST * round;
        assert_eq!(written, &text[from..from + written.len()], "in {round}");
        assert!(rest.iter().all(|byte| *byte == 0), "behind {round}");
    }
}

#[test]
fn plain_writes_are_sent_at_once_and_copied_once() {
    let (far, [(near, to)]) = open();
    let memory = Parked::park(vec![0; 3 * LONG_BYTES]);
    let region = far.domain.mr(&open_to_writes(&memory)).unwrap();
    let text = Parked::park(pattern(3 * LONG_BYTES, 1));
    let writes: Vec<RmaIov> = (0..3)
        .map(|index| RmaIov {
            addr: index * LONG_BYTES as u64,
            len: LONG_BYTES as u64,
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
        let piece = text.buf().skip(one[0].addr as usize).first(LONG_BYTES);
        near.end.ep.write(&[piece], &call).unwrap();
    }
    assert_eq!(near.take_calls(), [LinkCall::SendMessage(WRITE_LEN); 3]);
    near.end.poll(3);
    // This message arrives after the writes.
    let (room, last) = (Parked::park(vec![0; 8]), Parked::park(vec![1; 8]));
    far.end.post(&room);
    near.end.send(&last, to).unwrap();
    near.end.poll(1);
    far.end.poll(1);
    assert_eq!(count(&far.take_calls(), LinkCall::ReadChunk), 3);
    drop((common::bytes(room), common::bytes(last)));
    drop(region);
    assert!(common::bytes(memory) == pattern(3 * LONG_BYTES, 1));
    drop(common::bytes(text));
}
