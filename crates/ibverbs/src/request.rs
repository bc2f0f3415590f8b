//! Work requests.

use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Result};

use crate::ah::Destination;
use crate::sys::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_recv_wr, ibv_send_wr,
    ibv_send_wr_atomic, ibv_send_wr_rdma, ibv_send_wr_remote, ibv_send_wr_ud, ibv_sge,
};

/// A piece of registered memory that a request reads or writes.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Sge(ibv_sge);

impl Sge {
    /// A caller's buffer, in the region whose local key is `lkey`. Data that is sent inline needs no
    /// region.
    ///
    /// # Errors
    /// [`Errno::EMSGSIZE`] for 4 GiB and more.
    #[inline]
    pub fn new(buf: UserBuf, lkey: u32) -> Result<Self> {
        let length = u32::try_from(buf.len()).map_err(|_| Errno::EMSGSIZE)?;
        // The device, or the driver for inline data, uses the address as a pointer.
        let addr = buf.as_ptr().expose_provenance() as u64;
        Ok(Self(ibv_sge { addr, length, lkey }))
    }

    /// Memory at an address that is in the region with this key. `None` for 4 GiB and more.
    pub(crate) fn at(addr: usize, len: usize, lkey: u32) -> Option<Self> {
        let (addr, length) = (addr as u64, u32::try_from(len).ok()?);
        Some(Self(ibv_sge { addr, length, lkey }))
    }
}

impl fmt::Debug for Sge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ibv_sge { addr, length, lkey } = self.0;
        write!(f, "Sge({addr:#x}, {length} B, key {lkey:#x})")
    }
}

/// Memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Where it starts.
    pub addr: u64,
    /// The key of its region.
    pub key: u32,
}

/// What a request to send does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message, with immediate data or without.
    Send(Option<u32>),
    /// Writes memory of the peer; with immediate data this uses up a receive of it.
    Write(Remote, Option<u32>),
    /// Reads memory of the peer.
    Read(Remote),
    /// Adds to 64 bits of the peer's memory, and gets what was there.
    FetchAdd(Remote, u64),
    /// Replaces 64 bits of the peer's memory if they are the first number, and gets what was there.
    CompareSwap(Remote, u64, u64),
}

bitflags::bitflags! {
    /// How a request is carried out (`enum ibv_send_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// Not before all reads and atomics in front of it are done.
        const FENCE = IBV_SEND_FENCE;
        /// Its success is a completion. A failure always is.
        const SIGNALED = IBV_SEND_SIGNALED;
        /// Its arrival is reported to those that asked for such messages only.
        const SOLICITED = IBV_SEND_SOLICITED;
        /// The bytes are copied when it is posted, so the memory is free at once and need not be
        /// registered; at most as many as the queue pair takes.
        const INLINE = IBV_SEND_INLINE;
    }
}

/// A request to send, write, read, or for an atomic (`struct ibv_send_wr`).
#[repr(transparent)]
pub struct SendRequest<'a> {
    pub(crate) raw: ibv_send_wr,
    _memory: PhantomData<&'a [Sge]>,
}

impl<'a> SendRequest<'a> {
    /// A request whose completion has `id`. The pieces of `memory` are read, or written by reads and
    /// atomics; each is used until the completion, or until the request after it has completed.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more pieces than any device takes.
    #[inline]
    pub fn new(id: u64, operation: Operation, memory: &'a [Sge], flags: SendFlags) -> Result<Self> {
        let (opcode, immediate) = match operation {
            Operation::Send(None) => (IBV_WR_SEND, None),
            Operation::Send(data) => (IBV_WR_SEND_WITH_IMM, data),
            Operation::Write(_, None) => (IBV_WR_RDMA_WRITE, None),
            Operation::Write(_, data) => (IBV_WR_RDMA_WRITE_WITH_IMM, data),
            Operation::Read(_) => (IBV_WR_RDMA_READ, None),
            Operation::FetchAdd(..) => (IBV_WR_ATOMIC_FETCH_AND_ADD, None),
            Operation::CompareSwap(..) => (IBV_WR_ATOMIC_CMP_AND_SWP, None),
        };
        Ok(Self {
            raw: ibv_send_wr {
                wr_id: id,
                next: ptr::null_mut(),
                // Never written by the library.
                sg_list: memory.as_ptr().cast_mut().cast(),
                num_sge: c_int::try_from(memory.len()).map_err(|_| Errno::EINVAL)?,
                opcode,
                send_flags: flags.bits(),
                imm_data: immediate.unwrap_or(0).to_be(),
                wr: remote(operation),
                qp_type: 0,
                bind_mw: [0; 6],
            },
            _memory: PhantomData,
        })
    }

