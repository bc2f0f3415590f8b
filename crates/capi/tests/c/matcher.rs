//! The owner's side of a receive context (`fi_peer(3)`), which matches.
// Entries stay where they are: both sides know their addresses.
#![allow(clippy::vec_box, clippy::borrowed_box)]

use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use core::ptr;

use ripstop_abi::*;

use crate::op;

/// A receive of the owner's, or a message that waits for one.
pub struct Receive {
    pub entry: fi_peer_rx_entry,
    pub iov: Vec<iovec>,
    pub ignore: u64,
}

impl Receive {
    pub fn new(buf: &mut [u8], tag: Option<u64>, context: usize, src: fi_addr_t) -> Box<Self> {
        let iov = vec![iovec {
            iov_base: buf.as_mut_ptr().cast(),
            iov_len: buf.len(),
        }];
        let kind = if tag.is_some() { FI_TAGGED } else { FI_MSG };
        let mut receive = Box::new(Self {
            entry: fi_peer_rx_entry {
                addr: src,
                tag: tag.unwrap_or_default(),
                flags: kind | FI_RECV,
                context: ptr::without_provenance_mut(context),
                count: 1,
                ..Default::default()
            },
            iov,
            ignore: 0,
        });
        receive.entry.iov = receive.iov.as_mut_ptr();
        receive
    }

    fn fits(&self, kind: u64, tag: u64, src: fi_addr_t) -> bool {
        self.entry.flags & kind != 0
            && self.entry.tag | self.ignore == tag | self.ignore
            && (self.entry.addr == FI_ADDR_UNSPEC || self.entry.addr == src)
    }
}

/// The owner's side of a receive context.
pub struct Matcher {
    pub peer: fid_peer_srx,
    pub posted: RefCell<Vec<Box<Receive>>>,
    pub waiting: RefCell<Vec<Box<Receive>>>,
    /// Entries that we have.
    pub lent: RefCell<Vec<Box<Receive>>>,
    pub freed: Cell<usize>,
    pub asked: Cell<usize>,
    /// Called when it is asked about a message.
    pub on_ask: Cell<fn()>,
    /// What it answers instead of looking.
    pub refuses: Cell<c_int>,
    /// What it answers when a message is to wait.
    pub full: Cell<c_int>,
}

fn of<'a>(srx: *mut fid_peer_srx) -> &'a Matcher {
    unsafe { &*(*srx).ep_fid.fid.context.cast::<Matcher>() }
}

unsafe fn get(
    srx: *mut fid_peer_srx,
    attr: *mut fi_peer_match_attr,
    entry: *mut *mut fi_peer_rx_entry,
    kind: u64,
) -> c_int {
    let owner = of(srx);
    let attr = unsafe { &*attr };
    owner.asked.set(owner.asked.get() + 1);
    owner.on_ask.get()();
    if owner.refuses.get() != 0 {
        return owner.refuses.get();
    }
    let mut posted = owner.posted.borrow_mut();
    let found = posted
        .iter()
        .position(|receive| receive.fits(kind, attr.tag, attr.addr));
    let (mut receive, code) = match found {
        Some(index) => (posted.remove(index), 0),
        None => {
            let tag = (kind == FI_TAGGED).then_some(attr.tag);
            (Receive::new(&mut [], tag, 0, attr.addr), -FI_ENOENT)
        }
    };
    receive.entry.srx = srx;
    receive.entry.msg_size = attr.msg_size;
    receive.entry.addr = attr.addr;
    unsafe { entry.write(&raw mut receive.entry) };
    owner.lent.borrow_mut().push(receive);
    code
}

unsafe extern "C" fn get_msg(
    srx: *mut fid_peer_srx,
    attr: *mut fi_peer_match_attr,
    entry: *mut *mut fi_peer_rx_entry,
) -> c_int {
    unsafe { get(srx, attr, entry, FI_MSG) }
}

unsafe extern "C" fn get_tag(
    srx: *mut fid_peer_srx,
    attr: *mut fi_peer_match_attr,
    entry: *mut *mut fi_peer_rx_entry,
) -> c_int {
    unsafe { get(srx, attr, entry, FI_TAGGED) }
}

impl Matcher {
    fn take_lent(&self, entry: *mut fi_peer_rx_entry) -> Box<Receive> {
        let mut lent = self.lent.borrow_mut();
        let same = |receive: &Box<Receive>| ptr::eq(&raw const receive.entry, entry);
        let index = lent.iter().position(same).expect("an entry of ours");
        lent.remove(index)
    }
}

