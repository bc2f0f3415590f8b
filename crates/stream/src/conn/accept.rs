//! Connections that others opened: from `accept` to the decision on their request.

use std::sync::Arc;

use ripstop_engine::id::EpId;
use ripstop_os::{Interest, Shutdown, Spare};
use ripstop_wire::xnet::cm::{Extensions, Kind};

use crate::state::accepting::{Accepting, Read, Request, write_message};
use crate::state::{State, token};
use crate::system::Poller as _;
use crate::transport::Transport;
use crate::transport::link::Link;
use crate::transport::listener::Listener;

/// The next connection that waits at a listener. Those for which there is no descriptor
/// are turned away, so that their peers know.
pub(crate) fn next_accepted<T: Transport>(
    listener: &T::Listener,
    spare: &mut Spare,
) -> Option<(T::Link, T::Addr)> {
    loop {
        match listener.accept() {
            Ok(accepted) => return accepted,
            Err(error) => {
                let peer = listener.turn_away(spare)?;
                log_warn_sparse!(
                    T::EpCtrl,
                    "{peer}: turned away: {error}; raise the limit of open files"
                );
            }
        }
    }
}

/// Refuses a request, with data for the peer.
pub(crate) fn reject<T: Transport>(link: &T::Link, peer: &T::Addr, data: &[u8]) {
    let told = write_message(link, Kind::Reject, Extensions::NONE, data)
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
            let state = self.eps.get(ep.index()).and_then(Option::as_ref);
            let Some(rdm) = state.and_then(|state| state.rdm.as_ref()) else {
                return;
            };
            let Some((link, peer)) = next_accepted::<T>(&rdm.listener, &mut self.spare) else {
                return;
            };
            self.next_accepting = self.next_accepting.wrapping_add(1);
            let id = self.next_accepting;
            if let Err(error) =
                self.epoll
                    .add(&link, token::ACCEPTING | u64::from(id), Interest::READ)
            {
                log_warn!(T::EpCtrl, "{peer}: dropped, it cannot be watched: {error}");
                continue;
            }
            let accepting = Accepting::new(link, peer, Some(ep), (*params).as_ref());
            self.accepting.insert(id, accepting);
            self.start_timer();
            self.handle_accepting(id);
        }
    }

    pub(crate) fn handle_accepting(&mut self, id: u32) {
        let Some(accepting) = self.accepting.get_mut(&id) else {
            return;
        };
        let read = accepting.read();
        if matches!(read, Read::Partial) {
            return;
        }
        let Some(accepting) = self.accepting.remove(&id) else {
            return;
        };
        if let Err(error) = self.epoll.remove(&accepting.link) {
            log_warn!(T::EpCtrl, "{}: dropped: {error}", accepting.peer);
            return;
        }
        if let Read::Whole(header, data) = read {
            let Accepting { link, peer, ep, .. } = accepting;
            let request = Request { link, peer, header };
            if let Some(ep) = ep {
                self.handle_request(ep, request, &data);
            }
        }
    }
}
