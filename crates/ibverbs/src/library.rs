#![allow(unsafe_code)]
//! Opening the libraries and looking up their functions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use libloading::os::unix;
use ripstop_types::{Errno, Result};

use crate::sys::{
    ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device_attr,
    ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq,
    ibv_srq_init_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};

/// Why RDMA devices cannot be used on this machine: a library, or a function of it, is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The dynamic linker does not find or cannot load it.
    Library {
        /// The file's name.
        name: &'static str,
        /// The package of Debian and Ubuntu that has it.
        package: &'static str,
        /// What the linker says.
        reason: String,
    },
    /// It has no such function, so it is older than what this crate is written for.
    Symbol {
        /// The file's name.
        name: &'static str,
        /// The function.
        symbol: &'static str,
        /// The package of Debian and Ubuntu to upgrade.
        package: &'static str,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library {
                name,
                package,
                reason,
            } => write!(
                f,
                "{name} cannot be opened ({reason}): install rdma-core's package {package}, and \
                 ibverbs-providers for the device"
            ),
            Self::Symbol {
                name,
                symbol,
                package,
            } => write!(
                f,
                "{name} has no function {symbol}: upgrade rdma-core's package {package}"
            ),
        }
    }
}

impl std::error::Error for Missing {}

/// A library by the name that the dynamic linker looks for.
struct Name {
    file: &'static str,
    package: &'static str,
}

impl Name {
    fn lacks(&self, symbol: &'static str) -> Missing {
        Missing::Symbol {
            name: self.file,
            symbol,
            package: self.package,
        }
    }
}

const IBVERBS: Name = Name {
    file: "libibverbs.so.1",
    package: "libibverbs1",
};
const RDMACM: Name = Name {
    file: "librdmacm.so.1",
    package: "librdmacm1",
};

/// Both libraries, open for as long as the process lives: drivers leave threads and handlers behind.
pub(crate) struct Library {
    pub(crate) ibv: Ibverbs,
    pub(crate) cm: Rdmacm,
    /// `ibv_reg_dmabuf_mr(3)`, which rdma-core has since release 34.
    pub(crate) ibv_reg_dmabuf_mr: std::result::Result<RegDmabufMr, Missing>,
}

