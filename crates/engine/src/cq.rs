//! Completion queues (man page `fi_cq(3)`): successes and errors in the order they happened.

use ripstop_types::{Completion, CompletionError, Context, Errno, Flags, Result};

use crate::ring::Ring;

/// Most bytes that describe an error: the longest address of any transport, which is a name of 200
/// bytes with its null.
pub const ERROR_DATA: usize = 201;

/// An error entry with the bytes that describe it.
#[derive(Clone, Copy, Debug)]
pub struct ErrorEntry {
    /// The entry.
    pub error: CompletionError,
    /// Describes the error, in [`CompletionError`] terms `err_data`.
    pub data: [u8; ERROR_DATA],
    /// How much of `data` is used.
    pub data_len: u8,
}

impl ErrorEntry {
    /// An entry without further data, of an operation that failed with `err`.
    #[must_use]
    pub const fn new(entry: Completion, err: Errno) -> Self {
        Self {
            error: CompletionError {
                entry,
                olen: 0,
                err,
                prov_errno: err.0,
            },
            data: [0; ERROR_DATA],
            data_len: 0,
        }
    }

    /// The bytes in use.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.data
            .get(..usize::from(self.data_len))
            .unwrap_or_default()
    }
}

/// Marks the place of an error among the successes. No completion carries this bit: it
/// belongs to the range of `Flags` the interface leaves to providers.
const ERROR_MARK: Flags = Flags::from_bits_retain(1 << 63);

/// Marks, by its context, the place where completions were lost.
const LOST: Completion = Completion {
    context: 1,
    flags: ERROR_MARK,
    ..Completion::BLANK
};

/// A queue of completions. It never loses one: beyond its nominal size it grows, and when
/// memory runs out as well it says [`Errno::EOVERRUN`].
#[derive(Debug, Default)]
pub struct CompletionQueue {
    entries: Ring<Completion>,
    errors: Ring<ErrorEntry>,
    overrun: bool,
}

