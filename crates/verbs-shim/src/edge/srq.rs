//! Shared receive queues.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ripstop_types::Result;

use crate::edge::args::{Changed, Must, Object as _, Out, Requests, Take};
use crate::edge::made::{Pd, Srq};
use crate::edge::objects::pointer;
use crate::edge::{exports, number, or_null, refused};
use crate::engine::srq::SrqCap;
use crate::sys::{
    IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};

/// Creates a shared receive queue; `attr` becomes what it has.
pub(crate) fn create_srq(
    pd: &Pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq> {
    let engine = Arc::clone(&pd.engine);
    let cap = SrqCap {
        max_wr: attr.max_wr,
        max_sge: attr.max_sge,
    };
    let id = engine.create_srq(pd.c.handle, cap)?;
    attr.srq_limit = 0;
    let c = ibv_srq {
        context: pd.c.context,
        srq_context,
        pd: pointer(pd),
        handle: id as u32,
        mutex_and_cond: [0; 11],
        events_completed: 0,
    };
    Ok(Srq { c, engine, id }.give())
}

/// Destroys a shared receive queue.
pub(crate) fn destroy_srq(srq: Take<Srq>) -> Result<()> {
    srq.engine.destroy_srq(srq.id)?;
    drop(srq.take());
    Ok(())
}

/// Changes a shared receive queue.
fn modify_srq(srq: &Srq, attr: &ibv_srq_attr, mask: c_int) -> Result<()> {
    if mask & IBV_SRQ_LIMIT != 0 && attr.srq_limit != 0 {
        return refused::why(
            "ibv_modify_srq: a limit is told by an asynchronous event, and there are none",
        );
    }
    if mask & IBV_SRQ_MAX_WR != 0 {
        srq.engine.resize_srq(srq.id, attr.max_wr)?;
    }
    Ok(())
}

exports! {
    /// `ibv_create_srq(3)`.
    fn ibv_create_srq(pd: Must<'_, Pd>, init: Changed<'_, ibv_srq_init_attr>) -> *mut ibv_srq {
        or_null(init.get().and_then(|init| create_srq(&pd, init.srq_context, &mut init.attr)))
    }

    /// `ibv_modify_srq(3)`.
    fn ibv_modify_srq(srq: Must<'_, Srq>, attr: Changed<'_, ibv_srq_attr>, mask: c_int) -> c_int {
        number(attr.get().and_then(|attr| modify_srq(&srq, attr, mask)))
    }

    /// `ibv_query_srq(3)`.
    fn ibv_query_srq(srq: Must<'_, Srq>, attr: Out<'_, ibv_srq_attr>) -> c_int {
        number(srq.engine.query_srq(srq.id).map(|cap| {
            attr.set(ibv_srq_attr {
                max_wr: cap.max_wr,
                max_sge: cap.max_sge,
                srq_limit: 0,
            });
        }))
    }

    /// `ibv_destroy_srq(3)`.
    fn ibv_destroy_srq(srq: Take<Srq>) -> c_int {
        number(destroy_srq(srq))
    }

    /// `ibv_post_srq_recv(3)`.
    fn ripstop_verbs_post_srq_recv(
        srq: Must<'_, Srq>,
        list: Requests<'_, ibv_recv_wr>,
        bad: Out<'_, *mut ibv_recv_wr>,
    ) -> c_int {
        // The one that was given last is the one that is refused.
        let mut last = list.at();
        let result = srq.engine.post_srq(srq.id, || {
            last = list.at();
            let (wr, sges) = list.front()?;
            list.advance();
            Some((wr.wr_id, sges))
        });
        if result.is_err() {
            bad.set(last);
        }
        number(result)
    }
}
