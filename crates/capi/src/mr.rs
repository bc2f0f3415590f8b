#![allow(unsafe_code)]
//! Memory regions (`fi_mr(3)`).

use core::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::fi_info;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{Domain, MemoryRegion, MrAttr, Sharing};
use ripstop_mem::{IOV_LIMIT, UserBuf};
use ripstop_os::Dmabuf;
use ripstop_types::{CmEvent, Errno, Flags, Result};

use crate::counter;
use crate::edge::{AnyFid, Arg2, Argument, Array, In, Out, Whole, trampolines};
use crate::eq;
use crate::errno::{self, code, fail};
use crate::object::domain::DomainBody;
use crate::object::{self, Body, Room, This, shared};
use crate::tables::operations;

/// What a region's object holds.
struct MrBody<D: Domain> {
    mr: Arc<D::Mr>,
    domain: Arc<D>,
}

shared! { [D: Domain] MrBody<D>: fid_mr, mr }

impl<D: Domain> MrBody<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        bind: Some(bind::<D>),
        control: Some(control::<D>),
        ..*Self::CLOSING
    };
}

impl<D: Domain> DomainBody<D> {
    /// Registration, an operation of the domain.
    pub(crate) const MR: &'static abi::fi_ops_mr = operations!(fi_ops_mr [D] { reg regv regattr });
}

/// What memory can be registered for, as fi_mr(3) lists it.
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
    dmabuf: Option<Dmabuf<'_>>,
    context: *mut c_void,
) -> Result<*mut abi::fid_mr> {
    if !ACCESS.contains(attr.access) {
        // Programs give capabilities beside them (LCI: FI_RMA), of which C libfabric takes no notice.
        let more = attr.access - ACCESS;
        fi_info!(
            "core",
            Subsys::Mr,
            "fi_mr_reg: {more:?} is no access, and allows nothing"
        );
    }
    let mr = match dmabuf {
        Some(dmabuf) => domain.domain.mr_dmabuf(&dmabuf, attr),
        None => domain.domain.mr(attr),
    }?;
    let room = Room::<MrBody<D>>::new();
    let head = abi::fid_mr {
        fid: object::fid(abi::FI_CLASS_MR, context, MrBody::<D>::FID),
        // Local buffers need no descriptor; programs pass on what they find here.
        mem_desc: object::pointer(room.token()).cast(),
        key: mr.key(),
    };
    let body = MrBody {
        mr,
        domain: Arc::clone(&domain.domain),
    };
    Ok(room.fill(head, body))
}

trampolines! { [D: Domain]
    /// `fi_mr_bind`.
    extern "C" fn bind(this: This<MrBody<D>, abi::fid>, other: AnyFid, flags: Flags) -> c_int {
        code(match other.class() {
            Some(abi::FI_CLASS_CNTR) => counter::of_domain::<D>(other, &this.domain)
                .and_then(|counter| this.mr.bind_counter(counter, flags)),
            // A region is reached through every endpoint of its domain, this one among them.
            Some(abi::FI_CLASS_EP | abi::FI_CLASS_SEP | abi::FI_CLASS_RX_CTX) => {
                match flags.is_empty() {
                    true => Ok(()),
                    false => Err(Errno::EBADFLAGS),
                }
            }
            _ => Err(Errno::EINVAL),
        })
    }

    /// `fi_mr_enable`, `fi_mr_refresh` and `fi_mr_raw_attr`.
    extern "C" fn control(this: This<MrBody<D>, abi::fid>, command: c_int, arg: Argument) -> c_int {
        match command {
            // Regions can be reached from the start.
            abi::FI_ENABLE => 0,
            abi::FI_REFRESH => {
                // All of it, whichever part the argument names.
                this.mr.refresh();
                0
            }
            abi::FI_GET_RAW_MR => code(raw_attr(this.mr.key(), arg)),
            _ => fail(Errno::ENOSYS),
        }
    }
}

