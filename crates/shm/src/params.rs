//! Parameters (`FI_SHM_*`), read once.

use ripstop_objects::Tunables;

/// Provider name, and the prefix of its parameters.
pub(crate) const NAME: &str = "shm";

/// How long a peer is tried to be reached, in milliseconds: what is posted to a process that was
/// killed fails within 2 s. One that is there but makes no progress is waited for.
const CONNECT_TIMEOUT: usize = 1500;

/// Most bytes of an injected message, unless the user says otherwise: as many as programs know
/// from the C library, since some ask for that many.
const MAX_INJECT: usize = 4096;

/// Values of all parameters.
#[derive(Debug)]
pub struct Params(Tunables);

impl AsRef<Tunables> for Params {
    fn as_ref(&self) -> &Tunables {
        &self.0
    }
}

impl Params {
    /// Declares and reads all.
    pub(crate) fn read() -> Self {
        Self(Tunables::read(NAME, MAX_INJECT, CONNECT_TIMEOUT))
    }
}
