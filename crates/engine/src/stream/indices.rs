//! Messages whose payload is still at their sender, under the indices that a connection gives them.

use alloc::vec::Vec;

use ripstop_types::{AtomicKind, Errno, Result};
use ripstop_wire::xnet::base::RmaIovs;

use crate::ring::try_push;

/// How the peers of a connection for packets read messages that are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBy {
    /// By the stream, which acknowledges what is delivered.
    Stream,
    /// By a device, for which memory is registered. That what was sent has come to the peer's device does not
    /// say that it is delivered; that it was read does.
    Device,
}

/// What a connection for packets has beside any other.
#[derive(Debug)]
pub(super) struct Packets {
    /// The number that packets to the peer say.
    pub(super) to: u64,
    /// How the peer reads what is announced.
    pub(super) announced: ReadBy,
    /// The messages of which a packet has come and payload is still to come, under indices of this side.
    pub(super) expected: IndexTable<Expected>,
    /// Those of them that come in segments.
    pub(super) segmented: Vec<u16>,
    /// The segment that is arriving.
    pub(super) segment: Option<ArrivingSegment>,
    /// The atomic of the peer that is arriving or carried out.
    pub(super) served: Option<Served>,
    /// Whether the peer agrees on ends of connections.
    pub(super) parts: bool,
    /// Whether this one is to end.
    pub(super) parting: PartState,
    /// Where the last answer to a question about that ends in what was queued: a peer asks again after it has read that.
    pub(super) answered: u64,
}

/// How far the end of a connection is agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PartState {
    /// It is not to end.
    #[default]
    Staying,
    /// This side has asked.
    Asked,
    /// Both sides have asked, and this one has agreed as well.
    Crossed,
    /// Both sides are to end it.
    Agreed,
}

/// An atomic of the peer, as its result names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// What the peer calls it.
    pub(super) id: u64,
    pub(super) kind: AtomicKind,
    /// The numbers of datatype and operation, known ones or not.
    pub(super) datatype: u8,
    pub(super) op: u8,
}

/// A message whose payload has not come whole.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// It was announced, and is to be read.
    Announced {
        /// What the sender calls it.
        id: u64,
        /// Where its payload is.
        memory: RmaIovs,
    },
    /// It comes in segments.
    Segments(Received),
}

/// What has been received of a message in segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// What the sender calls it.
    pub(super) id: u64,
    /// The number of its next segment.
    pub(super) next: u32,
    /// Bytes of its payload that have come.
    pub(super) have: u64,
}

/// A segment that is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivingSegment {
    /// The index of its message.
    pub(super) index: u16,
    /// Its length in bytes.
    pub(super) len: u64,
}

impl Packets {
    pub(super) const fn new(to: u64, announced: ReadBy, parts: bool) -> Self {
        Self {
            to,
            announced,
            parts,
            parting: PartState::Staying,
            answered: 0,
            expected: IndexTable::new(),
            segmented: Vec::new(),
            segment: None,
            served: None,
        }
    }
}

/// Entries under the indices of a rendezvous: numbers of two bytes, the low one of which is not 0.
/// Those without the high one come first. Takes memory up to the highest that was ever used.
#[derive(Debug)]
pub(super) struct IndexTable<T> {
    entries: Vec<Option<T>>,
    /// Places that may be free, among others that are not any more.
    free: Vec<u16>,
    used: u32,
}

impl<T> IndexTable<T> {
    /// How many indices of one byte there are.
    const ONE_BYTE_INDICES: u32 = 255;

    /// How many there are in all.
    const INDICES: u32 = 255 * 256;

    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            used: 0,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many entries there may be at once.
    const fn limit(wide: bool) -> u32 {
        if wide {
            Self::INDICES
        } else {
            Self::ONE_BYTE_INDICES
        }
    }

    /// Whether another entry finds an index, of two bytes if they are `wide`.
    pub(super) const fn has_room(&self, wide: bool) -> bool {
        self.used < Self::limit(wide)
    }

    const fn index(place: u16) -> u16 {
        // Neither divides by 0, and both are below 256.
        let [high, low] = [place / 255, place % 255];
        (high << 8) | low.wrapping_add(1)
    }

    fn place(index: u16) -> Option<u16> {
        let [high, low] = index.to_be_bytes();
        let low = u16::from(low).checked_sub(1)?;
        u16::from(high).checked_mul(255)?.checked_add(low)
    }

    /// Puts an entry under an index that is free again, or the least that was never used;
    /// [`Errno::EAGAIN`] where [`IndexTable::has_room`] says no.
    pub(super) fn insert(&mut self, entry: T, wide: bool) -> Result<u16> {
        let Self { entries, free, .. } = self;
        let is_free = |place: &u16| matches!(entries.get(usize::from(*place)), Some(None));
        let again = core::iter::from_fn(|| free.pop()).find(is_free);
        let place = match again {
            Some(place) => place,
            None => u16::try_from(entries.len()).map_err(|_| Errno::EAGAIN)?,
        };
        if u32::from(place) >= Self::limit(wide) {
            return Err(Errno::EAGAIN);
        }
        let index = Self::index(place);
        self.set(index, entry)?;
        Ok(index)
    }

    /// Puts an entry under an index the peer chose; [`Errno::EPROTO`] if it is used or zero.
    pub(super) fn set(&mut self, index: u16, entry: T) -> Result<()> {
        let place = Self::place(index).map(usize::from).ok_or(Errno::EPROTO)?;
        while self.entries.len() <= place {
            try_push(&mut self.entries, None)?;
        }
        match self.entries.get_mut(place) {
            Some(slot @ None) => {
                *slot = Some(entry);
                self.used = self.used.saturating_add(1);
                Ok(())
            }
            _ => Err(Errno::EPROTO),
        }
    }

    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut T> {
        let place = Self::place(index)?;
        self.entries.get_mut(usize::from(place))?.as_mut()
    }

    pub(super) fn get(&self, index: u16) -> Option<&T> {
        let place = Self::place(index)?;
        self.entries.get(usize::from(place))?.as_ref()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten()
    }

    /// The entries with their indices.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u16, &T)> {
        let entries = (0..=u16::MAX).zip(&self.entries);
        entries.filter_map(|(place, entry)| Some((Self::index(place), entry.as_ref()?)))
    }

    /// The entries with their indices, to be changed.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        let entries = (0..=u16::MAX).zip(&mut self.entries);
        entries.filter_map(|(place, entry)| Some((Self::index(place), entry.as_mut()?)))
    }

    pub(super) fn take(&mut self, index: u16) -> Option<T> {
        let place = Self::place(index)?;
        let entry = self.entries.get_mut(usize::from(place))?.take()?;
        self.used = self.used.saturating_sub(1);
        // The indices of entries that the peer numbers are of no use here, so there are at most as
        // many. Without memory this one is not used again.
        if self.free.len() < self.entries.len() {
            _ = try_push(&mut self.free, place);
        }
        Some(entry)
    }

    /// Takes the entry under the highest index.
    pub(super) fn take_any(&mut self) -> Option<T> {
        let entry = core::iter::from_fn(|| self.entries.pop())
            .flatten()
            .next()?;
        self.used = self.used.saturating_sub(1);
        Some(entry)
    }
}
