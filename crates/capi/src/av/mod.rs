#![allow(unsafe_code)]
//! Address vectors (`fi_av(3)`).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::net::SocketAddr;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::Address;
use ripstop_core::av::Symmetric;
use ripstop_core::provider::{AddressVector, AvAttr, Domain};
use ripstop_types::{AddrFormat, AvType, Errno, FiAddr, Flags, Result};

pub(crate) mod body;
mod insert;
pub(crate) mod set;

use crate::address::{AddressIn, AddressOut};
use crate::edge::{AnyFid, Arg2, Array, Out, Whole, arguments, trampolines};
use crate::eq::EqBody;
use crate::errno::{self, code, fail};
use crate::info::read::string;
use crate::object::domain::DomainBody;
use crate::object::{self, Body, Room, This};
use crate::peer::{self, Context, Peers};
use crate::tables::{operations, table};
use crate::text::{Text, TextOut};
use body::AvBody;
use insert::{Addresses, Insertion, Results};

impl<D: Domain> AvBody<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        bind: Some(bind::<D>),
        ..*Self::CLOSING
    };
    const AV: &'static abi::fi_ops_av = operations!(fi_ops_av [D] {
        insert insertsvc insertsym remove lookup straddr set_user_id
    } with av_set: set::open::<D>);
}

trampolines! { [D: Domain]
    /// `fi_av_open`.
    pub(crate) extern "C" fn open(
        parent: This<DomainBody<D>>, attr: Attributes, av: Out<*mut abi::fid_av>,
        context: *mut c_void,
    ) -> c_int {
        av.open(|| {
            let wanted = attr.read(parent.av_type)?;
            let head = abi::fid_av {
                fid: object::fid(abi::FI_CLASS_AV, context, AvBody::<D>::FID),
                ops: table(AvBody::<D>::AV),
            };
            let body = AvBody {
                av: parent.domain.av(&wanted)?,
                domain: Arc::clone(&parent.domain),
                format: parent.format,
                reports: wanted.flags.contains(Flags::COMPLETION),
                peers: Peers::default(),
            };
            attr.tell(&body);
            Ok(Room::<AvBody<D>>::new().fill(head, body))
        })
    }
}

arguments! {
    /// The attributes of `fi_av_open`: null, or a whole struct that the call writes to as well.
    pub(crate) struct Attributes { at: *mut abi::fi_av_attr }
}

impl Attributes<'_> {
    /// What the vector is to be, in a domain whose vectors are of type `domain`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null and for what is unknown, [`Errno::ENOSYS`] for `FI_PEER`.
    fn read(&self, domain: AvType) -> Result<AvAttr> {
        // SAFETY: null or a whole struct, as `from_c` was promised; nobody writes to it meanwhile.
        let attr = unsafe { Whole::behind(self.at) };
        let attr = attr.ok_or_else(|| errno::missing("fi_av_open", "attr"))?;
        let refuse = |why, errno| errno::refused("fi_av_open", why, errno);
        let av_type = AvType::from_raw(attr.type_)
            .ok_or_else(|| refuse("type is none; set it to FI_AV_UNSPEC", Errno::EINVAL))?;
        if domain != AvType::Unspec && av_type != AvType::Unspec && av_type != domain {
            let why =
                "type is not that of the domain; set it to av_type of the domain's attributes";
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
                name: attr.name().map(string),
                rx_ctx_bits: u8::try_from(attr.rx_ctx_bits)
                    .map_err(|_| refuse("rx_ctx_bits is not from 0 to 63", Errno::EINVAL))?,
            }),
            _ => Err(refuse(
                "flags has unknown ones; leave them out",
                Errno::EINVAL,
            )),
        }
    }

    /// A program that left the choice to us may look at what it got.
    fn tell<D: Domain>(&self, body: &AvBody<D>) {
        // SAFETY: null or a struct that may be written, as `from_c` was promised; nothing else
        // refers to it now.
        let Some(attr) = (unsafe { self.at.as_mut() }) else {
            return;
        };
        attr.type_ = body.av.av_type().raw();
        if !body.av.map().is_empty() && attr.map_addr.is_null() {
            attr.map_addr = body.av.map().as_ptr().cast_mut().cast();
        }
    }
}

