//! Objects that somebody calls but does not keep alive.

use std::sync::{Arc, Weak};

use parking_lot::RwLock;

/// A list of objects that does not keep them alive, each in it once. Walks take no lock while an
/// object is called, and allocate nothing. Each object that is in the list during a whole walk is
/// called, whatever is added or removed meanwhile; there is no order.
#[derive(Debug)]
pub struct WeakList<T: ?Sized>(RwLock<Vec<Option<Weak<T>>>>);

impl<T: ?Sized> Default for WeakList<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: ?Sized> WeakList<T> {
    /// Adds an object, and forgets those that are gone; `false` if it is there already.
    pub fn add(&self, object: &Weak<T>) -> bool {
        let mut list = self.0.write();
        if list.iter().any(|known| is(known.as_ref(), object)) {
            return false;
        }
        // The others keep their places, for the walks that are under way.
        for known in list.iter_mut() {
            known.take_if(|known| known.strong_count() == 0);
        }
        let object = Some(Weak::clone(object));
        match list.iter_mut().find(|known| known.is_none()) {
            Some(free) => *free = object,
            None => list.push(object),
        }
        true
    }

    /// Takes an object out; `false` if it is not there.
    pub fn remove(&self, object: &Weak<T>) -> bool {
        let mut list = self.0.write();
        match list.iter_mut().find(|known| is(known.as_ref(), object)) {
            Some(known) => known.take().is_some(),
            None => false,
        }
    }

    /// Calls each object that is still alive, without a lock.
    pub fn each(&self, mut call: impl FnMut(&T)) {
        let mut next = 0;
        while let Some(object) = self.at(&mut next) {
            call(&*object);
        }
    }

    /// The next object that is alive, from place `next` on, which moves behind it.
    pub fn at(&self, next: &mut usize) -> Option<Arc<T>> {
        let list = self.0.read();
        loop {
            let object = list.get(*next)?;
            *next += 1;
            if let Some(alive) = object.as_ref().and_then(Weak::upgrade) {
                return Some(alive);
            }
        }
    }
}

fn is<T: ?Sized>(known: Option<&Weak<T>>, object: &Weak<T>) -> bool {
    known.is_some_and(|known| core::ptr::addr_eq(known.as_ptr(), object.as_ptr()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &WeakList<u32>) -> Vec<u32> {
        let mut seen = Vec::new();
        list.each(|object| seen.push(*object));
        seen.sort_unstable();
        seen
    }

    fn filled(values: [u32; 3]) -> (WeakList<u32>, [Arc<u32>; 3]) {
        let list = WeakList::default();
        let objects = values.map(Arc::new);
        for object in &objects {
            assert!(list.add(&Arc::downgrade(object)));
        }
        (list, objects)
    }

    #[test]
    fn each_is_there_once_and_as_long_as_it_lives() {
        let (list, [first, second, third]) = filled([1, 2, 3]);
        assert!(!list.add(&Arc::downgrade(&second)));
        assert_eq!(of(&list), [1, 2, 3]);
        drop(second);
        assert_eq!(of(&list), [1, 3]);
        assert!(list.remove(&Arc::downgrade(&first)));
        assert!(!list.remove(&Arc::downgrade(&first)));
        assert_eq!(of(&list), [3]);
        // Their places are used again.
        let more = [4, 5].map(Arc::new);
        for object in &more {
            assert!(list.add(&Arc::downgrade(object)));
        }
        assert_eq!(of(&list), [3, 4, 5]);
        assert_eq!(list.0.read().len(), 3);
        drop(third);
    }

    #[test]
    fn a_walk_misses_none_that_stays() {
        let (list, [first, second, third]) = filled([1, 2, 3]);
        let fourth = Arc::new(4);
        let mut seen = Vec::new();
        list.each(|object| {
            seen.push(*object);
            // Wait for ever if the lock is held.
            list.remove(&Arc::downgrade(&first));
            list.add(&Arc::downgrade(&fourth));
        });
        for stays in [2, 3] {
            assert!(seen.contains(&stays), "{seen:?}");
        }
        assert_eq!(of(&list), [2, 3, 4]);
        drop((second, third));
    }
}