/// Registers memory of a dma-buf: its offset, length, address for peers, descriptor and access.
pub(crate) type RegDmabufMr =
    unsafe extern "C" fn(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;

/// Declares a table of functions of a library with their C types, and how to look them up.
macro_rules! functions {
    ($(#[$about:meta])* $table:ident { $($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)* }) => {
        $(#[$about])*
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl $table {
            fn find(library: &unix::Library, of: &Name) -> std::result::Result<Self, Missing> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is that of the function of this name in rdma-core's
                        // headers, whose ABI does not change.
                        let found = unsafe { library.get(stringify!($name).as_bytes()) };
                        *found.map_err(|_| of.lacks(stringify!($name)))?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// What `infiniband/verbs.h` declares, as far as it is used.
    Ibverbs {
        ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        ibv_query_gid: fn(*mut ibv_context, u8, c_int, *mut [u8; 16]) -> c_int;
        ibv_query_pkey: fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int;
        ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
        ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
        ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
        ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
        ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
        ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut ibv_cq, u32);
        ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
        ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        ibv_create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
        ibv_destroy_ah: fn(*mut ibv_ah) -> c_int;
        ibv_create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
        ibv_destroy_srq: fn(*mut ibv_srq) -> c_int;
        ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ibv_ack_async_event: fn(*mut ibv_async_event);
        ibv_wc_status_str: fn(c_int) -> *const c_char;
    }
}

functions! {
    /// What `rdma/rdma_cma.h` declares, as far as it is used. Addresses are bytes of a socket address.
    Rdmacm {
        rdma_get_devices: fn(*mut c_int) -> *mut *mut ibv_context;
        rdma_free_devices: fn(*mut *mut ibv_context);
        rdma_create_event_channel: fn() -> *mut rdma_event_channel;
        rdma_destroy_event_channel: fn(*mut rdma_event_channel);
        rdma_create_id: fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
        rdma_destroy_id: fn(*mut rdma_cm_id) -> c_int;
        rdma_bind_addr: fn(*mut rdma_cm_id, *const u8) -> c_int;
        rdma_resolve_addr: fn(*mut rdma_cm_id, *const u8, *const u8, c_int) -> c_int;
        rdma_resolve_route: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_create_qp: fn(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
        rdma_destroy_qp: fn(*mut rdma_cm_id);
        rdma_connect: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_listen: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_accept: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_reject: fn(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        rdma_disconnect: fn(*mut rdma_cm_id) -> c_int;
        rdma_migrate_id: fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
        rdma_get_cm_event: fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        rdma_ack_cm_event: fn(*mut rdma_cm_event) -> c_int;
    }
}

/// Opens a library for as long as the process lives.
fn open(name: &Name) -> std::result::Result<ManuallyDrop<unix::Library>, Missing> {
    let flags = unix::RTLD_NOW | unix::RTLD_LOCAL;
    // SAFETY: rdma-core's libraries may be loaded at any time; their initialisers do not call back.
    let opened = unsafe { unix::Library::open(Some(name.file), flags) };
    opened.map(ManuallyDrop::new).map_err(|error| {
        let reason = std::error::Error::source(&error)
            .map_or_else(|| error.to_string(), ToString::to_string);
        Missing::Library {
            name: name.file,
            package: name.package,
            reason,
        }
    })
}

fn load() -> std::result::Result<Library, Missing> {
    let ibverbs = open(&IBVERBS)?;
    let rdmacm = open(&RDMACM)?;
    let dmabuf = "ibv_reg_dmabuf_mr";
    // SAFETY: the type is that of the function of this name in rdma-core's headers.
    let found = unsafe { ibverbs.get::<RegDmabufMr>(dmabuf.as_bytes()) };
    let ibv_reg_dmabuf_mr = found.map(|found| *found).map_err(|_| IBVERBS.lacks(dmabuf));
    Ok(Library {
        ibv_reg_dmabuf_mr,
        ibv: Ibverbs::find(&ibverbs, &IBVERBS)?,
        cm: Rdmacm::find(&rdmacm, &RDMACM)?,
    })
}

/// The libraries, opened by the first call.
pub(crate) fn library() -> std::result::Result<&'static Library, &'static Missing> {
    static LIBRARY: OnceLock<std::result::Result<Library, Missing>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref()
}

/// Whether the libraries are there; opens them.
///
/// # Errors
/// The first one that is not.
pub fn available() -> std::result::Result<(), &'static Missing> {
    library().map(|_| ())
}

/// The error of a call that says so in `errno`.
pub(crate) fn last_errno() -> Errno {
    match std::io::Error::last_os_error().raw_os_error() {
        Some(number) if number > 0 => Errno(number),
        _ => Errno::EOTHER,
    }
}

/// The outcome of a call that returns -1 and sets `errno`, as those of `librdmacm` do.
pub(crate) fn by_errno(ret: c_int) -> Result<()> {
    match ret {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// The outcome of a call that returns an error number, as those of `libibverbs` do; some drivers
/// return it negated.
pub(crate) fn by_value(ret: c_int) -> Result<()> {
    match ret {
        0 => Ok(()),
        _ => Err(Errno(ret.saturating_abs())),
    }
}

/// Copies a C string of static storage.
pub(crate) fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the callers pass a terminated string that the library never changes.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_told_with_its_package() {
        let name = Name {
            file: "libripstop-not-there.so.1",
            package: "libibverbs1",
        };
        let missing = open(&name).map(|_| ()).expect_err("it is not there");
        let told = missing.to_string();
        for part in [
            name.file,
            "No such file",
            "libibverbs1",
            "ibverbs-providers",
        ] {
            assert!(told.contains(part), "{told} does not say {part}");
        }
    }

    #[test]
    fn a_library_of_the_wrong_kind_is_told_by_the_function_it_lacks() {
        // Any library that is always there.
        let name = Name {
            file: "libc.so.6",
            package: "librdmacm1",
        };
        let library = open(&name).expect("the C library");
        let missing = Rdmacm::find(&library, &name)
            .map(|_| ())
            .expect_err("lacking");
        assert_eq!(
            missing,
            Missing::Symbol {
                name: "libc.so.6",
                symbol: "rdma_get_devices",
                package: "librdmacm1"
            }
        );
        assert!(missing.to_string().contains("upgrade"));
    }

    #[test]
    fn numbers_of_both_kinds_are_errors() {
        assert_eq!(by_value(0), Ok(()));
        assert_eq!(by_value(12), Err(Errno::ENOMEM));
        assert_eq!(by_value(-12), Err(Errno::ENOMEM));
    }
}
