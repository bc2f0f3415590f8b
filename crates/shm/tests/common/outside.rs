//! What only the test programs need, and no unit test: domains that do not lock, registered memory, and another
//! process that is killed.

use std::sync::Arc;

use ripstop_core::Info;
use ripstop_core::provider::{Fabric as _, MrAttr, Sharing};
use ripstop_mem::UserBuf;
use ripstop_shm::Fabric;
use ripstop_types::Flags;

use crate::common::fabric;
use crate::common::other::Other;

pub(crate) type Serial = <Fabric as ripstop_core::provider::Fabric>::SerialDomain;

pub(crate) fn serial(info: &Info) -> Arc<Serial> {
    fabric(info).serial_domain(info).unwrap()
}

/// To register memory that peers reach from its first byte on.
pub(crate) fn mr_attr(memory: UserBuf, key: u64, access: Flags, shared: Sharing) -> MrAttr {
    MrAttr {
        iov: vec![memory],
        access,
        offset: 0,
        requested_key: key,
        flags: Flags::empty(),
        shared,
    }
}

impl Other {
    /// The number of the process.
    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// Kills it, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
