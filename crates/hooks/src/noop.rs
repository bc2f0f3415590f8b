//! The hook `noop`: every call goes through the tables of a hook, and nothing is made of it.

use std::sync::Arc;

use crate::hook::{Begins, Ends, Hook, Opened, Watch};

/// See the module.
#[derive(Debug)]
pub(crate) struct Noop;

/// Watches nothing.
#[derive(Debug)]
struct Nothing;

impl Watch for Nothing {}

impl Hook for Noop {
    fn open(&self, _: &Opened<'_>, _: Option<&Arc<dyn Watch>>) -> Arc<dyn Watch> {
        Arc::new(Nothing)
    }

    fn begins(&self) -> Begins {
        Begins::None
    }

    fn ends(&self) -> Ends {
        Ends::None
    }
}
