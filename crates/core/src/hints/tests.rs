//! What real programs ask, against offers like those of the tcp provider.

use ripstop_types::{
    AddrFormat, AvType, EpType, Errno, Flags, Mode, MrMode, MsgOrder, Progress, Protocol,
    ResourceMgmt, Threading, Version,
};

use super::*;
use crate::attr::{DomainAttr, EpAttr, FabricAttr, RxAttr, SHARED_CONTEXT, TxAttr};
use crate::caps::{MSG_DIRECTIONS, RMA_DIRECTIONS};

const COMM: Flags = Flags::LOCAL_COMM.union(Flags::REMOTE_COMM);
const CONTEXTS: Mode = Mode::CONTEXT.union(Mode::CONTEXT2);
const PROVIDER_MR: MrMode = MrMode::VIRT_ADDR
    .union(MrMode::ALLOCATED)
    .union(MrMode::PROV_KEY);

/// Reliable datagrams over TCP; `extra` are capabilities beyond those of libfabric's tcp.
pub(super) fn rdm_offer(extra: Flags) -> Info {
    let messages = Flags::MSG | Flags::TAGGED | Flags::RMA | Flags::RMA_PMEM | extra;
    let tx_caps = messages | Flags::SEND | Flags::READ | Flags::WRITE;
    let rx_caps = messages
        | Flags::RECV
        | Flags::REMOTE_READ
        | Flags::REMOTE_WRITE
        | Flags::RMA_EVENT
        | Flags::DIRECTED_RECV
        | Flags::SOURCE
        | Flags::MULTI_RECV;
    let order = MsgOrder::SAS | MsgOrder::RAW | MsgOrder::WAW | MsgOrder::WAS | MsgOrder::SAW;
    Info {
        caps: COMM | tx_caps | rx_caps,
        addr_format: AddrFormat::SockaddrIp,
        tx: TxAttr {
            caps: tx_caps,
            op_flags: Flags::INJECT
                | Flags::INJECT_COMPLETE
                | Flags::TRANSMIT_COMPLETE
                | Flags::DELIVERY_COMPLETE
                | Flags::COMMIT_COMPLETE
                | Flags::COMPLETION,
            msg_order: order,
            inject_size: 128,
            size: 65536,
            iov_limit: 4,
            rma_iov_limit: 4,
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: rx_caps,
            op_flags: Flags::COMPLETION | Flags::MULTI_RECV,
            msg_order: order,
            size: 65536,
            iov_limit: 4,
            ..RxAttr::default()
        },
        ep: EpAttr {
            ep_type: EpType::Rdm,
            protocol: Protocol::Xnet,
            protocol_version: 1,
            max_msg_size: usize::MAX,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            max_order_raw_size: usize::MAX,
            max_order_waw_size: usize::MAX,
            mem_tag_format: 0xaaaa_aaaa_aaaa_aaaa,
            ..EpAttr::default()
        },
        domain: domain_offer(),
        fabric: FabricAttr {
            name: Some("127.0.0.1/32".into()),
            prov_name: Some("tcp".into()),
            prov_version: Version::new(2, 6).0,
            ..FabricAttr::default()
        },
        ..Info::default()
    }
}

fn domain_offer() -> DomainAttr {
    DomainAttr {
        name: Some("lo".into()),
        threading: Threading::Safe,
        control_progress: Progress::Auto,
        progress: Progress::Auto,
        resource_mgmt: ResourceMgmt::Enabled,
        mr_mode: MrMode::SCALABLE | MrMode::BASIC,
        mr_key_size: 8,
        cq_data_size: 8,
        cq_cnt: 256,
        ep_cnt: 256,
        tx_ctx_cnt: 256,
        rx_ctx_cnt: 256,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        mr_iov_limit: 1,
        caps: COMM,
        ..DomainAttr::default()
    }
}

