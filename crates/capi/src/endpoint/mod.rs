#![allow(unsafe_code)]
//! Active endpoints: opening, binding and control (`fi_endpoint(3)`).

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use std::sync::{Arc, Mutex};

use ripstop_abi as abi;
use ripstop_core::provider::{Direction, Domain, Endpoint};
use ripstop_types::{AddrFormat, Errno, Flags, Result};

pub(crate) mod atomic;
mod cm;
pub(crate) mod collective;
mod msg;
mod options;
mod peer;
pub(crate) mod rma;
mod tagged;
mod triggered;

pub(crate) use msg::{data_of, recv_message as message};
pub(crate) use options::{get_option, set_option};
use peer::Shares;
pub(crate) use tagged::recv_message as tagged_message;
pub(crate) use triggered::shared_recv;

use crate::av::AvBody;
use crate::counter::CounterBody;
use crate::cq::CqBody;
use crate::domain::DomainBody;
use crate::eq::{Bound, EqBody};
use crate::errno::{code, fail};
use crate::info::read;
use crate::object::{self, Body, Room};
use crate::srx::{PeerBody, SrxBody};
use crate::stx::StxBody;
use crate::tables::{self, table};

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
    tx: Option<Flags>,
    rx: Option<Flags>,
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
    ep: Arc<D::Endpoint>,
    /// Goes after the endpoint, which may report its end.
    events: Bound,
    defaults: M,
    domain: Arc<D>,
    /// Format of the addresses it takes.
    format: AddrFormat,
    /// The connection request it may accept.
    request: abi::fid_t,
    /// What it shares with another provider; its aliases know it too.
    shared: Arc<Mutex<Shares<D>>>,
}

impl<D: Domain, M: Defaults> Body for EpBody<D, M> {
    type Head = abi::fid_ep;

    fn in_use(&self) -> bool {
        // An alias is one of several owners and may always go.
        self.is_own() && Arc::strong_count(&self.ep) > 1
    }
}

impl<D: Domain, M: Defaults> EpBody<D, M> {
    fn is_own(&self) -> bool {
        core::any::TypeId::of::<M>() == core::any::TypeId::of::<Own>()
    }
}

/// The operation tables of endpoints.
pub(crate) struct Tables<D, M>(PhantomData<(D, M)>);

impl<D: Domain, M: Defaults> Tables<D, M> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<EpBody<D, M>>),
        bind: Some(bind::<D, M>),
        control: Some(control::<D, M>),
        ..tables::NO_FID_OPS
    };
    const EP: &'static abi::fi_ops_ep = &abi::fi_ops_ep {
        cancel: Some(msg::cancel::<D, M>),
        getopt: Some(options::getopt::<D, M>),
        setopt: Some(options::setopt::<D, M>),
        ..tables::NO_EP_OPS
    };
}

fn head<D: Domain, M: Defaults>(class: usize, context: *mut c_void) -> abi::fid_ep {
    abi::fid_ep {
        fid: object::fid(class, context, Tables::<D, M>::FID),
        ops: table(Tables::<D, M>::EP),
        cm: table(Tables::<D, M>::CM),
        msg: table(Tables::<D, M>::MSG),
        rma: table(Tables::<D, M>::RMA),
        tagged: table(Tables::<D, M>::TAGGED),
        atomic: table(Tables::<D, M>::ATOMIC),
        collective: table(Tables::<D, M>::COLLECTIVE),
    }
}

/// `fi_endpoint`.
///
/// # Safety
///
/// `domain` is an open domain of this type; `info` is null or whole; `ep` is null or valid.
pub(crate) unsafe extern "C" fn open<D: Domain>(
    domain: *mut abi::fid_domain,
    info: *mut abi::fi_info,
    ep: *mut *mut abi::fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    let parent = unsafe { object::body::<DomainBody<D>>(domain) };
    let make = || {
        // SAFETY: the caller's guarantee.
        let wanted = unsafe { read::info("fi_endpoint", info) }?;
        // SAFETY: as above, and `read` found it not null.
        let request = unsafe { (*info).handle };
        let room = Room::new();
        let ep = parent.domain.endpoint(&wanted, room.token())?;
        let body = EpBody::<D, Own> {
            ep,
            events: Bound::new(room.token()),
            defaults: Own,
            domain: Arc::clone(&parent.domain),
            format: wanted.addr_format,
            request,
            shared: Arc::default(),
        };
        Ok(room.fill(head::<D, Own>(abi::FI_CLASS_EP, context), body))
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(ep, make) }
}

