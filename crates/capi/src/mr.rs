#![allow(unsafe_code)]
//! Memory regions (`fi_mr(3)`).

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::slice;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::EventQueue;
use ripstop_core::provider::{Domain, MemoryRegion, MrAttr, Sharing};
use ripstop_mem::{IOV_LIMIT, UserBuf};
use ripstop_types::{Errno, Flags, Result};

use crate::counter::CounterBody;
use crate::domain::DomainBody;
use crate::errno::{code, fail};
use crate::object::{self, Body, Room, body};
use crate::{eq, tables};

/// What a region's object holds.
struct MrBody<D: Domain> {
    mr: Arc<D::Mr>,
    _domain: Arc<D>,
}

impl<D: Domain> Body for MrBody<D> {
    type Head = abi::fid_mr;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.mr) > 1
    }
}

/// The operation tables of regions.
pub(crate) struct Tables<D>(PhantomData<D>);

impl<D: Domain> Tables<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<MrBody<D>>),
        bind: Some(bind::<D>),
        control: Some(control::<D>),
        ..tables::NO_FID_OPS
    };
    /// Registration, an operation of the domain.
    pub(crate) const MR: &'static abi::fi_ops_mr = &abi::fi_ops_mr {
        size: size_of::<abi::fi_ops_mr>(),
        reg: Some(reg::<D>),
        regv: Some(regv::<D>),
        regattr: Some(regattr::<D>),
    };
}

/// What one piece of memory is registered for.
const ACCESS: Flags = Flags::SEND
    .union(Flags::RECV)
    .union(Flags::READ)
    .union(Flags::WRITE)
    .union(Flags::REMOTE_READ)
    .union(Flags::REMOTE_WRITE)
    .union(Flags::COLLECTIVE);

/// Registers memory and makes the object.
fn register<D: Domain>(
    domain: &DomainBody<D>,
    attr: &MrAttr,
    context: *mut c_void,
) -> Result<*mut abi::fid_mr> {
    if !ACCESS.contains(attr.access) {
        let why = "access has more than FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE and \
                   FI_COLLECTIVE; leave the rest out";
        return Err(object::refused("fi_mr_reg", why, Errno::EINVAL));
    }
    let mr = domain.domain.mr(attr)?;
    let room = Room::<MrBody<D>>::new();
    let head = abi::fid_mr {
        fid: object::fid(abi::FI_CLASS_MR, context, Tables::<D>::FID),
        // Local buffers need no descriptor; programs pass on what they find here.
        mem_desc: object::pointer(room.token()).cast(),
        key: mr.key(),
    };
    let body = MrBody {
        mr,
        _domain: Arc::clone(&domain.domain),
    };
    Ok(room.fill(head, body))
}

/// `fi_mr_bind`: `fid` is a region of this type, `other` null or an open object.
unsafe extern "C" fn bind<D: Domain>(
    fid: *mut abi::fid,
    other: *mut abi::fid,
    flags: u64,
) -> c_int {
    // SAFETY: this operation belongs to regions of this type.
    let this = unsafe { body::<MrBody<D>>(fid.cast()) };
    // SAFETY: null or an open object.
    let class = unsafe { object::class_of(other) };
    code(match class {
        Some(class @ abi::FI_CLASS_CNTR) => {
            // SAFETY: as above.
            unsafe { object::cast::<CounterBody<D>>(other, class) }.and_then(|counter| {
                let flags = Flags::from_bits_retain(flags);
                this.mr.bind_counter(&counter.counter, flags)
            })
        }
        // A region is reached through every endpoint of its domain, this one among them.
        Some(abi::FI_CLASS_EP | abi::FI_CLASS_SEP | abi::FI_CLASS_RX_CTX) => match flags {
            0 => Ok(()),
            _ => Err(Errno::EBADFLAGS),
        },
        _ => Err(Errno::EINVAL),
    })
}

