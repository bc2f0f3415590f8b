#![allow(unsafe_code)]
//! Active endpoints: opening, binding and control (`fi_endpoint(3)`).

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::fi_info;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{Direction, Domain, Endpoint};
use ripstop_types::{AddrFormat, Errno, Flags, Result};

pub(crate) mod atomic;
pub(crate) mod body;
mod cm;
pub(crate) mod collective;
mod peer;
pub(crate) mod rma;
pub(crate) mod send;

use crate::av::body::AvBody;
use crate::counter;
use crate::cq::CqBody;
use crate::edge::{AnyFid, Arg, Argument, Out, Whole, trampolines};
use crate::eq::{BoundEq, EqBody};
use crate::errno::{code, fail, missing};
use crate::info::layout::InfoIn;
use crate::info::read;
use crate::object::domain::{DomainBody, same_domain};
use crate::object::{self, Body, Room, This};
use crate::receive::Receiver;
use crate::srx::{PeerBody, SrxBody};
use crate::stx::StxBody;
use crate::tables::{none, table};
use body::{Alias, Defaults, EpBody, Own};

impl<D: Domain, M: Defaults> EpBody<D, M> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        bind: Some(bind::<D, M>),
        control: Some(control::<D, M>),
        ..*Self::CLOSING
    };
}

fn head<D: Domain, M: Defaults>(class: usize, context: *mut c_void) -> abi::fid_ep {
    abi::fid_ep {
        fid: object::fid(class, context, EpBody::<D, M>::FID),
        ops: table(EpBody::<D, M>::EP),
        cm: table(EpBody::<D, M>::CM),
        msg: table(EpBody::<D, M>::MSG),
        rma: table(EpBody::<D, M>::RMA),
        tagged: table(EpBody::<D, M>::TAGGED),
        atomic: table(EpBody::<D, M>::ATOMIC),
        collective: table(EpBody::<D, M>::COLLECTIVE),
    }
}

trampolines! { [D: Domain]
    /// `fi_endpoint`.
    pub(crate) extern "C" fn open(
        parent: This<DomainBody<D>>, info: InfoIn<*mut abi::fi_info>, ep: Out<*mut abi::fid_ep>,
        context: *mut c_void,
    ) -> c_int {
        ep.open(|| make(&parent, info, context))
    }

    /// `fi_endpoint2`: flags would ask for what no provider here has.
    pub(crate) extern "C" fn open2(
        parent: This<DomainBody<D>>, info: InfoIn<*mut abi::fi_info>, ep: Out<*mut abi::fid_ep>,
        flags: u64, context: *mut c_void,
    ) -> c_int {
        match flags {
            0 => ep.open(|| make(&parent, info, context)),
            _ => fail(Errno::ENOSYS),
        }
    }
}

/// Opens an endpoint.
fn make<D: Domain>(
    parent: &DomainBody<D>,
    info: InfoIn<'_, *mut abi::fi_info>,
    context: *mut c_void,
) -> Result<*mut abi::fid_ep> {
    let wanted = read::info("fi_endpoint", info)?;
    let room = Room::new();
    let body = EpBody::<D, Own> {
        ep: parent.domain.endpoint(&wanted, room.token())?,
        events: BoundEq::new(room.token()),
        defaults: Own,
        domain: Arc::clone(&parent.domain),
        format: wanted.addr_format,
        request: info.handle(),
        shared: Arc::default(),
    };
    Ok(room.fill(head::<D, Own>(abi::FI_CLASS_EP, context), body))
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
        events: BoundEq::new(room.token()),
        defaults: Own,
        domain: Arc::clone(domain),
        format,
        request: core::ptr::null_mut(),
        shared: Arc::default(),
    };
    let mut head = head::<D, Own>(class, context);
    head.collective = none();
    match class {
        abi::FI_CLASS_TX_CTX => {
            head.msg = table(EpBody::<D, Own>::MSG_TX);
            head.tagged = table(EpBody::<D, Own>::TAGGED_TX);
        }
        _ => {
            head.msg = table(EpBody::<D, Own>::MSG_RX);
            head.tagged = table(EpBody::<D, Own>::TAGGED_RX);
            head.rma = none();
        }
    }
    room.fill(head, body)
}

trampolines! { [D: Domain, M: Defaults]
    /// `fi_ep_bind`.
    extern "C" fn bind(this: This<EpBody<D, M>, abi::fid>, other: AnyFid, flags: Flags) -> c_int {
        code(bind_to(&this, other, flags))
    }
}