/// Connected endpoints; with `srx` those that share a receive context.
fn msg_offer(srx: bool) -> Info {
    let mut info = rdm_offer(Flags::empty());
    info.ep.ep_type = EpType::Msg;
    info.ep.protocol = Protocol::SockTcp;
    info.ep.protocol_version = 0;
    info.domain.max_ep_srx_ctx = 8192;
    if srx {
        info.ep.rx_ctx_cnt = SHARED_CONTEXT;
    } else {
        let srx_only = Flags::TAGGED | Flags::DIRECTED_RECV | Flags::SOURCE | Flags::MULTI_RECV;
        info.caps -= srx_only;
        info.tx.caps -= srx_only;
        info.rx.caps -= srx_only;
        info.ep.mem_tag_format = 0;
    }
    info
}

/// An offer that needs the caller to register memory, as verbs does.
fn registering_offer() -> Info {
    let mut info = rdm_offer(Flags::ATOMIC);
    info.domain.mr_mode = PROVIDER_MR | MrMode::LOCAL | MrMode::BASIC;
    info
}

fn hints(caps: Flags, mode: Mode) -> Hints {
    Hints {
        caps,
        mode,
        ep: Some(EpAttr {
            ep_type: EpType::Rdm,
            ..EpAttr::default()
        }),
        ..Hints::default()
    }
}

fn domain(threading: Threading, progress: Progress, mr_mode: MrMode) -> DomainAttr {
    DomainAttr {
        threading,
        progress,
        mr_mode,
        ..DomainAttr::default()
    }
}

fn answer(offer: &Info, hints: &Hints, version: (u16, u16)) -> Info {
    negotiate(offer, Some(hints), Version::new(version.0, version.1))
        .unwrap_or_else(|why| panic!("{why}"))
}

fn refusal(offer: &Info, hints: &Hints, version: (u16, u16)) -> Mismatch {
    negotiate(offer, Some(hints), Version::new(version.0, version.1)).unwrap_err()
}

#[test]
fn open_mpi_mtl() {
    let tagged = Flags::MSG | Flags::TAGGED | COMM | Flags::DIRECTED_RECV;
    let mut ask = hints(tagged, CONTEXTS);
    ask.domain = Some(DomainAttr {
        av_type: AvType::Map,
        resource_mgmt: ResourceMgmt::Enabled,
        cq_data_size: 4,
        ..domain(Threading::Domain, Progress::Unspec, MrMode::empty())
    });
    ask.tx = Some(TxAttr {
        msg_order: MsgOrder::SAS,
        ..TxAttr::default()
    });
    ask.rx = Some(RxAttr {
        msg_order: MsgOrder::SAS,
        ..RxAttr::default()
    });
    let got = answer(&rdm_offer(Flags::empty()), &ask, (1, 18));
    assert_eq!(got.mode, Mode::empty());
    assert_eq!(got.domain.threading, Threading::Domain);
    assert_eq!(got.domain.av_type, AvType::Map);
    assert_eq!(got.domain.progress, Progress::Auto);
    assert_eq!(got.domain.mr_mode, MrMode::empty());
    assert!(!got.caps.contains(Flags::RMA));
    assert!(got.caps.contains(tagged | MSG_DIRECTIONS));
    // Device memory is asked for first, and dropped when refused.
    ask.caps |= Flags::HMEM;
    let why = refusal(&rdm_offer(Flags::empty()), &ask, (1, 18));
    assert_eq!(
        (why.attribute, why.remedy.as_str()),
        ("caps", "drop FI_HMEM")
    );
    assert!(
        answer(&rdm_offer(Flags::empty()), &hints(tagged, CONTEXTS), (1, 9))
            .ep
            .mem_tag_format
            != 0
    );
}

