#![allow(unsafe_code)]
//! Counting what is open of objects. A fabric cannot be closed while anything in it is open, so it
//! is fabrics that are counted: the operations on the `fid` of one stand in a table of this library
//! until it is closed, and lead to those of the provider, but for `close`.

use core::any::Any;
use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use ripstop_abi as abi;

use crate::info::layout::widen;

/// Whatever keeps an object loaded.
type Provider = dyn Any + Send + Sync;

/// An open fabric of an object.
struct Counted {
    /// The table that the fabric has meanwhile.
    ops: Box<abi::fi_ops>,
    /// The provider's own.
    own: *mut abi::fi_ops,
    /// How often it was opened: a provider may hand out one fabric again, and count.
    times: usize,
    /// Keeps the object loaded.
    #[expect(dead_code, reason = "kept")]
    provider: Arc<Provider>,
}

// SAFETY: the provider's table is only read, and tables are constant.
unsafe impl Send for Counted {}

static OPEN: LazyLock<Mutex<HashMap<usize, Counted>>> = LazyLock::new(Mutex::default);

/// Counts a fabric until it is closed.
///
/// # Safety
///
/// The fabric is open, of this provider, and nobody else uses it yet, unless the provider has handed it out
/// before.
pub(super) unsafe fn count(fabric: *mut abi::fid_fabric, provider: Arc<Provider>) {
    let mut open = OPEN.lock();
    if let Some(counted) = open.get_mut(&fabric.addr()) {
        counted.times += 1;
        return;
    }
    // SAFETY: an open fabric that nobody else uses.
    let fid = unsafe { &mut (*fabric).fid };
    let own = fid.ops;
    // SAFETY: the operations of an open object.
    let Some(mut ops) = (unsafe { copied(own) }) else {
        return;
    };
    ops.close = Some(close);
    let mut ops = Box::new(ops);
    fid.ops = ptr::from_mut(&mut *ops);
    let counted = Counted {
        ops,
        own,
        times: 1,
        provider,
    };
    open.insert(fabric.addr(), counted);
}

/// A table, as far as this library knows its operations; `None` for null, and for one so short that
/// it has no `close`.
///
/// # Safety
///
/// `ops` is null or a table, which begins with its size.
unsafe fn copied(ops: *const abi::fi_ops) -> Option<abi::fi_ops> {
    if ops.is_null() {
        return None;
    }
    // SAFETY: every table has a size.
    let size = unsafe { ops.cast::<usize>().read() };
    let size = size.min(size_of::<abi::fi_ops>());
    if size <= offset_of!(abi::fi_ops, close) {
        return None;
    }
    // SAFETY: that many bytes are the table's, and zeros are no operations.
    let mut copy: abi::fi_ops = unsafe { widen(ops, size) };
    copy.size = size;
    Some(copy)
}

