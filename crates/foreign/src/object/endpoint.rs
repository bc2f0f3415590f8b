#![allow(unsafe_code)]
//! Endpoints, `fi_endpoint`(3) and `fi_cm`(3). Their operations are in `msg`, `tagged`, `rma`.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{
    FI_ENABLE, FI_GETOPSFLAG, FI_OPT_ENDPOINT, FI_SETOPSFLAG, fi_info, fi_ops_atomic, fi_ops_cm,
    fi_ops_ep, fi_ops_msg, fi_ops_rma, fi_ops_tagged, fid, fid_ep,
};
use ripstop_core::Info;
use ripstop_core::provider::{Direction, EpOption, Token};
use ripstop_types::{Context, EpType, Errno, FiAddr, Flags, Mode};

use super::Object;
use crate::call::{self, ENOSYS, calls, op};
use crate::eq::origin::OURS;
use crate::eq::pep::data_ptr;
use crate::eq::{Name, Pump};
use crate::fabric::opened;
use crate::library::too_small;
use crate::ops::Kind;
use crate::owned::Owned;
use crate::threading::{Lock as _, Ptr, Threading};
use crate::{Addr, Av, Domain, Eq, Error, Result};

/// An endpoint, or a context of one. Dropping it ends its operations without completions.
pub struct Endpoint<M: Threading> {
    pub(crate) owned: Owned<fid_ep, M, Arc<Domain<M>>>,
    /// What the queue calls it that it is bound to.
    pub(crate) name: M::Lock<Option<Name>>,
    /// What passes its events on, if that is not the library's own queue.
    pub(crate) pump: M::Lock<Option<Arc<Pump>>>,
    pub(crate) av: M::Lock<Option<Arc<Av<M>>>>,
    /// All that is bound to it, which closes after it.
    pub(crate) bound: M::Lock<Vec<Object<M>>>,
    /// The groups it has joined, and how many members they have.
    pub(crate) groups: M::Lock<Vec<(FiAddr, usize)>>,
    pub(crate) ep_type: EpType,
    /// The default operation flags: of transmits, and of receives.
    pub(crate) flags: M::Lock<[Flags; 2]>,
    token: Token,
}

impl<M: Threading> Drop for Endpoint<M> {
    fn drop(&mut self) {
        if !self.owned.close() {
            // It lives on, with all that is bound to it.
            std::mem::forget(self.bound.with(std::mem::take));
            std::mem::forget((self.name.with(Option::take), self.pump.with(Option::take)));
        }
    }
}