/// Makes the object of a context of a scalable endpoint.
pub(crate) fn context_of<D: Domain>(
    ep: Arc<D::Endpoint>,
    domain: &Arc<D>,
    format: AddrFormat,
    class: usize,
    context: *mut c_void,
) -> *mut abi::fid_ep {
    let room = Room::new();
    let body = EpBody::<D, Own> {
        ep,
        events: Bound::new(room.token()),
        defaults: Own,
        domain: Arc::clone(domain),
        format,
        request: core::ptr::null_mut(),
        shared: Arc::default(),
    };
    let mut head = head::<D, Own>(class, context);
    head.collective = table(&tables::NO_COLLECTIVE);
    match class {
        abi::FI_CLASS_TX_CTX => {
            head.msg = table(Tables::<D, Own>::MSG_TX);
            head.tagged = table(Tables::<D, Own>::TAGGED_TX);
        }
        _ => {
            head.msg = table(Tables::<D, Own>::MSG_RX);
            head.tagged = table(Tables::<D, Own>::TAGGED_RX);
            head.rma = table(&tables::NO_RMA);
        }
    }
    room.fill(head, body)
}

/// `fi_endpoint2`: flags would ask for what no provider here has.
///
/// # Safety
///
/// As for [`open`].
pub(crate) unsafe extern "C" fn open2<D: Domain>(
    domain: *mut abi::fid_domain,
    info: *mut abi::fi_info,
    ep: *mut *mut abi::fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return fail(Errno::ENOSYS);
    }
    // SAFETY: the caller's guarantee.
    unsafe { open::<D>(domain, info, ep, context) }
}

/// `fi_ep_bind`.
unsafe extern "C" fn bind<D: Domain, M: Defaults>(
    fid: *mut abi::fid,
    other: *mut abi::fid,
    flags: u64,
) -> c_int {
    // SAFETY: these operations belong to endpoints of this type.
    let this = unsafe { object::body::<EpBody<D, M>>(fid.cast()) };
    // SAFETY: `other` is null or an open object, as `fi_ep_bind` asks.
    code(unsafe { bind_to(this, other, Flags::from_bits_retain(flags)) })
}