#[test]
fn open_mpi_btl_needs_atomics() {
    let mut ask = hints(Flags::RMA | Flags::ATOMIC, CONTEXTS);
    ask.domain = Some(domain(
        Threading::Safe,
        Progress::Unspec,
        PROVIDER_MR | MrMode::ENDPOINT,
    ));
    ask.tx = Some(TxAttr {
        op_flags: Flags::DELIVERY_COMPLETE,
        ..TxAttr::default()
    });
    assert_eq!(
        refusal(&rdm_offer(Flags::empty()), &ask, (1, 18)).attribute,
        "caps"
    );
    let got = answer(&rdm_offer(Flags::ATOMIC), &ask, (1, 18));
    assert_eq!(got.tx.op_flags, Flags::DELIVERY_COMPLETE);
    assert!(got.caps.contains(RMA_DIRECTIONS));
    assert!(!got.caps.contains(Flags::MSG));
}

#[test]
fn mpich_with_no_hints_and_with_echo() {
    let offer = rdm_offer(Flags::ATOMIC);
    let got = negotiate(&offer, None, Version::CURRENT).unwrap();
    assert_eq!(got.caps, offer.caps);
    assert_eq!(got.domain.max_cntr_value, u64::MAX);
    assert_eq!(got.domain.mr_mode, MrMode::empty());

    let caps = Flags::TAGGED
        | Flags::MSG
        | Flags::MULTI_RECV
        | Flags::RMA
        | Flags::ATOMIC
        | Flags::DIRECTED_RECV
        | RMA_DIRECTIONS;
    let mode = CONTEXTS | Mode::ASYNC_IOV | Mode::RX_CQ_DATA;
    let mut ask = hints(caps, mode);
    ask.domain = Some(DomainAttr {
        av_type: AvType::Table,
        cq_data_size: 4,
        ..domain(Threading::Domain, Progress::Manual, MrMode::ENDPOINT)
    });
    ask.tx = Some(TxAttr {
        op_flags: Flags::COMPLETION | Flags::DELIVERY_COMPLETE,
        msg_order: MsgOrder::SAS,
        ..TxAttr::default()
    });
    let got = answer(&offer, &ask, (2, 6));
    assert_eq!(got.domain.threading, Threading::Domain);
    assert_eq!(got.domain.progress, Progress::Manual);
    assert_eq!(got.domain.control_progress, Progress::Manual);
    assert_eq!(got.domain.av_type, AvType::Table);
    assert!(got.caps.contains(caps));
}

#[test]
fn mercury_waits_on_descriptors_and_names_the_protocol() {
    let caps = Flags::MSG | Flags::TAGGED | Flags::RMA | Flags::DIRECTED_RECV | Flags::MULTI_RECV;
    let mut ask = hints(caps, Mode::ASYNC_IOV | Mode::CONTEXT);
    ask.addr_format = AddrFormat::SockaddrIn;
    ask.domain = Some(DomainAttr {
        resource_mgmt: ResourceMgmt::Enabled,
        cq_data_size: 4,
        name: Some("lo".into()),
        ..domain(
            Threading::Safe,
            Progress::Manual,
            PROVIDER_MR | MrMode::LOCAL | MrMode::ENDPOINT,
        )
    });
    ask.fabric = Some(FabricAttr {
        prov_name: Some("tcp".into()),
        ..FabricAttr::default()
    });
    ask.ep.as_mut().unwrap().protocol = Protocol::Xnet;
    ask.tx = Some(TxAttr {
        size: 512,
        op_flags: Flags::INJECT_COMPLETE,
        ..TxAttr::default()
    });
    ask.rx = Some(RxAttr {
        size: 4096,
        ..RxAttr::default()
    });
    let offer = rdm_offer(Flags::empty());
    let got = answer(&offer, &ask, (1, 20));
    assert_eq!((got.tx.size, got.rx.size), (512, 4096));
    assert_eq!(got.domain.mr_mode, MrMode::empty());
    ask.ep.as_mut().unwrap().protocol = Protocol::Rxm;
    assert_eq!(refusal(&offer, &ask, (1, 20)).attribute, "protocol");
    ask.ep.as_mut().unwrap().protocol = Protocol::Xnet;
    ask.fabric.as_mut().unwrap().prov_name = Some("tcp;ofi_rxm".into());
    assert_eq!(refusal(&offer, &ask, (1, 20)).attribute, "prov_name");
    ask.fabric = None;
    ask.domain.as_mut().unwrap().name = Some("eth7".into());
    assert_eq!(refusal(&offer, &ask, (1, 20)).group, Group::Domain);
}

