//! Payloads that this side gets from the memory of their sender, in one copy.

use ripstop_engine::IOV_LIMIT;
use ripstop_engine::id::ConnId;
use ripstop_engine::stream::GetPlace;
use ripstop_os::IoVecMut;

use crate::state::State;
use crate::state::place::pieces;
use crate::transport::direct_access::{DirectAccess as _, Got};
use crate::transport::{DirectOf, Transport};

impl<T: Transport> State<T> {
    /// Gets the payload of a message that has its receive, or is to be kept.
    #[cold]
    pub(crate) fn get_payload(&mut self, id: ConnId, index: u16) {
        let Self {
            engine,
            connections,
            slots,
            ..
        } = self;
        let Some(get) = engine.get(id, index) else {
            return;
        };
        let Some(link) = connections.get(id).and_then(|c| c.link.as_ref()) else {
            return;
        };
        let mut into = [const { IoVecMut::EMPTY }; IOV_LIMIT + 1];
        let got = match get.place {
            GetPlace::Memory(iov, at) => {
                for (to, piece) in into.iter_mut().zip(pieces(iov.segments(), at, get.len)) {
                    *to = IoVecMut::from_user(piece);
                }
                DirectOf::<T>::get(link, get.address, get.len, into)
            }
            GetPlace::Slot(slot) => match slots.make(slot, get.len) {
                Ok(memory) => {
                    into[0] = IoVecMut::from_slice(memory);
                    DirectOf::<T>::get(link, get.address, get.len, into)
                }
                Err(_) => Got::UseStream,
            },
        };
        match got {
            Got::Done => self.engine.got(id, index),
            Got::UseStream => self.engine.not_got(id, index),
            Got::Ended => return,
        }
        self.tell_get_limit(id);
        // The peer need not wait until all that is to be got has come.
        self.flush(id);
    }

    /// Tells the peer from which length on this side gets messages, unless it knows.
    pub(crate) fn tell_get_limit(&mut self, id: ConnId) {
        let link = self.connections.get(id).and_then(|c| c.link.as_ref());
        if let Some(exponent) = link.and_then(|link| DirectOf::<T>::take_get_limit(link)) {
            self.engine.tell_get_limit(id, exponent);
        }
    }
}
