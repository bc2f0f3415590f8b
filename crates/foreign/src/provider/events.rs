//! Passive endpoints, and events: what the library's queues say goes on to those of the object model.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_core::provider as model;
use ripstop_core::{Address, EventQueue, FidToken, Info, ProgressSource};
use ripstop_types::{Errno, Flags, Result, WaitObj};

use super::{refuse, told};
use crate::eq::Pump;
use crate::object::endpoint::getname;
use crate::{Addr, Eq, Fabric, PassiveEp};

impl Fabric {
    /// What passes events on to this queue; it is the same as long as anything is bound to it.
    pub(super) fn pump(self: &Arc<Self>, eq: &Arc<EventQueue>) -> Result<Arc<Pump>> {
        let mut all = self.pumps.lock();
        all.retain(|pump| pump.strong_count() > 0);
        let to = Arc::downgrade(eq);
        let pumps = all.iter().filter_map(Weak::upgrade);
        let mut pumps = pumps.filter_map(|pump| pump.downcast::<Pump>().ok());
        if let Some(pump) = pumps.find(|pump| pump.to.ptr_eq(&to)) {
            return Ok(pump);
        }
        let wait = match eq.attr().wait_obj {
            WaitObj::None => WaitObj::None,
            _ => WaitObj::Fd,
        };
        let pump = Arc::new(Pump {
            to,
            from: self.eq(wait, Flags::empty(), None).map_err(told)?,
            reading: Mutex::new(()),
        });
        let source: Arc<dyn ProgressSource> = pump.clone();
        eq.add_source(&source)?;
        let any: Arc<dyn Any + Send + Sync> = pump.clone();
        all.push(Arc::downgrade(&any));
        Ok(pump)
    }
}

impl Pump {
    /// The library's queue, to bind.
    pub(super) const fn queue(&self) -> &Arc<Eq> {
        &self.from
    }
}

impl ProgressSource for Pump {
    fn progress(&self) {
        let (Some(to), Some(_reading)) = (self.to.upgrade(), self.reading.try_lock()) else {
            return;
        };
        // A queue that is full says so itself to who reads it.
        loop {
            match self.from.read() {
                // Of an object that is gone nobody wants to hear.
                Ok(event) if event.fid().is_none_or(|fid| fid == FidToken::NONE) => {}
                Ok(event) => drop(to.push(event)),
                Err(error) if error.errno == Errno::EAVAIL => match self.from.readerr() {
                    Ok(error) => drop(to.push_error(error)),
                    Err(_) => return,
                },
                Err(_) => return,
            }
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.from.wait_fd().ok()
    }

    fn before_wait(&self) -> bool {
        let asked = self.from.try_wait();
        asked.is_err_and(|error| error.is_again())
    }
}

impl model::PassiveEp for PassiveEp {
    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        let pump = self.owned.parent().pump(eq)?;
        self.bind_own_eq(pump.queue()).map_err(told)?;
        *self.pump.lock() = Some(pump);
        Ok(())
    }

    fn listen(&self) -> Result<()> {
        self.start().map_err(told)
    }

    fn name(&self) -> Result<Address> {
        let name = getname(self.cm(), self.owned.fid());
        let name = name.and_then(|name| name.address(self.format));
        name.map_err(told)
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        self.setname(&Addr::from(address)).map_err(told)
    }

    fn set_backlog(&self, backlog: u32) -> Result<()> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        self.backlog(backlog).map_err(told)
    }

    fn reject(&self, info: &Info, data: &[u8]) -> Result<()> {
        let origin = self.owned.parent().origin("fi_reject", info);
        let request = origin.and_then(|origin| origin.request()).map_err(told)?;
        match request {
            Some(request) => request.refuse(self, data).map_err(told),
            None => refuse(Errno::EINVAL, "fi_reject: this is no connection request"),
        }
    }
}
