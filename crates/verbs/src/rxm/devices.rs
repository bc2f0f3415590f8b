//! The devices that this process uses, each with the protection domain of all that is registered with it. A device is
//! open as long as a listener, a connection or a region uses it, so that it can be removed then.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::RwLock;
use ripstop_ibverbs::{Access, CmId, Context, Mr, Pd, QpKind};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Result};

use crate::devices;
use crate::rxm::cache::Kept;
use crate::rxm::registered::Registered;
use crate::watch::Watch;

/// An open device.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) context: Arc<Context>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) registered: Arc<Registered>,
    pub(crate) watch: Arc<Watch>,
    /// Memory that stays registered, from the first transfer on that registers some.
    kept: OnceLock<Kept>,
    /// What [`Opened::inline_max`] has found.
    inline_max: OnceLock<usize>,
}

impl Opened {
    /// A registration of this memory for a transfer, which holds it until its end.
    ///
    /// # Errors
    /// As for [`Mr::register`].
    pub(crate) fn register(&self, memory: UserBuf, access: Access) -> Result<Arc<Mr>> {
        let kept = self.kept.get_or_init(Kept::new);
        kept.register(&self.pd, memory, access)
    }

    /// Bytes that requests to send take inline, up to `wanted`; as many as they can for 0. All connections of a process
    /// want the same.
    ///
    /// # Errors
    /// What `ibv_create_qp(3)` says.
    pub(crate) fn inline_max(&self, wanted: usize) -> Result<usize> {
        if let Some(found) = self.inline_max.get() {
            return Ok(*found);
        }
        let found = devices::inline(&self.context, wanted, QpKind::Connected)?;
        Ok(*self.inline_max.get_or_init(|| found))
    }
}

/// Those that are open, and some that were.
static OPENED: RwLock<Vec<Weak<Opened>>> = RwLock::new(Vec::new());

/// An open device for which this holds.
pub(crate) fn any(mut wanted: impl FnMut(&Opened) -> bool) -> Option<Arc<Opened>> {
    let opened = OPENED.read();
    let mut open = opened.iter().filter_map(Weak::upgrade);
    open.find(|device| !device.watch.is_gone() && wanted(device))
}

/// The device for which this holds, opened unless it is open.
fn open(wanted: impl Fn(&Context) -> bool) -> Result<Arc<Opened>> {
    if let Some(opened) = any(|device| wanted(&device.context)) {
        return Ok(opened);
    }
    let mut opened = OPENED.write();
    opened.retain(|device| device.strong_count() > 0);
    let mut open = opened.iter().filter_map(Weak::upgrade);
    // Somebody may have been faster.
    if let Some(found) = open.find(|device| !device.watch.is_gone() && wanted(&device.context)) {
        return Ok(found);
    }
    let mut all = ripstop_ibverbs::devices()?.into_iter();
    let context = all.find(|context| wanted(context)).ok_or(Errno::ENODEV)?;
    let device = Arc::new(Opened {
        pd: Pd::new(&context)?,
        registered: Arc::default(),
        watch: Watch::of(&context)?,
        kept: OnceLock::new(),
        inline_max: OnceLock::new(),
        context,
    });
    opened.push(Arc::downgrade(&device));
    Ok(device)
}

/// The one that an id is bound to.
///
/// # Errors
/// [`Errno::ENODEV`] for an id that has none; as for [`ripstop_ibverbs::devices`].
pub(crate) fn device_of(id: &CmId) -> Result<Arc<Opened>> {
    let name = id.device_name().ok_or(Errno::ENODEV)?;
    named(&name)
}

/// The one with this name.
///
/// # Errors
/// [`Errno::ENODEV`] where there is none; as for [`ripstop_ibverbs::devices`].
pub(crate) fn named(name: &str) -> Result<Arc<Opened>> {
    open(|context| context.name() == name)
}
