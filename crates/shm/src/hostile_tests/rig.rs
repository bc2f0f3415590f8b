//! A victim in a process of its own, which is told what to do, and an honest endpoint in the process of its parent.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use ripstop_core::Address;
use ripstop_types::{FiAddr, Flags, Progress, Threading};

use super::{HOSTILE, VICTIM};
use crate::common::load::{self, Numbers};
use crate::common::other::Other;
use crate::common::{End, Safe, info, info_for, open, safe};

const GROUP: &str = "RIPSTOP_SHM_TEST_RIG_GROUP";
const HONEST: &str = "RIPSTOP_SHM_TEST_RIG_HONEST";

/// What the parent has.
pub(super) struct Rig {
    pub(super) group: String,
    pub(super) victim: Other,
    pub(super) honest: End<Safe>,
    /// The victim, as the honest endpoint knows it.
    pub(super) to: FiAddr,
    pub(super) random: Numbers,
}

impl Rig {
    /// Starts a victim with this main function, which says that it is open.
    pub(super) fn start(name: &str, main: &str, seed: u64) -> Self {
        let group = format!("{name}-{}", ripstop_os::pid());
        let info = info(None, Threading::Safe);
        let honest = open(&safe(&info), &info);
        let own = honest.name().to_string();
        let victim = Other::start(main, &[(GROUP, &group), (HONEST, &own)]);
        assert_eq!(victim.hear(), "open");
        let to = honest.knows(&Address::Str(load::name(&group, VICTIM)));
        Self {
            group,
            victim,
            honest,
            to,
            random: Numbers(seed),
        }
    }
}

/// What the victim has.
pub(super) struct Victim {
    pub(super) domain: Arc<Safe>,
    pub(super) end: End<Safe>,
    pub(super) honest: FiAddr,
    pub(super) hostile: FiAddr,
    /// What the parent tells it.
    pub(super) orders: Receiver<String>,
}

impl Victim {
    /// Opens its endpoint; `None` in a process that no rig has started. When it is ready, it says `open`.
    pub(super) fn open(caps: Flags) -> Option<Self> {
        let honest = Address::Str(std::env::var(HONEST).ok()?);
        let group = std::env::var(GROUP).ok()?;
        let own = load::name(&group, VICTIM);
        let info = info_for(caps, Some(&own), Threading::Safe, Progress::Manual);
        let domain = safe(&info);
        let end = open(&domain, &info);
        let (tell, orders) = channel();
        std::thread::spawn(move || {
            let lines = std::io::stdin().lines().map_while(Result::ok);
            lines.for_each(|line| tell.send(line).unwrap());
        });
        Some(Self {
            honest: end.knows(&honest),
            hostile: end.knows(&Address::Str(load::name(&group, HOSTILE))),
            domain,
            end,
            orders,
        })
    }
}
