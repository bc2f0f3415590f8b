//! What a connection has to write, and in which order.

use ripstop_types::{Errno, Result};
use ripstop_wire::xnet::base::{BASE_LEN, Header};

use crate::id::SlotId;
use crate::stream::conn::{Chunk, Conn, LONG_PAYLOAD_BYTES, LongQueued, Segment, Source};
use crate::stream::engine::Limits;
use crate::stream::request::{TxDone, TxInfo};
use crate::{Buffer, Iov};

impl<B: Buffer> Conn<B> {
    /// Queues one message that is wholly in the transmit buffer.
    #[inline(always)]
    pub(super) fn queue_buffered(&mut self, buffered: u64) -> Result<()> {
        match self.segments.back_mut() {
            Some(back) if matches!(back.source, Source::TxBuffer) => {
                back.len = back.len.wrapping_add(buffered);
            }
            _ => self.segments.push(Segment {
                source: Source::TxBuffer,
                len: buffered,
                start: true,
            })?,
        }
        self.buffered = self.buffered.wrapping_add(buffered as usize);
        self.queued = self.queued.wrapping_add(buffered);
        Ok(())
    }

    /// Queues one message: `buffered` bytes of the transmit buffer, then user memory.
    #[inline]
    pub(super) fn queue(&mut self, buffered: u64, user: Option<&Iov<B>>) -> Result<()> {
        self.reserve(user.map_or(0, |iov| iov.segments().len()))?;
        self.queue_buffered(buffered)?;
        if let Some(payload) = user {
            self.queue_user(payload)?;
        }
        Ok(())
    }

    /// Queues the payload of a rendezvous behind its header.
    pub(super) fn queue_data<const N: usize>(
        &mut self,
        header: [u8; BASE_LEN],
        payload: &Iov<B, N>,
    ) -> Result<()> {
        self.reserve(payload.segments().len())?;
        self.put(Source::Header(header), BASE_LEN as u64, true)?;
        self.queue_user(payload)
    }

    /// Queues a message whose payload is in two vectors of user memory.
    pub(super) fn queue_both(
        &mut self,
        buffered: u64,
        first: &Iov<B>,
        second: &Iov<B>,
    ) -> Result<()> {
        let segments = first.segments().len();
        self.reserve(segments.wrapping_add(second.segments().len()))?;
        self.queue(buffered, Some(first))?;
        self.queue_user(second)
    }

    /// Queues up to [`BASE_LEN`] bytes of a header, for which there is room.
    pub(super) fn queue_header(&mut self, bytes: &[u8], start: bool) -> Result<()> {
        let mut header = [0; BASE_LEN];
        // A shorter piece is at the end, see `transmit`.
        let places = header.iter_mut().rev();
        for (place, byte) in places.zip(bytes.iter().rev()) {
            *place = *byte;
        }
        let len = bytes.len().min(BASE_LEN) as u64;
        self.put(Source::Header(header), len, start)
    }

    /// Queues the contents of a slot behind their header.
    pub(super) fn queue_kept(
        &mut self,
        header: [u8; BASE_LEN],
        slot: SlotId,
        len: u64,
    ) -> Result<()> {
        self.reserve(1)?;
        self.note_queued(len);
        self.queue_data(header, &Iov::<B>::EMPTY)?;
        self.put(Source::Slot(slot, 0), len, false)
    }

    /// Queues the contents of a slot behind a header that was queued.
    pub(super) fn queue_slot(&mut self, slot: SlotId, len: u64) -> Result<()> {
        self.note_queued(len);
        self.put(Source::Slot(slot, 0), len, false)
    }

    /// Queues one message: `buffered` bytes of the transmit buffer, then bytes of a slot.
    pub(super) fn queue_part(
        &mut self,
        buffered: u64,
        slot: SlotId,
        at: u64,
        len: u64,
    ) -> Result<()> {
        self.reserve(2)?;
        self.note_queued(len);
        self.queue(buffered, None)?;
        self.put(Source::Slot(slot, at), len, false)
    }

    pub(super) fn queue_user<const N: usize>(&mut self, payload: &Iov<B, N>) -> Result<()> {
        self.note_queued(payload.len());
        for segment in payload.segments() {
            if !segment.is_empty() {
                self.put(Source::User(*segment), segment.len() as u64, false)?;
            }
        }
        Ok(())
    }

    /// A payload of `len` bytes that is not in the transmit buffer is queued.
    const fn note_queued(&mut self, len: u64) {
        if len >= LONG_PAYLOAD_BYTES {
            let LongQueued { payloads, bytes } = &mut self.long_queued;
            *payloads = payloads.wrapping_add(1);
            *bytes = bytes.wrapping_add(len);
        }
    }

    /// Queues a run of bytes that is not in the transmit buffer, for which there is room.
    fn put(&mut self, source: Source<B>, len: u64, start: bool) -> Result<()> {
        self.segments.push(Segment { source, len, start })?;
        self.queued = self.queued.wrapping_add(len);
        Ok(())
    }

    /// The bytes of a header that is no longer than the base.
    pub(super) fn base_header(&self, header: &Header) -> Result<[u8; BASE_LEN]> {
        let mut bytes = [0; BASE_LEN];
        header.emit(self.order, &mut bytes)?;
        Ok(bytes)
    }

