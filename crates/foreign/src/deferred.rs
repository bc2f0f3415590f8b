#![allow(unsafe_code)]
//! Operations that start when a counter reaches a threshold, `fi_trigger`(3).

use std::ffi::c_void;
use std::ptr;

use ripstop_abi::{
    FI_CANCEL_WORK, FI_FLUSH_WORK, FI_OP_ATOMIC, FI_OP_CNTR_ADD, FI_OP_CNTR_SET,
    FI_OP_COMPARE_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_READ, FI_OP_RECV, FI_OP_SEND, FI_OP_TRECV,
    FI_OP_TSEND, FI_OP_WRITE, FI_QUEUE_WORK, FI_TRIGGER_THRESHOLD, fi_deferred_work,
    fi_deferred_work_op, fi_msg, fi_msg_compare, fi_msg_fetch, fi_msg_rma, fi_msg_tagged,
    fi_op_atomic, fi_op_cntr, fi_op_compare_atomic, fi_op_fetch_atomic, fi_op_msg, fi_op_rma,
    fi_op_tagged, fi_op_type, fi_rma_iov, fi_trigger_threshold, fi_triggered_context2,
    fi_triggered_context2_trigger, fid, fid_cntr, fid_ep,
};
use ripstop_types::{AtomicKind, Errno, FiAddr, Flags, RmaIov};

use crate::atomic::{Args, Atomic, message};
use crate::buf::Buf;
use crate::call::{ENOSYS, op};
use crate::msg::{NONE, refused};
use crate::ops::{Kind, OpId};
use crate::payload::Parts;
use crate::payload::private::Sealed as _;
use crate::rma::MAX_REMOTE;
use crate::threading::Threading;
use crate::{Cntr, Domain, Endpoint, Error, Rejected, Result};

/// Which data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// As `fi_sendmsg`.
    Send,
    /// As `fi_recvmsg`.
    Recv,
    /// As `fi_tsendmsg`.
    Tsend,
    /// As `fi_trecvmsg`.
    Trecv,
    /// As `fi_readmsg`.
    Read,
    /// As `fi_writemsg`.
    Write,
    /// As `fi_atomicmsg` and its like.
    Atomic(AtomicKind),
}

/// A data transfer to be put off, besides its memory.
#[derive(Clone, Copy, Debug)]
pub struct Deferred<'a> {
    /// Which.
    pub transfer: Transfer,
    /// The peer.
    pub peer: FiAddr,
    /// The tag, and the bits of it that a receive ignores.
    pub tag: (u64, u64),
    /// Remote CQ data; counts with [`Flags::REMOTE_CQ_DATA`].
    pub data: u64,
    /// The peer's memory, with lengths in bytes.
    pub remote: &'a [RmaIov],
    /// Of atomics: `enum fi_datatype`, `enum fi_op`, and how many buffers are operands,
    /// comparisons, and results.
    pub atomic: Option<(u32, u32, [usize; 3])>,
    /// The flags of the call.
    pub flags: Flags,
}

/// Names deferred work, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkId(usize);

/// The operation of deferred work, by its type.
enum Op {
    Msg(fi_op_msg),
    Tagged(fi_op_tagged),
    Rma(fi_op_rma),
    Atomic(fi_op_atomic),
    Fetch(fi_op_fetch_atomic),
    Compare(fi_op_compare_atomic),
    Cntr(fi_op_cntr),
}

/// Deferred work and all it leads to. It is never freed: nobody says when the library has done
/// with it.
struct Parcel {
    parts: Parts,
    args: Option<Args>,
    places: [fi_rma_iov; MAX_REMOTE],
    op: Op,
    work: fi_deferred_work,
}