/// `fi_mr_map_raw` and `fi_mr_unmap_key`, operations of the domain: raw keys are the keys.
pub(crate) fn domain_control(command: c_int, arg: Argument<'_>) -> Result<()> {
    match command {
        abi::FI_MAP_RAW_MR => map_raw(arg),
        abi::FI_UNMAP_KEY => Ok(()),
        _ => Err(Errno::ENOSYS),
    }
}

/// `FI_MAP_RAW_MR`, with the argument of this command.
fn map_raw(arg: Argument<'_>) -> Result<()> {
    // SAFETY: this command takes a `struct fi_mr_map_raw`.
    let map = unsafe { arg.get::<abi::fi_mr_map_raw>() };
    let map = map.ok_or_else(|| errno::missing("FI_MAP_RAW_MR", "arg"))?;
    if map.key_size != size_of::<u64>() || map.raw_key.is_null() || map.key.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not null, and then as many bytes as the size says, which are those of a key.
    let key = unsafe { map.raw_key.cast::<u64>().read_unaligned() };
    // SAFETY: not null, and then the place for the key.
    unsafe { map.key.write(key) };
    Ok(())
}

/// `FI_GET_RAW_MR`, with the argument of this command.
fn raw_attr(key: u64, arg: Argument<'_>) -> Result<()> {
    // SAFETY: this command takes a `struct fi_mr_raw_attr`.
    let attr = unsafe { arg.get::<abi::fi_mr_raw_attr>() };
    let attr = attr.ok_or_else(|| errno::missing("FI_GET_RAW_MR", "arg"))?;
    // SAFETY: null or the variable with the size of the raw key.
    let size = unsafe { attr.key_size.as_mut() }.ok_or(Errno::EINVAL)?;
    let room = core::mem::replace(size, size_of::<u64>());
    if room < size_of::<u64>() {
        return Err(Errno::ETOOSMALL);
    }
    if attr.raw_key.is_null() || attr.base_addr.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not null, and by the check as long as a key.
    unsafe { attr.raw_key.cast::<u64>().write_unaligned(key) };
    // SAFETY: not null, and then the place for the address. The peer adds nothing to addresses.
    unsafe { attr.base_addr.write(0) };
    Ok(())
}

impl Array<'_, abi::iovec> {
    /// Memory that is to be registered, which stays valid while it is.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null, no pieces or more than [`IOV_LIMIT`].
    fn pieces(self) -> Result<Vec<UserBuf>> {
        if self.is_null() {
            return Err(errno::missing("fi_mr_regv", "iov"));
        }
        let iov = match self.at_most(IOV_LIMIT) {
            Some(iov) if !iov.is_empty() => iov,
            _ => {
                let why = "the number of pieces is 0 or above mr_iov_limit of the domain";
                return Err(errno::refused("fi_mr_regv", why, Errno::EINVAL));
            }
        };
        // Null is an address like any other: a region may span addresses without memory
        // (`FI_MR_ALLOCATED` is not asked for), up to the whole address space.
        let piece = |part: &abi::iovec| {
            // SAFETY: the memory is the program's, which keeps it while it is registered: it has
            // passed the array to register it.
            unsafe { UserBuf::from_raw(part.iov_base.cast(), part.iov_len) }
        };
        Ok(iov.iter().map(piece).collect())
    }
}

/// The memory of `fi_mr_reg`, as a vector of one.
struct One(abi::iovec);

impl Arg2 for One {
    type A = *const c_void;
    type B = usize;

    unsafe fn from_c(at: *const c_void, len: usize) -> Self {
        Self(abi::iovec {
            iov_base: at.cast_mut(),
            iov_len: len,
        })
    }
}

impl One {
    fn vector(&self) -> Array<'_, abi::iovec> {
        // SAFETY: one element, with the memory of which `from_c` was told.
        unsafe { Array::new(&raw const self.0, 1) }
    }
}

