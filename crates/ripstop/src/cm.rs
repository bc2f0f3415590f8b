//! Connections and listeners of a domain, as its event queue tells of them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::task::Waker;

use ripstop_core::eq::{Event, EventError, EventQueue};
use ripstop_core::{FidToken, Info};
use ripstop_types::Errno;

use crate::later::Later;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Neither accepted nor refused.
    Connecting,
    /// In use.
    Up,
    /// It did not come about.
    Failed(Errno),
    /// It was up.
    Ended,
}

/// A request for a connection: what to open the endpoint with, and what the peer said.
pub(crate) type Request = (Box<Info>, Vec<u8>);

#[derive(Debug)]
pub(crate) enum About {
    Connection {
        phase: Phase,
        /// What the peer said when it accepted or rejected.
        data: Vec<u8>,
    },
    Listener(VecDeque<Request>),
}

#[derive(Debug)]
pub(crate) struct Entry {
    about: About,
    /// Who waits for its next event, by the number of the watch.
    pub(crate) wakers: BTreeMap<u64, Waker>,
}

/// Everything events can be about, by token. Tokens are not used twice, so a late event finds
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    pub(crate) entries: HashMap<FidToken, Entry>,
    last: usize,
    /// Watches that there were.
    pub(crate) watches: u64,
}

impl Connections {
    pub(crate) fn add_connection(&mut self) -> FidToken {
        self.add(About::Connection {
            phase: Phase::Connecting,
            data: Vec::new(),
        })
    }

    pub(crate) fn add_listener(&mut self) -> FidToken {
        self.add(About::Listener(VecDeque::new()))
    }

    fn add(&mut self, about: About) -> FidToken {
        self.last += 1;
        let token = FidToken(self.last);
        let wakers = BTreeMap::new();
        self.entries.insert(token, Entry { about, wakers });
        token
    }

    pub(crate) fn remove(&mut self, token: FidToken, later: &mut Later) {
        if let Some(entry) = self.entries.remove(&token) {
            later.drop(entry.wakers.into_values());
        }
    }

    pub(crate) fn phase(&self, token: FidToken) -> Phase {
        match self.entries.get(&token).map(|entry| &entry.about) {
            Some(About::Connection { phase, .. }) => *phase,
            Some(About::Listener(_)) | None => Phase::Ended,
        }
    }

    /// What the peer said, once.
    pub(crate) fn take_data(&mut self, token: FidToken) -> Vec<u8> {
        match self.entries.get_mut(&token).map(|entry| &mut entry.about) {
            Some(About::Connection { data, .. }) => std::mem::take(data),
            Some(About::Listener(_)) | None => Vec::new(),
        }
    }

    pub(crate) fn next_request(&mut self, token: FidToken) -> Option<Request> {
        match &mut self.entries.get_mut(&token)?.about {
            About::Listener(requests) => requests.pop_front(),
            About::Connection { .. } => None,
        }
    }

    /// Whether anybody waits for an event.
    pub(crate) fn awaited(&self) -> bool {
        self.entries.values().any(|entry| !entry.wakers.is_empty())
    }

    /// Takes all events from the queue; returns whether there were any.
    pub(crate) fn take_events(&mut self, eq: &EventQueue, later: &mut Later) -> bool {
        let mut any = false;
        loop {
            match eq.read() {
                Ok(event) => self.handle(event, later),
                Err(Errno::EAVAIL) => match eq.read_error(true) {
                    Ok(error) => self.handle_error(error, later),
                    Err(_) => return any,
                },
                Err(_) => return any,
            }
            any = true;
        }
    }

    fn handle(&mut self, event: Event, later: &mut Later) {
        let Some(entry) = event.fid().and_then(|fid| self.entries.get_mut(&fid)) else {
            return;
        };
        match (&mut entry.about, event) {
            (About::Listener(requests), Event::ConnReq { info, data, .. }) => {
                requests.push_back((info, data));
            }
            (About::Connection { phase, data }, Event::Connected { data: said, .. }) => {
                (*phase, *data) = (Phase::Up, said);
            }
            (About::Connection { phase, .. }, Event::Shutdown { .. }) => {
                *phase = match *phase {
                    Phase::Connecting => Phase::Failed(Errno::ECONNABORTED),
                    Phase::Up | Phase::Ended => Phase::Ended,
                    failed @ Phase::Failed(_) => failed,
                };
            }
            _ => return,
        }
        later.wake(std::mem::take(&mut entry.wakers).into_values());
    }

    fn handle_error(&mut self, error: EventError, later: &mut Later) {
        let Some(entry) = self.entries.get_mut(&error.fid) else {
            return;
        };
        if let About::Connection { phase, data } = &mut entry.about {
            (*phase, *data) = (Phase::Failed(error.err), error.err_data);
            later.wake(std::mem::take(&mut entry.wakers).into_values());
        }
    }
}