#[test]
fn openshmem_asks_no_mode_and_automatic_progress() {
    let mut ask = hints(Flags::RMA | Flags::ATOMIC, Mode::empty());
    ask.domain = Some(DomainAttr {
        mr_key_size: 1,
        ..domain(Threading::Completion, Progress::Auto, MrMode::empty())
    });
    ask.tx = Some(TxAttr {
        op_flags: Flags::DELIVERY_COMPLETE,
        inject_size: 16,
        ..TxAttr::default()
    });
    let got = answer(&rdm_offer(Flags::ATOMIC), &ask, (1, 20));
    assert_eq!(got.tx.inject_size, 16);
    assert_eq!(got.domain.progress, Progress::Auto);
    assert_eq!(got.domain.mr_mode, MrMode::empty());
}

#[test]
fn rofi_asks_the_old_basic_mode() {
    let caps = Flags::RMA | Flags::ATOMIC | Flags::MSG | Flags::COLLECTIVE;
    let mut ask = hints(caps, Mode::CONTEXT);
    ask.domain = Some(domain(Threading::Domain, Progress::Manual, MrMode::BASIC));
    let offer = rdm_offer(Flags::ATOMIC | Flags::COLLECTIVE);
    let got = answer(&offer, &ask, (1, 9));
    assert_eq!(got.domain.mr_mode, MrMode::BASIC);
    let why = refusal(&rdm_offer(Flags::ATOMIC), &ask, (1, 9));
    assert_eq!(why.remedy, "drop FI_COLLECTIVE");
}

#[test]
fn nccl_falls_back_from_device_memory() {
    let caps = Flags::TAGGED | Flags::MSG | COMM;
    let mr = PROVIDER_MR | MrMode::LOCAL | MrMode::ENDPOINT;
    let mut ask = hints(caps | Flags::HMEM | Flags::RMA | Flags::READ, CONTEXTS);
    ask.domain = Some(DomainAttr {
        av_type: AvType::Table,
        ..domain(Threading::Safe, Progress::Unspec, mr | MrMode::HMEM)
    });
    let offer = rdm_offer(Flags::empty());
    assert_eq!(refusal(&offer, &ask, (1, 20)).attribute, "caps");
    ask.caps = caps;
    ask.domain.as_mut().unwrap().mr_mode = mr;
    for version in [(1, 20), (1, 18), (1, 6)] {
        let got = answer(&offer, &ask, version);
        assert_eq!(got.domain.mr_mode, MrMode::empty());
        assert!(!got.caps.contains(Flags::RMA));
    }
}

#[test]
fn nixl_discovers_with_every_mode_bit() {
    let mut ask = hints(Flags::MSG | Flags::RMA | COMM, Mode::CONTEXT);
    let any = MrMode::from_bits_retain(!3);
    ask.domain = Some(domain(Threading::Completion, Progress::Unspec, any));
    let got = answer(&rdm_offer(Flags::empty()), &ask, (1, 18));
    assert_eq!(got.domain.mr_mode, MrMode::empty());
    let got = answer(&registering_offer(), &ask, (1, 18));
    assert_eq!(got.domain.mr_mode, PROVIDER_MR | MrMode::LOCAL);
}

