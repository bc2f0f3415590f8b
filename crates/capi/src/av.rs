#![allow(unsafe_code)]
//! Address vectors (`fi_av(3)`).
//!
//! These operations belong to address vectors of type `D` and are called through them; arrays
//! have as many elements as the caller says, names are null or C strings. Every `SAFETY`
//! remark of an operation rests on this.

use core::ffi::{c_char, c_int, c_void};
use core::marker::PhantomData;
use core::ptr;
use std::net::SocketAddr;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::Address;
use ripstop_core::av::Symmetric;
use ripstop_core::provider::{AddressVector, AvAttr, Domain};
use ripstop_types::{AddrFormat, AvType, Errno, FiAddr, Flags, Result};

mod insert;

use crate::address;
use crate::av_set;
use crate::domain::DomainBody;
use crate::eq::EqBody;
use crate::errno::{code, fail};
use crate::info::read::string;
use crate::object::{self, Body, Room, body};
use crate::peer::{self, Peers};
use crate::tables::{self, table};
use crate::tostr::address::printed;
use insert::{Addresses, Insertion};

/// What an address vector's object holds.
pub(crate) struct AvBody<D: Domain> {
    pub(crate) av: Arc<D::Av>,
    pub(crate) domain: Arc<D>,
    /// Format of the addresses it takes.
    format: AddrFormat,
    /// Insertions report to an event queue (`FI_EVENT`).
    reports: bool,
    /// Receive contexts of other providers, who are told of insertions.
    pub(crate) peers: Peers,
}

impl<D: Domain> Body for AvBody<D> {
    type Head = abi::fid_av;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.av) > 1
    }
}

struct Tables<D>(PhantomData<D>);

impl<D: Domain> Tables<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<AvBody<D>>),
        bind: Some(bind::<D>),
        ..tables::NO_FID_OPS
    };
    const AV: &'static abi::fi_ops_av = &abi::fi_ops_av {
        insert: Some(insert::<D>),
        insertsvc: Some(insertsvc::<D>),
        insertsym: Some(insertsym::<D>),
        remove: Some(remove::<D>),
        lookup: Some(lookup::<D>),
        straddr: Some(straddr::<D>),
        set_user_id: Some(set_user_id::<D>),
        av_set: Some(av_set::open::<D>),
        ..tables::NO_AV_OPS
    };
}

/// `fi_av_open`.
///
/// # Safety
///
/// `domain` is an open domain of this type; `attr` is null or valid, also for writes; `av` is
/// null or valid for writes.
pub(crate) unsafe extern "C" fn open<D: Domain>(
    domain: *mut abi::fid_domain,
    attr: *mut abi::fi_av_attr,
    av: *mut *mut abi::fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    let parent = unsafe { body::<DomainBody<D>>(domain) };
    let make = || {
        // SAFETY: the caller's guarantee.
        let attr = unsafe { attr.as_mut() };
        let attr = attr.ok_or_else(|| object::missing("fi_av_open", "attr"))?;
        // SAFETY: the caller's guarantee.
        let wanted = unsafe { attributes(attr, parent.av_type) }?;
        let head = abi::fid_av {
            fid: object::fid(abi::FI_CLASS_AV, context, Tables::<D>::FID),
            ops: table(Tables::<D>::AV),
        };
        let body = AvBody {
            av: parent.domain.av(&wanted)?,
            domain: Arc::clone(&parent.domain),
            format: parent.format,
            reports: wanted.flags.contains(Flags::COMPLETION),
            peers: Peers::default(),
        };
        // A program that left the choice to us may look at what it got.
        attr.type_ = body.av.av_type().raw();
        if !body.av.map().is_empty() && attr.map_addr.is_null() {
            attr.map_addr = body.av.map().as_ptr().cast_mut().cast();
        }
        Ok(Room::<AvBody<D>>::new().fill(head, body))
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(av, make) }
}

