//! What only the test programs need, and no unit test: domains that do not lock, and another process that is
//! killed.

use std::sync::Arc;

use ripstop_core::Info;
use ripstop_core::provider::Fabric as _;
use ripstop_shm::Fabric;

use crate::common::fabric;
use crate::common::other::Other;

pub(crate) type Serial = <Fabric as ripstop_core::provider::Fabric>::SerialDomain;

pub(crate) fn serial(info: &Info) -> Arc<Serial> {
    fabric(info).serial_domain(info).unwrap()
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
