//! What endpoints and connections have in common.

use std::sync::Arc;

use ripstop_core::provider::RecvKind;
use ripstop_core::{Address, FidToken, Info};
use ripstop_mem::UserBuf;
use ripstop_types::{EpType, Errno, FiAddr};

use crate::backend::AnyEndpoint;
use crate::error::{Error, Operation, Result};
use crate::later::Later;
use crate::message::{Peer, Remote, SendMsg};
use crate::running::{Core, Running};
use crate::table::Table;

/// An open endpoint of the provider, and its domain. Closes with the last handle, which may
/// be that of an operation.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) running: Arc<Running>,
    /// In the domain's table.
    pub(crate) ep: usize,
    /// What events call it; connections only.
    pub(crate) token: FidToken,
    pub(crate) inject_size: usize,
    pub(crate) max_msg_size: usize,
}

impl Port {
    pub(crate) fn open(running: &Arc<Running>, info: &Info, what: Operation) -> Result<Arc<Self>> {
        let core = &running.core;
        let is_msg = info.ep.ep_type == EpType::Msg;
        let opened = core.with(|table, later| {
            let token = if is_msg {
                table.connections.add_connection()
            } else {
                FidToken::NONE
            };
            match core.domain.endpoint(info, core.eq.as_ref(), token) {
                Ok(object) => Ok((table.open_port(object), token)),
                Err(errno) => {
                    table.connections.remove(token, later);
                    Err(errno)
                }
            }
        });
        let (ep, token) = opened.map_err(|errno| Error::new(errno, what))?;
        Ok(Arc::new(Self {
            running: Arc::clone(running),
            ep,
            token,
            inject_size: info.tx.inject_size,
            max_msg_size: info.ep.max_msg_size,
        }))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.running.core
    }

    /// Calls the provider's endpoint.
    pub(crate) fn object<T>(
        &self,
        what: Operation,
        call: impl FnOnce(&AnyEndpoint) -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        let called = self
            .core()
            .with(|table, _| call(table.object(self.ep).ok_or(Errno::EOPBADSTATE)?));
        called.map_err(|errno| self.error(errno, what))
    }

    /// An error that names the peer, if there is one peer.
    pub(crate) fn error(&self, errno: Errno, what: Operation) -> Error {
        let peer = |table: &mut Table, _: &mut Later| table.object(self.ep)?.peer().ok();
        let peer = self.core().with(peer);
        Error::new(errno, what).with_peer(peer)
    }

    /// The address behind a peer of this domain; none where the endpoint has only one peer.
    pub(crate) fn resolve(&self, peer: Option<Peer>) -> std::result::Result<FiAddr, Errno> {
        match peer {
            None => Ok(FiAddr::UNSPEC),
            Some(peer) if peer.domain == self.core().id => Ok(peer.addr),
            Some(_) => Err(Errno::EINVAL),
        }
    }

    /// Drops the messages that a receive like this would take.
    pub(crate) fn discard(&self, kind: RecvKind, from: Option<Peer>) -> Result<usize> {
        /// So many at once at most: as many as a provider keeps of one peer.
        const MOST: usize = 64 * 1024;
        let core = self.core();
        let dropped = self.resolve(from).and_then(|peer| {
            core.with(|table, later| {
                table.discard(&core.domain, self.ep, (kind, peer), MOST, later)
            })
        });
        dropped.map_err(|errno| Error::new(errno, Operation::Discard))
    }

    pub(crate) fn inject(&self, bytes: &[u8], to: Option<Peer>, msg: SendMsg) -> Result<()> {
        let (kind, data) = (msg.kind(), msg.immediate());
        self.copied(bytes, to, |ep, buf, dest| ep.inject(kind, buf, data, dest))
    }

    pub(crate) fn inject_write(&self, bytes: &[u8], to: Option<Peer>, at: Remote) -> Result<()> {
        self.copied(bytes, to, |ep, buf, dest| ep.inject_write(buf, at, dest))
    }

    /// Makes a call of which the provider copies the bytes.
    fn copied(
        &self,
        bytes: &[u8],
        to: Option<Peer>,
        call: impl Fn(&AnyEndpoint, UserBuf, FiAddr) -> std::result::Result<(), Errno>,
    ) -> Result<()> {
        let core = self.core();
        let injected = self.resolve(to).and_then(|dest| {
            if bytes.len() > self.inject_size {
                return Err(Errno::EMSGSIZE);
            }
            let call = |object: &AnyEndpoint, buf| call(object, buf, dest);
            core.with(|table, later| table.inject(&core.domain, self.ep, bytes, call, later))
        });
        injected.map_err(|errno| {
            let peer = to.and_then(|peer| core.domain.lookup(peer.addr).ok());
            Error::new(errno, Operation::Inject).with_peer(peer)
        })
    }

    pub(crate) fn address(&self) -> Result<Address> {
        self.object(Operation::OpenEndpoint, AnyEndpoint::name)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let core = &self.running.core;
        core.with(|table, later| {
            table.close_port(&core.domain, self.ep, later);
            table.connections.remove(self.token, later);
        });
        if let Some(eq) = &core.eq {
            eq.forget(self.token);
        }
    }
}
