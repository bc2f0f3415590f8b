#![allow(unsafe_code)]
//! Atomics on a peer's memory, `fi_atomic`(3).

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;

use ripstop_abi::{
    FI_COMPARE_ATOMIC, FI_FETCH_ATOMIC, fi_atomic_attr, fi_ioc, fi_msg_atomic, fi_rma_ioc,
};
use ripstop_core::provider::AtomicCall;
use ripstop_mem::UserBuf;
use ripstop_types::{AtomicKind, Context, Datatype, Errno, FiAddr, Flags, RmaIov};

use crate::call::calls;
use crate::object::endpoint::done;
use crate::ops::Kind;
use crate::payload::{MAX_PARTS, NOWHERE, Parts};
use crate::threading::Threading;
use crate::{Domain, Endpoint, Error, Result};

/// What an atomic is, besides its memory, for callers who name datatypes and operations that are
/// none: else [`AtomicCall`](ripstop_core::provider::AtomicCall) says the same.
#[derive(Clone, Copy, Debug)]
pub struct Atomic<'a> {
    /// Which family of calls.
    pub kind: AtomicKind,
    /// `enum fi_datatype`: any number, known or not.
    pub datatype: u32,
    /// `enum fi_op`: any number, known or not.
    pub op: u32,
    /// The peer's memory, with lengths in bytes.
    pub remote: &'a [RmaIov],
    /// The peer.
    pub peer: FiAddr,
    /// Remote CQ data; counts with [`Flags::REMOTE_CQ_DATA`].
    pub data: u64,
    /// The caller's context.
    pub context: Context,
    /// The flags of the message forms; `None` for the plain ones.
    pub flags: Option<Flags>,
}

impl<'a> From<&AtomicCall<'a>> for Atomic<'a> {
    fn from(call: &AtomicCall<'a>) -> Self {
        let with_data = call.data.map(|_| Flags::REMOTE_CQ_DATA);
        let flags = |flags: Flags| flags | with_data.unwrap_or_default();
        Self {
            kind: call.kind,
            datatype: call.datatype.number(),
            op: call.op.number(),
            remote: call.remote,
            peer: call.peer,
            data: call.data.unwrap_or(0),
            context: call.context,
            flags: call.flags.map(flags),
        }
    }
}

/// The call's arguments as C takes them.
pub(crate) struct Args {
    ioc: [fi_ioc; MAX_PARTS],
    desc: [*mut c_void; MAX_PARTS],
    shape: [usize; 3],
    remote: [fi_rma_ioc; MAX_PARTS],
    remotes: usize,
    /// Elements in the peer's memory.
    count: usize,
}

impl Args {
    /// The arguments for a call with these operands, comparisons and results.
    pub(crate) fn new(call: &Atomic<'_>, groups: [&[UserBuf]; 3]) -> Result<Self> {
        const CALL: &str = "fi_atomic";
        let size = Datatype::from_number(call.datatype).map_or(1, Datatype::size);
        let parts = Parts::new(CALL, &groups)?;
        if call.remote.len() > MAX_PARTS {
            return Err(Error::new(CALL, Errno::EINVAL));
        }
        let mut args = Self {
            ioc: [fi_ioc::default(); MAX_PARTS],
            desc: parts.desc,
            shape: groups.map(<[UserBuf]>::len),
            remote: [fi_rma_ioc::default(); MAX_PARTS],
            remotes: call.remote.len(),
            count: call.remote.iter().map(|r| r.len as usize / size).sum(),
        };
        for (ioc, iov) in args.ioc.iter_mut().zip(&parts.iov[..parts.count]) {
            (ioc.addr, ioc.count) = (iov.iov_base, iov.iov_len / size);
        }
        for (ioc, remote) in args.remote.iter_mut().zip(call.remote) {
            (ioc.addr, ioc.count, ioc.key) = (remote.addr, remote.len as usize / size, remote.key);
        }
        Ok(args)
    }

    /// Overwrites the arrays once the call has returned, after which nobody may look at them.
    fn spend(&mut self) {
        self.ioc = [fi_ioc {
            addr: NOWHERE,
            count: usize::MAX,
        }; MAX_PARTS];
        self.desc = [NOWHERE; MAX_PARTS];
        self.remote = [fi_rma_ioc {
            addr: u64::MAX,
            count: usize::MAX,
            key: u64::MAX,
        }; MAX_PARTS];
        black_box(self);
    }

    /// Where the buffers of a group begin: operands, comparisons or results.
    fn start(&self, group: usize) -> usize {
        self.shape[..group].iter().sum()
    }

    fn group(&mut self, group: usize) -> (*mut fi_ioc, *mut *mut c_void, usize) {
        (self.iocs(group), self.descs(group), self.shape[group])
    }

    pub(crate) fn iocs(&mut self, group: usize) -> *mut fi_ioc {
        let start = self.start(group);
        self.ioc[start..].as_mut_ptr()
    }

    pub(crate) fn descs(&mut self, group: usize) -> *mut *mut c_void {
        let start = self.start(group);
        self.desc[start..].as_mut_ptr()
    }