/// Attributes as a provider takes them.
///
/// # Safety
///
/// The name is null or a C string.
unsafe fn attributes(attr: &abi::fi_av_attr, domain: AvType) -> Result<AvAttr> {
    let refuse = |why, errno| object::refused("fi_av_open", why, errno);
    let av_type = AvType::from_raw(attr.type_)
        .ok_or_else(|| refuse("type is none; set it to FI_AV_UNSPEC", Errno::EINVAL))?;
    if domain != AvType::Unspec && av_type != AvType::Unspec && av_type != domain {
        let why = "type is not that of the domain; set it to av_type of the domain's attributes";
        return Err(refuse(why, Errno::EINVAL));
    }
    // `FI_EVENT` has the value of `FI_COMPLETION`.
    let symmetric = Flags::from_bits_retain(abi::FI_SYMMETRIC);
    let known = Flags::COMPLETION | Flags::READ | Flags::AV_USER_ID | symmetric;
    match Flags::from_bits_retain(attr.flags) {
        flags if flags.contains(Flags::PEER) => {
            let why = "there are no address vectors of other providers; leave FI_PEER out";
            Err(refuse(why, Errno::ENOSYS))
        }
        flags if known.contains(flags) => Ok(AvAttr {
            av_type: match (av_type, domain) {
                (AvType::Unspec, domain) => domain,
                (av_type, _) => av_type,
            },
            count: attr.count,
            flags,
            // SAFETY: the caller's guarantee.
            name: unsafe { string(attr.name) },
            rx_ctx_bits: u8::try_from(attr.rx_ctx_bits)
                .map_err(|_| refuse("rx_ctx_bits is not from 0 to 63", Errno::EINVAL))?,
        }),
        _ => Err(refuse(
            "flags has unknown ones; leave them out",
            Errno::EINVAL,
        )),
    }
}

/// `fi_av_bind`.
unsafe extern "C" fn bind<D: Domain>(
    fid: *mut abi::fid,
    other: *mut abi::fid,
    flags: u64,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<AvBody<D>>(fid.cast()) };
    if flags != 0 {
        return fail(Errno::EINVAL);
    }
    // SAFETY: `other` is null or an open object.
    let eq = unsafe { object::cast::<EqBody>(other, abi::FI_CLASS_EQ) };
    code(eq.and_then(|eq| this.av.bind_eq(&eq.eq)))
}

unsafe extern "C" fn insert<D: Domain>(
    av: *mut abi::fid_av,
    addr: *const c_void,
    count: usize,
    fi_addr: *mut abi::fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<AvBody<D>>(av) };
    // SAFETY: see the module; with `FI_SYNC_ERR` the context is an array too.
    let begun = unsafe { this.begin(av, count, fi_addr, flags, context) };
    let done = begun.and_then(|mut insertion| {
        if addr.is_null() && count != 0 {
            return Err(Errno::EINVAL);
        }
        if this.format == AddrFormat::Str {
            // SAFETY: see the module: for this format, one string after the other.
            let strings = unsafe { insert::strings(addr.cast(), count) };
            strings.for_each(|text| insertion.put(this.insert_one(&text, insertion.id())));
        } else {
            // SAFETY: see the module: addresses of one size in an array.
            let mut addresses = unsafe { Addresses::new(this.format, addr.cast(), count) };
            this.insert_all(&mut addresses, &mut insertion);
        }
        insertion.finish()
    });
    peer::refresh(&this.peers);
    done.unwrap_or_else(fail)
}

unsafe extern "C" fn insertsvc<D: Domain>(
    av: *mut abi::fid_av,
    node: *const c_char,
    service: *const c_char,
    fi_addr: *mut abi::fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the same vector, strings and arrays, as a pattern of one.
    unsafe { insertsym::<D>(av, node, 1, service, 1, fi_addr, flags, context) }
}

unsafe extern "C" fn insertsym<D: Domain>(
    av: *mut abi::fid_av,
    node: *const c_char,
    nodes: usize,
    service: *const c_char,
    services: usize,
    fi_addr: *mut abi::fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<AvBody<D>>(av) };
    let begin = || {
        let count = nodes.checked_mul(services).ok_or(Errno::EINVAL)?;
        // SAFETY: see the module; with `FI_SYNC_ERR` the context is an array too.
        let mut insertion = unsafe { this.begin(av, count, fi_addr, flags, context) }?;
        // SAFETY: see the module.
        let node = unsafe { string(node) }.ok_or(Errno::EINVAL)?;
        // SAFETY: see the module.
        let service = unsafe { string(service) };
        if this.format == AddrFormat::Str {
            let address = named(&node, service.as_deref(), (nodes, services))?;
            insertion.put(this.insert_one(&address, insertion.id()));
            return insertion.finish();
        }
        let service = service.ok_or(Errno::EINVAL)?;
        let pattern = Symmetric {
            node: &node,
            nodes,
            service: &service,
            services,
            format: this.format,
        };
        this.insert_all(&mut pattern.addresses()?, &mut insertion);
        insertion.finish()
    };
    let done = begin();
    peer::refresh(&this.peers);
    done.unwrap_or_else(fail)
}

/// The string address of a node with a service, or of a node that is one: as `fi_getinfo(3)` makes
/// it, so without ranges.
fn named(node: &str, service: Option<&str>, counts: (usize, usize)) -> Result<Address> {
    if counts != (1, 1) {
        return Err(Errno::ENOSYS);
    }
    if node.contains("://") && service.is_some() {
        return Err(Errno::EINVAL);
    }
    Ok(Address::string(Some(node), service))
}