impl<M: Threading> Endpoint<M> {
    pub(crate) fn new(
        ptr: Ptr<fid_ep, M>,
        domain: Arc<Domain<M>>,
        info: &Info,
        token: Token,
    ) -> Self {
        Self {
            owned: Owned::new(ptr, domain),
            name: M::Lock::new(None),
            pump: M::Lock::new(None),
            av: M::Lock::new(None),
            bound: M::Lock::new(Vec::new()),
            groups: M::Lock::new(Vec::new()),
            ep_type: info.ep.ep_type,
            flags: M::Lock::new([info.tx.op_flags, info.rx.op_flags]),
            token,
        }
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut fid_ep {
        self.owned.get()
    }

    #[inline]
    pub(crate) fn domain(&self) -> &Arc<Domain<M>> {
        self.owned.parent()
    }

    pub(crate) fn ops(&self) -> *const fi_ops_ep {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).ops }
    }

    pub(crate) fn cm(&self) -> *const fi_ops_cm {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).cm }
    }

    #[inline]
    pub(crate) fn msg_ops(&self) -> *const fi_ops_msg {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).msg }
    }

    #[inline]
    pub(crate) fn tagged_ops(&self) -> *const fi_ops_tagged {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).tagged }
    }

    #[inline]
    pub(crate) fn rma_ops(&self) -> *const fi_ops_rma {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).rma }
    }

    #[inline]
    pub(crate) fn atomic_ops(&self) -> *const fi_ops_atomic {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).atomic }
    }

    /// Binds anything at any time (`fi_ep_bind`).
    pub(crate) fn bind(&self, to: Object<M>, flags: Flags) -> Result<()> {
        call::bind("fi_ep_bind", self.owned.fid(), to.fid(), flags.bits())?;
        self.keep(to);
        Ok(())
    }

    /// Keeps something open as long as it is.
    pub(crate) fn keep(&self, other: Object<M>) {
        self.bound.with(|bound| bound.push(other));
    }

    /// Sends its events to a queue of the library's own (`fi_ep_bind`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn bind_own_eq(&self, eq: &Arc<Eq>) -> Result<()> {
        let (name, ()) = eq.name((self.token, 0), || {
            self.bind(Object::Eq(eq.clone()), Flags::empty())?;
            Ok((self.owned.fid(), ()))
        })?;
        self.name.with(|to| *to = Some(name));
        Ok(())
    }

    pub(crate) fn start(&self) -> Result<()> {
        call::command("fi_enable", self.owned.fid(), FI_ENABLE)
    }

    /// The default flags of operations, as the library says them (`fi_control`, `FI_GETOPSFLAG`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn own_flags(&self, direction: Direction) -> Result<Flags> {
        let mut flags = flag(direction).bits();
        let arg: *mut c_void = (&raw mut flags).cast();
        // SAFETY: the endpoint is open, and the command reads and writes one `uint64_t`.
        unsafe { call::control(self.owned.fid(), FI_GETOPSFLAG, arg) }?;
        Ok(Flags::from_bits_retain(flags) - flag(direction))
    }

    pub(crate) fn set_flags(&self, direction: Direction, flags: Flags) -> Result<()> {
        let mut bits = (flags | flag(direction)).bits();
        let arg: *mut c_void = (&raw mut bits).cast();
        // SAFETY: the endpoint is open, and the command reads one `uint64_t`.
        unsafe { call::control(self.owned.fid(), FI_SETOPSFLAG, arg) }?;
        self.flags.with(|all| all[direction as usize] = flags);
        Ok(())
    }

    /// The flags of a call that names none.
    pub(crate) fn default_flags(&self, direction: Direction) -> Flags {
        self.flags.with(|flags| flags[direction as usize])
    }

    pub(crate) fn getname(&self) -> Result<Addr> {
        getname(self.cm(), self.owned.fid())
    }

    pub(crate) fn setname(&self, addr: &Addr) -> Result<()> {
        let mut padded = addr.padded("fi_setname", self.domain().addr_format)?;
        let bytes: *mut c_void = padded.as_mut_ptr().cast();
        let ret = calls!(
            self.cm(),
            fi_ops_cm.setname(self.owned.fid(), bytes, addr.as_bytes().len())
        );
        Error::check("fi_setname", ret)
    }

    pub(crate) fn getpeer(&self) -> Result<Addr> {
        let mut bytes = [0_u8; 512];
        let mut len = bytes.len();
        let out: *mut c_void = bytes.as_mut_ptr().cast();
        let ret = calls!(self.cm(), fi_ops_cm.getpeer(self.raw(), out, &raw mut len));
        Error::check("fi_getpeer", ret)?;
        Ok(Addr::from_bytes(&bytes[..len.min(bytes.len())]))
    }

    pub(crate) fn start_connecting(&self, addr: &Addr, data: &[u8]) -> Result<()> {
        let padded = addr.padded("fi_connect", self.domain().addr_format)?;
        let to: *const c_void = padded.as_ptr().cast();
        let ret = calls!(
            self.cm(),
            fi_ops_cm.connect(self.raw(), to, data_ptr(data), data.len())
        );
        Error::check("fi_connect", ret)
    }

    pub(crate) fn start_accepting(&self, data: &[u8]) -> Result<()> {
        let ret = calls!(
            self.cm(),
            fi_ops_cm.accept(self.raw(), data_ptr(data), data.len())
        );
        Error::check("fi_accept", ret)
    }

    pub(crate) fn disconnect(&self) -> Result<()> {
        let ret = calls!(self.cm(), fi_ops_cm.shutdown(self.raw(), 0));
        Error::check("fi_shutdown", ret)
    }

    /// Cancels an operation with this context (`fi_cancel`).
    pub(crate) fn cancel_one(&self, context: Context) -> Result<()> {
        let domain = self.domain();
        let address = match domain.unbooked {
            true => Some(ptr::without_provenance_mut(context)),
            false => domain.book(|book| book.posted(context)),
        };
        let address = address.ok_or(Error::new("fi_cancel", Errno::ENOENT))?;
        let ret = calls!(self.ops(), fi_ops_ep.cancel(self.owned.fid(), address));
        Error::check_count("fi_cancel", ret).map(|_| ())
    }

    /// Books an operation and makes the call, which gets what C is to have as its context.
    #[inline]
    pub(crate) fn post(
        &self,
        call: &'static str,
        kind: Kind,
        context: Context,
        f: impl FnOnce(*mut c_void) -> isize,
    ) -> Result<()> {
        let domain = self.domain();
        if domain.unbooked {
            // The context is a number, which C only hands back.
            return done(call, f(ptr::without_provenance_mut(context)));
        }
        let entered = domain.book(|book| book.enter(kind, context));
        let address = entered.ok_or(Error::new(call, Errno::EAGAIN))?;
        done(call, f(address)).inspect_err(|_| {
            domain.book(|book| book.withdraw(address));
        })
    }
}

