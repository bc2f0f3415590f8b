#![allow(unsafe_code)]
//! `fi_tostr(3)`: values, attributes and objects as text, line by line as libfabric prints
//! them, for people and for the scripts that read it.

use core::ffi::{c_char, c_void};
use core::ptr;
use std::cell::RefCell;

use ripstop_abi as abi;
use ripstop_core::Info;

use crate::info::{free_list, write};

pub(crate) mod address;
mod info;
mod names;
pub(crate) mod nic;
mod queues;
pub(crate) mod text;

#[cfg(test)]
mod tests;

use text::Text;

/// One step of indentation.
const TAB: &str = "    ";

/// What `FI_TYPE_VERSION` prints: the release of libfabric whose interface this is, and ours.
pub const RELEASE: &str = concat!("2.6.0-ripstop-", env!("CARGO_PKG_VERSION"));

/// Bytes of the buffer behind `fi_tostr`.
const BUFFER: usize = 8192;

/// Room for what an object says about itself.
const FID_BUFFER: usize = 4096;

thread_local! {
    /// Where `fi_tostr` leaves its text, until the thread's next call.
    static LAST: RefCell<Vec<c_char>> = const { RefCell::new(Vec::new()) };
}

/// Exported as `fi_tostr_r@@FABRIC_1.4`: writes `data` as text to `buf`, cut to `len` bytes
/// with the final NUL, and returns `buf`; null if a pointer is null or `len` is 0.
///
/// # Safety
///
/// - `buf` is valid for writes of `len` bytes.
/// - `data` points to a value of `datatype`, and every pointer inside it is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_tostr_r_1_4(
    buf: *mut c_char,
    len: usize,
    data: *const c_void,
    datatype: abi::fi_type,
) -> *mut c_char {
    if buf.is_null() || len == 0 || data.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's guarantee; not null.
    let text = unsafe { render(data, datatype) };
    // SAFETY: the caller's guarantee.
    unsafe { text.copy_to(buf, len) };
    buf
}

/// Exported as `fi_tostr@@FABRIC_1.0`: `data` as text in a buffer of the library's, which the
/// next call on the same thread overwrites; null if `data` is.
///
/// # Safety
///
/// `data` points to a value of `datatype`, and every pointer inside it is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_tostr_1_0(
    data: *const c_void,
    datatype: abi::fi_type,
) -> *mut c_char {
    if data.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's guarantee; not null.
    let text = unsafe { render(data, datatype) };
    let leave = |last: &RefCell<Vec<c_char>>| {
        let mut last = last.borrow_mut();
        last.resize(BUFFER, 0);
        // SAFETY: the vector has this many elements.
        unsafe { text.copy_to(last.as_mut_ptr(), BUFFER) };
        last.as_mut_ptr()
    };
    // A thread that is past its end has no buffer any more.
    LAST.try_with(leave).unwrap_or(ptr::null_mut())
}

/// An interface as `fi_tostr` prints it (`FI_TYPE_INFO`), for tools written in Rust; `None` when
/// there is no memory.
#[must_use]
pub fn info_text(info: &Info) -> Option<String> {
    let made = write::info(info);
    if made.is_null() {
        return None;
    }
    // SAFETY: made just now, with pointers that are null or valid.
    let text = unsafe { render(made.cast_const().cast(), abi::FI_TYPE_INFO) };
    // SAFETY: made here, and nobody else knows it.
    unsafe { free_list(made) };
    Some(String::from_utf8_lossy(text.as_bytes()).into_owned())
}

/// # Safety
///
/// `data` points to a value of `datatype`, with pointers that are null or valid.
unsafe fn render(data: *const c_void, datatype: abi::fi_type) -> Text {
    let mut text = Text::default();
    let out = &mut text;
    if let Some((table, kind)) = plain(datatype) {
        match kind {
            Kind::Value => {
                // SAFETY: the caller's guarantee: enumerations have 32 bits.
                let value = unsafe { data.cast::<u32>().read_unaligned() };
                names::value(out, table, u64::from(value));
            }
            Kind::Flags => {
                // SAFETY: the caller's guarantee: these flags have 64 bits.
                let bits = unsafe { data.cast::<u64>().read_unaligned() };
                names::flags(out, table, bits);
            }
            Kind::ShortFlags => {
                // SAFETY: the caller's guarantee: the flags of `mr_mode` have 32 bits.
                let bits = unsafe { data.cast::<u32>().read_unaligned() };
                names::flags(out, table, u64::from(bits));
            }
        }
        return text;
    }
    match datatype {
        abi::FI_TYPE_VERSION => out.put(RELEASE),
        // SAFETY: the caller's guarantee, for this and the line below.
        abi::FI_TYPE_FID => unsafe { fid(out, "fid: ", data.cast()) },
        // SAFETY: as above.
        _ => unsafe { structure(out, data, datatype) },
    }
    text
}

/// How a value without structure is stored.
enum Kind {
    Value,
    Flags,
    ShortFlags,
}

