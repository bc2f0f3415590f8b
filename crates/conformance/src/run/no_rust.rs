//! A program without the Rust object model, for who tries a library only: most of what takes long to build is left out.

use ripstop_types::EpType;

use super::{Plan, Threads};
use crate::subject::Subject;

/// Says that no provider is built in.
pub(super) fn on_subject<T>(
    _plan: &Plan,
    _ep_type: EpType,
    _body: impl FnOnce(&'static dyn Subject, Threads) -> T,
) -> anyhow::Result<T> {
    anyhow::bail!(
        "this program is built without the providers (feature `rust`): try a library, with --lib"
    )
}
