//! What completions call peers, where a program has names of its own (`FI_AV_USER_ID`, man page
//! `fi_av(3)`).

use alloc::vec::Vec;

use ripstop_types::{Errno, FiAddr, Result};

/// The ids that a program gave the peers of an address vector.
#[derive(Debug, Default)]
pub struct UserIds {
    ids: Vec<Option<u64>>,
    /// A peer without an id is reported as nobody, not by its own address.
    strict: bool,
}

impl UserIds {
    /// No ids. `strict` is for address vectors that are opened with the flag: peers without an
    /// id are reported as [`FiAddr::NOTAVAIL`].
    #[must_use]
    pub const fn new(strict: bool) -> Self {
        let ids = Vec::new();
        Self { ids, strict }
    }

    /// Gives a peer an id.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`]; [`Errno::EINVAL`] for what is no place in an address vector.
    pub fn set(&mut self, peer: FiAddr, id: FiAddr) -> Result<()> {
        let place = u32::try_from(peer.0).map_err(|_| Errno::EINVAL)? as usize;
        let missing = place.saturating_add(1).saturating_sub(self.ids.len());
        self.ids.try_reserve(missing).map_err(|_| Errno::ENOMEM)?;
        for _ in 0..missing {
            crate::ring::try_push(&mut self.ids, None)?;
        }
        if let Some(slot) = self.ids.get_mut(place) {
            *slot = Some(id.0);
        }
        Ok(())
    }

    /// The peer is gone.
    pub fn forget(&mut self, peer: FiAddr) {
        let place = usize::try_from(peer.0).unwrap_or(usize::MAX);
        if let Some(slot) = self.ids.get_mut(place) {
            *slot = None;
        }
    }

    /// What a completion reports for a peer.
    #[must_use]
    pub fn reported(&self, peer: FiAddr) -> FiAddr {
        let place = usize::try_from(peer.0).unwrap_or(usize::MAX);
        match self.ids.get(place) {
            Some(Some(id)) => FiAddr(*id),
            _ if self.strict => FiAddr::NOTAVAIL,
            _ => peer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_reported_by_their_ids() {
        for strict in [false, true] {
            let mut ids = UserIds::new(strict);
            let bare = |peer| if strict { FiAddr::NOTAVAIL } else { peer };
            assert_eq!(ids.reported(FiAddr(3)), bare(FiAddr(3)));
            ids.set(FiAddr(3), FiAddr(1 << 60)).unwrap();
            ids.set(FiAddr(0), FiAddr::NOTAVAIL).unwrap();
            assert_eq!(ids.reported(FiAddr(3)), FiAddr(1 << 60));
            assert_eq!(ids.reported(FiAddr(0)), FiAddr::NOTAVAIL);
            assert_eq!(ids.reported(FiAddr(1)), bare(FiAddr(1)));
            assert_eq!(ids.reported(FiAddr(4)), bare(FiAddr(4)));
            assert_eq!(ids.reported(FiAddr::NOTAVAIL), FiAddr::NOTAVAIL);
            ids.forget(FiAddr(3));
            ids.forget(FiAddr(77));
            assert_eq!(ids.reported(FiAddr(3)), bare(FiAddr(3)));
            assert_eq!(ids.set(FiAddr::NOTAVAIL, FiAddr(1)), Err(Errno::EINVAL));
        }
    }
}
