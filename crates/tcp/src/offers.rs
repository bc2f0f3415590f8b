//! What the provider offers (man page `fi_getinfo(3)`).

use ripstop_core::{Info, SHARED_CONTEXT};
use ripstop_types::{AddrFormat, EpType, Flags, Protocol};

use crate::params::Params;
use crate::socket::Tcp;
use ripstop_stream::attr::{MATCHED_RX, OPS, Offer, RDM_DOMAIN, SOURCES, offer};

/// The offers: reliable datagram endpoints, connected endpoints, connected endpoints with a shared
/// receive context. The first has the most capabilities, and is first for that: a program that
/// takes the first answer to no hints as it is, or asks again for its capabilities, as MPICH does,
/// leaves out what the others lack (`FI_DIRECTED_RECV`, `FI_SOURCE`). With the C library reliable
/// datagrams come first as well.
pub(crate) fn offers(params: &Params) -> [Info; 3] {
    let msg = Offer {
        ep_type: EpType::Msg,
        addr_format: AddrFormat::SockaddrIp,
        protocol: Protocol::SockTcp,
        protocol_version: 0,
        domain_caps: Flags::LOCAL_COMM | Flags::REMOTE_COMM,
        ops: OPS | Flags::TAGGED,
        rx_caps: MATCHED_RX,
        rx_ctx_cnt: 1,
    };
    let shared = Offer {
        rx_ctx_cnt: SHARED_CONTEXT,
        ..msg
    };
    let rdm = Offer {
        ep_type: EpType::Rdm,
        protocol: Protocol::Xnet,
        protocol_version: 1,
        domain_caps: msg.domain_caps | RDM_DOMAIN,
        ops: msg.ops | Flags::COLLECTIVE,
        rx_caps: MATCHED_RX | SOURCES,
        ..msg
    };
    [rdm, msg, shared].map(|kind| offer::<Tcp>(params.as_ref(), &kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_offer_has_all_capabilities_of_the_others() {
        let [first, others @ ..] = offers(&Params::read());
        assert_eq!(first.ep.ep_type, EpType::Rdm);
        for other in others {
            assert!(first.caps.contains(other.caps), "{:?}", other.caps);
        }
    }
}
