//! Who sent the messages that are kept when their connection is gone.
//!
//! A process may send, end, and be gone before anybody looks. Its messages are received all the
//! same, so what is known of their sender outlives the connection: error entries name it
//! (`FI_SOURCE_ERR`, `fi_cq(3)`), and an address vector may still give it a place, or take that
//! away.

use ripstop_types::{Errno, FiAddr};

use crate::Buffer;
use crate::id::{ConnId, DepartedId, EpId, SrxId};
use crate::stream::engine::Engine;
use crate::stream::records::{Departed, Origin};

impl<B: Buffer> Engine<B> {
    /// The connection of some messages closes; those that are whole stay, and count. Who sent
    /// them stays known as long as any of them waits. Without memory for that they are of an
    /// unknown sender.
    pub(super) fn orphan(&mut self, conn_id: ConnId, srx: Option<SrxId>, error: Errno) {
        let Some(srx) = srx else { return };
        let (Some(matcher), Some(conn)) = (self.srxs.get_mut(srx), self.conns.get(conn_id)) else {
            return;
        };
        let mut record = None;
        let mut messages = 0_usize;
        matcher.each_unexpected(&mut self.unexpected, |_, message| {
            let whole = message.rts.is_none() && message.kept == message.envelope.len;
            if message.conn != Some(conn_id) || !whole {
                return;
            }
            if messages == 0 {
                let sender = Departed {
                    config: conn.config,
                    srx,
                    messages: 0,
                };
                record = self.departed.insert(sender).ok();
            }
            messages = messages.saturating_add(1);
            message.conn = None;
            message.departed = record;
            if core::mem::take(&mut message.parked) {
                self.kept = self.kept.saturating_add(message.weight());
            }
        });
        if let Some(record) = self.departed.find_mut(record) {
            record.messages = messages;
        }
        self.lose(srx, error, |lost| lost.conn == Some(conn_id));
    }

    /// One message less of a sender that has left.
    #[cold]
    pub(super) fn leave_departed(&mut self, id: DepartedId) {
        let Some(record) = self.departed.get_mut(id) else {
            return;
        };
        record.messages = record.messages.saturating_sub(1);
        if record.messages == 0 {
            self.departed.remove(id);
        }
    }

    /// The address, as bytes, of who sent a message; nothing where that is not known.
    pub(super) fn name_of(&self, origin: Origin) -> &[u8] {
        if let Some(conn) = self.conns.find(origin.conn) {
            return conn.name();
        }
        let record = self.departed.find(origin.departed);
        record.map_or(&[], |record| record.config.name())
    }

    /// As [`Engine::set_source`], for messages to endpoint `ep` whose sender had this address
    /// and has left.
    pub fn set_departed_source(&mut self, ep: EpId, name: &[u8], src: FiAddr) {
        for id in self.departed.every_id() {
            let Some(record) = self.departed.get_mut(id) else {
                continue;
            };
            if record.config.ep != ep || record.config.name() != name {
                continue;
            }
            record.config.src = src;
            if let Some(matcher) = self.srxs.get_mut(record.srx) {
                matcher.rename_unexpected(&mut self.unexpected, |message| {
                    (message.departed == Some(id)).then_some(src)
                });
            }
        }
    }
}
