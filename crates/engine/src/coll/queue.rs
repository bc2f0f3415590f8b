//! What is still to be done: the actions that the driver has not been asked for yet, and the operations that can
//! go on.

use ripstop_types::{Errno, FiAddr, Result};

use crate::Buffer;
use crate::coll::action::{Action, Place, Task};
use crate::coll::collectives::Collectives;
use crate::coll::message::Message;
use crate::id::{CollOpId, EpId};

/// Actions that are owed for each operation.
const MAX_OWED: usize = 3;

impl<B: Buffer> Collectives<B> {
    /// Puts an operation on the list of those that can go on, where it has its room since it
    /// started.
    pub(super) fn wake(&mut self, id: CollOpId) {
        let Self { ops, run, .. } = self;
        if let Some(op) = ops.get_mut(id)
            && !op.awake
        {
            op.awake = run.push(id).is_ok();
        }
    }

    pub(super) fn next_awake(&mut self) -> Option<CollOpId> {
        let id = self.run.pop()?;
        if let Some(op) = self.ops.get_mut(id) {
            op.awake = false;
        }
        Some(id)
    }

    /// Makes sure that what one more operation will owe can be noted.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub(super) fn make_room_for_operation(&mut self) -> Result<()> {
        self.make_room(MAX_OWED)
    }

    /// Makes sure that so many more actions can be noted, besides those that are owed: for each
    /// operation that its connection is to drop what arrives, that its slot is free and that it
    /// has ended, and for each early message what becomes of it.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub(super) fn make_room(&mut self, more: usize) -> Result<()> {
        let owed = self.ops.len().saturating_mul(MAX_OWED);
        let owed = owed.saturating_add(self.early.len());
        let noted = self.actions.len().saturating_add(owed);
        let nothing = Action::Forget {
            conn: None,
            slot: None,
            len: 0,
        };
        self.actions.reserve(noted.saturating_add(more), nothing)
    }

    /// Notes an action for which [`Collectives::make_room`] has kept room.
    pub(super) fn push_owed(&mut self, action: Action<B>) {
        let pushed = self.actions.push(action);
        debug_assert!(pushed.is_ok(), "there is room for what is owed");
    }

    /// Without memory for the note that something is to be done, an operation stops until it is
    /// asked for; a kept slot stays taken.
    pub(super) fn push(&mut self, action: Action<B>) {
        let pushed = self.make_room(1).and_then(|()| self.actions.push(action));
        if pushed.is_err()
            && let Action::Task(Task::Copy { op, .. } | Task::Reduce { op, .. }) = action
        {
            self.fail(op, Errno::ENOMEM, None);
        }
    }

    pub(super) fn pop_action(&mut self) -> Option<Action<B>> {
        self.actions.pop()
    }

    /// Sends a message without payload that nobody waits for.
    pub(super) fn tell(&mut self, ep: EpId, to: FiAddr, message: Message) {
        self.push(Action::Send {
            ep,
            to,
            op: None,
            message,
            payload: Place::User(B::EMPTY),
        });
    }
}
