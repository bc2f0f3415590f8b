//! Endpoints whose receives another provider has: what they need together.

use std::sync::{Arc, Weak};

use ripstop_core::provider::{Domain, Endpoint};
use ripstop_types::{Errno, Flags, Result};

use crate::av::body::AvBody;
use crate::cq::CqBody;
use crate::peer::{CqOwner, Peers, SrxOwner};
use crate::srx::PeerBody;

/// What is bound to an endpoint and belongs to another provider, or tells one something.
pub(super) struct Shares<D: Domain> {
    /// The queue of receives, if another provider has it, and whether it is selective.
    cq: Option<(Arc<CqOwner>, bool)>,
    av: Option<Peers>,
    receives: Weak<SrxOwner<D>>,
}

impl<D: Domain> Default for Shares<D> {
    fn default() -> Self {
        Self {
            cq: None,
            av: None,
            receives: Weak::new(),
        }
    }
}

impl<D: Domain> Shares<D> {
    /// A queue was bound.
    pub(super) fn cq(&mut self, cq: &CqBody<D>, flags: Flags) {
        if flags.contains(Flags::RECV) {
            let selective = flags.contains(Flags::SELECTIVE_COMPLETION);
            let owner = cq.owner.as_ref().map(Arc::clone);
            self.cq = owner.map(|owner| (owner, selective));
        }
    }

    /// An address vector was bound.
    pub(super) fn av(&mut self, av: &AvBody<D>) {
        self.av = Some(Arc::clone(&av.peers));
    }

    /// A receive context of another provider was bound.
    pub(super) fn receives(&mut self, peer: &PeerBody<D>) {
        self.receives = Arc::downgrade(&peer.owner);
    }

    /// `FI_ENABLE`: with receives that another provider has, their ends must go to a queue
    /// that it has too.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] where that is not so, and those of the provider.
    pub(super) fn enable(&self, ep: &D::Endpoint) -> Result<()> {
        let Some(receives) = self.receives.upgrade() else {
            return ep.enable();
        };
        let (cq, selective) = self.cq.as_ref().ok_or(Errno::EINVAL)?;
        receives.report_to(cq, *selective, || ep.enable())?;
        if let Some(av) = &self.av {
            receives.learn_from(av);
        }
        Ok(())
    }
}