trampolines! { [D: Domain]
    /// `fi_av_bind`.
    extern "C" fn bind(this: This<AvBody<D>, abi::fid>, other: AnyFid, flags: u64) -> c_int {
        if flags != 0 {
            return fail(Errno::EINVAL);
        }
        let eq = other.cast::<EqBody>(abi::FI_CLASS_EQ);
        code(eq.and_then(|eq| this.av.bind_eq(&eq.eq)))
    }

    extern "C" fn insert(
        this: This<AvBody<D>>, addr: Addresses(addr, count), into: Results, flags: u64,
        context: Context,
    ) -> c_int {
        insertion(this, Some(addr.count()), into, flags, context, |insertion| {
            if this.format == AddrFormat::IbUd {
                for address in addr.queue_pairs()? {
                    insertion.put(this.insert_one(&address, insertion.id()));
                }
                return Ok(());
            }
            if this.format != AddrFormat::Str {
                this.insert_all(&mut addr.sockets(this.format)?, insertion);
                return Ok(());
            }
            for text in addr.strings()? {
                insertion.put(this.insert_one(&text, insertion.id()));
            }
            Ok(())
        })
    }

    extern "C" fn insertsvc(
        this: This<AvBody<D>>, node: Option<&CStr>, service: Option<&CStr>, into: Results,
        flags: u64, context: Context,
    ) -> c_int {
        insert_named(this, (node, 1), (service, 1), into, flags, context)
    }

    extern "C" fn insertsym(
        this: This<AvBody<D>>, node: Option<&CStr>, nodes: usize, service: Option<&CStr>,
        services: usize, into: Results, flags: u64, context: Context,
    ) -> c_int {
        insert_named(this, (node, nodes), (service, services), into, flags, context)
    }
}

/// An insertion of `count` addresses, which `put` brings; more than can be counted are `None`.
fn insertion<'a, D: Domain>(
    this: This<'_, AvBody<D>>,
    count: Option<usize>,
    into: Results<'a>,
    flags: u64,
    context: Context,
    put: impl FnOnce(&mut Insertion<'a>) -> Result<()>,
) -> c_int {
    let run = || {
        let count = count.ok_or(Errno::EINVAL)?;
        let report = match this.reports {
            true => Some(this.av.event_queue().ok_or(Errno::ENOEQ)?),
            false => None,
        };
        let mut insertion = Insertion::new(this.token(), count, into, flags, context, report)?;
        put(&mut insertion)?;
        for peer in insertion.firewalled() {
            this.av.set_firewalled(*peer)?;
        }
        insertion.finish()
    };
    let done = run();
    peer::refresh(&this.peers);
    match done {
        Ok(inserted) => inserted,
        Err(error) => fail(error),
    }
}

/// Inserts `nodes` nodes from `node` on, each with `services` services from `service` on.
fn insert_named<D: Domain>(
    this: This<'_, AvBody<D>>,
    (node, nodes): (Option<&CStr>, usize),
    (service, services): (Option<&CStr>, usize),
    into: Results<'_>,
    flags: u64,
    context: Context,
) -> c_int {
    let count = nodes.checked_mul(services);
    insertion(this, count, into, flags, context, |insertion| {
        let missing = |argument| errno::missing("an insertion by node and service", argument);
        let node = node.map(string).ok_or_else(|| missing("node"))?;
        let service = service.map(string);
        if this.format == AddrFormat::IbUd {
            let why = "addresses of the format FI_ADDR_IB_UD are not known by hosts and services; exchange \
                       what fi_getname gives, and insert it with fi_av_insert";
            return Err(errno::refused("fi_av_insertsvc", why, Errno::ENOSYS));
        }
        if this.format == AddrFormat::Str {
            let address = string_address(&node, service.as_deref(), (nodes, services))?;
            insertion.put(this.insert_one(&address, insertion.id()));
            return Ok(());
        }
        let pattern = Symmetric {
            node: &node,
            nodes,
            service: &service.ok_or_else(|| missing("service"))?,
            services,
            format: this.format,
        };
        this.insert_all(&mut pattern.addresses()?, insertion);
        Ok(())
    })
}

