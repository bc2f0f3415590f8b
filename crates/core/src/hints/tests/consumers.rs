//! What real programs ask.

use super::*;

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
