//! Payloads that this side gets from the memory of their sender, in one copy.

use ripstop_engine::IOV_LIMIT;
use ripstop_engine::id::ConnId;
use ripstop_mem::UserBuf;

use crate::state::State;
use crate::state::place::pieces;
use crate::transport::direct_access::{DirectAccess as _, Got};
use crate::transport::{DirectOf, Transport};

impl<T: Transport> State<T> {
    /// Gets the payload of a message that has its receive.
    #[cold]
    pub(crate) fn get_payload(&mut self, id: ConnId, index: u16) {
        let Some(get) = self.engine.get(id, index) else {
            return;
        };
        let Some(link) = self.connections.get(id).and_then(|c| c.link.as_ref()) else {
            return;
        };
        let mut segments = [UserBuf::EMPTY; IOV_LIMIT];
        let mut count = 0;
        for (to, piece) in segments
            .iter_mut()
            .zip(pieces(get.iov.segments(), get.at, get.len))
        {
            *to = piece;
            count += 1;
        }
        match DirectOf::<T>::get(link, get.address, &segments[..count]) {
            Got::Done => self.engine.got(id, index),
            Got::UseStream => self.engine.not_got(id, index),
            Got::Ended => return,
        }
        if let Some(exponent) = DirectOf::<T>::take_get_limit(link) {
            self.engine.tell_get_limit(id, exponent);
        }
        // The peer need not wait until all that is to be got has come.
        self.flush(id);
    }
}
