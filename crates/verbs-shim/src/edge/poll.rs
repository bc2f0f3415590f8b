//! Completion queues that are read field by field (`ibv_create_cq_ex(3)`).

use core::ffi::{c_int, c_uint};
use core::sync::atomic::Ordering::Relaxed;

use ripstop_types::{Errno, Result};

use crate::edge::args::Changed;
use crate::edge::exports;
use crate::edge::made::{Cq, ExCq};
use crate::sys::{ibv_cq, ibv_cq_ex, ibv_poll_cq_attr, ibv_wc};

/// The functions of a queue.
pub(crate) fn extended(base: ibv_cq) -> ibv_cq_ex {
    ibv_cq_ex {
        base,
        comp_mask: 0,
        status: 0.into(),
        wr_id: 0.into(),
        start_poll: ripstop_verbs_start_poll,
        next_poll: ripstop_verbs_next_poll,
        end_poll: ripstop_verbs_end_poll,
        read_opcode: ripstop_verbs_read_opcode,
        read_vendor_err: ripstop_verbs_read_vendor_err,
        read_byte_len: ripstop_verbs_read_byte_len,
        read_imm_data: ripstop_verbs_read_imm_data,
        read_qp_num: ripstop_verbs_read_qp_num,
        read_src_qp: ripstop_verbs_read_src_qp,
        read_wc_flags: ripstop_verbs_read_wc_flags,
        read_slid: ripstop_verbs_read_slid,
        read_sl: ripstop_verbs_read_sl,
        read_dlid_path_bits: ripstop_verbs_read_dlid_path_bits,
        read_completion_ts_to_wallclock_ns: [None; 5],
    }
}

/// Goes to the next completion.
pub(super) fn next(cq: &Cq, current: &mut ibv_wc) -> Result<()> {
    let mut one = [ibv_wc::default()];
    match cq.engine.poll(cq.id, &mut one)? {
        0 => Err(Errno::ENOENT),
        _ => {
            let [wc] = one;
            cq.c.status.store(wc.status, Relaxed);
            cq.c.wr_id.store(wc.wr_id, Relaxed);
            *current = wc;
            Ok(())
        }
    }
}

/// Begins to poll. Without a completion, the program does not end it.
pub(super) fn start(cq: &Cq, attr: Option<&ibv_poll_cq_attr>) -> Result<()> {
    if attr.is_some_and(|attr| attr.comp_mask != 0) {
        return Err(Errno::EINVAL);
    }
    let started = next(cq, &mut cq.current.begin());
    if started.is_err() {
        cq.current.end();
    }
    started
}

/// What a call returns that returns the number of an error. There is none for the log in an empty queue.
fn told(result: Result<()>) -> c_int {
    result.map_or_else(|errno| errno.0, |()| 0)
}

exports! {
    /// `ibv_start_poll`.
    fn ripstop_verbs_start_poll(cq: ExCq<'_>, attr: Changed<'_, ibv_poll_cq_attr>) -> c_int {
        told(start(&cq, attr.optional().map(|attr| &*attr)))
    }

    /// `ibv_next_poll`.
    fn ripstop_verbs_next_poll(cq: ExCq<'_>) -> c_int {
        told(next(&cq, &mut cq.current.get()))
    }

    /// `ibv_end_poll`.
    fn ripstop_verbs_end_poll(cq: ExCq<'_>) {
        cq.current.end();
    }

    /// `ibv_wc_read_opcode`.
    fn ripstop_verbs_read_opcode(cq: ExCq<'_>) -> c_int {
        cq.current.get().opcode
    }

    /// `ibv_wc_read_vendor_err`.
    fn ripstop_verbs_read_vendor_err(cq: ExCq<'_>) -> u32 {
        cq.current.get().vendor_err
    }

    /// `ibv_wc_read_byte_len`.
    fn ripstop_verbs_read_byte_len(cq: ExCq<'_>) -> u32 {
        cq.current.get().byte_len
    }

    /// `ibv_wc_read_imm_data`.
    fn ripstop_verbs_read_imm_data(cq: ExCq<'_>) -> u32 {
        cq.current.get().imm_data
    }

    /// `ibv_wc_read_qp_num`.
    fn ripstop_verbs_read_qp_num(cq: ExCq<'_>) -> u32 {
        cq.current.get().qp_num
    }

    /// `ibv_wc_read_src_qp`.
    fn ripstop_verbs_read_src_qp(cq: ExCq<'_>) -> u32 {
        cq.current.get().src_qp
    }

    /// `ibv_wc_read_wc_flags`.
    fn ripstop_verbs_read_wc_flags(cq: ExCq<'_>) -> c_uint {
        cq.current.get().wc_flags
    }

    /// `ibv_wc_read_slid`.
    fn ripstop_verbs_read_slid(cq: ExCq<'_>) -> u32 {
        cq.current.get().slid.into()
    }

    /// `ibv_wc_read_sl`.
    fn ripstop_verbs_read_sl(cq: ExCq<'_>) -> u8 {
        cq.current.get().sl
    }

    /// `ibv_wc_read_dlid_path_bits`.
    fn ripstop_verbs_read_dlid_path_bits(cq: ExCq<'_>) -> u8 {
        cq.current.get().dlid_path_bits
    }
}
