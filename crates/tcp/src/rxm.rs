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
use ripstop_stream::attr::{MATCHED_RX, OPS, packet_offer, provider_version};
use ripstop_stream::{
    EpollOnly, Fabric, HandshakeError, Origin, Os, PacketTerms, ReadBy, Transport, Tunables, rxm,
};
use ripstop_types::{Errno, Flags, Result, Version};
use ripstop_wire::rxm::cm::{Extensions, FlowControl};
use ripstop_wire::xnet::rdm::Greeting;

use crate::params::{self, Params};
use crate::provider::answer;
use crate::socket::{Tcp, TcpSocket, connect};

/// The provider's name.
const NAME: &str = "tcp;ofi_rxm";

/// What connection data says.
const SAYS: rxm::Says = rxm::Says {
    rx_size: 4096,
    flow_control: FlowControl::Off,
    // The messages of the handshake say what else there is.
    extensions: Extensions::empty(),
};

/// The parameters of sockets (`FI_TCP_*`) with those of packets (`FI_OFI_RXM_*`).
#[derive(Debug)]
pub struct RxmParams {
    tcp: Params,
    rxm: rxm::Settings,
    shared: Tunables,
}

impl RxmParams {
    fn read() -> Self {
        let (tcp, rxm) = (Params::read(), rxm::Settings::read());
        let shared = tcp.as_ref().with(rxm.given());
        Self { tcp, rxm, shared }
    }
}

impl AsRef<Tunables> for RxmParams {
    fn as_ref(&self) -> &Tunables {
        &self.shared
    }
}

/// TCP with messages in packets.
#[derive(Debug)]
pub struct RxmTcp;

impl Transport for RxmTcp {
    const NAME: &'static str = NAME;
    const PARAMS: &'static str = params::NAME;
    const CONNECTED: bool = false;
    const AFTER_READS: bool = false;
    type Params = RxmParams;
    type Addr = SocketAddr;
    type Link = TcpSocket;
    type Listener = TcpSocket;
    type System = Os;
    type Readiness = EpollOnly;

    fn default_source(params: &RxmParams) -> SocketAddr {
        Tcp::default_source(&params.tcp)
    }

    fn bind(params: &RxmParams, addr: &SocketAddr) -> Result<TcpSocket> {
        Tcp::bind(&params.tcp, addr)
    }

    /// There are no contexts in packets.
    fn bind_contexts(_: &RxmParams, addr: &SocketAddr, count: usize) -> Result<Vec<TcpSocket>> {
        fi_warn!(
            NAME,
            Subsys::EpCtrl,
            "{addr}: an endpoint with {count} contexts is refused: there are none in FI_PROTO_RXM; \
             use the provider tcp"
        );
        Err(Errno::EOPNOTSUPP)
    }

    fn connect(_: &RxmParams, to: &SocketAddr, from: Origin<Self>) -> Result<(TcpSocket, Connect)> {
        connect(to, from)
    }

    fn prepare(params: &RxmParams, link: &TcpSocket, dscp: Option<u8>) -> Result<()> {
        Tcp::prepare(&params.tcp, link, dscp)
    }

    fn request_data(
        params: &RxmParams,
        _: &mut EpollOnly,
        _: &TcpSocket,
        own: &SocketAddr,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        SAYS.request(params.rxm.eager_max, own.port(), greeting.pid)
    }

    fn read_request(
        params: &RxmParams,
        _: &mut EpollOnly,
        _: &TcpSocket,
        from: &SocketAddr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, SocketAddr), HandshakeError> {
        rxm::read_request(params.rxm.eager_max, from, data)
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

    fn is_in_packets(_: &RxmParams) -> bool {
        true
    }

    fn max_atomic(params: &RxmParams) -> usize {
        params.rxm.max_atomic()
    }

    fn packets(params: &RxmParams, data: &[u8]) -> Option<PacketTerms> {
        rxm::terms(data, (params.rxm.eager_max, 0), ReadBy::Stream, SAYS)
    }

    fn refusal_data(_: &[u8], connected: bool) -> Vec<u8> {
        rxm::refusal(connected)
    }
}

/// The provider named `tcp;ofi_rxm`.
#[derive(Debug)]
pub struct RxmTcpProvider {
    params: Arc<RxmParams>,
}

impl Default for RxmTcpProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl RxmTcpProvider {
    /// Reads the parameters of packets (`FI_OFI_RXM_*`) and of sockets (`FI_TCP_*`).
    #[must_use]
    pub fn new() -> Self {
        Self {
            params: Arc::new(RxmParams::read()),
        }
    }

    fn offer(&self) -> Info {
        packet_offer::<RxmTcp>(&self.params.shared, OPS | Flags::TAGGED, MATCHED_RX)
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
        let params = &self.params;
        let mut answer = answer(NAME, &params.tcp, &params.shared, request, [&self.offer()]);
        let infos = answer.infos.iter_mut();
        infos.for_each(|info| params.rxm.apply(info, request.hints));
        answer
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
