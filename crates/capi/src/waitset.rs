//! Wait sets (`fi_poll(3)`): one wait object for many queues and counters, which name it when
//! they are opened (`FI_WAIT_SET`).

use core::any::Any;
use core::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::log::{Subsys, no_descriptor};
use ripstop_core::provider::Fabric;
use ripstop_os::{Epoll, Events, Interest};
use ripstop_types::{Errno, Result, WaitObj};

use crate::edge::{AnyFid, In, Out, trampolines};
use crate::errno::{self, code};
use crate::object::fabric::FabricBody;
use crate::object::{self, Body, Room, This, shared};
use crate::tables::table;
use crate::wait::{self, Waits};

/// A wait set, which the objects in it hold.
pub(crate) struct WaitSet {
    /// Readable while a member is to be looked at; a member that closes leaves it.
    epoll: Epoll,
    members: Mutex<Vec<Check>>,
}

/// Asks a member whether it is safe to wait for it, as `fi_trywait`; `None` once it is closed.
type Check = Box<dyn FnMut() -> Option<Result<()>>>;

impl WaitSet {
    /// Takes in a queue or counter: its descriptor, and how to ask it.
    ///
    /// # Errors
    /// Of `epoll_ctl`.
    pub(crate) fn add<T: 'static>(
        &self,
        fd: BorrowedFd<'_>,
        member: &Arc<T>,
        mut try_wait: impl FnMut(&T) -> Result<()> + 'static,
    ) -> Result<()> {
        self.epoll.add(fd, 0, Interest::READ)?;
        let member: Weak<T> = Arc::downgrade(member);
        let check: Check = Box::new(move || Some(try_wait(&*member.upgrade()?)));
        self.members.lock().push(check);
        Ok(())
    }

    /// Whether it is safe to wait.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when a member should be read first.
    pub(crate) fn try_wait(&self) -> Result<()> {
        let mut outcome = Ok(());
        // All are asked, so that all make progress.
        self.members.lock().retain_mut(|check| match check() {
            Some(asked) => {
                outcome = outcome.and(asked);
                true
            }
            None => false,
        });
        outcome
    }

    /// Waits until a member has something.
    ///
    /// # Errors
    /// [`Errno::ETIMEDOUT`].
    fn wait(&self, timeout: c_int) -> Result<()> {
        let end = wait::timeout(timeout).map(|time| Instant::now() + time);
        let mut events = Events::with_capacity(1);
        loop {
            match self.try_wait() {
                Ok(()) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error),
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Errno::ETIMEDOUT);
            }
            match self.epoll.wait(&mut events, left) {
                // Another thread that waits may see first what has come, and take it for its own alone.
                Ok(1..) => return Ok(()),
                Ok(0) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What a wait set's object holds.
pub(crate) struct SetBody {
    pub(crate) set: Arc<WaitSet>,
    obj: WaitObj,
    /// The fabric stays while the set does.
    _fabric: Arc<dyn Any + Send + Sync>,
}

shared! { [] SetBody: fid_wait, set }

static FID: abi::fi_ops = abi::fi_ops {
    control: Some(wait::control::<SetBody>),
    ..*SetBody::CLOSING
};

static WAIT: abi::fi_ops_wait = abi::fi_ops_wait {
    size: size_of::<abi::fi_ops_wait>(),
    wait: Some(wait_for),
};

trampolines! { [F: Fabric]
    /// `fi_wait_open`.
    pub(crate) extern "C" fn open(
        parent: This<FabricBody<F>>, attr: In<*mut abi::fi_wait_attr>,
        waitset: Out<*mut abi::fid_wait>,
    ) -> c_int {
        let fabric = Arc::clone(&parent.fabric) as Arc<dyn Any + Send + Sync>;
        waitset.open(|| make(&*attr.needed("fi_wait_open", "attr")?, fabric))
    }
}

/// Opens a wait set.
fn make(
    attr: &abi::fi_wait_attr,
    fabric: Arc<dyn Any + Send + Sync>,
) -> Result<*mut abi::fid_wait> {
    if attr.flags != 0 {
        let why = "no flags are defined; set flags to 0";
        return Err(errno::refused("fi_wait_open", why, Errno::EBADFLAGS));
    }
    let obj = match WaitObj::from_raw(attr.wait_obj) {
        None | Some(WaitObj::None | WaitObj::Set) => {
            let why = "a wait set needs a wait object of its own; set wait_obj to FI_WAIT_UNSPEC";
            return Err(errno::refused("fi_wait_open", why, Errno::EINVAL));
        }
        Some(obj) => obj,
    };
    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "a program calls from any thread, and serialises what has no lock"
    )]
    let set = Arc::new(WaitSet {
        epoll: Epoll::new().inspect_err(|error| {
            let what = "descriptor to watch others by (epoll_create1)";
            no_descriptor("core", Subsys::Core, what, *error);
        })?,
        members: Mutex::default(),
    });
    let head = abi::fid_wait {
        fid: object::fid(abi::FI_CLASS_WAIT, core::ptr::null_mut(), &FID),
        ops: table(&WAIT),
    };
    let body = SetBody {
        set,
        obj,
        _fabric: fabric,
    };
    Ok(Room::<SetBody>::new().fill(head, body))
}

/// The wait object that an attribute asks a provider for, and the set it is to be part of, which is
/// only looked at for `FI_WAIT_SET`.
///
/// # Errors
/// [`Errno::EINVAL`] for an object that does not exist, or a wait set that is not there.
pub(crate) fn wanted(
    raw: abi::fi_wait_obj,
    set: AnyFid<'_>,
) -> Result<(WaitObj, Option<Arc<WaitSet>>)> {
    let unknown = || {
        let why = "wait_obj is no wait object; set it to FI_WAIT_UNSPEC or FI_WAIT_NONE";
        errno::refused("an open call", why, Errno::EINVAL)
    };
    match WaitObj::from_raw(raw).ok_or_else(unknown)? {
        WaitObj::Set => {
            let set = set.cast::<SetBody>(abi::FI_CLASS_WAIT).map_err(|error| {
                let why = "wait_obj is FI_WAIT_SET, and wait_set is none of this library; open one";
                errno::refused("an open call", why, error)
            })?;
            Ok((WaitObj::Fd, Some(Arc::clone(&set.set))))
        }
        object => Ok((object, None)),
    }
}

impl Waits for SetBody {
    fn wait_obj(&self) -> WaitObj {
        self.obj
    }

    fn wait_fd(&self) -> Result<RawFd> {
        Ok(self.set.epoll.as_fd().as_raw_fd())
    }
}

trampolines! { []
    extern "C" fn wait_for(this: This<SetBody>, timeout: c_int) -> c_int {
        code(this.set.wait(timeout))
    }
}