    /// The address of a group's first buffer; null when it has none.
    fn first(&self, group: usize) -> *mut c_void {
        match self.shape[group] {
            0 => ptr::null_mut(),
            _ => self.ioc[self.start(group)].addr,
        }
    }

    fn first_desc(&self, group: usize) -> *mut c_void {
        match self.shape[group] {
            0 => ptr::null_mut(),
            _ => self.desc[self.start(group)],
        }
    }

    /// Whether each group is one buffer at most.
    fn single(&self) -> bool {
        self.shape.iter().all(|n| *n <= 1)
    }
}

/// The forms of the calls.
#[derive(Clone, Copy)]
enum Form {
    /// One buffer a group, one remote place.
    Plain,
    /// One remote place.
    Vector,
    /// Any, with flags.
    Message(Flags),
}

fn call_name(kind: AtomicKind, form: Form) -> &'static str {
    match (kind, form) {
        (AtomicKind::Plain, Form::Plain) => "fi_atomic",
        (AtomicKind::Plain, Form::Vector) => "fi_atomicv",
        (AtomicKind::Plain, Form::Message(_)) => "fi_atomicmsg",
        (AtomicKind::Fetch, Form::Plain) => "fi_fetch_atomic",
        (AtomicKind::Fetch, Form::Vector) => "fi_fetch_atomicv",
        (AtomicKind::Fetch, Form::Message(_)) => "fi_fetch_atomicmsg",
        (AtomicKind::Compare, Form::Plain) => "fi_compare_atomic",
        (AtomicKind::Compare, Form::Vector) => "fi_compare_atomicv",
        (AtomicKind::Compare, Form::Message(_)) => "fi_compare_atomicmsg",
    }
}

impl<M: Threading> Endpoint<M> {
    /// Carries out an atomic on a peer's memory with these operands, comparisons and results, by the
    /// plainest call that can say it: `fi_atomic`, `fi_fetch_atomic`, `fi_compare_atomic`, their
    /// vector forms, and with flags or several remote places their message forms.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn atomic_by_number(&self, groups: [&[UserBuf]; 3], call: &Atomic<'_>) -> Result<()> {
        let mut args = Args::new(call, groups)?;
        let form = match (call.flags, args.remotes) {
            (None, 1) if args.single() => Form::Plain,
            (None, 1) => Form::Vector,
            (flags, _) => Form::Message(flags.unwrap_or_default()),
        };
        let name = call_name(call.kind, form);
        self.post(name, Kind::Plain, call.context, |context| {
            let ret = self.call_atomic(call, &mut args, form, context);
            args.spend();
            ret
        })
    }

    fn call_atomic(
        &self,
        call: &Atomic<'_>,
        args: &mut Args,
        form: Form,
        at: *mut c_void,
    ) -> isize {
        let (ep, table, peer) = (self.raw(), self.atomic_ops(), call.peer.0);
        let RmaIov { addr, key, .. } = call.remote.first().copied().unwrap_or_default();
        let (kind, op, count) = (call.datatype, call.op, args.count);
        let [(buf, desc), (cmp, cmp_desc), (out, out_desc)] =
            [0, 1, 2].map(|group| (args.first(group), args.first_desc(group)));
        let [
            (bufs, descs, parts),
            (cmps, cmp_descs, cmp_parts),
            (outs, out_descs, out_parts),
        ] = [0, 1, 2].map(|group| args.group(group));
        match (call.kind, form) {
            (AtomicKind::Plain, Form::Plain) => calls!(
                table,
                fi_ops_atomic.write(ep, buf, count, desc, peer, addr, key, kind, op, at)
            ),
            (AtomicKind::Plain, Form::Vector) => calls!(
                table,
                fi_ops_atomic.writev(ep, bufs, descs, parts, peer, addr, key, kind, op, at)
            ),
            (AtomicKind::Plain, Form::Message(flags)) => with_message(call, args, at, |msg| {
                calls!(table, fi_ops_atomic.writemsg(ep, msg, flags.bits()))
            }),
            (AtomicKind::Fetch, Form::Plain) => calls!(
                table,
                fi_ops_atomic.readwrite(
                    ep, buf, count, desc, out, out_desc, peer, addr, key, kind, op, at
                )
            ),
            (AtomicKind::Fetch, Form::Vector) => calls!(
                table,
                fi_ops_atomic.readwritev(
                    ep, bufs, descs, parts, outs, out_descs, out_parts, peer, addr, key, kind, op,
                    at
                )
            ),
            (AtomicKind::Fetch, Form::Message(flags)) => with_message(call, args, at, |msg| {
                calls!(
                    table,
                    fi_ops_atomic.readwritemsg(ep, msg, outs, out_descs, out_parts, flags.bits())
                )
            }),
            (AtomicKind::Compare, Form::Plain) => calls!(
                table,
                fi_ops_atomic.compwrite(
                    ep, buf, count, desc, cmp, cmp_desc, out, out_desc, peer, addr, key, kind, op,
                    at
                )
            ),
            (AtomicKind::Compare, Form::Vector) => calls!(
                table,
                fi_ops_atomic.compwritev(
                    ep, bufs, descs, parts, cmps, cmp_descs, cmp_parts, outs, out_descs, out_parts,
                    peer, addr, key, kind, op, at
                )
            ),
            (AtomicKind::Compare, Form::Message(flags)) => with_message(call, args, at, |msg| {
                calls!(
                    table,
                    fi_ops_atomic.compwritemsg(
                        ep,
                        msg,
                        cmps,
                        cmp_descs,
                        cmp_parts,
                        outs,
                        out_descs,
                        out_parts,
                        flags.bits()
                    )
                )
            }),
        }
    }

    /// Carries out a plain atomic on a copy of its operands, without a completion
    /// (`fi_inject_atomic`), on a datatype and with an operation of any numbers.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn inject_atomic_by_number(
        &self,
        buf: UserBuf,
        (datatype, op): (u32, u32),
        to: RmaIov,
        peer: FiAddr,
    ) -> Result<()> {
        let (ep, table) = (self.raw(), self.atomic_ops());
        let size = Datatype::from_number(datatype).map_or(1, Datatype::size);
        let (from, count) = (buf.as_ptr().cast::<c_void>(), buf.len() / size);
        let (peer, RmaIov { addr, key, .. }) = (peer.0, to);
        let ret = calls!(
            table,
            fi_ops_atomic.inject(ep, from, count, peer, addr, key, datatype, op)
        );
        done("fi_inject_atomic", ret)
    }

    /// The most elements of one atomic of this kind (`fi_atomicvalid`, `fi_fetch_atomicvalid`,
    /// `fi_compare_atomicvalid`).
    ///
    /// # Errors
    ///
    /// `FI_EOPNOTSUPP` for what is not offered.
    pub fn atomic_valid(&self, kind: AtomicKind, datatype: u32, op: u32) -> Result<usize> {
        let (table, ep) = (self.atomic_ops(), self.raw());
        let mut count = 0;
        let most = &raw mut count;
        let (call, ret) = match kind {
            AtomicKind::Plain => (
                "fi_atomicvalid",
                calls!(table, fi_ops_atomic.writevalid(ep, datatype, op, most)),
            ),
            AtomicKind::Fetch => (
                "fi_fetch_atomicvalid",
                calls!(table, fi_ops_atomic.readwritevalid(ep, datatype, op, most)),
            ),
            AtomicKind::Compare => (
                "fi_compare_atomicvalid",
                calls!(table, fi_ops_atomic.compwritevalid(ep, datatype, op, most)),
            ),
        };
        Error::check(call, ret)?;
        Ok(count)
    }
}

