//! Which ways the long payloads of a domain have taken.

use ripstop_core::provider::{Copied, Copies};
use ripstop_engine::id::ConnId;
use ripstop_engine::stream::{LONG_PAYLOAD_BYTES, LongQueued};

use crate::state::State;
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::in_place::InPlace as _;
use crate::transport::readiness::Readiness as _;
use crate::transport::{DirectOf, InPlaceOf, Transport};

const _: () = assert!(
    LONG_PAYLOAD_BYTES == Copies::MIN_BYTES,
    "the engine counts the same payloads"
);

impl<T: Transport> State<T> {
    /// The long payloads that were queued to be written to a connection.
    pub(crate) fn long_queued(&self, id: ConnId) -> Copied {
        let conn = self.engine.conn(id);
        let LongQueued { payloads, bytes } =
            conn.map(|conn| conn.long_queued()).unwrap_or_default();
        Copied { payloads, bytes }
    }

    /// What [`Domain::copies`](ripstop_core::provider::Domain::copies) returns.
    pub(crate) fn copies(&self) -> Option<Copies> {
        let mut copies = self.readiness.copies()?;
        for id in self.connections.ids() {
            let link = self.connections.get(id).and_then(|c| c.link.as_ref());
            if let Some(link) = link.filter(|link| InPlaceOf::<T>::applies(link)) {
                let copied = DirectOf::<T>::copied(link);
                copies.ring = copies.ring + self.long_queued(id) + copied.in_place;
                copies.mapped = copies.mapped + copied.mapped;
            }
        }
        Some(copies)
    }
}
