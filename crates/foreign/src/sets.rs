#![allow(unsafe_code)]
//! Poll sets and wait sets, `fi_poll`(3).

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use ripstop_abi::{
    FI_WRITE, fi_cntr_attr, fi_cq_attr, fi_eq_attr, fi_ops_poll, fi_ops_wait, fi_poll_attr,
    fi_wait_attr, fid, fid_cntr, fid_cq, fid_eq, fid_poll, fid_wait,
};
use ripstop_types::{Errno, WaitObj};

use crate::call::{ENOSYS, millis, op};
use crate::domain::DomainCore;
use crate::eq::FidId;
use crate::fabric::{FabricCore, opened};
use crate::owned::Owned;
use crate::probe::{Bound, Kept};
use crate::threading::{Lock as _, Shared, Threading};
use crate::{Cntr, Cq, CqAttr, Domain, Eq, Error, Fabric, Result};

/// A poll set: queues and counters asked at once.
pub struct PollSet<M: Threading> {
    // Closes before its members.
    owned: Owned<fid_poll, M, Arc<DomainCore<M>>>,
    members: M::Lock<Vec<(FidId, Kept<M>)>>,
}

impl<M: Threading> PollSet<M> {
    fn table(&self) -> *const fi_ops_poll {
        // SAFETY: the set is open.
        unsafe { (*self.owned.get()).ops }
    }

    /// Adds a queue or counter (`fi_poll_add`), named by its address from now on.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn add(&self, member: &Bound<'_, M>) -> Result<FidId> {
        let (kept, fid) = member.keep();
        let context: *mut c_void = fid.cast();
        // SAFETY: the object is open; its context is for its opener, who is this crate, to set.
        unsafe { (*fid).context = context };
        let ret = match op!(self.table(), fi_ops_poll.poll_add) {
            // SAFETY: set and member are open; the member stays so as long as the set.
            Some(add) => unsafe { add(self.owned.get(), fid, 0) },
            None => ENOSYS,
        };
        Error::check("fi_poll_add", ret)?;
        let id = FidId(fid.addr());
        self.members.with(|members| members.push((id, kept)));
        Ok(id)
    }

    /// Takes a queue or counter out (`fi_poll_del`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn remove(&self, member: &Bound<'_, M>) -> Result<()> {
        let (_kept, fid): (_, *mut fid) = member.keep();
        let ret = match op!(self.table(), fi_ops_poll.poll_del) {
            // SAFETY: set and object are open.
            Some(del) => unsafe { del(self.owned.get(), fid, 0) },
            None => ENOSYS,
        };
        Error::check("fi_poll_del", ret)?;
        let id = FidId(fid.addr());
        self.members
            .with(|members| members.retain(|(at, _)| *at != id));
        Ok(())
    }

    /// Makes progress, and gives the members with something to read, `max` at most
    /// (`fi_poll`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn poll(&self, max: usize) -> Result<Vec<FidId>> {
        let mut contexts: Vec<*mut c_void> = vec![ptr::null_mut(); max];
        let room = c_int::try_from(max).map_err(|_| Error::new("fi_poll", Errno::EINVAL))?;
        let ret = match op!(self.table(), fi_ops_poll.poll) {
            // SAFETY: the set is open and `contexts` has room for as many as said.
            Some(poll) => unsafe { poll(self.owned.get(), contexts.as_mut_ptr(), room) },
            None => ENOSYS,
        };
        contexts.truncate(Error::check_count("fi_poll", ret as isize)?);
        Ok(contexts.into_iter().map(|c| FidId(c.addr())).collect())
    }
}

pub(crate) type WaitCore = Owned<fid_wait, Shared, Arc<FabricCore>>;

/// A wait set: one wait object for many queues and counters. Clones share it.
pub struct WaitSet {
    pub(crate) core: Arc<WaitCore>,
}

impl Clone for WaitSet {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
    }
}

impl WaitSet {
    /// Waits until a member has something (`fi_wait`).
    ///
    /// # Errors
    ///
    /// `FI_ETIMEDOUT`, and what else the library says.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let set = self.core.get();
        // SAFETY: the set is open.
        let table: *const fi_ops_wait = unsafe { (*set).ops };
        let ret = match op!(table, fi_ops_wait.wait) {
            // SAFETY: the set is open.
            Some(wait) => unsafe { wait(set, millis(timeout)) },
            None => ENOSYS,
        };
        Error::check("fi_wait", ret)
    }
}

