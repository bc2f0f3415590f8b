//! Which messages were received, dropped or set aside, as far as that can be told.
//!
//! Not every sighting tells which message it is of: a look shows no bytes, an empty message has
//! none, and a stranger has no name. So each is kept with all messages that it can be of. What is
//! checked is whether any assignment gives each sighting a message of its own, and whether any gives
//! each message that must have arrived a sighting of its own. If both exist, one does both
//! (Mendelsohn and Dulmage), so what is found wrong is wrong however one takes the sightings.

use std::collections::{HashMap, HashSet};

/// See the module. Messages and operations go by their place among all operations.
#[derive(Clone, Debug, Default)]
pub(super) struct Sightings {
    /// By sighting, the operation, and the place in its buffer.
    by: Vec<(usize, usize)>,
    /// By sighting, the messages that it may be of.
    may_be: Vec<Vec<usize>>,
    /// An assignment: the sighting of each message that has one.
    taken: HashMap<usize, usize>,
}

impl Sightings {
    /// An operation got one of these messages at a place of its buffer, or dropped it or set it
    /// aside. Returns whether that can be.
    #[must_use]
    pub(super) fn see(&mut self, by: usize, at: usize, may_be: &[usize]) -> bool {
        self.by.push((by, at));
        self.may_be.push(may_be.to_vec());
        self.assign(self.by.len() - 1)
    }

    fn assign(&mut self, sighting: usize) -> bool {
        pair(sighting, &self.may_be, &mut self.taken, &mut HashSet::new())
    }

    /// The message that an operation set aside is one of these. Returns whether that can be.
    #[must_use]
    pub(super) fn see_again(&mut self, by: usize, may_be: &[usize]) -> bool {
        let Some(index) = self.by.iter().position(|(seen, _)| *seen == by) else {
            return false;
        };
        self.may_be[index].retain(|message| may_be.contains(message));
        self.taken.retain(|_, sighting| *sighting != index);
        self.assign(index)
    }

    /// Whether one of these messages can be there that nobody has seen.
    #[must_use]
    pub(super) fn is_left(&self, may_be: &[usize]) -> bool {
        self.clone().see(0, 0, may_be)
    }

    /// One of these messages that was not seen although the others were, if that cannot be otherwise.
    #[must_use]
    pub(super) fn missing(&self, messages: &[usize]) -> Option<usize> {
        let of = |message: &usize| {
            let all = self.may_be.iter().enumerate();
            let mine = all.filter(|(_, may_be)| may_be.contains(message));
            mine.map(|(sighting, _)| sighting).collect()
        };
        let may_have: Vec<Vec<usize>> = messages.iter().map(of).collect();
        let mut taken = HashMap::new();
        let lost = |index: &usize| !pair(*index, &may_have, &mut taken, &mut HashSet::new());
        (0..messages.len()).find(lost).map(|index| messages[index])
    }

    /// The messages whose sighting can be of no other, in the order they were sent, each with the
    /// operation that saw it, and the place in its buffer.
    #[must_use]
    pub(super) fn exact(&self) -> Vec<(usize, usize, usize)> {
        let all = self.by.iter().zip(&self.may_be);
        let exact = all.filter_map(|((by, at), may_be)| match may_be[..] {
            [message] => Some((message, *by, *at)),
            _ => None,
        });
        let mut exact: Vec<_> = exact.collect();
        exact.sort_unstable();
        exact
    }
}

/// Gives one a partner of its own, for which others may have to change theirs (Kuhn's algorithm);
/// returns whether that is possible. `tried` are partners that were asked for before.
fn pair(
    one: usize,
    partners: &[Vec<usize>],
    taken: &mut HashMap<usize, usize>,
    tried: &mut HashSet<usize>,
) -> bool {
    for partner in &partners[one] {
        if !tried.insert(*partner) {
            continue;
        }
        let other = taken.get(partner).copied();
        if other.is_none_or(|other| pair(other, partners, taken, tried)) {
            taken.insert(*partner, one);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sighting_gives_way_to_one_that_can_be_of_its_message_only() {
        let mut sightings = Sightings::default();
        assert!(sightings.see(10, 0, &[1, 2]));
        assert!(sightings.see(11, 0, &[2, 3]));
        assert!(sightings.see(12, 0, &[1]));
        assert!(sightings.see(13, 5, &[4]));
        assert_eq!(sightings.missing(&[1, 2, 3, 4]), None);
        assert_eq!(sightings.exact(), [(1, 12, 0), (4, 13, 5)]);
    }

    #[test]
    fn a_message_that_is_seen_twice_is_found() {
        let mut sightings = Sightings::default();
        assert!(sightings.see(10, 0, &[1, 2]));
        assert!(sightings.is_left(&[1]));
        assert!(sightings.see(11, 0, &[1, 2]));
        assert!(!sightings.is_left(&[1]));
        assert!(!sightings.see(12, 0, &[1, 2]));
    }

    #[test]
    fn a_message_that_is_lost_is_found_among_those_that_look_the_same() {
        let mut sightings = Sightings::default();
        assert!(sightings.see(10, 0, &[1, 2, 3]));
        assert!(sightings.see(11, 0, &[1, 2, 3]));
        assert_eq!(sightings.missing(&[2, 3]), None);
        assert_eq!(sightings.missing(&[1, 2, 3]), Some(3));
        assert!(sightings.see(12, 0, &[1, 4]));
        assert_eq!(sightings.missing(&[1, 2, 3]), None);
        assert_eq!(sightings.missing(&[1, 2, 3, 4]), Some(4));
    }

    #[test]
    fn a_message_that_was_set_aside_stays_the_same() {
        let mut sightings = Sightings::default();
        assert!(sightings.see(10, 0, &[1, 2]));
        assert!(sightings.see(11, 0, &[1, 2, 3]));
        assert!(sightings.see_again(11, &[2, 4]));
        assert!(!sightings.is_left(&[1, 2]));
        assert!(!sightings.see_again(10, &[2]));
    }
}
