//! What a domain is opened with.

use std::time::Duration;

/// See [`Domain::BUSY_POLL`](crate::Domain::BUSY_POLL).
pub(crate) const BUSY_POLL: Duration = Duration::from_micros(100);

/// See [`Domain::ANSWER_TIMEOUT`](crate::Domain::ANSWER_TIMEOUT).
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What a domain is opened with, besides its interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attr {
    pub(crate) progress: Progress,
    pub(crate) busy_poll: Duration,
    /// What the program says.
    pub(crate) answer_timeout: Option<Duration>,
}

impl Default for Attr {
    fn default() -> Self {
        Self {
            progress: Progress::default(),
            busy_poll: BUSY_POLL,
            answer_timeout: None,
        }
    }
}

/// Who makes a domain's progress: moves what the socket or device has, and wakes tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The tasks that wait, as long as what they wait for comes soon (see
    /// [`DomainBuilder::busy_poll`](crate::DomainBuilder::busy_poll)), and otherwise a thread of the
    /// library: it sleeps until the provider has something to do, and then wakes the tasks
    /// concerned. Futures work on any runtime with it, and without one. Calls of the program make
    /// progress as well.
    #[default]
    Background,
    /// The calls of the program, and no thread. Waiting calls ([`Op::wait`](crate::Op::wait),
    /// [`Domain::block_on`](crate::Domain::block_on)) drive the domain themselves, which saves a change of threads per
    /// message. Futures awaited elsewhere need something that drives: [`Domain::progress`](crate::Domain::progress) in
    /// a loop, or a [`Driver`](crate::Driver) in the program's event loop. Where a task waits and nothing has
    /// driven its domain for 5 s, a line in the log says so, at warn level.
    Manual,
}
