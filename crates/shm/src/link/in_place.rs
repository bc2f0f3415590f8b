//! In-place I/O: payloads between the rings and the buffers of the caller.

use ripstop_core::provider::{Copied, Copies};
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{MAX_HEADER_BYTES, ShortEntry, SoleEntry};
use ripstop_stream::InPlace;
use ripstop_types::{Errno, Result};

use super::{Connection, ShmLink};
use crate::copy_cost::RingCopy;

/// The shortest payload that is counted.
const MIN_LONG_BYTES: usize = Copies::MIN_BYTES as usize;

/// See the [module](self).
#[derive(Debug)]
pub struct RingInPlace;

impl InPlace<ShmLink> for RingInPlace {
    const SUPPORTED: bool = true;

    #[inline(always)]
    fn send_message(
        link: &ShmLink,
        header: &[u8; MAX_HEADER_BYTES],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize> {
        match link.conn.get() {
            Some(conn) if payload.len() >= MIN_LONG_BYTES => {
                // A copy, so that the header need not be in memory where the payload is short.
                let header = *header;
                link.send_long(conn, &header, header_len, payload)
            }
            Some(conn) => {
                let count = conn.rings.writer.write_message(header, header_len, payload);
                link.after_write(conn, count)
            }
            None => Err(Errno::EAGAIN),
        }
    }

    #[inline(always)]
    fn is_ready(link: &ShmLink) -> bool {
        let conn = link.conn.get();
        conn.is_some_and(|conn| conn.rings.reader.is_ready())
    }

    #[inline(always)]
    fn sole_entry(link: &ShmLink) -> Option<SoleEntry<'_>> {
        link.conn.get()?.rings.reader.sole_entry()
    }

    #[inline(always)]
    fn short_entry(link: &ShmLink) -> Option<ShortEntry<'_>> {
        link.conn.get()?.rings.reader.short_entry()
    }

    #[inline]
    fn return_credits(link: &ShmLink) {
        if let Some(conn) = link.conn.get() {
            link.wake_for_credit(conn);
        }
    }

    #[inline(always)]
    fn send_short(link: &ShmLink, header: &[u8; MAX_HEADER_BYTES], payload: UserBuf) -> bool {
        let Some(conn) = link.conn.get() else {
            return false;
        };
        let sent = conn.rings.writer.write_short(header, payload);
        if sent && conn.peer.status.must_wake() {
            link.ring_doorbell();
        }
        sent
    }

    #[inline]
    fn sends_whole(link: &ShmLink, payload: usize) -> bool {
        let conn = link.conn.get();
        conn.is_some_and(|conn| conn.rings.writer.fits_one_entry(payload))
    }

    #[inline]
    fn payload_ready(link: &ShmLink) -> usize {
        link.conn
            .get()
            .map_or(0, |conn| conn.rings.reader.chunk_remaining())
    }

    #[inline]
    fn recv_payload(link: &ShmLink, room: UserBuf) -> usize {
        let Some(conn) = link.conn.get() else {
            return 0;
        };
        // It cannot fail: the entry was checked when its header was read.
        let read = || Ok(conn.rings.reader.read_chunk(room));
        let count = conn.timed(RingCopy::Read, room.len(), read);
        link.after_read(conn, count).unwrap_or(0)
    }
}

impl ShmLink {
    /// A message that is counted, and timed now and then.
    #[inline(never)]
    fn send_long(
        &self,
        conn: &Connection,
        header: &[u8; MAX_HEADER_BYTES],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize> {
        let len = payload.len();
        let write = || conn.rings.writer.write_long(header, header_len, payload);
        let count = conn.timed(RingCopy::Write, len, write);
        // What is written in part is queued, and counted there.
        if count == Ok(header_len + len) {
            conn.counts.sent_in_place.add(Copied::one(len as u64));
        }
        self.after_write(conn, count)
    }
}
