//! A provider that has the receives of our endpoints, and matches for them (`fi_peer(3)`).
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use c::matcher::{Matcher, Receive, SRX_OPS, srx_attr};
use c::owner::{Owner, Told};
use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An interface for owners.
fn peer_info() -> Info {
    loopback(FI_EP_RDM, |hints| {
        hints.get().caps = FI_MSG | FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV | FI_PEER;
    })
}

/// A sender with a queue of its own, and a receiver whose queue and receives an owner has.
struct Pair {
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    avs: [*mut fid_av; 2],
    sender: *mut fid_ep,
    receiver: *mut fid_ep,
    cq: *mut fid_cq,
    peer_cq: *mut fid_cq,
    srx: *mut fid_ep,
    owner: Box<Owner>,
    matcher: Box<Matcher>,
    /// The receiver at the sender, and the sender at the receiver, if it knows it.
    to: fi_addr_t,
    from: fi_addr_t,
}

impl Pair {
    fn open() -> Self {
        Self::with(true, 0)
    }

    fn with(known: bool, bind_flags: u64) -> Self {
        Self::enabled_by(known, bind_flags, enable)
    }

    /// With a receiver that is enabled in this way.
    fn enabled_by(known: bool, bind_flags: u64, enabling: fn(*mut fid_ep) -> c_int) -> Self {
        let info = peer_info();
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        let avs = [av(domain, FI_AV_UNSPEC, 0), av(domain, FI_AV_UNSPEC, 0)];
        let (mut owner, mut matcher) = (Owner::new(), Matcher::new());
        let peer_cq = owner.open(domain);
        let srx = matcher.open(domain);
        let cq = cq(domain, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE);

        let sender = endpoint(domain, &info);
        assert_eq!(bind(sender, avs[0], 0), 0);
        assert_eq!(bind(sender, cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(enable(sender), 0);

        let receiver = endpoint(domain, &info);
        assert_eq!(bind(receiver, avs[1], 0), 0);
        let flags = FI_TRANSMIT | FI_RECV | bind_flags;
        assert_eq!(bind(receiver, peer_cq, flags), 0);
        assert_eq!(bind(receiver, srx, 0), 0);
        assert_eq!(enabling(receiver), 0);

        let to = insert(avs[0], &name(unsafe { (*receiver).cm }, receiver.cast()));
        let mut pair = Self {
            fabric,
            domain,
            avs,
            sender,
            receiver,
            cq,
            peer_cq,
            srx,
            owner,
            matcher,
            to,
            from: FI_ADDR_UNSPEC,
        };
        if known {
            pair.introduce();
        }
        pair
    }

    /// The receiver learns the sender's address.
    fn introduce(&mut self) {
        let name = name(unsafe { (*self.sender).cm }, self.sender.cast());
        self.from = insert(self.avs[1], &name);
    }

    fn drive(&self) {
        let code = op!(self.peer_cq, ops.read(NONE, 0));
        assert!(code == 0 || code == -FI_EAGAIN as isize, "{code}");
        let code = op!(self.cq, ops.read(NONE, 0));
        assert!(code == 0 || code == -FI_EAGAIN as isize, "{code}");
    }

    fn send(&self, bytes: &[u8], tag: Option<u64>, data: u64) {
        let buf = bytes.as_ptr().cast();
        let (ep, to, len) = (self.sender, self.to, bytes.len());
        post(self.cq, || match tag {
            Some(tag) if data != 0 => {
                op!(ep, tagged.senddata(buf, len, NONE, data, to, tag, NONE))
            }
            Some(tag) => op!(ep, tagged.send(buf, len, NONE, to, tag, NONE)),
            None => op!(ep, msg.send(buf, len, NONE, to, NONE)),
        });
    }

    /// Drives both until so many messages wait at the owner.
    fn waiting(&self, count: usize) {
        until("messages wait", || {
            self.drive();
            (self.matcher.waiting.borrow().len() == count).then_some(())
        });
    }

    fn told(&self, count: usize) -> Vec<Told> {
        until("the owner is told", || {
            self.drive();
            (self.owner.told.borrow().len() >= count).then_some(())
        });
        self.owner.told.take()
    }

    fn close(self) {
        assert_eq!(close(self.srx), -FI_EBUSY);
        close_all!(self.sender, self.receiver, self.srx);
        self.close_rest();
    }

    fn close_rest(self) {
        let [first, second] = self.avs.map(close);
        let (cq, peer_cq) = (close(self.cq), close(self.peer_cq));
        let codes = [first, second, cq, peer_cq];
        assert_eq!(codes, [0; 4]);
        close_all!(self.domain, self.fabric);
    }
}

#[test]
fn what_is_for_other_providers_is_driven_by_them() {
    let offered = |caps: u64, progress: fi_progress| {
        let hints = Info::hints();
        hints.ep().type_ = FI_EP_RDM;
        hints.get().caps = caps;
        hints.domain().data_progress = progress;
        let info = getinfo(NOW, Some(c"127.0.0.1"), None, FI_SOURCE, Some(&hints)).ok()?;
        let domain = info.domain();
        Some((info.get().caps & FI_PEER, domain.data_progress))
    };
    let asked = FI_TAGGED | FI_PEER;
    let driven = Some((FI_PEER, FI_PROGRESS_MANUAL));
    assert_eq!(offered(asked, FI_PROGRESS_UNSPEC), driven);
    assert_eq!(offered(asked, FI_PROGRESS_MANUAL), driven);
    assert_eq!(offered(asked, FI_PROGRESS_AUTO), None);
    for caps in [0, FI_TAGGED] {
        let usual = Some((0, FI_PROGRESS_AUTO));
        assert_eq!(offered(caps, FI_PROGRESS_AUTO), usual);
    }
}

/// Short, longer than what is kept before the owner is asked, longer than what is sent unasked.
const SIZES: [usize; 4] = [0, 8, 40_000, 1_000_000];

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8).collect()
}

