//! A provider that owns queues and counters, and has ours fill them.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::cell::Cell;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;

use c::owner::{CQ_OPS, Owner, peer_attr};
use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

fn context(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

/// Two endpoints that report to queues of an owner.
struct Ends {
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    av: *mut fid_av,
    eps: [*mut fid_ep; 2],
    addrs: [fi_addr_t; 2],
}

impl Ends {
    fn open(prepare: impl FnOnce(*mut fid_domain) -> *mut fid_cq) -> (Self, *mut fid_cq) {
        Self::open_with(prepare, |_, _| ())
    }

    fn open_with(
        prepare: impl FnOnce(*mut fid_domain) -> *mut fid_cq,
        bind_more: impl Fn(*mut fid_domain, *mut fid_ep),
    ) -> (Self, *mut fid_cq) {
        let info = loopback(FI_EP_RDM, |hints| {
            hints.get().caps = FI_MSG | FI_TAGGED | FI_SOURCE;
        });
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        let av = av(domain, FI_AV_UNSPEC, 0);
        let cq = prepare(domain);
        let eps = [(); 2].map(|()| {
            let ep = endpoint(domain, &info);
            assert_eq!(bind(ep, av, 0), 0);
            assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV), 0);
            bind_more(domain, ep);
            assert_eq!(enable(ep), 0);
            ep
        });
        let addrs = eps.map(|ep| insert(av, &name(unsafe { (*ep).cm }, ep.cast())));
        let ends = Self {
            fabric,
            domain,
            av,
            eps,
            addrs,
        };
        (ends, cq)
    }

    fn close(self, more: &[*mut fid]) {
        for ep in self.eps {
            assert_eq!(close(ep), 0);
        }
        for fid in more {
            assert_eq!(close(*fid), 0);
        }
        close_all!(self.av, self.domain, self.fabric);
    }
}

#[test]
fn an_owner_is_told_of_completions_and_errors() {
    let mut owner = Owner::new();
    let (ends, cq) = Ends::open(|domain| owner.open(domain));
    let [a, b] = ends.eps;
    let mut room = [[0_u8; 4]; 2];
    for (number, room) in room.iter_mut().enumerate() {
        let buf = room.as_mut_ptr().cast::<c_void>();
        let any = FI_ADDR_UNSPEC;
        let recv = op!(b, tagged.recv(buf, 4, NONE, any, 7, 0, context(number + 1)));
        assert_eq!(recv, 0);
    }
    let text = b"four".as_ptr().cast();
    let to = ends.addrs[1];
    post(cq, || {
        op!(a, tagged.senddata(text, 4, NONE, 99, to, 7, context(3)))
    });
    let mut told = owner.wait(cq, 2);
    told.sort_by_key(|told| told.context);
    let received = &told[0];
    assert_eq!(
        (received.context, received.len, received.data, received.tag),
        (1, 4, 99, 7)
    );
    assert_eq!((received.src, received.err), (ends.addrs[0], 0));
    let wanted = FI_TAGGED | FI_RECV | FI_REMOTE_CQ_DATA;
    assert_eq!(received.flags & wanted, wanted);
    assert_eq!((told[1].context, told[1].flags & FI_SEND), (3, FI_SEND));
    assert_eq!(&room[0], b"four");

    // An owner without room is told again.
    owner.full.set(true);
    let long = b"too long".as_ptr().cast();
    post(cq, || op!(a, tagged.send(long, 8, NONE, to, 7, context(4))));
    for _ in 0..1000 {
        let _progress = op!(cq, ops.read(NONE, 0));
    }
    owner.full.set(false);
    let mut told = owner.wait(cq, 2);
    told.sort_by_key(|told| told.context);
    assert_eq!((told[0].context, told[0].err), (2, FI_ETRUNC));
    assert_eq!((told[1].context, told[1].err), (4, 0));

    // All that reads is the owner's.
    let mut entry = fi_cq_err_entry::default();
    let mut array = [fi_cq_tagged_entry::default(); 1];
    let into = array.as_mut_ptr().cast::<c_void>();
    let no = -FI_ENOSYS as isize;
    assert_eq!(op!(cq, ops.read(into, 1)), no);
    assert_eq!(op!(cq, ops.readfrom(into, 1, ptr::null_mut())), no);
    assert_eq!(op!(cq, ops.readerr(&mut entry, 0)), no);
    assert_eq!(op!(cq, ops.sread(into, 1, ptr::null(), 0)), no);
    ends.close(&[cq.cast()]);
}

struct Counted {
    peer: fid_peer_cntr,
    counts: Cell<[u64; 2]>,
}

unsafe extern "C" fn inc(cntr: *mut fid_peer_cntr) {
    let owner = unsafe { &*(*cntr).fid.context.cast::<Counted>() };
    let [good, bad] = owner.counts.get();
    owner.counts.set([good + 1, bad]);
}