impl Fabric {
    /// Opens a wait set (`fi_wait_open`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn wait_set(&self, wait: WaitObj) -> Result<WaitSet> {
        let mut attr = fi_wait_attr {
            wait_obj: wait.raw(),
            flags: 0,
        };
        let mut set: *mut fid_wait = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_fabric.wait_open) {
            // SAFETY: fabric and attributes are live, `set` takes the result.
            Some(open) => unsafe { open(self.core.get(), &raw mut attr, &raw mut set) },
            None => ENOSYS,
        };
        let set = opened("fi_wait_open", ret, set)?;
        Ok(WaitSet {
            core: Arc::new(Owned::new(set, self.core.clone())),
        })
    }
}

impl Fabric {
    /// Opens an event queue that is waited for through a set (`FI_WAIT_SET`) and that the program
    /// may write to.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn eq_in(&self, set: &WaitSet) -> Result<Eq> {
        let mut attr = fi_eq_attr {
            flags: FI_WRITE,
            wait_obj: WaitObj::Set.raw(),
            wait_set: set.core.get(),
            ..Default::default()
        };
        let mut eq: *mut fid_eq = ptr::null_mut();
        let context = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_fabric.eq_open) {
            // SAFETY: fabric, set and attributes are live, `eq` takes the result.
            Some(open) => unsafe { open(self.core.get(), &raw mut attr, &raw mut eq, context) },
            None => ENOSYS,
        };
        let eq = opened("fi_eq_open", ret, eq)?;
        Ok(Eq::in_set(eq, self.core.clone(), set.core.clone()))
    }
}

impl<M: Threading> Domain<M> {
    /// Opens a poll set (`fi_poll_open`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn poll_set(&self) -> Result<PollSet<M>> {
        let mut attr = fi_poll_attr::default();
        let mut set: *mut fid_poll = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.poll_open) {
            // SAFETY: domain and attributes are live, `set` takes the result.
            Some(open) => unsafe { open(self.core.get(), &raw mut attr, &raw mut set) },
            None => ENOSYS,
        };
        let set = opened("fi_poll_open", ret, set)?;
        Ok(PollSet {
            owned: Owned::new(set, self.core.clone()),
            members: M::Lock::new(Vec::new()),
        })
    }

    /// Opens a completion queue that is waited for through a set (`FI_WAIT_SET`).
    ///
    /// # Errors
    ///
    /// As [`Domain::cq`].
    pub fn cq_in(&self, set: &WaitSet, attr: CqAttr) -> Result<Cq<M>> {
        let mut c_attr = fi_cq_attr {
            size: attr.size,
            format: attr.format.raw(),
            wait_obj: WaitObj::Set.raw(),
            wait_set: set.core.get(),
            ..Default::default()
        };
        let mut cq: *mut fid_cq = ptr::null_mut();
        let context = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.cq_open) {
            // SAFETY: domain, set and attributes are live, `cq` takes the result.
            Some(open) => unsafe { open(self.core.get(), &raw mut c_attr, &raw mut cq, context) },
            None => ENOSYS,
        };
        let cq = opened("fi_cq_open", ret, cq)?;
        // Blocking reads go by the set.
        let attr = CqAttr {
            wait: WaitObj::None,
            ..attr
        };
        Ok(Cq::in_set(
            Owned::new(cq, self.core.clone()),
            attr,
            set.core.clone(),
        ))
    }

    /// Opens a counter that is waited for through a set (`FI_WAIT_SET`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn cntr_in(&self, set: &WaitSet) -> Result<Cntr<M>> {
        let mut attr = fi_cntr_attr {
            wait_obj: WaitObj::Set.raw(),
            wait_set: set.core.get(),
            ..Default::default()
        };
        let mut cntr: *mut fid_cntr = ptr::null_mut();
        let context = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.cntr_open) {
            // SAFETY: domain, set and attributes are live, `cntr` takes the result.
            Some(open) => unsafe { open(self.core.get(), &raw mut attr, &raw mut cntr, context) },
            None => ENOSYS,
        };
        let cntr = opened("fi_cntr_open", ret, cntr)?;
        Ok(Cntr::in_set(
            Owned::new(cntr, self.core.clone()),
            set.core.clone(),
        ))
    }
}

impl<M: Threading> crate::Close for PollSet<M> {
    fn close(mut self) -> std::result::Result<(), (Self, Error)> {
        match self.owned.try_close() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }
}
