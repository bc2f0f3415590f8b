//! Attributes of the objects of an interface (man page `fi_getinfo(3)`): parts of [`Info`](crate::Info).

use ripstop_types::{
    AvType, EpType, Flags, Mode, MrMode, MsgOrder, Progress, Protocol, ResourceMgmt, Threading,
    Version,
};

use crate::token::FidToken;

/// `FI_SHARED_CONTEXT`: as a context count, use a shared transmit or receive context.
pub const SHARED_CONTEXT: usize = usize::MAX;

/// `FI_AV_AUTH_KEY`: as an authentication key size, keys are given per address vector entry.
pub const AUTH_KEY_PER_AV: usize = usize::MAX;

/// Transmit attributes (`struct fi_tx_attr`, man page `fi_endpoint(3)`).
///
/// In [`Hints`](crate::Hints), zero means no preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxAttr {
    /// Capabilities of the transmit context.
    pub caps: Flags,
    /// What the application must promise (offered) or promises (asked).
    pub mode: Mode,
    /// Flags that apply to operations that take no flags.
    pub op_flags: Flags,
    /// Orders the provider keeps between messages.
    pub msg_order: MsgOrder,
    /// Completion order (`FI_ORDER_*`); withdrawn in 2.0, so 0.
    pub comp_order: u64,
    /// Largest injected message in bytes.
    pub inject_size: usize,
    /// Operations that can be outstanding at least; more may be.
    pub size: usize,
    /// Entries of a local I/O vector.
    pub iov_limit: usize,
    /// Entries of a remote I/O vector.
    pub rma_iov_limit: usize,
    /// Traffic class (`FI_TC_*`).
    pub tclass: u32,
}

/// Receive attributes (`struct fi_rx_attr`, man page `fi_endpoint(3)`).
///
/// In [`Hints`](crate::Hints), zero means no preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RxAttr {
    /// Capabilities of the receive context.
    pub caps: Flags,
    /// What the application must promise (offered) or promises (asked).
    pub mode: Mode,
    /// Flags that apply to operations that take no flags.
    pub op_flags: Flags,
    /// Orders the provider keeps between messages.
    pub msg_order: MsgOrder,
    /// Completion order (`FI_ORDER_*`); withdrawn in 2.0, so 0.
    pub comp_order: u64,
    /// Bytes buffered for unexpected messages; withdrawn in 2.0, so 0.
    pub total_buffered_recv: usize,
    /// Buffers that are expected to be posted; more may be.
    pub size: usize,
    /// Entries of a local I/O vector.
    pub iov_limit: usize,
}

/// Endpoint attributes (`struct fi_ep_attr`, man page `fi_endpoint(3)`).
///
/// In [`Hints`](crate::Hints), zero and `Unspec` mean no preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpAttr {
    /// Connected, datagram or reliable datagram.
    pub ep_type: EpType,
    /// What is spoken on the wire.
    pub protocol: Protocol,
    /// Version of the protocol; a caller asks for the lowest it accepts.
    pub protocol_version: u32,
    /// Largest message in bytes.
    pub max_msg_size: usize,
    /// Bytes reserved before each message with [`Mode::MSG_PREFIX`].
    pub msg_prefix_size: usize,
    /// Largest read-after-write in bytes whose data is ordered.
    pub max_order_raw_size: usize,
    /// Largest write-after-read in bytes whose data is ordered.
    pub max_order_war_size: usize,
    /// Largest write-after-write in bytes whose data is ordered.
    pub max_order_waw_size: usize,
    /// Which tag bits form fields; its highest set bit bounds the usable tags.
    pub mem_tag_format: u64,
    /// Transmit contexts, or [`SHARED_CONTEXT`].
    pub tx_ctx_cnt: usize,
    /// Receive contexts, or [`SHARED_CONTEXT`].
    pub rx_ctx_cnt: usize,
    /// Bytes of the authentication key. An offer may state a size without a key.
    pub auth_key_size: usize,
    /// The authentication key; empty for none.
    pub auth_key: Vec<u8>,
}