impl CompletionQueue {
    /// A queue with room for `size` entries.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn new(size: usize) -> Result<Self> {
        let mut queue = Self::default();
        // Room for one at least, to mark that others were lost.
        queue.entries.reserve(size.max(1), Completion::BLANK)?;
        Ok(queue)
    }

    /// Entries waiting to be read, errors included.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether an error is among the entries, or some were lost.
    #[must_use]
    pub const fn has_error(&self) -> bool {
        !self.errors.is_empty() || self.overrun
    }

    /// Appends a success.
    #[inline(always)]
    pub fn push(&mut self, completion: Completion) {
        if self.entries.push(completion).is_err() {
            self.lose();
        }
    }

    /// Appends an error.
    pub fn push_error(&mut self, entry: ErrorEntry) {
        let mark = Completion {
            flags: ERROR_MARK,
            ..Completion::BLANK
        };
        if self.errors.push(entry).is_err() {
            self.lose();
        } else if self.entries.push(mark).is_err() {
            self.errors.pop_back();
            self.lose();
        }
    }

    /// Marks that there was no memory for an entry, in the place of the newest.
    #[cold]
    #[inline(never)]
    fn lose(&mut self) {
        self.overrun = true;
        if let Some(back) = self.entries.back_mut() {
            if back.flags.bits() == ERROR_MARK.bits() && back.context != LOST.context {
                self.errors.pop_back();
            }
            *back = LOST;
        }
    }

    /// Takes the next success and shows it to `entry`; cheaper than [`CompletionQueue::pop`].
    ///
    /// # Errors
    /// As for [`CompletionQueue::pop`].
    #[inline]
    pub fn take(&mut self, entry: impl FnOnce(&Completion)) -> Result<()> {
        match self.entries.front() {
            Some(front) if front.flags.bits() != ERROR_MARK.bits() => {
                entry(front);
                self.entries.skip();
                Ok(())
            }
            Some(_) => self.pop_marked().map(|completion| entry(&completion)),
            None => Err(Errno::EAGAIN),
        }
    }

    /// Takes the next success.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when there is none, [`Errno::EAVAIL`] when the next is an error,
    /// [`Errno::EOVERRUN`] after all entries were read and some had been lost.
    #[inline]
    pub fn pop(&mut self) -> Result<Completion> {
        match self.entries.front() {
            Some(entry) if entry.flags.bits() != ERROR_MARK.bits() => {
                self.entries.pop().ok_or(Errno::EAGAIN)
            }
            Some(_) => self.pop_marked(),
            None => Err(Errno::EAGAIN),
        }
    }

    /// The next entry is an error, or says that others were lost: that stays behind all others.
    #[cold]
    #[inline(never)]
    fn pop_marked(&mut self) -> Result<Completion> {
        let is_lost = |entry: &&Completion| entry.context == LOST.context;
        if self.entries.front().filter(is_lost).is_none() {
            return Err(Errno::EAVAIL);
        }
        if self.entries.len() == 1 {
            return Err(Errno::EOVERRUN);
        }
        self.entries.pop();
        // It has the place it had.
        self.entries.push(LOST)?;
        self.pop()
    }

    /// Has the oldest error that was not read, of an operation with this context and of those that `wanted` says, say
    /// that it was cancelled; returns whether there is one. An error that comes with a message stays as it is.
    pub fn cancel_unread(&mut self, context: Context, wanted: impl Fn(Flags) -> bool) -> bool {
        const STAY: [Errno; 3] = [Errno::ETRUNC, Errno::EADDRNOTAVAIL, Errno::ECANCELED];
        let found = self.errors.iter_mut().find(|entry| {
            let CompletionError { entry, err, .. } = &entry.error;
            entry.context == context && wanted(entry.flags) && !STAY.contains(err)
        });
        let Some(ErrorEntry { error, .. }) = found else {
            return false;
        };
        error.err = Errno::ECANCELED;
        error.prov_errno = Errno::ECANCELED.0;
        true
    }

    /// Takes the error at the front.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when the next entry is not an error.
    pub fn pop_error(&mut self) -> Result<ErrorEntry> {
        match self.entries.front() {
            Some(entry)
                if entry.flags.bits() == ERROR_MARK.bits() && entry.context != LOST.context =>
            {
                self.entries.pop();
                self.errors.pop().ok_or(Errno::EAGAIN)
            }
            _ => Err(Errno::EAGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn success(context: usize) -> Completion {
        Completion {
            context,
            ..Completion::BLANK
        }
    }

    fn failure(context: usize) -> ErrorEntry {
        ErrorEntry::new(success(context), Errno::EIO)
    }

    #[test]
    fn errors_stand_where_they_happened() {
        let mut cq = CompletionQueue::new(2).unwrap();
        cq.push(success(1));
        cq.push_error(failure(2));
        cq.push_error(failure(3));
        cq.push(success(4));
        assert_eq!(cq.len(), 4);
        assert_eq!(cq.pop_error().unwrap_err(), Errno::EAGAIN);
        assert_eq!(cq.pop().unwrap().context, 1);
        for context in [2, 3] {
            assert_eq!(cq.pop(), Err(Errno::EAVAIL));
            assert!(cq.has_error());
            let entry = cq.pop_error().unwrap();
            assert_eq!(entry.error.entry.context, context);
            assert_eq!(entry.data(), []);
        }
        assert!(!cq.has_error());
        assert_eq!(cq.pop().unwrap().context, 4);
        assert_eq!(cq.pop(), Err(Errno::EAGAIN));
        assert!(cq.is_empty());
    }

    #[test]
    fn it_grows_rather_than_lose_an_entry() {
        let mut cq = CompletionQueue::new(1).unwrap();
        for context in 0..1000 {
            cq.push(success(context));
        }
        for context in 0..1000 {
            assert_eq!(cq.pop().unwrap().context, context);
        }
        assert!(cq.is_empty());
    }

    #[test]
    fn lost_entries_are_told_behind_all_others() {
        let mut cq = CompletionQueue::new(0).unwrap();
        cq.push(success(1));
        cq.push(success(2));
        cq.lose();
        cq.push(success(3));
        assert!(cq.has_error());
        assert_eq!(cq.pop().unwrap().context, 1);
        assert_eq!(cq.pop_error().unwrap_err(), Errno::EAGAIN);
        assert_eq!(cq.pop().unwrap().context, 3);
        cq.push_error(failure(4));
        assert_eq!(cq.pop(), Err(Errno::EAVAIL));
        assert_eq!(cq.pop_error().unwrap().error.entry.context, 4);
        for _ in 0..2 {
            assert_eq!(cq.pop(), Err(Errno::EOVERRUN));
            assert_eq!(cq.pop_error().unwrap_err(), Errno::EAGAIN);
        }
        assert!(!cq.is_empty());
    }

    #[test]
    fn an_error_may_be_what_is_lost() {
        let mut cq = CompletionQueue::new(4).unwrap();
        cq.push_error(failure(1));
        cq.lose();
        assert_eq!(cq.pop(), Err(Errno::EOVERRUN));
        assert!(cq.errors.is_empty());
    }
}
