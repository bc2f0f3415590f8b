use core::fmt;

use ripstop_types::{Errno, Version};

use crate::hints::{Group, Mismatch};
use crate::info::Info;

/// Why a provider does not offer something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An attribute of an offer does not meet the hints.
    Mismatch(Mismatch),
    /// `FI_PROVIDER` keeps it out.
    Filtered,
    /// The hints name these providers, and not this one.
    NotAsked(String),
    /// It implements the interface only up to this version.
    TooOld(Version),
    /// It failed, or cannot work on this machine, for a reason of its own.
    Failed(Errno, String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch(why) => why.fmt(f),
            Self::Filtered => {
                f.write_str("the variable FI_PROVIDER excludes it; unset it or add this provider")
            }
            Self::NotAsked(asked) => write!(
                f,
                "hints->fabric_attr->prov_name is {asked}; name this provider, or leave it NULL"
            ),
            Self::TooOld(version) => write!(
                f,
                "it implements version {version} of the interface; ask fi_getinfo for that one"
            ),
            Self::Failed(errno, detail) => write!(f, "{errno}: {detail}"),
        }
    }
}

impl From<Mismatch> for Refusal {
    fn from(why: Mismatch) -> Self {
        Self::Mismatch(why)
    }
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
}

impl Answer {
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
