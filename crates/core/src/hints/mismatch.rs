//! Why hints do not fit an offer, and the checks that find it out.

use ripstop_types::{Mode, tclass};
use thiserror::Error;

use crate::attr::SHARED_CONTEXT;
use crate::info::Hints;
use crate::names::CNames;

/// The group of attributes that a [`Mismatch`] lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// The arguments of `fi_getinfo` beside the hints.
    Call,
    /// The interface itself (`struct fi_info`).
    Info,
    /// Transmit attributes.
    Tx,
    /// Receive attributes.
    Rx,
    /// Endpoint attributes.
    Ep,
    /// Domain attributes.
    Domain,
    /// Fabric attributes.
    Fabric,
}

impl Group {
    /// How C programs reach an attribute of the group from the hints.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Call => "",
            Self::Info => "hints->",
            Self::Tx => "hints->tx_attr->",
            Self::Rx => "hints->rx_attr->",
            Self::Ep => "hints->ep_attr->",
            Self::Domain => "hints->domain_attr->",
            Self::Fabric => "hints->fabric_attr->",
        }
    }
}

/// Why an offer does not meet the hints. `Display` is one line that says what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{attribute}: asked {asked}, offered {offered}; {remedy}", .group.prefix())]
pub struct Mismatch {
    /// Where the attribute is.
    pub group: Group,
    /// The C name of the attribute.
    pub attribute: &'static str,
    /// What the hints say.
    pub asked: String,
    /// What the provider offers.
    pub offered: String,
    /// What to change in the hints for this offer to match.
    pub remedy: String,
}

/// Compares the attributes of one group and collects what does not fit.
pub(super) struct Checks<'a> {
    group: Group,
    pub(super) found: &'a mut Vec<Mismatch>,
}

/// Applies a rule to attributes that have the same name in the hints and in the offer:
/// `each!(checks.size(asked, offer): cntr_cnt, mr_cnt)`.
macro_rules! each {
    ($checks:ident.$rule:ident($asked:expr, $offer:expr): $($attribute:ident),+) => {
        $($checks.$rule(stringify!($attribute), $asked.$attribute, $offer.$attribute);)+
    };
}
pub(super) use each;

impl<'a> Checks<'a> {
    pub(super) const fn new(group: Group, found: &'a mut Vec<Mismatch>) -> Self {
        Self { group, found }
    }

    /// Records that the attribute does not fit.
    pub(super) fn refuse(
        &mut self,
        attribute: &'static str,
        asked: impl Into<String>,
        offered: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.found.push(Mismatch {
            group: self.group,
            attribute,
            asked: asked.into(),
            offered: offered.into(),
            remedy: remedy.into(),
        });
    }

    /// `asked` must not be above `offered`.
    pub(super) fn at_most(&mut self, attribute: &'static str, asked: u64, offered: u64) {
        if asked > offered {
            let remedy = if offered == 0 {
                "leave it 0, as it is not supported".to_owned()
            } else {
                format!("ask for at most {offered}, or 0 for no preference")
            };
            self.refuse(
                attribute,
                asked.to_string(),
                format!("at most {offered}"),
                remedy,
            );
        }
    }

    /// [`Checks::at_most`] for counts and sizes.
    pub(super) fn size(&mut self, attribute: &'static str, asked: usize, offered: usize) {
        self.at_most(attribute, asked as u64, offered as u64);
    }

    /// A traffic class must be one, where the offer has some.
    pub(super) fn class(&mut self, asked: u32, offered: u32) {
        if offered != 0 && tclass::dscp(asked).is_none() {
            self.refuse(
                "tclass",
                format!("{asked:#x}"),
                "a label or a code point",
                "ask for an FI_TC_ label, or fi_tc_dscp_set of at most 63",
            );
        }
    }

    /// Every asked bit must be offered.
    pub(super) fn within<B>(&mut self, attribute: &'static str, asked: B, offered: B)
    where
        B: CNames + bitflags::Flags + Copy,
    {
        let missing = asked.difference(offered);
        if !missing.is_empty() {
            let remedy = format!("drop {}", missing.c_names());
            self.refuse(attribute, asked.c_names(), offered.c_names(), remedy);
        }
    }

    /// The modes of a group are those of the interface where it has none of its own.
    pub(super) fn mode(&mut self, asked: Mode, hints: &Hints, required: Mode) {
        let own = Some(asked).filter(|mode| !mode.is_empty());
        self.promises("mode", own.unwrap_or(hints.mode), required);
    }

    /// Every required bit must be promised.
    pub(super) fn promises<B>(&mut self, attribute: &'static str, promised: B, required: B)
    where
        B: CNames + bitflags::Flags + Copy,
    {
        let missing = required.difference(promised);
        if !missing.is_empty() {
            let remedy = format!("add {}, if the program can keep to it", missing.c_names());
            let needs = format!("only with {}", required.c_names());
            self.refuse(attribute, promised.c_names(), needs, remedy);
        }
    }

    /// Of what callers can do themselves, in `order` from nothing to all, they must do as much as
    /// the provider asks for.
    pub(super) fn at_least<T>(&mut self, attribute: &'static str, order: &[T], asked: T, offered: T)
    where
        T: PartialEq + Default + CNames,
    {
        let rank = |value: &T| order.iter().position(|known| known == value);
        if rank(&asked) < rank(&offered) {
            self.same(attribute, asked, offered);
        }
    }

    /// A name, if both sides have one, must be the same but for case.
    pub(super) fn name(&mut self, asked: Option<&str>, offered: Option<&str>) {
        if let (Some(asked), Some(offered)) = (asked, offered)
            && !asked.eq_ignore_ascii_case(offered)
        {
            let remedy = format!("ask for {offered}, or leave it NULL");
            self.refuse("name", asked, offered, remedy);
        }
    }

    /// `asked` must be unspecified or the same.
    pub(super) fn same<T>(&mut self, attribute: &'static str, asked: T, offered: T)
    where
        T: PartialEq + Default + CNames,
    {
        if asked != T::default() && asked != offered {
            let (asked, offered) = (asked.c_names(), offered.c_names());
            let remedy = format!("ask for {offered}, or leave it unspecified");
            self.refuse(attribute, asked, offered, remedy);
        }
    }
}

/// A context count for people.
pub(super) fn context_count(count: usize) -> String {
    if count == SHARED_CONTEXT {
        "FI_SHARED_CONTEXT".to_owned()
    } else {
        count.to_string()
    }
}
