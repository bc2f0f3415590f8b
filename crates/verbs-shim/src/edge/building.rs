//! The requests of a queue pair that calls build, until they are posted.

use ripstop_types::{Errno, Result};

use crate::device::MAX_SGE;
use crate::edge::turn::Turn;
use crate::engine::Asked;
use crate::log::{Subsys, refuse};
use crate::sys::ibv_sge;

/// A request that is being built.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) asked: Asked,
    pub(super) list: [ibv_sge; MAX_SGE],
    pub(super) count: usize,
    pub(super) inline: Option<Vec<u8>>,
}

/// The requests that a thread builds from `wr_start` to `wr_complete` or `wr_abort`.
#[derive(Debug, Default)]
pub(crate) struct Building {
    pub(super) list: Vec<Built>,
    /// Why one cannot be posted, which `wr_complete` says.
    pub(super) refused: Option<Errno>,
}

/// The requests of a queue pair that are being built.
pub(crate) type Builder = Turn<Building>;

impl Building {
    /// Notes why a request cannot be posted; the first reason counts.
    pub(super) fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.refused.get_or_insert(error);
        }
    }

    /// Changes the last request.
    pub(super) fn last(&mut self, change: impl FnOnce(&mut Built) -> Result<()>) {
        let last = self.list.last_mut().ok_or_else(|| {
            let why = format_args!("memory of a request that is not begun");
            refuse(Subsys::EpData, Errno::EINVAL, why)
        });
        let changed = last.and_then(change);
        self.note(changed);
    }
}
