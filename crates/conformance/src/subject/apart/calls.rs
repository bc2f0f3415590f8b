//! Each call: where it is made, and how it is made for another process.

use std::time::Duration;

use ripstop_core::{Address, Info};
use ripstop_types::{AtomicKind, Collective, FiAddr, Flags, WaitObj};

use super::codec::{Put as _, Take as _};
use super::{Apart, codec, handles};
use crate::subject::{
    About, AvAttr, AvSetAttr, Claimed, Coll, CollLimit, Completion, CqAttr, CqError, Direction,
    EpOption, EqError, Event, Fid, Inject, MrAttr, Post, Query, Remote, Result, SetChange, Subject,
    Token, When, WorkId, WorkOp,
};

/// An argument as the implementation here takes it.
macro_rules! here {
    ($arg:ident ^ Info) => {
        &handles::here($arg)?
    };
    ($arg:ident) => {
        $arg
    };
}

/// An argument that came from another process.
macro_rules! taken {
    ($from:ident, ^ Info) => {
        Info::take($from)?
    };
    ($from:ident, ~($type:ty)) => {
        <<$type as ToOwned>::Owned as super::codec::Take>::take($from)?
    };
    ($from:ident, $type:ty) => {
        <$type as super::codec::Take>::take($from)?
    };
}

/// An argument as a call takes it.
macro_rules! passed {
    ($arg:ident ^ Info) => {
        &$arg
    };
    ($arg:ident ~($type:ty)) => {{
        let by_ref: &$type = std::borrow::Borrow::borrow(&$arg);
        by_ref
    }};
    ($arg:ident) => {
        $arg
    };
}

/// Calls that are made where their first argument is. `~(T)` is an argument that is passed by
/// reference, `^Info` an info.
macro_rules! calls {
    ($($call:ident(
        $fid:ident $(, $arg:ident: $(^ $info:ident)? $(~($by_ref:ty))? $($by_value:ty)?)*
    ) -> $out:ty;)*) => {
        impl Subject for Apart<'_> {
            fn about(&self) -> About {
                self.here.about()
            }

            fn open(&self) -> usize {
                self.here.open()
            }

            fn place(&self, side: usize) -> bool {
                self.side.set(side);
                true
            }

            fn getinfo(&self, query: &Query) -> Result<Vec<Info>> {
                self.getinfo_here(query)
            }

            fn fabric(&self, info: &Info) -> Result<Fid> {
                self.open_fabric(info)
            }

            fn domain(&self, fabric: Fid, info: &Info) -> Result<Fid> {
                self.open_domain(fabric, info)
            }

            fn passive_ep(&self, fabric: Fid, info: &Info) -> Result<Fid> {
                self.open_passive_ep(fabric, info)
            }

            fn eq(&self, fabric: Fid, wait: WaitObj) -> Result<Fid> {
                self.open_eq(fabric, wait)
            }

            fn close(&self, fid: Fid) -> Result<()> {
                self.close_all(fid)
            }

            fn trywait(&self, fabric: Fid, fids: &[Fid]) -> Result<()> {
                self.try_wait(fabric, fids)
            }

            fn queue_work(&self, domain: Fid, when: When, op: &WorkOp<'_>) -> Result<WorkId> {
                let mut to = Vec::new();
                match handles::process(domain) {
                    0 => self.here.queue_work(domain, when, op),
                    process => {
                        (domain, when).put(&mut to);
                        match *op {
                            WorkOp::Post { ep, post, done } => {
                                0_u8.put(&mut to);
                                (ep, post, done).put(&mut to);
                            }
                            WorkOp::Set(cntr, value) => (1_u8, cntr, value).put(&mut to),
                            WorkOp::Add(cntr, value) => (2_u8, cntr, value).put(&mut to),
                        }
                        self.far(process, "queue_work", &to)
                    }
                }
            }

            $(fn $call(
                &self,
                $fid: Fid
                $(, $arg: $(&$info)? $(&$by_ref)? $($by_value)?)*
            ) -> Result<$out> {
                match handles::process($fid) {
                    0 => self.here.$call($fid $(, here!($arg $(^ $info)?))*),
                    process => {
                        let mut to = Vec::new();
                        $fid.put(&mut to);
                        $($arg.put(&mut to);)*
                        self.far(process, stringify!($call), &to)
                    }
                }
            })*
        }

        /// Makes a call for another process; `None` when it is none that can be made here.
        pub(super) fn answer(
            subject: &dyn Subject,
            call: &str,
            from: &mut &[u8],
            to: &mut Vec<u8>,
        ) -> Option<()> {
            match call {
                "fabric" => subject.fabric(&Info::take(from)?).put(to),
                "domain" => subject.domain(Fid::take(from)?, &Info::take(from)?).put(to),
                "passive_ep" => subject.passive_ep(Fid::take(from)?, &Info::take(from)?).put(to),
                "eq" => subject.eq(Fid::take(from)?, WaitObj::take(from)?).put(to),
                "close" => subject.close(Fid::take(from)?).put(to),
                "trywait" => subject.trywait(Fid::take(from)?, &Vec::take(from)?).put(to),
                "queue_work" => {
                    let (domain, when) = <(Fid, When)>::take(from)?;
                    let post;
                    let op = match u8::take(from)? {
                        0 => {
                            let ep = Fid::take(from)?;
                            post = Post::take(from)?;
                            WorkOp::Post { ep, post: &post, done: codec::Take::take(from)? }
                        }
                        1 => WorkOp::Set(Fid::take(from)?, u64::take(from)?),
                        _ => WorkOp::Add(Fid::take(from)?, u64::take(from)?),
                    };
                    subject.queue_work(domain, when, &op).put(to);
                }
                $(stringify!($call) => {
                    let $fid = Fid::take(from)?;
                    $(let $arg = taken!(from, $(^ $info)? $(~($by_ref))? $($by_value)?);)*
                    subject.$call($fid $(, passed!($arg $(^ $info)? $(~($by_ref))?))*).put(to);
                })*
                _ => return None,
            }
            Some(())
        }
    };
}