unsafe extern "C" fn incerr(cntr: *mut fid_peer_cntr) {
    let owner = unsafe { &*(*cntr).fid.context.cast::<Counted>() };
    let [good, bad] = owner.counts.get();
    owner.counts.set([good, bad + 1]);
}

static CNTR_OPS: fi_ops_cntr_owner = fi_ops_cntr_owner {
    size: size_of::<fi_ops_cntr_owner>(),
    inc: Some(inc),
    incerr: Some(incerr),
};

#[test]
fn an_owner_s_counter_counts_what_ours_sees() {
    let mut counted = Box::new(Counted {
        peer: fid_peer_cntr {
            owner_ops: ptr::from_ref(&CNTR_OPS).cast_mut(),
            ..Default::default()
        },
        counts: Cell::default(),
    });
    counted.peer.fid.context = (&raw mut *counted).cast();
    let peer = &raw mut counted.peer;
    let opened = Cell::new(ptr::null_mut::<fid_cntr>());
    let mut owner = Owner::new();
    let (ends, cq) = Ends::open_with(
        |domain| owner.open(domain),
        |domain, ep| {
            if opened.get().is_null() {
                let mut attr = fi_cntr_attr {
                    flags: FI_PEER,
                    ..Default::default()
                };
                let mut context = fi_peer_cntr_context {
                    size: size_of::<fi_peer_cntr_context>(),
                    cntr: peer,
                };
                let mut cntr = ptr::null_mut();
                let at = (&raw mut context).cast::<c_void>();
                assert_eq!(op!(domain, ops.cntr_open(&mut attr, &mut cntr, at)), 0);
                opened.set(cntr);
            }
            assert_eq!(bind(ep, opened.get(), FI_RECV), 0);
        },
    );
    let cntr = opened.get();
    let [a, b] = ends.eps;
    let mut room = [0_u8; 4];
    let buf = room.as_mut_ptr().cast::<c_void>();
    let to = ends.addrs[1];
    for _ in 0..5 {
        let recv = op!(b, msg.recv(buf, 4, NONE, FI_ADDR_UNSPEC, context(1)));
        assert_eq!(recv, 0);
        let text = b"four".as_ptr().cast();
        post(cq, || op!(a, msg.send(text, 4, NONE, to, context(2))));
        owner.wait(cq, 2);
    }
    let recv = op!(b, msg.recv(buf, 4, NONE, FI_ADDR_UNSPEC, context(1)));
    assert_eq!(recv, 0);
    let long = b"too long".as_ptr().cast();
    post(cq, || op!(a, msg.send(long, 8, NONE, to, context(2))));
    owner.wait(cq, 2);
    assert_eq!(counted.counts.get(), [0, 0], "nobody has driven it");
    assert_eq!(op!(cntr, ops.read()), 0);
    assert_eq!(counted.counts.get(), [5, 1]);
    assert_eq!(op!(cntr, ops.read()), 0);
    assert_eq!(counted.counts.get(), [5, 1], "told once");
    assert_eq!(op!(cntr, ops.add(1)), -FI_ENOSYS);
    assert_eq!(op!(cntr, ops.wait(1, 0)), -FI_ENOSYS);
    ends.close(&[cq.cast(), cntr.cast()]);
}

#[test]
fn an_owner_has_callbacks() {
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let open = |context: *mut c_void| {
        let mut attr = peer_attr();
        let mut cq: *mut fid_cq = ptr::null_mut();
        op!(domain, ops.cq_open(&mut attr, &mut cq, context))
    };
    let open_for = |size: usize, mut ops: Option<fi_ops_cq_owner>| {
        let mut peer = fid_peer_cq {
            owner_ops: ops.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            ..Default::default()
        };
        let mut argument = fi_peer_cq_context {
            size,
            cq: &raw mut peer,
        };
        open((&raw mut argument).cast())
    };
    let whole = size_of::<fi_peer_cq_context>();
    let mute = fi_ops_cq_owner {
        writeerr: None,
        ..CQ_OPS
    };
    let of_size = |size| fi_ops_cq_owner { size, ..CQ_OPS };
    let without_last = of_size(offset_of!(fi_ops_cq_owner, writeerr));
    let with_half_the_last = of_size(without_last.size + 4);
    let nobody = &mut fi_peer_cq_context {
        size: whole,
        cq: ptr::null_mut(),
    };
    for code in [
        open(NONE),
        open(ptr::from_mut(nobody).cast()),
        open_for(whole, None),
        open_for(whole, Some(mute)),
        open_for(whole, Some(without_last)),
        open_for(whole, Some(with_half_the_last)),
        open_for(8, Some(CQ_OPS)),
    ] {
        assert_eq!(code, -FI_EINVAL);
    }
    close_all!(domain, fabric);
}
