//! Events: what the library's queues say goes on to those of the object model.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_core::eq::{Event, EventError};
use ripstop_core::provider::{self as model, Token};
use ripstop_core::{Address, EventQueue, FidToken, Info, ProgressSource};
use ripstop_types::{AddrFormat, CmEvent, Context, Errno, Flags, Result, WaitObj};

use super::{Fabric, offer, origin, refuse, told};
use crate::{Addr, ConnReq, FidId, Pep};

/// What an interface was made from.
pub(super) struct Origin {
    info: crate::Info,
    /// Whether the caller has asked for `FI_SOURCE`.
    sources: bool,
    /// Until it is accepted or rejected.
    request: Mutex<Option<ConnReq>>,
    is_request: bool,
}

impl Origin {
    /// What a library answered to hints with these capabilities.
    pub(super) const fn offered(info: crate::Info, asked: Flags) -> Self {
        Self {
            info,
            sources: asked.contains(Flags::SOURCE),
            is_request: false,
            request: Mutex::new(None),
        }
    }

    /// What a connection would be.
    pub(super) const fn requested(info: crate::Info, request: ConnReq) -> Self {
        Self {
            info,
            sources: false,
            is_request: true,
            request: Mutex::new(Some(request)),
        }
    }

    pub(super) const fn info(&self) -> &crate::Info {
        &self.info
    }

    /// Whether completions are to name the source of a message.
    pub(super) const fn names_sources(&self) -> bool {
        self.sources
    }

    /// The connection request, if it is one, to be used up.
    pub(super) fn request(&self) -> Result<Option<ConnReq>> {
        match (self.request.lock().take(), self.is_request) {
            (None, true) => refuse(
                Errno::EINVAL,
                "a connection request is accepted or rejected once",
            ),
            (request, _) => Ok(request),
        }
    }
}

/// What passes events on, for each queue of the object model.
pub(super) struct Pumps {
    fabric: crate::Fabric,
    all: Mutex<Vec<Arc<Pump>>>,
}

impl Pumps {
    pub(super) const fn new(fabric: crate::Fabric) -> Self {
        Self {
            fabric,
            all: Mutex::new(Vec::new()),
        }
    }

    /// The one for this queue; it is the same as long as the queue lives.
    pub(super) fn to(&self, eq: &Arc<EventQueue>) -> Result<Arc<Pump>> {
        let mut all = self.all.lock();
        all.retain(|pump| pump.to.strong_count() > 0);
        let weak = Arc::downgrade(eq);
        if let Some(pump) = all.iter().find(|pump| pump.to.ptr_eq(&weak)) {
            return Ok(pump.clone());
        }
        let wait = match eq.attr().wait_obj {
            WaitObj::None => WaitObj::None,
            _ => WaitObj::Fd,
        };
        let pump = Arc::new(Pump {
            to: weak,
            from: self.fabric.eq(0, wait).map_err(told)?,
            fabric: self.fabric.clone(),
            names: Mutex::default(),
            reading: Mutex::new(()),
        });
        let source: Arc<dyn ProgressSource> = pump.clone();
        eq.add_source(&source)?;
        all.push(pump.clone());
        Ok(pump)
    }
}

/// Passes on what one queue of the library says.
pub(super) struct Pump {
    to: Weak<EventQueue>,
    from: crate::Eq,
    fabric: crate::Fabric,
    /// What the caller calls the library's objects, with the context of what they are about to say.
    names: Mutex<HashMap<FidId, (Token, Context)>>,
    /// Held while the library's queue is read, so that events stay in order.
    reading: Mutex<()>,
}

impl Pump {
    /// The library's queue, to bind.
    pub(super) const fn queue(&self) -> &crate::Eq {
        &self.from
    }

    /// Calls an object by this name from now on; what `open` starts is not heard of before.
    pub(super) fn name<T>(
        self: &Arc<Self>,
        (token, context): (Token, Context),
        open: impl FnOnce() -> crate::Result<(FidId, T)>,
    ) -> Result<(Name, T)> {
        let mut names = self.names.lock();
        let (id, object) = open().map_err(told)?;
        names.insert(id, (token, context));
        let pump = self.clone();
        Ok((Name { pump, id }, object))
    }