#[test]
fn oneccl_and_lci() {
    let mut ask = hints(Flags::TAGGED, Mode::CONTEXT);
    ask.domain = Some(domain(Threading::Unspec, Progress::Manual, MrMode::empty()));
    let got = answer(&rdm_offer(Flags::empty()), &ask, (2, 6));
    assert_eq!(got.domain.threading, Threading::Safe);
    assert_eq!(got.caps & caps::PRIMARY, Flags::TAGGED | MSG_DIRECTIONS);

    let mut ask = hints(Flags::RMA | Flags::MSG, Mode::empty());
    let mr = PROVIDER_MR | MrMode::LOCAL | MrMode::ENDPOINT;
    ask.domain = Some(domain(Threading::Safe, Progress::Manual, mr));
    ask.tx = Some(TxAttr {
        inject_size: 64,
        ..TxAttr::default()
    });
    assert_eq!(
        answer(&rdm_offer(Flags::empty()), &ask, (1, 6))
            .tx
            .inject_size,
        64
    );
    ask.tx.as_mut().unwrap().inject_size = 4096;
    let why = refusal(&rdm_offer(Flags::empty()), &ask, (1, 6));
    assert_eq!(
        why.to_string(),
        "hints->tx_attr->inject_size: asked 4096, offered at most 128; \
         ask for at most 128, or 0 for no preference"
    );
}

#[test]
fn connected_endpoints_and_shared_receive_contexts() {
    let mut ask = hints(Flags::MSG, Mode::empty());
    ask.ep = Some(EpAttr {
        ep_type: EpType::Msg,
        ..EpAttr::default()
    });
    let got = answer(&msg_offer(false), &ask, (2, 6));
    assert_eq!(got.ep.rx_ctx_cnt, 1);
    assert_eq!(
        refusal(&msg_offer(true), &ask, (2, 6)).attribute,
        "rx_ctx_cnt"
    );
    assert_eq!(
        refusal(&rdm_offer(Flags::empty()), &ask, (2, 6)).attribute,
        "type"
    );
    ask.ep.as_mut().unwrap().rx_ctx_cnt = SHARED_CONTEXT;
    assert_eq!(
        answer(&msg_offer(true), &ask, (2, 6)).ep.rx_ctx_cnt,
        SHARED_CONTEXT
    );
    ask.ep.as_mut().unwrap().ep_type = EpType::Rdm;
    assert_eq!(
        refusal(&rdm_offer(Flags::empty()), &ask, (2, 6)).attribute,
        "rx_ctx_cnt"
    );
}

#[test]
fn registration_is_asked_in_the_words_of_the_version() {
    let offer = registering_offer();
    let mut ask = hints(Flags::RMA, Mode::empty());
    ask.domain = Some(domain(Threading::Unspec, Progress::Unspec, MrMode::BASIC));
    // Local registration has a mode bit of its own before 1.5 and with FI_MR_BASIC.
    let found = check(&offer, &ask, Version::new(1, 4));
    assert!(
        found
            .iter()
            .any(|why| why.attribute == "mode" && why.remedy.contains("FI_LOCAL_MR"))
    );
    ask.mode = Mode::LOCAL_MR;
    let got = answer(&offer, &ask, (1, 4));
    assert_eq!(
        (got.domain.mr_mode, got.mode),
        (MrMode::BASIC, Mode::LOCAL_MR)
    );
    let got = answer(&offer, &ask, (1, 9));
    assert_eq!(
        (got.domain.mr_mode, got.mode),
        (MrMode::BASIC, Mode::LOCAL_MR)
    );
    ask.domain.as_mut().unwrap().mr_mode = MrMode::SCALABLE;
    assert_eq!(refusal(&offer, &ask, (1, 4)).attribute, "mr_mode");
    ask.mode = Mode::empty();
    ask.domain.as_mut().unwrap().mr_mode = PROVIDER_MR | MrMode::LOCAL;
    let got = answer(&offer, &ask, (1, 9));
    assert_eq!(
        (got.domain.mr_mode, got.mode),
        (PROVIDER_MR | MrMode::LOCAL, Mode::empty())
    );
    ask.domain.as_mut().unwrap().mr_mode = MrMode::LOCAL;
    let why = refusal(&offer, &ask, (1, 9));
    assert!(
        why.remedy
            .contains("FI_MR_VIRT_ADDR|FI_MR_ALLOCATED|FI_MR_PROV_KEY"),
        "{why}"
    );
    // Who is never a target has no duties of a target.
    ask.caps = Flags::RMA | Flags::READ | Flags::WRITE;
    ask.domain.as_mut().unwrap().mr_mode = MrMode::LOCAL | MrMode::ALLOCATED;
    let got = answer(&offer, &ask, (1, 9));
    assert_eq!(got.domain.mr_mode, MrMode::LOCAL | MrMode::ALLOCATED);
}

