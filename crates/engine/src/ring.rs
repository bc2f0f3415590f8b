//! A first-in first-out queue over one allocation, grown fallibly.

use alloc::vec::Vec;

use ripstop_types::{Errno, Result};

/// Appends to a vector, reserving memory fallibly.
///
/// # Errors
/// [`Errno::ENOMEM`], with the vector unchanged.
#[inline]
pub fn try_push<T>(vec: &mut Vec<T>, value: T) -> Result<()> {
    if vec.len() == vec.capacity() {
        vec.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    }
    #[cfg(no_global_oom_handling)]
    let pushed = match vec.push_within_capacity(value) {
        Ok(_) => Ok(()),
        Err(_) => Err(Errno::ENOMEM),
    };
    #[cfg(not(no_global_oom_handling))]
    #[expect(clippy::disallowed_methods, reason = "there is room")]
    let pushed = {
        vec.push(value);
        Ok(())
    };
    pushed
}

/// A queue of small copyable values. Takes no memory until first used; doubles when full.
#[derive(Debug)]
pub struct Ring<T> {
    slots: Vec<T>,
    head: usize,
    len: usize,
}

impl<T: Copy> Default for Ring<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Ring<T> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            head: 0,
            len: 0,
        }
    }

    /// Number of values.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of the front: it changes whenever a value is taken, until all places were used.
    #[must_use]
    pub const fn head(&self) -> usize {
        self.head
    }

    /// Makes room for at least `count` values.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`], with the queue unchanged.
    pub fn reserve(&mut self, count: usize, fill: T) -> Result<()> {
        if self.slots.len() >= count {
            return Ok(());
        }
        let size = count.checked_next_power_of_two().ok_or(Errno::ENOMEM)?;
        let mut slots = Vec::new();
        slots.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
        for index in 0..size {
            try_push(&mut slots, self.get(index).unwrap_or(fill))?;
        }
        self.slots = slots;
        self.head = 0;
        Ok(())
    }

    #[inline]
    fn slot(&self, index: usize) -> usize {
        // The number of slots is zero or a power of two.
        self.head.wrapping_add(index) & self.slots.len().wrapping_sub(1)
    }

    /// Appends a value.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`], with the queue unchanged.
    #[inline(always)]
    pub fn push(&mut self, value: T) -> Result<()> {
        if self.len == self.slots.len() {
            self.grow(value)?;
        }
        let slot = self.slot(self.len);
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = value;
            self.len = self.len.wrapping_add(1);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, fill: T) -> Result<()> {
        self.reserve(self.len.saturating_add(1).max(8), fill)
    }

    /// The value `index` places from the front.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        if index >= self.len {
            return None;
        }
        self.slots.get(self.slot(index)).copied()
    }

    /// The oldest value.
    #[inline]
    #[must_use]
    pub fn front(&self) -> Option<&T> {
        if self.len == 0 {
            return None;
        }
        self.slots.get(self.head)
    }

    /// The newest value, to be changed in place.
    #[inline]
    #[must_use]
    pub fn back_mut(&mut self) -> Option<&mut T> {
        let last = self.len.checked_sub(1)?;
        let slot = self.slot(last);
        self.slots.get_mut(slot)
    }

    /// Takes the oldest value.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let value = *self.front()?;
        self.head = self.slot(1);
        self.len = self.len.wrapping_sub(1);
        Some(value)
    }

    /// Drops the oldest value, if there is one.
    #[inline]
    pub fn skip(&mut self) {
        if self.len > 0 {
            self.head = self.slot(1);
            self.len = self.len.wrapping_sub(1);
        }
    }

    /// Takes the newest value.
    pub fn pop_back(&mut self) -> Option<T> {
        let value = *self.back_mut()?;
        self.len = self.len.wrapping_sub(1);
        Some(value)
    }

    /// The values from the oldest on, to be changed in place.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (newer, older) = self.slots.split_at_mut(self.head);
        older.iter_mut().chain(newer).take(self.len)
    }

    /// Takes the value `index` places from the front; those behind it move up.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        let value = self.get(index)?;
        let mut place = 0usize;
        self.retain(|_| {
            let keep = place != index;
            place = place.wrapping_add(1);
            keep
        });
        Some(value)
    }

    /// Drops the values for which `keep` does not hold; the others stay in order.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let count = self.len;
        let mut kept = 0usize;
        for index in 0..count {
            let Some(value) = self.get(index) else { break };
            if !keep(&value) {
                continue;
            }
            let slot = self.slot(kept);
            if let Some(slot) = self.slots.get_mut(slot) {
                *slot = value;
            }
            kept = kept.wrapping_add(1);
        }
        self.len = kept;
    }

    /// Drops all values and the memory.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_across_growth_and_wrap() {
        let mut ring = Ring::new();
        let (mut next_in, mut next_out) = (0u32, 0u32);
        for round in 0..50 {
            for _ in 0..(round % 13) {
                ring.push(next_in).unwrap();
                next_in += 1;
            }
            for _ in 0..(round % 7) {
                if let Some(value) = ring.pop() {
                    assert_eq!(value, next_out);
                    next_out += 1;
                }
            }
        }
        assert_eq!(ring.len() as u32, next_in - next_out);
        assert_eq!(ring.get(1), Some(next_out + 1));
        assert_eq!(ring.get(ring.len()), None);
        while let Some(value) = ring.pop() {
            assert_eq!(value, next_out);
            next_out += 1;
        }
        assert_eq!(next_in, next_out);
    }

    #[test]
    fn retains_in_order_around_the_end() {
        let mut ring = Ring::new();
        for value in 0..8 {
            ring.push(value).unwrap();
        }
        for _ in 0..5 {
            ring.pop();
        }
        for value in 8..12 {
            ring.push(value).unwrap();
        }
        ring.retain(|value| value % 2 == 1);
        assert_eq!(ring.len(), 4);
        assert_eq!(ring.pop_back(), Some(11));
        for value in [5, 7, 9] {
            assert_eq!(ring.pop(), Some(value));
        }
        assert_eq!(ring.pop_back(), None);
    }
}
