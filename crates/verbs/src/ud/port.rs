//! What datagram endpoints of a domain have in common: the port, and where the rest of long datagrams goes.

use std::sync::Arc;

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_ibverbs::{Context, Datagrams, DeviceAttr, Path, Pd, PortAttr, RecvArea, Sge};
use ripstop_types::{Errno, Result};

use crate::params::NAME;
use crate::ud::HEADER;
use crate::ud::Name;

/// What all endpoints take datagrams with, as C libfabric has it.
pub(crate) const QKEY: u32 = 0x1111_1111;

/// The first port of a device that messages can be sent by.
pub(crate) fn active_port(context: &Context, attr: &DeviceAttr) -> Option<(u8, PortAttr)> {
    let ports = (1..=attr.ports).filter_map(|number| Some((number, context.port(number).ok()?)));
    ports.into_iter().find(|(_, port)| port.active)
}

/// The port of a domain.
#[derive(Debug)]
pub(crate) struct Port {
    number: u8,
    gid: [u8; 16],
    gid_index: u8,
    lid: u16,
    sl: u8,
    pkey: u16,
    /// Bytes that a datagram fills at most, with the header.
    longest: usize,
    /// Where what does not fit into a receive goes; nobody reads it.
    spill: RecvArea,
}

impl Port {
    /// The first port of a device that is active.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] where none is; of the device.
    pub(crate) fn open(context: &Arc<Context>, pd: &Arc<Pd>, gid_index: u8) -> Result<Self> {
        let attr = context.attr()?;
        let Some((number, port)) = active_port(context, &attr) else {
            let device = context.name();
            fi_warn!(
                NAME,
                Subsys::Domain,
                "device {device}: none of its ports is active any more"
            );
            return Err(Errno::ENODEV);
        };
        let longest = HEADER + port.mtu;
        Ok(Self {
            number,
            gid: context.gid(number, gid_index.into())?,
            gid_index,
            lid: port.lid,
            sl: port.sm_sl,
            pkey: context.pkey(number, 0)?,
            longest,
            spill: RecvArea::new(pd, longest)?,
        })
    }

    /// What queue pairs are made with.
    pub(crate) fn datagrams(&self) -> Datagrams {
        Datagrams {
            port: self.number,
            qkey: QKEY,
        }
    }

    /// The name of a queue pair.
    pub(crate) fn name(&self, qp: u32, service: u16) -> Name {
        Name {
            gid: self.gid,
            qp,
            lid: self.lid,
            pkey: self.pkey.to_be_bytes(),
            service,
            sl: self.sl,
        }
    }

    /// The way to a peer.
    pub(crate) fn path(&self, peer: &Name) -> Path {
        Path {
            port: self.number,
            lid: peer.lid,
            sl: peer.sl,
            gid: peer.has_gid().then_some((peer.gid, self.gid_index)),
        }
    }

    /// The piece of memory for what is longer than a receive of `len` bytes. Without it, the device would take
    /// a datagram that does not fit for the program's fault, and receive no more.
    pub(crate) fn rest(&self, len: usize) -> Option<Sge> {
        let rest = self.longest.checked_sub(len).filter(|rest| *rest > 0)?;
        self.spill.sge(0, rest).ok()
    }
}
