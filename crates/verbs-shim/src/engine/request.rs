//! Requests of a queue pair, and the messages that end receives.

use ripstop_mem::Parked;

use crate::consts::{
    IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_SEND,
};
use crate::device::MAX_MSG;
use crate::engine::mr::Sges;
use crate::net::Atomic;
/// Bits of a tag that say what comes with a message.
pub(super) const MARKS: u64 = 0xffff;
/// It has immediate data.
pub(super) const IMM: u64 = 1;
/// It tells of a write, whose length is beside the immediate data.
pub(super) const WRITTEN: u64 = 2;
/// The receiver wants to be told (`IBV_SEND_SOLICITED`).
pub(super) const SOLICITED: u64 = 4;

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

impl Op {
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
