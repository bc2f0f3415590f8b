//! Where an interface of the object model comes from: what the library said.

use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::{Handle, Info};
use ripstop_types::{Errno, Flags, Mode};

use super::pep::ConnReq;
use crate::{Error, Fabric, Result};

/// The modes that this crate takes on itself.
pub(crate) const OURS: Mode = Mode::CONTEXT.union(Mode::CONTEXT2);

/// What an interface was made from.
pub(crate) struct Origin {
    info: crate::Info,
    /// Whether the caller has asked for `FI_SOURCE`; all is shown as it is if nobody says.
    sources: Option<bool>,
    /// Until it is accepted or rejected.
    request: Mutex<Option<ConnReq>>,
    is_request: bool,
}

impl Origin {
    /// What a library answered.
    pub(crate) const fn verbatim(info: crate::Info) -> Self {
        Self {
            info,
            sources: None,
            is_request: false,
            request: Mutex::new(None),
        }
    }

    /// What a library answered to hints with these capabilities.
    pub(crate) fn offered(info: crate::Info, asked: Flags) -> Self {
        Self {
            sources: Some(asked.contains(Flags::SOURCE)),
            ..Self::verbatim(info)
        }
    }

    /// What a connection would be.
    pub(crate) fn requested(info: crate::Info, request: ConnReq) -> Self {
        Self {
            is_request: true,
            request: Mutex::new(Some(request)),
            ..Self::verbatim(info)
        }
    }

    pub(crate) const fn info(&self) -> &crate::Info {
        &self.info
    }

    /// Whether completions are to name the source of a message, if the caller has said so.
    pub(crate) const fn names_sources(&self) -> Option<bool> {
        self.sources
    }

    /// The connection request, if it is one, to be used up.
    pub(crate) fn request(&self) -> Result<Option<ConnReq>> {
        match (self.request.lock().take(), self.is_request) {
            // It is accepted or rejected once.
            (None, true) => Err(Error::new("fi_endpoint", Errno::EINVAL)),
            (request, _) => Ok(request),
        }
    }

    /// The same in the words of the object model. It leads back to what the library said, and to the
    /// connection request it came with.
    pub(crate) fn offer(self) -> Info {
        let mut offer = self.words();
        offer.handle = Some(Handle::new(self));
        offer
    }

    /// The same without a way back. Many libraries offer sources to those who have not asked, and
    /// take longer to read a queue that tells them.
    fn words(&self) -> Info {
        let mut words = self.info.attrs();
        if let Some(sources) = self.sources {
            words.mode -= OURS;
            if !sources {
                words.caps -= Flags::SOURCE;
                words.rx.caps -= Flags::SOURCE;
            }
        }
        words
    }
}

impl Fabric {
    /// What the library said of an interface that it has offered, and that is as it was then unless
    /// all is taken as it is.
    pub(crate) fn origin(&self, call: &'static str, info: &Info) -> Result<Arc<Origin>> {
        let found = info.handle.as_ref().and_then(Handle::downcast::<Origin>);
        let same = |origin: &Arc<Origin>| {
            let mut given = info.clone();
            given.handle = None;
            self.verbatim || given == origin.words()
        };
        // These attributes are not as the library's fi_getinfo has answered.
        found.filter(same).ok_or(Error::new(call, Errno::EINVAL))
    }
}

/// An interface as its library prints it (`fi_tostr`), if it came from one.
#[must_use]
pub fn text(info: &Info) -> Option<String> {
    let origin = info.handle.as_ref().and_then(Handle::downcast::<Origin>);
    origin.map(|origin| origin.info().to_string())
}
