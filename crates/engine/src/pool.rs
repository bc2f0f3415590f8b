//! A pool of items with stable small ids, and singly linked lists through it.

use alloc::vec::Vec;
use core::marker::PhantomData;

use ripstop_types::{Errno, Result};

use crate::id::Id;
use crate::ring::try_push;

/// In a list: no item follows. Place 0 is vacant.
const NONE: u32 = 0;

#[derive(Debug)]
struct Node<T> {
    next: u32,
    item: Option<T>,
}

impl<T> Node<T> {
    const VACANT: Self = Self {
        next: NONE,
        item: None,
    };
}

/// Items with ids that stay the same while the item lives and are used again afterwards. The place
/// of an item is the number of its id; place 0 stays vacant.
#[derive(Debug)]
pub struct Pool<I, T> {
    nodes: Vec<Node<T>>,
    free: u32,
    len: usize,
    ids: PhantomData<I>,
}

impl<I, T> Default for Pool<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I, T> Pool<I, T> {
    /// An empty pool. Memory is taken as items come, and is the only limit to their number.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            len: 0,
            ids: PhantomData,
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
}

impl<I: Id, T> Pool<I, T> {
    /// All ids that are or were in use, ascending.
    pub fn every_id(&self) -> impl Iterator<Item = I> + use<I, T> {
        // Ids are 32 bits wide.
        (1..self.nodes.len() as u32).filter_map(I::new)
    }

    /// Puts an item in.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    // Inlined, so that a large item is put together in its place.
    #[inline(always)]
    pub fn insert(&mut self, item: T) -> Result<I> {
        let id = match I::new(self.free) {
            Some(id) => id,
            None => self.grow()?,
        };
        let node = self.nodes.get_mut(id.index()).ok_or(Errno::ENOMEM)?;
        self.free = node.next;
        *node = Node {
            next: NONE,
            item: Some(item),
        };
        self.len = self.len.wrapping_add(1);
        Ok(id)
    }

    /// Adds a place. It does not take the item, which so can stay in registers.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> Result<I> {
        if self.nodes.is_empty() {
            try_push(&mut self.nodes, Node::VACANT)?;
        }
        let id = u32::try_from(self.nodes.len()).map_err(|_| Errno::ENOMEM)?;
        try_push(&mut self.nodes, Node::VACANT)?;
        self.free = id;
        I::new(id).ok_or(Errno::ENOMEM)
    }

    /// Takes an item out; its id may be given to another.
    #[inline]
    pub fn remove(&mut self, id: I) -> Option<T> {
        let node = self.nodes.get_mut(id.index())?;
        let item = node.item.take()?;
        node.next = self.free;
        self.free = number(Some(id));
        self.len = self.len.wrapping_sub(1);
        Some(item)
    }

    /// Drops an item; cheaper than [`Pool::remove`] for a large one.
    #[inline]
    pub fn discard(&mut self, id: I) {
        if let Some(node) = self.nodes.get_mut(id.index())
            && node.item.is_some()
        {
            node.item = None;
            node.next = self.free;
            self.free = number(Some(id));
            self.len = self.len.wrapping_sub(1);
        }
    }

    /// The item with this id.
    #[inline]
    #[must_use]
    pub fn get(&self, id: I) -> Option<&T> {
        self.nodes.get(id.index())?.item.as_ref()
    }

    /// The item with this id, to be changed.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.nodes.get_mut(id.index())?.item.as_mut()
    }

    /// The item with this id, if there is an id: that is not asked, since place 0 is vacant.
    #[inline]
    #[must_use]
    pub fn find(&self, id: Option<I>) -> Option<&T> {
        self.nodes.get(number(id) as usize)?.item.as_ref()
    }

    /// As [`Pool::find`], to be changed.
    #[inline]
    #[must_use]
    pub fn find_mut(&mut self, id: Option<I>) -> Option<&mut T> {
        self.nodes.get_mut(number(id) as usize)?.item.as_mut()
    }

    /// The ids in use, ascending.
    pub fn ids(&self) -> impl Iterator<Item = I> + '_ {
        (0..).zip(&self.nodes).filter_map(|(id, node)| {
            node.item.as_ref()?;
            I::new(id)
        })
    }

    /// The lowest id of an item for which `wanted` holds.
    pub fn position(&self, wanted: impl Fn(&T) -> bool) -> Option<I> {
        self.ids().find(|id| self.get(*id).is_some_and(&wanted))
    }

    #[inline]
    fn next(&self, id: I) -> Option<I> {
        I::new(self.nodes.get(id.index()).map_or(NONE, |node| node.next))
    }

    #[inline]
    fn set_next(&mut self, id: I, next: Option<I>) {
        if let Some(node) = self.nodes.get_mut(id.index()) {
            node.next = number(next);
        }
    }
}

/// The number of an id, or 0: for types that `ids!` defines, the same bits.
#[inline(always)]
fn number<I: Id>(id: Option<I>) -> u32 {
    id.map_or(NONE, |id| id.index() as u32)
}