/// Domain attributes (`struct fi_domain_attr`, man page `fi_domain(3)`).
///
/// In [`Hints`](crate::Hints), zero, `Unspec` and `None` mean no preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainAttr {
    /// An open domain that the answer must belong to.
    pub domain: Option<FidToken>,
    /// Name of the domain, for IP providers the interface (`eth0`).
    pub name: Option<String>,
    /// What the application serialises.
    pub threading: Threading,
    /// Who drives control operations.
    pub control_progress: Progress,
    /// Who drives data transfers (also called `data_progress`).
    pub progress: Progress,
    /// Who prevents overruns.
    pub resource_mgmt: ResourceMgmt,
    /// Type of address vectors.
    pub av_type: AvType,
    /// Registration duties of the application.
    pub mr_mode: MrMode,
    /// Bytes of a memory key.
    pub mr_key_size: usize,
    /// Bytes of remote completion queue data.
    pub cq_data_size: usize,
    /// Completion queues that work well.
    pub cq_cnt: usize,
    /// Endpoints that work well.
    pub ep_cnt: usize,
    /// Transmit contexts of the domain.
    pub tx_ctx_cnt: usize,
    /// Receive contexts of the domain.
    pub rx_ctx_cnt: usize,
    /// Transmit contexts of one endpoint.
    pub max_ep_tx_ctx: usize,
    /// Receive contexts of one endpoint.
    pub max_ep_rx_ctx: usize,
    /// Shared transmit contexts of one endpoint.
    pub max_ep_stx_ctx: usize,
    /// Shared receive contexts of one endpoint.
    pub max_ep_srx_ctx: usize,
    /// Counters that work well.
    pub cntr_cnt: usize,
    /// I/O vector entries of one registration.
    pub mr_iov_limit: usize,
    /// Capabilities of the domain (`FI_LOCAL_COMM`, ...).
    pub caps: Flags,
    /// What the application must promise (offered) or promises (asked).
    pub mode: Mode,
    /// Default authentication key; empty for none.
    pub auth_key: Vec<u8>,
    /// Bytes of the authentication key, or [`AUTH_KEY_PER_AV`].
    pub auth_key_size: usize,
    /// Bytes of provider data in an error entry.
    pub max_err_data: usize,
    /// Registrations that work well.
    pub mr_cnt: usize,
    /// Default traffic class (`FI_TC_*`).
    pub tclass: u32,
    /// Authentication keys of one endpoint.
    pub max_ep_auth_key: usize,
    /// Highest group id of a message (`FI_PEER` groups).
    pub max_group_id: u32,
    /// Highest success count of a counter.
    pub max_cntr_value: u64,
    /// Highest error count of a counter.
    pub max_err_cntr_value: u64,
}

impl DomainAttr {
    /// For hints: this threading level, control operations and data transfers that are driven alike, and no other
    /// preference.
    #[must_use]
    pub fn driven(threading: Threading, progress: Progress) -> Self {
        Self {
            threading,
            control_progress: progress,
            progress,
            ..Self::default()
        }
    }
}

/// Fabric attributes (`struct fi_fabric_attr`, man page `fi_fabric(3)`).
///
/// In [`Hints`](crate::Hints), zero and `None` mean no preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FabricAttr {
    /// An open fabric that the answer must belong to.
    pub fabric: Option<FidToken>,
    /// Name of the fabric, for IP providers the network (`192.168.0.0/24`).
    pub name: Option<String>,
    /// Name of the provider; in hints a list (`tcp;shm`, `^udp`).
    pub prov_name: Option<String>,
    /// Version of the provider; a caller asks for the lowest it accepts.
    pub prov_version: u32,
    /// Interface version the caller was written for.
    pub api_version: Version,
}
