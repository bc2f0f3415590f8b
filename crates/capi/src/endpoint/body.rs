//! What an endpoint's object holds, and its data transfers, which a trigger may put off.

use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::provider::{
    AtomicCall, CollCall, DataCall, Domain, Endpoint, EpOption, RecvKind, RmaCall, SendKind,
};
use ripstop_mem::UserBuf;
use ripstop_types::{AddrFormat, FiAddr, Flags, Result};

use super::peer::Shares;
use crate::edge::AnyFid;
use crate::eq::BoundEq;
use crate::object::{Body, This};
use crate::options::Options;
use crate::receive::{Posted, Receiver};
use crate::trigger;

/// Where the flags of calls without flags come from.
pub(crate) trait Defaults: 'static {
    /// For sends; `None` is the endpoint's own.
    fn tx(&self) -> Option<Flags>;
    /// For receives; `None` is the endpoint's own.
    fn rx(&self) -> Option<Flags>;
}

/// The endpoint itself.
pub(crate) struct Own;

impl Defaults for Own {
    #[inline(always)]
    fn tx(&self) -> Option<Flags> {
        None
    }

    #[inline(always)]
    fn rx(&self) -> Option<Flags> {
        None
    }
}

/// An alias with flags of its own (`fi_ep_alias`).
pub(crate) struct Alias {
    pub(super) tx: Option<Flags>,
    pub(super) rx: Option<Flags>,
}

impl Defaults for Alias {
    fn tx(&self) -> Option<Flags> {
        self.tx
    }

    fn rx(&self) -> Option<Flags> {
        self.rx
    }
}

/// What an endpoint's object holds.
pub(crate) struct EpBody<D: Domain, M: Defaults> {
    pub(super) ep: Arc<D::Endpoint>,
    /// Goes after the endpoint, which may report its end.
    pub(super) events: BoundEq,
    pub(super) defaults: M,
    pub(super) domain: Arc<D>,
    /// Format of the addresses it takes.
    pub(super) format: AddrFormat,
    /// The connection request it may accept.
    pub(super) request: abi::fid_t,
    /// What it shares with another provider; its aliases know it too.
    pub(super) shared: Arc<Mutex<Shares<D>>>,
}

impl<D: Domain, M: Defaults> Body for EpBody<D, M> {
    type Head = abi::fid_ep;

    fn in_use(&self) -> bool {
        // An alias is one of several owners and may always go.
        self.is_own() && Arc::strong_count(&self.ep) > 1
    }
}

/// An endpoint that an operation belongs to.
pub(super) type Ep<'a, D, M> = This<'a, EpBody<D, M>>;

/// The endpoint that an object of this class stands for, and its domain.
///
/// # Errors
/// [`Errno::EINVAL`] for null, and for what is no endpoint or one of another provider.
pub(crate) fn behind<'a, D: Domain>(
    fid: AnyFid<'a>,
    class: usize,
) -> Result<(&'a Arc<D::Endpoint>, &'a Arc<D>)> {
    if let Ok(own) = fid.cast::<EpBody<D, Own>>(class) {
        return Ok((&own.ep, &own.domain));
    }
    let alias = fid.cast::<EpBody<D, Alias>>(class)?;
    Ok((&alias.ep, &alias.domain))
}

impl<D: Domain, M: Defaults> Options for EpBody<D, M> {
    fn option(&self, option: EpOption) -> Result<usize> {
        self.ep.option(option)
    }

    fn set_option(&self, option: EpOption, value: usize) -> Result<()> {
        self.ep.set_option(option, value)
    }
}

impl<D: Domain, M: Defaults> Receiver for EpBody<D, M> {
    #[inline(always)]
    fn post(&self, kind: RecvKind, iov: &[UserBuf], src: FiAddr, context: usize) -> Result<()> {
        let flags = self.defaults.rx().map(|flags| match kind {
            RecvKind::Msg => flags,
            RecvKind::Tagged { .. } => flags - Flags::MULTI_RECV,
        });
        self.recv(kind, iov, src, context, flags)
    }

    #[inline(always)]
    fn post_with_flags(&self, posted: &Posted) -> Result<()> {
        posted.to(|kind, segs, src, context, flags| self.recv(kind, segs, src, context, flags))
    }

    fn cancel(&self, context: usize) -> Result<()> {
        self.ep.cancel(context)
    }
}

impl<D: Domain, M: Defaults> EpBody<D, M> {
    pub(super) fn is_own(&self) -> bool {
        core::any::TypeId::of::<M>() == core::any::TypeId::of::<Own>()
    }

    #[inline(always)]
    pub(super) fn send(
        &self,
        kind: SendKind,
        iov: &[UserBuf],
        data: Option<u64>,
        dest: FiAddr,
        context: usize,
        flags: Option<Flags>,
    ) -> Result<()> {
        if let Some(flags) = trigger::asked(flags) {
            let call = DataCall::Send {
                kind,
                iov,
                data,
                dest,
                context,
                flags,
            };
            return self.trigger(&call, context);
        }
        self.ep.send(kind, iov, data, dest, context, flags)
    }

    #[inline(always)]
    fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: usize,
        flags: Option<Flags>,
    ) -> Result<()> {
        if let Some(flags) = trigger::asked(flags) {
            let call = DataCall::Recv {
                kind,
                iov,
                src,
                context,
                flags,
            };
            return self.trigger(&call, context);
        }
        self.ep.recv(kind, iov, src, context, flags)
    }

    #[inline(always)]
    pub(super) fn read(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        if trigger::asked(call.flags).is_some() {
            return self.trigger(&DataCall::Read(iov, *call), call.context);
        }
        self.ep.read(iov, call)
    }

    #[inline(always)]
    pub(super) fn write(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        if trigger::asked(call.flags).is_some() {
            return self.trigger(&DataCall::Write(iov, *call), call.context);
        }
        self.ep.write(iov, call)
    }

    #[inline(always)]
    pub(super) fn atomic(&self, operand: &[UserBuf], call: &AtomicCall<'_>) -> Result<()> {
        if trigger::asked(call.flags).is_some() {
            return self.trigger(&DataCall::Atomic(operand, *call), call.context);
        }
        self.ep.atomic(operand, call)
    }

    pub(super) fn collective(
        &self,
        input: UserBuf,
        result: UserBuf,
        call: &CollCall,
    ) -> Result<()> {
        if trigger::asked(call.flags).is_some() {
            let put_off = DataCall::Collective([input, result], *call);
            return self.trigger(&put_off, call.context);
        }
        self.ep.collective(input, result, call)
    }

    /// Posts a call when its context says.
    ///
    /// # Errors
    /// As for [`trigger::condition`].
    #[cold]
    #[inline(never)]
    fn trigger(&self, call: &DataCall<'_>, context: usize) -> Result<()> {
        let when = trigger::condition(context, &self.domain)?;
        self.ep.trigger(call, when)
    }
}
