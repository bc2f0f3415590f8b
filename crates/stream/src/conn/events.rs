//! Events of connection management (man page `fi_eq(3)`).

use ripstop_core::eq::{Event, EventError};
use ripstop_core::provider::Token;
use ripstop_core::{EventQueue, Info};
use ripstop_types::Errno;

use crate::transport::Transport;

/// Adds an event; a queue without memory reports that itself when it is read.
fn push<T: Transport>(eq: &EventQueue, event: Event) {
    if let Err(error) = eq.push(event) {
        log_warn!(T::Eq, "an event is lost: {error}");
    }
}

/// The connection is up; `data` is what the accepting side said.
pub(crate) fn connected<T: Transport>(eq: &EventQueue, ep: Token, data: &[u8]) {
    let data = data.to_vec();
    push::<T>(eq, Event::Connected { ep, data });
}

/// The connection has ended.
pub(crate) fn shut_down<T: Transport>(eq: &EventQueue, ep: Token) {
    push::<T>(eq, Event::Shutdown { ep });
}

/// Somebody asks to connect.
pub(crate) fn requested<T: Transport>(eq: &EventQueue, pep: Token, info: Info, data: &[u8]) {
    push::<T>(
        eq,
        Event::ConnReq {
            pep,
            info: Box::new(info),
            data: data.to_vec(),
        },
    );
}

/// No connection came about; `data` is what the rejecting side said.
pub(crate) fn failed<T: Transport>(eq: &EventQueue, ep: Token, err: Errno, data: &[u8]) {
    let error = EventError {
        err_data: data.to_vec(),
        ..EventError::new(ep, err)
    };
    if let Err(error) = eq.push_error(error) {
        log_warn!(T::Eq, "an event is lost: {error}");
    }
}
