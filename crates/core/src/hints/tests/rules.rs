//! One rule of negotiation each.

use super::*;

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
    let cases: [(&str, Change); 15] = [
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
        ("auth_key_size", |h| {
            h.domain.as_mut().unwrap().auth_key_size = crate::AUTH_KEY_PER_AV
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
        ..Request::default()
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
