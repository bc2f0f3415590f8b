//! When a thread that polls lets others run.

/// Counts the application's polls of a domain that find nothing. After many in a row what it
/// waits for may well be the work of a thread that has no processor, so the poll gives up its
/// own for a moment. Where every thread has one, this costs a short system call now and then,
/// and nothing while messages come.
#[derive(Debug)]
pub(crate) struct Polls {
    /// Polls in vain until others are let run; never 0 between two polls.
    left: u32,
}

impl Default for Polls {
    fn default() -> Self {
        Self { left: Self::FIRST }
    }
}

impl Polls {
    /// Polls in vain before the first time.
    const FIRST: u32 = 64;
    /// Polls in vain between two times after that.
    const NEXT: u32 = 8;

    /// A poll found something.
    #[inline]
    pub(crate) const fn found(&mut self) {
        self.left = Self::FIRST;
    }

    /// A poll found nothing; whether to let other threads run, and then to say so with
    /// [`Polls::have_run`].
    #[inline]
    pub(crate) const fn in_vain(&mut self) -> bool {
        self.left = self.left.wrapping_sub(1);
        self.left == 0
    }

    /// Other threads have run.
    pub(crate) const fn have_run(&mut self) {
        self.left = Self::NEXT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_run_after_many_polls_in_vain() {
        let mut polls = Polls::default();
        let mut until_yield = || {
            let many = (1..).find(|_| polls.in_vain());
            polls.have_run();
            many
        };
        assert_eq!(until_yield(), Some(Polls::FIRST));
        assert_eq!(until_yield(), Some(Polls::NEXT));
        assert_eq!(until_yield(), Some(Polls::NEXT));
        polls.found();
        assert_eq!((1..).find(|_| polls.in_vain()), Some(Polls::FIRST));
    }
}
