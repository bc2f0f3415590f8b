//! What belongs to one thread from one call to a later one.

use parking_lot::{Condvar, MappedMutexGuard, Mutex, MutexGuard};

/// A value that a thread has from [`Turn::begin`] to [`Turn::end`], over several calls of the program, while others
/// wait for theirs.
#[derive(Debug, Default)]
pub(crate) struct Turn<T> {
    state: Mutex<(bool, T)>,
    free: Condvar,
}

impl<T> Turn<T> {
    /// Waits for the turn, and begins it.
    pub(crate) fn begin(&self) -> MappedMutexGuard<'_, T> {
        let mut state = self.state.lock();
        while state.0 {
            self.free.wait(&mut state);
        }
        state.0 = true;
        MutexGuard::map(state, |state| &mut state.1)
    }

    /// The value, within the turn.
    pub(crate) fn get(&self) -> MappedMutexGuard<'_, T> {
        MutexGuard::map(self.state.lock(), |state| &mut state.1)
    }

    /// Ends the turn.
    pub(crate) fn end(&self) {
        self.state.lock().0 = false;
        self.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_threads_do_not_mix() {
        let turn = Turn::<Vec<u32>>::default();
        let taken = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (turn, taken) = (&turn, &taken);
                scope.spawn(move || {
                    for _ in 0..100 {
                        turn.begin().clear();
                        (0..3).for_each(|_| turn.get().push(thread));
                        let mine = std::mem::take(&mut *turn.get());
                        turn.end();
                        taken.lock().push(mine);
                    }
                });
            }
        });
        let taken = taken.into_inner();
        assert_eq!(taken.len(), 400);
        assert!(taken.iter().all(|mine| *mine == [mine[0]; 3]));
    }
}
