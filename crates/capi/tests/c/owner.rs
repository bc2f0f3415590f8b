//! The owner's side of a completion queue (`fi_peer(3)`).

use core::cell::{Cell, RefCell};
use core::ffi::{c_int, c_void};
use core::ptr;

use ripstop_abi::*;

use super::until;
use crate::op;

const NONE: *mut c_void = ptr::null_mut();

/// What the owner was told of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub context: usize,
    pub flags: u64,
    pub len: usize,
    pub data: u64,
    pub tag: u64,
    pub src: fi_addr_t,
    pub err: c_int,
}

/// The owner's side of a queue.
pub struct Owner {
    pub peer: fid_peer_cq,
    pub told: RefCell<Vec<Told>>,
    /// It has no room.
    pub full: Cell<bool>,
}

unsafe extern "C" fn write(
    cq: *mut fid_peer_cq,
    context: *mut c_void,
    flags: u64,
    len: usize,
    _buf: *mut c_void,
    data: u64,
    tag: u64,
    src: fi_addr_t,
) -> isize {
    let owner = unsafe { &*(*cq).fid.context.cast::<Owner>() };
    if owner.full.get() {
        return -FI_EAGAIN as isize;
    }
    owner.told.borrow_mut().push(Told {
        context: context.addr(),
        flags,
        len,
        data,
        tag,
        src,
        err: 0,
    });
    0
}

unsafe extern "C" fn writeerr(cq: *mut fid_peer_cq, entry: *const fi_cq_err_entry) -> isize {
    let owner = unsafe { &*(*cq).fid.context.cast::<Owner>() };
    let entry = unsafe { &*entry };
    owner.told.borrow_mut().push(Told {
        context: entry.op_context.addr(),
        flags: entry.flags,
        len: entry.len,
        data: entry.data,
        tag: entry.tag,
        src: entry.src_addr,
        err: entry.err,
    });
    0
}

pub static CQ_OPS: fi_ops_cq_owner = fi_ops_cq_owner {
    size: size_of::<fi_ops_cq_owner>(),
    write: Some(write),
    writeerr: Some(writeerr),
};

impl Owner {
    pub fn new() -> Box<Self> {
        let mut owner = Box::new(Self {
            peer: fid_peer_cq {
                owner_ops: ptr::from_ref(&CQ_OPS).cast_mut(),
                ..Default::default()
            },
            told: RefCell::default(),
            full: Cell::new(false),
        });
        owner.peer.fid.context = (&raw mut *owner).cast();
        owner
    }

    /// Opens a queue of ours that this one gets the completions of.
    pub fn open(&mut self, domain: *mut fid_domain) -> *mut fid_cq {
        let mut attr = peer_attr();
        let mut context = fi_peer_cq_context {
            size: size_of::<fi_peer_cq_context>(),
            cq: &raw mut self.peer,
        };
        let mut cq = ptr::null_mut();
        let context = (&raw mut context).cast::<c_void>();
        let code = op!(domain, ops.cq_open(&mut attr, &mut cq, context));
        assert_eq!(code, 0);
        cq
    }

    /// Drives the queue until the owner has been told so often.
    pub fn wait(&self, cq: *mut fid_cq, count: usize) -> Vec<Told> {
        until("the owner is told", || {
            let code = op!(cq, ops.read(NONE, 0));
            assert!(code == 0 || code == -FI_EAGAIN as isize, "{code}");
            (self.told.borrow().len() >= count).then_some(())
        });
        self.told.take()
    }
}

pub fn peer_attr() -> fi_cq_attr {
    fi_cq_attr {
        flags: FI_PEER,
        format: FI_CQ_FORMAT_TAGGED,
        wait_obj: FI_WAIT_NONE,
        ..Default::default()
    }
}
