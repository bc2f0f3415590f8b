//! A pool of items with stable small ids, and singly linked lists through it.

use alloc::vec::Vec;

use ripstop_types::{Errno, Result};

use crate::ring::try_push;

/// No item.
pub const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct Node<T> {
    next: u32,
    item: Option<T>,
}

/// Items with ids that stay the same while the item lives and are used again afterwards.
#[derive(Debug)]
pub struct Pool<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    len: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Pool<T> {
    /// An empty pool. Memory is taken as items come, and is the only limit to their number.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    /// Number of items.
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

    /// One more than the highest id there is or was.
    #[must_use]
    pub const fn end(&self) -> u32 {
        // Ids are 32 bits wide.
        self.nodes.len() as u32
    }

    /// Puts an item in.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    #[inline]
    pub fn insert(&mut self, item: T) -> Result<u32> {
        if self.free == NIL {
            self.grow()?;
        }
        let id = self.free;
        let node = self.nodes.get_mut(id as usize).ok_or(Errno::ENOMEM)?;
        self.free = node.next;
        *node = Node {
            next: NIL,
            item: Some(item),
        };
        self.len = self.len.wrapping_add(1);
        Ok(id)
    }

    /// Adds a place. It does not take the item, which so can stay in registers.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> Result<()> {
        let id = u32::try_from(self.nodes.len()).map_err(|_| Errno::ENOMEM)?;
        if id == NIL {
            return Err(Errno::ENOMEM);
        }
        let node = Node {
            next: self.free,
            item: None,
        };
        try_push(&mut self.nodes, node)?;
        self.free = id;
        Ok(())
    }

    /// Takes an item out; its id may be given to another.
    #[inline]
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let node = self.nodes.get_mut(id as usize)?;
        let item = node.item.take()?;
        node.next = self.free;
        self.free = id;
        self.len = self.len.wrapping_sub(1);
        Some(item)
    }

    /// Drops an item; cheaper than [`Pool::remove`] for a large one.
    #[inline]
    pub fn discard(&mut self, id: u32) {
        if let Some(node) = self.nodes.get_mut(id as usize)
            && node.item.is_some()
        {
            node.item = None;
            node.next = self.free;
            self.free = id;
            self.len = self.len.wrapping_sub(1);
        }
    }

    /// The item with this id.
    #[inline]
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&T> {
        self.nodes.get(id as usize)?.item.as_ref()
    }

    /// The item with this id, to be changed.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.nodes.get_mut(id as usize)?.item.as_mut()
    }

    /// The ids in use, ascending.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.nodes).filter_map(|(id, node)| {
            node.item.as_ref()?;
            Some(id)
        })
    }

    #[inline]
    fn next(&self, id: u32) -> u32 {
        self.nodes.get(id as usize).map_or(NIL, |node| node.next)
    }

    #[inline]
    fn set_next(&mut self, id: u32, next: u32) {
        if let Some(node) = self.nodes.get_mut(id as usize) {
            node.next = next;
        }
    }
}

/// Items with ids as in a [`Pool`], few and looked up often: a place without an item has a blank
/// one, so that a look-up is a comparison of the id.
#[derive(Debug)]
pub struct Places<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Places<T> {
    /// No items.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The item with this id, or the blank that was left there.
    #[inline]
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&T> {
        self.items.get(id as usize)
    }

    /// The item with this id, or the blank that was left there, to be changed.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.items.get_mut(id as usize)
    }
}

impl<T: Default> Places<T> {
    /// Puts an item in.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn insert(&mut self, item: T) -> Result<u32> {
        if let Some(id) = self.free.pop() {
            if let Some(place) = self.get_mut(id) {
                *place = item;
            }
            return Ok(id);
        }
        let id = u32::try_from(self.items.len()).map_err(|_| Errno::ENOMEM)?;
        if id == NIL {
            return Err(Errno::ENOMEM);
        }
        try_push(&mut self.items, item)?;
        Ok(id)
    }

    /// Takes an item out and leaves a blank; its id may be given to another. Each id is taken
    /// out once.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let item = core::mem::take(self.get_mut(id)?);
        // Without memory the place stays unused.
        let _ = try_push(&mut self.free, id);
        Some(item)
    }
}

