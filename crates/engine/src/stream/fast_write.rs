//! The fast path of plain writes, on both sides: one segment, no completion data, complete once it
//! is written. The driver moves the payload at once.

use ripstop_types::{Completion, Context, Flags, RmaIov};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::base::{WRITE_LEN, emit_write, parse_write};

use crate::Buffer;
use crate::id::{ConnId, CqId};
use crate::mr::MrTable;
use crate::pool::Place;
use crate::stream::conn::Conn;
use crate::stream::engine::Engine;
use crate::stream::request::TxInfo;
use crate::stream::rma::WRITTEN;
use crate::stream::rx::Whole;

/// See [`Engine::rx_short_writes`].
#[derive(Debug)]
pub struct ShortWrites<'a, B> {
    order: ByteOrder,
    regions: &'a MrTable<B>,
}

impl<B: Buffer> ShortWrites<'_, B> {
    /// Where the payload of a write with this header goes, and all of its length, if it is a plain one to one piece
    /// of memory that nobody counts. `None` says that [`Engine::rx_header`] is the way.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, header: &[u8; WRITE_LEN]) -> Option<B> {
        self.regions.plain(&parse_write(self.order, header)?)
    }
}

impl<B: Buffer> Engine<B> {
    /// The header of a write that may be written to the stream before the engine notes anything
    /// of it: the connection is up, and nothing else waits to be written. `None` says that
    /// [`Engine::rma`] is the way, which it is as well where the endpoint has a counter of writes.
    ///
    /// When all of header and payload was written, [`Engine::written_now`] reports it. If
    /// nothing was, it is as if this had not been called; it must not be written in part.
    #[inline(always)]
    #[must_use]
    pub fn try_write_now(&self, conn_id: Option<ConnId>, to: RmaIov) -> Option<[u8; WRITE_LEN]> {
        let conn = self.conns.find(conn_id)?;
        if !conn.ready_to_send || conn.has_output() {
            return None;
        }
        Some(emit_write(conn.order, to))
    }

    /// Reports a write of [`Engine::try_write_now`] that was written whole in `cq`, that of what
    /// the endpoint sends, if that is asked for: its context is that of the completion then.
    #[inline(always)]
    pub fn written_now(&mut self, cq: Place<CqId>, completion: Option<Context>) {
        if let Some(context) = completion
            && let Some(cq) = self.cqs.at_mut(cq)
        {
            cq.push(Completion {
                context,
                flags: WRITTEN,
                ..Completion::BLANK
            });
        }
    }

    /// Whether a connection is up and nothing that was posted on it is under way, so that what the
    /// driver does in the peer's memory itself keeps its place in the order. It has to know as
    /// well that the peer has applied all that was written to the stream.
    #[inline]
    #[must_use]
    pub fn is_settled(&self, conn_id: Option<ConnId>) -> bool {
        let conn = self.conns.find(conn_id);
        conn.is_some_and(|conn| conn.ready_to_send && !conn.is_awaited())
    }

    /// Whether all bytes of the stream that were handed over are applied.
    #[must_use]
    pub fn rx_is_settled(&self, conn_id: Option<ConnId>) -> bool {
        let conn = self.conns.find(conn_id);
        conn.is_some_and(Conn::at_header)
    }

    /// Counts and reports an operation that the driver has carried out in the peer's memory
    /// itself, of `len` bytes; `flags` are those of its completion.
    #[inline]
    pub fn done_directly(
        &mut self,
        conn_id: ConnId,
        flags: Flags,
        completion: Option<Context>,
        len: u64,
    ) {
        let Some(ep) = self
            .conns
            .get(conn_id)
            .and_then(|c| self.eps.get(c.config.ep))
        else {
            return;
        };
        let info = TxInfo {
            context: completion.unwrap_or_default(),
            flags,
            completion: completion.is_some(),
            ack: false,
            len,
        };
        ep.succeed(&mut self.cqs, &mut self.counters, &info);
    }

    /// What tells where short plain writes go that nobody counts, while the driver takes some one
    /// behind the other. `None` where a header is not what comes next, or somebody counts.
    #[inline]
    #[must_use]
    pub fn rx_short_writes(&self, conn_id: ConnId) -> Option<ShortWrites<'_, B>> {
        let conn = self.conns.get(conn_id)?;
        let ep = self.eps.get(conn.config.ep)?;
        let header = conn.at_header();
        let counted = ep.config.remote_write_counter.is_some();
        (header && !counted).then_some(ShortWrites {
            order: conn.order,
            regions: &self.regions,
        })
    }

    /// As [`Engine::rx_whole_with`], for a plain write to one piece of memory that nobody counts.
    #[inline]
    pub fn rx_write(&mut self, conn_id: ConnId, bytes: &[u8], more: usize) -> Option<Whole<B>> {
        let conn = self.conns.get(conn_id)?;
        if !conn.at_header() {
            return None;
        }
        let to = parse_write(conn.order, bytes)?;
        let there = bytes.len().saturating_sub(WRITE_LEN).saturating_add(more);
        let ep = self.eps.get(conn.config.ep)?;
        if to.len > there as u64 || ep.config.remote_write_counter.is_some() {
            return None;
        }
        let memory = self.regions.plain(&to)?;
        Some(Whole {
            header_len: WRITE_LEN,
            len: memory.len(),
            memory,
        })
    }
}
