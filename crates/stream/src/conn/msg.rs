//! Connections of MSG endpoints: made, accepted and ended by the application.

use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::Arc;

use ripstop_core::EventQueue;
use ripstop_core::provider::Token;
use ripstop_engine::id::{ConnId, EpId};
use ripstop_os::Shutdown;
use ripstop_types::{Errno, FiAddr, Result};

use crate::conn::eq_events;
use crate::state::State;
use crate::state::accepting::{Request, terms};
use crate::state::ep::PeerContext;
use crate::system::System as _;
use crate::transport::Transport;
use crate::transport::link::Link as _;
use crate::tunables::MAX_HELLO;

impl<T: Transport> State<T> {
    /// Starts to connect.
    pub(crate) fn msg_connect(&mut self, ep: EpId, peer: T::Addr, data: &[u8]) -> Result<()> {
        if data.len() > MAX_HELLO {
            return Err(Errno::EINVAL);
        }
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        if state.connection().is_some() || state.msg.ended || state.msg.request.is_some() {
            return Err(Errno::EINVAL);
        }
        state.msg.hello = data.to_vec();
        state.msg.peer = Some(peer.clone());
        let id = self.open_connection(ep, PeerContext::whole(FiAddr::NOTAVAIL), peer)?;
        let deadline = T::System::now() + self.tunables().timeout;
        if let Some(connection) = self.connection(id) {
            connection.deadline = Some(deadline);
        }
        if let Some(state) = self.ep(ep) {
            state.routes = vec![Some(id)];
        }
        self.start_timer();
        self.try_connect(id);
        Ok(())
    }

    /// The socket of an endpoint. One that has not connected gets its socket here, at its source address.
    pub(crate) fn msg_fd(&mut self, ep: EpId) -> Result<RawFd> {
        let params = Arc::clone(&self.params);
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        if !state.is_msg {
            return Err(Errno::ENOSYS);
        }
        if let Some(request) = &state.msg.request {
            return Ok(request.link.as_fd().as_raw_fd());
        }
        if let Some(id) = state.connection() {
            let link = self.connection(id).and_then(|known| known.link.as_ref());
            return link
                .map(|link| link.as_fd().as_raw_fd())
                .ok_or(Errno::EOPBADSTATE);
        }
        if state.msg.bound.is_none() {
            let (Some(source), false) = (&state.msg.source, state.msg.ended) else {
                return Err(refused!(
                    T::EpCtrl,
                    EOPBADSTATE,
                    "an endpoint without a source address has a socket from fi_connect to the end of \
                     the connection; ask for it then, or give src_addr in the info"
                ));
            };
            state.msg.bound = Some(T::bind(&params, source)?);
        }
        let socket = state.msg.bound.as_ref().ok_or(Errno::EOPBADSTATE)?;
        Ok(socket.as_fd().as_raw_fd())
    }

    /// Accepts the request the endpoint was opened with.
    pub(crate) fn msg_accept(&mut self, ep: EpId, data: &[u8]) -> Result<()> {
        if data.len() > MAX_HELLO {
            return Err(Errno::EINVAL);
        }
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        let Request { link, peer, header } = state.msg.request.take().ok_or(Errno::EINVAL)?;
        state.msg.peer = Some(peer.clone());
        state.msg.local = link.local_addr().ok();
        let id = self.open_connection(ep, PeerContext::whole(FiAddr::NOTAVAIL), peer)?;
        let terms = terms(&header, self.extensions(&link), false, None);
        self.answer(id, link, terms.extensions, data)
            .inspect_err(|error| self.drop_connection(id, *error))?;
        self.go_up(id);
        self.start_messages(id, terms);
        if let Some(state) = self.ep(ep) {
            state.routes = vec![Some(id)];
        }
        self.tell(ep, |eq, token| eq_events::connected::<T>(eq, token, &[]));
        Ok(())
    }

    pub(crate) fn msg_connected(&mut self, id: ConnId, data: &[u8]) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let ep = connection.ep;
        let local = connection.link.as_ref().and_then(|s| s.local_addr().ok());
        if let Some(state) = self.ep(ep) {
            state.msg.local = local;
        }
        self.tell(ep, |eq, token| eq_events::connected::<T>(eq, token, data));
    }

    /// The attempt to connect failed, or was rejected with `data`.
    pub(crate) fn msg_failed(&mut self, id: ConnId, error: Errno, data: &[u8]) {
        if let Some(ep) = self.end_msg(id) {
            self.tell(ep, |eq, token| {
                eq_events::failed::<T>(eq, token, error, data)
            });
            self.fail_posted(ep);
        }
    }

    /// The connection has ended.
    pub(crate) fn msg_lost(&mut self, id: ConnId) {
        if let Some(ep) = self.end_msg(id) {
            self.fail_posted(ep);
            self.tell(ep, eq_events::shut_down::<T>);
        }
    }

    /// The endpoint of a connection has none any more, and cannot be used again. Returns it.
    fn end_msg(&mut self, id: ConnId) -> Option<EpId> {
        let ep = self.connection(id)?.ep;
        let state = self.ep(ep)?;
        state.routes = vec![None];
        state.end();
        Some(ep)
    }

    /// Receives that only this connection could fill are cancelled.
    fn fail_posted(&mut self, ep: EpId) {
        let Some(state) = self.ep(ep) else { return };
        let (srx, shared) = (state.srx, state.shared_srx);
        if shared {
            return;
        }
        if let Some(config) = self.engine.ep(ep).copied() {
            let to = (config.rx_cq, config.rx_counter);
            self.engine.fail_receives(srx, to, Errno::ECANCELED);
        }
    }

    /// Ends the connection from this side.
    pub(crate) fn msg_shutdown(&mut self, ep: EpId) -> Result<()> {
        let state = self.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        if state.msg.ended {
            // The peer was first; the event that tells is in the queue.
            return Ok(());
        }
        let id = state.connection().ok_or(Errno::ENOTCONN)?;
        self.flush(id);
        if let Some(link) = self.connection(id).and_then(|s| s.link.as_ref()) {
            // A peer that is gone already has been shut down as well.
            let _ = link.shutdown(Shutdown::Both);
        }
        if self.connection(id).is_some() {
            self.msg_lost(id);
            self.close_connection(id, Errno::ECANCELED);
        }
        Ok(())
    }

    fn tell(&mut self, ep: EpId, event: impl FnOnce(&EventQueue, Token)) {
        let Some(state) = self.ep(ep) else { return };
        if let Some(eq) = &state.msg.eq {
            event(eq, state.token);
        }
    }
}