calls! {
    endpoint(domain, info: ^Info) -> Fid;
    shared_rx(domain, info: ^Info) -> Fid;
    shared_tx(domain, info: ^Info) -> Fid;
    scalable_ep(domain, info: ^Info) -> Fid;
    context(sep, direction: Direction, index: usize, info: ^Info) -> Fid;
    cq(domain, attr: CqAttr) -> Fid;
    cntr(domain, wait: WaitObj) -> Fid;
    av(domain, attr: AvAttr) -> Fid;
    av_named(domain, attr: AvAttr, name: &str, read_only: bool) -> Fid;
    bind(fid, to: Fid, flags: Flags) -> ();
    enable(ep) -> ();
    option(ep, option: EpOption) -> usize;
    set_option(ep, option: EpOption, value: usize) -> ();
    op_flags(ep, direction: Direction) -> Flags;
    set_op_flags(ep, direction: Direction, flags: Flags) -> ();
    cancel(ep, token: Token) -> ();
    av_insert(av, addrs: ~([Address])) -> Vec<FiAddr>;
    av_insert_as(av, addr: ~(Address), id: FiAddr) -> FiAddr;
    av_set_user_id(av, addr: FiAddr, id: FiAddr) -> ();
    av_insertsvc(av, node: &str, service: Option<&str>) -> FiAddr;
    av_insertsym(av, node: (&str, usize), service: (&str, usize)) -> (usize, Vec<FiAddr>);
    av_remove(av, addrs: ~([FiAddr])) -> ();
    av_lookup(av, addr: FiAddr) -> Address;
    av_straddr(av, addr: ~(Address)) -> String;
    cq_read(cq, max: usize) -> Vec<Completion>;
    cq_sread(cq, threshold: usize, timeout: Duration) -> Vec<Completion>;
    cq_readerr(cq) -> CqError;
    cq_signal(cq) -> ();
    cntr_read(cntr) -> u64;
    cntr_readerr(cntr) -> u64;
    cntr_add(cntr, value: u64) -> ();
    cntr_set(cntr, value: u64) -> ();
    cntr_adderr(cntr, value: u64) -> ();
    cntr_seterr(cntr, value: u64) -> ();
    cntr_wait(cntr, threshold: u64, timeout: Duration) -> ();
    poll_fd(fid, timeout: Duration) -> bool;
    post(ep, post: ~(Post)) -> ();
    inject(ep, inject: Inject<'_>) -> ();
    overwrite(ep, token: Token) -> ();
    peek(ep, post: ~(Post), flags: Flags) -> ();
    claim(ep, claimed: Claimed, post: ~(Post)) -> ();
    trigger(ep, post: ~(Post), when: When) -> ();
    cancel_work(domain, work: WorkId) -> ();
    flush_work(domain, cntr: Option<Fid>) -> ();
    memory(domain, len: usize) -> Fid;
    memory_in_memfd(domain, len: usize) -> Fid;
    register(memory, attr: ~(MrAttr)) -> Fid;
    mr_key(mr) -> u64;
    memory_address(memory) -> u64;
    memory_read(memory) -> Vec<u8>;
    memory_write(memory, offset: usize, bytes: &[u8]) -> ();
    inject_write(ep, inject: Inject<'_>, to: Remote) -> ();
    inject_atomic(ep, inject: Inject<'_>, what: (u32, u32), to: Remote) -> ();
    query_atomic(domain, kind: AtomicKind, what: (u32, u32)) -> usize;
    av_set(av, attr: AvSetAttr) -> Fid;
    change_set(set, change: SetChange) -> ();
    set_addr(set) -> FiAddr;
    join(ep, set: Fid) -> Fid;
    group_addr(group) -> FiAddr;
    collective(ep, call: ~(Coll)) -> ();
    query_collective(domain, coll: Collective, what: (u32, u32)) -> CollLimit;
    name(fid) -> Address;
    set_name(fid, addr: ~(Address)) -> ();
    peer(ep) -> Address;
    listen(pep) -> ();
    connect(ep, addr: ~(Address), data: &[u8]) -> ();
    accept(ep, data: &[u8]) -> ();
    reject(pep, info: ^Info, data: &[u8]) -> ();
    shutdown(ep) -> ();
    eq_read(eq) -> Event;
    eq_sread(eq, timeout: Duration) -> Event;
    eq_readerr(eq) -> EqError;
}