/// Overwrites a message once the call has returned, after which nobody may look at it.
fn spend(msg: &mut fi_msg_atomic) {
    *msg = fi_msg_atomic {
        msg_iov: NOWHERE.cast(),
        desc: NOWHERE.cast(),
        iov_count: usize::MAX,
        addr: u64::MAX,
        rma_iov: NOWHERE.cast(),
        rma_iov_count: usize::MAX,
        datatype: u32::MAX,
        op: u32::MAX,
        context: NOWHERE,
        data: u64::MAX,
    };
    black_box(msg);
}

/// Makes a call with a message.
fn with_message(
    call: &Atomic<'_>,
    args: &mut Args,
    context: *mut c_void,
    make: impl FnOnce(*const fi_msg_atomic) -> isize,
) -> isize {
    let mut msg = message(call, args, context);
    let ret = make(&raw const msg);
    spend(&mut msg);
    ret
}

pub(crate) fn message(call: &Atomic<'_>, args: &mut Args, context: *mut c_void) -> fi_msg_atomic {
    fi_msg_atomic {
        msg_iov: args.iocs(0),
        desc: args.descs(0),
        iov_count: args.shape[0],
        addr: call.peer.0,
        rma_iov: args.remote.as_ptr(),
        rma_iov_count: args.remotes,
        datatype: call.datatype,
        op: call.op,
        context,
        data: call.data,
    }
}

impl<M: Threading> Domain<M> {
    /// The most elements of one atomic of this kind, and the bytes of an element
    /// (`fi_query_atomic`).
    ///
    /// # Errors
    ///
    /// `FI_EOPNOTSUPP` for what is not offered.
    pub fn query_atomic(&self, kind: AtomicKind, datatype: u32, op: u32) -> Result<(usize, usize)> {
        let flags = match kind {
            AtomicKind::Plain => 0,
            AtomicKind::Fetch => FI_FETCH_ATOMIC,
            AtomicKind::Compare => FI_COMPARE_ATOMIC,
        };
        let mut attr = fi_atomic_attr::default();
        let ret = calls!(
            self.table(),
            fi_ops_domain.query_atomic(self.owned.get(), datatype, op, &raw mut attr, flags)
        );
        Error::check("fi_query_atomic", ret)?;
        Ok((attr.count, attr.size))
    }
}