/// The string address of a node with a service, or of a node that is one: as `fi_getinfo(3)` makes
/// it, so without ranges.
fn string_address(node: &str, service: Option<&str>, counts: (usize, usize)) -> Result<Address> {
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
        insertion: &mut Insertion<'_>,
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
}

trampolines! { [D: Domain]
    extern "C" fn remove(this: This<AvBody<D>>, peers: PeerArray(fi_addr, count), flags: u64) -> c_int {
        if flags != 0 {
            let why = "no flags are defined; set flags to 0";
            return fail(errno::refused("fi_av_remove", why, Errno::EINVAL));
        }
        if peers.0.is_null() && peers.0.count() != 0 {
            return fail(errno::missing("fi_av_remove", "fi_addr"));
        }
        let Some(peers) = peers.0.get() else {
            let why = "count is more than memory can hold";
            return fail(errno::refused("fi_av_remove", why, Errno::EINVAL));
        };
        let mut result = Ok(());
        // The other way round than they were inserted, so that a table shrinks at its end.
        for &peer in peers.iter().rev() {
            if let Err(error) = this.av.remove(FiAddr(peer)) {
                result = Err(error);
            }
        }
        code(result)
    }

    extern "C" fn set_user_id(this: This<AvBody<D>>, peer: FiAddr, user_id: FiAddr, flags: u64) -> c_int {
        // There are no authorization keys, the only thing a flag could name.
        if flags != 0 {
            return fail(Errno::EBADFLAGS);
        }
        code(this.av.set_user_id(peer, user_id))
    }

    extern "C" fn lookup(this: This<AvBody<D>>, peer: FiAddr, addr: AddressOut(addr, len)) -> c_int {
        match addr.give(this.av.lookup(peer)) {
            // What did not fit is cut, and the length tells.
            short if short == fail(Errno::ETOOSMALL) => 0,
            result => result,
        }
    }

    extern "C" fn straddr(this: This<AvBody<D>>, addr: AddressIn, out: TextRoom(buf, len)) -> *const c_char {
        let format = match this.format {
            AddrFormat::SockaddrIb | AddrFormat::Str | AddrFormat::IbUd => this.format.raw(),
            // Any IP address, whatever family the domain prefers.
            _ => abi::FI_SOCKADDR,
        };
        out.put(|| addr.printed(format))
    }
}

/// Addresses of peers that a call takes in an array that it does not write.
struct PeerArray<'a>(Array<'a, abi::fi_addr_t>);

impl Arg2 for PeerArray<'_> {
    type A = *mut abi::fi_addr_t;
    type B = usize;

    unsafe fn from_c(at: *mut abi::fi_addr_t, count: usize) -> Self {
        // SAFETY: by the contract of `from_c`, the two describe an array.
        Self(unsafe { Array::new(at, count) })
    }
}

arguments! {
    /// Where `fi_av_straddr` writes text: null, or as many bytes as the length beside it says, which may
    /// be null too.
    struct TextRoom { at: *mut c_char, len: Option<&'a mut usize> }
}

impl TextRoom<'_> {
    /// Writes text, and to the length how long it is; returns it, or null where something lacks.
    fn put(self, text: impl FnOnce() -> Option<Text>) -> *const c_char {
        let Some(len) = self.len else {
            return ptr::null();
        };
        let Some(text) = text() else {
            return ptr::null();
        };
        let room = core::mem::replace(len, text.as_bytes().len().saturating_add(1));
        if self.at.is_null() {
            return ptr::null();
        }
        // SAFETY: not null, and as many bytes as the length has said, as `from_c` was promised.
        unsafe { TextOut::from_c(self.at, room) }.put(text.as_bytes());
        self.at
    }
}
