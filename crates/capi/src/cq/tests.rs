#![allow(unsafe_code)]
use core::ptr;

use parking_lot::Mutex;
use ripstop_types::{Completion, CompletionError, FiAddr, Flags};

use super::format::{Context, Data, Format, Msg, Tagged};
use super::*;
use crate::edge::{Arg, Arg2};

const DONE: Completion = Completion {
    context: 1,
    flags: Flags::RECV,
    len: 3,
    buf: 4,
    data: 5,
    tag: 6,
    src: FiAddr(7),
};

#[test]
fn each_format_has_its_fields() {
    assert_eq!(Context::entry(&DONE).op_context.addr(), 1);
    let msg = Msg::entry(&DONE);
    assert_eq!((msg.op_context.addr(), msg.flags, msg.len), (1, 1 << 10, 3));
    let data = Data::entry(&DONE);
    assert_eq!((data.len, data.buf.addr(), data.data), (3, 4, 5));
    let tagged = Tagged::entry(&DONE);
    assert_eq!((tagged.buf.addr(), tagged.data, tagged.tag), (4, 5, 6));
}

/// Writes to two arrays.
///
/// # Safety
///
/// Both have as many elements as there are calls; the second may be null.
unsafe fn writer(
    entries: *mut abi::fi_cq_data_entry,
    sources: *mut abi::fi_addr_t,
) -> impl FnMut(&Completion) {
    // SAFETY: arrays, by the contract of this function.
    let entries = unsafe { Entries::from_c(entries.cast(), 3) };
    // SAFETY: null or an array, by the contract of this function.
    let sources = unsafe { Sources::from_c(sources) };
    // SAFETY: there are as many elements as calls, by the contract of this function.
    unsafe { entries.writer_from::<Data>(sources) }
}

/// Writes an error to an entry whose buffer, where the version has one, is whole.
fn write(entry: &mut abi::fi_cq_err_entry, data: &[u8], api: Version, kept: &Mutex<Vec<u8>>) {
    // SAFETY: a whole entry, and the tests give it a buffer as long as it says.
    let entry = unsafe { ErrorEntry::from_c(entry) };
    entry.write(&failed(), data, api, kept);
}

#[test]
fn entries_are_written_one_after_the_other() {
    let mut array = [abi::fi_cq_data_entry::default(); 3];
    let mut sources = [0; 3];
    // SAFETY: arrays of three, of which two elements are written.
    let mut write = unsafe { writer(array.as_mut_ptr(), sources.as_mut_ptr()) };
    write(&DONE);
    write(&Completion { len: 8, ..DONE });
    drop(write);
    assert_eq!(array.map(|entry| entry.len), [3, 8, 0]);
    assert_eq!(sources, [7, 7, 0]);
    // SAFETY: an array of three, of which one element is written, and no sources.
    let mut write = unsafe { writer(array.as_mut_ptr(), ptr::null_mut()) };
    write(&DONE);
    drop(write);

    assert_eq!(array[0].data, 5);
}

fn failed() -> CompletionError {
    CompletionError {
        entry: DONE,
        olen: 9,
        err: Errno::ETRUNC,
        prov_errno: 10,
    }
}

/// An entry whose every byte is set, to see which ones are written.
fn marked() -> abi::fi_cq_err_entry {
    let mark = ptr::without_provenance_mut(usize::MAX);
    abi::fi_cq_err_entry {
        op_context: mark,
        err_data: mark,
        err_data_size: usize::MAX,
        src_addr: u64::MAX,
        ..Default::default()
    }
}

#[test]
fn an_entry_is_as_long_as_the_program_knows() {
    let kept = Mutex::new(Vec::new());
    let mut entry = marked();
    write(&mut entry, b"abc", Version::new(1, 4), &kept);
    assert_eq!((entry.err, entry.prov_errno, entry.olen), (265, 10, 9));
    assert_eq!(entry.err_data.addr(), kept.lock().as_ptr().addr());
    assert_eq!(
        (entry.err_data_size, entry.src_addr),
        (usize::MAX, u64::MAX)
    );

    let mut entry = marked();
    entry.err_data_size = 0;
    write(&mut entry, b"abc", Version::new(1, 19), &kept);
    assert_eq!((entry.err_data_size, entry.src_addr), (3, u64::MAX));

    let mut entry = abi::fi_cq_err_entry::default();
    write(&mut entry, b"", Version::new(1, 20), &kept);
    assert_eq!((entry.err_data_size, entry.src_addr), (0, 7));
    assert!(entry.err_data.is_null());
    assert_eq!((entry.tag, entry.data, entry.len), (6, 5, 3));
}

#[test]
fn error_data_is_cut_to_the_callers_buffer() {
    let kept = Mutex::new(Vec::new());
    let mut room = [0_u8; 4];
    for (size, expected) in [(2, b"ab\0\0"), (4, b"abc\0")] {
        room.fill(0);
        let mut entry = abi::fi_cq_err_entry {
            err_data: room.as_mut_ptr().cast(),
            err_data_size: size,
            ..Default::default()
        };
        write(&mut entry, b"abc", Version::CURRENT, &kept);
        assert_eq!(entry.err_data, room.as_mut_ptr().cast());
        assert_eq!(entry.err_data_size, size.min(3));
        assert_eq!(&room, expected);
    }
}

#[test]
fn attributes_are_checked() {
    let good = abi::fi_cq_attr {
        size: 5,
        flags: abi::FI_AFFINITY,
        wait_obj: abi::FI_WAIT_FD,
        wait_cond: abi::FI_CQ_COND_THRESHOLD,
        ..Default::default()
    };
    // SAFETY: no attribute of this test has a wait set.
    let attributes = |attr: &abi::fi_cq_attr| attributes(unsafe { Whole::new(attr) });
    let (wanted, threshold, set) = attributes(&good).unwrap();
    assert!(set.is_none());
    assert_eq!(
        (wanted.format, wanted.wait),
        (CqFormat::Context, WaitObj::Fd)
    );
    assert!(threshold && wanted.size == 5);
    let bad = |attr| attributes(&attr).map(|_| ()).unwrap_err();
    assert_eq!(bad(abi::fi_cq_attr { format: 5, ..good }), Errno::EINVAL);
    assert_eq!(
        bad(abi::fi_cq_attr {
            wait_obj: 7,
            ..good
        }),
        Errno::EINVAL
    );
    assert_eq!(
        bad(abi::fi_cq_attr {
            wait_cond: 2,
            ..good
        }),
        Errno::EINVAL
    );
    assert_eq!(bad(abi::fi_cq_attr { flags: 1, ..good }), Errno::EINVAL);
    let set = abi::FI_WAIT_SET;
    assert_eq!(
        bad(abi::fi_cq_attr {
            wait_obj: set,
            ..good
        }),
        Errno::EINVAL
    );
}