/// A list of items of one pool; an item is in at most one list.
#[derive(Clone, Copy, Debug)]
pub struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            head: NIL,
            tail: NIL,
        }
    }

    /// Whether it is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// The first id, or [`NIL`].
    #[inline]
    #[must_use]
    pub const fn first(&self) -> u32 {
        self.head
    }

    /// Appends an item that is in no list.
    #[inline]
    pub fn push_back<T>(&mut self, pool: &mut Pool<T>, id: u32) {
        pool.set_next(id, NIL);
        if self.head == NIL {
            self.head = id;
        } else {
            pool.set_next(self.tail, id);
        }
        self.tail = id;
    }

    /// Puts an item that is in no list before all others.
    pub fn push_front<T>(&mut self, pool: &mut Pool<T>, id: u32) {
        pool.set_next(id, self.head);
        if self.head == NIL {
            self.tail = id;
        }
        self.head = id;
    }

    /// Takes out the first item for which `wanted` holds; the item stays in the pool.
    #[inline]
    pub fn take<T>(
        &mut self,
        pool: &mut Pool<T>,
        mut wanted: impl FnMut(u32, &T) -> bool,
    ) -> Option<u32> {
        let (mut previous, mut id) = (NIL, self.head);
        while id != NIL {
            if wanted(id, pool.get(id)?) {
                let next = pool.next(id);
                if previous == NIL {
                    self.head = next;
                } else {
                    pool.set_next(previous, next);
                }
                if self.tail == id {
                    self.tail = previous;
                }
                return Some(id);
            }
            previous = id;
            id = pool.next(id);
        }
        None
    }

    /// Takes out the first item.
    #[inline]
    pub fn pop_front<T>(&mut self, pool: &mut Pool<T>) -> Option<u32> {
        let id = self.head;
        if id == NIL {
            return None;
        }
        self.head = pool.next(id);
        if self.head == NIL {
            self.tail = NIL;
        }
        Some(id)
    }

    /// Takes out all items for which `wanted` holds, into a list of their own, in order.
    pub fn split<T>(
        &mut self,
        pool: &mut Pool<T>,
        mut wanted: impl FnMut(u32, &T) -> bool,
    ) -> Self {
        let (mut taken, mut kept) = (Self::new(), Self::new());
        while let Some(id) = self.pop_front(pool) {
            let to = match pool.get(id) {
                Some(item) if wanted(id, item) => &mut taken,
                _ => &mut kept,
            };
            to.push_back(pool, id);
        }
        *self = kept;
        taken
    }

    /// The id behind `id`, or [`NIL`]; `None` for no item.
    pub(crate) fn after<T>(&self, pool: &Pool<T>, id: u32) -> Option<u32> {
        pool.get(id).map(|_| pool.next(id))
    }

    /// Finds the first item for which `wanted` holds, and leaves it.
    #[inline]
    pub fn find<T>(&self, pool: &Pool<T>, mut wanted: impl FnMut(u32, &T) -> bool) -> Option<u32> {
        let mut id = self.head;
        while id != NIL {
            if wanted(id, pool.get(id)?) {
                return Some(id);
            }
            id = pool.next(id);
        }
        None
    }

    /// Calls `visit` on every item in order.
    pub fn for_each<T>(&self, pool: &mut Pool<T>, mut visit: impl FnMut(u32, &mut T)) {
        let mut id = self.head;
        while id != NIL {
            let next = pool.next(id);
            if let Some(item) = pool.get_mut(id) {
                visit(id, item);
            }
            id = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_from_front_middle_and_end() {
        let mut pool = Pool::new();
        let mut list = List::new();
        for value in 0..5 {
            let id = pool.insert(value).unwrap();
            list.push_back(&mut pool, id);
        }
        for value in [2, 0, 4] {
            let id = list.take(&mut pool, |_, v| *v == value).unwrap();
            assert_eq!(pool.remove(id), Some(value));
        }
        let id = pool.insert(9).unwrap();
        list.push_back(&mut pool, id);
        let id = pool.insert(7).unwrap();
        list.push_front(&mut pool, id);
        let mut left = [0; 4];
        for slot in &mut left {
            let id = list.pop_front(&mut pool).unwrap();
            *slot = pool.remove(id).unwrap();
        }
        assert_eq!(left, [7, 1, 3, 9]);
        list.push_front(&mut pool, 0);
        list.push_back(&mut pool, 1);
        assert_eq!(list.pop_front(&mut pool), Some(0));
        assert_eq!(list.pop_front(&mut pool), Some(1));
        assert!(list.is_empty() && pool.is_empty());
    }

    #[test]
    fn places_are_used_again() {
        let mut places = Places::new();
        let ids = [7, 8, 9].map(|item| places.insert(item).unwrap());
        assert_eq!(places.remove(ids[1]), Some(8));
        assert_eq!(places.get(ids[1]), Some(&0));
        assert_eq!(places.insert(5), Ok(ids[1]));
        assert_eq!(places.get_mut(ids[1]), Some(&mut 5));
        assert_eq!(places.get(ids[2]), Some(&9));
        assert_eq!(places.get(NIL), None);
        assert_eq!(places.remove(NIL), None);
    }

    #[test]
    fn ids_are_used_again() {
        let mut pool = Pool::new();
        let ids = ['a', 'b', 'c'].map(|item| pool.insert(item).unwrap());
        pool.remove(ids[1]);
        pool.discard(ids[1]);
        assert_eq!((pool.len(), pool.ids().count()), (2, 2));
        assert_eq!(pool.insert('d'), Ok(ids[1]));
        assert_eq!(pool.get(ids[1]), Some(&'d'));
        assert_eq!(pool.end(), 3);
    }

    #[test]
    fn a_list_is_split_in_order() {
        let mut pool = Pool::new();
        let mut list = List::new();
        for value in 0..6 {
            let id = pool.insert(value).unwrap();
            list.push_back(&mut pool, id);
        }
        let mut even = list.split(&mut pool, |_, value| value % 2 == 0);
        for (list, values) in [(&mut even, [0, 2, 4]), (&mut list, [1, 3, 5])] {
            for value in values {
                let id = list.pop_front(&mut pool).unwrap();
                assert_eq!(pool.get(id), Some(&value));
            }
            assert!(list.is_empty());
        }
    }
}
