#![allow(unsafe_code)]
//! Operations that start when a counter reaches a threshold, `fi_trigger`(3).

use std::ffi::c_void;
use std::ptr;

use ripstop_abi::{
    FI_CANCEL_WORK, FI_FLUSH_WORK, FI_OP_ATOMIC, FI_OP_CNTR_ADD, FI_OP_CNTR_SET,
    FI_OP_COMPARE_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_READ, FI_OP_RECV, FI_OP_SEND, FI_OP_TRECV,
    FI_OP_TSEND, FI_OP_WRITE, FI_QUEUE_WORK, fi_deferred_work, fi_deferred_work_op, fi_msg_compare,
    fi_msg_fetch, fi_op_atomic, fi_op_cntr, fi_op_compare_atomic, fi_op_fetch_atomic, fi_op_msg,
    fi_op_rma, fi_op_tagged, fi_op_type, fid_cntr, fid_ep,
};
use ripstop_core::provider::{
    AtomicCall, DataCall, RecvKind, RmaCall, SendKind, Threshold, Token, Work, WorkOp,
};
use ripstop_mem::UserBuf;
use ripstop_types::{AtomicKind, Context, Errno, Flags};

use crate::atomic::{Args, Atomic};
use crate::call::{self, calls};
use crate::ops::{Kind, arm};
use crate::payload::Parts;
use crate::rma::Places;
use crate::threading::{Lock as _, Threading};
use crate::{Domain, Endpoint, Error, Result, atomic, msg, rma, tagged};

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
    places: Places,
    op: Op,
    work: fi_deferred_work,
}

/// The context of a transfer, and its flags.
fn asked(call: &DataCall<'_>) -> (Context, Flags) {
    let (context, flags, data) = match call {
        DataCall::Send {
            context,
            flags,
            data,
            ..
        } => (*context, *flags, data.is_some()),
        DataCall::Recv { context, flags, .. } => (*context, *flags, false),
        DataCall::Read(
            _,
            RmaCall {
                context,
                flags,
                data,
                ..
            },
        )
        | DataCall::Write(
            _,
            RmaCall {
                context,
                flags,
                data,
                ..
            },
        )
        | DataCall::Atomic(
            _,
            AtomicCall {
                context,
                flags,
                data,
                ..
            },
        ) => (*context, flags.unwrap_or_default(), data.is_some()),
        DataCall::Collective(_, call) => (call.context, call.flags.unwrap_or_default(), false),
    };
    let with_data = data.then_some(Flags::REMOTE_CQ_DATA);
    (context, flags | with_data.unwrap_or_default())
}

fn op_type(call: &DataCall<'_>) -> fi_op_type {
    match call {
        DataCall::Send {
            kind: SendKind::Msg,
            ..
        } => FI_OP_SEND,
        DataCall::Send {
            kind: SendKind::Tagged(_),
            ..
        } => FI_OP_TSEND,
        DataCall::Recv {
            kind: RecvKind::Msg,
            ..
        } => FI_OP_RECV,
        DataCall::Recv {
            kind: RecvKind::Tagged { .. },
            ..
        } => FI_OP_TRECV,
        DataCall::Read(..) => FI_OP_READ,
        DataCall::Write(..) => FI_OP_WRITE,
        DataCall::Atomic(_, call) => match call.kind {
            AtomicKind::Plain => FI_OP_ATOMIC,
            AtomicKind::Fetch => FI_OP_FETCH_ATOMIC,
            AtomicKind::Compare => FI_OP_COMPARE_ATOMIC,
        },
        // The callers refuse it.
        DataCall::Collective(..) => fi_op_type::MAX,
    }
}