impl Parcel {
    /// Puts the work of an operation together.
    fn seal(
        parts: Parts,
        op_type: fi_op_type,
        when: (*mut fid_cntr, u64),
        done: *mut fid_cntr,
        fill: impl FnOnce(&mut Self) -> std::result::Result<(), Errno>,
    ) -> std::result::Result<&'static mut Self, Errno> {
        let parcel = Box::leak(Box::new(Self {
            parts,
            args: None,
            places: [fi_rma_iov::default(); MAX_REMOTE],
            op: Op::Cntr(fi_op_cntr::default()),
            work: fi_deferred_work {
                triggering_cntr: when.0,
                threshold: when.1,
                completion_cntr: done,
                op_type,
                ..Default::default()
            },
        }));
        fill(parcel)?;
        parcel.work.op = match &mut parcel.op {
            Op::Msg(msg) => fi_deferred_work_op { msg },
            Op::Tagged(tagged) => fi_deferred_work_op { tagged },
            Op::Rma(rma) => fi_deferred_work_op { rma },
            Op::Atomic(atomic) => fi_deferred_work_op { atomic },
            Op::Fetch(fetch_atomic) => fi_deferred_work_op { fetch_atomic },
            Op::Compare(compare_atomic) => fi_deferred_work_op { compare_atomic },
            Op::Cntr(cntr) => fi_deferred_work_op { cntr },
        };
        Ok(parcel)
    }

    fn transfer(
        &mut self,
        call: &Deferred<'_>,
        ep: *mut fid_ep,
        context: *mut c_void,
    ) -> std::result::Result<(), Errno> {
        let flags = call.flags.bits();
        let (iov, desc, count) = (
            self.parts.iov.as_ptr(),
            self.parts.desc.as_mut_ptr(),
            self.parts.count,
        );
        self.op = match call.transfer {
            Transfer::Send | Transfer::Recv => {
                let msg = fi_msg {
                    msg_iov: iov,
                    desc,
                    iov_count: count,
                    addr: call.peer.0,
                    context,
                    data: call.data,
                };
                Op::Msg(fi_op_msg { ep, msg, flags })
            }
            Transfer::Tsend | Transfer::Trecv => {
                let msg = fi_msg_tagged {
                    msg_iov: iov,
                    desc,
                    iov_count: count,
                    addr: call.peer.0,
                    tag: call.tag.0,
                    ignore: call.tag.1,
                    context,
                    data: call.data,
                };
                Op::Tagged(fi_op_tagged { ep, msg, flags })
            }
            Transfer::Read | Transfer::Write => {
                let places = self.places.get_mut(..call.remote.len());
                for (place, piece) in places.ok_or(Errno::EINVAL)?.iter_mut().zip(call.remote) {
                    (place.addr, place.len, place.key) =
                        (piece.addr, piece.len as usize, piece.key);
                }
                let msg = fi_msg_rma {
                    msg_iov: iov,
                    desc,
                    iov_count: count,
                    addr: call.peer.0,
                    rma_iov: self.places.as_ptr(),
                    rma_iov_count: call.remote.len(),
                    context,
                    data: call.data,
                };
                Op::Rma(fi_op_rma { ep, msg, flags })
            }
            Transfer::Atomic(kind) => self.atomic(kind, call, ep, context)?,
        };
        Ok(())
    }

    fn atomic(
        &mut self,
        kind: AtomicKind,
        call: &Deferred<'_>,
        ep: *mut fid_ep,
        context: *mut c_void,
    ) -> std::result::Result<Op, Errno> {
        let (datatype, op, shape) = call.atomic.ok_or(Errno::EINVAL)?;
        let flags = call.flags.bits();
        let call = Atomic {
            kind,
            datatype,
            op,
            shape,
            remote: call.remote,
            peer: call.peer,
            data: call.data,
            flags: Some(call.flags),
        };
        let args = self.args.insert(Args::new(&call, &self.parts)?);
        let msg = message(&call, args, context);
        let fetch = fi_msg_fetch {
            msg_iov: args.iocs(2),
            desc: args.descs(2),
            iov_count: shape[2],
        };
        let compare = fi_msg_compare {
            msg_iov: args.iocs(1),
            desc: args.descs(1),
            iov_count: shape[1],
        };
        Ok(match kind {
            AtomicKind::Plain => Op::Atomic(fi_op_atomic { ep, msg, flags }),
            AtomicKind::Fetch => Op::Fetch(fi_op_fetch_atomic {
                ep,
                msg,
                fetch,
                flags,
            }),
            AtomicKind::Compare => Op::Compare(fi_op_compare_atomic {
                ep,
                msg,
                fetch,
                compare,
                flags,
            }),
        })
    }
}

/// Writes into the context of an operation that is about to be posted what it waits for. The
/// context is one of the book.
pub(crate) fn arm<M: Threading>(context: *mut c_void, counter: &Cntr<M>, threshold: usize) {
    let cntr = counter.core.owned.get();
    let condition = fi_triggered_context2 {
        event_type: FI_TRIGGER_THRESHOLD,
        trigger: fi_triggered_context2_trigger {
            threshold: fi_trigger_threshold { cntr, threshold },
        },
    };
    // SAFETY: the context is a `fi_context2` of the book, which is as large, and whose
    // operation has not been posted.
    unsafe { context.cast::<fi_triggered_context2>().write(condition) };
}

