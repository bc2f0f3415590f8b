//! The cases, by man page.

mod msg;

use crate::case::Case;

/// Every case, in the order they run.
#[must_use]
pub fn all() -> Vec<Case> {
    [msg::CASES].concat()
}
