//! RDMA devices as a transport of reliable datagram endpoints.

use std::net::SocketAddr;
use std::time::Duration;

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_os::Connect;
use ripstop_stream::{
    ConnectionBound, HandshakeError, Origin, Os, PacketTerms, ReadBy, Transport, rxm,
};
use ripstop_types::{Errno, Result};
use ripstop_wire::rxm::cm::{Extensions, FlowControl};
use ripstop_wire::xnet::rdm::Greeting;

use crate::rxm::NAME;
use crate::rxm::link::RdmaLink;
use crate::rxm::listener::RdmaListener;
use crate::rxm::params::{self, Params};
use crate::rxm::pipe::Shape;
use crate::rxm::readiness::RdmaReadiness;

/// What connection data says.
const SAYS: rxm::Says = rxm::Says {
    rx_size: 64,
    flow_control: FlowControl::On,
    extensions: Extensions::all(),
};

/// Making a connection anew costs many messages' time, so one that was used a moment ago stays.
const LEAST_IDLE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct RxmVerbs;

impl Transport for RxmVerbs {
    const NAME: &'static str = NAME;
    const PARAMS: &'static str = params::OURS;
    const CONNECTED: bool = false;
    const AFTER_READS: bool = false;
    type Params = Params;
    type Addr = SocketAddr;
    type Link = RdmaLink;
    type Listener = RdmaListener;
    type System = Os;
    type Readiness = RdmaReadiness;

    fn default_source(params: &Params) -> SocketAddr {
        params.first_address(None)
    }

    /// Peers reach an endpoint by the device that its domain's memory is registered with.
    fn rdm_source(params: &Params, domain: Option<&str>, asked: Option<SocketAddr>) -> SocketAddr {
        match asked {
            Some(addr) if !addr.ip().is_unspecified() => addr,
            _ => {
                let mut own = params.first_address(domain);
                own.set_port(asked.map_or(0, |addr| addr.port()));
                own
            }
        }
    }

    fn bind(params: &Params, addr: &SocketAddr) -> Result<RdmaListener> {
        RdmaListener::bind(addr, Shape::new(params))
    }

    /// There are no contexts in packets.
    fn bind_contexts(_: &Params, addr: &SocketAddr, count: usize) -> Result<Vec<RdmaListener>> {
        fi_warn!(
            NAME,
            Subsys::EpCtrl,
            "{addr}: an endpoint with {count} contexts is refused: there are none in FI_PROTO_RXM; \
             use the provider tcp"
        );
        Err(Errno::EOPNOTSUPP)
    }

    fn connect(
        params: &Params,
        to: &SocketAddr,
        from: Origin<Self>,
    ) -> Result<(RdmaLink, Connect)> {
        let from = match from {
            Origin::Listening(addr) => Some(addr),
            Origin::Address(addr) => addr,
            Origin::Bound(_) => None,
        };
        RdmaLink::to(to, from, Shape::new(params)).map(|link| (link, Connect::Connected))
    }

    fn prepare(_: &Params, _: &RdmaLink, _: Option<u8>) -> Result<()> {
        Ok(())
    }

    fn request_data(
        params: &Params,
        _: &mut RdmaReadiness,
        _: &RdmaLink,
        own: &SocketAddr,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        SAYS.request(params.rxm.eager_max, own.port(), greeting.pid)
    }

    fn read_request(
        params: &Params,
        _: &mut RdmaReadiness,
        _: &RdmaLink,
        from: &SocketAddr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, SocketAddr), HandshakeError> {
        rxm::read_request(params.rxm.eager_max, from, data)
    }

    fn reply_data(_: &mut RdmaReadiness, _: &RdmaLink, greeting: Greeting) -> Result<Vec<u8>> {
        SAYS.reply(greeting.pid)
    }

    fn read_reply(
        _: &mut RdmaReadiness,
        _: &RdmaLink,
        data: &[u8],
    ) -> core::result::Result<Greeting, HandshakeError> {
        rxm::read_reply(data)
    }

    fn is_in_packets(_: &Params) -> bool {
        true
    }

    fn max_atomic(params: &Params) -> usize {
        params.rxm.max_atomic()
    }

    fn packets(params: &Params, data: &[u8]) -> Option<PacketTerms> {
        let longest = (params.rxm.eager_max, params.rxm.segmented_max);
        rxm::terms(data, longest, ReadBy::Device, SAYS)
    }

    fn connection_bound(params: &Params) -> Option<ConnectionBound> {
        (params.max_connections > 0).then_some(ConnectionBound {
            most: params.max_connections,
            idle: LEAST_IDLE,
        })
    }

    fn refusal_data(_: &[u8], connected: bool) -> Vec<u8> {
        rxm::refusal(connected)
    }
}
