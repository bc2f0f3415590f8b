//! What an endpoint reaches its peers by.

use std::sync::Arc;

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_types::{Errno, Result};

use crate::connection::Connection;
use crate::dgram::Datagrams;
use crate::params::NAME;

/// What an endpoint reaches its peers by.
pub(crate) enum Link {
    /// A connection with one peer.
    Connection(Arc<Connection>),
    /// Datagrams to any.
    Datagrams(Datagrams),
}

impl Link {
    /// The connection, for what only those have.
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] where there is none.
    pub(crate) fn connection(&self) -> Result<&Arc<Connection>> {
        match self {
            Self::Connection(connection) => Ok(connection),
            Self::Datagrams(_) => {
                fi_warn!(
                    NAME,
                    Subsys::EpCtrl,
                    "a datagram endpoint has no connection; insert its peers into an address vector"
                );
                Err(Errno::ENOSYS)
            }
        }
    }

    /// The same for datagrams.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a connected endpoint.
    pub(crate) fn datagrams(&self) -> Result<&Datagrams> {
        match self {
            Self::Datagrams(datagrams) => Ok(datagrams),
            Self::Connection(_) => {
                fi_warn!(
                    NAME,
                    Subsys::EpCtrl,
                    "a connected endpoint has no address vector; open one of FI_EP_DGRAM"
                );
                Err(Errno::EINVAL)
            }
        }
    }
}
