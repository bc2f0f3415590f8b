//! Registered memory.

use std::sync::Arc;

use ripstop_core::provider::{Domain, MrAttr};
use ripstop_mem::UserBuf;
use ripstop_types::Flags;

/// Registers memory for these accesses.
pub(crate) fn register<D: Domain>(domain: &Arc<D>, buf: UserBuf, access: Flags) -> Arc<D::Mr> {
    let attr = MrAttr::of_buf(buf, access, 0);
    domain.mr(&attr).expect("registered")
}
