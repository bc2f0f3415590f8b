#![allow(unsafe_code)]
//! `fi_eq`(3) and the events of connections.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_abi::{
    FI_CONNECTED, FI_CONNREQ, FI_JOIN_COMPLETE, FI_SHUTDOWN, fi_eq_cm_entry, fi_eq_err_entry,
    fi_ops_eq, fid, fid_eq,
};
use ripstop_core::FidToken;
use ripstop_core::eq::{Event, EventError};
use ripstop_core::provider::Token;
use ripstop_types::{CmEvent, Context, Errno, WaitObj};

use crate::call::{self, calls};
use crate::info::Info;
use crate::owned::Owned;
use crate::provider::origin::Origin;
use crate::sets::WaitSet;
use crate::threading::Shared;
use crate::{Error, Fabric, PassiveEp, Result};

/// A request for a connection. Dropped without an answer, it is refused.
pub(crate) struct ConnReq {
    info: Info,
    pep: Arc<PassiveEp>,
    open: bool,
}

impl ConnReq {
    /// The info with the request's handle, for an endpoint of `fabric`.
    pub(crate) fn info_with_handle(&self, fabric: &Arc<Fabric>) -> Result<Info> {
        if !Arc::ptr_eq(self.pep.owned.parent(), fabric) {
            return Err(Error::new("fi_endpoint", Errno::EDOMAIN));
        }
        let mut info = self.info.duplicate("fi_endpoint", self.info.functions())?;
        info.set_handle(self.info.handle());
        Ok(info)
    }

    /// The request's handle now belongs to an endpoint.
    pub(crate) fn taken(mut self) {
        self.open = false;
    }

    /// Refuses through `pep`, which must be the one asked.
    pub(crate) fn refuse(mut self, pep: &PassiveEp, data: &[u8]) -> Result<()> {
        if pep.owned.fid() != self.pep.owned.fid() {
            return Err(Error::new("fi_reject", Errno::EINVAL));
        }
        self.open = false;
        pep.refuse(self.info.handle(), data)
    }
}

impl Drop for ConnReq {
    fn drop(&mut self) {
        if self.open {
            // Nobody is left to hear about a failure.
            let _ = self.pep.refuse(self.info.handle(), &[]);
        }
    }
}

/// An event queue of the library's own.
pub struct Eq {
    pub(crate) owned: Owned<fid_eq, Shared, Arc<Fabric>>,
    wait: WaitObj,
    /// What the caller calls the objects that report here, with the context of what they are about
    /// to say.
    names: Mutex<HashMap<usize, (Token, Context)>>,
    /// The passive endpoints among them.
    peps: Mutex<Vec<Weak<PassiveEp>>>,
    /// The set it is waited for in, which closes after it.
    _set: Option<Arc<WaitSet>>,
}

/// What the caller calls an object of the library, as long as this exists.
pub(crate) struct Name {
    pub(crate) eq: Arc<Eq>,
    id: usize,
}

impl Drop for Name {
    fn drop(&mut self) {
        self.eq.names.lock().remove(&self.id);
    }
}

/// Bytes of connection data an event may bring.
const DATA: usize = 512;

/// Room for any event.
#[repr(C)]
struct Room {
    entry: fi_eq_cm_entry,
    data: [u8; DATA],
}

impl Eq {
    pub(crate) fn new(
        owned: Owned<fid_eq, Shared, Arc<Fabric>>,
        wait: WaitObj,
        set: Option<Arc<WaitSet>>,
    ) -> Self {
        Self {
            owned,
            wait,
            names: Mutex::default(),
            peps: Mutex::default(),
            _set: set,
        }
    }

    pub(crate) fn table(&self) -> *const fi_ops_eq {
        // SAFETY: the queue is open.
        unsafe { (*self.owned.get()).ops }
    }

    /// Calls an object by this name from now on; what `open` starts is not heard of before. `open`
    /// gives the object with the address of its `fid`.
    pub(crate) fn name<T>(
        self: &Arc<Self>,
        name: (Token, Context),
        open: impl FnOnce() -> Result<(*mut fid, T)>,
    ) -> Result<(Name, T)> {
        let mut names = self.names.lock();
        let (fid, object) = open()?;
        let id = fid.addr();
        names.insert(id, name);
        let eq = self.clone();
        Ok((Name { eq, id }, object))
    }

    /// A passive endpoint reports here.
    pub(crate) fn add_pep(&self, pep: Weak<PassiveEp>) {
        let mut peps = self.peps.lock();
        peps.retain(|pep| pep.strong_count() > 0);
        peps.push(pep);
    }

    /// The name of an object; none of one that is gone.
    fn named(&self, fid: *mut fid) -> (Token, Context) {
        let found = self.names.lock().get(&fid.addr()).copied();
        found.unwrap_or((FidToken::NONE, 0))
    }

