//! Which tagged messages go out before a receive matches them (eager), and which wait for that at
//! their sender (rendezvous).
//!
//! A receiver keeps eager messages that nobody waits for, up to a bound; at the bound it stops to
//! read the stream, and what comes behind them, among it what the program may wait for, is held up.
//! So both sides see to it that the bound is not reached. A receiver that keeps much tells its peer
//! to hold back all but short messages ([`Op::EagerLimit`]). A sender that has much to write does
//! so by itself, since what it has queued cannot be held back any more.
//!
//! [`Op::EagerLimit`]: ripstop_wire::xnet::base::Op::EagerLimit

use ripstop_types::{Errno, Result};
use ripstop_wire::xnet::base::Header;
use ripstop_wire::xnet::cm::Extensions;

use crate::Buffer;
use crate::id::ConnId;
use crate::stream::conn::Conn;
use crate::stream::engine::{Engine, Limits};

/// Messages of up to `1 << ALWAYS_EAGER_BITS` bytes are never held back: as long as the longest injected
/// messages of C libfabric's shm, which programs rely on being able to send without a receive.
const ALWAYS_EAGER_BITS: u8 = 12;

/// Sixty-fourths of what may be kept for a connection. Above 16/64, a quarter, its peer is told to hold
/// messages back; a sender holds them back while it has as much to write.
const HOLD_BACK_PARTS: u64 = 16;
/// The peer need not hold messages back any more.
const RESUME_PARTS: u64 = 4;

const fn sixty_fourths(bytes: u64, count: u64) -> u64 {
    (bytes / 64).saturating_mul(count)
}

/// Of what may be kept, the bytes above which peers hold messages back.
pub(super) const fn hold_back_bytes(may_be_kept: u64) -> u64 {
    sixty_fourths(may_be_kept, HOLD_BACK_PARTS)
}

impl<B: Buffer> Conn<B> {
    /// Whether a tagged message of `len` bytes waits for its receive at this side.
    #[inline]
    pub(super) fn is_held_back(&self, len: u64, limits: &Limits) -> bool {
        let long =
            len > self.eager_max || len > 1 << ALWAYS_EAGER_BITS && self.has_much_to_write(limits);
        long && self.has_index()
    }

    fn has_much_to_write(&self, limits: &Limits) -> bool {
        self.unsent() > hold_back_bytes(limits.kept_bytes)
            && self.extensions.contains(Extensions::EAGER_LIMIT)
    }
}

impl<B: Buffer> Engine<B> {
    /// After a connection has kept one more message: its peer holds back what follows, if that was much.
    #[inline]
    pub(super) fn lower_eager_limit(&mut self, conn_id: ConnId) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let much = conn.kept > hold_back_bytes(self.limits.kept_bytes)
            || self.kept > hold_back_bytes(self.limits.kept_total);
        if much && !conn.limits_peer && conn.extensions.contains(Extensions::EAGER_LIMIT) {
            conn.limits_peer = true;
            self.send_control(conn_id, &Header::with_eager_limit(ALWAYS_EAGER_BITS));
        }
    }

    /// After a connection keeps one message less: its peer need not hold back what follows, if little is left.
    #[inline]
    pub(super) fn lift_eager_limit(&mut self, conn_id: ConnId) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        if conn.limits_peer && conn.kept <= sixty_fourths(self.limits.kept_bytes, RESUME_PARTS) {
            conn.limits_peer = false;
            self.send_control(conn_id, &Header::with_eager_limit(0));
        }
    }

    /// The peer sets the length from which messages are held back.
    #[cold]
    pub(super) fn handle_eager_limit(&mut self, conn_id: ConnId, header: &Header) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        if !conn.extensions.contains(Extensions::EAGER_LIMIT) {
            return Err(Errno::EPROTO);
        }
        conn.set_eager_max(conn.own_eager_max.min(header.eager_limit()));
        Ok(())
    }
}
