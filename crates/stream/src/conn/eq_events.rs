//! Events of connection management (man page `fi_eq(3)`).

use ripstop_core::eq::{Event, EventError};
use ripstop_core::provider::Token;
use ripstop_core::{EventQueue, Info};
use ripstop_types::{Errno, Result};

use crate::transport::Transport;

/// What has become of an event; a queue without memory reports that itself when it is read.
pub(crate) fn pushed<T: Transport>(outcome: Result<()>) {
    if let Err(error) = outcome {
        log_warn!(T::Eq, "an event is lost: {error}");
    }
}

/// The connection is up; `data` is what the accepting side said.
pub(crate) fn connected<T: Transport>(eq: &EventQueue, ep: Token, data: &[u8]) {
    let data = data.to_vec();
    pushed::<T>(eq.push(Event::Connected { ep, data }));
}

/// The connection has ended.
pub(crate) fn shut_down<T: Transport>(eq: &EventQueue, ep: Token) {
    pushed::<T>(eq.push(Event::Shutdown { ep }));
}

/// Somebody asks to connect.
pub(crate) fn requested<T: Transport>(eq: &EventQueue, pep: Token, info: Info, data: &[u8]) {
    let (info, data) = (Box::new(info), data.to_vec());
    pushed::<T>(eq.push(Event::ConnReq { pep, info, data }));
}

/// No connection came about; `data` is what the rejecting side said.
pub(crate) fn failed<T: Transport>(eq: &EventQueue, ep: Token, err: Errno, data: &[u8]) {
    pushed::<T>(eq.push_error(EventError {
        err_data: data.to_vec(),
        ..EventError::new(ep, err)
    }));
}
