//! When a thread that polls lets others run.

/// Counts the application's polls of a domain that find nothing. After many in a row what it
/// waits for may well be the work of a thread that has no processor, so the poll gives up its
/// own for a moment. Where every thread has one, this costs a short system call now and then,
/// and nothing while messages come.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    in_vain: u32,
}

impl Polls {
    /// Polls in vain before the first time.
    const FIRST: u32 = 64;
    /// Polls in vain between two times after that.
    const NEXT: u32 = 8;

    /// A poll found something.
    #[inline]
    pub(crate) const fn found(&mut self) {
        self.in_vain = 0;
    }

    /// A poll found nothing; whether to let other threads run.
    #[inline]
    pub(crate) const fn in_vain(&mut self) -> bool {
        self.in_vain += 1;
        let many = self.in_vain >= Self::FIRST;
        if many {
            self.in_vain -= Self::NEXT;
        }
        many
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_run_after_many_polls_in_vain() {
        let mut polls = Polls::default();
        let mut until_yield = || (1..).find(|_| polls.in_vain());
        assert_eq!(until_yield(), Some(Polls::FIRST));
        assert_eq!(until_yield(), Some(Polls::NEXT));
        assert_eq!(until_yield(), Some(Polls::NEXT));
        polls.found();
        assert_eq!((1..).find(|_| polls.in_vain()), Some(Polls::FIRST));
    }
}
