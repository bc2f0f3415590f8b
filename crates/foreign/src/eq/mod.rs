#![allow(unsafe_code)]
//! `fi_eq`(3) and the events of connections, with the passive endpoints that a request is answered by.

pub(crate) mod origin;
pub(crate) mod pep;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_abi::{
    FI_CONNECTED, FI_CONNREQ, FI_JOIN_COMPLETE, FI_SHUTDOWN, fi_eq_attr, fi_eq_cm_entry,
    fi_eq_err_entry, fi_ops_eq, fid, fid_eq,
};
use ripstop_core::eq::{Event, EventError};
use ripstop_core::provider::Token;
use ripstop_core::{EventQueue, FidToken};
use ripstop_types::{CmEvent, Context, Errno, Flags, WaitObj};

use origin::Origin;
use pep::ConnReq;

use crate::call::{self, ENOSYS, calls, op};
use crate::fabric::{WaitSet, opened};
use crate::info::Info;
use crate::owned::Owned;
use crate::threading::Shared;
use crate::{Error, Fabric, PassiveEp, Result};

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

/// Passes on what one queue of the library says.
pub(crate) struct Pump {
    pub(crate) to: Weak<EventQueue>,
    pub(crate) from: Arc<Eq>,
    /// Held while the library's queue is read, so that events stay in order.
    pub(crate) reading: Mutex<()>,
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
            fi_ops_eq.read(self.owned.get(), out, buf, len, 0)
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
            fi_ops_eq.sread(self.owned.get(), out, buf, len, millis, 0)
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
                        let request = ConnReq::new(info, pep);
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
            fi_ops_eq.readerr(self.owned.get(), &raw mut entry, 0)
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

impl Fabric {
    /// Opens an event queue of the library's own (`fi_eq_open`), which may be waited for in a set.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn eq(
        self: &Arc<Self>,
        wait: WaitObj,
        flags: Flags,
        set: Option<&Arc<WaitSet>>,
    ) -> Result<Arc<Eq>> {
        let wait = set.map_or(wait, |_| WaitObj::Set);
        let mut attr = fi_eq_attr {
            flags: flags.bits(),
            wait_obj: wait.raw(),
            wait_set: set.map_or(ptr::null_mut(), |set| set.owned.get()),
            ..Default::default()
        };
        let mut eq: *mut fid_eq = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_fabric.eq_open) {
            // SAFETY: fabric, set and attributes are live, `eq` takes the result.
            Some(open) => unsafe {
                let (attr, out) = (&raw mut attr, &raw mut eq);
                open(self.owned.get(), attr, out, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let eq = opened("fi_eq_open", ret, eq)?;
        let owned = Owned::new(eq, self.clone());
        Ok(Arc::new(Eq::new(owned, wait, set.cloned())))
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
