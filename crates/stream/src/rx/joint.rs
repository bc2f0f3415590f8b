//! Long payloads that this side gets from the memory of their sender while the sender copies, too: joint
//! copies, see [`JointLeader`](ripstop_mem::ring::JointLeader).

use ripstop_engine::id::ConnId;
use ripstop_engine::stream::{Get, GetPlace};
use ripstop_mem::UserBuf;

use crate::state::State;
use crate::state::joint_get::JointGet;
use crate::state::place::pieces;
use crate::transport::direct_access::{Got, Payload};
use crate::transport::joint_copy::JointCopy as _;
use crate::transport::{JointOf, Transport};

/// The shortest payload in bytes that is copied jointly: the peer has to be told.
const MIN_JOINT_BYTES: u64 = 256 << 10;

impl<T: Transport> State<T> {
    /// Gets a long payload that goes to one piece of memory, together with its sender. `None` if it is to
    /// be got as others are.
    pub(crate) fn get_jointly(
        &mut self,
        id: ConnId,
        index: u16,
        get: &Get<UserBuf>,
    ) -> Option<Got> {
        let long = JointOf::<T>::SUPPORTED && get.len >= MIN_JOINT_BYTES;
        // Where threads share a processor, the sender has none.
        if !long || self.yield_policy.is_crowded() || !self.engine.wants_joint_copy(id) {
            return None;
        }
        let GetPlace::Memory(iov, at) = get.place else {
            return None;
        };
        let mut pieces = pieces(iov.segments(), at, get.len);
        let (into, None) = (pieces.next()?, pieces.next()) else {
            return None;
        };
        let payload = Payload {
            address: get.address,
            len: get.len,
        };
        // The words of the link tell of one copy.
        if self.joint_gets.iter().any(|joint| joint.id == id) {
            return None;
        }
        let link = self.connections.get(id)?.link.clone()?;
        if !JointOf::<T>::open(&link, &payload, index, into) {
            return None;
        }
        self.engine.tell_joint(id);
        self.flush(id);
        let got = JointOf::<T>::copy(&link, &payload, into);
        if let Got::Pending { done } = got {
            self.joint_gets.push(JointGet {
                id,
                index,
                payload,
                done,
            });
        }
        Some(got)
    }

    /// Does what is to be done after the peer has said something of a joint copy.
    #[cold]
    pub(crate) fn copy_jointly(&mut self, id: ConnId) {
        let Some(link) = self.connections.get(id).and_then(|c| c.link.clone()) else {
            return;
        };
        if let Some(place) = self.joint_gets.iter().position(|joint| joint.id == id)
            && let Some(joint) = self.joint_gets.get(place).copied()
            && let Some(whole) = JointOf::<T>::outcome(&link, &joint.payload, joint.done)
        {
            self.joint_gets.swap_remove(place);
            match whole {
                true => self.engine.got(id, joint.index),
                false => self.engine.not_got(id, joint.index),
            }
        }
        if let Some(payload) = JointOf::<T>::asked(&link)
            && let Some(from) = self.engine.announced(id, payload.index)
            && JointOf::<T>::help(&link, payload, from)
        {
            self.engine.tell_joint(id);
        }
        self.flush(id);
    }
}
