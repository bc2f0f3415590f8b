//! Requests that are built by calls (`ibv_wr_post(3)`), which programs reach through the struct of the queue pair.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use ripstop_types::{Errno, Result};

use crate::device::{MAX_INLINE, MAX_SGE};
use crate::edge::args::{Array, This, gather};
use crate::edge::building::{Building, Built};
use crate::edge::made::{Ah, ExQp, Qp};
use crate::edge::{exports, number, refused};
use crate::engine::{Asked, Op, Remote, To};
use crate::log::{Subsys, refuse};
use crate::sys::{
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_data_buf, ibv_qp_ex,
    ibv_sge,
};

/// Begins a request.
pub(super) fn begin(qp: &Qp, opcode: c_int, imm: u32, remote: Remote) {
    let mut building = qp.building.get();
    let begun = Op::of(opcode, imm, &remote).map(|(op, operands)| Built {
        asked: Asked {
            wr_id: qp.c.wr_id.load(Relaxed),
            op,
            operands,
            flags: qp.c.wr_flags.load(Relaxed),
            to: None,
        },
        list: [ibv_sge::default(); MAX_SGE],
        count: 0,
        inline: None,
    });
    match begun {
        Ok(built) => building.list.push(built),
        Err(error) => building.note(Err(error)),
    }
}

/// Refuses a request.
fn no(qp: &Qp, what: &str) {
    qp.building.get().note(refused::why(what));
}

/// Where a datagram of a queue pair goes that a program sends to this handle.
pub(crate) fn to(qp: &Qp, ah: Option<&Ah>, num: u32, key: u32) -> Result<To> {
    let wrong = |why: &str| {
        let why = format_args!("a datagram {why}");
        refuse(Subsys::EpData, Errno::EINVAL, why)
    };
    let ah = ah.ok_or_else(|| wrong("without an address handle"))?;
    if !core::ptr::eq(ah.c.pd, qp.c.qp_base.pd) {
        return Err(wrong("with an address handle of another protection domain"));
    }
    Ok(To {
        ip: ah.ip,
        num: num & 0x00ff_ffff,
        key,
    })
}

/// Says where the last request goes, which is a datagram.
pub(super) fn address(qp: &Qp, ah: Option<&Ah>, num: u32, key: u32) {
    let found = to(qp, ah, num, key);
    qp.building.get().last(|built| {
        built.asked.to = Some(found?);
        Ok(())
    });
}

/// Names the memory of the last request.
pub(super) fn memory(qp: &Qp, list: &[ibv_sge]) {
    qp.building.get().last(|built| {
        let places = built.list.get_mut(..list.len()).ok_or_else(|| {
            let why = format_args!("{} elements: at most {MAX_SGE}", list.len());
            refuse(Subsys::EpData, Errno::EINVAL, why)
        })?;
        places.copy_from_slice(list);
        built.count = list.len();
        Ok(())
    });
}

/// Copies the inline data of the last request.
pub(super) fn inline(qp: &Qp, list: &[ibv_data_buf]) {
    let total = list
        .iter()
        .fold(0_usize, |sum, buf| sum.saturating_add(buf.length));
    let fits = total <= MAX_INLINE as usize;
    let pieces = list.iter().filter(|_| fits).map(|buf| ibv_sge {
        addr: buf.addr.expose_provenance() as u64,
        length: buf.length as u32,
        lkey: 0,
    });
    let data = gather(&pieces.collect::<Vec<_>>(), MAX_INLINE as usize).filter(|_| fits);
    qp.building.get().last(|built| {
        built.inline = Some(data.ok_or_else(|| {
            let why = format_args!("inline data of more than {MAX_INLINE} bytes");
            refuse(Subsys::EpData, Errno::EINVAL, why)
        })?);
        Ok(())
    });
}

