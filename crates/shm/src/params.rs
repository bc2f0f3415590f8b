//! Parameters (`FI_SHM_*`), read once.

use ripstop_core::log::Subsys;
use ripstop_core::{fi_warn, params};
use ripstop_stream::{Defaults, Tunables};

use crate::copy_choice::CopyMode;

/// Provider name, and the prefix of its parameters.
pub(crate) const NAME: &str = "shm";

const DEFAULTS: Defaults = Defaults {
    // That of C's shm, since some programs ask for as much.
    max_inject: 4096,
    // Operations on a process that was killed fail within 2 s. One that lives but makes no progress is
    // waited for.
    connect_timeout: 1500,
    max_saved_bytes: 64 << 20,
    max_saved_total: 1 << 30,
};

/// Values of all parameters of the provider (`FI_SHM_*`).
#[derive(Debug)]
pub struct Params {
    common: Tunables,
    /// Peers map regions in memory from `memfd_create(2)` that is sealed against shrinking.
    pub(crate) map_memfd: bool,
    /// Cross-memory attach is off, in both directions.
    pub(crate) disable_cma: bool,
    /// The way of long payloads.
    pub(crate) copy: CopyMode,
}

impl AsRef<Tunables> for Params {
    fn as_ref(&self) -> &Tunables {
        &self.common
    }
}

impl Params {
    /// Declares the parameters and reads their values.
    #[must_use]
    pub fn read() -> Self {
        let copy: Option<String> = params().declare_optional(
            Some(NAME),
            "copy",
            "how payloads of 16 KiB and more reach a peer: ring (both sides copy, through shared \
             memory), attach (one side copies, by cross-memory attach), auto (whichever is measured \
             to be faster) (default: auto)",
        );
        Self {
            copy: copy.as_deref().map_or(CopyMode::Auto, copy_mode),
            common: Tunables::read(NAME, DEFAULTS),
            map_memfd: params().declare(
                Some(NAME),
                "map_memfd",
                true,
                "let peers map regions that are registered for remote reads and writes, in memory \
                 from memfd_create that is sealed with F_SEAL_SHRINK (default: yes)",
            ),
            disable_cma: params().declare(
                Some(NAME),
                "disable_cma",
                false,
                "no cross-memory attach: large reads and writes wait for a peer that computes, and \
                 peers cannot ask for memory of this process by its address (default: no)",
            ),
        }
    }
}

/// The value of `FI_SHM_COPY`.
fn copy_mode(value: &str) -> CopyMode {
    match value {
        "ring" => CopyMode::Ring,
        "attach" => CopyMode::Attach,
        "auto" => CopyMode::Auto,
        other => {
            fi_warn!(
                NAME,
                Subsys::Core,
                "FI_SHM_COPY={other} is not ring, attach or auto: taken as auto"
            );
            CopyMode::Auto
        }
    }
}
