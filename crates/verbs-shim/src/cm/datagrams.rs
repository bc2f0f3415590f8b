//! Ids of datagrams (`RDMA_PS_UDP`): a request is answered with the queue pair that datagrams go to, and nothing is left of
//! it then.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use ripstop_types::Errno;

use crate::cm::wire::{Frame, Param};
use crate::cm::{Id, NOBODY, Phase};
use crate::log::{self, Subsys};
use crate::sys::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_UNREACHABLE, RDMA_UDP_QKEY, ibv_gid,
};

/// Status where nobody listens: `IB_SIDR_UNSUPPORTED`.
const UNSUPPORTED: i32 = 1;

/// Status of a rejection: `IB_SIDR_REJECT`.
const REJECT: i32 = 2;

/// What ids are for: the port space that they are created in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// `RDMA_PS_TCP`.
    Connections,
    /// `RDMA_PS_UDP`.
    Datagrams,
}

impl Space {
    /// That of who has sent these parameters.
    pub(super) const fn of(param: &Param) -> Self {
        match param.qkey {
            None => Self::Connections,
            Some(_) => Self::Datagrams,
        }
    }

    /// The key of queue pairs.
    pub(super) const fn key(self) -> Option<u32> {
        match self {
            Self::Connections => None,
            Self::Datagrams => Some(RDMA_UDP_QKEY),
        }
    }
}

impl Id {
    /// The device and the queue pair of its peer.
    pub(crate) fn remote(&self) -> (ibv_gid, u32) {
        self.state.lock().remote
    }

    /// Tells the program that nobody wants its request; `reason` is that of connections.
    pub(super) fn tell_refusal(self: &Arc<Self>, reason: i32, param: Param) {
        match self.space {
            Space::Connections => self.tell(RDMA_CM_EVENT_REJECTED, reason, param),
            Space::Datagrams => {
                let status = if reason == NOBODY {
                    UNSUPPORTED
                } else {
                    REJECT
                };
                self.tell(RDMA_CM_EVENT_UNREACHABLE, status, param);
            }
        }
    }

    /// The peer has said where datagrams go.
    pub(super) fn told_where(self: Arc<Self>, stream: &TcpStream, reply: Frame) {
        let _ = stream.shutdown(Shutdown::Both);
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Asking {
                // The program has destroyed the id.
                return;
            }
            state.remote = (reply.gid, reply.param.qp_num);
            state.phase = Phase::Ended;
        }
        if reply.kind != self.engine.choice.kind || Space::of(&reply.param) != self.space {
            let why = format_args!("a peer answers a request for datagrams with {reply:?}");
            log::warn(Subsys::EpCtrl, why);
            self.tell(
                RDMA_CM_EVENT_CONNECT_ERROR,
                -Errno::EPROTO.0,
                Param::default(),
            );
            return;
        }
        self.tell(RDMA_CM_EVENT_ESTABLISHED, 0, reply.param);
    }
}
