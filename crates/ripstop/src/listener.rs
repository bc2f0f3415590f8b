//! Listening for connections.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ripstop_core::{Address, FidToken, Info};
use ripstop_types::Errno;

use crate::backend::AnyPassive;
use crate::connection::Connecting;
use crate::error::{Error, Operation, Result};
use crate::running::Running;
use crate::watch::Watch;

/// A passive endpoint that listens (man pages `fi_passive_ep(3)`, `fi_listen(3)`).
///
/// A cheap handle, which any thread may use at any time; clones are the same listener. It
/// closes when its last handle and request is gone.
#[derive(Clone, Debug)]
pub struct Listener(Arc<Passive>);

#[derive(Debug)]
struct Passive {
    running: Arc<Running>,
    token: FidToken,
    object: AnyPassive,
}

impl Listener {
    pub(crate) fn open(running: &Arc<Running>) -> Result<Self> {
        let failed = |errno| Error::new(errno, Operation::Listen);
        let core = &running.core;
        let eq = core.eq.as_ref().ok_or_else(|| failed(Errno::EINVAL))?;
        let token = core.with(|table, _| table.connections.add_listener());
        match core.fabric.object().listen(&core.info, eq, token) {
            Ok(object) => Ok(Self(Arc::new(Passive {
                running: Arc::clone(running),
                token,
                object,
            }))),
            Err(errno) => {
                core.with(|table, later| table.connections.remove(token, later));
                Err(failed(errno))
            }
        }
    }

    /// The address that peers connect to (`fi_getname(3)`).
    ///
    /// # Errors
    /// Of `getsockname`.
    pub fn address(&self) -> Result<Address> {
        let name = self.0.object.name();
        name.map_err(|errno| Error::new(errno, Operation::Listen))
    }

    /// The next request for a connection, a future. Dropping it loses no request.
    pub fn accept(&self) -> Accept {
        let core = Arc::clone(&self.0.running.core);
        Accept {
            passive: Arc::clone(&self.0),
            watch: Watch::new(core, self.0.token),
        }
    }
}

impl Drop for Passive {
    fn drop(&mut self) {
        let core = &self.running.core;
        core.with(|table, later| table.connections.remove(self.token, later));
        if let Some(eq) = &core.eq {
            eq.forget(self.token);
        }
    }
}

/// Waits for a request; from [`Listener::accept`].
#[derive(Debug)]
#[must_use = "nothing is accepted unless it is awaited or waited for"]
pub struct Accept {
    passive: Arc<Passive>,
    watch: Watch,
}

impl Accept {
    /// Waits for the request, driving the domain meanwhile.
    pub fn wait(mut self) -> Incoming {
        let core = Arc::clone(&self.passive.running.core);
        core.block_on(|cx| Pin::new(&mut self).poll(cx))
    }
}

impl Future for Accept {
    type Output = Incoming;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Incoming> {
        let Self { passive, watch } = self.get_mut();
        let token = passive.token;
        let request = passive.running.core.poll(
            cx.waker(),
            true,
            |table, _| table.connections.next_request(token),
            |table, later| watch.set(table, cx.waker(), later),
        );
        request.map(|(info, data)| Incoming {
            passive: Arc::clone(passive),
            info,
            data,
            decided: false,
        })
    }
}

/// A request for a connection. Dropping it rejects the request.
#[derive(Debug)]
#[must_use = "a request that is dropped is rejected"]
pub struct Incoming {
    passive: Arc<Passive>,
    info: Box<Info>,
    data: Vec<u8>,
    decided: bool,
}

impl Incoming {
    /// What the peer said when it asked to connect.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The peer's address, where the provider tells it.
    #[must_use]
    pub const fn peer(&self) -> Option<&Address> {
        self.info.dest_addr.as_ref()
    }

    /// Accepts (`fi_accept(3)`), with up to 256 bytes for the peer.
    pub fn accept(mut self, data: &[u8]) -> Connecting {
        self.decided = true;
        Connecting::accept(&self.passive.running, &self.info, data)
    }

    /// Refuses (`fi_reject(3)`), with up to 256 bytes for the peer.
    ///
    /// # Errors
    /// `FI_EINVAL` for too much data: the request is rejected without any.
    pub fn reject(mut self, data: &[u8]) -> Result<()> {
        let rejected = self.passive.object.reject(&self.info, data);
        self.decided = rejected.is_ok();
        rejected.map_err(|errno| {
            Error::new(errno, Operation::Reject).with_peer(self.info.dest_addr.clone())
        })
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.decided {
            // It cannot be told if the peer is gone meanwhile.
            let _ = self.passive.object.reject(&self.info, &[]);
        }
    }
}
