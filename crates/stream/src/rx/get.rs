//! Payloads that this side gets from the memory of their sender, in one copy.

use arrayvec::ArrayVec;
use ripstop_engine::IOV_LIMIT;
use ripstop_engine::id::ConnId;
use ripstop_engine::stream::{CONTROLS_AT_ONCE, GetPlace};
use ripstop_os::IoVecMut;

use crate::state::State;
use crate::state::place::pieces;
use crate::transport::direct_access::{DirectAccess as _, GetPieces, Got, MAX_GETS, Payload};
use crate::transport::{DirectOf, Transport};

/// Payloads are got by one call up to this many bytes: the first of them is not held up for long, and
/// its sender may go on meanwhile.
const MAX_BYTES_AT_ONCE: u64 = 512 << 10;

const _: () = assert!(
    MAX_GETS <= CONTROLS_AT_ONCE,
    "one write acknowledges all of them"
);

/// The indices of payloads that are got by one call.
type Indices = ArrayVec<u16, MAX_GETS>;

impl<T: Transport> State<T> {
    /// Gets the payload of a message that has its receive, or is to be kept, and those that follow it,
    /// as far as they are at hand.
    pub(crate) fn get_payloads(&mut self, id: ConnId, index: u16) {
        let mut next = Some(index);
        while let Some(index) = next {
            let mut indices = Indices::new();
            let (got, behind) = self.get_some(id, index, &mut indices);
            next = behind;
            match (got, indices.as_slice()) {
                (Got::Done, indices) => {
                    for index in indices {
                        self.engine.got(id, *index);
                    }
                }
                (Got::UseStream, [index]) => self.engine.not_got(id, *index),
                // One of them cannot be got: each by itself.
                (Got::UseStream, indices) => {
                    for index in indices {
                        if !self.get_one(id, *index) {
                            return;
                        }
                    }
                }
                // Later, see `copy_jointly`.
                (Got::Pending { .. }, _) => {}
                (Got::Ended, _) => return,
            }
            self.update_get_limit(id);
            // The peer need not wait until all that is to be got has come.
            self.flush(id);
        }
    }

    /// Gets one payload. Returns whether the connection goes on.
    #[cold]
    fn get_one(&mut self, id: ConnId, index: u16) -> bool {
        match self.get_into(id, index) {
            Got::Done => self.engine.got(id, index),
            Got::UseStream | Got::Pending { .. } => self.engine.not_got(id, index),
            Got::Ended => return false,
        }
        true
    }

    /// Gets a payload that is in memory of the program, and others that follow it, by one call; or one
    /// that goes to a slot. Puts their indices into `indices`, and returns the one that is to be got next.
    fn get_some(&mut self, id: ConnId, first: u16, indices: &mut Indices) -> (Got, Option<u16>) {
        let mut into = GetPieces::new();
        let mut from = ArrayVec::<Payload, MAX_GETS>::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(index) = next {
            let Some(get) = self.engine.get(id, index) else {
                // It is no more.
                next = self.engine.pop_get(id);
                continue;
            };
            if from.is_empty()
                && let Some(got) = self.get_jointly(id, index, &get)
            {
                indices.push(index);
                return (got, self.engine.pop_get(id));
            }
            let GetPlace::Memory(iov, at) = get.place else {
                if !from.is_empty() {
                    break;
                }
                indices.push(index);
                return (self.get_into(id, index), self.engine.pop_get(id));
            };
            let fits = into.remaining_capacity() >= IOV_LIMIT
                && !from.is_full()
                && bytes + get.len <= MAX_BYTES_AT_ONCE;
            if !fits && !from.is_empty() {
                break;
            }
            into.extend(pieces(iov.segments(), at, get.len).map(IoVecMut::from_user));
            from.push(Payload {
                address: get.address,
                len: get.len,
            });
            indices.push(index);
            bytes += get.len;
            next = self.engine.pop_get(id);
        }
        if from.is_empty() {
            return (Got::Done, next);
        }
        let link = self.connections.get(id).and_then(|c| c.link.as_ref());
        let got = link.map_or(Got::Ended, |link| DirectOf::<T>::get(link, &from, into));
        (got, next)
    }

    /// Gets one payload, wherever it goes.
    fn get_into(&mut self, id: ConnId, index: u16) -> Got {
        let Self {
            engine,
            connections,
            slots,
            ..
        } = self;
        let Some(get) = engine.get(id, index) else {
            return Got::Done;
        };
        let Some(link) = connections.get(id).and_then(|c| c.link.as_ref()) else {
            return Got::Ended;
        };
        let mut into = GetPieces::new();
        match get.place {
            GetPlace::Memory(iov, at) => {
                into.extend(pieces(iov.segments(), at, get.len).map(IoVecMut::from_user));
            }
            GetPlace::Slot(slot) => match slots.make(slot, get.len) {
                Ok(memory) => into.push(IoVecMut::from_slice(memory)),
                Err(_) => return Got::UseStream,
            },
        }
        let from = [Payload {
            address: get.address,
            len: get.len,
        }];
        DirectOf::<T>::get(link, &from, into)
    }

    /// As [`State::update_get_limit`], where what came by the stream has changed the limit.
    #[inline]
    pub(crate) fn tell_new_get_limit(&mut self, id: ConnId) {
        let link = self.connections.get(id).and_then(|c| c.link.as_ref());
        if link.is_some_and(|link| DirectOf::<T>::has_new_get_limit(link)) {
            self.update_get_limit(id);
        }
    }

    /// Tells the link whether the peer has got payloads, which may change from which length on this side gets messages; and
    /// the peer of that length, unless it knows.
    pub(crate) fn update_get_limit(&mut self, id: ConnId) {
        let Some(link) = self.connections.get(id).and_then(|c| c.link.as_ref()) else {
            return;
        };
        if self.engine.take_has_peer_got(id) {
            DirectOf::<T>::note_peer_got(link);
        }
        if let Some(exponent) = DirectOf::<T>::take_get_limit(link) {
            self.engine.tell_get_limit(id, exponent);
        }
    }
}