/// Items with ids as in a [`Pool`], few and looked up often: a place without an item has a blank
/// one, so that a look-up is a comparison of the id.
#[derive(Debug)]
pub struct Places<I, T> {
    items: Vec<T>,
    free: Vec<I>,
}

impl<I, T> Default for Places<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I, T> Places<I, T> {
    /// No items.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<I: Id, T> Places<I, T> {
    /// The item with this id, or the blank that was left there.
    #[inline]
    #[must_use]
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// The item with this id, or the blank that was left there, to be changed.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(id.index())
    }

    /// The item with this id, if there is an id; see [`Places::get_mut`].
    #[inline]
    #[must_use]
    pub fn find_mut(&mut self, id: Option<I>) -> Option<&mut T> {
        self.get_mut(id?)
    }

    /// As [`Places::find_mut`], where that is done often: it asks no more than for an id.
    #[inline]
    #[must_use]
    pub fn at_mut(&mut self, place: Place<I>) -> Option<&mut T> {
        self.items.get_mut(place.index as usize)
    }
}

impl<I: Id, T: Default> Places<I, T> {
    /// Puts an item in.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn insert(&mut self, item: T) -> Result<I> {
        if let Some(id) = self.free.pop() {
            if let Some(place) = self.get_mut(id) {
                *place = item;
            }
            return Ok(id);
        }
        if self.items.is_empty() {
            try_push(&mut self.items, T::default())?;
        }
        let id = u32::try_from(self.items.len()).map_err(|_| Errno::ENOMEM)?;
        try_push(&mut self.items, item)?;
        I::new(id).ok_or(Errno::ENOMEM)
    }

    /// Takes an item out and leaves a blank; its id may be given to another. Each id is taken
    /// out once.
    pub fn remove(&mut self, id: I) -> Option<T> {
        let item = core::mem::take(self.get_mut(id)?);
        // Without memory the place stays unused.
        let _ = try_push(&mut self.free, id);
        Some(item)
    }
}

/// Where in [`Places`] the item with an id is that there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<I> {
    /// Beyond all items where there is no id.
    index: u32,
    ids: PhantomData<I>,
}

impl<I: Id> Place<I> {
    /// Where nothing is.
    pub const NOWHERE: Self = Self {
        index: u32::MAX,
        ids: PhantomData,
    };

    /// Where the item with this id is.
    #[must_use]
    pub fn of(id: Option<I>) -> Self {
        id.map_or(Self::NOWHERE, |id| Self {
            index: id.index() as u32,
            ids: PhantomData,
        })
    }
}

impl<I: Id> Default for Place<I> {
    fn default() -> Self {
        Self::NOWHERE
    }
}

/// A list of items of one pool; an item is in at most one list.
#[derive(Clone, Copy, Debug)]
pub struct List<I> {
    head: u32,
    tail: u32,
    ids: PhantomData<I>,
}

impl<I> Default for List<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I> List<I> {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            ids: PhantomData,
        }
    }

    /// Whether it is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

