//! Endpoints whose receives another provider has: what they need together.

use std::sync::{Arc, PoisonError, Weak};

use ripstop_core::provider::{Domain, Endpoint};
use ripstop_types::{Errno, Flags, Result};

use super::{Defaults, EpBody};
use crate::av::AvBody;
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

impl<D: Domain, M: Defaults> EpBody<D, M> {
    fn change(&self, change: impl FnOnce(&mut Shares<D>)) {
        // Every change is one call, so what is kept is whole even after a panic.
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn shares_cq(&self, cq: &CqBody<D>, flags: Flags) {
        if flags.contains(Flags::RECV) {
            let selective = flags.contains(Flags::SELECTIVE_COMPLETION);
            let owner = cq.owner.as_ref().map(Arc::clone);
            self.change(|shares| shares.cq = owner.map(|owner| (owner, selective)));
        }
    }

    pub(super) fn shares_av(&self, av: &AvBody<D>) {
        self.change(|shares| shares.av = Some(Arc::clone(&av.peers)));
    }

    pub(super) fn shares_receives(&self, peer: &PeerBody<D>) {
        self.change(|shares| shares.receives = Arc::downgrade(&peer.owner));
    }

    /// `FI_ENABLE`: with receives that another provider has, their ends must go to a queue
    /// that it has too.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] where that is not so, and those of the provider.
    pub(super) fn enable(&self) -> Result<()> {
        let shares = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(receives) = shares.receives.upgrade() else {
            return self.ep.enable();
        };
        let (cq, selective) = shares.cq.as_ref().ok_or(Errno::EINVAL)?;
        receives.report_to(cq, *selective, || self.ep.enable())?;
        if let Some(av) = &shares.av {
            receives.learn_from(av);
        }
        Ok(())
    }
}