/// Posts what is built; what is before a request that is refused stays posted.
pub(super) fn complete(qp: &Qp) -> Result<()> {
    let building = std::mem::take(&mut *qp.building.get());
    qp.building.end();
    if let Some(error) = building.refused {
        return Err(error);
    }
    let mut posting = qp.engine.posting(qp.id)?;
    posting.has_room_for(building.list.len())?;
    building
        .list
        .into_iter()
        .try_for_each(|built| posting.send(&built.asked, &built.list[..built.count], built.inline))
}

/// The functions of a queue pair.
pub(crate) fn extended(base: crate::sys::ibv_qp) -> ibv_qp_ex {
    ibv_qp_ex {
        qp_base: base,
        comp_mask: 0,
        wr_id: 0.into(),
        wr_flags: 0.into(),
        wr_atomic_cmp_swp: ripstop_verbs_wr_atomic_cmp_swp,
        wr_atomic_fetch_add: ripstop_verbs_wr_atomic_fetch_add,
        wr_bind_mw: ripstop_verbs_wr_bind_mw,
        wr_local_inv: ripstop_verbs_wr_local_inv,
        wr_rdma_read: ripstop_verbs_wr_rdma_read,
        wr_rdma_write: ripstop_verbs_wr_rdma_write,
        wr_rdma_write_imm: ripstop_verbs_wr_rdma_write_imm,
        wr_send: ripstop_verbs_wr_send,
        wr_send_imm: ripstop_verbs_wr_send_imm,
        wr_send_inv: ripstop_verbs_wr_send_inv,
        wr_send_tso: ripstop_verbs_wr_send_tso,
        wr_set_ud_addr: ripstop_verbs_wr_set_ud_addr,
        wr_set_xrc_srqn: ripstop_verbs_wr_set_xrc_srqn,
        wr_set_inline_data: ripstop_verbs_wr_set_inline_data,
        wr_set_inline_data_list: ripstop_verbs_wr_set_inline_data_list,
        wr_set_sge: ripstop_verbs_wr_set_sge,
        wr_set_sge_list: ripstop_verbs_wr_set_sge_list,
        wr_start: ripstop_verbs_wr_start,
        wr_complete: ripstop_verbs_wr_complete,
        wr_abort: ripstop_verbs_wr_abort,
        wr_atomic_write: ripstop_verbs_wr_atomic_write,
    }
}

/// The peer's memory.
pub(super) fn at(addr: u64, key: u32) -> Remote {
    Remote {
        addr,
        key,
        ..Remote::default()
    }
}

