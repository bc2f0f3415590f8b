//! Registered memory.

use std::sync::Arc;

use ripstop_core::provider::{Domain, MrAttr, Sharing};
use ripstop_mem::UserBuf;
use ripstop_types::Flags;

/// Registers memory for these accesses.
pub(crate) fn register<D: Domain>(domain: &Arc<D>, buf: UserBuf, access: Flags) -> Arc<D::Mr> {
    let attr = MrAttr {
        iov: vec![buf],
        access,
        offset: 0,
        requested_key: 0,
        flags: Flags::empty(),
        shared: Sharing::Never,
    };
    domain.mr(&attr).expect("registered")
}