#[test]
fn a_target_must_register_as_one() {
    let mut offer = registering_offer();
    offer.domain.mr_mode -= MrMode::LOCAL;
    let mut ask = hints(Flags::RMA, Mode::empty());
    ask.domain = Some(DomainAttr::default());
    // With no registration at all the endpoint can still initiate.
    let got = answer(&offer, &ask, (2, 0));
    assert_eq!(got.caps & RMA_DIRECTIONS, Flags::READ | Flags::WRITE);
    assert_eq!(got.rx.caps & RMA_DIRECTIONS, Flags::empty());
    // To be a target must then be said of the registration mode.
    ask.caps |= Flags::REMOTE_READ;
    assert_eq!(refusal(&offer, &ask, (2, 0)).attribute, "mr_mode");
    ask.domain = None;
    assert_eq!(refusal(&offer, &ask, (2, 0)).attribute, "mr_mode");
}

#[test]
fn limits_are_those_of_the_offer() {
    let offer = rdm_offer(Flags::empty());
    type Change = fn(&mut Hints);
    let cases: [(&str, Change); 14] = [
        ("cq_data_size", |h| {
            h.domain.as_mut().unwrap().cq_data_size = 16
        }),
        ("cntr_cnt", |h| h.domain.as_mut().unwrap().cntr_cnt = 1),
        ("mr_iov_limit", |h| {
            h.domain.as_mut().unwrap().mr_iov_limit = 2
        }),
        ("auth_key_size", |h| {
            h.domain.as_mut().unwrap().auth_key_size = 4
        }),
        ("tx_ctx_cnt", |h| h.ep.as_mut().unwrap().tx_ctx_cnt = 2),
        ("rx_ctx_cnt", |h| h.ep.as_mut().unwrap().rx_ctx_cnt = 2),
        ("protocol_version", |h| {
            h.ep.as_mut().unwrap().protocol_version = 2
        }),
        ("iov_limit", |h| h.rx.as_mut().unwrap().iov_limit = 5),
        ("total_buffered_recv", |h| {
            h.rx.as_mut().unwrap().total_buffered_recv = 1
        }),
        ("comp_order", |h| h.tx.as_mut().unwrap().comp_order = 1),
        ("rma_iov_limit", |h| {
            h.tx.as_mut().unwrap().rma_iov_limit = 5
        }),
        ("size", |h| h.tx.as_mut().unwrap().size = 65537),
        ("op_flags", |h| {
            h.tx.as_mut().unwrap().op_flags = Flags::MATCH_COMPLETE
        }),
        ("addr_format", |h| h.addr_format = AddrFormat::Str),
    ];
    for (attribute, change) in cases {
        let mut ask: Hints = rdm_offer(Flags::empty()).into();
        ask.domain.as_mut().unwrap().mr_mode = MrMode::empty();
        ask.fabric.as_mut().unwrap().api_version = Version::CURRENT;
        assert_eq!(
            check(&offer, &ask, Version::CURRENT),
            vec![],
            "before {attribute}"
        );
        change(&mut ask);
        let found = check(&offer, &ask, Version::CURRENT);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].attribute, attribute);
    }
}

