//! Receive contexts whose receives another provider has
//! ([peers](https://ofiwg.github.io/libfabric/main/man/fi_peer.3.html)).

use std::sync::Arc;

use ripstop_core::provider::{self, Arrival, Done};
use ripstop_engine::Iov;
use ripstop_engine::id::{CqId, MessageId, SrxId};
use ripstop_engine::matching::{Recv, Want};
use ripstop_mem::UserBuf;
use ripstop_types::{Context, Errno, FiAddr, Result};

use crate::api::domain::{Domain, Mode};
use crate::api::srx::OneAv;
use crate::transport::Transport;

/// Entries reserved for what has ended; there is room for more.
const RESERVED_ENTRIES: usize = 64;

/// A receive context whose receives another provider has.
#[derive(Debug)]
pub struct PeerRx<T: Transport, K: Mode> {
    pub(crate) domain: Arc<Domain<T, K>>,
    pub(crate) id: SrxId,
    /// What has ended, at all endpoints with the context.
    pub(crate) cq: CqId,
    pub(crate) av: OneAv,
}

impl<T: Transport, K: Mode> PeerRx<T, K> {
    pub(crate) fn open(domain: &Arc<Domain<T, K>>) -> Result<Arc<Self>> {
        let mut state = domain.lock();
        let cq = state.engine.open_cq(RESERVED_ENTRIES)?;
        let opened = state.engine.open_owned_srx();
        let id = opened.inspect_err(|_| {
            state.engine.close_cq(cq);
        })?;
        drop(state);
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            id,
            cq,
            av: OneAv::new(),
        }))
    }
}

/// The message that [`provider::PeerRx::next_arrival`] has given this number.
fn named(number: u32) -> Result<MessageId> {
    MessageId::new(number).ok_or(Errno::EINVAL)
}

impl<T: Transport, K: Mode> Drop for PeerRx<T, K> {
    fn drop(&mut self) {
        let mut state = self.domain.lock();
        state.engine.close_srx(self.id);
        state.engine.close_cq(self.cq);
        state.after();
    }
}

impl<T: Transport, K: Mode> provider::PeerRx for PeerRx<T, K> {
    type Domain = Domain<T, K>;

    fn next_arrival(&self) -> Option<Arrival> {
        let arrival = self.domain.lock().engine.next_arrival(self.id)?;
        Some(Arrival {
            message: arrival.message.number(),
            tag: arrival.envelope.tag,
            src: arrival.envelope.src,
            len: arrival.envelope.len,
            data: arrival.envelope.data,
        })
    }

    fn start(&self, message: u32, iov: &[UserBuf], context: Context) -> Result<()> {
        // The owner has matched it.
        let want = Want {
            tag: None,
            src: FiAddr::UNSPEC,
        };
        let recv = Recv::new(Iov::new(iov)?, want, context);
        let message = named(message)?;
        let mut state = self.domain.lock();
        if let Some(copy) = state.engine.start(self.id, self.cq, message, recv)? {
            state.copy_kept(&copy);
        }
        state.after();
        Ok(())
    }

    fn let_wait(&self, message: u32) -> Result<()> {
        let mut state = self.domain.lock();
        state.engine.let_wait(self.id, named(message)?)?;
        state.after();
        Ok(())
    }

    fn discard(&self, message: u32) -> Result<()> {
        let mut state = self.domain.lock();
        state.engine.drop_message(self.id, named(message)?)?;
        state.after();
        Ok(())
    }

    fn source(&self, message: u32) -> FiAddr {
        match named(message) {
            Ok(message) => self.domain.lock().engine.source(self.id, message),
            Err(_) => FiAddr::NOTAVAIL,
        }
    }

    fn take_done(&self, max: usize, mut entry: impl FnMut(Done)) -> usize {
        let mut state = self.domain.lock();
        let Some(cq) = state.engine.cq_mut(self.cq) else {
            return 0;
        };
        let mut count = 0;
        while count < max {
            match cq.pop() {
                Ok(done) => entry(Done::Ok(done)),
                Err(Errno::EAVAIL) => match cq.pop_error() {
                    Ok(error) => entry(Done::Failed(error.error, error.data().to_vec())),
                    Err(_) => break,
                },
                Err(_) => break,
            }
            count += 1;
        }
        count
    }
}