/// `fi_mr_enable`, `fi_mr_refresh` and `fi_mr_raw_attr`: `fid` is a region of this type.
unsafe extern "C" fn control<D: Domain>(
    fid: *mut abi::fid,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    match command {
        // Regions can be reached from the start.
        abi::FI_ENABLE => 0,
        abi::FI_REFRESH => {
            // SAFETY: this operation belongs to regions of this type.
            let this = unsafe { body::<MrBody<D>>(fid.cast()) };
            // All of it, whichever part the argument names.
            this.mr.refresh();
            0
        }
        abi::FI_GET_RAW_MR => {
            // SAFETY: this operation belongs to regions, whose key is read as C reads it.
            let key = unsafe { (*fid.cast::<abi::fid_mr>()).key };
            // SAFETY: null or the argument that this command takes.
            code(unsafe { raw_attr(key, arg.cast()) })
        }
        _ => fail(Errno::ENOSYS),
    }
}

/// `fi_mr_map_raw` and `fi_mr_unmap_key`, operations of the domain: raw keys are the keys.
pub(crate) unsafe extern "C" fn domain_control(
    _domain: *mut abi::fid,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    match command {
        // SAFETY: null or the argument that this command takes.
        abi::FI_MAP_RAW_MR => code(unsafe { map_raw(arg.cast()) }),
        abi::FI_UNMAP_KEY => 0,
        _ => fail(Errno::ENOSYS),
    }
}

/// # Safety
///
/// `map` is null or valid, with the raw key and room for the key.
unsafe fn map_raw(map: *mut abi::fi_mr_map_raw) -> Result<()> {
    // SAFETY: the caller's guarantee.
    let map = unsafe { map.as_ref() }.ok_or_else(|| object::missing("FI_MAP_RAW_MR", "arg"))?;
    if map.key_size != size_of::<u64>() || map.raw_key.is_null() || map.key.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not null, and of this length.
    let key = unsafe { map.raw_key.cast::<u64>().read_unaligned() };
    // SAFETY: not null, and valid by the caller's guarantee.
    unsafe { *map.key = key };
    Ok(())
}

/// # Safety
///
/// `attr` is null or valid, with its key size and room for the key.
unsafe fn raw_attr(key: u64, attr: *mut abi::fi_mr_raw_attr) -> Result<()> {
    // SAFETY: the caller's guarantee.
    let attr = unsafe { attr.as_mut() }.ok_or_else(|| object::missing("FI_GET_RAW_MR", "arg"))?;
    // SAFETY: as above.
    let size = unsafe { attr.key_size.as_mut() }.ok_or(Errno::EINVAL)?;
    let room = core::mem::replace(size, size_of::<u64>());
    if room < size_of::<u64>() {
        return Err(Errno::ETOOSMALL);
    }
    if attr.raw_key.is_null() || attr.base_addr.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not null, and as long as the key by the check.
    unsafe { attr.raw_key.cast::<u64>().write_unaligned(key) };
    // SAFETY: not null, and valid by the caller's guarantee. The peer adds nothing to addresses.
    unsafe { *attr.base_addr = 0 };
    Ok(())
}

/// # Safety
///
/// `iov` is null or has `count` elements; the memory stays valid while it is registered.
unsafe fn pieces(iov: *const abi::iovec, count: usize) -> Result<Vec<UserBuf>> {
    if iov.is_null() {
        return Err(object::missing("fi_mr_regv", "iov"));
    }
    if count == 0 || count > IOV_LIMIT {
        let why = "the number of pieces is 0 or above mr_iov_limit of the domain";
        return Err(object::refused("fi_mr_regv", why, Errno::EINVAL));
    }
    // SAFETY: not null, and the caller's guarantee.
    let iov = unsafe { slice::from_raw_parts(iov, count) };
    // Null is an address like any other: a region may span addresses without memory (`FI_MR_ALLOCATED` is not asked
    // for), up to the whole address space.
    let piece = |part: &abi::iovec| {
        // SAFETY: the caller's guarantee.
        unsafe { UserBuf::from_raw(part.iov_base.cast(), part.iov_len) }
    };
    Ok(iov.iter().map(piece).collect())
}