#[test]
fn withdrawn_threading_levels_are_served_by_thread_safe_providers() {
    for level in [Threading::Fid, Threading::Endpoint] {
        let mut ask = hints(Flags::MSG, Mode::empty());
        ask.domain = Some(domain(level, Progress::Unspec, MrMode::empty()));
        assert_eq!(
            answer(&rdm_offer(Flags::empty()), &ask, (1, 9))
                .domain
                .threading,
            level
        );
    }
    let mut serial = rdm_offer(Flags::empty());
    serial.domain.threading = Threading::Domain;
    let mut ask = hints(Flags::MSG, Mode::empty());
    ask.domain = Some(domain(Threading::Safe, Progress::Unspec, MrMode::empty()));
    assert_eq!(refusal(&serial, &ask, (1, 9)).attribute, "threading");
}

#[test]
fn tags_fit_the_format() {
    let mut ask = hints(Flags::TAGGED, Mode::empty());
    ask.ep.as_mut().unwrap().mem_tag_format = u64::MAX;
    let mut offer = rdm_offer(Flags::empty());
    answer(&offer, &ask, (2, 6));
    offer.ep.mem_tag_format = 0xffff;
    assert_eq!(refusal(&offer, &ask, (2, 6)).attribute, "mem_tag_format");
    ask.caps = Flags::MSG;
    answer(&offer, &ask, (2, 6));
}

#[test]
fn requests_name_the_source_or_the_peer() {
    let offer = rdm_offer(Flags::empty());
    let peer = Request {
        version: Version::CURRENT,
        node: Some("127.0.0.1"),
        service: Some("7471"),
        flags: Flags::NUMERICHOST,
        hints: None,
    };
    let got = peer.answer(&offer).unwrap();
    assert_eq!(
        got.dest_addr.unwrap().to_string(),
        "fi_sockaddr_in://127.0.0.1:7471"
    );
    assert_eq!(
        got.src_addr.unwrap().to_string(),
        "fi_sockaddr_in://127.0.0.1:0"
    );
    assert_eq!(got.addr_format, AddrFormat::SockaddrIn);

    let own = Request {
        flags: Flags::SOURCE,
        node: None,
        ..peer
    };
    let got = own.answer(&offer).unwrap();
    assert_eq!(
        got.src_addr.unwrap().to_string(),
        "fi_sockaddr_in://0.0.0.0:7471"
    );
    assert_eq!(got.dest_addr, None);

    let nothing = Request {
        service: None,
        ..own
    };
    assert_eq!(nothing.validate(), Err(Errno::EINVAL));
    let newer = Request {
        version: Version::new(9, 0),
        ..peer
    };
    assert_eq!(newer.validate(), Err(Errno::ENOSYS));
    let name = Request {
        node: Some("not a number"),
        ..peer
    };
    assert!(
        name.answer(&offer)
            .unwrap_err()
            .to_string()
            .contains("clear FI_NUMERICHOST")
    );

    let list = Request {
        flags: Flags::PROV_ATTR_ONLY,
        ..Request::default()
    };
    let got = list.answer(&offer).unwrap();
    assert_eq!((got.prov_name(), got.caps), ("tcp", Flags::empty()));
}

#[test]
fn hinted_addresses_are_kept() {
    let offer = rdm_offer(Flags::empty());
    let mut ask = hints(Flags::MSG, Mode::empty());
    ask.addr_format = AddrFormat::SockaddrIn;
    ask.dest_addr = "fi_sockaddr_in://127.0.0.9:5".parse().ok();
    ask.src_addr = "fi_sockaddr_in://127.0.0.1:6".parse().ok();
    let request = Request {
        version: Version::CURRENT,
        hints: Some(&ask),
        ..Request::default()
    };
    let got = request.answer(&offer).unwrap();
    assert_eq!(
        (&got.src_addr, &got.dest_addr),
        (&ask.src_addr, &ask.dest_addr)
    );
    assert_eq!(got.addr_format, AddrFormat::SockaddrIn);
}
