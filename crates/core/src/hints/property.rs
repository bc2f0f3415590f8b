//! Whatever [`negotiate`] answers satisfies the hints, whatever they are.

use proptest::prelude::*;
use proptest::sample::select;
use ripstop_types::{
    AvType, EpType, Flags, Mode, MrMode, MsgOrder, Progress, ResourceMgmt, Threading, Version,
};

use super::tests::rdm_offer;
use super::*;
use crate::attr::{DomainAttr, EpAttr, RxAttr, SHARED_CONTEXT, TxAttr};

/// Values at, below and above a limit, and no preference.
fn around(limit: usize) -> impl Strategy<Value = usize> {
    select(vec![0, 1, limit / 2, limit, limit.saturating_add(1)])
}

/// No, some or all of the bits, and sometimes bits without a name.
fn bits(all: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => Just(0),
        4 => any::<u64>().prop_map(move |mask| all & mask),
        3 => (0..64_u32).prop_map(move |bit| all & (1 << bit)),
        1 => Just(all),
    ]
}

fn flags() -> impl Strategy<Value = Flags> {
    bits(rdm_offer(Flags::ATOMIC).caps.bits() | Flags::HMEM.bits())
        .prop_map(Flags::from_bits_retain)
}

fn mr_mode() -> impl Strategy<Value = MrMode> {
    bits(0xfff).prop_map(|bits| MrMode::from_bits_retain(bits as u32))
}

fn order() -> impl Strategy<Value = MsgOrder> {
    bits(MsgOrder::all().bits()).prop_map(MsgOrder::from_bits_retain)
}

fn context_count() -> impl Strategy<Value = usize> {
    select(vec![0, 1, 1, 2, SHARED_CONTEXT])
}

prop_compose! {
    fn offers()(
        mr_mode in mr_mode(),
        mode in bits(Mode::CONTEXT.bits()),
        drop in bits((Flags::ATOMIC | Flags::RMA | Flags::TAGGED).bits()),
        rx_ctx_cnt in select(vec![0, 1, SHARED_CONTEXT]),
        srx in 1..3_usize,
        threading in select(vec![Threading::Safe, Threading::Completion, Threading::Domain]),
        progress in select(vec![Progress::Auto, Progress::Manual]),
        av_type in select(vec![AvType::Unspec, AvType::Map, AvType::Table]),
    ) -> Info {
        let mut info = rdm_offer(Flags::ATOMIC);
        let drop = Flags::from_bits_retain(drop);
        info.caps -= drop;
        info.tx.caps -= drop;
        info.rx.caps -= drop;
        info.mode = Mode::from_bits_retain(mode);
        info.ep.rx_ctx_cnt = rx_ctx_cnt;
        // Providers state which modes of before 1.5 they can stand for.
        let mr_mode = mr_mode | if mr_mode.is_empty() { MrMode::SCALABLE } else { MrMode::BASIC };
        info.domain = DomainAttr {
            mr_mode, threading, progress, av_type, max_ep_srx_ctx: srx, ..info.domain
        };
        info
    }
}

prop_compose! {
    fn domains()(
        mr_mode in mr_mode(),
        threading in select(vec![
            Threading::Unspec, Threading::Safe, Threading::Fid, Threading::Domain,
            Threading::Completion, Threading::Endpoint,
        ]),
        progress in select(vec![
            Progress::Unspec, Progress::Auto, Progress::Manual, Progress::ControlUnified,
        ]),
        resource_mgmt in select(vec![
            ResourceMgmt::Unspec, ResourceMgmt::Disabled, ResourceMgmt::Enabled,
        ]),
        av_type in select(vec![AvType::Unspec, AvType::Map, AvType::Table]),
        cq_data_size in around(8),
        caps in bits((Flags::LOCAL_COMM | Flags::REMOTE_COMM).bits()),
    ) -> DomainAttr {
        DomainAttr {
            mr_mode, threading, progress, resource_mgmt, av_type, cq_data_size,
            caps: Flags::from_bits_retain(caps),
            ..DomainAttr::default()
        }
    }
}

prop_compose! {
    fn endpoints()(
        ep_type in select(vec![EpType::Unspec, EpType::Rdm, EpType::Rdm, EpType::Msg]),
        tx_ctx_cnt in select(vec![0, 0, 1, 2]),
        rx_ctx_cnt in context_count(),
        raw in around(64),
        mem_tag_format in prop_oneof![Just(0), any::<u64>()],
    ) -> EpAttr {
        EpAttr {
            ep_type, tx_ctx_cnt, rx_ctx_cnt, mem_tag_format, max_order_raw_size: raw,
            ..EpAttr::default()
        }
    }
}

prop_compose! {
    fn senders()(
        caps in flags(), msg_order in order(),
        inject_size in around(128), size in around(65536), iov_limit in around(4),
    ) -> TxAttr {
        TxAttr { caps, msg_order, inject_size, size, iov_limit, ..TxAttr::default() }
    }
}

