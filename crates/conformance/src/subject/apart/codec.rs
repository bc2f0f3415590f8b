//! How arguments and results go from one process to another: each as its bytes, one after the other.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ripstop_core::{
    Address, DomainAttr, EpAttr, FabricAttr, FidToken, Hints, Info, RxAttr, TxAttr,
};
use ripstop_types::{
    AddrFormat, AtomicKind, AvType, Collective, CqFormat, EpType, Errno, FiAddr, Flags, Mode,
    MrMode, MsgOrder, Progress, Protocol, ResourceMgmt, Threading, Version, WaitObj,
};

use crate::subject::{
    Atomic, AvAttr, AvSetAttr, Claimed, Coll, CollLimit, Completion, CqAttr, CqError, Direction,
    EpOption, EqError, Error, Event, Form, Inject, Kind, MrAttr, Post, Query, Remote, Result,
    SetChange, When, WorkId,
};

/// What goes to another process.
pub(super) trait Put {
    fn put(&self, to: &mut Vec<u8>);

    /// Several of them.
    fn put_all(all: &[Self], to: &mut Vec<u8>)
    where
        Self: Sized,
    {
        for one in all {
            one.put(to);
        }
    }
}

/// What came from another process; `None` when the bytes are none of it.
pub(super) trait Take<'a>: Sized {
    fn take(from: &mut &'a [u8]) -> Option<Self>;

    /// So many of them.
    fn take_all(count: usize, from: &mut &'a [u8]) -> Option<Vec<Self>> {
        (0..count).map(|_| Self::take(from)).collect()
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Put for $number {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }
        }

        impl Take<'_> for $number {
            fn take(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*bytes))
            }
        })*
    };
}

numbers! { u32 u64 i32 usize }

impl Put for u8 {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(*self);
    }

    fn put_all(all: &[Self], to: &mut Vec<u8>) {
        to.extend(all);
    }
}

impl Take<'_> for u8 {
    fn take(from: &mut &[u8]) -> Option<Self> {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        Some(*byte)
    }

    fn take_all(count: usize, from: &mut &[u8]) -> Option<Vec<Self>> {
        let (bytes, rest) = from.split_at_checked(count)?;
        *from = rest;
        Some(bytes.to_vec())
    }
}

/// Values that are numbers, there and back.
macro_rules! as_numbers {
    ($($type:ty: $number:ty, $value:ident => $to:expr, $from:expr;)*) => {
        $(impl Put for $type {
            fn put(&self, to: &mut Vec<u8>) {
                let $value = self;
                let number: $number = $to;
                number.put(to);
            }
        }

        impl Take<'_> for $type {
            fn take(from: &mut &[u8]) -> Option<Self> {
                let number = <$number>::take(from)?;
                $from(number)
            }
        })*
    };
}

as_numbers! {
    (): u8, _v => 0, |_| Some(());
    bool: u8, v => u8::from(*v), |n| Some(n != 0);
    Duration: u64, v => u64::try_from(v.as_nanos()).unwrap_or(u64::MAX), |n| Some(Self::from_nanos(n));
    Flags: u64, v => v.bits(), |n| Some(Self::from_bits_retain(n));
    Mode: u64, v => v.bits(), |n| Some(Self::from_bits_retain(n));
    MrMode: u32, v => v.bits(), |n| Some(Self::from_bits_retain(n));
    MsgOrder: u64, v => v.bits(), |n| Some(Self::from_bits_retain(n));
    EpType: u32, v => v.raw(), Self::from_raw;
    AddrFormat: u32, v => v.raw(), Self::from_raw;
    AvType: u32, v => v.raw(), Self::from_raw;
    Progress: u32, v => v.raw(), Self::from_raw;
    Threading: u32, v => v.raw(), Self::from_raw;
    ResourceMgmt: u32, v => v.raw(), Self::from_raw;
    WaitObj: u32, v => v.raw(), Self::from_raw;
    CqFormat: u32, v => v.raw(), Self::from_raw;
    Protocol: u32, v => v.raw(), Self::from_raw;
    Collective: u32, v => v.number(), Self::from_number;
    AtomicKind: u8, v => v.number(), Self::from_number;
    FiAddr: u64, v => v.0, |n| Some(Self(n));
    FidToken: usize, v => v.0, |n| Some(Self(n));
    Version: u32, v => v.0, |n| Some(Self(n));
    Errno: i32, v => v.0, |n| Some(Self(n));
    Claimed: u64, v => v.0, |n| Some(Self(n));
    WorkId: usize, v => v.0, |n| Some(Self(n));
}

/// Kinds without contents, by their place in a list.
macro_rules! kinds {
    ($($type:ty: $($kind:expr),*;)*) => {
        $(impl Put for $type {
            fn put(&self, to: &mut Vec<u8>) {
                let at = [$($kind),*].iter().position(|kind| kind == self);
                at.unwrap_or(usize::MAX).put(to);
            }
        }

        impl Take<'_> for $type {
            fn take(from: &mut &[u8]) -> Option<Self> {
                [$($kind),*].get(usize::take(from)?).copied()
            }
        })*
    };
}