exports! {
    /// `ibv_wr_start`.
    fn ripstop_verbs_wr_start(qp: ExQp<'_>) {
        *qp.building.begin() = Building::default();
    }

    /// `ibv_wr_complete`.
    fn ripstop_verbs_wr_complete(qp: ExQp<'_>) -> c_int {
        number(complete(&qp))
    }

    /// `ibv_wr_abort`.
    fn ripstop_verbs_wr_abort(qp: ExQp<'_>) {
        *qp.building.get() = Building::default();
        qp.building.end();
    }

    /// `ibv_wr_send`.
    fn ripstop_verbs_wr_send(qp: ExQp<'_>) {
        begin(&qp, IBV_WR_SEND, 0, Remote::default());
    }

    /// `ibv_wr_send_imm`.
    fn ripstop_verbs_wr_send_imm(qp: ExQp<'_>, imm: u32) {
        begin(&qp, IBV_WR_SEND_WITH_IMM, imm, Remote::default());
    }

    /// `ibv_wr_rdma_write`.
    fn ripstop_verbs_wr_rdma_write(qp: ExQp<'_>, key: u32, addr: u64) {
        begin(&qp, IBV_WR_RDMA_WRITE, 0, at(addr, key));
    }

    /// `ibv_wr_rdma_write_imm`.
    fn ripstop_verbs_wr_rdma_write_imm(qp: ExQp<'_>, key: u32, addr: u64, imm: u32) {
        begin(&qp, IBV_WR_RDMA_WRITE_WITH_IMM, imm, at(addr, key));
    }

    /// `ibv_wr_rdma_read`.
    fn ripstop_verbs_wr_rdma_read(qp: ExQp<'_>, key: u32, addr: u64) {
        begin(&qp, IBV_WR_RDMA_READ, 0, at(addr, key));
    }

    /// `ibv_wr_atomic_fetch_add`.
    fn ripstop_verbs_wr_atomic_fetch_add(qp: ExQp<'_>, key: u32, addr: u64, add: u64) {
        let remote = Remote { compare_add: add, ..at(addr, key) };
        begin(&qp, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, remote);
    }

    /// `ibv_wr_atomic_cmp_swp`.
    fn ripstop_verbs_wr_atomic_cmp_swp(
        qp: ExQp<'_>,
        key: u32,
        addr: u64,
        compare: u64,
        swap: u64,
    ) {
        let remote = Remote { compare_add: compare, swap, ..at(addr, key) };
        begin(&qp, IBV_WR_ATOMIC_CMP_AND_SWP, 0, remote);
    }

    /// `ibv_wr_set_sge`.
    fn ripstop_verbs_wr_set_sge(qp: ExQp<'_>, lkey: u32, addr: u64, length: u32) {
        memory(&qp, &[ibv_sge { addr, length, lkey }]);
    }

    /// `ibv_wr_set_sge_list`.
    fn ripstop_verbs_wr_set_sge_list(qp: ExQp<'_>, count: usize, list: Array<'_, ibv_sge>) {
        memory(&qp, list.first(count));
    }

    /// `ibv_wr_set_inline_data`.
    fn ripstop_verbs_wr_set_inline_data(qp: ExQp<'_>, addr: *mut c_void, length: usize) {
        inline(&qp, &[ibv_data_buf { addr, length }]);
    }

    /// `ibv_wr_set_inline_data_list`.
    fn ripstop_verbs_wr_set_inline_data_list(
        qp: ExQp<'_>,
        count: usize,
        list: Array<'_, ibv_data_buf>,
    ) {
        inline(&qp, list.first(count));
    }

    /// Refused.
    fn ripstop_verbs_wr_bind_mw(
        qp: ExQp<'_>,
        _window: *mut c_void,
        _key: u32,
        _info: Array<'_, c_void>,
    ) {
        no(&qp, "ibv_wr_bind_mw: there are no memory windows");
    }

    /// Refused.
    fn ripstop_verbs_wr_local_inv(qp: ExQp<'_>, _key: u32) {
        no(&qp, "ibv_wr_local_inv: keys are not invalidated");
    }

    /// Refused.
    fn ripstop_verbs_wr_send_inv(qp: ExQp<'_>, _key: u32) {
        no(&qp, "ibv_wr_send_inv: keys are not invalidated");
    }

    /// Refused.
    fn ripstop_verbs_wr_send_tso(qp: ExQp<'_>, _header: *mut c_void, _size: u16, _mss: u16) {
        no(&qp, "ibv_wr_send_tso: there are no raw packets");
    }

    /// `ibv_wr_set_ud_addr`.
    fn ripstop_verbs_wr_set_ud_addr(qp: ExQp<'_>, ah: This<'_, Ah>, num: u32, key: u32) {
        address(&qp, ah.get(), num, key);
    }

    /// Refused.
    fn ripstop_verbs_wr_set_xrc_srqn(qp: ExQp<'_>, _num: u32) {
        no(&qp, "ibv_wr_set_xrc_srqn: there is no XRC");
    }

    /// Refused.
    fn ripstop_verbs_wr_atomic_write(
        qp: ExQp<'_>,
        _key: u32,
        _addr: u64,
        _data: Array<'_, c_void>,
    ) {
        no(&qp, "ibv_wr_atomic_write: there are atomics that fetch");
    }
}
