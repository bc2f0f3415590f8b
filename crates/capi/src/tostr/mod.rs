#![allow(unsafe_code)]
//! `fi_tostr(3)`: values, attributes and objects as text, line by line as libfabric prints
//! them, for people and for the scripts that read it.

use core::ffi::{c_char, c_void};
use core::ptr;
use std::cell::RefCell;

use ripstop_abi as abi;

pub(crate) mod address;
mod attrs;
pub(crate) mod info;
mod lines;
mod names;
pub(crate) mod nic;

#[cfg(test)]
mod tests;

use crate::edge::{AnyFid, Whole, arguments, trampolines};
use crate::text::{Text, TextOut};

/// What `FI_TYPE_VERSION` prints: the release of libfabric whose interface this is, and ours.
pub const RELEASE: &str = concat!("2.6.0-ripstop-", env!("CARGO_PKG_VERSION"));

/// Bytes of the buffer behind `fi_tostr`.
const TOSTR_BYTES: usize = 8192;

thread_local! {
    /// Where `fi_tostr` leaves its text, until the thread's next call.
    static LAST: RefCell<Vec<c_char>> = const { RefCell::new(Vec::new()) };
}

arguments! {
    /// What `fi_tostr` is given: null, or a value of the type that the call names, every pointer in which
    /// is null or valid.
    struct Data { at: *const c_void }
}

trampolines! { []
    /// Exported as `fi_tostr_r@@FABRIC_1.4`: writes `data` as text to `buf`, cut to `len` bytes
    /// with the final NUL, and returns `buf`; null if a pointer is null or `len` is 0.
    ///
    /// # Safety
    ///
    /// - `buf` is valid for writes of `len` bytes.
    /// - `data` points to a value of `datatype`, and every pointer inside it is null or valid.
    #[unsafe(no_mangle)]
    pub extern "C" fn ripstop_fi_tostr_r_1_4(
        out: TextOut(buf, len) as (*mut c_char, usize),
        data: Data as *const c_void,
        datatype as abi::fi_type,
    ) -> *mut c_char {
        if out.is_empty() || data.at.is_null() {
            return ptr::null_mut();
        }
        let buf = out.as_ptr();
        out.put(render(data, datatype).as_bytes());
        buf
    }

    /// Exported as `fi_tostr@@FABRIC_1.0`: `data` as text in a buffer of the library's, which the
    /// next call on the same thread overwrites; null if `data` is.
    ///
    /// # Safety
    ///
    /// `data` points to a value of `datatype`, and every pointer inside it is null or valid.
    #[unsafe(no_mangle)]
    pub extern "C" fn ripstop_fi_tostr_1_0(
        data: Data as *const c_void,
        datatype as abi::fi_type,
    ) -> *mut c_char {
        if data.at.is_null() {
            return ptr::null_mut();
        }
        let text = render(data, datatype);
        let leave = |last: &RefCell<Vec<c_char>>| {
            let mut last = last.borrow_mut();
            last.resize(TOSTR_BYTES, 0);
            TextOut::of(&mut last).put(text.as_bytes());
            last.as_mut_ptr()
        };
        // A thread that is past its end has no buffer any more.
        LAST.try_with(leave).unwrap_or(ptr::null_mut())
    }
}

/// The data of a call, which is not null, of the type that the same call names.
fn render(data: Data<'_>, datatype: abi::fi_type) -> Text {
    let mut text = Text::default();
    let out = &mut text;
    let at = data.at;
    if let Some((table, kind)) = plain(datatype) {
        let value = match kind {
            // SAFETY: not null, and the value of this type, whose flags have 64 bits.
            Kind::Flags => unsafe { at.cast::<u64>().read_unaligned() },
            // SAFETY: not null, and the value of this type: enumerations and the flags of `mr_mode`
            // have 32 bits.
            _ => u64::from(unsafe { at.cast::<u32>().read_unaligned() }),
        };
        match kind {
            Kind::Value => names::value(out, table, value),
            Kind::Flags | Kind::ShortFlags => names::flags(out, table, value),
        }
        return text;
    }
    macro_rules! value {
        ($type:ident) => {{
            // SAFETY: not null, and the value of this type.
            let value = unsafe { &*at.cast::<abi::$type>() };
            // SAFETY: every pointer in it is null or valid, as `Data` says.
            unsafe { Whole::new(value) }
        }};
    }
    match datatype {
        abi::FI_TYPE_VERSION => out.put(RELEASE),
        // SAFETY: an object, which is what this type stands for.
        abi::FI_TYPE_FID => object(out, "fid: ", unsafe { AnyFid::new(at.cast_mut().cast()) }),
        abi::FI_TYPE_INFO => info::info(out, value!(fi_info)),
        abi::FI_TYPE_TX_ATTR => info::tx_attr(out, value!(fi_tx_attr), ""),
        abi::FI_TYPE_RX_ATTR => info::rx_attr(out, value!(fi_rx_attr), ""),
        abi::FI_TYPE_EP_ATTR => info::ep_attr(out, value!(fi_ep_attr), ""),
        abi::FI_TYPE_DOMAIN_ATTR => info::domain_attr(out, value!(fi_domain_attr), ""),
        abi::FI_TYPE_FABRIC_ATTR => info::fabric_attr(out, value!(fi_fabric_attr), ""),
        abi::FI_TYPE_AV_ATTR => attrs::av_attr(out, value!(fi_av_attr)),
        abi::FI_TYPE_CQ_ATTR => attrs::cq_attr(out, value!(fi_cq_attr).get()),
        abi::FI_TYPE_MR_ATTR => attrs::mr_attr(out, value!(fi_mr_attr).get()),
        abi::FI_TYPE_CNTR_ATTR => attrs::cntr_attr(out, value!(fi_cntr_attr).get()),
        abi::FI_TYPE_CQ_ERR_ENTRY => attrs::cq_err_entry(out, value!(fi_cq_err_entry).get()),
        _ => out.put("Unknown type"),
    }
    text
}

/// Appends what an object says about itself, or else `label` and its address.
fn object(out: &mut Text, label: &str, fid: AnyFid<'_>) {
    match fid.text() {
        Some(told) => out.bytes(told.split(|&byte| byte == 0).next().unwrap_or_default()),
        None => {
            out.put(label);
            out.pointer(fid.as_ptr());
            out.put("\n");
        }
    }
}

/// How a value that is no struct is stored, and what its names are of.
enum Kind {
    /// An enumeration, of 32 bits.
    Value,
    /// Flags of 64 bits.
    Flags,
    /// Flags of 32 bits.
    ShortFlags,
}

/// The names of a type that is no struct, and how its values are stored; `None` for a struct and an unknown type.
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
