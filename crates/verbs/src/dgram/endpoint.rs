//! What datagram endpoints have in place of a connection.

use std::sync::{Arc, OnceLock};

use ripstop_core::log::Subsys;
use ripstop_core::{Address, Info, fi_warn};
use ripstop_ibverbs::Qp;
use ripstop_types::{Errno, Result};

use crate::dgram::av::Av;
use crate::params::NAME;
use crate::ud::Name;
use crate::ud::Port;

/// What a datagram endpoint has in place of a connection.
#[derive(Debug)]
pub(crate) struct Datagrams {
    /// The number that the program chose for it, if any.
    service: u16,
    av: OnceLock<Arc<Av>>,
    /// Once it is enabled.
    name: OnceLock<Name>,
}

impl Datagrams {
    /// Of an endpoint that is opened.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a source of another format.
    pub(crate) fn new(info: &Info) -> Result<Self> {
        let source = info.src_addr.as_ref().map(Name::of).transpose();
        let source = source.inspect_err(|_| {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "the source address of a datagram endpoint is of the format FI_ADDR_IB_UD; take an info of \
                 fi_getinfo"
            );
        })?;
        Ok(Self {
            service: source.unwrap_or_default().service,
            av: OnceLock::new(),
            name: OnceLock::new(),
        })
    }

    /// The peers that it sends to.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] where it has an address vector.
    pub(crate) fn bind(&self, av: &Arc<Av>) -> Result<()> {
        self.av.set(Arc::clone(av)).map_err(|_| Errno::EINVAL)
    }

    pub(crate) fn av(&self) -> Option<Arc<Av>> {
        self.av.get().cloned()
    }

    /// The queue pair is there.
    pub(crate) fn open(&self, port: &Port, qp: &Qp) {
        self.name
            .get_or_init(|| port.name(qp.number(), self.service));
    }

    /// The address of the endpoint.
    ///
    /// # Errors
    /// [`Errno::EOPBADSTATE`] before it is enabled: the device chooses it.
    pub(crate) fn name(&self) -> Result<Address> {
        let name = self.name.get().ok_or(Errno::EOPBADSTATE)?;
        Ok(name.address())
    }
}
