#![allow(unsafe_code)]
//! What this device does not do: each call is an error, and a line of the log says which it was.

use core::ffi::{c_int, c_void};

use ripstop_types::{Errno, Result};

use crate::edge::args::Arg;
use crate::edge::{exports, minus_one, number, or_null};
use crate::log::{Subsys, refuse};

/// Refuses a call.
pub(crate) fn why<T>(what: &str) -> Result<T> {
    Err(refuse(
        Subsys::Core,
        Errno::EOPNOTSUPP,
        format_args!("{what}"),
    ))
}

/// In tables of functions, for those that no inline function of the headers calls, or that are refused.
pub(crate) unsafe extern "C" fn call() -> c_int {
    number(why("memory windows are not there"))
}

/// As [`call`], of a function that makes an object.
pub(crate) unsafe extern "C" fn object() -> *mut c_void {
    or_null(why("there are no memory windows"))
}

/// A list of one thing and NULL, which the program gives back.
pub(crate) struct List<T>(*mut *mut T);

impl<T> Arg for List<T> {
    type C = *mut *mut T;

    unsafe fn from_c(c: Self::C) -> Self {
        Self(c)
    }
}

impl<T> List<T> {
    /// Frees the list; what is in it stays.
    pub(crate) fn free(self) {
        if !self.0.is_null() {
            let list = self.0.cast::<[*mut T; 2]>();
            // SAFETY: `ibv_get_device_list` or `rdma_get_devices` made it of such a box, and the program gives it
            // back once.
            drop(unsafe { Box::from_raw(list) });
        }
    }
}

/// Functions that are refused with a number, with -1 and `errno`, or with NULL and `errno`; with the reason.
macro_rules! refusals {
    ($($kind:ident $why:literal: $($name:ident)*;)*) => { $($(
        refusals! { @$kind $name $why }
    )*)* };
    (@number $name:ident $why:literal) => {
        exports! {
            /// Refused.
            fn $name() -> c_int {
                number(why(concat!(stringify!($name), ": ", $why)))
            }
        }
    };
    (@minus_one $name:ident $why:literal) => {
        exports! {
            /// Refused.
            fn $name() -> c_int {
                minus_one(why(concat!(stringify!($name), ": ", $why)))
            }
        }
    };
    (@null $name:ident $why:literal) => {
        exports! {
            /// Refused.
            fn $name() -> *mut c_void {
                or_null(why(concat!(stringify!($name), ": ", $why)))
            }
        }
    };
    (@nothing $name:ident $why:literal) => {
        exports! {
            /// Refused.
            fn $name() {
                let _: Result<()> = why(concat!(stringify!($name), ": ", $why));
            }
        }
    };
}

refusals! {
    number "there is no multicast": ibv_attach_mcast ibv_detach_mcast;
    number "addresses of Ethernet are not known": ibv_resolve_eth_l2_from_gid;
    number "a region cannot be changed": ibv_rereg_mr;
    null "there is no device memory": ibv_reg_dmabuf_mr ibv_import_dm;
    nothing "there is no device memory": ibv_unimport_dm ibv_unimport_mr ibv_unimport_pd;
    null "objects of other processes are not imported": ibv_import_mr ibv_import_pd;
    minus_one "there is no multicast": rdma_join_multicast
        rdma_join_multicast_ex rdma_leave_multicast;
    minus_one "there are no ECE options": rdma_set_local_ece rdma_get_remote_ece;
    minus_one "sockets over verbs are not there: use a socket": rsocket;
    number "data arrives in no particular order within a message": ibv_query_qp_data_in_order;
}