/// # Safety
///
/// `other` is null or an open object.
unsafe fn bind_to<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    other: *mut abi::fid,
    flags: Flags,
) -> Result<()> {
    // SAFETY: the caller's guarantee.
    let class = unsafe { object::class_of(other) };
    let class = class.ok_or_else(|| object::missing("fi_ep_bind", "the object to bind"))?;
    if !this.is_own() {
        return Err(Errno::EINVAL);
    }
    if !allowed_flags(class).contains(flags) {
        return Err(Errno::EBADFLAGS);
    }
    // SAFETY (each arm): the caller's guarantee.
    match class {
        abi::FI_CLASS_CQ => {
            // SAFETY: as above.
            let cq = unsafe { object::cast::<CqBody<D>>(other, class) }?;
            same_domain(&this.domain, &cq.domain)?;
            this.ep.bind_cq(&cq.cq, flags)?;
            this.shares_cq(cq, flags);
            Ok(())
        }
        abi::FI_CLASS_CNTR => {
            // SAFETY: as above.
            let counter = unsafe { object::cast::<CounterBody<D>>(other, class) }?;
            same_domain(&this.domain, &counter.domain)?;
            this.ep.bind_counter(&counter.counter, flags)
        }
        abi::FI_CLASS_AV => {
            // SAFETY: as above.
            let av = unsafe { object::cast::<AvBody<D>>(other, class) }?;
            same_domain(&this.domain, &av.domain)?;
            this.ep.bind_av(&av.av)?;
            this.shares_av(av);
            Ok(())
        }
        abi::FI_CLASS_EQ => {
            // SAFETY: as above.
            let eq = unsafe { object::cast::<EqBody>(other, class) }?;
            this.ep.bind_eq(&eq.eq)?;
            this.events.to(&eq.eq);
            Ok(())
        }
        abi::FI_CLASS_SRX_CTX => {
            // SAFETY: as above.
            if let Ok(peer) = unsafe { object::cast::<PeerBody<D>>(other, class) } {
                same_domain(&this.domain, &peer.domain)?;
                this.ep.bind_peer_rx(&peer.owner.rx)?;
                this.shares_receives(peer);
                return Ok(());
            }
            // SAFETY: as above.
            let srx = unsafe { object::cast::<SrxBody<D>>(other, class) }?;
            same_domain(&this.domain, &srx.domain)?;
            this.ep.bind_srx(&srx.srx)
        }
        abi::FI_CLASS_STX_CTX => {
            // SAFETY: as above.
            let stx = unsafe { object::cast::<StxBody<D>>(other, class) }?;
            same_domain(&this.domain, &stx.domain)?;
            this.ep.bind_stx(&stx.stx)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The flags that a binding to an object of this class may carry.
fn allowed_flags(class: usize) -> Flags {
    match class {
        abi::FI_CLASS_CQ => Flags::SEND | Flags::RECV | Flags::SELECTIVE_COMPLETION,
        abi::FI_CLASS_CNTR => {
            let local = Flags::SEND | Flags::RECV | Flags::READ | Flags::WRITE;
            local | Flags::REMOTE_READ | Flags::REMOTE_WRITE
        }
        _ => Flags::empty(),
    }
}

/// The endpoint that an object of this class stands for, and its domain.
///
/// # Errors
/// [`Errno::EINVAL`] for an object of another provider.
///
/// # Safety
///
/// `fid` is null or an open object.
pub(crate) unsafe fn behind<'a, D: Domain>(
    fid: *mut abi::fid,
    class: usize,
) -> Result<(&'a Arc<D::Endpoint>, &'a Arc<D>)> {
    // SAFETY: the caller's guarantee, for this and the block below.
    if let Ok(own) = unsafe { object::cast::<EpBody<D, Own>>(fid, class) } {
        return Ok((&own.ep, &own.domain));
    }
    // SAFETY: as above.
    let alias = unsafe { object::cast::<EpBody<D, Alias>>(fid, class) }?;
    Ok((&alias.ep, &alias.domain))
}

pub(crate) fn same_domain<D>(ours: &Arc<D>, theirs: &Arc<D>) -> Result<()> {
    match Arc::ptr_eq(ours, theirs) {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

/// `fi_control` of an endpoint.
unsafe extern "C" fn control<D: Domain, M: Defaults>(
    fid: *mut abi::fid,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: these operations belong to endpoints of this type.
    let this = unsafe { object::body::<EpBody<D, M>>(fid.cast()) };
    if command == abi::FI_ENABLE {
        return code(this.enable());
    }
    if !matches!(
        command,
        abi::FI_GETOPSFLAG | abi::FI_SETOPSFLAG | abi::FI_ALIAS
    ) {
        return fail(Errno::ENOSYS);
    }
    if arg.is_null() {
        return fail(object::missing("fi_control of an endpoint", "arg"));
    }
    if command == abi::FI_ALIAS {
        // SAFETY: not null, and the argument that this command takes.
        let alias = unsafe { &*arg.cast::<abi::fi_alias>() };
        // SAFETY: this object is open.
        let context = unsafe { (*fid).context };
        // SAFETY: `fid` in the argument is null or valid for writes.
        return unsafe {
            object::open(alias.fid.cast(), || {
                self::alias(this, Flags::from_bits_retain(alias.flags), context)
            })
        };
    }
    // SAFETY: not null, and these commands take flags.
    let flags = unsafe { &mut *arg.cast::<u64>() };
    let get = command == abi::FI_GETOPSFLAG;
    code(op_flags(this, flags, get))
}

/// Reads or replaces the flags of calls without flags, for the direction that `flags` names.
fn op_flags<D: Domain, M: Defaults>(this: &EpBody<D, M>, flags: &mut u64, get: bool) -> Result<()> {
    let given = Flags::from_bits_retain(*flags);
    let direction = direction(given)?;
    if get {
        let own = match direction {
            Direction::Tx => this.defaults.tx(),
            Direction::Rx => this.defaults.rx(),
        };
        let found = own.unwrap_or_else(|| this.ep.op_flags(direction));
        *flags = found.bits();
        return Ok(());
    }
    if !this.is_own() {
        return Err(Errno::EINVAL);
    }
    this.ep
        .set_op_flags(direction, given - (Flags::SEND | Flags::RECV))
}

/// Exactly one of `FI_TRANSMIT` and `FI_RECV`.
fn direction(flags: Flags) -> Result<Direction> {
    match (flags.contains(Flags::SEND), flags.contains(Flags::RECV)) {
        (true, false) => Ok(Direction::Tx),
        (false, true) => Ok(Direction::Rx),
        _ => Err(Errno::EINVAL),
    }
}

/// Opens an alias.
fn alias<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    flags: Flags,
    context: *mut c_void,
) -> Result<*mut abi::fid_ep> {
    let own = flags - (Flags::SEND | Flags::RECV);
    let defaults = match direction(flags)? {
        Direction::Tx => Alias {
            tx: Some(own),
            rx: this.defaults.rx(),
        },
        Direction::Rx => Alias {
            tx: this.defaults.tx(),
            rx: Some(own),
        },
    };
    let room = Room::new();
    let body = EpBody::<D, Alias> {
        ep: Arc::clone(&this.ep),
        events: Bound::new(room.token()),
        defaults,
        domain: Arc::clone(&this.domain),
        format: this.format,
        request: core::ptr::null_mut(),
        shared: Arc::clone(&this.shared),
    };
    Ok(room.fill(head::<D, Alias>(abi::FI_CLASS_EP, context), body))
}
