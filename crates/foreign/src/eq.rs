#![allow(unsafe_code)]
//! `fi_eq`(3) and the events of connections.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_abi::{
    FI_CONNECTED, FI_CONNREQ, FI_JOIN_COMPLETE, FI_SHUTDOWN, fi_eq_cm_entry, fi_eq_err_entry,
    fi_ops_eq, fid, fid_eq,
};
use ripstop_types::{Errno, WaitObj};

use crate::call::{self, ENOSYS, op};
use crate::fabric::{FabricCore, private};
use crate::guard;
use crate::info::Info;
use crate::owned::Owned;
use crate::pep::PepCore;
use crate::sets::WaitCore;
use crate::threading::{Lock as _, Ptr, Shared};
use crate::{Error, Result};

/// Which object an event is about; compare with [`Endpoint::id`](crate::Endpoint::id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FidId(pub(crate) usize);

/// An event.
#[derive(Debug)]
pub enum Event {
    /// A peer asks a passive endpoint of ours for a connection.
    ConnReq(ConnReq),
    /// A connection is up.
    Connected {
        /// The endpoint.
        id: FidId,
        /// The peer's connection data.
        data: Vec<u8>,
    },
    /// The peer ended a connection.
    Shutdown {
        /// The endpoint.
        id: FidId,
    },
    /// All members of a group have joined (`FI_JOIN_COMPLETE`).
    Joined {
        /// The group.
        id: FidId,
    },
    /// Any other event.
    Other {
        /// The event's number, such as `FI_AV_COMPLETE`.
        event: u32,
        /// The object.
        id: FidId,
    },
}

/// A failed operation of the control path (`struct fi_eq_err_entry`).
#[derive(Debug)]
pub struct EqError {
    /// The object.
    pub id: FidId,
    /// The reason.
    pub err: Errno,
    /// The provider's own code.
    pub prov_errno: i32,
    /// The provider's data, such as that of a rejection, at most 512 bytes.
    pub err_data: Vec<u8>,
}

/// A request for a connection. Accept it with [`Domain::accepting`](crate::Domain::accepting)
/// or refuse it with [`Pep::reject`](crate::Pep::reject); dropped, it is refused.
pub struct ConnReq {
    info: Info,
    pep: Arc<PepCore>,
    open: bool,
    data: Vec<u8>,
}

impl ConnReq {
    /// How the connection would be: what to open its domain with.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The peer's connection data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// A copy of the info, without the request.
    pub(crate) fn copy_info(&self) -> Result<Info> {
        self.info.duplicate("fi_eq_read", self.info.functions())
    }

    /// The passive endpoint that was asked.
    #[must_use]
    pub fn pep_id(&self) -> FidId {
        self.pep.id()
    }

