//! Parameters: those of C's cache (`FI_MR_CACHE_*`), read once.

use std::sync::OnceLock;

use ripstop_core::log::Subsys;
use ripstop_core::{fi_warn, params};
use ripstop_os::{memory_size, processors};

use crate::rxm::NAME;

/// More registrations than this are not kept, whatever is asked: room for them is made at first.
const COUNT_MOST: usize = 1 << 16;

/// Whether registrations are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Where a watch is told of each way in which a program gives memory back.
    WhereSafe,
    /// Wherever there is a watch.
    Always,
    Never,
}

/// What the cache may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(super) keep: Keep,
    /// How many registrations, where any are.
    pub(super) max_count: usize,
    /// How many bytes they may be of together.
    pub(super) max_bytes: usize,
}

/// What a name of a monitor asks for. `None` for one that is not offered.
fn monitor(name: &str) -> Option<Keep> {
    match name {
        "userfaultfd" | "uffd" => Some(Keep::Always),
        "disabled" => Some(Keep::Never),
        _ => None,
    }
}

impl Settings {
    fn read() -> Self {
        let p = params();
        let max_bytes: usize = p.declare(
            None,
            "mr_cache_max_size",
            0,
            "verbs;ofi_rxm: bytes of memory that stay registered between transfers, 0 for the default (default: the memory of \
             the machine, divided by its processors and by 2)",
        );
        let max_count: usize = p.declare_bounded(
            None,
            "mr_cache_max_count",
            1024,
            &(0..=COUNT_MOST),
            "verbs;ofi_rxm: how many pieces of memory stay registered between transfers, 0 for none, up to 65536 (default: 1024)",
        );
        let asked: Option<String> = p.declare_optional(
            None,
            "mr_cache_monitor",
            "verbs;ofi_rxm: what tells that the program gives memory back which stays registered between transfers: \
             userfaultfd, or disabled, with which each transfer registers its memory (default: userfaultfd where that tells of all, \
             which is before Linux 6.13, else disabled)",
        );
        let keep = asked.map_or(Keep::WhereSafe, |name| {
            monitor(&name).unwrap_or_else(|| {
                fi_warn!(
                    NAME,
                    Subsys::Mr,
                    "FI_MR_CACHE_MONITOR={name} is not offered, and nothing stays registered: set it to userfaultfd or disabled"
                );
                Keep::Never
            })
        });
        let share = || memory_size() / processors() / 2;
        Self {
            keep: if max_count == 0 { Keep::Never } else { keep },
            max_count,
            max_bytes: if max_bytes > 0 { max_bytes } else { share() },
        }
    }
}

/// The settings of this process.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(Settings::read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_have_the_names_of_c() {
        assert_eq!(monitor("userfaultfd"), Some(Keep::Always));
        assert_eq!(monitor("disabled"), Some(Keep::Never));
        for other in ["memhooks", "kdreg2", "", "Userfaultfd"] {
            assert_eq!(monitor(other), None, "{other}");
        }
    }
}