#[test]
fn posted_receives_of_the_owner_get_their_messages() {
    let pair = Pair::open();
    for (number, len) in SIZES.into_iter().enumerate() {
        for tag in [None, Some(77)] {
            let bytes = pattern(len, number);
            let mut room = vec![0; len];
            pair.matcher
                .recv(Receive::new(&mut room, tag, 5, pair.from));
            pair.send(&bytes, tag, 0);
            let told = pair.told(1);
            let told = &told[0];
            assert_eq!((told.context, told.len, told.err), (5, len, 0));
            assert_eq!((told.tag, told.src), (tag.unwrap_or(0), pair.from));
            let kind = if tag.is_some() { FI_TAGGED } else { FI_MSG };
            assert_eq!(told.flags, kind | FI_RECV);
            assert!(room == bytes, "{len} bytes, {tag:?}");
        }
    }
    assert_eq!(pair.matcher.freed.get(), 8);
    assert!(pair.matcher.lent.borrow().is_empty());
    pair.close();
}

#[test]
fn messages_wait_for_the_owner_and_are_started_in_any_order() {
    let pair = Pair::open();
    let sent: Vec<_> = (SIZES.into_iter().enumerate())
        .map(|(seed, len)| pattern(len, seed))
        .collect();
    for (tag, bytes) in sent.iter().enumerate() {
        pair.send(bytes, Some(tag as u64), 40 + tag as u64);
    }
    pair.waiting(SIZES.len());
    let mut rooms: Vec<_> = SIZES.iter().map(|len| vec![0; *len]).collect();
    for tag in [3, 1, 2, 0] {
        let receive = Receive::new(&mut rooms[tag], Some(tag as u64), tag, FI_ADDR_UNSPEC);
        pair.matcher.recv(receive);
    }
    let mut told = pair.told(SIZES.len());
    told.sort_by_key(|told| told.context);
    for (tag, told) in told.iter().enumerate() {
        assert_eq!((told.context, told.data), (tag, 40 + tag as u64));
        assert_eq!((told.len, told.err), (SIZES[tag], 0));
        assert_ne!(told.flags & FI_REMOTE_CQ_DATA, 0);
    }
    assert!(rooms == sent);
    assert_eq!(pair.matcher.freed.get(), SIZES.len());
    pair.close();
}