impl Parcel {
    /// Puts the work of an operation together.
    fn seal(
        op_type: fi_op_type,
        when: (*mut fid_cntr, u64),
        done: *mut fid_cntr,
        fill: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<&'static mut Self> {
        let parcel = Box::leak(Box::new(Self {
            parts: Parts::NONE,
            args: None,
            places: Places::default(),
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

    /// Fills in a transfer by an endpoint.
    fn transfer(
        &mut self,
        name: &'static str,
        call: &DataCall<'_>,
        ep: *mut fid_ep,
        context: *mut c_void,
    ) -> Result<()> {
        let flags = asked(call).1.bits();
        let iov = match call {
            DataCall::Send { iov, .. } | DataCall::Recv { iov, .. } => *iov,
            DataCall::Read(iov, _) | DataCall::Write(iov, _) => iov,
            DataCall::Atomic(..) | DataCall::Collective(..) => &[],
        };
        self.parts = Parts::new(name, &[iov])?;
        let parts = &mut self.parts;
        self.op = match call {
            DataCall::Send {
                kind, data, dest, ..
            } => match kind {
                SendKind::Msg => {
                    let msg = msg::message(parts, *dest, data.unwrap_or(0), context);
                    Op::Msg(fi_op_msg { ep, msg, flags })
                }
                SendKind::Tagged(tag) => {
                    let tag = (*tag, 0);
                    let msg = tagged::message(parts, *dest, tag, data.unwrap_or(0), context);
                    Op::Tagged(fi_op_tagged { ep, msg, flags })
                }
            },
            DataCall::Recv { kind, src, .. } => match kind {
                RecvKind::Msg => {
                    let msg = msg::message(parts, *src, 0, context);
                    Op::Msg(fi_op_msg { ep, msg, flags })
                }
                RecvKind::Tagged { tag, ignore } => {
                    let msg = tagged::message(parts, *src, (*tag, *ignore), 0, context);
                    Op::Tagged(fi_op_tagged { ep, msg, flags })
                }
            },
            DataCall::Read(_, asked) | DataCall::Write(_, asked) => {
                self.places = rma::places(name, asked.remote)?;
                let msg = rma::message(parts, &self.places, asked, context);
                Op::Rma(fi_op_rma { ep, msg, flags })
            }
            DataCall::Atomic(operand, asked) => self.atomic(operand, asked, ep, context)?,
            DataCall::Collective(..) => return Err(Error::new(name, Errno::ENOSYS)),
        };
        Ok(())
    }

    fn atomic(
        &mut self,
        operand: &[UserBuf],
        call: &AtomicCall<'_>,
        ep: *mut fid_ep,
        context: *mut c_void,
    ) -> Result<Op> {
        let flags = asked(&DataCall::Atomic(operand, *call)).1.bits();
        let groups = [operand, call.compare, call.result];
        let asked = Atomic::from(call);
        let args = self.args.insert(Args::new(&asked, groups)?);
        let msg = atomic::message(&asked, args, context);
        let fetch = fi_msg_fetch {
            msg_iov: args.iocs(2),
            desc: args.descs(2),
            iov_count: call.result.len(),
        };
        let compare = fi_msg_compare {
            msg_iov: args.iocs(1),
            desc: args.descs(1),
            iov_count: call.compare.len(),
        };
        Ok(match call.kind {
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

impl<M: Threading> Domain<M> {
    fn work(&self, command: i32, work: *mut fi_deferred_work) -> Result<()> {
        // SAFETY: the domain is open; the argument is as the command asks, and stays.
        unsafe { call::control(self.owned.fid(), command, work.cast()) }
    }

    /// Queues work (`FI_QUEUE_WORK`).
    pub(crate) fn queue(&self, work: &Work<'_, Self>) -> Result<()> {
        match work.op {
            WorkOp::Set(to, value) => self.queue_change(work, FI_OP_CNTR_SET, to, value),
            WorkOp::Add(to, value) => self.queue_change(work, FI_OP_CNTR_ADD, to, value),
            WorkOp::Data { ep, call, done } => {
                let done = done.map_or(ptr::null_mut(), |done| done.owned.get());
                self.queue_transfer(work, ep, &call, done)
            }
            WorkOp::SharedRecv { srx, call, done } => {
                let done = done.map_or(ptr::null_mut(), |done| done.owned.get());
                self.queue_transfer(work, srx.context(), &call, done)
            }
        }
    }

    fn queue_change(
        &self,
        work: &Work<'_, Self>,
        op_type: fi_op_type,
        to: &crate::Counter<M>,
        value: u64,
    ) -> Result<()> {
        let when = (work.when.counter.owned.get(), work.when.value);
        let parcel = Parcel::seal(op_type, when, ptr::null_mut(), |parcel| {
            let cntr = to.owned.get();
            parcel.op = Op::Cntr(fi_op_cntr { cntr, value });
            Ok(())
        })?;
        self.queue_parcel(work.token, parcel)
    }

    fn queue_transfer(
        &self,
        work: &Work<'_, Self>,
        ep: &Endpoint<M>,
        call: &DataCall<'_>,
        done: *mut fid_cntr,
    ) -> Result<()> {
        const CALL: &str = "fi_control";
        let when = (work.when.counter.owned.get(), work.when.value);
        ep.post(CALL, Kind::Plain, asked(call).0, |context| {
            let sealed = Parcel::seal(op_type(call), when, done, |parcel| {
                parcel.transfer(CALL, call, ep.raw(), context)
            });
            let queued = sealed.and_then(|parcel| self.queue_parcel(work.token, parcel));
            queued.map_or_else(Error::code, |()| 0)
        })
    }

    fn queue_parcel(&self, token: Token, parcel: &'static mut Parcel) -> Result<()> {
        let work = &raw mut parcel.work;
        self.work(FI_QUEUE_WORK, work)?;
        self.works.with(|works| works.push((token, work.addr())));
        Ok(())
    }

    /// Takes back work that has not started (`FI_CANCEL_WORK`).
    pub(crate) fn cancel_all(&self, token: Token) -> Result<()> {
        let named = |works: &mut Vec<(Token, usize)>| {
            let named = works.iter().filter(|(name, _)| *name == token);
            named.map(|(_, at)| *at).collect::<Vec<_>>()
        };
        let mut done = Err(Error::new("fi_control", Errno::ENOENT));
        for work in self.works.with(named) {
            // The struct was leaked, so this is its address for good.
            let cancelled = self.work(FI_CANCEL_WORK, ptr::without_provenance_mut(work));
            done = done.or(cancelled);
        }
        done
    }

    /// Takes back all work that has not started, or that which waits for one counter
    /// (`FI_FLUSH_WORK`).
    pub(crate) fn flush(&self, counter: Option<&crate::Counter<M>>) -> Result<()> {
        let mut named = fi_deferred_work::default();
        let arg = match counter {
            None => ptr::null_mut(),
            Some(counter) => {
                named.triggering_cntr = counter.owned.get();
                &raw mut named
            }
        };
        self.work(FI_FLUSH_WORK, arg)
    }
}

impl<M: Threading> Endpoint<M> {
    /// Posts a message, a receive, a read, a write or a collective operation with `FI_TRIGGER`. It
    /// needs memory at its context.
    pub(crate) fn post_triggered(
        &self,
        call: &DataCall<'_>,
        when: Threshold<'_, Domain<M>>,
    ) -> Result<()> {
        const CALL: &str = "fi_sendmsg";
        if self.domain().unbooked {
            return Err(Error::new(CALL, Errno::EOPNOTSUPP));
        }
        if let DataCall::Collective(pair, call) = call {
            return self.start_collective(*pair, &call.into(), Some(when));
        }
        let (context, flags) = asked(call);
        let flags = (flags | Flags::TRIGGER).bits();
        self.post(CALL, Kind::Plain, context, |context| {
            let nobody = (ptr::null_mut(), 0);
            let sealed = Parcel::seal(op_type(call), nobody, ptr::null_mut(), |parcel| {
                arm(context, when.counter.owned.get(), when.value)?;
                parcel.transfer(CALL, call, self.raw(), context)
            });
            sealed.map_or_else(Error::code, |parcel| {
                self.post_parcel(call, &parcel.op, flags)
            })
        })
    }

    fn post_parcel(&self, call: &DataCall<'_>, operation: &Op, flags: u64) -> isize {
        let ep = self.raw();
        // SAFETY: the endpoint is open.
        let fid_ep {
            msg, tagged, rma, ..
        } = unsafe { *ep };
        match (operation, call) {
            (Op::Msg(op), DataCall::Recv { .. }) => {
                calls!(msg, fi_ops_msg.recvmsg(ep, &raw const op.msg, flags))
            }
            (Op::Msg(op), _) => calls!(msg, fi_ops_msg.sendmsg(ep, &raw const op.msg, flags)),
            (Op::Tagged(op), DataCall::Recv { .. }) => {
                calls!(tagged, fi_ops_tagged.recvmsg(ep, &raw const op.msg, flags))
            }
            (Op::Tagged(op), _) => {
                calls!(tagged, fi_ops_tagged.sendmsg(ep, &raw const op.msg, flags))
            }
            (Op::Rma(op), DataCall::Read(..)) => {
                calls!(rma, fi_ops_rma.readmsg(ep, &raw const op.msg, flags))
            }
            (Op::Rma(op), _) => calls!(rma, fi_ops_rma.writemsg(ep, &raw const op.msg, flags)),
            _ => -(Errno::EINVAL.0 as isize),
        }
    }
}
