#![allow(unsafe_code)]
//! The open fabrics of providers from shared objects, each of which keeps its shared object loaded.
//!
//! A fabric cannot be closed while anything in it is open, so nothing else has to be watched: until a fabric is closed,
//! its `fid` has a table of operations of this library's, which leads to those of the provider, but for `close`.

use core::any::Any;
use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use ripstop_abi as abi;

use crate::info::layout::widen;

/// `fi_ops::close`.
type Close = unsafe extern "C" fn(fid: *mut abi::fid) -> c_int;

/// Whatever keeps a shared object loaded.
type Provider = dyn Any + Send + Sync;

/// An open fabric of a provider.
struct OpenFabric {
    /// The table that its `fid` has while it is open.
    ops: Box<abi::fi_ops>,
    /// The provider's own table, which `ops` is a copy of but for `close`.
    provider_ops: *mut abi::fi_ops,
    /// How often it was opened and not closed: a provider may hand out one fabric again, and count itself.
    opens: usize,
    /// Keeps the shared object loaded.
    #[expect(dead_code, reason = "kept")]
    provider: Arc<Provider>,
}

// SAFETY: the provider's table is only read, and tables are constant.
unsafe impl Send for OpenFabric {}

/// By the address of the fabric.
static OPEN: LazyLock<Mutex<HashMap<usize, OpenFabric>>> = LazyLock::new(Mutex::default);

/// Keeps a provider loaded until a fabric of it is closed. Called with each fabric that its `fabric()` returns.
///
/// # Safety
///
/// The fabric is open, of this provider, and nobody else uses it yet, unless the provider has handed it out
/// before.
pub(super) unsafe fn keep_loaded(fabric: *mut abi::fid_fabric, provider: Arc<Provider>) {
    let mut open = OPEN.lock();
    if let Some(known) = open.get_mut(&fabric.addr()) {
        known.opens += 1;
        return;
    }
    // SAFETY: an open fabric that nobody else uses.
    let fid = unsafe { &mut (*fabric).fid };
    let provider_ops = fid.ops;
    // SAFETY: the operations of an open object.
    let Some(mut ops) = (unsafe { copied(provider_ops) }) else {
        return;
    };
    ops.close = Some(close);
    let mut ops = Box::new(ops);
    fid.ops = ptr::from_mut(&mut *ops);
    let new = OpenFabric {
        ops,
        provider_ops,
        opens: 1,
        provider,
    };
    open.insert(fabric.addr(), new);
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
    if size < offset_of!(abi::fi_ops, close) + size_of::<Option<Close>>() {
        return None;
    }
    // SAFETY: that many bytes are the table's, and zeros are no operations.
    let mut copy: abi::fi_ops = unsafe { widen(ops, size) };
    copy.size = size;
    Some(copy)
}

/// `fi_close` of a fabric. One that was opened more than once stays, and so does its entry.
unsafe extern "C" fn close(fid: *mut abi::fid) -> c_int {
    let mut open = OPEN.lock();
    if let Some(known) = open.get_mut(&fid.addr())
        && known.opens > 1
    {
        known.opens -= 1;
        let provider_ops = known.provider_ops;
        // The provider may call back.
        drop(open);
        // SAFETY: an open fabric with the table of its provider.
        let code = unsafe { close_by(provider_ops, fid) };
        if code != 0
            && let Some(known) = OPEN.lock().get_mut(&fid.addr())
        {
            known.opens += 1;
        }
        return code;
    }
    let Some(last) = open.remove(&fid.addr()) else {
        return -abi::FI_EINVAL;
    };
    drop(open);
    let ops = ptr::from_ref(&*last.ops).cast_mut();
    // SAFETY: an open fabric, which the caller closes and so uses nowhere else.
    unsafe { (*fid).ops = last.provider_ops };
    // SAFETY: an open fabric with the table of its provider.
    let code = unsafe { close_by(last.provider_ops, fid) };
    if code != 0 {
        // SAFETY: it has not been closed: something in it is open.
        unsafe { (*fid).ops = ops };
        OPEN.lock().insert(fid.addr(), last);
    }
    code
}

/// The `close` of a provider's own table.
///
/// # Safety
///
/// `fid` is an open fabric whose provider has given it this table.
unsafe fn close_by(provider_ops: *const abi::fi_ops, fid: *mut abi::fid) -> c_int {
    // SAFETY: the table of an open fabric, and `copied` has found that it goes on to `close`.
    let close = unsafe { (*provider_ops).close };
    // SAFETY: an open fabric, closed by its provider.
    close.map_or(-abi::FI_ENOSYS, |close| unsafe { close(fid) })
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
        unsafe { keep_loaded(fabric, provider) };
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
            unsafe { keep_loaded(fabric, provider) };
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
        let of_size = |size| abi::fi_ops {
            size,
            close: Some(close),
            ..Default::default()
        };
        let empty = of_size(offset_of!(abi::fi_ops, close));
        let with_half_of_close = of_size(empty.size + 4);
        for none in [&raw const empty, &raw const with_half_of_close, ptr::null()] {
            // SAFETY: a table of the size that it gives, or null.
            assert!(unsafe { copied(none) }.is_none());
        }
    }
}