kinds! {
    Direction: Direction::Tx, Direction::Rx;
    Form: Form::Reg, Form::Regv, Form::Regattr;
    EpOption: EpOption::MinMultiRecv, EpOption::CmDataSize, EpOption::MaxMsgSize,
        EpOption::InjectMsgSize, EpOption::MaxAtomicSize, EpOption::InjectAtomicSize,
        EpOption::FirewallAddr, EpOption::Unknown;
    Kind: Kind::Send, Kind::Recv, Kind::Tsend, Kind::Trecv, Kind::Read, Kind::Write,
        Kind::Atomic(AtomicKind::Plain), Kind::Atomic(AtomicKind::Fetch),
        Kind::Atomic(AtomicKind::Compare);
}

macro_rules! structs {
    ($($type:ident { $($field:ident),* $(,)? })*) => {
        $(impl Put for $type {
            fn put(&self, to: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $($field.put(to);)*
            }
        }

        impl Take<'_> for $type {
            fn take(from: &mut &[u8]) -> Option<Self> {
                $(let $field = Take::take(from)?;)*
                Some(Self { $($field),* })
            }
        })*
    };
}

structs! {
    TxAttr {
        caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit,
        tclass,
    }
    RxAttr {
        caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit,
    }
    EpAttr {
        ep_type, protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size,
        max_order_war_size, max_order_waw_size, mem_tag_format, tx_ctx_cnt, rx_ctx_cnt,
        auth_key_size, auth_key,
    }
    DomainAttr {
        domain, name, threading, control_progress, progress, resource_mgmt, av_type, mr_mode,
        mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt, max_ep_tx_ctx,
        max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt, mr_iov_limit, caps, mode, auth_key,
        auth_key_size, max_err_data, mr_cnt, tclass, max_ep_auth_key, max_group_id, max_cntr_value,
        max_err_cntr_value,
    }
    FabricAttr { fabric, name, prov_name, prov_version, api_version }
    Hints { caps, mode, addr_format, src_addr, dest_addr, handle, tx, rx, ep, domain, fabric }
    Query { version, node, service, flags, hints }
    CqAttr { size, format, wait, threshold }
    AvAttr { av_type, count, user_ids, rx_ctx_bits }
    AvSetAttr { count, range, stride, flags }
    CollLimit { count, members }
    Remote { address, len, key }
    MrAttr { form, access, offset, key, flags, pieces }
    Atomic { datatype, op, compare, result }
    Post { kind, bufs, addr, tag, ignore, data, remote, atomic, flags, token }
    When { cntr, threshold }
    Coll { coll, datatype, op, count, group, root, input, result, flags, when, token }
    Completion { token, flags, len, data, tag, src, bufs, piece }
    CqError { entry, err, olen, prov_errno, err_data }
    EqError { fid, err, data }
}

impl Put for Info {
    fn put(&self, to: &mut Vec<u8>) {
        let Self {
            caps,
            mode,
            addr_format,
            src_addr,
            dest_addr,
            handle,
            tx,
            rx,
            ep,
            domain,
            fabric,
            // Nothing is opened by it.
            nic: _,
        } = self;
        (caps, mode, addr_format).put(to);
        (src_addr, dest_addr, handle).put(to);
        (tx, rx, ep).put(to);
        (domain, fabric).put(to);
    }
}

impl Take<'_> for Info {
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(Self {
            caps: Take::take(from)?,
            mode: Take::take(from)?,
            addr_format: Take::take(from)?,
            src_addr: Take::take(from)?,
            dest_addr: Take::take(from)?,
            handle: Take::take(from)?,
            tx: Take::take(from)?,
            rx: Take::take(from)?,
            ep: Take::take(from)?,
            domain: Take::take(from)?,
            fabric: Take::take(from)?,
            nic: None,
        })
    }
}

impl Put for Address {
    fn put(&self, to: &mut Vec<u8>) {
        let format = match self {
            Self::Ip(_) => AddrFormat::Sockaddr,
            Self::Str(_) => AddrFormat::Str,
            Self::Raw(format, _) => *format,
        };
        (format, self.to_bytes()).put(to);
    }
}

impl Take<'_> for Address {
    fn take(from: &mut &[u8]) -> Option<Self> {
        let format = AddrFormat::take(from)?;
        Self::from_bytes(format, &Vec::take(from)?).ok()
    }
}

impl Put for Inject<'_> {
    fn put(&self, to: &mut Vec<u8>) {
        (self.bytes, self.tag, self.data).put(to);
        self.addr.put(to);
    }
}

impl<'a> Take<'a> for Inject<'a> {
    fn take(from: &mut &'a [u8]) -> Option<Self> {
        Some(Self {
            bytes: Take::take(from)?,
            tag: Take::take(from)?,
            data: Take::take(from)?,
            addr: Take::take(from)?,
        })
    }
}

impl Put for SetChange {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Union(set) => (0_u8, set).put(to),
            Self::Intersect(set) => (1_u8, set).put(to),
            Self::Diff(set) => (2_u8, set).put(to),
            Self::Insert(addr) => (3_u8, addr).put(to),
            Self::Remove(addr) => (4_u8, addr).put(to),
        }
    }
}