unsafe extern "C" fn queue(entry: *mut fi_peer_rx_entry) -> c_int {
    let owner = of(unsafe { (*entry).srx });
    if owner.full.get() != 0 {
        return owner.full.get();
    }
    let receive = owner.take_lent(entry);
    owner.waiting.borrow_mut().push(receive);
    0
}

unsafe extern "C" fn free_entry(entry: *mut fi_peer_rx_entry) {
    let owner = of(unsafe { (*entry).srx });
    drop(owner.take_lent(entry));
    owner.freed.set(owner.freed.get() + 1);
}

unsafe extern "C" fn each(
    srx: *mut fid_peer_srx,
    get_addr: Option<unsafe extern "C" fn(arg0: *mut fi_peer_rx_entry) -> fi_addr_t>,
) {
    for receive in of(srx).waiting.borrow_mut().iter_mut() {
        if receive.entry.addr == FI_ADDR_UNSPEC {
            receive.entry.addr = unsafe { get_addr.unwrap()(&raw mut receive.entry) };
        }
    }
}

pub static SRX_OPS: fi_ops_srx_owner = fi_ops_srx_owner {
    size: size_of::<fi_ops_srx_owner>(),
    get_msg: Some(get_msg),
    get_tag: Some(get_tag),
    queue_msg: Some(queue),
    queue_tag: Some(queue),
    foreach_unspec_addr: Some(each),
    free_entry: Some(free_entry),
};

pub fn srx_attr() -> fi_rx_attr {
    fi_rx_attr {
        op_flags: FI_PEER,
        ..Default::default()
    }
}

impl Matcher {
    pub fn new() -> Box<Self> {
        let mut matcher = Box::new(Self {
            peer: fid_peer_srx {
                owner_ops: ptr::from_ref(&SRX_OPS).cast_mut(),
                ..Default::default()
            },
            posted: RefCell::default(),
            waiting: RefCell::default(),
            lent: RefCell::default(),
            freed: Cell::default(),
            asked: Cell::default(),
            on_ask: Cell::new(|| {}),
            refuses: Cell::default(),
            full: Cell::default(),
        });
        matcher.peer.ep_fid.fid.context = (&raw mut *matcher).cast();
        matcher
    }

    pub fn open(&mut self, domain: *mut fid_domain) -> *mut fid_ep {
        let mut context = fi_peer_srx_context {
            size: size_of::<fi_peer_srx_context>(),
            srx: &raw mut self.peer,
        };
        let mut srx = ptr::null_mut();
        let at = (&raw mut context).cast::<c_void>();
        let code = op!(domain, ops.srx_ctx(&mut srx_attr(), &mut srx, at));
        assert_eq!(code, 0);
        assert!(!self.peer.peer_ops.is_null());
        srx
    }

    /// What the owner's receive call does.
    pub fn recv(&self, receive: Box<Receive>) {
        let kind = receive.entry.flags & (FI_MSG | FI_TAGGED);
        let mut waiting = self.waiting.borrow_mut();
        let found = waiting.iter().position(|message| {
            receive.fits(
                kind & message.entry.flags,
                message.entry.tag,
                message.entry.addr,
            )
        });
        let Some(index) = found else {
            return self.posted.borrow_mut().push(receive);
        };
        let mut message = waiting.remove(index);
        drop(waiting);
        message.iov = receive.iov;
        message.entry.iov = message.iov.as_mut_ptr();
        message.entry.count = 1;
        message.entry.context = receive.entry.context;
        message.entry.flags |= receive.entry.flags;
        let entry = &raw mut message.entry;
        self.lent.borrow_mut().push(message);
        assert_eq!(self.peer_op(kind, true)(entry), 0);
    }

    pub fn peer_op(&self, kind: u64, start: bool) -> impl Fn(*mut fi_peer_rx_entry) -> c_int {
        let ops = unsafe { &*self.peer.peer_ops };
        let op = match (kind, start) {
            (FI_MSG, true) => ops.start_msg,
            (_, true) => ops.start_tag,
            (FI_MSG, false) => ops.discard_msg,
            (_, false) => ops.discard_tag,
        };
        move |entry| unsafe { op.unwrap()(entry) }
    }

    /// Nobody will receive the oldest message that waits.
    pub fn discard(&self) -> c_int {
        let mut message = self.waiting.borrow_mut().remove(0);
        let kind = message.entry.flags & (FI_MSG | FI_TAGGED);
        self.peer_op(kind, false)(&raw mut message.entry)
    }
}