    fn named(&self, id: FidId) -> Option<(Token, Context)> {
        self.names.lock().get(&id).copied()
    }

    /// The event in the words of the object model; none of an object that is gone.
    fn event(&self, event: crate::Event) -> Option<Event> {
        Some(match event {
            crate::Event::ConnReq(request) => {
                let (pep, _) = self.named(request.pep_id())?;
                let data = request.data().to_vec();
                let info = request.copy_info().map_err(told).ok()?;
                let info = Box::new(offer(Origin::requested(info, request)));
                Event::ConnReq { pep, info, data }
            }
            crate::Event::Connected { id, data } => Event::Connected {
                ep: self.named(id)?.0,
                data,
            },
            crate::Event::Shutdown { id } => Event::Shutdown {
                ep: self.named(id)?.0,
            },
            crate::Event::Joined { id } => {
                let (fid, context) = self.named(id)?;
                Event::Done {
                    event: CmEvent::JoinComplete,
                    fid,
                    context,
                    data: 0,
                }
            }
            crate::Event::Other { .. } => return None,
        })
    }

    fn error(&self, error: crate::EqError) -> EventError {
        let (fid, context) = self.named(error.id).unwrap_or((FidToken::NONE, 0));
        EventError {
            fid,
            context,
            data: 0,
            err: error.err,
            prov_errno: error.prov_errno,
            err_data: error.err_data,
        }
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
                Ok(event) => drop(self.event(event).map(|event| to.push(event))),
                Err(error) if error.errno == Errno::EAVAIL => match self.from.readerr() {
                    Ok(error) => drop(to.push_error(self.error(error))),
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
        let asked = self.fabric.trywait(&[&self.from]);
        asked.is_err_and(|error| error.is_again())
    }
}

/// What the caller calls an object of the library, as long as this exists.
pub(super) struct Name {
    pump: Arc<Pump>,
    id: FidId,
}

impl Drop for Name {
    fn drop(&mut self) {
        self.pump.names.lock().remove(&self.id);
    }
}

/// A passive endpoint of a library.
pub struct PassiveEp {
    name: Mutex<Option<Name>>,
    pep: Pep,
    format: AddrFormat,
    token: Token,
    fabric: Arc<Fabric>,
}

impl fmt::Debug for PassiveEp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassiveEp")
    }
}

impl PassiveEp {
    pub(super) fn new(fabric: Arc<Fabric>, pep: Pep, info: &Info, token: Token) -> Self {
        Self {
            name: Mutex::new(None),
            pep,
            format: info.addr_format,
            token,
            fabric,
        }
    }
}

/// An address that the library gave.
pub(super) fn address(format: AddrFormat, addr: &Addr) -> Result<Address> {
    let bytes = addr.as_bytes();
    match Address::from_bytes(format, bytes) {
        // A format of a kind of network that the object model does not know.
        Err(_) if format == AddrFormat::Unspec => Ok(Address::Raw(format, bytes.to_vec())),
        found => found.map_err(|_| Errno::EOTHER),
    }
}

/// An address for the library.
pub(super) fn addr(address: &Address) -> Addr {
    Addr::from_bytes(&address.to_bytes())
}

impl model::PassiveEp for PassiveEp {
    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        let pump = self.fabric.pump(eq)?;
        let bind = || {
            self.pep.bind(pump.queue())?;
            Ok((self.pep.id(), ()))
        };
        let (name, ()) = pump.name((self.token, 0), bind)?;
        *self.name.lock() = Some(name);
        Ok(())
    }

    fn listen(&self) -> Result<()> {
        if self.name.lock().is_none() {
            return refuse(Errno::ENOEQ, "fi_listen: bind an event queue first");
        }
        self.pep.listen().map_err(told)
    }

    fn name(&self) -> Result<Address> {
        address(self.format, &self.pep.getname().map_err(told)?)
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        self.pep.setname(&addr(address)).map_err(told)
    }

    fn set_backlog(&self, backlog: u32) -> Result<()> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        self.pep.backlog(backlog).map_err(told)
    }

    fn reject(&self, info: &Info, data: &[u8]) -> Result<()> {
        match origin(info)?.request()? {
            Some(request) => self.pep.reject(request, data).map_err(told),
            None => refuse(Errno::EINVAL, "fi_reject: this is no connection request"),
        }
    }
}
