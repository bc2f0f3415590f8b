#![allow(unsafe_code)]
//! `fi_info::handle`: objects that one fabric call passes to another through an `fi_info`.
//!
//! A connection request lives from the event that reports it until it is accepted or rejected;
//! a passive endpoint may be named too, to give its address to an active one (`fi_cm(3)`). The
//! pointers that C programs hold are looked up here before anybody follows them, so a stale or
//! invented one is an error.

use core::any::Any;
use core::ffi::c_int;
use core::ptr;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::Handle;

use crate::tables::{Table, table};

/// What a pointer stands for.
enum Entry {
    /// A connection request, kept until it is used up.
    Request {
        handle: Handle,
        // Owns the memory behind the pointer; a C program reads its class.
        _fid: Box<RequestFid>,
    },
    /// An open passive endpoint.
    Passive(Weak<dyn Any + Send + Sync>),
}

/// The `fid` of a connection request.
struct RequestFid {
    fid: abi::fid,
}

// SAFETY: the pointers inside are a null context and a static table.
unsafe impl Send for RequestFid {}

static HANDLES: LazyLock<Mutex<HashMap<usize, Entry>>> = LazyLock::new(Mutex::default);

/// Operations on a connection request: it can be given up by `fi_close`.
static REQUEST_OPS: abi::fi_ops = abi::fi_ops {
    close: Some(close),
    ..*Table::NONE
};

unsafe extern "C" fn close(fid: *mut abi::fid) -> c_int {
    forget(fid);
    0
}

/// What the C pointer stands for; `None` for a pointer that nobody handed out.
pub(crate) fn find(fid: abi::fid_t) -> Option<Handle> {
    match HANDLES.lock().get(&fid.addr())? {
        Entry::Request { handle, .. } => Some(handle.clone()),
        Entry::Passive(weak) => weak.upgrade().map(Handle),
    }
}

/// Whether the pointer is a connection request.
pub(crate) fn is_request(fid: abi::fid_t) -> bool {
    matches!(HANDLES.lock().get(&fid.addr()), Some(Entry::Request { .. }))
}

/// The C pointer for a handle: the one it has, or that of a new connection request.
pub(crate) fn pointer(handle: &Handle) -> abi::fid_t {
    let mut handles = HANDLES.lock();
    let same = |entry: &Entry| match entry {
        Entry::Request { handle: known, .. } => known == handle,
        Entry::Passive(weak) => ptr::addr_eq(weak.as_ptr(), Arc::as_ptr(&handle.0)),
    };
    if let Some((&at, _)) = handles.iter().find(|(_, entry)| same(entry)) {
        return ptr::with_exposed_provenance_mut(at);
    }
    let mut request = Box::new(RequestFid {
        fid: abi::fid {
            fclass: abi::FI_CLASS_CONNREQ,
            context: ptr::null_mut(),
            ops: table(&REQUEST_OPS),
        },
    });
    let fid = ptr::from_mut(&mut request.fid);
    let entry = Entry::Request {
        handle: handle.clone(),
        _fid: request,
    };
    handles.insert(fid.expose_provenance(), entry);
    fid
}

/// Makes a passive endpoint known.
pub(crate) fn add_passive<T: Any + Send + Sync>(fid: abi::fid_t, object: &Arc<T>) {
    let object: Weak<T> = Arc::downgrade(object);
    HANDLES
        .lock()
        .insert(fid.expose_provenance(), Entry::Passive(object));
}

/// Ends a handle: a request was rejected or closed, a passive endpoint closed.
pub(crate) fn forget(fid: abi::fid_t) {
    HANDLES.lock().remove(&fid.addr());
}

/// Ends a connection request that was accepted; another handle stays.
pub(crate) fn forget_request(fid: abi::fid_t) {
    let mut handles = HANDLES.lock();
    if let Some(Entry::Request { .. }) = handles.get(&fid.addr()) {
        handles.remove(&fid.addr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_pointer_until_it_is_used_up() {
        let handle = Handle::new(7_u8);
        let fid = pointer(&handle);
        assert_eq!(pointer(&handle), fid);
        assert!(is_request(fid));
        assert_eq!(find(fid), Some(handle));
        // SAFETY: the table keeps the object.
        assert_eq!(unsafe { (*fid).fclass }, abi::FI_CLASS_CONNREQ);
        forget(fid);
        assert_eq!(find(fid), None);
    }

    #[test]
    fn a_passive_endpoint_is_not_kept_alive() {
        let mut fid = abi::fid::default();
        let object = Arc::new(1_u32);
        add_passive(&raw mut fid, &object);
        let handle = find(&raw mut fid).unwrap();
        assert_eq!(pointer(&handle), &raw mut fid);
        drop(handle);
        assert_eq!(Arc::strong_count(&object), 1);
        drop(object);
        assert_eq!(find(&raw mut fid), None);
        forget(&raw mut fid);
    }
}