fn op_type(transfer: Transfer) -> fi_op_type {
    match transfer {
        Transfer::Send => FI_OP_SEND,
        Transfer::Recv => FI_OP_RECV,
        Transfer::Tsend => FI_OP_TSEND,
        Transfer::Trecv => FI_OP_TRECV,
        Transfer::Read => FI_OP_READ,
        Transfer::Write => FI_OP_WRITE,
        Transfer::Atomic(AtomicKind::Plain) => FI_OP_ATOMIC,
        Transfer::Atomic(AtomicKind::Fetch) => FI_OP_FETCH_ATOMIC,
        Transfer::Atomic(AtomicKind::Compare) => FI_OP_COMPARE_ATOMIC,
    }
}

impl<M: Threading> Domain<M> {
    fn control(&self, command: i32, work: *mut fi_deferred_work) -> i32 {
        let fid = self.core.get().cast::<fid>();
        // SAFETY: the domain is open.
        let table = unsafe { (*fid).ops };
        match op!(table, fi_ops.control) {
            // SAFETY: as above; the argument is as the command asks, and stays.
            Some(control) => unsafe { control(fid, command, work.cast()) },
            None => ENOSYS,
        }
    }

    /// Queues work that sets the successes of a counter, or adds to them with `add`
    /// (`FI_QUEUE_WORK`), when another has come far enough.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn count_later(
        &self,
        when: (&Cntr<M>, u64),
        (counter, value): (&Cntr<M>, u64),
        add: bool,
    ) -> Result<WorkId> {
        self.keep(&[Some(when.0), Some(counter)]);
        let op_type = if add { FI_OP_CNTR_ADD } else { FI_OP_CNTR_SET };
        let at = (when.0.core.owned.get(), when.1);
        let sealed = Parcel::seal(Parts::NONE, op_type, at, ptr::null_mut(), |parcel| {
            let cntr = counter.core.owned.get();
            parcel.op = Op::Cntr(fi_op_cntr { cntr, value });
            Ok(())
        });
        let parcel = sealed.map_err(|errno| Error::new("fi_control", errno))?;
        let work = &raw mut parcel.work;
        Error::check("fi_control", self.control(FI_QUEUE_WORK, work))?;
        Ok(WorkId(work.addr()))
    }

    /// Takes back work that has not started (`FI_CANCEL_WORK`).
    ///
    /// # Errors
    ///
    /// `FI_ENOENT` when it has, and what else the library says.
    pub fn cancel_work(&self, work: WorkId) -> Result<()> {
        // The struct was leaked, so this is its address for good.
        let work = ptr::without_provenance_mut(work.0);
        Error::check("fi_control", self.control(FI_CANCEL_WORK, work))
    }

    /// Takes back all work that has not started, or that which waits for one counter
    /// (`FI_FLUSH_WORK`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn flush_work(&self, counter: Option<&Cntr<M>>) -> Result<()> {
        let mut named = fi_deferred_work::default();
        let arg = match counter {
            None => ptr::null_mut(),
            Some(counter) => {
                named.triggering_cntr = counter.core.owned.get();
                &raw mut named
            }
        };
        Error::check("fi_control", self.control(FI_FLUSH_WORK, arg))
    }

    /// Where the library is not trusted to refuse to close what its work uses, that is never
    /// closed.
    fn keep(&self, counters: &[Option<&Cntr<M>>]) {
        if self.core.guarded() {
            for counter in counters.iter().flatten() {
                std::mem::forget((*counter).clone());
            }
        }
    }
}