impl<I: Id> List<I> {
    /// The first id.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<I> {
        I::new(self.head)
    }

    /// Appends an item that is in no list.
    #[inline]
    pub fn push_back<T>(&mut self, pool: &mut Pool<I, T>, id: I) {
        pool.set_next(id, None);
        self.push_new(pool, id);
    }

    /// Appends an item that has been in no list since it was put into the pool.
    #[inline]
    pub fn push_new<T>(&mut self, pool: &mut Pool<I, T>, id: I) {
        match I::new(self.tail) {
            Some(tail) => pool.set_next(tail, Some(id)),
            None => self.head = number(Some(id)),
        }
        self.tail = number(Some(id));
    }

    /// Puts an item that is in no list before all others.
    pub fn push_front<T>(&mut self, pool: &mut Pool<I, T>, id: I) {
        pool.set_next(id, self.first());
        if self.is_empty() {
            self.tail = number(Some(id));
        }
        self.head = number(Some(id));
    }

    /// Takes out the first item for which `wanted` holds; the item stays in the pool.
    #[inline]
    pub fn take<T>(
        &mut self,
        pool: &mut Pool<I, T>,
        mut wanted: impl FnMut(I, &T) -> bool,
    ) -> Option<I> {
        let (mut previous, mut at) = (None, self.first());
        while let Some(id) = at {
            let next = pool.next(id);
            if wanted(id, pool.get(id)?) {
                match previous {
                    Some(previous) => pool.set_next(previous, next),
                    None => self.head = number(next),
                }
                if next.is_none() {
                    self.tail = number(previous);
                }
                return Some(id);
            }
            (previous, at) = (at, next);
        }
        None
    }

    /// Takes out the first item.
    #[inline]
    pub fn pop_front<T>(&mut self, pool: &mut Pool<I, T>) -> Option<I> {
        let id = self.first()?;
        let next = pool.next(id);
        self.head = number(next);
        if next.is_none() {
            self.tail = NONE;
        }
        Some(id)
    }

    /// Takes the first item out of the list and drops it; its id may be given to another.
    #[inline(always)]
    pub fn discard_front<T>(&mut self, pool: &mut Pool<I, T>) {
        // What is in a list is in the pool.
        let Some(node) = pool.nodes.get_mut(self.head as usize) else {
            return;
        };
        if node.item.is_none() {
            return;
        }
        let id = self.head;
        self.head = node.next;
        if self.head == NONE {
            self.tail = NONE;
        }
        node.item = None;
        node.next = pool.free;
        pool.free = id;
        pool.len = pool.len.wrapping_sub(1);
    }

    /// Takes out all items for which `wanted` holds, into a list of their own, in order.
    pub fn split<T>(
        &mut self,
        pool: &mut Pool<I, T>,
        mut wanted: impl FnMut(I, &T) -> bool,
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

    /// The id behind `id`.
    pub(crate) fn after<T>(&self, pool: &Pool<I, T>, id: I) -> Option<I> {
        pool.next(id)
    }

    /// Finds the first item for which `wanted` holds, and leaves it.
    #[inline]
    pub fn find<T>(&self, pool: &Pool<I, T>, mut wanted: impl FnMut(I, &T) -> bool) -> Option<I> {
        let mut at = self.first();
        while let Some(id) = at {
            if wanted(id, pool.get(id)?) {
                return Some(id);
            }
            at = pool.next(id);
        }
        None
    }

    /// Calls `visit` on every item in order.
    pub fn for_each<T>(&self, pool: &mut Pool<I, T>, mut visit: impl FnMut(I, &mut T)) {
        let mut at = self.first();
        while let Some(id) = at {
            at = pool.next(id);
            if let Some(item) = pool.get_mut(id) {
                visit(id, item);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ConnId;

    #[test]
    fn takes_from_front_middle_and_end() {
        let mut pool = Pool::<ConnId, _>::new();
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
        let [first, second] = [1, 2].map(|number| ConnId::new(number).unwrap());
        list.push_front(&mut pool, first);
        list.push_back(&mut pool, second);
        assert_eq!(list.pop_front(&mut pool), Some(first));
        assert_eq!(list.pop_front(&mut pool), Some(second));
        assert!(list.is_empty() && pool.is_empty());
    }

    #[test]
    fn the_front_of_a_list_is_dropped() {
        let mut pool = Pool::<ConnId, _>::new();
        let mut list = List::new();
        let ids = [1, 2].map(|value| {
            let id = pool.insert(value).unwrap();
            list.push_new(&mut pool, id);
            id
        });
        list.discard_front(&mut pool);
        assert_eq!((list.first(), pool.get(ids[0])), (Some(ids[1]), None));
        assert_eq!(pool.insert(3), Ok(ids[0]));
        list.push_new(&mut pool, ids[0]);
        for len in [1, 0, 0] {
            list.discard_front(&mut pool);
            assert_eq!((pool.len(), list.is_empty()), (len, len == 0));
        }
        // Its ids are given again, each once.
        let again = [4, 5, 6].map(|value| pool.insert(value).unwrap());
        assert!(ids.iter().all(|id| again.contains(id)) && pool.len() == 3);
    }

    #[test]
    fn places_are_used_again() {
        let mut places = Places::<ConnId, _>::new();
        let ids = [7, 8, 9].map(|item| places.insert(item).unwrap());
        assert_eq!(places.remove(ids[1]), Some(8));
        assert_eq!(places.get(ids[1]), Some(&0));
        assert_eq!(places.insert(5), Ok(ids[1]));
        assert_eq!(places.get_mut(ids[1]), Some(&mut 5));
        assert_eq!(places.get(ids[2]), Some(&9));
        let none = ConnId::new(u32::MAX).unwrap();
        assert_eq!(places.get(none), None);
        assert_eq!(places.remove(none), None);
    }

    #[test]
    fn ids_are_used_again() {
        let mut pool = Pool::<ConnId, _>::new();
        let ids = ['a', 'b', 'c'].map(|item| pool.insert(item).unwrap());
        pool.remove(ids[1]);
        pool.discard(ids[1]);
        assert_eq!((pool.len(), pool.ids().count()), (2, 2));
        assert_eq!(pool.insert('d'), Ok(ids[1]));
        assert_eq!(pool.get(ids[1]), Some(&'d'));
        assert_eq!(pool.every_id().collect::<Vec<_>>(), ids);
        assert_eq!(
            (ids[0], pool.find(Some(ids[0]))),
            (ConnId::FIRST, Some(&'a'))
        );
        assert_eq!(pool.find(None), None);
        assert_eq!(pool.find_mut(None), None);
    }

    #[test]
    fn a_list_is_split_in_order() {
        let mut pool = Pool::<ConnId, _>::new();
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