/// `fi_mr_reg`: `fid` is a domain of this type; the memory and `mr` are as `fi_mr(3)` asks.
unsafe extern "C" fn reg<D: Domain>(
    fid: *mut abi::fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut abi::fid_mr,
    context: *mut c_void,
) -> c_int {
    let iov = abi::iovec {
        iov_base: buf.cast_mut(),
        iov_len: len,
    };
    // SAFETY: the same memory and objects, as a vector of one.
    unsafe {
        regv::<D>(
            fid,
            &raw const iov,
            1,
            access,
            offset,
            requested_key,
            flags,
            mr,
            context,
        )
    }
}

/// `fi_mr_regv`: as [`reg`], with `count` pieces of memory.
unsafe extern "C" fn regv<D: Domain>(
    fid: *mut abi::fid,
    iov: *const abi::iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut abi::fid_mr,
    context: *mut c_void,
) -> c_int {
    let attr = abi::fi_mr_attr {
        mr: abi::fi_mr_attr_iov { mr_iov: iov },
        iov_count: count,
        access,
        offset,
        requested_key,
        context,
        iface: abi::FI_HMEM_SYSTEM,
        ..Default::default()
    };
    // SAFETY: the same memory and objects, as attributes.
    unsafe { regattr::<D>(fid, &raw const attr, flags, mr) }
}

/// `fi_mr_regattr`: `fid` is a domain of this type; `attr` is null or valid, with its memory.
unsafe extern "C" fn regattr<D: Domain>(
    fid: *mut abi::fid,
    attr: *const abi::fi_mr_attr,
    flags: u64,
    mr: *mut *mut abi::fid_mr,
) -> c_int {
    // SAFETY: this operation belongs to domains of this type.
    let domain = unsafe { body::<DomainBody<D>>(fid.cast()) };
    let make = || {
        // SAFETY: null or valid.
        let attr = unsafe { attr.as_ref() };
        let attr = attr.ok_or_else(|| object::missing("fi_mr_regattr", "attr"))?;
        if attr.iface != abi::FI_HMEM_SYSTEM || flags & abi::FI_MR_DMABUF != 0 {
            let why = "only memory of the host is registered; set iface to FI_HMEM_SYSTEM and leave FI_MR_DMABUF out";
            return Err(object::refused("fi_mr_regattr", why, Errno::ENOSYS));
        }
        // SAFETY: without `FI_MR_DMABUF` this member of the union is meant.
        let iov = unsafe { attr.mr.mr_iov };
        // SAFETY: the memory of the attributes.
        let iov = unsafe { pieces(iov, attr.iov_count) }?;
        let wanted = MrAttr {
            iov,
            access: Flags::from_bits_retain(attr.access),
            offset: attr.offset,
            requested_key: attr.requested_key,
            flags: Flags::from_bits_retain(flags),
            shared: Sharing::IfSealed,
        };
        register(domain, &wanted, attr.context)
    };
    // SAFETY: `mr` is null or valid for writes.
    let opened = unsafe { object::open(mr, make) };
    if let (0, Some(queue)) = (opened, domain.registrations.get()) {
        // SAFETY: the attributes are there and `mr` was written, else nothing had opened.
        unsafe { tell(queue, attr, mr) };
    }
    opened
}

/// Tells of a registration whose object the program has, as `FI_REG_MR` asks.
///
/// # Safety
///
/// `attr` and `mr` are valid.
unsafe fn tell(queue: &EventQueue, attr: *const abi::fi_mr_attr, mr: *mut *mut abi::fid_mr) {
    // SAFETY: the caller's guarantee.
    let region = unsafe { *mr };
    // SAFETY: as above.
    let context = unsafe { (*attr).context };
    eq::registration_done(queue, object::token(region), context);
}
