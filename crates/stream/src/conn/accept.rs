//! Connections that others opened: from `accept` to the decision on their request.

use std::sync::Arc;

use ripstop_engine::id::EpId;
use ripstop_os::Shutdown;
use ripstop_wire::xnet::cm::{Extensions, Kind};

use crate::state::accepting::write_message;
use crate::state::{State, token};
use crate::transport::Transport;
use crate::transport::link::Link;
use crate::transport::listener::Listener as _;

/// Refuses a request, with data for the peer.
pub(crate) fn reject<T: Transport>(link: &T::Link, peer: &T::Addr, data: &[u8]) {
    let told = write_message(link, Kind::Reject, Extensions::empty(), data)
        .and_then(|()| link.shutdown(Shutdown::Both));
    if let Err(error) = told {
        log_info!(
            T::EpCtrl,
            "{peer}: could not be told that its request is refused: {error}"
        );
    }
}

impl<T: Transport> State<T> {
    /// Somebody connects to an RDM endpoint.
    pub(crate) fn handle_listener(&mut self, ep: EpId) {
        let params = Arc::clone(&self.params);
        loop {
            let state = self.eps.get(ep);
            let Some(rdm) = state.and_then(|state| state.rdm.as_ref()) else {
                return;
            };
            let (epoll, tunables) = ((&*self.epoll, token::ACCEPTING), (*params).as_ref());
            let accepting = &mut self.accepting;
            let Some(id) = accepting.accept(&rdm.listener, epoll, Some(ep), tunables) else {
                if let Some(error) = rdm.listener.lost() {
                    self.lose_endpoint(ep, error);
                }
                return;
            };
            self.start_timer();
            self.handle_accepting(id);
        }
    }

    pub(crate) fn handle_accepting(&mut self, id: u32) {
        if let Some((Some(ep), request, data)) = self.accepting.read(id, &self.epoll) {
            self.handle_request(ep, request, &data);
        }
    }
}