#[test]
fn what_is_longer_than_its_receive_is_an_error() {
    let pair = Pair::open();
    let mut room = [0; 4];
    pair.matcher
        .recv(Receive::new(&mut room, Some(1), 5, FI_ADDR_UNSPEC));
    pair.send(b"too long", Some(1), 0);
    pair.send(b"too long", None, 0);
    let told = pair.told(1);
    assert_eq!((told[0].context, told[0].err), (5, FI_ETRUNC));
    pair.waiting(1);
    pair.matcher
        .recv(Receive::new(&mut room, None, 6, FI_ADDR_UNSPEC));
    let told = pair.told(1);
    assert_eq!((told[0].context, told[0].err), (6, FI_ETRUNC));
    assert_eq!(pair.matcher.freed.get(), 2);
    assert_eq!(&room, b"too ");
    pair.close();
}

#[test]
fn discarded_messages_are_gone_and_the_next_ones_come() {
    let pair = Pair::open();
    for (seed, len) in SIZES.into_iter().enumerate() {
        pair.send(&pattern(len, seed), Some(1), 0);
        pair.waiting(1);
        assert_eq!(pair.matcher.discard(), 0);
    }
    let mut room = [0; 4];
    pair.matcher
        .recv(Receive::new(&mut room, Some(2), 5, FI_ADDR_UNSPEC));
    pair.send(b"last", Some(2), 0);
    assert_eq!(pair.told(1)[0].context, 5);
    assert_eq!(&room, b"last");
    // The owner frees what it discards.
    assert_eq!(pair.matcher.freed.get(), 1);
    pair.close();
}

#[test]
fn an_owner_without_room_is_asked_again() {
    let pair = Pair::open();
    pair.matcher.refuses.set(-FI_ENOMEM);
    pair.send(b"one", Some(1), 0);
    pair.send(b"two", Some(2), 0);
    until("it is asked", || {
        pair.drive();
        (pair.matcher.asked.get() > 3).then_some(())
    });
    pair.matcher.refuses.set(0);
    pair.waiting(2);
    let tags: Vec<_> = (pair.matcher.waiting.borrow().iter())
        .map(|message| message.entry.tag)
        .collect();
    assert_eq!(tags, [1, 2]);

    // What it does not know, or does not queue, is dropped.
    pair.matcher.refuses.set(-FI_ENOSYS);
    let asked = pair.matcher.asked.get();
    pair.send(b"three", None, 0);
    until("it is asked", || {
        pair.drive();
        (pair.matcher.asked.get() > asked).then_some(())
    });
    pair.matcher.refuses.set(0);
    pair.matcher.full.set(-FI_ENOMEM);
    pair.send(b"four", Some(4), 0);
    until("it is freed", || {
        pair.drive();
        (pair.matcher.freed.get() == 1).then_some(())
    });
    pair.matcher.full.set(0);
    pair.send(b"five", Some(5), 0);
    pair.waiting(3);
    pair.close();
}

#[test]
fn a_sender_that_becomes_known_is_told() {
    let mut pair = Pair::with(false, 0);
    pair.send(b"who", Some(1), 0);
    pair.waiting(1);
    let addr = |pair: &Pair| pair.matcher.waiting.borrow()[0].entry.addr;
    assert_eq!(addr(&pair), FI_ADDR_UNSPEC);
    // An entry of another peer is no business of ours.
    let mut stranger = Receive::new(&mut [], Some(9), 0, FI_ADDR_UNSPEC);
    stranger.entry.peer_context = ptr::without_provenance_mut(0x7fff_0000_1234);
    pair.matcher.waiting.borrow_mut().push(stranger);
    pair.introduce();
    assert_eq!(addr(&pair), pair.from);
    let others = pair.matcher.waiting.borrow_mut().pop();
    assert_eq!(others.map(|other| other.entry.addr), Some(FI_ADDR_UNSPEC));
    let mut room = [0; 3];
    pair.matcher
        .recv(Receive::new(&mut room, Some(1), 5, pair.from));
    assert_eq!(pair.told(1)[0].src, pair.from);
    assert_eq!(&room, b"who");
    pair.close();
}

