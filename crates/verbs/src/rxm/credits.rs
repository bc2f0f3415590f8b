//! Credits: a side sends no more packets than the other has receives for.
//!
//! Each side begins with one, and keeps the last for a packet that gives credits itself.

/// What a side may send, and owes the other.
#[derive(Debug)]
pub(crate) struct Credits {
    /// Packets that the peer has receives for, as it has said.
    left: u64,
    /// Whether both sides count.
    bounded: bool,
    /// The connection stands: nothing goes out before.
    stands: bool,
    /// Receives that the peer has not been told of.
    owed: u64,
    /// So many are told of at a time, at least.
    at_once: u64,
}

impl Credits {
    /// For a side that has posted so many receives.
    pub(crate) const fn new(receives: u64) -> Self {
        Self {
            left: 0,
            bounded: true,
            stands: false,
            // One the peer has without being told.
            owed: receives.saturating_sub(1),
            at_once: receives / 2,
        }
    }

    /// Whether the peer bounds what it is sent.
    pub(crate) const fn agree(&mut self, bounded: bool) {
        self.bounded = bounded;
    }

    pub(crate) const fn stand(&mut self) {
        self.stands = true;
        // What came before this counts as well.
        self.left = self.left.saturating_add(1);
    }

    /// Whether a packet may be sent.
    pub(crate) const fn may_send(&self) -> bool {
        self.stands && (!self.bounded || self.left > 1)
    }

    /// A packet is sent.
    pub(crate) const fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// The peer has so many receives more.
    pub(crate) const fn add(&mut self, more: u64) {
        self.left = self.left.saturating_add(more);
    }

    /// So many receives are posted again.
    pub(crate) const fn owe(&mut self, more: u64) {
        self.owed = self.owed.saturating_add(more);
    }

    /// How many credits are to be given by a packet that is sent now, if any: then they are given.
    pub(crate) const fn give(&mut self) -> Option<u64> {
        let due = self.stands && self.bounded && self.left > 0 && self.owed >= self.at_once;
        if !due || self.owed == 0 {
            return None;
        }
        self.spend();
        let owed = self.owed;
        self.owed = 0;
        Some(owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_sent_than_there_are_receives() {
        // Two sides that send as much as they may, each with its receives in the order of arrival.
        let mut sides = [Credits::new(8), Credits::new(8)];
        let mut posted = [8_u64, 8];
        let mut sent = [0_u64, 0];
        sides.iter_mut().for_each(Credits::stand);
        for round in 0..1000_usize {
            for from in [0, 1] {
                let to = 1 - from;
                if let Some(more) = sides[from].give() {
                    posted[to] = posted[to].checked_sub(1).expect("a receive for credits");
                    sides[to].add(more);
                    (posted[to], _) = (posted[to] + 1, sides[to].owe(1));
                }
                // One side has more to say than the other.
                let most = if from == 0 { 5 } else { round % 2 };
                for _ in 0..most {
                    if !sides[from].may_send() {
                        break;
                    }
                    sides[from].spend();
                    sent[from] += 1;
                    posted[to] = posted[to].checked_sub(1).expect("a receive");
                }
                // What has come is read and its receive posted again.
                sides[to].owe(8 - posted[to]);
                posted[to] = 8;
            }
        }
        assert!(sent[0] > 2000 && sent[1] == 500, "{sent:?}");
    }

    #[test]
    fn nothing_goes_out_before_the_connection_stands_or_credits_came() {
        let mut credits = Credits::new(8);
        assert!(!credits.may_send());
        assert_eq!(credits.give(), None);
        // The peer may be faster.
        credits.add(7);
        assert!(!credits.may_send());
        credits.stand();
        assert!(credits.may_send());
        assert_eq!(credits.give(), Some(7));
        assert_eq!(credits.give(), None);
        let mut unbounded = Credits::new(8);
        unbounded.agree(false);
        unbounded.stand();
        assert!(unbounded.may_send());
        unbounded.spend();
        assert!(unbounded.may_send());
        assert_eq!(unbounded.give(), None);
    }
}
