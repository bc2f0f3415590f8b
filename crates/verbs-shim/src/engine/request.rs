//! Requests of a queue pair, and the messages that end receives.

use std::net::IpAddr;

use ripstop_mem::Parked;
use ripstop_types::{Errno, Result};

use crate::device::MAX_MSG;
use crate::engine::mr::Sges;
use crate::log::{Subsys, refuse};
use crate::net::Atomic;
use crate::sys::{
    IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_SEND,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
};
/// Bits of a tag that say what comes with a message.
pub(super) const MARKS: u64 = 0xffff;
/// It has immediate data.
pub(super) const IMM: u64 = 1;
/// It tells of a write, whose length is beside the immediate data.
pub(super) const WRITTEN: u64 = 2;
/// The receiver wants to be told (`IBV_SEND_SOLICITED`).
pub(super) const SOLICITED: u64 = 4;
/// It is a datagram.
pub(super) const DATAGRAM: u64 = 8;

/// What a request to send does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Send {
        imm: Option<u32>,
    },
    Write {
        addr: u64,
        key: u32,
        imm: Option<u32>,
    },
    Read {
        addr: u64,
        key: u32,
    },
    Atomic {
        op: Atomic,
        addr: u64,
        key: u32,
    },
}

/// What a request names of the peer's memory, with the operands of an atomic.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) key: u32,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
}

/// Where a datagram goes, and with which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct To {
    pub(crate) ip: IpAddr,
    pub(crate) num: u32,
    pub(crate) key: u32,
}

/// A request to send as a program asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) wr_id: u64,
    pub(crate) op: Op,
    /// Of an atomic: the operand, and what it is compared with.
    pub(crate) operands: [u64; 2],
    /// Of `enum ibv_send_flags`.
    pub(crate) flags: u32,
    /// Where a datagram goes.
    pub(crate) to: Option<To>,
}

impl Op {
    /// What a request of this `enum ibv_wr_opcode` does, and the operands of an atomic.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for one that this device does not do.
    pub(crate) fn of(opcode: i32, imm: u32, remote: &Remote) -> Result<(Self, [u64; 2])> {
        let Remote { addr, key, .. } = *remote;
        let write = |imm| Self::Write { addr, key, imm };
        let atomic = |op, operands| (Self::Atomic { op, addr, key }, operands);
        let op = match opcode {
            IBV_WR_SEND => Self::Send { imm: None },
            IBV_WR_SEND_WITH_IMM => Self::Send { imm: Some(imm) },
            IBV_WR_RDMA_WRITE => write(None),
            IBV_WR_RDMA_WRITE_WITH_IMM => write(Some(imm)),
            IBV_WR_RDMA_READ => Self::Read { addr, key },
            IBV_WR_ATOMIC_CMP_AND_SWP => {
                let operands = [remote.swap, remote.compare_add];
                return Ok(atomic(Atomic::CompareSwap, operands));
            }
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                return Ok(atomic(Atomic::FetchAdd, [remote.compare_add, 0]));
            }
            other => {
                let why = format_args!(
                    "opcode {other}: there are sends, writes, reads, and atomics on 8 bytes"
                );
                return Err(refuse(Subsys::EpData, Errno::EOPNOTSUPP, why));
            }
        };
        Ok((op, [0; 2]))
    }

    /// Its `enum ibv_wc_opcode`.
    pub(super) const fn code(self) -> i32 {
        match self {
            Self::Send { .. } => IBV_WC_SEND,
            Self::Write { .. } => IBV_WC_RDMA_WRITE,
            Self::Read { .. } => IBV_WC_RDMA_READ,
            Self::Atomic { op, .. } => match op {
                Atomic::FetchAdd => IBV_WC_FETCH_ADD,
                Atomic::CompareSwap => IBV_WC_COMP_SWAP,
            },
        }
    }

    /// Whether a fence waits for it.
    pub(super) const fn fetches(self) -> bool {
        matches!(self, Self::Read { .. } | Self::Atomic { .. })
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The provider does not have it.
    Waiting,
    /// Its write is under way, and the message that tells of it follows: a peer must not be told of a
    /// write that is refused.
    Writing,
    /// Its write is done.
    Written,
    /// The provider has all of it.
    Posted,
    /// It has succeeded.
    Done,
}

/// A request to send.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) wr_id: u64,
    pub(crate) op: Op,
    pub(crate) signaled: bool,
    pub(crate) fence: bool,
    pub(crate) solicited: bool,
    /// The memory, or the status of a request that names none.
    pub(crate) sges: core::result::Result<Sges, i32>,
    /// Inline data, or the operands of an atomic.
    pub(crate) lent: Option<Parked>,
    /// Where a datagram goes.
    pub(crate) to: Option<To>,
    pub(super) stage: Stage,
}

impl Send {
    pub(crate) fn new(wr_id: u64, op: Op) -> Self {
        Self {
            wr_id,
            op,
            signaled: false,
            fence: false,
            solicited: false,
            sges: Ok(Sges::NONE),
            lent: None,
            to: None,
            stage: Stage::Waiting,
        }
    }

    /// Bytes that it moves.
    pub(super) fn len(&self) -> u64 {
        match (&self.op, &self.lent, &self.sges) {
            (Op::Atomic { .. }, _, _) => 8,
            (_, Some(inline), _) => inline.buf().len() as u64,
            (_, None, Ok(sges)) => sges.len(),
            (_, None, Err(_)) => 0,
        }
    }
}

/// A posted receive.
#[derive(Debug)]
pub(crate) struct Recv {
    pub(crate) wr_id: u64,
    /// The memory, or the status of a request that names none.
    pub(crate) sges: core::result::Result<Sges, i32>,
    /// What came, once something did.
    pub(super) came: Option<Came>,
}

impl Recv {
    pub(crate) fn new(wr_id: u64, sges: core::result::Result<Sges, i32>) -> Self {
        Self {
            wr_id,
            sges,
            came: None,
        }
    }
}

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub(super) marks: u64,
    pub(super) len: usize,
    pub(super) data: u64,
}

impl Came {
    /// Bytes of the message, or of the write that it tells of.
    pub(super) fn bytes(self) -> u64 {
        match self.marks & WRITTEN {
            0 => self.len as u64,
            _ => self.data >> 32,
        }
    }

    /// Whether a peer sends such a message: one that tells of a write is empty.
    pub(super) fn is_possible(self) -> bool {
        self.marks & WRITTEN == 0 || (self.len == 0 && self.bytes() <= MAX_MSG)
    }
}
