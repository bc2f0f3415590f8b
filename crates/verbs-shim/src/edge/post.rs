//! The fast calls, which programs reach through the context's table of functions.

use core::ffi::c_int;

use ripstop_types::{Errno, Result};

use crate::device::MAX_INLINE;
use crate::edge::args::{Must, Out, Requests, Room, datagram, gather, remote};
use crate::edge::made::{Cq, Qp};
use crate::edge::objects::named;
use crate::edge::wr::to;
use crate::edge::{exports, number};
use crate::engine::{Asked, Op};
use crate::log::{Subsys, refuse};
use crate::sys::{IBV_SEND_INLINE, ibv_recv_wr, ibv_send_wr, ibv_wc};

/// Completions that one look at a queue takes.
const BATCH: usize = 16;

/// Posts a list of requests to send. The list is left at the request that is refused.
fn post_send(qp: &Qp, list: &mut Requests<'_, ibv_send_wr>) -> Result<()> {
    let mut posting = qp.engine.posting(qp.id)?;
    while let Some((wr, sges)) = list.front() {
        let inline = match wr.send_flags & IBV_SEND_INLINE {
            0 => None,
            _ => Some(gather(sges, MAX_INLINE as usize).ok_or_else(|| {
                let why = format_args!("inline data of more than {MAX_INLINE} bytes");
                refuse(Subsys::EpData, Errno::EINVAL, why)
            })?),
        };
        let (op, operands) = Op::of(wr.opcode, wr.imm_data, &remote(wr))?;
        let to = match qp.is_ud() {
            false => None,
            true => {
                let ud = datagram(wr);
                Some(to(qp, named(ud.ah), ud.remote_qpn, ud.remote_qkey)?)
            }
        };
        posting.send(
            &Asked {
                wr_id: wr.wr_id,
                op,
                operands,
                flags: wr.send_flags,
                to,
            },
            sges,
            inline,
        )?;
        list.advance();
    }
    Ok(())
}

/// Posts a list of receives. The list is left at the one that is refused.
fn post_recv(qp: &Qp, list: &mut Requests<'_, ibv_recv_wr>) -> Result<()> {
    let mut posting = qp.engine.posting(qp.id)?;
    while let Some((wr, sges)) = list.front() {
        posting.recv(wr.wr_id, sges)?;
        list.advance();
    }
    Ok(())
}

exports! {
    /// `ibv_post_send(3)`.
    fn ripstop_verbs_post_send(
        qp: Must<'_, Qp>,
        list: Requests<'_, ibv_send_wr>,
        bad: Out<'_, *mut ibv_send_wr>,
    ) -> c_int {
        let result = post_send(&qp, &mut list);
        if result.is_err() {
            bad.set(list.at());
        }
        number(result)
    }

    /// `ibv_post_recv(3)`.
    fn ripstop_verbs_post_recv(
        qp: Must<'_, Qp>,
        list: Requests<'_, ibv_recv_wr>,
        bad: Out<'_, *mut ibv_recv_wr>,
    ) -> c_int {
        let result = post_recv(&qp, &mut list);
        if result.is_err() {
            bad.set(list.at());
        }
        number(result)
    }

    /// `ibv_poll_cq(3)`.
    fn ripstop_verbs_poll_cq(cq: Must<'_, Cq>, most: c_int, into: Room<'_, ibv_wc>) -> c_int {
        let most = usize::try_from(most).unwrap_or(0);
        let mut taken = 0;
        let mut batch = [ibv_wc::default(); BATCH];
        while taken < most {
            let want = BATCH.min(most - taken);
            let Ok(found) = cq.engine.poll(cq.id, &mut batch[..want]) else {
                return -1;
            };
            for (at, wc) in batch[..found].iter().enumerate() {
                into.write(taken + at, *wc);
            }
            taken += found;
            if found < want {
                break;
            }
        }
        taken as c_int
    }

    /// `ibv_req_notify_cq(3)`.
    fn ripstop_verbs_req_notify_cq(cq: Must<'_, Cq>, solicited_only: c_int) -> c_int {
        number(cq.engine.arm(cq.id, solicited_only != 0))
    }
}
