//! Which memory is registered in a domain.

use std::collections::HashMap;

use ripstop_abi as abi;

use super::objects::Name;
use crate::call::{Buffers, Registration};

/// A region that is open.
#[derive(Debug)]
struct Region {
    name: Name,
    /// Where its memory begins and ends, sorted, none beside another; `None` where that is not known.
    pieces: Option<Vec<(usize, usize)>>,
    /// Whether peers may write it.
    is_target: bool,
}

/// What a descriptor is good for.
#[derive(Debug)]
pub(super) enum Found {
    /// The memory, or nothing is known of it.
    Fits,
    /// Other memory than this.
    Elsewhere(Name),
    /// It was of this region, which is closed.
    Closed(Name),
    /// No region of this domain has it.
    Unknown,
}

/// The regions of one domain.
#[derive(Debug, Default)]
pub(super) struct Regions {
    by_desc: HashMap<usize, Vec<Region>>,
    closed: HashMap<usize, Name>,
}

impl Regions {
    pub(super) fn insert(&mut self, name: Name, memory: Registration, desc: usize) {
        let mut pieces = Vec::new();
        memory.buffers.each(core::ptr::null_mut(), |piece| {
            let start = piece.buf.addr();
            pieces.push((start, start.saturating_add(piece.buf.len())));
        });
        pieces.sort_unstable();
        let mut joined: Vec<(usize, usize)> = Vec::new();
        for (start, end) in pieces {
            match joined.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => joined.push((start, end)),
            }
        }
        // All of the memory, from null on, and what is named by a descriptor of a file.
        let is_known = !joined.is_empty() && !matches!(memory.buffers, Buffers::None);
        self.closed.remove(&desc);
        self.by_desc.entry(desc).or_default().push(Region {
            name,
            pieces: is_known.then_some(joined),
            is_target: memory.access & abi::FI_REMOTE_WRITE != 0,
        });
    }

    /// A region was closed; whether another one has its descriptor.
    pub(super) fn remove(&mut self, name: Name, desc: usize) -> bool {
        let Some(regions) = self.by_desc.get_mut(&desc) else {
            return false;
        };
        regions.retain(|region| region.name.id != name.id);
        if !regions.is_empty() {
            return true;
        }
        self.by_desc.remove(&desc);
        self.closed.insert(desc, name);
        false
    }

    /// What a descriptor is for memory.
    pub(super) fn find(&self, desc: usize, start: usize, len: usize) -> Found {
        let Some(regions) = self.by_desc.get(&desc) else {
            let closed = self.closed.get(&desc).copied();
            return closed.map_or(Found::Unknown, Found::Closed);
        };
        let end = start.saturating_add(len);
        let covers = |region: &Region| {
            region
                .pieces
                .as_ref()
                .is_none_or(|pieces| pieces.iter().any(|(from, to)| *from <= start && end <= *to))
        };
        match regions.first() {
            Some(first) if !regions.iter().any(covers) => Found::Elsewhere(first.name),
            _ => Found::Fits,
        }
    }

    pub(super) fn has(&self, desc: usize) -> bool {
        self.by_desc.contains_key(&desc)
    }

    /// Whether peers may write something of this memory.
    pub(super) fn is_target(&self, start: usize, len: usize) -> bool {
        let end = start.saturating_add(len);
        let touches = |region: &Region| {
            region.is_target
                && region
                    .pieces
                    .as_ref()
                    .is_none_or(|pieces| pieces.iter().any(|(from, to)| *from < end && start < *to))
        };
        self.by_desc.values().flatten().any(touches)
    }
}
