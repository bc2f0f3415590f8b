//! What a connection says of its queue pair.

use ripstop_types::{Errno, Result};

use crate::cm::State;
use crate::sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE,
    IBV_QP_TIMEOUT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, RDMA_UDP_QKEY, ibv_qp_attr,
};

/// Attributes that take a queue pair of datagrams to a state.
pub(super) fn of_datagrams(to: i32) -> Result<(ibv_qp_attr, i32)> {
    let mask = match to {
        IBV_QPS_INIT => IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
        IBV_QPS_RTR => 0,
        IBV_QPS_RTS => IBV_QP_SQ_PSN,
        _ => return Err(Errno::EINVAL),
    };
    let attr = ibv_qp_attr {
        qp_state: to,
        port_num: 1,
        qkey: RDMA_UDP_QKEY,
        ..ibv_qp_attr::default()
    };
    Ok((attr, mask | IBV_QP_STATE))
}

/// Attributes that take a connected queue pair to a state.
pub(super) fn attributes(id: &State, to: i32) -> Result<(ibv_qp_attr, i32)> {
    let mut attr = ibv_qp_attr {
        qp_state: to,
        port_num: 1,
        // IBV_MTU_4096
        path_mtu: 5,
        max_rd_atomic: id.param.terms.initiator_depth,
        max_dest_rd_atomic: id.param.terms.responder_resources,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        dest_qp_num: id.remote.1,
        ..ibv_qp_attr::default()
    };
    (
        attr.ah_attr.dgid,
        attr.ah_attr.is_global,
        attr.ah_attr.port_num,
    ) = (id.remote.0, 1, 1);
    let mask = match to {
        IBV_QPS_INIT => IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        IBV_QPS_RTR => {
            IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER
        }
        IBV_QPS_RTS => {
            IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok((attr, mask | IBV_QP_STATE))
}

/// Connects the queue pair of an id, if it has one; returns whether it has.
pub(super) fn to_rts(id: &State) -> Result<bool> {
    let Some(qp) = &id.qp else {
        return Ok(false);
    };
    for to in [IBV_QPS_RTR, IBV_QPS_RTS] {
        let (attr, mask) = attributes(id, to)?;
        qp.engine.modify_qp(qp.id, &attr, mask)?;
    }
    Ok(true)
}
