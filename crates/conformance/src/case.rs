//! What a case is, and how it ends.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use ripstop_types::{EpType, Errno, Flags, Threading};

use crate::subject::{Error, Result as CallResult, Setup, Subject};

/// How a case ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The implementation, or the way into it, does not offer what the case is about.
    NotOffered(String),
    /// This machine has not what the case needs, whoever the implementation is.
    NotHere(String),
    /// The implementation does not keep the rule.
    Fail(String),
}

/// What a case gives: nothing, when all is well.
pub type Outcome = std::result::Result<(), Stop>;

/// A step of a case.
pub type Step<T> = std::result::Result<T, Stop>;

impl From<Error> for Stop {
    /// A call that should have succeeded did not.
    #[track_caller]
    fn from(error: Error) -> Self {
        match error {
            Error::Missing(_) => Self::NotOffered(error.to_string()),
            Error::Call { .. } => Self::fail(error),
        }
    }
}

impl Stop {
    /// A failure, with the place in the case.
    #[track_caller]
    pub fn fail(what: impl fmt::Display) -> Self {
        let at = Location::caller();
        let file = at.file().rsplit('/').next().unwrap_or_default();
        Self::Fail(format!("{what} ({file}:{})", at.line()))
    }

    /// Not offered.
    pub fn not_offered(why: impl fmt::Display) -> Self {
        Self::NotOffered(why.to_string())
    }

    /// Not on this machine.
    pub fn not_here(why: impl fmt::Display) -> Self {
        Self::NotHere(why.to_string())
    }
}

/// Ends the case as failed unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::case::Stop::fail(format!($($message)+)));
        }
    };
}

/// Ends the case as failed, with both values, unless what was found is what is wanted.
#[macro_export]
macro_rules! ensure_eq {
    ($found:expr, $wanted:expr, $($what:tt)+) => {{
        let (found, wanted) = (&$found, &$wanted);
        if found != wanted {
            let what = format!($($what)+);
            return Err($crate::case::Stop::fail(format!("{what}: {found:?}, expected {wanted:?}")));
        }
    }};
}

/// Ends the case as failed unless these flags are among those of a completion.
#[track_caller]
pub fn flagged(flags: Flags, wanted: Flags, what: &str) -> Outcome {
    if flags.contains(wanted) {
        return Ok(());
    }
    Err(Stop::fail(format!(
        "{what} has {flags:?}, expected {wanted:?}"
    )))
}