/// What is registered.
enum Memory<'a> {
    /// Memory of this process.
    Iov(Array<'a, abi::iovec>),
    /// Memory of a dma-buf.
    Dmabuf(Dmabuf<'a>),
}

/// What is registered, and how.
struct Wanted<'a> {
    memory: Memory<'a>,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    context: *mut c_void,
}

impl<'a> Wanted<'a> {
    /// What attributes say; `has_dmabufs`: whether the provider registers memory of dma-bufs.
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] for memory that is not the host's, or of a dma-buf where the provider has none; as [`dmabuf`].
    fn of(attr: Whole<'a, abi::fi_mr_attr>, flags: u64, has_dmabufs: bool) -> Result<Self> {
        if attr.iface != abi::FI_HMEM_SYSTEM {
            return Err(errno::refused("fi_mr_regattr", HOST_ONLY, Errno::ENOSYS));
        }
        if flags & abi::FI_MR_DMABUF != 0 && !has_dmabufs {
            return Err(errno::refused("fi_mr_regattr", NO_DMABUF, Errno::ENOSYS));
        }
        let memory = match flags & abi::FI_MR_DMABUF != 0 {
            true => Memory::Dmabuf(dmabuf(attr, flags)?),
            false => {
                // SAFETY: without `FI_MR_DMABUF` this member of the union is meant.
                let iov = unsafe { attr.mr.mr_iov };
                // SAFETY: a pointer of a whole struct is null or to as many elements as it says.
                Memory::Iov(unsafe { Array::new(iov, attr.iov_count) })
            }
        };
        Ok(Self {
            memory,
            access: attr.access,
            offset: attr.offset,
            requested_key: attr.requested_key,
            flags,
            context: attr.context,
        })
    }

    /// Registers memory and stores the object; then tells the domain's event queue of it, if the
    /// domain was bound with `FI_REG_MR`.
    fn register<D: Domain>(self, domain: &DomainBody<D>, mr: &Out<'_, *mut abi::fid_mr>) -> c_int {
        let mut made = None;
        let opened = mr.open(|| {
            let (iov, dmabuf) = match self.memory {
                Memory::Iov(_) if self.flags & abi::FI_MR_DMABUF != 0 => {
                    let why =
                        "FI_MR_DMABUF is for fi_mr_regattr, whose attributes name the dma-buf";
                    return Err(errno::refused("fi_mr_reg", why, Errno::ENOSYS));
                }
                Memory::Iov(iov) => (iov.pieces()?, None),
                Memory::Dmabuf(dmabuf) => (Vec::new(), Some(dmabuf)),
            };
            let attr = MrAttr {
                iov,
                access: Flags::from_bits_retain(self.access),
                offset: self.offset,
                requested_key: self.requested_key,
                flags: Flags::from_bits_retain(self.flags),
                shared: Sharing::IfSealed,
            };
            let region = register(domain, &attr, dmabuf, self.context)?;
            made = Some(object::token(region));
            Ok(region)
        });
        if let (Some(region), Some(queue)) = (made, domain.registrations.get()) {
            // A queue that has been overrun says so itself.
            let _overrun = eq::report_done(queue, CmEvent::MrComplete, region, self.context, 0);
        }
        opened
    }
}

/// Why attributes are refused.
const HOST_ONLY: &str = "only memory of the host is registered; set iface to FI_HMEM_SYSTEM";

/// Why a dma-buf is refused.
const NO_DMABUF: &str = "this provider registers no memory of a dma-buf; leave FI_MR_DMABUF out and name the memory by its address";

