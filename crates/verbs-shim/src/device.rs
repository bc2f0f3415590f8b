//! The device `ripstop0`: which provider and address it has, and what it says of itself.

use core::ffi::{c_char, c_int};
use std::net::{IpAddr, Ipv6Addr};

use ripstop_core::ip::local_addresses;
use ripstop_os::net::{interfaces, is_local};
use ripstop_types::{Errno, Result};

use crate::log::{Subsys, refuse};
use crate::net::Kind;
use crate::sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_TIMEOUT,
    compat_ibv_port_attr, ibv_device_attr, ibv_gid, ibv_qp_attr,
};

/// The device's name.
pub(crate) const NAME: &str = "ripstop0";

/// Most queue pairs of an open device.
pub(crate) const MAX_QP: usize = 4096;

/// Most shared receive queues of an open device.
pub(crate) const MAX_SRQ: usize = 4096;

/// Most requests of a queue.
pub(crate) const MAX_QP_WR: u32 = 32768;

/// Most entries of a completion queue.
pub(crate) const MAX_CQE: usize = 1 << 22;

/// Most scatter-gather elements of a request.
pub(crate) const MAX_SGE: usize = 4;

/// Most bytes of a message, read or write.
pub(crate) const MAX_MSG: u64 = 1 << 30;

/// Most bytes inline.
pub(crate) const MAX_INLINE: u32 = 1024;

/// Most reads and atomics of a queue pair at a time. They are not counted: this is what programs may say.
const MAX_READS: u8 = 128;

/// The variable that names the provider.
const PROVIDER: &str = "RIPSTOP_VERBS_PROVIDER";

/// The variable that names the address.
const ADDRESS: &str = "RIPSTOP_VERBS_ADDRESS";

/// What the environment, or the machine, chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) kind: Kind,
    pub(crate) ip: IpAddr,
}

/// Chooses the provider and the address of the device.
///
/// # Errors
/// `EINVAL` for values of the environment that mean nothing, `EADDRNOTAVAIL` for an address that is not of
/// this machine.
pub(crate) fn choose() -> Result<Choice> {
    let name = std::env::var(PROVIDER).unwrap_or_else(|_| "tcp".into());
    let kind = Kind::from_name(&name).ok_or_else(|| {
        let why = format_args!("{PROVIDER}={name}: there are tcp and shm");
        refuse(Subsys::Core, Errno::EINVAL, why)
    })?;
    let ip = match std::env::var(ADDRESS) {
        Ok(text) => given(&text)?,
        Err(_) => found()?,
    };
    Ok(Choice { kind, ip })
}

/// The address that the environment names.
fn given(text: &str) -> Result<IpAddr> {
    let ip: IpAddr = text.parse().map_err(|_| {
        let why = format_args!("{ADDRESS}={text} is no IP address");
        refuse(Subsys::Core, Errno::EINVAL, why)
    })?;
    if !is_local(ip)? {
        let why = format_args!("{ADDRESS}={text} is no address of this machine");
        return Err(refuse(Subsys::Core, Errno::EADDRNOTAVAIL, why));
    }
    Ok(ip)
}

/// The address of the fastest interface, as `fi_getinfo` has it first.
fn found() -> Result<IpAddr> {
    let first = local_addresses(&interfaces()?, None).into_iter().next();
    first
        .map(|local| local.addr.ip())
        .ok_or(Errno::EADDRNOTAVAIL)
}

/// The gid of an address: of IPv4 the mapped one, as RoCE has it.
pub(crate) fn gid_of(ip: IpAddr) -> ibv_gid {
    let ip = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    ibv_gid(ip.octets())
}

/// The address of a gid.
pub(crate) fn ip_of(gid: ibv_gid) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(gid.0)).to_canonical()
}

/// A guid in network order: the hash of the address, of a company that does not exist.
pub(crate) fn guid(ip: IpAddr) -> u64 {
    let octets = gid_of(ip).0;
    let hash = octets
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
            (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
        });
    (hash & 0x00ff_ffff | 0x0252_4950_ff00_0000).to_be()
}

/// Text as a C array, cut to fit with its NUL.
pub(crate) fn c_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    let room = N.saturating_sub(1);
    for (at, byte) in array.iter_mut().zip(text.bytes().take(room)) {
        *at = byte as c_char;
    }
    array
}

/// What `ibv_query_device` says.
pub(crate) fn attributes(choice: &Choice) -> ibv_device_attr {
    let guid = guid(choice.ip);
    ibv_device_attr {
        fw_ver: c_text(env!("CARGO_PKG_VERSION")),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX >> 1,
        page_size_cap: 0xffff_f000,
        vendor_id: 0,
        vendor_part_id: 0,
        hw_ver: 0,
        max_qp: MAX_QP as c_int,
        max_qp_wr: MAX_QP_WR as c_int,
        // IBV_DEVICE_SRQ_RESIZE
        device_cap_flags: 1 << 13,
        max_sge: MAX_SGE as c_int,
        max_sge_rd: MAX_SGE as c_int,
        max_cq: 65536,
        max_cqe: MAX_CQE as c_int,
        max_mr: 1 << 20,
        max_pd: 65536,
        max_qp_rd_atom: MAX_READS.into(),
        max_ee_rd_atom: 0,
        max_res_rd_atom: c_int::from(MAX_READS) * MAX_QP as c_int,
        max_qp_init_rd_atom: MAX_READS.into(),
        max_ee_init_rd_atom: 0,
        // IBV_ATOMIC_HCA: among queue pairs of this device.
        atomic_cap: 1,
        // Address handles are the only ones of these.
        ee_to_fmr: [0, 0, 0, 0, 0, 0, 0, 0, 1 << 20, 0, 0],
        max_srq: MAX_SRQ as c_int,
        max_srq_wr: MAX_QP_WR as c_int,
        max_srq_sge: MAX_SGE as c_int,
        max_pkeys: 1,
        local_ca_ack_delay: 0,
        phys_port_cnt: 1,
    }
}

/// What `ibv_query_port` says: a port as RoCE has it.
pub(crate) fn port() -> compat_ibv_port_attr {
    compat_ibv_port_attr {
        // IBV_PORT_ACTIVE
        state: 4,
        // IBV_MTU_4096
        max_mtu: 5,
        active_mtu: 5,
        gid_tbl_len: 1,
        // IBV_PORT_CM_SUP and IBV_PORT_IP_BASED_GIDS
        port_cap_flags: 1 << 16 | 1 << 26,
        max_msg_sz: MAX_MSG as u32,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        // 4 lanes of 10 Gbit/s
        active_width: 2,
        active_speed: 4,
        phys_state: 5,
        // IBV_LINK_LAYER_ETHERNET
        link_layer: 2,
        flags: 0,
    }
}

/// The only partition key: the default one, in network order.
pub(crate) const PKEY: u16 = 0xffff;

/// Takes over the attributes that a mask names, for `ibv_query_qp`.
pub(crate) fn keep(kept: &mut ibv_qp_attr, attr: &ibv_qp_attr, mask: c_int) {
    let has = |bit: c_int| mask & bit != 0;
    macro_rules! keep {
        ($($bit:ident: $($field:ident),*;)*) => { $(
            if has($bit) {
                $(kept.$field = attr.$field;)*
            }
        )* };
    }
    keep! {
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_PORT: port_num;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_DEST_QPN: dest_qp_num;
        IBV_QP_QKEY: qkey;
    }
}
