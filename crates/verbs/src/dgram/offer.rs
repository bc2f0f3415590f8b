//! What is offered of a device's datagrams (man page `fi_getinfo(3)`).

use ripstop_core::hints::Request;
use ripstop_core::registry::Refusal;
use ripstop_core::{DomainAttr, EpAttr, Hints, Info, RxAttr, TxAttr};
use ripstop_types::{AddrFormat, EpType, Errno, Flags, Mode, Protocol, flags};

use crate::devices::Device;
use crate::offer::{COMM, apply_defaults, offer, rx_mode};
use crate::params::{IOV_MOST, Params};
use crate::ud::Name;
use crate::ud::{HEADER, SUFFIX};

const TX_CAPS: Flags = flags![MSG SEND];
const RX_CAPS: Flags = flags![MSG RECV];

/// The offer of a device for datagrams.
fn offer_datagrams(device: &Device, inline: usize, params: &Params, hints: Option<&Hints>) -> Info {
    let connected = offer(device, params, None);
    let mode = Mode::MSG_PREFIX;
    // A piece more is for what is longer than a receive.
    let pieces = device.attr.max_sge.saturating_sub(1).min(IOV_MOST - 1);
    let most = device.port.mtu.min(device.port.max_msg as usize);
    let name = format!("{}{SUFFIX}", device.name);
    Info {
        caps: TX_CAPS | RX_CAPS | COMM,
        mode: match hints {
            None => mode | rx_mode(hints),
            Some(_) => mode,
        },
        addr_format: AddrFormat::IbUd,
        tx: TxAttr {
            caps: TX_CAPS,
            inject_size: inline,
            ..connected.tx
        },
        rx: RxAttr {
            caps: RX_CAPS,
            mode: mode | rx_mode(hints),
            iov_limit: params.rx_iov_limit.min(pieces),
            ..connected.rx
        },
        ep: EpAttr {
            ep_type: EpType::Dgram,
            protocol: Protocol::IbUd,
            max_msg_size: most,
            max_order_raw_size: most,
            max_order_waw_size: most,
            msg_prefix_size: HEADER,
            ..connected.ep
        },
        domain: DomainAttr {
            name: Some(name),
            max_ep_srx_ctx: 0,
            ..connected.domain
        },
        ..connected
    }
}

/// The answer of a device.
///
/// # Errors
/// Why it does not suit.
pub(crate) fn answer(
    device: &Device,
    params: &Params,
    request: &Request<'_>,
) -> core::result::Result<Info, Refusal> {
    let inline = device.datagram_inline.ok_or_else(|| {
        let why = format!("device {} has no queue pairs of datagrams", device.name);
        Refusal::Failed(Errno::ENODATA, why)
    })?;
    let own = Name {
        service: service(request)?,
        ..Name::default()
    };
    // What is left is a name, or nothing: there is no server that knows names by hosts.
    let rest = Request {
        service: None,
        // The service alone is not a source to look for.
        flags: match request.node {
            Some(_) => request.flags,
            None => request.flags - Flags::SOURCE,
        },
        ..*request
    };
    let mut info = rest.answer(&offer_datagrams(device, inline, params, request.hints))?;
    for address in [&info.src_addr, &info.dest_addr].into_iter().flatten() {
        Name::of(address).map_err(|errno| {
            let why = format!(
                "{address} is no address of a datagram endpoint; give one as fi_getname gives it, or none"
            );
            Refusal::Failed(errno, why)
        })?;
    }
    info.src_addr.get_or_insert_with(|| own.address());
    info.addr_format = AddrFormat::IbUd;
    apply_defaults(&mut info, params, request.hints);
    Ok(info)
}

