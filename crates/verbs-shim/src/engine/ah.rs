//! Address handles, and the way back to who has sent a datagram.

use std::net::IpAddr;

use ripstop_types::{Errno, Result};

use crate::device::ip_of;
use crate::engine::{Engine, GRH};
use crate::log::{Subsys, refuse};
use crate::net;
use crate::sys::{IBV_WC_GRH, ibv_ah_attr, ibv_gid, ibv_wc};

impl Engine {
    /// Makes an address handle of a protection domain: the address of a device.
    ///
    /// # Errors
    /// `EINVAL` for one without a gid, `EOPNOTSUPP` for a group, `EHOSTUNREACH` for one that the provider does not
    /// reach.
    pub(crate) fn create_ah(&self, pd: u32, attr: &ibv_ah_attr) -> Result<IpAddr> {
        let wrong = |errno, why: &str| {
            let why = format_args!("an address handle: {why}");
            Err(refuse(Subsys::Av, errno, why))
        };
        if attr.is_global == 0 {
            let why = "peers are found by gid (is_global): choose gid index 0";
            return wrong(Errno::EINVAL, why);
        }
        if attr.sgid_index != 0 || attr.port_num != 1 {
            return wrong(Errno::EINVAL, "there is port 1 only, with gid index 0");
        }
        let ip = ip_of(attr.dgid);
        if ip.is_multicast() {
            return wrong(Errno::EOPNOTSUPP, "there is no multicast");
        }
        if self.choice.kind == net::Kind::Shm && ip != self.choice.ip {
            let why = "its device is not of this host, and shm reaches no other";
            return wrong(Errno::EHOSTUNREACH, why);
        }
        let mut inner = self.inner.lock();
        *inner.pds.get_mut(pd as usize).ok_or(Errno::EINVAL)? += 1;
        Ok(ip)
    }

    /// Destroys an address handle. Datagrams that are posted go on.
    pub(crate) fn destroy_ah(&self, pd: u32) {
        let mut inner = self.inner.lock();
        if let Some(handles) = inner.pds.get_mut(pd as usize) {
            *handles = handles.saturating_sub(1);
        }
    }
}

/// Attributes of the way to who has sent a datagram (`ibv_init_ah_from_wc`): its completion, and the header in front of
/// it.
///
/// # Errors
/// `EINVAL` for a header that a completion promises and that is not there.
pub(crate) fn way_back(port: u8, wc: &ibv_wc, header: Option<&[u8; GRH]>) -> Result<ibv_ah_attr> {
    let mut attr = ibv_ah_attr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        ..ibv_ah_attr::default()
    };
    if wc.wc_flags & IBV_WC_GRH == 0 {
        return Ok(attr);
    }
    let header = header.ok_or(Errno::EINVAL)?;
    let (first, rest) = header.split_first_chunk::<8>().ok_or(Errno::EINVAL)?;
    let gid = rest.first_chunk::<16>().ok_or(Errno::EINVAL)?;
    let [a, b, c, d, ..] = *first;
    let first = u32::from_be_bytes([a, b, c, d]);
    attr.is_global = 1;
    attr.dgid = ibv_gid(*gid);
    attr.flow_label = first & 0x000f_ffff;
    attr.traffic_class = (first >> 20) as u8;
    attr.hop_limit = 0xff;
    Ok(attr)
}
