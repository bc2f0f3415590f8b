//! RDMA devices as a transport of reliable datagram endpoints.

use std::net::SocketAddr;

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_os::Connect;
use ripstop_stream::{HandshakeError, Origin, Os, PacketTerms, ReadBy, Transport};
use ripstop_types::{Errno, Result};
use ripstop_wire::rxm::ATOMIC_LEN;
use ripstop_wire::rxm::cm::{self, Answer, EAGER_MAX, FlowControl, Number, Reason};
use ripstop_wire::xnet::rdm::Greeting;
use ripstop_wire::{ByteOrder, WireError};

use crate::rxm::NAME;
use crate::rxm::link::RdmaLink;
use crate::rxm::listener::RdmaListener;
use crate::rxm::params::Params;
use crate::rxm::readiness::RdmaReadiness;

/// What connection data says of the size of the receive queue. Nobody reads it.
const RX_SIZE: u32 = 64;

/// Messages to one peer whose memory is registered for it at a time.
const ANNOUNCED_MAX: u16 = 256;

/// Most bytes of memory that one atomic changes: as over tcp.
const MAX_ATOMIC: usize = (EAGER_MAX as usize - ATOMIC_LEN) / 2;

/// See the module.
#[derive(Debug)]
pub struct RxmVerbs;

const fn number(pid: u32) -> Number {
    Number { pid, index: 0 }
}

/// What a peer says of itself, in the terms of a greeting of xnet.
const fn greeting(port: u16, number: Number) -> Greeting {
    Greeting {
        version: 0,
        features: 0,
        port,
        pid: number.pid,
    }
}

fn emitted<const N: usize>(bytes: core::result::Result<[u8; N], WireError>) -> Result<Vec<u8>> {
    bytes
        .map(|bytes| bytes.to_vec())
        .map_err(|error| error.errno())
}

impl Transport for RxmVerbs {
    const NAME: &'static str = NAME;
    const CONNECTED: bool = false;
    const AFTER_READS: bool = false;
    type Params = Params;
    type Addr = SocketAddr;
    type Link = RdmaLink;
    type Listener = RdmaListener;
    type System = Os;
    type Readiness = RdmaReadiness;

    fn default_source(params: &Params) -> SocketAddr {
        params.first_address()
    }

    fn bind(params: &Params, addr: &SocketAddr) -> Result<RdmaListener> {
        let ip = match addr.ip() {
            ip if ip.is_unspecified() => params.first_address().ip(),
            ip => ip,
        };
        RdmaListener::bind(&SocketAddr::new(ip, addr.port()))
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

    fn connect(_: &Params, to: &SocketAddr, from: Origin<Self>) -> Result<(RdmaLink, Connect)> {
        let from = match from {
            Origin::Listening(addr) => Some(addr),
            Origin::Address(addr) => addr,
            Origin::Bound(_) => None,
        };
        RdmaLink::to(to, from).map(|link| (link, Connect::Connected))
    }

    fn prepare(_: &Params, _: &RdmaLink, _: Option<u8>) -> Result<()> {
        Ok(())
    }

    fn request_data(
        _: &mut RdmaReadiness,
        _: &RdmaLink,
        own: &SocketAddr,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        let request = cm::Request {
            port: own.port(),
            flow_control: FlowControl::On,
            eager_max: EAGER_MAX,
            rx_size: RX_SIZE,
            number: number(greeting.pid),
        };
        emitted(request.emit(ByteOrder::NATIVE))
    }

    fn read_request(
        _: &mut RdmaReadiness,
        _: &RdmaLink,
        from: &SocketAddr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, SocketAddr), HandshakeError> {
        let request = cm::Request::parse(ByteOrder::NATIVE, data).map_err(HandshakeError::Wrong)?;
        if request.eager_max != EAGER_MAX {
            return Err(HandshakeError::Wrong(WireError::RxmEagerMax {
                found: request.eager_max,
                expected: EAGER_MAX,
            }));
        }
        let peer = SocketAddr::new(from.ip(), request.port);
        Ok((greeting(request.port, request.number), peer))
    }

    fn reply_data(_: &mut RdmaReadiness, _: &RdmaLink, greeting: Greeting) -> Result<Vec<u8>> {
        let answer = Answer {
            number: number(greeting.pid),
            rx_size: RX_SIZE,
            flow_control: FlowControl::On,
        };
        emitted(answer.emit(ByteOrder::NATIVE))
    }

    fn read_reply(
        _: &mut RdmaReadiness,
        _: &RdmaLink,
        data: &[u8],
    ) -> core::result::Result<Greeting, HandshakeError> {
        let answer = Answer::parse(ByteOrder::NATIVE, data).map_err(HandshakeError::Wrong)?;
        Ok(greeting(0, answer.number))
    }

    fn is_in_packets(_: &Params) -> bool {
        true
    }

    fn max_atomic(_: &Params) -> usize {
        MAX_ATOMIC
    }

    fn packets(_: &Params, data: &[u8]) -> Option<PacketTerms> {
        let asked = cm::Request::parse(ByteOrder::NATIVE, data).map(|request| request.number);
        let number =
            asked.or_else(|_| Answer::parse(ByteOrder::NATIVE, data).map(|answer| answer.number));
        number.ok().map(|number| PacketTerms {
            number: number.in_packets(),
            eager_max: u64::from(EAGER_MAX),
            announced: ReadBy::Device(ANNOUNCED_MAX),
        })
    }

    fn refusal_data(_: &[u8], connected: bool) -> Vec<u8> {
        let reason = match connected {
            true => Reason::Connected,
            false => Reason::Refused,
        };
        reason.emit().to_vec()
    }
}
