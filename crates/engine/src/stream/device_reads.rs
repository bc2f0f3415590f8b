//! Reads that a device carries out, of connections for packets (`docs/design/rxm.md`).
//!
//! The driver tells its link where each read goes, in the order of their requests, and the link says when one is done by
//! the header of a response, behind which nothing comes: the payload is in its place. A plain read of one segment may be
//! given to the device before its request is written to the stream.

use ripstop_types::{Context, Errno, Flags, Result};
use ripstop_wire::xnet::base::{BASE_LEN, emit_response};

use crate::id::ConnId;
use crate::stream::awaited::ReadEntry;
use crate::stream::engine::Engine;
use crate::stream::request::{TxInfo, WORK};
use crate::{Buffer, Iov};

/// What a read is reported as.
const READ: Flags = Flags::RMA.union(Flags::READ);

impl<B: Buffer> Engine<B> {
    /// Where the next read goes that was posted, or is of an announced message, and that the driver has not told its link
    /// of; it does so now.
    pub fn tell_read(&mut self, conn_id: ConnId) -> Option<Iov<B>> {
        let conn = self.conns.get_mut(conn_id)?;
        let read = conn.reads.get(conn.told_reads)?;
        conn.told_reads = conn.told_reads.saturating_add(1);
        Some(read.iov)
    }

    /// Notes a read into one segment that the driver gives to the device at once: the connection is up, nothing waits to
    /// be written, and nothing that was posted before has to be done first. `false` says that [`Engine::rma`] is the way;
    /// if the device does not take it, [`Engine::unread_now`] follows.
    #[inline(always)]
    pub fn read_now(
        &mut self,
        conn_id: ConnId,
        segment: B,
        context: Context,
        completion: bool,
    ) -> bool {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return false;
        };
        let Some(ep) = self.eps.get_mut(conn.config.ep) else {
            return false;
        };
        let full = !ep.has_room();
        // Those that come before it are told of.
        let next = conn.told_reads == conn.reads.len();
        if full || !next || !conn.may_read() || conn.has_output() {
            return false;
        }
        let info = TxInfo {
            context,
            flags: READ,
            completion,
            ack: false,
            len: segment.len() as u64,
        };
        let read = ReadEntry {
            end: conn.queued,
            ..ReadEntry::posted(Iov::one(segment), info)
        };
        if conn.reads.push(read).is_err() {
            return false;
        }
        conn.told_reads = conn.reads.len();
        ep.outstanding = ep.outstanding.wrapping_add(1);
        if conn.after_reads {
            conn.settle_ready();
        }
        true
    }

    /// Takes back what [`Engine::read_now`] has just noted.
    pub fn unread_now(&mut self, conn_id: ConnId) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        conn.reads.pop_back();
        conn.told_reads = conn.reads.len();
        if conn.after_reads {
            conn.settle_ready();
        }
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.outstanding = ep.outstanding.wrapping_sub(1);
        }
    }

    /// The frequent case in one step: takes the headers of responses at the front of `bytes` that are of plain reads, which
    /// are done. Returns their length in bytes; 0 says no more than that it is another case.
    #[inline]
    pub fn rx_reads_done(&mut self, conn_id: ConnId, bytes: &[u8]) -> usize {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return 0;
        };
        if conn.reads.is_empty() || !conn.at_header() {
            return 0;
        }
        let Some(ep) = self.eps.get_mut(conn.config.ep) else {
            return 0;
        };
        if !conn.is_by_device() {
            return 0;
        }
        let done = emit_response(conn.order, 0);
        let (headers, _) = bytes.as_chunks::<BASE_LEN>();
        let mut taken = 0usize;
        for header in headers {
            let Some(read) = conn.reads.front().filter(|_| *header == done) else {
                break;
            };
            if read.message.is_some() || read.info.flags.contains(WORK) || !conn.has_sent(read.end)
            {
                break;
            }
            ep.outstanding = ep.outstanding.wrapping_sub(1);
            ep.succeed(&mut self.cqs, &mut self.counters, &read.info);
            conn.reads.skip();
            conn.told_reads = conn.told_reads.saturating_sub(1);
            taken = taken.wrapping_add(BASE_LEN);
        }
        if taken > 0 {
            if conn.after_reads {
                conn.settle_ready();
            }
            self.wake_postponed(conn_id);
        }
        taken
    }

    /// The oldest read is done.
    pub(super) fn note_read(&mut self, conn_id: ConnId) -> Result<()> {
        let conn = self.conns.get(conn_id).ok_or(Errno::ENOTCONN)?;
        let read = conn.reads.front().ok_or(Errno::EPROTO)?;
        if !conn.has_sent(read.end) {
            return Err(Errno::EPROTO);
        }
        self.finish_read(conn_id);
        Ok(())
    }
}
