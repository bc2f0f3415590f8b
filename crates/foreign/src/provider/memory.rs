//! Address vectors, groups of their peers, and memory regions.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use ripstop_core::provider::{self as model, AvAttr, MrAttr};
use ripstop_core::{Address, EventQueue, sockaddr};
use ripstop_types::{AddrFormat, AvType, Errno, FiAddr, Flags, Result};

use super::events::{Name, addr, address};
use super::{Counter, Domain, refuse, told};
use crate::addr::{PAD, stride};
use crate::registration::UserMr;
use crate::{AvSet, Bound, Form, Registration, Threading};

/// Addresses that one call inserts at most.
const MOST: usize = 4096;

/// An address vector of a library.
pub struct Av<M: Threading> {
    av: crate::Av<M>,
    av_type: AvType,
    format: AddrFormat,
}

impl<M: Threading> fmt::Debug for Av<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Av({:?})", self.av_type)
    }
}

impl<M: Threading> Av<M> {
    pub(super) fn open(
        domain: &crate::Domain<M>,
        format: AddrFormat,
        attr: &AvAttr,
    ) -> Result<Self> {
        Ok(Self {
            av: domain.av(attr).map_err(told)?,
            av_type: attr.av_type,
            format,
        })
    }

    pub(super) const fn vector(&self) -> &crate::Av<M> {
        &self.av
    }

    /// A set of these peers, in this order.
    pub(super) fn set(&self, members: &[FiAddr], flags: Flags) -> crate::Result<AvSet<M>> {
        let all = members == self.av.core.all();
        let universe = match all {
            true => ripstop_core::av::set::UNIVERSE,
            false => Flags::empty(),
        };
        let set = self.av.set(&crate::AvSetAttr {
            count: members.len(),
            range: (FiAddr::NOTAVAIL, FiAddr::NOTAVAIL),
            stride: 0,
            flags: flags | universe,
        })?;
        if !all {
            members.iter().try_for_each(|member| set.insert(*member))?;
        }
        Ok(set)
    }

    /// Inserts what was packed, and says of each peer what became of it.
    fn flush(&self, batch: &mut Batch, each: &mut dyn FnMut(Result<FiAddr>)) {
        if batch.found.is_empty() {
            return;
        }
        batch.packed.resize(batch.packed.len() + PAD, 0);
        let inserted = self.av.insert_packed(&batch.packed, &mut batch.found);
        let inserted = inserted.map_err(told);
        for found in batch.found.drain(..) {
            each(inserted.and(match found.is_specified() {
                true => Ok(found),
                false => Err(Errno::EINVAL),
            }));
        }
        batch.packed.clear();
    }
}

/// Addresses of one length, as C takes them.
#[derive(Default)]
struct Batch {
    packed: Vec<u8>,
    found: Vec<FiAddr>,
    len: usize,
}

impl<M: Threading> model::AddressVector for Av<M> {
    fn av_type(&self) -> AvType {
        self.av_type
    }

    fn insert(&self, address: &Address) -> Result<FiAddr> {
        self.av.insert(&addr(address)).map_err(told)
    }

    fn insert_as(&self, address: &Address, id: FiAddr) -> Result<FiAddr> {
        self.av.insert_as(&addr(address), id).map_err(told)
    }

    fn set_user_id(&self, addr: FiAddr, id: FiAddr) -> Result<()> {
        self.av.set_user_id(addr, id).map_err(told)
    }

    fn insert_ip(
        &self,
        addresses: &mut dyn Iterator<Item = Result<SocketAddr>>,
        each: &mut dyn FnMut(Result<FiAddr>),
    ) {
        let mut batch = Batch::default();
        for address in addresses {
            let bytes = address.as_ref().map(sockaddr::encode);
            let bytes = bytes.as_deref().unwrap_or_default();
            let whole = stride(self.av.format(), bytes) == Some(bytes.len());
            if !whole || bytes.len() != batch.len || batch.found.len() == MOST {
                self.flush(&mut batch, each);
            }
            if whole {
                batch.packed.extend_from_slice(bytes);
                batch.found.push(FiAddr::NOTAVAIL);
                batch.len = bytes.len();
            } else {
                each(Err(address.err().unwrap_or(Errno::EINVAL)));
            }
        }
        self.flush(&mut batch, each);
    }

    fn remove(&self, addr: FiAddr) -> Result<()> {
        self.av.remove(&[addr]).map_err(told)
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        address(self.format, &self.av.lookup(addr).map_err(told)?)
    }

    fn bind_eq(&self, _: &Arc<EventQueue>) -> Result<()> {
        refuse(
            Errno::ENOSYS,
            "fi_av_bind: insertions report no events here",
        )
    }

    fn addresses(&self) -> Vec<FiAddr> {
        self.av.core.all()
    }

    fn event_queue(&self) -> Option<Arc<EventQueue>> {
        None
    }
}

/// A collective group of a library.
pub struct Group<M: Threading> {
    _name: Name,
    group: crate::Group<M>,
    _set: AvSet<M>,
}

impl<M: Threading> fmt::Debug for Group<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({:?})", self.group.addr())
    }
}

impl<M: Threading> Group<M> {
    pub(super) const fn new(name: Name, group: crate::Group<M>, set: AvSet<M>) -> Self {
        Self {
            _name: name,
            group,
            _set: set,
        }
    }
}

impl<M: Threading> model::Group for Group<M> {
    fn addr(&self) -> FiAddr {
        self.group.addr()
    }
}

/// A memory region of a library.
pub struct Mr<M: Threading> {
    mr: UserMr<M>,
}

impl<M: Threading> fmt::Debug for Mr<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr({:#x})", self.mr.key())
    }
}

impl<M: Threading> Mr<M> {
    /// Registers memory. Whether peers may map it is the library's affair: C callers cannot say.
    pub(super) fn open(domain: &crate::Domain<M>, attr: &MrAttr) -> Result<Self> {
        let how = Registration {
            form: match attr.iov.len() {
                1 => Form::Reg,
                _ => Form::Regv,
            },
            access: attr.access,
            offset: attr.offset,
            key: attr.requested_key,
            flags: attr.flags,
            pieces: &[],
        };
        let mr = UserMr::new(domain, &attr.iov, &how).map_err(told)?;
        Ok(Self { mr })
    }
}

impl<M: Threading> model::MemoryRegion for Mr<M> {
    type Domain = Domain<M>;

    fn key(&self) -> u64 {
        self.mr.key()
    }

    fn bind_counter(&self, counter: &Arc<Counter<M>>, flags: Flags) -> Result<()> {
        self.mr
            .bind(&Bound::Cntr(counter.cntr()), flags)
            .map_err(told)
    }

    fn try_close(&self, _evict: bool) -> bool {
        self.mr.try_close().map_err(told).is_ok()
    }
}