    /// Whether a payload of `len` bytes is copied to the transmit buffer behind its header of up to
    /// `header` bytes, as it must be if it is injected; [`Errno::EAGAIN`] if there is no room for that.
    #[inline(always)]
    pub(super) fn copies_payload(
        &self,
        limits: &Limits,
        header: usize,
        len: u64,
        inject: bool,
    ) -> Result<bool> {
        let room = limits.tx_buffer.saturating_sub(self.buffered);
        let room = room.checked_sub(header).ok_or(Errno::EAGAIN)?;
        let fits = len <= room as u64;
        match inject && !fits {
            true => Err(Errno::EAGAIN),
            false => Ok((inject || len <= limits.inline as u64) && fits),
        }
    }

    /// Makes sure that queuing a message cannot fail half-way.
    #[inline]
    pub(super) fn reserve(&mut self, user: usize) -> Result<()> {
        let blank = Segment {
            source: Source::TxBuffer,
            len: 0,
            start: false,
        };
        let segments = self.segments.len().wrapping_add(user).wrapping_add(1);
        self.segments.reserve(segments, blank)?;
        let dones = self.dones.len().wrapping_add(1);
        self.dones.reserve(dones, TxDone::BLANK)
    }

    #[inline]
    pub(super) fn at_boundary(&self) -> bool {
        self.front_sent == 0 && self.segments.front().is_none_or(|front| front.start)
    }

    pub(super) fn transmit(&self, chunks: &mut [Chunk<B>]) -> usize {
        let mut count = 0usize;
        let mut put = |chunk| match chunks.get_mut(count) {
            Some(slot) => {
                *slot = chunk;
                count = count.wrapping_add(1);
                true
            }
            None => false,
        };
        let control_waits = !self.control.is_empty();
        if control_waits && self.at_boundary() {
            for index in 0..self.control.len() {
                let Some(header) = self.control.get(index) else {
                    break;
                };
                let skip = if index == 0 { self.control_sent } else { 0 };
                if !put(Chunk::Control { header, skip }) {
                    return count;
                }
            }
        }
        let stop_at_boundary = control_waits && !self.at_boundary();
        for index in 0..self.segments.len() {
            let Some(segment) = self.segments.get(index) else {
                break;
            };
            let skip = if index == 0 { self.front_sent } else { 0 };
            if stop_at_boundary && index > 0 && segment.start {
                break;
            }
            let left = segment.len.saturating_sub(skip) as usize;
            let chunk = match segment.source {
                Source::TxBuffer | Source::Sealed => Chunk::TxBuffer(left),
                Source::User(buffer) => Chunk::User {
                    buffer,
                    at: skip as usize,
                    len: left,
                },
                Source::Header(header) => Chunk::Control {
                    header,
                    skip: BASE_LEN.saturating_sub(left) as u8,
                },
                Source::Slot(slot, at) => Chunk::Slot {
                    slot,
                    at: at.saturating_add(skip) as usize,
                    len: left,
                },
            };
            if !put(chunk) {
                break;
            }
        }
        count
    }

    /// Drops `bytes` from the front of the output; returns how many of them were in the transmit buffer.
    #[inline]
    pub(super) fn consume(&mut self, bytes: u64) -> usize {
        let mut bytes = bytes;
        let mut buffered = 0u64;
        while bytes > 0 {
            if !self.control.is_empty() && self.at_boundary() {
                let left = 16u64.saturating_sub(u64::from(self.control_sent));
                let step = left.min(bytes);
                bytes = bytes.wrapping_sub(step);
                if step == left {
                    self.control.pop();
                    self.control_sent = 0;
                } else {
                    self.control_sent = self.control_sent.wrapping_add(step as u8);
                }
                continue;
            }
            let Some(front) = self.segments.front() else {
                break;
            };
            let left = front.len.saturating_sub(self.front_sent);
            let step = left.min(bytes);
            if matches!(front.source, Source::TxBuffer | Source::Sealed) {
                buffered = buffered.wrapping_add(step);
            }
            bytes = bytes.wrapping_sub(step);
            self.sent = self.sent.wrapping_add(step);
            if step == left {
                self.segments.pop();
                self.front_sent = 0;
            } else {
                self.front_sent = self.front_sent.wrapping_add(step);
            }
        }
        self.buffered = self.buffered.wrapping_sub(buffered as usize);
        buffered as usize
    }

    #[inline]
    pub(super) fn dones_due(&mut self) -> Option<TxDone> {
        let end = self.dones.front()?.end;
        if self.has_sent(end) {
            self.dones.pop()
        } else {
            None
        }
    }

    /// Whether everything before this position of the stream has left. Positions wrap.
    #[inline(always)]
    pub(super) const fn has_sent(&self, end: u64) -> bool {
        self.sent.wrapping_sub(end).cast_signed() >= 0
    }

    pub(super) fn pop_unfinished(&mut self) -> Option<TxInfo> {
        self.acks
            .pop()
            .or_else(|| self.dones.pop().map(|done| done.info))
            .or_else(|| self.indexed.take_any().map(|entry| entry.info()))
            .or_else(|| self.pop_posted_read())
    }

    /// The oldest read that was posted. Those of messages end with their receives.
    fn pop_posted_read(&mut self) -> Option<TxInfo> {
        core::iter::from_fn(|| self.reads.pop())
            .find(|entry| entry.message.is_none())
            .map(|entry| entry.info)
    }
}