impl<M: Threading> Endpoint<M> {
    /// Queues a data transfer (`FI_QUEUE_WORK` of the domain) until a counter has come far
    /// enough; the end is told to `done`. The buffers come back with a completion, if the flags
    /// ask for one, and else when the domain has closed.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::sendmsg`].
    pub fn queue_work(
        &self,
        domain: &Domain<M>,
        call: &Deferred<'_>,
        when: (&Cntr<M>, u64),
        done: Option<&Cntr<M>>,
        (bufs, token): (Vec<Buf>, u64),
    ) -> std::result::Result<(OpId, WorkId), Rejected<Vec<Buf>>> {
        domain.keep(&[Some(when.0), done]);
        let parts = match bufs.parts() {
            Ok(parts) => parts,
            Err(errno) => return Err(refused("fi_control", errno, bufs)),
        };
        let gate = self.may(call, &parts);
        let (ep, at) = (self.raw(), (when.0.core.owned.get(), when.1));
        let told = done.map_or(ptr::null_mut(), |done| done.core.owned.get());
        let mut id = 0;
        let posted = self.post("fi_control", Kind::Plain, token, bufs, gate, |context| {
            let sealed = Parcel::seal(parts, op_type(call.transfer), at, told, |parcel| {
                parcel.transfer(call, ep, context)
            });
            match sealed {
                Ok(parcel) => {
                    let work = &raw mut parcel.work;
                    id = work.addr();
                    domain.control(FI_QUEUE_WORK, work) as isize
                }
                Err(errno) => -(errno.0 as isize),
            }
        });
        posted.map(|op| (op, WorkId(id)))
    }

    /// As for deferred work: a counter that the library may not be trusted with is never closed.
    pub(crate) fn keep_counter(&self, counter: &Cntr<M>) {
        if self.domain().guarded() {
            std::mem::forget(counter.clone());
        }
    }

    /// Posts a message, a receive, a read or a write with `FI_TRIGGER`: it starts when the
    /// counter has come far enough.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::sendmsg`]; `FI_EINVAL` for atomics.
    pub fn trigger(
        &self,
        call: &Deferred<'_>,
        when: (&Cntr<M>, usize),
        (bufs, token): (Vec<Buf>, u64),
    ) -> std::result::Result<OpId, Rejected<Vec<Buf>>> {
        let parts = match bufs.parts() {
            Ok(parts) => parts,
            Err(errno) => return Err(refused("fi_sendmsg", errno, bufs)),
        };
        self.keep_counter(when.0);
        let gate = self.may(call, &parts);
        let ep = self.raw();
        let flags = (call.flags | Flags::TRIGGER).bits();
        self.post("fi_sendmsg", Kind::Plain, token, bufs, gate, |context| {
            arm(context, when.0, when.1);
            let nobody = (ptr::null_mut(), 0);
            let sealed = Parcel::seal(parts, FI_OP_SEND, nobody, ptr::null_mut(), |parcel| {
                parcel.transfer(call, ep, context)
            });
            match sealed {
                Ok(parcel) => self.post_with(call.transfer, &parcel.op, flags),
                Err(errno) => -(errno.0 as isize),
            }
        })
    }

    fn post_with(&self, transfer: Transfer, operation: &Op, flags: u64) -> isize {
        let ep = self.raw();
        // SAFETY: the endpoint is open.
        let fid_ep {
            msg: msgs,
            tagged,
            rma,
            ..
        } = unsafe { *ep };
        match operation {
            Op::Msg(call) => {
                let found = match transfer {
                    Transfer::Recv => op!(msgs, fi_ops_msg.recvmsg),
                    _ => op!(msgs, fi_ops_msg.sendmsg),
                };
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                found.map_or(NONE, |post| unsafe { post(ep, &raw const call.msg, flags) })
            }
            Op::Tagged(call) => {
                let found = match transfer {
                    Transfer::Trecv => op!(tagged, fi_ops_tagged.recvmsg),
                    _ => op!(tagged, fi_ops_tagged.sendmsg),
                };
                // SAFETY: as above.
                found.map_or(NONE, |post| unsafe { post(ep, &raw const call.msg, flags) })
            }
            Op::Rma(call) => {
                let found = match transfer {
                    Transfer::Read => op!(rma, fi_ops_rma.readmsg),
                    _ => op!(rma, fi_ops_rma.writemsg),
                };
                // SAFETY: as above.
                found.map_or(NONE, |post| unsafe { post(ep, &raw const call.msg, flags) })
            }
            _ => -(Errno::EINVAL.0 as isize),
        }
    }

    /// Whether this may be posted.
    fn may(&self, call: &Deferred<'_>, parts: &Parts) -> std::result::Result<(), Errno> {
        let mut op = parts.op(call.flags);
        if let Some((_, _, shape)) = call.atomic {
            op.parts = shape[0];
        }
        match call.transfer {
            Transfer::Recv | Transfer::Trecv => self.may_receive(op, call.peer),
            _ => self.may_transmit(op, call.peer),
        }
    }
}