    /// The next event (`fi_eq_read`). A connection request is answered by opening an endpoint with
    /// its info, or by rejecting it.
    ///
    /// # Errors
    ///
    /// `FI_EAGAIN` when there is none, `FI_EAVAIL` when an error comes first.
    pub fn read(&self) -> Result<Event> {
        let (mut event, mut room) = empty();
        let (out, buf, len) = (&raw mut event, (&raw mut room).cast(), size_of::<Room>());
        let ret = calls!(
            self.table(),
            fi_ops_eq.read,
            self.owned.get(),
            out,
            buf,
            len,
            0
        );
        let len = Error::check_count("fi_eq_read", ret)?;
        self.event(event, &room, len)
    }

    /// Like [`Eq::read`], but blocks until there is something or the time is up (`fi_eq_sread`).
    ///
    /// # Errors
    ///
    /// As [`Eq::read`]; `FI_EAGAIN` when the time is up.
    pub fn sread(&self, timeout: Option<Duration>) -> Result<Event> {
        let (mut event, mut room) = empty();
        let (out, buf, len) = (&raw mut event, (&raw mut room).cast(), size_of::<Room>());
        let millis = call::millis(timeout);
        let ret = calls!(
            self.table(),
            fi_ops_eq.sread,
            self.owned.get(),
            out,
            buf,
            len,
            millis,
            0
        );
        let len = Error::check_count("fi_eq_sread", ret)?;
        self.event(event, &room, len)
    }

    fn event(&self, event: u32, room: &Room, len: usize) -> Result<Event> {
        let (token, context) = self.named(room.entry.fid);
        let data = len.saturating_sub(size_of::<fi_eq_cm_entry>()).min(DATA);
        let data = room.data[..data].to_vec();
        Ok(match event {
            FI_CONNREQ => {
                let functions = self.owned.parent().owned.parent();
                let info = Info::adopt(functions, room.entry.info);
                let info = info.ok_or(Error::new("fi_eq_read", Errno::EOTHER))?;
                let peps = self.peps.lock();
                let mut peps = peps.iter().filter_map(Weak::upgrade);
                match peps.find(|pep| pep.owned.fid() == room.entry.fid) {
                    Some(pep) => {
                        let offered = info.duplicate("fi_eq_read", functions)?;
                        let open = true;
                        let request = ConnReq { info, pep, open };
                        let info = Box::new(Origin::requested(offered, request).offer());
                        let pep = token;
                        Event::ConnReq { pep, info, data }
                    }
                    // The passive endpoint is gone, and the request with it.
                    None => other(event),
                }
            }
            FI_CONNECTED => Event::Connected { ep: token, data },
            FI_SHUTDOWN => Event::Shutdown { ep: token },
            FI_JOIN_COMPLETE => Event::Done {
                event: CmEvent::JoinComplete,
                fid: token,
                context,
                data: 0,
            },
            event => other(event),
        })
    }

    /// Reads the error that made a read say `FI_EAVAIL` (`fi_eq_readerr`).
    ///
    /// # Errors
    ///
    /// `FI_EAGAIN` when there is none, and what else the library says.
    pub fn readerr(&self) -> Result<EventError> {
        let mut err_data = vec![0_u8; DATA];
        let mut entry = fi_eq_err_entry {
            err_data: err_data.as_mut_ptr().cast(),
            err_data_size: err_data.len(),
            ..Default::default()
        };
        let ret = calls!(
            self.table(),
            fi_ops_eq.readerr,
            self.owned.get(),
            &raw mut entry,
            0
        );
        if Error::check_count("fi_eq_readerr", ret)? == 0 {
            return Err(Error::new("fi_eq_readerr", Errno::EAGAIN));
        }
        err_data.truncate(entry.err_data_size);
        let (fid, context) = self.named(entry.fid);
        Ok(EventError {
            fid,
            context,
            data: 0,
            err: Errno(entry.err),
            prov_errno: entry.prov_errno,
            err_data,
        })
    }

    /// The descriptor to poll after [`Eq::try_wait`], for a queue opened with [`WaitObj::Fd`].
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for another wait object, and what the library says.
    pub fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        let fd = call::wait_fd(self.owned.fid(), self.wait)?;
        // SAFETY: the descriptor belongs to the queue, which `self` keeps open.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether its wait object may be waited on (`fi_trywait`).
    ///
    /// # Errors
    ///
    /// `FI_EAGAIN` when there is something to read, and what else the library says.
    pub fn try_wait(&self) -> Result<()> {
        self.owned.parent().trywait(&mut [self.owned.fid()])
    }
}

/// An event of no object that is known.
fn other(event: u32) -> Event {
    let bytes = Vec::new();
    Event::Written { event, bytes }
}

fn empty() -> (u32, Room) {
    let (entry, data) = (fi_eq_cm_entry::default(), [0; DATA]);
    (0, Room { entry, data })
}