#[test]
fn a_selective_endpoint_reports_what_asks_for_it_and_errors() {
    let pair = Pair::with(true, FI_SELECTIVE_COMPLETION);
    let mut rooms = [[0; 4]; 3];
    for (tag, room) in rooms.iter_mut().enumerate() {
        let mut receive = Receive::new(room, Some(tag as u64), tag, FI_ADDR_UNSPEC);
        if tag == 1 {
            receive.entry.flags |= FI_COMPLETION;
        }
        pair.matcher.recv(receive);
    }
    for (tag, bytes) in [&b"zero"[..], b"one", b"too long"].into_iter().enumerate() {
        pair.send(bytes, Some(tag as u64), 0);
    }
    let told = pair.told(2);
    let got: Vec<_> = told.iter().map(|told| (told.context, told.err)).collect();
    assert_eq!(got, [(1, 0), (2, FI_ETRUNC)]);
    assert_eq!(&rooms[0], b"zero");
    assert_eq!(pair.matcher.freed.get(), 3);
    pair.close();
}

#[test]
fn an_owner_s_queue_that_is_full_is_told_before_entries_are_freed() {
    let pair = Pair::open();
    let mut room = [0; 4];
    pair.matcher
        .recv(Receive::new(&mut room, Some(1), 5, FI_ADDR_UNSPEC));
    pair.owner.full.set(true);
    pair.send(b"four", Some(1), 0);
    until("it is received", || {
        pair.drive();
        (pair.matcher.asked.get() == 1).then_some(())
    });
    pair.drive();
    assert_eq!(pair.matcher.freed.get(), 0);
    pair.owner.full.set(false);
    assert_eq!(pair.told(1)[0].context, 5);
    assert_eq!(pair.matcher.freed.get(), 1);
    pair.close();
}

#[test]
fn what_a_lost_peer_has_sent_completes_with_an_error() {
    let pair = Pair::open();
    let bytes = pattern(1_000_000, 0);
    pair.send(&bytes, Some(1), 0);
    pair.send(&bytes, Some(2), 0);
    pair.waiting(2);
    // One is under way when the sender goes, one waits.
    let mut room = vec![0; bytes.len()];
    pair.matcher
        .recv(Receive::new(&mut room, Some(1), 5, FI_ADDR_UNSPEC));
    assert_eq!(close(pair.sender), 0);
    let told = pair.told(1);
    assert_eq!(told[0].context, 5);
    assert_ne!(told[0].err, 0);
    pair.matcher
        .recv(Receive::new(&mut room, Some(2), 6, FI_ADDR_UNSPEC));
    let told = pair.told(1);
    assert_eq!(told[0].context, 6);
    assert_ne!(told[0].err, 0);
    assert_eq!(pair.matcher.freed.get(), 2);
    close_all!(pair.receiver, pair.srx);
    pair.close_rest();
}

#[test]
fn a_context_that_closes_frees_what_has_started_and_forgets_the_rest() {
    let pair = Pair::open();
    let bytes = pattern(1_000_000, 0);
    pair.send(&bytes, Some(1), 0);
    pair.send(&bytes, Some(2), 0);
    pair.waiting(2);
    let mut room = vec![0; bytes.len()];
    pair.matcher
        .recv(Receive::new(&mut room, Some(1), 5, FI_ADDR_UNSPEC));
    close_all!(pair.sender, pair.receiver, pair.srx);
    assert_eq!(pair.matcher.freed.get(), 1);
    // The owner may only find out now that a message still waits there.
    let mut waiting = pair.matcher.waiting.borrow_mut().remove(0);
    let entry = &raw mut waiting.entry;
    assert_eq!(pair.matcher.peer_op(FI_TAGGED, true)(entry), -FI_EINVAL);
    assert_eq!(pair.matcher.peer_op(FI_TAGGED, false)(entry), 0);
    pair.drive();
    assert!(pair.owner.told.borrow().is_empty());
    pair.close_rest();
}

