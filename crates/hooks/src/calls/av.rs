#![allow(unsafe_code)]
//! The operations of address vectors and their sets.

use core::ffi::{c_char, c_int, c_void};

use ripstop_abi::*;

use crate::hook::With;

super::interpose! {
    fi_ops_av at fid_av.ops {
        insert "fi_av_insert" (
            av: *mut fid_av, addr: *const c_void, count: usize, fi_addr: *mut fi_addr_t, flags: u64,
            context: *mut c_void,
        ) -> c_int;
        insertsvc "fi_av_insertsvc" (
            av: *mut fid_av, node: *const c_char, service: *const c_char, fi_addr: *mut fi_addr_t, flags: u64,
            context: *mut c_void,
        ) -> c_int;
        insertsym "fi_av_insertsym" (
            av: *mut fid_av, node: *const c_char, nodecnt: usize, service: *const c_char, svccnt: usize,
            fi_addr: *mut fi_addr_t, flags: u64, context: *mut c_void,
        ) -> c_int;
        remove "fi_av_remove" (
            av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64,
        ) -> c_int;
        lookup "fi_av_lookup" (
            av: *mut fid_av, fi_addr: fi_addr_t, addr: *mut c_void, addrlen: *mut usize,
        ) -> c_int;
        straddr "fi_av_straddr" (
            av: *mut fid_av, addr: *const c_void, buf: *mut c_char, len: *mut usize,
        ) -> *const c_char;
        av_set "fi_av_set" (
            av: *mut fid_av, attr: *mut fi_av_set_attr, set: *mut *mut fid_av_set, context: *mut c_void,
        ) -> c_int, opens set with With::Nothing;
        insert_auth_key "fi_av_insert_auth_key" (
            av: *mut fid_av, auth_key: *const c_void, auth_key_size: usize, fi_addr: *mut fi_addr_t,
            flags: u64,
        ) -> c_int;
        lookup_auth_key "fi_av_lookup_auth_key" (
            av: *mut fid_av, fi_addr: fi_addr_t, auth_key: *mut c_void, auth_key_size: *mut usize,
        ) -> c_int;
        set_user_id "fi_av_set_user_id" (
            av: *mut fid_av, fi_addr: fi_addr_t, user_id: fi_addr_t, flags: u64,
        ) -> c_int;
    }
}

mod set {
    use super::*;

    super::super::interpose! {
        fi_ops_av_set at fid_av_set.ops {
            set_union "fi_av_set_union" (dst: *mut fid_av_set, src: *const fid_av_set) -> c_int;
            intersect "fi_av_set_intersect" (dst: *mut fid_av_set, src: *const fid_av_set) -> c_int;
            diff "fi_av_set_diff" (dst: *mut fid_av_set, src: *const fid_av_set) -> c_int;
            insert "fi_av_set_insert" (set: *mut fid_av_set, addr: fi_addr_t) -> c_int;
            remove "fi_av_set_remove" (set: *mut fid_av_set, addr: fi_addr_t) -> c_int;
            addr "fi_av_set_addr" (set: *mut fid_av_set, coll_addr: *mut fi_addr_t) -> c_int;
        }
    }
}
