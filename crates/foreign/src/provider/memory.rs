//! Address vectors, groups of their peers, and memory regions.

use std::net::SocketAddr;
use std::sync::Arc;

use ripstop_core::provider as model;
use ripstop_core::{Address, EventQueue, sockaddr};
use ripstop_types::{AvType, Errno, FiAddr, Flags, Result};

use super::{refuse, told};
use crate::addr::{PAD, stride};
use crate::object::Object;
use crate::threading::Threading;
use crate::{Addr, Av, Counter, Domain, Group, Mr};

/// Addresses that one call inserts at most.
const MOST: usize = 4096;

impl<M: Threading> Av<M> {
    /// Inserts what was packed, and says of each peer what became of it.
    fn flush(&self, batch: &mut Batch, each: &mut dyn FnMut(Result<FiAddr>)) {
        if batch.found.is_empty() {
            return;
        }
        batch.packed.resize(batch.packed.len() + PAD, 0);
        let inserted = self.insert_packed(&batch.packed, &mut batch.found);
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
        self.insert_one(&Addr::from(address)).map_err(told)
    }

    fn insert_as(&self, address: &Address, id: FiAddr) -> Result<FiAddr> {
        self.insert_with_id(&Addr::from(address), id).map_err(told)
    }

    fn set_user_id(&self, addr: FiAddr, id: FiAddr) -> Result<()> {
        self.give_id(addr, id).map_err(told)
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
            let whole = stride(self.format(), bytes) == Some(bytes.len());
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
        self.remove_all(&[addr]).map_err(told)
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        let format = self.owned.parent().format();
        let found = self.find(addr).and_then(|found| found.address(format));
        found.map_err(told)
    }

    fn bind_eq(&self, _: &Arc<EventQueue>) -> Result<()> {
        refuse(
            Errno::ENOSYS,
            "fi_av_bind: insertions report no events here",
        )
    }

    fn addresses(&self) -> Vec<FiAddr> {
        self.all()
    }

    fn event_queue(&self) -> Option<Arc<EventQueue>> {
        None
    }
}

impl<M: Threading> model::Group for Group<M> {
    fn addr(&self) -> FiAddr {
        self.address()
    }
}

impl<M: Threading> model::MemoryRegion for Mr<M> {
    type Domain = Domain<M>;

    fn key(&self) -> u64 {
        self.number
    }

    fn bind_counter(&self, counter: &Arc<Counter<M>>, flags: Flags) -> Result<()> {
        let counter = Object::Counter(counter.clone());
        self.bind(counter, flags).map_err(told)
    }

    fn try_close(&self, _evict: bool) -> bool {
        self.owned.try_close().map_err(told).is_ok()
    }
}
