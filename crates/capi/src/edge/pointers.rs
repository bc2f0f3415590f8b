#![allow(unsafe_code)]
//! The pointers in the structs of the interface, and what they lead to.

use core::ffi::CStr;

use ripstop_abi as abi;

use super::{AnyFid, Arg, Array, Pointer, Whole};

/// How the pointers in [`Whole`] structs are followed: `one` leads to a struct, `text` to a C
/// string, `array` to as many elements as another field says, `object` to an open object; `part` is a
/// struct inside.
macro_rules! pointers {
    ($($owner:ident { $($kind:ident $field:ident($($what:tt)*))* })*) => { $(
        impl<'a> Whole<'a, abi::$owner> {
            $(pointers! { @$kind $field $($what)* })*
        }
    )* };
    (@one $field:ident $what:ident) => {
        #[doc = concat!("What `", stringify!($field), "` points to.")]
        #[inline]
        pub(crate) fn $field(self) -> Option<Whole<'a, abi::$what>> {
            // SAFETY: a pointer of a whole struct is null or valid with all that it points to.
            unsafe { Whole::behind(self.get().$field.address()) }
        }
    };
    (@text $field:ident) => {
        #[doc = concat!("The C string at `", stringify!($field), "`.")]
        pub(crate) fn $field(self) -> Option<&'a CStr> {
            // SAFETY: a pointer of a whole struct is null or to a C string.
            unsafe { <Option<&'a CStr> as Arg>::from_c(self.get().$field) }
        }
    };
    (@array $field:ident $what:ty, $count:ident) => {
        #[doc = concat!("The elements at `", stringify!($field), "`.")]
        #[inline(always)]
        pub(crate) fn $field(self) -> Array<'a, $what> {
            // SAFETY: a pointer of a whole struct is null or to as many elements as it says.
            unsafe { Array::new(self.get().$field.cast(), self.get().$count) }
        }
    };
    (@part $field:ident $what:ident) => {
        #[doc = concat!("`", stringify!($field), "`, with what it points to.")]
        pub(crate) fn $field(self) -> Whole<'a, abi::$what> {
            // SAFETY: the pointers of a whole struct are those of its parts too.
            unsafe { Whole::new(&self.get().$field) }
        }
    };
    (@object $field:ident) => {
        #[doc = concat!("The object at `", stringify!($field), "`.")]
        pub(crate) fn $field(self) -> AnyFid<'a> {
            // SAFETY: a pointer of a whole struct is null or to an open object.
            unsafe { AnyFid::new(self.get().$field.address().cast_mut().cast()) }
        }
    };
}

pointers! {
    fi_info {
        array src_addr(u8, src_addrlen)
        array dest_addr(u8, dest_addrlen)
        one tx_attr(fi_tx_attr)
        one rx_attr(fi_rx_attr)
        one ep_attr(fi_ep_attr)
        one domain_attr(fi_domain_attr)
        one fabric_attr(fi_fabric_attr)
        object nic()
        object handle()
    }
    fi_ep_attr { array auth_key(u8, auth_key_size) }
    fi_domain_attr { text name() array auth_key(u8, auth_key_size) }
    fi_fabric_attr { text name() text prov_name() }
    fid_nic {
        one device_attr(fi_device_attr)
        one bus_attr(fi_bus_attr)
        one link_attr(fi_link_attr)
    }
    fi_device_attr {
        text name()
        text device_id()
        text device_version()
        text vendor_id()
        text driver()
        text firmware()
    }
    fi_link_attr { text address() text network_type() }
    fi_provider { text name() }
    fi_av_attr { text name() }
    fi_cq_attr { object wait_set() }
    fi_cntr_attr { object wait_set() }
    fi_eq_attr { object wait_set() }
    fi_collective_addr { object set() }
    fi_msg { array msg_iov(abi::iovec, iov_count) }
    fi_msg_tagged { array msg_iov(abi::iovec, iov_count) }
    fi_msg_rma { array msg_iov(abi::iovec, iov_count) array rma_iov(abi::fi_rma_iov, rma_iov_count) }
    fi_msg_atomic { array msg_iov(abi::fi_ioc, iov_count) array rma_iov(abi::fi_rma_ioc, rma_iov_count) }
    fi_msg_fetch { array msg_iov(abi::fi_ioc, iov_count) }
    fi_msg_compare { array msg_iov(abi::fi_ioc, iov_count) }
    fi_msg_collective { array msg_iov(abi::fi_ioc, iov_count) }
    fi_deferred_work { object triggering_cntr() object completion_cntr() }
    fi_op_msg { object ep() part msg(fi_msg) }
    fi_op_tagged { object ep() part msg(fi_msg_tagged) }
    fi_op_rma { object ep() part msg(fi_msg_rma) }
    fi_op_atomic { object ep() part msg(fi_msg_atomic) }
    fi_op_fetch_atomic { object ep() part msg(fi_msg_atomic) part fetch(fi_msg_fetch) }
    fi_op_compare_atomic {
        object ep()
        part msg(fi_msg_atomic)
        part fetch(fi_msg_fetch)
        part compare(fi_msg_compare)
    }
    fi_op_cntr { object cntr() }
    fi_peer_rx_entry { array iov(abi::iovec, count) }
}