impl Take<'_> for SetChange {
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::take(from)? {
            0 => Self::Union(Take::take(from)?),
            1 => Self::Intersect(Take::take(from)?),
            2 => Self::Diff(Take::take(from)?),
            3 => Self::Insert(Take::take(from)?),
            4 => Self::Remove(Take::take(from)?),
            _ => return None,
        })
    }
}

impl Put for Event {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::ConnReq { pep, info, data } => {
                (0_u8, pep).put(to);
                (&**info, data).put(to);
            }
            Self::Connected { ep, data } => (1_u8, ep, data).put(to),
            Self::Shutdown { ep } => (2_u8, ep).put(to),
            Self::Joined { group } => (3_u8, group).put(to),
            Self::Other(code) => (4_u8, code).put(to),
        }
    }
}

impl Take<'_> for Event {
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::take(from)? {
            0 => Self::ConnReq {
                pep: Take::take(from)?,
                info: Take::take(from)?,
                data: Take::take(from)?,
            },
            1 => Self::Connected {
                ep: Take::take(from)?,
                data: Take::take(from)?,
            },
            2 => Self::Shutdown {
                ep: Take::take(from)?,
            },
            3 => Self::Joined {
                group: Take::take(from)?,
            },
            4 => Self::Other(Take::take(from)?),
            _ => return None,
        })
    }
}

impl Put for Error {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Call { call, errno } => (0_u8, *call, errno).put(to),
            Self::Missing(what) => (1_u8, *what).put(to),
        }
    }
}

impl Take<'_> for Error {
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::take(from)? {
            0 => Self::Call {
                call: kept(Take::take(from)?),
                errno: Take::take(from)?,
            },
            1 => Self::Missing(kept(Take::take(from)?)),
            _ => return None,
        })
    }
}

/// The same words for the rest of the process: there are few different ones.
fn kept(words: &str) -> &'static str {
    static WORDS: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let mut all = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = all.get(words) {
        return found;
    }
    let new: &'static str = String::leak(words.to_owned());
    all.insert(new);
    new
}

impl<T: Put> Put for Result<T> {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Ok(value) => (0_u8, value).put(to),
            Err(error) => (1_u8, error).put(to),
        }
    }
}

impl<'a, T: Take<'a>> Take<'a> for Result<T> {
    fn take(from: &mut &'a [u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => T::take(from).map(Ok),
            1 => Error::take(from).map(Err),
            _ => None,
        }
    }
}

impl<T: Put + ?Sized> Put for &T {
    fn put(&self, to: &mut Vec<u8>) {
        T::put(self, to);
    }
}

impl Put for str {
    fn put(&self, to: &mut Vec<u8>) {
        self.as_bytes().put(to);
    }
}

impl<'a> Take<'a> for &'a str {
    fn take(from: &mut &'a [u8]) -> Option<Self> {
        std::str::from_utf8(Take::take(from)?).ok()
    }
}

impl Put for String {
    fn put(&self, to: &mut Vec<u8>) {
        self[..].put(to);
    }
}

impl Take<'_> for String {
    fn take(from: &mut &[u8]) -> Option<Self> {
        <&str>::take(from).map(str::to_owned)
    }
}

impl<T: Put> Put for [T] {
    fn put(&self, to: &mut Vec<u8>) {
        self.len().put(to);
        T::put_all(self, to);
    }
}

impl<T: Put> Put for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self[..].put(to);
    }
}

impl<'a> Take<'a> for &'a [u8] {
    fn take(from: &mut &'a [u8]) -> Option<Self> {
        let len = usize::take(from)?;
        let (bytes, rest) = from.split_at_checked(len)?;
        *from = rest;
        Some(bytes)
    }
}

impl<'a, T: Take<'a>> Take<'a> for Vec<T> {
    fn take(from: &mut &'a [u8]) -> Option<Self> {
        T::take_all(usize::take(from)?, from)
    }
}

impl Take<'_> for &'static [(usize, usize)] {
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(Vec::take(from)?.leak())
    }
}

impl<T: Put> Put for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }
}

impl<'a, T: Take<'a>> Take<'a> for Option<T> {
    fn take(from: &mut &'a [u8]) -> Option<Self> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Some(None),
        }
    }
}

impl<T: Put> Put for Box<T> {
    fn put(&self, to: &mut Vec<u8>) {
        T::put(self, to);
    }
}

impl<'a, T: Take<'a>> Take<'a> for Box<T> {
    fn take(from: &mut &'a [u8]) -> Option<Self> {
        T::take(from).map(Self::new)
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {
        $(impl<$($name: Put),*> Put for ($($name,)*) {
            #[expect(non_snake_case, reason = "a value is named as its type")]
            fn put(&self, to: &mut Vec<u8>) {
                let ($($name,)*) = self;
                $($name.put(to);)*
            }
        }

        impl<'a, $($name: Take<'a>),*> Take<'a> for ($($name,)*) {
            fn take(from: &mut &'a [u8]) -> Option<Self> {
                Some(($($name::take(from)?,)*))
            }
        })*
    };
}

tuples! {
    A B;
    A B C;
}