/// What the thread does that reads the queue of the owner, which is asked about a message.
static ASKED: AtomicBool = AtomicBool::new(false);
static ANSWERED: AtomicBool = AtomicBool::new(false);

#[test]
fn a_context_closes_when_nobody_asks_its_owner_any_more() {
    let pair = Pair::open();
    pair.matcher.refuses.set(-FI_EAGAIN);
    pair.matcher.on_ask.set(|| {
        ASKED.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(40));
        ANSWERED.store(true, Ordering::SeqCst);
    });
    pair.send(b"asked about", Some(1), 0);
    let queue = pair.peer_cq.expose_provenance();
    thread::scope(|scope| {
        scope.spawn(move || {
            let queue = ptr::with_exposed_provenance_mut::<fid_cq>(queue);
            while !ANSWERED.load(Ordering::SeqCst) {
                op!(queue, ops.read(NONE, 0));
            }
        });
        until("the owner is asked", || {
            let code = op!(pair.cq, ops.read(NONE, 0));
            assert!(code == 0 || code == -FI_EAGAIN as isize, "{code}");
            ASKED.load(Ordering::SeqCst).then_some(())
        });
        close_all!(pair.sender, pair.receiver);
        // Not at once if the other thread is away for long.
        let closed = until("the context closes", || {
            Some(close(pair.srx)).filter(|code| *code != -FI_EBUSY)
        });
        assert_eq!(closed, 0);
        assert!(ANSWERED.load(Ordering::SeqCst));
    });
    pair.close_rest();
}

#[test]
fn receives_are_the_owner_s_alone() {
    let pair = Pair::open();
    let mut room = [0_u8; 4];
    let buf = room.as_mut_ptr().cast::<c_void>();
    let no = -FI_ENOSYS as isize;
    let any = FI_ADDR_UNSPEC;
    assert_eq!(op!(pair.srx, msg.recv(buf, 4, NONE, any, NONE)), no);
    assert_eq!(
        op!(pair.srx, tagged.recv(buf, 4, NONE, any, 1, 0, NONE)),
        no
    );
    let posted = op!(pair.receiver, msg.recv(buf, 4, NONE, any, NONE));
    assert!(posted < 0, "{posted}");
    let cancel = unsafe { (*(*pair.receiver).ops).cancel.unwrap() };
    assert_eq!(unsafe { cancel(pair.receiver.cast(), NONE) }, no);
    pair.close();
}

/// Enables an endpoint through an alias of it.
fn enable_alias(ep: *mut fid_ep) -> c_int {
    let mut alias: *mut fid_ep = ptr::null_mut();
    let mut asked = fi_alias {
        fid: (&raw mut alias).cast(),
        flags: FI_TRANSMIT,
    };
    assert_eq!(control(ep, FI_ALIAS, &mut asked), 0);
    let code = enable(alias);
    assert_eq!(close(alias), 0);
    code
}

#[test]
fn an_endpoint_that_an_alias_enables_reports_too() {
    let pair = Pair::enabled_by(true, 0, enable_alias);
    let mut room = [0; 4];
    pair.matcher
        .recv(Receive::new(&mut room, Some(1), 5, FI_ADDR_UNSPEC));
    pair.send(b"four", Some(1), 0);
    let told = pair.told(1);
    assert_eq!((told[0].context, told[0].err), (5, 0));
    assert_eq!(&room, b"four");
    pair.close();
}

#[test]
fn a_poll_in_vain_allocates_nothing() {
    let pair = Pair::open();
    pair.send(b"a message that waits", Some(1), 0);
    pair.waiting(1);
    // Whatever both ends still had to do.
    for _ in 0..100 {
        pair.drive();
    }
    let before = ALLOCATED.get();
    for _ in 0..100 {
        let code = op!(pair.peer_cq, ops.read(NONE, 0));
        assert_eq!(code, -FI_EAGAIN as isize);
    }
    assert_eq!(ALLOCATED.get(), before);
    pair.close();
}

