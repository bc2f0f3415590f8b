//! Completion queues and counters.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::Duration;

use ripstop_core::log::Subsys;
use ripstop_core::provider::{self as model, CounterAttr, CqAttr};
use ripstop_core::{fi_info, fi_warn};
use ripstop_types::{Completion, CompletionError, CqFormat, Errno, Result, WaitObj};

use super::{LOG, refuse, told};
use crate::{Bound, Cntr, Error, PollSet, Threading};

/// A completion queue of a library.
pub struct Cq<M: Threading> {
    /// Tells whether there is something to read, once somebody has asked; closes first.
    polls: OnceLock<PollSet<M>>,
    cq: crate::Cq<M>,
    wait: WaitObj,
    fabric: crate::Fabric,
    domain: crate::Domain<M>,
}

impl<M: Threading> fmt::Debug for Cq<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cq")
    }
}

/// Why a queue gave nothing: nothing to tell where that is an answer.
#[inline]
fn answer(error: Error) -> Errno {
    match error.errno {
        Errno::EAGAIN | Errno::EAVAIL => error.errno,
        _ => told(error),
    }
}

impl<M: Threading> Cq<M> {
    pub(super) fn open(
        fabric: &crate::Fabric,
        domain: &crate::Domain<M>,
        attr: &CqAttr,
    ) -> Result<Self> {
        let cq = domain.cq(crate::CqAttr {
            size: attr.size,
            // The object model reports all there is.
            format: CqFormat::Tagged,
            wait: attr.wait,
            threshold: attr.wait != WaitObj::None,
        });
        Ok(Self {
            polls: OnceLock::new(),
            cq: cq.map_err(told)?,
            wait: attr.wait,
            fabric: fabric.clone(),
            domain: domain.clone(),
        })
    }

    pub(super) const fn queue(&self) -> &crate::Cq<M> {
        &self.cq
    }

    fn polls(&self) -> crate::Result<&PollSet<M>> {
        if let Some(polls) = self.polls.get() {
            return Ok(polls);
        }
        let polls = self.domain.poll_set()?;
        polls.add(&Bound::Cq(&self.cq))?;
        Ok(self.polls.get_or_init(|| polls))
    }
}

impl<M: Threading> model::CompletionQueue for Cq<M> {
    #[inline]
    fn read(&self, max: usize, entry: impl FnMut(&Completion)) -> Result<usize> {
        self.cq.each_now(max, entry).map_err(answer)
    }

    fn sread(
        &self,
        max: usize,
        threshold: usize,
        timeout: Option<Duration>,
        entry: impl FnMut(&Completion),
    ) -> Result<usize> {
        let how = self.cq.blocking(threshold.max(1), timeout);
        let how = how.map_err(told)?;
        self.cq.each(max, how, entry).map_err(answer)
    }

    fn poll(&self) -> bool {
        let ready = self.polls().and_then(|polls| polls.poll(1));
        ready.map_err(told).is_ok_and(|ready| !ready.is_empty())
    }

    fn read_error(&self, entry: impl FnOnce(&CompletionError, &[u8])) -> Result<()> {
        let error = self.cq.readerr().map_err(answer)?;
        fi_info!(LOG, Subsys::Cq, "{error}");
        let found = CompletionError {
            entry: Completion {
                context: error.entry.token as usize,
                flags: error.entry.flags,
                len: error.entry.len,
                buf: 0,
                data: error.entry.data,
                tag: error.entry.tag,
                src: error.entry.src,
            },
            olen: error.olen,
            err: error.err,
            prov_errno: error.prov_errno,
        };
        entry(&found, &error.err_data);
        Ok(())
    }

    fn signal(&self) -> Result<()> {
        self.cq.signal().map_err(told)
    }

    fn wait_obj(&self) -> WaitObj {
        self.wait
    }

    fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        self.cq.wait_fd().map_err(|_| Errno::ENODATA)
    }

    fn try_wait(&self) -> Result<()> {
        self.fabric.trywait(&[&self.cq]).map_err(answer)
    }
}

/// A counter of a library.
pub struct Counter<M: Threading> {
    cntr: Cntr<M>,
    wait: WaitObj,
    fabric: crate::Fabric,
}

impl<M: Threading> fmt::Debug for Counter<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counter({})", self.cntr.read())
    }
}

/// Says that a counter did not change: the object model has no answer for that.
fn changed(result: crate::Result<()>) {
    if let Err(error) = result {
        fi_warn!(LOG, Subsys::Cntr, "{error}");
    }
}

impl<M: Threading> Counter<M> {
    pub(super) fn open(
        fabric: &crate::Fabric,
        domain: &crate::Domain<M>,
        attr: &CounterAttr,
    ) -> Result<Self> {
        if attr.bytes {
            return refuse(Errno::ENOSYS, "fi_cntr_open: bytes are not counted here");
        }
        Ok(Self {
            cntr: domain.cntr(attr.wait).map_err(told)?,
            wait: attr.wait,
            fabric: fabric.clone(),
        })
    }

    pub(super) const fn cntr(&self) -> &Cntr<M> {
        &self.cntr
    }
}

impl<M: Threading> model::Counter for Counter<M> {
    fn read(&self) -> u64 {
        self.cntr.read()
    }

    fn read_error(&self) -> u64 {
        self.cntr.readerr()
    }

    fn add(&self, value: u64) {
        changed(self.cntr.add(value));
    }

    fn set(&self, value: u64) {
        changed(self.cntr.set(value));
    }

    fn add_error(&self, value: u64) {
        changed(self.cntr.adderr(value));
    }

    fn set_error(&self, value: u64) {
        changed(self.cntr.seterr(value));
    }

    fn is_busy(&self) -> bool {
        // Nothing is triggered here.
        false
    }

    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<()> {
        let waited = self.cntr.wait(threshold, timeout);
        waited.map_err(|error| match error.errno {
            Errno::ETIMEDOUT | Errno::EAVAIL => error.errno,
            _ => told(error),
        })
    }

    fn wait_obj(&self) -> WaitObj {
        self.wait
    }

    fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        self.cntr.wait_fd().map_err(|_| Errno::ENODATA)
    }

    fn try_wait(&self) -> Result<()> {
        self.fabric.trywait(&[&self.cntr]).map_err(answer)
    }
}