/// The service that an endpoint is to have, a number; 0 for none.
fn service(request: &Request<'_>) -> core::result::Result<u16, Refusal> {
    let wanted = request
        .service
        .filter(|_| request.flags.contains(Flags::SOURCE));
    wanted.map_or(Ok(0), |service| {
        service.parse().map_err(|_| {
            let why = format!("{service}: services of datagram endpoints are numbers up to 65535");
            Refusal::Failed(Errno::EINVAL, why)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ripstop_core::Nic;
    use ripstop_ibverbs::{LinkLayer, PortAttr};
    use ripstop_types::MrMode;

    use super::*;

    fn device(datagram_inline: Option<usize>) -> Device {
        Device {
            name: "rxe0".to_owned(),
            fabric: "IB-0xfe80000000000000".to_owned(),
            attr: ripstop_ibverbs::DeviceAttr {
                firmware: String::new(),
                node_guid: 0,
                vendor_id: 0,
                part_id: 0,
                hardware: 0,
                atomics: true,
                max_mr_size: 1 << 40,
                max_mr: 1000,
                max_qp: 1000,
                max_qp_wr: 4096,
                max_sge: 3,
                max_sge_rd: 3,
                max_cq: 1000,
                max_cqe: 4096,
                max_qp_rd_atom: 16,
                max_qp_init_rd_atom: 16,
                max_srq: 10,
                max_srq_wr: 4096,
                max_srq_sge: 3,
                ports: 1,
            },
            port: PortAttr {
                active: true,
                mtu: 2048,
                max_msg: 1 << 30,
                lid: 0,
                sm_sl: 0,
                gids: 4,
                link: LinkLayer::Ethernet,
                speed: 100_000_000_000,
            },
            inline: 256,
            datagram_inline,
            nic: Arc::new(Nic::default()),
            addresses: Vec::new(),
        }
    }

    fn hints() -> Hints {
        Hints {
            caps: Flags::MSG,
            mode: Mode::MSG_PREFIX,
            ep: Some(EpAttr {
                ep_type: EpType::Dgram,
                ..EpAttr::default()
            }),
            domain: Some(DomainAttr {
                mr_mode: MrMode::LOCAL | MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY,
                ..DomainAttr::default()
            }),
            ..Hints::default()
        }
    }

    fn ask(
        hints: &Hints,
        node: Option<&str>,
        service: Option<&str>,
        flags: Flags,
    ) -> core::result::Result<Info, Refusal> {
        let request = Request {
            version: ripstop_types::Version::CURRENT,
            node,
            service,
            flags,
            hints: Some(hints),
            ..Request::default()
        };
        answer(&device(Some(128)), &Params::read(), &request)
    }

    #[test]
    fn an_offer_is_of_one_packet_behind_a_header() {
        let info = ask(&hints(), None, None, Flags::empty()).expect("an offer");
        assert_eq!(info.domain.name.as_deref(), Some("rxe0-dgram"));
        assert_eq!(
            (info.ep.ep_type, info.ep.protocol),
            (EpType::Dgram, Protocol::IbUd)
        );
        assert_eq!((info.ep.max_msg_size, info.ep.msg_prefix_size), (2048, 40));
        assert_eq!(
            (info.mode, info.rx.mode),
            (Mode::MSG_PREFIX, Mode::MSG_PREFIX)
        );
        assert_eq!(info.tx.mode, Mode::empty());
        assert_eq!(info.tx.inject_size, 128);
        // One piece of the device's three is for what does not fit.
        assert_eq!((info.tx.iov_limit, info.rx.iov_limit), (3, 2));
        assert_eq!(info.src_addr, Some(Name::default().address()));
        assert!(
            !info
                .caps
                .intersects(Flags::RMA | Flags::ATOMIC | Flags::TAGGED)
        );
    }

    #[test]
    fn addresses_are_those_of_queue_pairs() {
        let peer = "fi_addr_ib_ud://fe80::1:12a4/0/ffff/0";
        let info = ask(&hints(), Some(peer), Some("7"), Flags::empty()).expect("an offer");
        assert_eq!(info.dest_addr, Some(peer.parse().expect("an address")));
        let info = ask(&hints(), None, Some("9228"), Flags::SOURCE).expect("an offer");
        let source = info.src_addr.as_ref().map(Name::of).expect("a source");
        assert_eq!(source.expect("a name").service, 9228);
        let ip = Hints {
            dest_addr: Some("fi_sockaddr_in://10.0.0.1:7".parse().expect("an address")),
            ..hints()
        };
        assert!(ask(&ip, None, None, Flags::empty()).is_err());
        for (node, service, flags) in [
            (Some("10.0.0.1"), Some("7"), Flags::empty()),
            (None, Some("http"), Flags::SOURCE),
            (None, Some("70000"), Flags::SOURCE),
        ] {
            let refused = ask(&hints(), node, service, flags).expect_err("refused");
            println!("{refused}");
        }
    }

    #[test]
    fn who_keeps_no_room_for_the_header_is_refused() {
        let without = Hints {
            mode: Mode::empty(),
            ..hints()
        };
        let refused = ask(&without, None, None, Flags::empty()).expect_err("refused");
        assert!(refused.to_string().contains("FI_MSG_PREFIX"), "{refused}");
        let request = Request {
            version: ripstop_types::Version::CURRENT,
            ..Request::default()
        };
        assert!(answer(&device(None), &Params::read(), &request).is_err());
        assert!(answer(&device(Some(0)), &Params::read(), &request).is_ok());
    }
}
