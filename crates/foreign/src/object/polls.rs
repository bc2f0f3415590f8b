#![allow(unsafe_code)]
//! Poll sets, `fi_poll`(3), which the object model has no traits for.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{fi_ops_poll, fi_poll_attr, fid, fid_poll};
use ripstop_types::Errno;

use super::Object;
use crate::call::calls;
use crate::fabric::opened;
use crate::owned::Owned;
use crate::threading::{Lock as _, Threading};
use crate::{Domain, Error, Result};

/// A poll set: queues and counters asked at once.
pub struct PollSet<M: Threading> {
    pub(crate) owned: Owned<fid_poll, M, Arc<Domain<M>>>,
    /// They close after it.
    members: M::Lock<Vec<Object<M>>>,
}

impl<M: Threading> PollSet<M> {
    fn table(&self) -> *const fi_ops_poll {
        // SAFETY: the set is open.
        unsafe { (*self.owned.get()).ops }
    }

    /// Adds a live object, which stays open as long as it is in the set.
    pub(crate) fn add_fid(&self, member: *mut fid) -> Result<()> {
        // SAFETY: the object is open; its context is for its opener, who is this crate, to set.
        unsafe { (*member).context = member.cast() };
        let set = self.owned.get();
        let ret = calls!(self.table(), fi_ops_poll.poll_add(set, member, 0));
        Error::check("fi_poll_add", ret)
    }

    /// Adds a queue or counter (`fi_poll_add`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn add(&self, member: Object<M>) -> Result<()> {
        self.add_fid(member.fid())?;
        self.members.with(|members| members.push(member));
        Ok(())
    }

    /// Takes a queue or counter out (`fi_poll_del`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn remove(&self, member: &Object<M>) -> Result<()> {
        let (set, fid) = (self.owned.get(), member.fid());
        let ret = calls!(self.table(), fi_ops_poll.poll_del(set, fid, 0));
        Error::check("fi_poll_del", ret)?;
        self.members
            .with(|members| members.retain(|other| other.fid() != fid));
        Ok(())
    }

    /// Makes progress, and gives the [`id`](Object::id)s of the members with something to read, `max`
    /// at most (`fi_poll`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn poll(&self, max: usize) -> Result<Vec<usize>> {
        let mut contexts: Vec<*mut c_void> = vec![ptr::null_mut(); max];
        let room = c_int::try_from(max).map_err(|_| Error::new("fi_poll", Errno::EINVAL))?;
        let (set, out) = (self.owned.get(), contexts.as_mut_ptr());
        let ret: c_int = calls!(self.table(), fi_ops_poll.poll(set, out, room));
        contexts.truncate(Error::check_count("fi_poll", ret as isize)?);
        Ok(contexts.into_iter().map(|context| context.addr()).collect())
    }
}

impl<M: Threading> Domain<M> {
    pub(crate) fn open_polls(self: &Arc<Self>) -> Result<PollSet<M>> {
        let mut attr = fi_poll_attr::default();
        let mut set: *mut fid_poll = ptr::null_mut();
        let (domain, attr, out) = (self.owned.get(), &raw mut attr, &raw mut set);
        let ret = calls!(self.table(), fi_ops_domain.poll_open(domain, attr, out));
        Ok(PollSet {
            owned: Owned::new(opened("fi_poll_open", ret, set)?, self.clone()),
            members: M::Lock::new(Vec::new()),
        })
    }

    /// Opens a poll set (`fi_poll_open`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn poll_set(self: &Arc<Self>) -> Result<Arc<PollSet<M>>> {
        self.open_polls().map(Arc::new)
    }
}