    /// Addresses a message, as those of a datagram queue pair have to be. Of what is no message it changes nothing.
    #[must_use]
    #[inline]
    pub fn to(mut self, destination: Destination<'a>) -> Self {
        if self.is_message() {
            self.raw.wr.ud = ibv_send_wr_ud {
                ah: destination.handle.raw(),
                remote_qpn: destination.qp,
                remote_qkey: destination.qkey,
            };
        }
        self
    }

    pub(crate) fn is_message(&self) -> bool {
        matches!(self.raw.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM)
    }

    /// The number it was made with.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.raw.wr_id
    }
}

impl fmt::Debug for SendRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SendRequest({}, opcode {})",
            self.raw.wr_id, self.raw.opcode
        )
    }
}

/// What an operation says of the peer's memory.
#[inline]
fn remote(operation: Operation) -> ibv_send_wr_remote {
    let (at, compare_add, swap) = match operation {
        Operation::Send(_) => {
            return ibv_send_wr_remote {
                atomic: ibv_send_wr_atomic {
                    remote_addr: 0,
                    compare_add: 0,
                    swap: 0,
                    rkey: 0,
                },
            };
        }
        Operation::Write(at, _) | Operation::Read(at) => {
            return ibv_send_wr_remote {
                rdma: ibv_send_wr_rdma {
                    remote_addr: at.addr,
                    rkey: at.key,
                },
            };
        }
        Operation::FetchAdd(at, add) => (at, add, 0),
        Operation::CompareSwap(at, compare, swap) => (at, compare, swap),
    };
    ibv_send_wr_remote {
        atomic: ibv_send_wr_atomic {
            remote_addr: at.addr,
            compare_add,
            swap,
            rkey: at.key,
        },
    }
}

/// A receive (`struct ibv_recv_wr`).
#[repr(transparent)]
pub struct RecvRequest<'a> {
    pub(crate) raw: ibv_recv_wr,
    _memory: PhantomData<&'a [Sge]>,
}

impl<'a> RecvRequest<'a> {
    /// A receive whose completion has `id`, into the pieces of `memory`, which are used until then.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more pieces than any device takes.
    #[inline]
    pub fn new(id: u64, memory: &'a [Sge]) -> Result<Self> {
        Ok(Self {
            raw: ibv_recv_wr {
                wr_id: id,
                next: ptr::null_mut(),
                // Never written by the library.
                sg_list: memory.as_ptr().cast_mut().cast(),
                num_sge: c_int::try_from(memory.len()).map_err(|_| Errno::EINVAL)?,
            },
            _memory: PhantomData,
        })
    }

    /// The same into one piece.
    #[inline]
    #[must_use]
    pub const fn one(id: u64, memory: &'a Sge) -> Self {
        Self {
            raw: ibv_recv_wr {
                wr_id: id,
                next: ptr::null_mut(),
                sg_list: ptr::from_ref(memory).cast_mut().cast(),
                num_sge: 1,
            },
            _memory: PhantomData,
        }
    }

    /// The number it was made with.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.raw.wr_id
    }
}

impl fmt::Debug for RecvRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvRequest({})", self.raw.wr_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_what_they_do() {
        let memory = [Sge::default(); 3];
        let at = Remote { addr: 64, key: 9 };
        let with_data = Operation::Write(at, Some(0x0102_0304));
        let request = SendRequest::new(5, with_data, &memory, SendFlags::SIGNALED).expect("made");
        assert_eq!(request.raw.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
        assert_eq!(request.raw.num_sge, 3);
        assert_eq!(request.raw.send_flags, IBV_SEND_SIGNALED);
        assert_eq!(request.raw.imm_data.to_ne_bytes(), [1, 2, 3, 4]);
        let plain =
            SendRequest::new(5, Operation::Send(None), &[], SendFlags::INLINE).expect("made");
        assert_eq!((plain.raw.opcode, plain.raw.num_sge), (IBV_WR_SEND, 0));
        let receive = RecvRequest::new(6, &memory).expect("made");
        assert_eq!((receive.id(), receive.raw.num_sge), (6, 3));
    }
}