impl<D: Domain> AvBody<D> {
    fn insert_one(&self, address: &Address, id: Option<FiAddr>) -> Result<FiAddr> {
        match id {
            Some(id) => self.av.insert_as(address, id),
            None => self.av.insert(address),
        }
    }

    /// Inserts IP addresses: all under one lock, unless they come with ids.
    fn insert_all(
        &self,
        addresses: &mut dyn Iterator<Item = Result<SocketAddr>>,
        insertion: &mut Insertion,
    ) {
        if insertion.id().is_none() {
            let mut each = |outcome| insertion.put(outcome);
            return self.av.insert_ip(addresses, &mut each);
        }
        for address in addresses {
            let id = insertion.id();
            let insert = |address| self.insert_one(&Address::Ip(address), id);
            insertion.put(address.and_then(insert));
        }
    }

    /// Checks what all insertions have in common.
    ///
    /// # Safety
    ///
    /// `fi_addr` is null or has `count` elements, as `context` does with `FI_SYNC_ERR`.
    unsafe fn begin(
        &self,
        av: *mut abi::fid_av,
        count: usize,
        fi_addr: *mut abi::fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> Result<Insertion> {
        let report = match self.reports {
            true => Some(self.av.event_queue().ok_or(Errno::ENOEQ)?),
            false => None,
        };
        // SAFETY: the caller's guarantee.
        unsafe { Insertion::new(av, count, fi_addr, flags, context, report) }
    }
}

/// The longest array of addresses there can be.
const MOST_ADDRESSES: usize = isize::MAX.unsigned_abs() / size_of::<abi::fi_addr_t>();

unsafe extern "C" fn remove<D: Domain>(
    av: *mut abi::fid_av,
    fi_addr: *mut abi::fi_addr_t,
    count: usize,
    flags: u64,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<AvBody<D>>(av) };
    if flags != 0 {
        let why = "no flags are defined; set flags to 0";
        return fail(object::refused("fi_av_remove", why, Errno::EINVAL));
    }
    if fi_addr.is_null() && count != 0 {
        return fail(object::missing("fi_av_remove", "fi_addr"));
    }
    if count > MOST_ADDRESSES {
        let why = "count is more than memory can hold";
        return fail(object::refused("fi_av_remove", why, Errno::EINVAL));
    }
    let mut result = Ok(());
    // The other way round than they were inserted, so that a table shrinks at its end.
    for index in (0..count).rev() {
        // SAFETY: see the module.
        let peer = unsafe { fi_addr.wrapping_add(index).read() };
        if let Err(error) = this.av.remove(FiAddr(peer)) {
            result = Err(error);
        }
    }
    code(result)
}

unsafe extern "C" fn set_user_id<D: Domain>(
    av: *mut abi::fid_av,
    fi_addr: abi::fi_addr_t,
    user_id: abi::fi_addr_t,
    flags: u64,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<AvBody<D>>(av) };
    // There are no authorization keys, the only thing a flag could name.
    if flags != 0 {
        return fail(Errno::EBADFLAGS);
    }
    code(this.av.set_user_id(FiAddr(fi_addr), FiAddr(user_id)))
}

unsafe extern "C" fn lookup<D: Domain>(
    av: *mut abi::fid_av,
    fi_addr: abi::fi_addr_t,
    addr: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<AvBody<D>>(av) };
    let found = this.av.lookup(FiAddr(fi_addr));
    // SAFETY: see the module.
    match unsafe { address::give(found, addr, len) } {
        // What did not fit is cut, and the length tells.
        short if short == fail(Errno::ETOOSMALL) => 0,
        result => result,
    }
}

unsafe extern "C" fn straddr<D: Domain>(
    av: *mut abi::fid_av,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: see the module.
    let this = unsafe { body::<AvBody<D>>(av) };
    // SAFETY: see the module.
    let Some(len) = (unsafe { len.as_mut() }) else {
        return ptr::null();
    };
    if addr.is_null() {
        return ptr::null();
    }
    let format = match this.format {
        AddrFormat::SockaddrIb | AddrFormat::Str | AddrFormat::IbUd => this.format.raw(),
        // Any IP address, whatever family the domain prefers.
        _ => abi::FI_SOCKADDR,
    };
    // SAFETY: see the module: a whole address.
    let Some(text) = (unsafe { printed(format, addr.cast(), None) }) else {
        return ptr::null();
    };
    let room = core::mem::replace(len, text.as_bytes().len().saturating_add(1));
    if buf.is_null() {
        return ptr::null();
    }
    // SAFETY: see the module: the buffer has as many bytes as the caller said.
    unsafe { text.copy_to(buf, room) };
    buf
}