fn bind_to<D: Domain, M: Defaults>(
    this: &EpBody<D, M>,
    other: AnyFid<'_>,
    flags: Flags,
) -> Result<()> {
    let class = other
        .class()
        .ok_or_else(|| missing("fi_ep_bind", "the object to bind"))?;
    if !this.is_own() {
        return Err(Errno::EINVAL);
    }
    if !allowed_flags(class).contains(flags) {
        return Err(Errno::EBADFLAGS);
    }
    match class {
        abi::FI_CLASS_CQ => {
            let cq = other.cast::<CqBody<D>>(class)?;
            same_domain("the completion queue", &this.domain, &cq.domain)?;
            if !flags.intersects(Flags::SEND | Flags::RECV) {
                not_bound("completion queue");
                return Ok(());
            }
            this.ep.bind_cq(&cq.cq, flags)?;
            this.shared.lock().cq(cq, flags);
            Ok(())
        }
        abi::FI_CLASS_CNTR => {
            let counter = counter::of_domain::<D>(other, &this.domain)?;
            if flags.is_empty() {
                not_bound("counter");
                return Ok(());
            }
            this.ep.bind_counter(counter, flags)
        }
        abi::FI_CLASS_AV => {
            let av = other.cast::<AvBody<D>>(class)?;
            same_domain("the address vector", &this.domain, &av.domain)?;
            this.ep.bind_av(&av.av)?;
            this.shared.lock().av(av);
            Ok(())
        }
        abi::FI_CLASS_EQ => {
            let eq = other.cast::<EqBody>(class)?;
            this.ep.bind_eq(&eq.eq)?;
            this.events.set(&eq.eq);
            Ok(())
        }
        abi::FI_CLASS_SRX_CTX => {
            if let Ok(peer) = other.cast::<PeerBody<D>>(class) {
                same_domain("the receive context", &this.domain, &peer.domain)?;
                this.ep.bind_peer_rx(&peer.owner.rx)?;
                this.shared.lock().receives(peer);
                return Ok(());
            }
            let srx = other.cast::<SrxBody<D>>(class)?;
            same_domain("the receive context", &this.domain, &srx.domain)?;
            this.ep.bind_srx(&srx.srx)
        }
        abi::FI_CLASS_STX_CTX => {
            let stx = other.cast::<StxBody<D>>(class)?;
            same_domain("the shared transmit context", &this.domain, &stx.domain)?;
            this.ep.bind_stx(&stx.stx)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// As in C, an object that is bound for no operation is not bound.
fn not_bound(what: &str) {
    fi_info!(
        "core",
        Subsys::EpCtrl,
        "fi_ep_bind: a {what} for no operation counts and reports nothing, so it is not bound; say in flags what it is for"
    );
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

trampolines! { [D: Domain, M: Defaults]
    /// `fi_control` of an endpoint.
    extern "C" fn control(this: This<EpBody<D, M>, abi::fid>, command: c_int, arg: Argument) -> c_int {
        match command {
            abi::FI_ENABLE => code(this.shared.lock().enable(&this.ep)),
            abi::FI_ALIAS => match arg.alias() {
                Ok(wanted) => {
                    let flags = Flags::from_bits_retain(wanted.flags);
                    wanted.out().open(|| alias(&this, flags, this.context()))
                }
                Err(error) => fail(error),
            },
            abi::FI_GETOPSFLAG | abi::FI_SETOPSFLAG => {
                let get = command == abi::FI_GETOPSFLAG;
                code(arg.op_flags().and_then(|flags| op_flags(&this, flags, get)))
            }
            abi::FI_GET_FD => code(this.ep.fd().and_then(|fd| {
                *arg.descriptor()? = fd;
                Ok(())
            })),
            _ => fail(Errno::ENOSYS),
        }
    }
}

impl<'a> Argument<'a> {
    /// The argument of `FI_ALIAS`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null.
    fn alias(self) -> Result<Whole<'a, abi::fi_alias>> {
        // SAFETY: null or a whole `struct fi_alias`, which is what this command takes.
        let alias = unsafe { Whole::behind(self.as_ptr().cast()) };
        alias.ok_or_else(no_argument)
    }

    /// The argument of `FI_GETOPSFLAG` and `FI_SETOPSFLAG`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null.
    fn op_flags(self) -> Result<&'a mut u64> {
        // SAFETY: these commands take a `uint64_t`.
        unsafe { self.get() }.ok_or_else(no_argument)
    }
}

impl<'a> Argument<'a> {
    /// The argument of `FI_GET_FD`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null.
    fn descriptor(self) -> Result<&'a mut c_int> {
        // SAFETY: this command takes an `int`.
        unsafe { self.get() }.ok_or_else(no_argument)
    }
}

fn no_argument() -> Errno {
    missing("fi_control of an endpoint", "arg")
}

impl<'a> Whole<'a, abi::fi_alias> {
    /// Where the alias goes.
    fn out(self) -> Out<'a, *mut abi::fid_ep> {
        // SAFETY: the pointer of a whole `struct fi_alias` is null or to the place for the alias,
        // which is an endpoint as the object is.
        unsafe { Out::from_c(self.fid.cast()) }
    }
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
        events: BoundEq::new(room.token()),
        defaults,
        domain: Arc::clone(&this.domain),
        format: this.format,
        request: core::ptr::null_mut(),
        shared: Arc::clone(&this.shared),
    };
    Ok(room.fill(head::<D, Alias>(abi::FI_CLASS_EP, context), body))
}
