//! What a provider answers to `fi_getinfo(3)`: offers, and why there are no others.

use core::fmt;

use ripstop_types::{Errno, Version};
use thiserror::Error;

use crate::hints::{Group, Mismatch};
use crate::info::Info;

/// Why a provider does not offer something.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// An attribute of an offer does not meet the hints.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// `FI_PROVIDER` keeps it out.
    #[error("the variable FI_PROVIDER excludes it; unset it or add this provider")]
    Filtered,
    /// The hints name these providers, and not this one.
    #[error("hints->fabric_attr->prov_name is {0}; name this provider, or leave it NULL")]
    NotAsked(String),
    /// It answers only who asks for it by its name, which this is.
    #[error("it answers only who names it: set hints->fabric_attr->prov_name to {0}")]
    Unnamed(String),
    /// A provider of this name that was loaded from a shared object takes its place.
    #[error(
        "the provider {0} from a shared object takes its place; without that object this one answers"
    )]
    Replaced(String),
    /// A layer asks for what it may be layered upon (`fi_provider(7)`), which this is not.
    #[error(
        "a provider that is layered upon others asks, and none is layered upon this one unless the hints name both"
    )]
    NotBelow,
    /// The hints have a value that only a provider from a shared object can know.
    #[error("the hints have a value that no provider knows which is built in; the log says which")]
    Unread,
    /// It implements the interface only up to this version.
    #[error("it implements version {0} of the interface; ask fi_getinfo for that one")]
    TooOld(Version),
    /// It failed, or cannot work on this machine, for a reason of its own.
    #[error("{0}: {1}")]
    Failed(Errno, String),
}

/// What a provider says to a request: what it offers, and why not more.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Interfaces, best first.
    pub infos: Vec<Info>,
    /// One reason for each offer that does not meet the hints.
    pub refusals: Vec<Refusal>,
}

impl Answer {
    /// Collects the answers for each of a provider's offers.
    pub fn collect<I>(answers: I) -> Self
    where
        I: IntoIterator<Item = Result<Vec<Info>, Mismatch>>,
    {
        let mut all = Self::default();
        for answer in answers {
            match answer {
                Ok(infos) => all.infos.extend(infos),
                Err(why) => all.refusals.push(why.into()),
            }
        }
        all
    }

    /// The refusals that tell a caller most: each reason once, and those of offers with
    /// another endpoint type only if there are no others.
    pub(super) fn closest(&self) -> Vec<&Refusal> {
        let of_type = |why: &Refusal| match why {
            Refusal::Mismatch(why) => why.group == Group::Ep && why.attribute == "type",
            _ => false,
        };
        let far = self.refusals.iter().all(of_type);
        let mut closest: Vec<&Refusal> = Vec::new();
        for why in &self.refusals {
            if (far || !of_type(why)) && !closest.contains(&why) {
                closest.push(why);
            }
        }
        closest
    }
}

impl From<Refusal> for Answer {
    fn from(why: Refusal) -> Self {
        Self {
            infos: Vec::new(),
            refusals: vec![why],
        }
    }
}

/// Nothing to offer; `Display` gives one line per reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoInfo {
    /// [`Errno::ENODATA`], or what is wrong with the request itself.
    pub errno: Errno,
    /// Provider and reason.
    pub refusals: Vec<(String, Refusal)>,
}

impl From<Errno> for NoInfo {
    fn from(errno: Errno) -> Self {
        Self {
            errno,
            refusals: Vec::new(),
        }
    }
}

impl fmt::Display for NoInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno {
            Errno::ENODATA if self.refusals.is_empty() => {
                f.write_str("there is no provider: link one in")
            }
            Errno::ENODATA => {
                f.write_str("no provider offers what the hints ask")?;
                self.refusals
                    .iter()
                    .try_for_each(|(name, why)| write!(f, "\n{name}: {why}"))
            }
            Errno::ENOSYS => {
                f.write_str("the program was built for a newer interface: install a newer library")
            }
            Errno::EINVAL => f.write_str("FI_SOURCE needs a node or a service: give one"),
            other => other.fmt(f),
        }
    }
}

impl core::error::Error for NoInfo {}
