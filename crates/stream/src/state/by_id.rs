//! Objects of a domain by the ids that the engine gives them.

use std::marker::PhantomData;

use ripstop_engine::id::Id;

/// A table of objects by id, which grows as ids come. Place 0 is nobody's.
#[derive(Debug)]
pub(crate) struct ById<I, O> {
    places: Vec<Option<O>>,
    ids: PhantomData<I>,
}

impl<I: Id, O> ById<I, O> {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            ids: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, id: I) -> Option<&O> {
        self.places.get(id.index())?.as_ref()
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut O> {
        self.places.get_mut(id.index())?.as_mut()
    }

    /// As [`ById::get`], where there may be no id, without asking for that first.
    #[inline(always)]
    pub(crate) fn find(&self, id: Option<I>) -> Option<&O> {
        self.places.get(id.map_or(0, I::index))?.as_ref()
    }

    /// As [`ById::find`].
    #[inline(always)]
    pub(crate) fn find_mut(&mut self, id: Option<I>) -> Option<&mut O> {
        self.places.get_mut(id.map_or(0, I::index))?.as_mut()
    }

    pub(crate) fn insert(&mut self, id: I, object: O) {
        let index = id.index();
        if self.places.len() <= index {
            self.places.resize_with(index + 1, || None);
        }
        self.places[index] = Some(object);
    }

    pub(crate) fn remove(&mut self, id: I) {
        if let Some(place) = self.places.get_mut(id.index()) {
            *place = None;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &O> {
        self.places.iter().flatten()
    }

    /// How many places there are, which is one more than the highest id that was ever given, or 0.
    pub(crate) const fn places(&self) -> usize {
        self.places.len()
    }

    /// The ids that objects have or had.
    pub(crate) fn ids(&self) -> impl Iterator<Item = I> + use<I, O> {
        (1..self.places.len() as u32).filter_map(I::new)
    }
}