impl<M: Threading> Domain<M> {
    /// Opens an endpoint, to accept a request if the info is one.
    pub(crate) fn open_endpoint(
        self: &Arc<Self>,
        info: &Info,
        token: Token,
    ) -> Result<Endpoint<M>> {
        const CALL: &str = "fi_endpoint";
        let origin = self.fabric().origin(CALL, info)?;
        let request = origin.request()?;
        let mut copy = match &request {
            Some(request) => request.info_with_handle(self.fabric())?,
            None => origin
                .info()
                .duplicate(CALL, self.fabric().owned.parent())?,
        };
        // What is in front of a receive is the caller's.
        let kept = OURS | Mode::RX_CQ_DATA | Mode::MSG_PREFIX;
        if !kept.contains(copy.mode()) {
            return Err(Error::new(CALL, Errno::EINVAL));
        }
        let mut ep: *mut fid_ep = ptr::null_mut();
        let raw: *mut fi_info = copy.as_mut_ptr();
        let ret = calls!(
            self.table(),
            fi_ops_domain.endpoint(self.owned.get(), raw, &raw mut ep, ptr::null_mut())
        );
        let ep = opened(CALL, ret, ep)?;
        if let Some(request) = request {
            request.taken();
        }
        Ok(Endpoint::new(ep, self.clone(), info, token))
    }
}

/// What a call has come to that returns an error or a number that says nothing.
#[inline]
pub(crate) fn done(call: &'static str, ret: isize) -> Result<()> {
    match ret {
        0.. => Ok(()),
        ret => Error::check_count(call, ret).map(drop),
    }
}

const fn flag(direction: Direction) -> Flags {
    match direction {
        Direction::Tx => Flags::SEND,
        Direction::Rx => Flags::RECV,
    }
}

/// The C value of an option.
pub(crate) const fn number(option: EpOption) -> i32 {
    match option {
        EpOption::MinMultiRecv => ripstop_abi::FI_OPT_MIN_MULTI_RECV,
        EpOption::CmDataSize => ripstop_abi::FI_OPT_CM_DATA_SIZE,
        EpOption::MaxMsgSize => ripstop_abi::FI_OPT_MAX_MSG_SIZE,
        EpOption::MaxTaggedSize => ripstop_abi::FI_OPT_MAX_TAGGED_SIZE,
        EpOption::MaxRmaSize => ripstop_abi::FI_OPT_MAX_RMA_SIZE,
        EpOption::MaxAtomicSize => ripstop_abi::FI_OPT_MAX_ATOMIC_SIZE,
        EpOption::InjectMsgSize => ripstop_abi::FI_OPT_INJECT_MSG_SIZE,
        EpOption::InjectTaggedSize => ripstop_abi::FI_OPT_INJECT_TAGGED_SIZE,
        EpOption::InjectRmaSize => ripstop_abi::FI_OPT_INJECT_RMA_SIZE,
        EpOption::InjectAtomicSize => ripstop_abi::FI_OPT_INJECT_ATOMIC_SIZE,
        EpOption::FirewallAddr => ripstop_abi::FI_OPT_FIREWALL_ADDR,
    }
}

/// `fi_getname`(3) of a live object with these connection operations.
pub(crate) fn getname(table: *const fi_ops_cm, fid: *mut fid) -> Result<Addr> {
    let Some(getname) = op!(table, fi_ops_cm.getname) else {
        return Error::check("fi_getname", ENOSYS).map(|()| Addr::from_bytes(&[]));
    };
    let mut bytes = vec![0_u8; 128];
    loop {
        let mut len = bytes.len();
        let out: *mut c_void = bytes.as_mut_ptr().cast();
        // SAFETY: the object is live and `bytes` has the length said.
        let ret = unsafe { getname(fid, out, &raw mut len) };
        if too_small(ret) && len > bytes.len() && len <= 1 << 16 {
            bytes.resize(len, 0);
            continue;
        }
        Error::check("fi_getname", ret)?;
        bytes.truncate(len);
        return Ok(Addr::from_bytes(&bytes));
    }
}

/// Option values in transit: as aligned and as long as any option's type.
#[repr(C, align(16))]
struct OptValue([u8; 256]);

/// `fi_getopt`(3) of a live object with these operations.
pub(crate) fn getopt(
    table: *const fi_ops_ep,
    fid: *mut fid,
    name: c_int,
    len: usize,
) -> Result<Vec<u8>> {
    let mut value = OptValue([0; 256]);
    let mut got = len.min(value.0.len());
    let out: *mut c_void = (&raw mut value).cast();
    let ret = calls!(
        table,
        fi_ops_ep.getopt(fid, FI_OPT_ENDPOINT, name, out, &raw mut got)
    );
    Error::check("fi_getopt", ret)?;
    Ok(value.0[..got.min(value.0.len())].to_vec())
}

/// `fi_setopt`(3) of a live object with these operations.
pub(crate) fn setopt(
    table: *const fi_ops_ep,
    fid: *mut fid,
    name: c_int,
    from: &[u8],
) -> Result<()> {
    let mut value = OptValue([0; 256]);
    let Some(to) = value.0.get_mut(..from.len()) else {
        return Err(Error::new("fi_setopt", Errno::EINVAL));
    };
    to.copy_from_slice(from);
    let ptr: *const c_void = (&raw const value).cast();
    let ret = calls!(
        table,
        fi_ops_ep.setopt(fid, FI_OPT_ENDPOINT, name, ptr, from.len())
    );
    Error::check("fi_setopt", ret)
}