/// `fi_close` of a fabric that is counted.
unsafe extern "C" fn close(fid: *mut abi::fid) -> c_int {
    let mut open = OPEN.lock();
    if let Some(counted) = open.get_mut(&fid.addr())
        && counted.times > 1
    {
        counted.times -= 1;
        let own = counted.own;
        drop(open);
        // SAFETY: the provider's own table, of an open fabric.
        let own = unsafe { (*own).close };
        // SAFETY: an open fabric, which its provider counts.
        let code = own.map_or(-abi::FI_ENOSYS, |own| unsafe { own(fid) });
        if code != 0
            && let Some(counted) = OPEN.lock().get_mut(&fid.addr())
        {
            counted.times += 1;
        }
        return code;
    }
    let Some(counted) = open.remove(&fid.addr()) else {
        return -abi::FI_EINVAL;
    };
    drop(open);
    let table = ptr::from_ref(&*counted.ops).cast_mut();
    // SAFETY: an open fabric, which the caller closes and so uses nowhere else.
    unsafe { (*fid).ops = counted.own };
    // SAFETY: the provider's own table, of an open fabric.
    let own = unsafe { (*counted.own).close };
    // SAFETY: an open fabric, closed by its provider.
    let code = own.map_or(-abi::FI_ENOSYS, |own| unsafe { own(fid) });
    if code != 0 {
        // SAFETY: it has not been closed: something in it is open.
        unsafe { (*fid).ops = table };
        OPEN.lock().insert(fid.addr(), counted);
    }
    code
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static CLOSES: AtomicUsize = AtomicUsize::new(0);

    /// The first time something in it is open.
    unsafe extern "C" fn own_close(_: *mut abi::fid) -> c_int {
        match CLOSES.fetch_add(1, Ordering::Relaxed) {
            0 => -abi::FI_EBUSY,
            _ => 0,
        }
    }

    #[test]
    fn a_provider_stays_until_its_fabric_is_closed() {
        let provider: Arc<Provider> = Arc::new("a provider");
        let mut table = abi::fi_ops {
            size: size_of::<abi::fi_ops>(),
            close: Some(own_close),
            ..Default::default()
        };
        let mut fabric = abi::fid_fabric::default();
        fabric.fid.ops = &raw mut table;
        let fabric = &raw mut fabric;
        let kept = Arc::downgrade(&provider);
        // SAFETY: a fabric with operations that nobody else uses.
        unsafe { count(fabric, provider) };
        let close = || {
            // SAFETY: an open fabric.
            let fid = unsafe { &raw mut (*fabric).fid };
            // SAFETY: an open fabric.
            let ops = unsafe { (*fid).ops };
            // SAFETY: its operations, which it has until it is closed.
            let close = unsafe { (*ops).close }.unwrap();
            // SAFETY: an open fabric.
            unsafe { close(fid) }
        };
        assert_eq!(close(), -abi::FI_EBUSY);
        assert!(kept.upgrade().is_some());
        assert_eq!(close(), 0);
        assert!(kept.upgrade().is_none());
        // SAFETY: the fabric is only memory of this test.
        assert!(ptr::eq(unsafe { (*fabric).fid.ops }, &raw const table));
    }

    unsafe extern "C" fn closes(_: *mut abi::fid) -> c_int {
        0
    }

    #[test]
    fn a_fabric_that_is_handed_out_twice_is_closed_twice() {
        let provider: Arc<Provider> = Arc::new("a provider");
        let mut table = abi::fi_ops {
            size: size_of::<abi::fi_ops>(),
            close: Some(closes),
            ..Default::default()
        };
        let mut fabric = abi::fid_fabric::default();
        fabric.fid.ops = &raw mut table;
        let fabric = &raw mut fabric;
        let kept = Arc::downgrade(&provider);
        for provider in [provider.clone(), provider] {
            // SAFETY: a fabric with operations.
            unsafe { count(fabric, provider) };
        }
        for is_kept in [true, false] {
            // SAFETY: the fabric is only memory of this test.
            let fid = unsafe { &raw mut (*fabric).fid };
            // SAFETY: as above.
            let ops = unsafe { (*fid).ops };
            // SAFETY: its operations, which it has until it is closed.
            let close = unsafe { (*ops).close }.unwrap();
            // SAFETY: an open fabric.
            assert_eq!(unsafe { close(fid) }, 0);
            assert_eq!(kept.upgrade().is_some(), is_kept);
        }
        // SAFETY: the fabric is only memory of this test.
        assert!(ptr::eq(unsafe { (*fabric).fid.ops }, &raw const table));
    }

    #[test]
    fn a_short_table_keeps_its_length() {
        let table = abi::fi_ops {
            size: offset_of!(abi::fi_ops, ops_open),
            close: Some(close),
            tostr: None,
            ..Default::default()
        };
        // SAFETY: a table of the size that it gives.
        let copy = unsafe { copied(&raw const table) }.unwrap();
        assert_eq!(copy.size, offset_of!(abi::fi_ops, ops_open));
        assert!(copy.close.is_some() && copy.bind.is_none());
        let empty = abi::fi_ops {
            size: offset_of!(abi::fi_ops, close),
            ..Default::default()
        };
        for none in [&raw const empty, ptr::null()] {
            // SAFETY: a table of the size that it gives, or null.
            assert!(unsafe { copied(none) }.is_none());
        }
    }
}