prop_compose! {
    fn receivers()(
        caps in flags(), msg_order in order(), size in around(65536), iov_limit in around(4),
    ) -> RxAttr {
        RxAttr { caps, msg_order, size, iov_limit, ..RxAttr::default() }
    }
}

prop_compose! {
    fn asks()(
        caps in flags(),
        mode in bits(Mode::all().bits()),
        domain in proptest::option::of(domains()),
        ep in proptest::option::of(endpoints()),
        tx in proptest::option::weighted(0.3, senders()),
        rx in proptest::option::weighted(0.3, receivers()),
    ) -> Hints {
        Hints { caps, mode: Mode::from_bits_retain(mode), domain, ep, tx, rx, ..Hints::default() }
    }
}

fn versions() -> impl Strategy<Value = Version> {
    select(vec![
        Version::new(1, 0),
        Version::new(1, 4),
        Version::new(1, 5),
        Version::new(1, 20),
        Version::CURRENT,
    ])
}

/// A number asked for is the number given, where the interface echoes it.
fn echoed<T: PartialEq + Default>(asked: T, given: T) -> bool {
    asked == T::default() || asked == given
}

fn domain_satisfied(asked: &DomainAttr, hints: &Hints, got: &Info, version: Version) {
    let domain = &got.domain;
    assert!(echoed(asked.threading, domain.threading));
    assert!(echoed(asked.progress, domain.progress));
    assert!(echoed(asked.av_type, domain.av_type));
    assert!(asked.cq_data_size <= domain.cq_data_size);
    let old = MrMode::BASIC | MrMode::SCALABLE;
    if asked.mr_mode.intersects(old) {
        assert_eq!(domain.mr_mode, asked.mr_mode);
    } else if version >= Version::new(1, 5) {
        assert!(!domain.mr_mode.intersects(old));
        // The caller does what it offered, or nothing and is then no target.
        let local = hints.mode.contains(Mode::LOCAL_MR);
        let bearable = if local {
            asked.mr_mode | MrMode::LOCAL
        } else {
            asked.mr_mode
        };
        assert!(bearable.contains(domain.mr_mode), "{:?}", domain.mr_mode);
    } else {
        assert!(domain.mr_mode == MrMode::BASIC || domain.mr_mode == MrMode::SCALABLE);
    }
}

fn satisfied(hints: &Hints, got: &Info, version: Version) {
    assert!(
        got.caps.contains(hints.caps),
        "{:?} lacks {:?}",
        got.caps,
        hints.caps
    );
    assert!(hints.mode.contains(got.mode));
    let directions = caps::MSG_DIRECTIONS | caps::RMA_DIRECTIONS;
    for of_group in [got.tx.caps, got.rx.caps] {
        let own = |h: Flags| h & directions;
        let asked = hints.tx.as_ref().map_or(Flags::empty(), |tx| own(tx.caps))
            | hints.rx.as_ref().map_or(Flags::empty(), |rx| own(rx.caps));
        assert!((got.caps | asked).contains(of_group & directions));
    }
    if let Some(asked) = &hints.domain {
        domain_satisfied(asked, hints, got, version);
    }
    if let Some(asked) = &hints.ep {
        assert!(echoed(asked.ep_type, got.ep.ep_type));
        assert!(echoed(asked.tx_ctx_cnt, got.ep.tx_ctx_cnt));
        assert!(echoed(asked.rx_ctx_cnt, got.ep.rx_ctx_cnt));
    }
    if let Some(asked) = &hints.tx {
        assert!(echoed(asked.inject_size, got.tx.inject_size));
        assert!(echoed(asked.size, got.tx.size));
        assert!(got.tx.msg_order.contains(asked.msg_order));
        assert!(got.tx.caps.contains(asked.caps - caps::IGNORED_TX));
    }
    if let Some(asked) = &hints.rx {
        assert!(echoed(asked.size, got.rx.size));
        assert!(got.rx.caps.contains(asked.caps - caps::IGNORED_RX));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_matches_satisfies_the_hints(offer in offers(), ask in asks(), version in versions()) {
        if let Ok(got) = negotiate(&offer, Some(&ask), version) {
            satisfied(&ask, &got, version);
        }
    }

    #[test]
    fn an_answer_can_be_asked_for_again(offer in offers(), ask in asks(), version in versions()) {
        if let Ok(got) = negotiate(&offer, Some(&ask), version) {
            let mut again: Hints = got.clone().into();
            again.mode |= ask.mode;
            let found = check(&offer, &again, version);
            prop_assert_eq!(found, vec![]);
        }
    }

    #[test]
    fn refusals_name_the_attribute_and_the_remedy(offer in offers(), ask in asks()) {
        for why in check(&offer, &ask, Version::CURRENT) {
            let line = why.to_string();
            prop_assert!(line.contains(why.attribute) && line.contains(&why.remedy));
            prop_assert!(!why.remedy.is_empty() && !line.contains('\n'));
        }
    }
}