    /// The info with the request's handle, for an endpoint of `fabric`.
    pub(crate) fn info_with_handle(&self, fabric: &Arc<FabricCore>) -> Result<Info> {
        if !Arc::ptr_eq(self.pep.fabric(), fabric) {
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
    pub(crate) fn refuse(mut self, pep: &Arc<PepCore>, data: &[u8]) -> Result<()> {
        if !Arc::ptr_eq(pep, &self.pep) {
            return Err(Error::new("fi_reject", Errno::EINVAL));
        }
        self.open = false;
        self.pep.reject(self.info.handle(), data)
    }
}

impl Drop for ConnReq {
    fn drop(&mut self) {
        if self.open {
            // Nobody is left to hear about a failure.
            let _ = self.pep.reject(self.info.handle(), &[]);
        }
    }
}

impl std::fmt::Debug for ConnReq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnReq")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

pub(crate) struct EqCore {
    pub(crate) owned: Owned<fid_eq, Shared, Arc<FabricCore>>,
    wait: WaitObj,
    /// The passive endpoints that report here.
    peps: Mutex<Vec<Weak<PepCore>>>,
    /// Its wait object; closes after the queue.
    _set: Option<Arc<WaitCore>>,
}

impl EqCore {
    pub(crate) fn add_pep(&self, pep: &Arc<PepCore>) {
        self.peps.with(|peps| {
            peps.retain(|p| p.strong_count() > 0);
            peps.push(Arc::downgrade(pep));
        });
    }

    fn pep(&self, id: FidId) -> Option<Arc<PepCore>> {
        self.peps
            .with(|peps| peps.iter().filter_map(Weak::upgrade).find(|p| p.id() == id))
    }
}

/// An event queue. Clones share it.
pub struct Eq {
    pub(crate) core: Arc<EqCore>,
}

impl Clone for Eq {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
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
    pub(crate) fn new(ptr: Ptr<fid_eq, Shared>, fabric: Arc<FabricCore>, wait: WaitObj) -> Self {
        Self::made(ptr, fabric, wait, None)
    }

    pub(crate) fn in_set(
        ptr: Ptr<fid_eq, Shared>,
        fabric: Arc<FabricCore>,
        set: Arc<WaitCore>,
    ) -> Self {
        // Blocking reads go by the set.
        Self::made(ptr, fabric, WaitObj::None, Some(set))
    }

    fn made(
        ptr: Ptr<fid_eq, Shared>,
        fabric: Arc<FabricCore>,
        wait: WaitObj,
        set: Option<Arc<WaitCore>>,
    ) -> Self {
        let owned = Owned::new(ptr, fabric);
        Self {
            core: Arc::new(EqCore {
                owned,
                wait,
                peps: Mutex::new(Vec::new()),
                _set: set,
            }),
        }
    }

    pub(crate) fn table(&self) -> *const fi_ops_eq {
        // SAFETY: the queue is open.
        unsafe { (*self.core.owned.get()).ops }
    }

    /// The next event (`fi_eq_read`).
    ///
    /// # Errors
    ///
    /// `FI_EAGAIN` when there is none, `FI_EAVAIL` when an error comes first: read it with
    /// [`Eq::readerr`].
    pub fn read(&self) -> Result<Event> {
        let (mut event, mut room) = empty();
        let buf: *mut c_void = (&raw mut room).cast();
        let ret = match op!(self.table(), fi_ops_eq.read) {
            // SAFETY: the queue is open and `room` has the length said.
            Some(read) => unsafe {
                read(
                    self.core.owned.get(),
                    &raw mut event,
                    buf,
                    size_of::<Room>(),
                    0,
                )
            },
            None => ENOSYS as isize,
        };
        let len = Error::check_count("fi_eq_read", ret)?;
        self.event(event, &room, len)
    }

    /// Like [`Eq::read`], but blocks until there is something or the time is up
    /// (`fi_eq_sread`).
    ///
    /// # Errors
    ///
    /// As [`Eq::read`]; `FI_EINVAL` for a queue opened with [`WaitObj::None`]; `FI_EAGAIN` when
    /// the time is up.
    pub fn sread(&self, timeout: Option<Duration>) -> Result<Event> {
        let guarded = self.core.owned.parent().parent().guarded;
        if guarded && !guard::waits(self.core.wait) {
            return Err(Error::new("fi_eq_sread", Errno::EINVAL));
        }
        let (mut event, mut room) = empty();
        let buf: *mut c_void = (&raw mut room).cast();
        let millis = call::millis(timeout);
        let ret = match op!(self.table(), fi_ops_eq.sread) {
            // SAFETY: the queue is open and `room` has the length said.
            Some(sread) => unsafe {
                sread(
                    self.core.owned.get(),
                    &raw mut event,
                    buf,
                    size_of::<Room>(),
                    millis,
                    0,
                )
            },
            None => ENOSYS as isize,
        };
        let len = Error::check_count("fi_eq_sread", ret)?;
        self.event(event, &room, len)
    }

    fn event(&self, event: u32, room: &Room, len: usize) -> Result<Event> {
        let id = FidId(room.entry.fid.addr());
        let data = len.saturating_sub(size_of::<fi_eq_cm_entry>()).min(DATA);
        let data = || room.data[..data].to_vec();
        match event {
            FI_CONNREQ => {
                let functions = self.core.owned.parent().parent();
                let info = Info::adopt(functions, room.entry.info)
                    .ok_or(Error::new("fi_eq_read", Errno::EOTHER))?;
                match self.core.pep(id) {
                    Some(pep) => {
                        let data = data();
                        Ok(Event::ConnReq(ConnReq {
                            info,
                            pep,
                            open: true,
                            data,
                        }))
                    }
                    // The passive endpoint is gone, and the request with it.
                    None => Ok(Event::Other { event, id }),
                }
            }
            FI_CONNECTED => Ok(Event::Connected { id, data: data() }),
            FI_SHUTDOWN => Ok(Event::Shutdown { id }),
            FI_JOIN_COMPLETE => Ok(Event::Joined { id }),
            _ => Ok(Event::Other { event, id }),
        }
    }

    /// Reads the error that made a read say `FI_EAVAIL` (`fi_eq_readerr`).
    ///
    /// # Errors
    ///
    /// `FI_EAGAIN` when there is none, and what else the library says.
    pub fn readerr(&self) -> Result<EqError> {
        let mut err_data = vec![0_u8; DATA];
        let mut entry = fi_eq_err_entry {
            err_data: err_data.as_mut_ptr().cast(),
            err_data_size: err_data.len(),
            ..Default::default()
        };
        let ret = match op!(self.table(), fi_ops_eq.readerr) {
            // SAFETY: the queue is open; the entry names memory of the length it says.
            Some(readerr) => unsafe { readerr(self.core.owned.get(), &raw mut entry, 0) },
            None => ENOSYS as isize,
        };
        if Error::check_count("fi_eq_readerr", ret)? == 0 {
            return Err(Error::new("fi_eq_readerr", Errno::EAGAIN));
        }
        err_data.truncate(entry.err_data_size);
        Ok(EqError {
            id: FidId(entry.fid.addr()),
            err: Errno(entry.err),
            prov_errno: entry.prov_errno,
            err_data,
        })
    }

    /// The descriptor to poll after [`Fabric::trywait`](crate::Fabric::trywait), for a queue
    /// opened with [`WaitObj::Fd`].
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for another wait object, and what the library says.
    pub fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        if self.core.wait != WaitObj::Fd {
            return Err(Error::new("fi_control", Errno::EINVAL));
        }
        let fd = call::wait_fd(self.core.owned.fid())?;
        // SAFETY: the descriptor belongs to the queue, which `self` keeps open.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl private::Sealed for Eq {
    #[expect(private_interfaces, reason = "nobody outside can name or call this")]
    fn waitable(&self) -> (*mut fid, *const FabricCore, WaitObj) {
        let owned = &self.core.owned;
        (owned.fid(), Arc::as_ptr(owned.parent()), self.core.wait)
    }
}

fn empty() -> (u32, Room) {
    (
        0,
        Room {
            entry: fi_eq_cm_entry::default(),
            data: [0; DATA],
        },
    )
}
