//! Moving bytes between sockets, user memory and slots.

use ripstop_engine::id::ConnId;
use ripstop_engine::stream::{Chunk, Engine};
use ripstop_engine::{Iov, Reached};
use ripstop_mem::{UserBuf, copy_out};
use ripstop_os::{IoVec, IoVecMut};
use ripstop_types::{Errno, Result};

use crate::state::slots::Slots;
use crate::transport::link::Link;

/// Most pieces of one gather write.
const MAX_WRITE_PIECES: usize = 32;

/// Most bytes of one write, when there is more than [`MAX_WHOLE_WRITE`] to write. The reader then takes
/// bytes out while they are in the cache of the processor; megabytes in one call leave it first.
const MAX_PARTIAL_WRITE: usize = 320 * 1024;

/// What is written in one call: up to a message of 512 KiB with its header. In two calls its
/// last bytes would arrive later.
const MAX_WHOLE_WRITE: usize = 576 * 1024;

/// The pieces of user memory from offset `at`, at most `len` bytes.
pub(crate) fn pieces(
    segments: &[UserBuf],
    at: u64,
    len: u64,
) -> impl Iterator<Item = UserBuf> + '_ {
    let (mut skip, mut left) = (at, len);
    segments.iter().filter_map(move |segment| {
        let whole = segment.len() as u64;
        let from = skip.min(whole);
        skip -= from;
        let take = (whole - from).min(left);
        left -= take;
        if take == 0 {
            return None;
        }
        segment.slice(from as usize, take as usize)
    })
}

/// How many bytes a read has brought of which the first belong to a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadRead {
    /// Those of the payload, which are at their place.
    pub(crate) placed: usize,
    /// Those behind it, in the receive buffer.
    pub(crate) behind: usize,
}

/// Reads a payload into segments of memory, fewer than `VECS`, and what follows into `rx_buffer`.
pub(crate) fn read_memory<const VECS: usize>(
    link: &impl Link,
    segments: &[UserBuf],
    at: u64,
    len: u64,
    rx_buffer: &mut [u8],
) -> Result<PayloadRead> {
    let mut vecs = [const { IoVecMut::EMPTY }; VECS];
    let mut count = 0;
    for (vec, piece) in vecs.iter_mut().zip(pieces(segments, at, len)) {
        *vec = IoVecMut::from_user(piece);
        count += 1;
    }
    vecs[count] = IoVecMut::from_slice(rx_buffer);
    split(link.recvv(&mut vecs[..=count])?, len)
}

/// As [`read_memory`], for a slot.
pub(crate) fn read_slot(
    link: &impl Link,
    memory: &mut [u8],
    at: u64,
    len: u64,
    rx_buffer: &mut [u8],
) -> Result<PayloadRead> {
    let room = slot_range(memory, at, len);
    let mut vecs = [IoVecMut::from_slice(room), IoVecMut::from_slice(rx_buffer)];
    split(link.recvv(&mut vecs)?, len)
}

fn split(read: usize, len: u64) -> Result<PayloadRead> {
    if read == 0 {
        return Err(Errno::ECONNRESET);
    }
    let placed = usize::try_from(len).unwrap_or(usize::MAX).min(read);
    Ok(PayloadRead {
        placed,
        behind: read - placed,
    })
}

fn slot_range(memory: &mut [u8], at: u64, len: u64) -> &mut [u8] {
    let from = usize::try_from(at).unwrap_or(usize::MAX).min(memory.len());
    let rest = &mut memory[from..];
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
    &mut rest[..len]
}

/// Copies the front of `bytes` to user memory; returns how many.
#[inline]
pub(crate) fn copy_user(iov: &Iov<UserBuf>, at: u64, len: u64, bytes: &[u8]) -> usize {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
    if let [only] = iov.segments()
        && at == 0
    {
        return copy_out(*only, &bytes[..len]);
    }
    let mut done = 0;
    for piece in pieces(iov.segments(), at, len as u64) {
        done += copy_out(piece, &bytes[done..]);
    }
    done
}