/// The names of a type without structure.
fn plain(datatype: abi::fi_type) -> Option<(names::Names, Kind)> {
    Some(match datatype {
        abi::FI_TYPE_EP_TYPE => (names::EP_TYPE, Kind::Value),
        abi::FI_TYPE_CAPS => (names::CAPS, Kind::Flags),
        abi::FI_TYPE_OP_FLAGS => (names::OP_FLAGS, Kind::Flags),
        abi::FI_TYPE_ADDR_FORMAT => (names::ADDR_FORMAT, Kind::Value),
        abi::FI_TYPE_THREADING => (names::THREADING, Kind::Value),
        abi::FI_TYPE_PROGRESS => (names::PROGRESS, Kind::Value),
        abi::FI_TYPE_PROTOCOL => (names::PROTOCOL, Kind::Value),
        abi::FI_TYPE_MSG_ORDER => (names::MSG_ORDER, Kind::Flags),
        abi::FI_TYPE_MODE => (names::MODE, Kind::Flags),
        abi::FI_TYPE_AV_TYPE => (names::AV_TYPE, Kind::Value),
        abi::FI_TYPE_ATOMIC_TYPE => (names::ATOMIC_TYPE, Kind::Value),
        abi::FI_TYPE_ATOMIC_OP => (names::ATOMIC_OP, Kind::Value),
        abi::FI_TYPE_EQ_EVENT => (names::EQ_EVENT, Kind::Value),
        abi::FI_TYPE_CQ_EVENT_FLAGS => (names::CQ_EVENT_FLAGS, Kind::Flags),
        abi::FI_TYPE_MR_MODE => (names::MR_MODE, Kind::ShortFlags),
        abi::FI_TYPE_OP_TYPE => (names::OP_TYPE, Kind::Value),
        abi::FI_TYPE_COLLECTIVE_OP => (names::COLLECTIVE_OP, Kind::Value),
        abi::FI_TYPE_HMEM_IFACE => (names::HMEM_IFACE, Kind::Value),
        abi::FI_TYPE_CQ_FORMAT => (names::CQ_FORMAT, Kind::Value),
        abi::FI_TYPE_LOG_LEVEL => (names::LOG_LEVEL, Kind::Value),
        abi::FI_TYPE_LOG_SUBSYS => (names::LOG_SUBSYS, Kind::Value),
        abi::FI_TYPE_CQ_WAIT_COND => (names::CQ_WAIT_COND, Kind::Value),
        abi::FI_TYPE_WAIT_OBJ => (names::WAIT_OBJ, Kind::Value),
        _ => return None,
    })
}

/// Appends a structure.
///
/// # Safety
///
/// `data` points to a value of `datatype`, with pointers that are null or valid.
unsafe fn structure(out: &mut Text, data: *const c_void, datatype: abi::fi_type) {
    macro_rules! value {
        ($type:ident) => {
            // SAFETY: the caller's guarantee.
            unsafe { &*data.cast::<abi::$type>() }
        };
    }
    match datatype {
        abi::FI_TYPE_INFO => {
            let info = value!(fi_info);
            // SAFETY: the caller's guarantee about pointers, here and in the arms below.
            unsafe { info::info(out, info) };
        }
        abi::FI_TYPE_TX_ATTR => info::tx_attr(out, Some(value!(fi_tx_attr)), ""),
        abi::FI_TYPE_RX_ATTR => info::rx_attr(out, Some(value!(fi_rx_attr)), ""),
        abi::FI_TYPE_EP_ATTR => info::ep_attr(out, Some(value!(fi_ep_attr)), ""),
        abi::FI_TYPE_DOMAIN_ATTR => {
            let attr = value!(fi_domain_attr);
            // SAFETY: as above.
            unsafe { info::domain_attr(out, Some(attr), "") };
        }
        abi::FI_TYPE_FABRIC_ATTR => {
            let attr = value!(fi_fabric_attr);
            // SAFETY: as above.
            unsafe { info::fabric_attr(out, Some(attr), "") };
        }
        abi::FI_TYPE_AV_ATTR => {
            let attr = value!(fi_av_attr);
            // SAFETY: as above.
            unsafe { queues::av_attr(out, attr) };
        }
        abi::FI_TYPE_CQ_ATTR => queues::cq_attr(out, value!(fi_cq_attr)),
        abi::FI_TYPE_MR_ATTR => queues::mr_attr(out, value!(fi_mr_attr)),
        abi::FI_TYPE_CNTR_ATTR => queues::cntr_attr(out, value!(fi_cntr_attr)),
        abi::FI_TYPE_CQ_ERR_ENTRY => queues::cq_err_entry(out, value!(fi_cq_err_entry)),
        _ => out.put("Unknown type"),
    }
}

/// Appends what an object says about itself, or else `label` and its address.
///
/// # Safety
///
/// `fid` is null or an object, of this library or of any other that keeps the interface.
unsafe fn fid(out: &mut Text, label: &str, fid: *const abi::fid) {
    // SAFETY: the caller's guarantee.
    let told = unsafe { fid.as_ref() }.and_then(|object| {
        // SAFETY: an object's operations are null or a table of at least their size.
        let tostr = unsafe { tostr_of(object.ops) }?;
        let mut buf = vec![0; FID_BUFFER];
        // SAFETY: a live object, and a buffer of this many bytes that holds an empty string.
        let result = unsafe { tostr(fid, buf.as_mut_ptr(), buf.len()) };
        (result == 0).then_some(buf)
    });
    match told {
        // SAFETY: `tostr` leaves a C string, and the buffer began as zeros.
        Some(buf) => unsafe { out.c_str(buf.as_ptr()) },
        None => {
            out.put(label);
            out.pointer(fid);
            out.put("\n");
        }
    }
}

type Tostr = unsafe extern "C" fn(*const abi::fid, *mut c_char, usize) -> core::ffi::c_int;

/// The `tostr` operation of a table that may be older than it.
///
/// # Safety
///
/// `ops` is null or points to a table of as many bytes as its `size` says.
unsafe fn tostr_of(ops: *const abi::fi_ops) -> Option<Tostr> {
    if ops.is_null() {
        return None;
    }
    // SAFETY: the caller's guarantee; every table has a size.
    let size = unsafe { (*ops).size };
    if size <= core::mem::offset_of!(abi::fi_ops, tostr) {
        return None;
    }
    // SAFETY: the caller's guarantee: the table goes on to this member.
    unsafe { (*ops).tostr }
}