/// The dma-buf that attributes name. Without `FI_HMEM`, which no domain has, it must be the host's memory.
///
/// # Errors
/// [`Errno::EINVAL`] for what `fi_mr(3)` does not allow, or is not in any address space;
/// [`Errno::EBADFLAGS`] for flags of device memory.
fn dmabuf<'a>(attr: Whole<'a, abi::fi_mr_attr>, flags: u64) -> Result<Dmabuf<'a>> {
    let refused = |why, errno| Err(errno::refused("fi_mr_regattr", why, errno));
    if flags & (abi::FI_HMEM_DEVICE_ONLY | abi::FI_HMEM_HOST_ALLOC) != 0 {
        let why = "FI_HMEM_DEVICE_ONLY and FI_HMEM_HOST_ALLOC need FI_HMEM, which is not offered; leave them out";
        return refused(why, Errno::EBADFLAGS);
    }
    if attr.iov_count > 1 || !attr.base_mr.is_null() {
        let why = "FI_MR_DMABUF is for one dma-buf, without base_mr; set iov_count to 1 and base_mr to NULL";
        return refused(why, Errno::EINVAL);
    }
    // SAFETY: with `FI_MR_DMABUF` this member of the union is meant.
    let named = unsafe { attr.mr.dmabuf };
    // SAFETY: a pointer of a whole struct is null or to one element.
    let named = unsafe { named.as_ref() };
    let named = named.ok_or_else(|| errno::missing("fi_mr_regattr", "attr->dmabuf"))?;
    if named.fd < 0 {
        return refused("dmabuf->fd is no descriptor", Errno::EINVAL);
    }
    let offset = usize::try_from(named.offset).ok();
    let end = offset.and_then(|offset| {
        let address = named.base_addr.addr().checked_add(offset)?;
        address.checked_add(named.len)
    });
    let (Some(offset), Some(_)) = (offset, end) else {
        let why = "base_addr, offset and len of the dma-buf add up to more than an address";
        return refused(why, Errno::EINVAL);
    };
    let mapped = (!named.base_addr.is_null()).then(|| {
        let start = named.base_addr.wrapping_byte_add(offset);
        // SAFETY: the program has mapped the dma-buf there, and keeps that while it is registered.
        unsafe { UserBuf::from_raw(start.cast(), named.len) }
    });
    Ok(Dmabuf {
        // SAFETY: not -1, and the program's, which keeps it open during the call.
        fd: unsafe { BorrowedFd::borrow_raw(named.fd) },
        offset: named.offset,
        len: named.len,
        mapped,
    })
}

/// An I/O vector.
type Vector<'a> = Array<'a, abi::iovec>;

trampolines! { [D: Domain]
    /// `fi_mr_reg`.
    extern "C" fn reg(
        domain: This<DomainBody<D>, abi::fid>, buf: One(buf, len), access: u64, offset: u64,
        requested_key: u64, flags: u64, mr: Out<*mut abi::fid_mr>, context: *mut c_void,
    ) -> c_int {
        let memory = Memory::Iov(buf.vector());
        Wanted { memory, access, offset, requested_key, flags, context }.register(&domain, &mr)
    }

    /// `fi_mr_regv`.
    extern "C" fn regv(
        domain: This<DomainBody<D>, abi::fid>, iov: Vector(iov, count), access: u64, offset: u64,
        requested_key: u64, flags: u64, mr: Out<*mut abi::fid_mr>, context: *mut c_void,
    ) -> c_int {
        let memory = Memory::Iov(iov);
        Wanted { memory, access, offset, requested_key, flags, context }.register(&domain, &mr)
    }

    /// `fi_mr_regattr`.
    extern "C" fn regattr(
        domain: This<DomainBody<D>, abi::fid>, attr: In<*const abi::fi_mr_attr>, flags: u64,
        mr: Out<*mut abi::fid_mr>,
    ) -> c_int {
        let attr = attr.needed("fi_mr_regattr", "attr");
        match attr.and_then(|attr| Wanted::of(attr, flags, D::REGISTERS_DMABUFS)) {
            Ok(wanted) => wanted.register(&domain, &mr),
            Err(error) => fail(error),
        }
    }
}