/// As [`copy_user`], for registered memory, which its owner may look at meanwhile.
pub(crate) fn store(iov: &Reached<UserBuf>, at: u64, len: u64, bytes: &[u8]) -> usize {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
    let mut done = 0;
    for piece in pieces(iov.segments(), at, len as u64) {
        done += ripstop_mem::store(piece, &bytes[done..]);
    }
    done
}

/// Copies the front of `bytes` to a slot; returns how many.
pub(crate) fn copy_slot(memory: &mut [u8], at: u64, len: u64, bytes: &[u8]) -> usize {
    let room = slot_range(memory, at, len);
    let count = room.len().min(bytes.len());
    room[..count].copy_from_slice(&bytes[..count]);
    count
}

/// Shortens what is to be written in one call to what goes well at once; returns how many pieces.
fn bound(vecs: &mut [IoVec<'_>]) -> usize {
    let total = vecs.iter().map(IoVec::len).fold(0, usize::saturating_add);
    if total <= MAX_WHOLE_WRITE {
        return vecs.len();
    }
    let mut left = MAX_PARTIAL_WRITE;
    for (index, vec) in vecs.iter_mut().enumerate() {
        if vec.len() >= left {
            vec.truncate(left);
            return index + 1;
        }
        left -= vec.len();
    }
    vecs.len()
}

/// Writes the front of what the engine has for a connection, in one call.
pub(crate) fn write(
    link: &impl Link,
    engine: &Engine<UserBuf>,
    id: ConnId,
    buffered: &[u8],
    slots: &Slots,
) -> Result<usize> {
    let mut chunks = [Chunk::TxBuffer(0); MAX_WRITE_PIECES];
    let count = engine.transmit(id, &mut chunks);
    let chunks = &chunks[..count];
    let mut vecs = [IoVec::EMPTY; MAX_WRITE_PIECES];
    let mut buffered = buffered;
    for (vec, chunk) in vecs.iter_mut().zip(chunks) {
        *vec = match chunk {
            Chunk::Control { header, skip } => IoVec::from_slice(&header[usize::from(*skip)..]),
            Chunk::TxBuffer(len) => {
                let (now, later) = buffered.split_at((*len).min(buffered.len()));
                buffered = later;
                IoVec::from_slice(now)
            }
            Chunk::Slot { slot, at, len } => {
                IoVec::from_slice(slots.get(*slot).get(*at..*at + *len).unwrap_or_default())
            }
            Chunk::User { buffer, at, len } => {
                IoVec::from_user(buffer.slice(*at, *len).unwrap_or(UserBuf::EMPTY))
            }
        };
    }
    let count = bound(&mut vecs[..count]);
    link.sendv(&vecs[..count])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(sizes: &[usize]) -> Vec<usize> {
        let memory = vec![0; sizes.iter().copied().max().unwrap_or(0)];
        let mut vecs: Vec<_> = sizes
            .iter()
            .map(|size| IoVec::from_slice(&memory[..*size]))
            .collect();
        let count = bound(&mut vecs);
        vecs[..count].iter().map(IoVec::len).collect()
    }

    #[test]
    fn a_write_takes_one_message_of_medium_size_or_a_part_of_more() {
        assert_eq!(lens(&[]), []);
        assert_eq!(lens(&[24, 512 * 1024]), [24, 512 * 1024]);
        assert_eq!(lens(&[16, 1 << 20]), [16, MAX_PARTIAL_WRITE - 16]);
        assert_eq!(lens(&[MAX_PARTIAL_WRITE, 1 << 20]), [MAX_PARTIAL_WRITE]);
        assert_eq!(
            lens(&[100_000, 200_000, 300_000]),
            [100_000, 200_000, MAX_PARTIAL_WRITE - 300_000]
        );
    }
}
