//! Parameters (`FI_SHM_*`), read once.

use ripstop_core::log::Subsys;
use ripstop_core::param::{ParamType, Unused};
use ripstop_core::provider::Copies;
use ripstop_core::{fi_warn, params};
use ripstop_os::{AttachLimit, attach_limit};
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

/// What C's shm reads and this provider has no use for.
const UNUSED: [Unused; 4] = [
    Unused::new(
        "use_dsa_sar",
        ParamType::Bool,
        "no accelerator copies between processes, as with C's default",
    ),
    Unused::new(
        "max_gdrcopy_size",
        ParamType::Size,
        "no provider here uses memory of devices",
    ),
    Unused::new(
        "use_xpmem",
        ParamType::Bool,
        "no kernel module is used; FI_SHM_COPY says how large payloads are copied",
    ),
    Unused::new(
        "buffer_threshold",
        ParamType::Size,
        "FI_SHM_MAX_SAVED_BYTES bounds what is kept of messages without a posted buffer",
    ),
];

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
        params().define_unused(Some(NAME), &UNUSED);
        let copy: Option<String> = params().declare_optional(
            Some(NAME),
            "copy",
            "how payloads of 4 KiB and more reach a peer: ring (both sides copy, through shared \
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

impl Params {
    /// The way of long payloads on this machine, for `fi_info -v`. A connection may still find that its
    /// peer's memory may not be reached.
    #[must_use]
    pub fn copy_remark(&self) -> String {
        copy_remark(self.disable_cma, self.copy, attach_limit())
    }
}

fn copy_remark(disable_cma: bool, copy: CopyMode, limit: Option<AttachLimit>) -> String {
    let kib = Copies::MIN_BYTES >> 10;
    match (copy, limit) {
        _ if disable_cma => {
            "payloads go through the ring: FI_SHM_DISABLE_CMA forbids cross-memory attach".to_owned()
        }
        (_, Some(limit)) => format!(
            "payloads go through the ring: cross-memory attach is not permitted here, {limit}"
        ),
        (CopyMode::Ring, None) => {
            "payloads go through the ring (FI_SHM_COPY=ring), but for writes to and reads from a peer \
             that does not poll: those are copied by cross-memory attach, which is permitted here"
                .to_owned()
        }
        (CopyMode::Attach, None) => format!(
            "payloads of {kib} KiB and more are copied by cross-memory attach (FI_SHM_COPY=attach), \
             which is permitted here"
        ),
        (CopyMode::Auto, None) => format!(
            "payloads of {kib} KiB and more go through the ring or are copied by cross-memory attach, \
             which is permitted here, whichever each connection measures to be faster (FI_SHM_COPY=auto)"
        ),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_of_payloads_has_its_reason() {
        let yama = Some(AttachLimit::Yama(1));
        for (disabled, copy, limit, reason) in [
            (true, CopyMode::Attach, None, "FI_SHM_DISABLE_CMA"),
            (false, CopyMode::Attach, yama, "ptrace_scope is 1"),
            (false, CopyMode::Ring, None, "FI_SHM_COPY=ring"),
            (false, CopyMode::Attach, None, "FI_SHM_COPY=attach"),
            (false, CopyMode::Auto, None, "FI_SHM_COPY=auto"),
        ] {
            let remark = copy_remark(disabled, copy, limit);
            assert!(remark.contains(reason), "{remark}");
        }
    }
}