/// Ends the case as failed unless the call was refused for one of these reasons.
#[track_caller]
pub fn refused<T>(result: CallResult<T>, reasons: &[Errno], what: &str) -> Outcome {
    let names = || {
        let names: Vec<_> = reasons.iter().map(|e| e.name()).collect();
        names.join(" or ")
    };
    match result {
        Ok(_) => Err(Stop::fail(format!(
            "{what} was accepted, not refused with {}",
            names()
        ))),
        Err(Error::Call { errno, .. }) if reasons.contains(&errno) => Ok(()),
        Err(error @ Error::Call { .. }) => {
            Err(Stop::fail(format!("{what}: {error}, expected {}", names())))
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends the case as failed unless closing something that is in use was refused.
#[track_caller]
pub fn in_use(closed: CallResult<()>, what: &str) -> Outcome {
    refused(closed, &[Errno::EBUSY], &format!("closing {what}"))
}

/// What a call gave, or `None` if it said `FI_EAGAIN`.
#[track_caller]
pub fn ready<T>(result: CallResult<T>) -> Step<Option<T>> {
    match result {
        Err(e) if e.is(Errno::EAGAIN) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Ends the case as not offered when the call was refused for one of these reasons.
#[track_caller]
pub fn offered<T>(result: CallResult<T>, reasons: &[Errno], what: &str) -> Step<T> {
    match result {
        Err(Error::Call { errno, .. }) if reasons.contains(&errno) => {
            Err(Stop::not_offered(format!("{what}: {}", errno.name())))
        }
        Err(error) => Err(error.into()),
        Ok(value) => Ok(value),
    }
}

/// What a case gets.
pub struct Cx<'a> {
    /// The implementation.
    pub s: &'a dyn Subject,
    /// The same, where several threads may use it.
    pub threads: Option<&'a (dyn Subject + Sync)>,
    /// Provider and threading level.
    pub setup: &'a Setup,
    /// The endpoint type to use.
    pub ep_type: EpType,
}

impl<'a> Cx<'a> {
    /// The implementation, for several threads.
    ///
    /// # Errors
    ///
    /// Not offered below `FI_THREAD_SAFE`.
    pub fn threads(&self) -> Step<&'a (dyn Subject + Sync)> {
        self.threads
            .ok_or_else(|| Stop::not_offered("needs FI_THREAD_SAFE"))
    }

    /// Whether objects are opened for `FI_THREAD_SAFE`.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        self.setup.threading == Threading::Safe
    }

    /// Whether the case runs on reliable datagram endpoints.
    #[must_use]
    pub fn is_rdm(&self) -> bool {
        self.ep_type == EpType::Rdm
    }
}

/// The endpoint types a case is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eps {
    /// Reliable datagram and connected endpoints.
    Both,
    /// Reliable datagram endpoints.
    Rdm,
    /// Connected endpoints.
    Msg,
    /// Datagram endpoints.
    Dgram,
}

impl Eps {
    /// Whether a case for these runs on endpoints of this type.
    #[must_use]
    pub fn includes(self, ep_type: EpType) -> bool {
        match self {
            Self::Both => matches!(ep_type, EpType::Rdm | EpType::Msg),
            Self::Rdm => ep_type == EpType::Rdm,
            Self::Msg => ep_type == EpType::Msg,
            Self::Dgram => ep_type == EpType::Dgram,
        }
    }
}

/// One rule of the man pages, and the code that tries it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// `page/rule`.
    pub name: &'static str,
    /// The rule in a sentence.
    pub rule: &'static str,
    /// The endpoint types it is for.
    pub eps: Eps,
    /// How long it may take.
    pub limit: Duration,
    /// The rule states a time: the case runs alone, and no factor empties its bound.
    pub is_timed: bool,
    /// Its sides must make progress at the same time, which one that waits for a call in another
    /// process does not: no case with each side in a process of its own.
    pub is_together: bool,
    /// Parameters that the rule depends on. Nobody else sets any: all other cases try what is shipped.
    pub params: &'static [(&'static str, &'static str)],
    /// The code.
    pub body: fn(&Cx<'_>) -> Outcome,
}

/// How long a case may take unless it says otherwise.
pub const LIMIT: Duration = Duration::from_secs(10);

impl Case {
    /// A case by its name, with its rule and its code.
    #[must_use]
    pub const fn new(
        eps: Eps,
        name: &'static str,
        rule: &'static str,
        body: fn(&Cx<'_>) -> Outcome,
    ) -> Self {
        Self {
            name,
            rule,
            eps,
            limit: LIMIT,
            is_timed: false,
            is_together: false,
            params: &[],
            body,
        }
    }

    /// The same, about a time that the rule states.
    #[must_use]
    pub const fn timed(mut self) -> Self {
        self.is_timed = true;
        self
    }

    /// The same, where each side must make progress during calls of the others.
    #[must_use]
    pub const fn together(mut self) -> Self {
        self.is_together = true;
        self
    }

    /// The same, with these parameters in its environment.
    #[must_use]
    pub const fn with(mut self, params: &'static [(&'static str, &'static str)]) -> Self {
        self.params = params;
        self
    }

    /// The same, with more time.
    #[must_use]
    pub const fn within(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }
}

/// A table of cases, by man page: `both`, `rdm`, `msg` or `dgram` for the endpoints, the function that tries the
/// rule, whose name is that of the case, and the rule. Another function, or a closure, may follow,
/// then what makes the case differ from others:
///
/// ```text
/// cases! {
///     pub(super) const CASES;
///     fi_tagged {
///         both peek: "a peek describes the message and leaves it" = leaves, within(20);
///     }
/// }
/// ```
macro_rules! cases {
    ($vis:vis const $table:ident; $($page:ident {
        $($eps:ident $name:ident: $rule:literal $(= $body:expr)? $(, $with:ident($($arg:expr),*))*;)*
    })*) => {
        $vis const $table: &[$crate::case::Case] = &[
            $($($crate::case::Case::new(
                $crate::case::cases!(@eps $eps),
                concat!(stringify!($page), "/", stringify!($name)),
                $rule,
                $crate::case::cases!(@body $name $($body)?),
            )$(.$with($($arg),*))*,)*)*
        ];
    };
    (@eps both) => { $crate::case::Eps::Both };
    (@eps rdm) => { $crate::case::Eps::Rdm };
    (@eps msg) => { $crate::case::Eps::Msg };
    (@eps dgram) => { $crate::case::Eps::Dgram };
    (@body $name:ident) => { $name };
    (@body $name:ident $body:expr) => { $body };
}
pub(crate) use cases;

/// The name of a case on one endpoint type, as lists and reports have it: `rdm:page/rule`.
#[must_use]
pub fn id(ep_type: EpType, name: &str) -> String {
    format!("{}:{name}", ep_name(ep_type))
}

/// `rdm`, `msg` or `dgram`.
#[must_use]
pub fn ep_name(ep_type: EpType) -> &'static str {
    match ep_type {
        EpType::Msg => "msg",
        EpType::Dgram => "dgram",
        _ => "rdm",
    }
}
