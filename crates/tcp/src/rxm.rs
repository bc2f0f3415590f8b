//! Reliable datagram endpoints in packets over connected ones, `tcp;ofi_rxm`
//! (`docs/design/rxm.md`): a second transport of the same sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use ripstop_core::hints::Request;
use ripstop_core::log::Subsys;
use ripstop_core::provider;
use ripstop_core::registry::{Answer, ProviderInfo};
use ripstop_core::{FabricAttr, Info, fi_warn};
use ripstop_os::Connect;
use ripstop_stream::attr::{MATCHED_RX, OPS, Offer, SOURCES, offer, provider_version};
use ripstop_stream::{
    EpollOnly, Fabric, HandshakeError, Origin, Os, PacketTerms, ReadBy, Transport, rxm,
};
use ripstop_types::{AddrFormat, EpType, Errno, Flags, Protocol, Result, Version};
use ripstop_wire::rxm::cm::FlowControl;
use ripstop_wire::xnet::rdm::Greeting;

use crate::params::Params;
use crate::provider::answer;
use crate::socket::{Tcp, TcpSocket, connect};

/// The provider's name.
const NAME: &str = "tcp;ofi_rxm";

/// What connection data says.
const SAYS: rxm::Says = rxm::Says {
    rx_size: 4096,
    flow_control: FlowControl::Off,
};

/// TCP with messages in packets.
#[derive(Debug)]
pub struct RxmTcp;

impl Transport for RxmTcp {
    const NAME: &'static str = NAME;
    const CONNECTED: bool = false;
    const AFTER_READS: bool = false;
    type Params = Params;
    type Addr = SocketAddr;
    type Link = TcpSocket;
    type Listener = TcpSocket;
    type System = Os;
    type Readiness = EpollOnly;

    fn default_source(params: &Params) -> SocketAddr {
        Tcp::default_source(params)
    }

    fn bind(params: &Params, addr: &SocketAddr) -> Result<TcpSocket> {
        Tcp::bind(params, addr)
    }

    /// There are no contexts in packets.
    fn bind_contexts(_: &Params, addr: &SocketAddr, count: usize) -> Result<Vec<TcpSocket>> {
        fi_warn!(
            NAME,
            Subsys::EpCtrl,
            "{addr}: an endpoint with {count} contexts is refused: there are none in FI_PROTO_RXM; \
             use the provider tcp"
        );
        Err(Errno::EOPNOTSUPP)
    }

    fn connect(_: &Params, to: &SocketAddr, from: Origin<Self>) -> Result<(TcpSocket, Connect)> {
        connect(to, from)
    }

    fn prepare(params: &Params, link: &TcpSocket, dscp: Option<u8>) -> Result<()> {
        Tcp::prepare(params, link, dscp)
    }

    fn request_data(
        _: &mut EpollOnly,
        _: &TcpSocket,
        own: &SocketAddr,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        SAYS.request(own.port(), greeting.pid)
    }

    fn read_request(
        _: &mut EpollOnly,
        _: &TcpSocket,
        from: &SocketAddr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, SocketAddr), HandshakeError> {
        rxm::read_request(from, data)
    }

    fn reply_data(_: &mut EpollOnly, _: &TcpSocket, greeting: Greeting) -> Result<Vec<u8>> {
        SAYS.reply(greeting.pid)
    }

    fn read_reply(
        _: &mut EpollOnly,
        _: &TcpSocket,
        data: &[u8],
    ) -> core::result::Result<Greeting, HandshakeError> {
        rxm::read_reply(data)
    }

    fn is_in_packets(_: &Params) -> bool {
        true
    }

    fn max_atomic(_: &Params) -> usize {
        rxm::MAX_ATOMIC
    }

    fn packets(_: &Params, data: &[u8]) -> Option<PacketTerms> {
        rxm::terms(data, ReadBy::Stream)
    }

    fn refusal_data(_: &[u8], connected: bool) -> Vec<u8> {
        rxm::refusal(connected)
    }
}

/// The provider named `tcp;ofi_rxm`.
#[derive(Debug)]
pub struct RxmTcpProvider {
    params: Arc<Params>,
}

impl Default for RxmTcpProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl RxmTcpProvider {
    /// Reads the parameters of its sockets (`FI_TCP_*`).
    #[must_use]
    pub fn new() -> Self {
        Self {
            params: Arc::new(Params::read()),
        }
    }

    fn offer(&self) -> Info {
        let caps = Flags::LOCAL_COMM | Flags::REMOTE_COMM | Flags::SHARED_AV | Flags::AV_USER_ID;
        let mut info = offer::<RxmTcp>(
            (*self.params).as_ref(),
            &Offer {
                ep_type: EpType::Rdm,
                addr_format: AddrFormat::SockaddrIp,
                protocol: Protocol::Rxm,
                protocol_version: 1,
                domain_caps: caps,
                ops: OPS | Flags::TAGGED,
                rx_caps: MATCHED_RX | SOURCES,
                rx_ctx_cnt: 1,
            },
        );
        info.caps -= Flags::NAMED_RX_CTX;
        info.tx.caps -= Flags::NAMED_RX_CTX;
        (info.domain.max_ep_tx_ctx, info.domain.max_ep_rx_ctx) = (1, 1);
        info
    }
}

impl ProviderInfo for RxmTcpProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> Version {
        provider_version()
    }

    fn is_by_name_only(&self) -> bool {
        true
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        answer(NAME, &self.params, request, [&self.offer()])
    }
}

impl provider::Provider for RxmTcpProvider {
    type Fabric = Fabric<RxmTcp>;

    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Fabric<RxmTcp>>> {
        Ok(Arc::new(Fabric::new(
            attr.clone(),
            Arc::clone(&self.params),
        )))
    }
}