#[test]
fn only_reliable_datagrams_are_received_by_another() {
    let info = peer_info();
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let mut matcher = Matcher::new();
    let srx = matcher.open(domain);
    let connected = endpoint(domain, &loopback(FI_EP_MSG, |_| ()));
    assert_eq!(bind(connected, srx, 0), -FI_EINVAL);
    close_all!(connected, srx, domain, fabric);
}

#[test]
fn an_interface_without_the_capability_has_no_such_context() {
    let info = loopback(FI_EP_RDM, |_| ());
    assert_eq!(info.get().caps & FI_PEER, 0);
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let mut matcher = Matcher::new();
    let mut context = fi_peer_srx_context {
        size: size_of::<fi_peer_srx_context>(),
        srx: &raw mut matcher.peer,
    };
    let mut srx: *mut fid_ep = ptr::null_mut();
    let at = (&raw mut context).cast::<c_void>();
    let code = op!(domain, ops.srx_ctx(&mut srx_attr(), &mut srx, at));
    assert_eq!(code, -FI_EINVAL);
    assert!(matcher.peer.peer_ops.is_null());
    close_all!(domain, fabric);
}

#[test]
fn what_belongs_together_is_asked_for() {
    let info = peer_info();
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let open = |context: *mut c_void| {
        let mut srx: *mut fid_ep = ptr::null_mut();
        op!(domain, ops.srx_ctx(&mut srx_attr(), &mut srx, context))
    };
    let open_for = |size: usize, mut ops: Option<fi_ops_srx_owner>| {
        let mut peer = fid_peer_srx {
            owner_ops: ops.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            ..Default::default()
        };
        let mut argument = fi_peer_srx_context {
            size,
            srx: &raw mut peer,
        };
        open((&raw mut argument).cast())
    };
    let whole = size_of::<fi_peer_srx_context>();
    let mute = fi_ops_srx_owner {
        free_entry: None,
        ..SRX_OPS
    };
    let short = fi_ops_srx_owner {
        size: 16,
        ..SRX_OPS
    };
    for code in [
        open(NONE),
        open_for(whole, None),
        open_for(whole, Some(mute)),
        open_for(whole, Some(short)),
        open_for(8, Some(SRX_OPS)),
    ] {
        assert_eq!(code, -FI_EINVAL);
    }

    // Ends of receives go to a queue that the owner has, and to one only while that is open. An
    // endpoint that is not enabled decides nothing.
    let (mut owners, mut matcher) = ([Owner::new(), Owner::new()], Matcher::new());
    let srx = matcher.open(domain);
    let own = cq(domain, FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE);
    let [first, second] = owners.each_mut().map(|owner| owner.open(domain));
    let av = av(domain, FI_AV_UNSPEC, 0);
    let enabled = |cq: *mut fid_cq, av: Option<*mut fid_av>, flags: u64, expected: c_int| {
        let ep = endpoint(domain, &info);
        if let Some(av) = av {
            assert_eq!(bind(ep, av, 0), 0);
        }
        assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV | flags), 0);
        assert_eq!(bind(ep, srx, 0), 0);
        assert_eq!(bind(ep, srx, 0), -FI_EINVAL);
        assert_eq!(enable(ep), expected);
        ep
    };
    let eps = [
        enabled(own, Some(av), 0, -FI_EINVAL),
        enabled(second, None, 0, -FI_ENOAV),
        enabled(first, Some(av), 0, 0),
        enabled(second, Some(av), 0, -FI_EINVAL),
        enabled(first, Some(av), FI_SELECTIVE_COMPLETION, -FI_EINVAL),
        enabled(first, Some(av), 0, 0),
    ];
    for ep in eps {
        assert_eq!(close(ep), 0);
    }
    assert_eq!(close(first), 0);
    let other = enabled(second, Some(av), FI_SELECTIVE_COMPLETION, 0);
    close_all!(other, srx, own, second, av, domain, fabric);
}
