use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn indices_count_up_and_are_used_again_from_below() {
    let mut av = AddressTable::new();
    let peers: Vec<_> = (1..=5)
        .map(|port| av.insert(&addr(&format!("10.0.0.1:{port}"))))
        .collect();
    assert_eq!(peers, (0..5).map(|i| Ok(FiAddr(i))).collect::<Vec<_>>());
    assert_eq!(av.remove(FiAddr(3)), Ok(Some(addr("10.0.0.1:4"))));
    assert_eq!(av.remove(FiAddr(1)), Ok(Some(addr("10.0.0.1:2"))));
    assert_eq!((av.len(), av.slots.bound), (3, 5));
    assert_eq!(av.lookup(FiAddr(1)), None);
    assert_eq!(av.insert(&addr("[::1]:9")), Ok(FiAddr(1)));
    assert_eq!(av.insert(&addr("10.9.9.9:9")), Ok(FiAddr(3)));
    assert_eq!(av.insert(&addr("10.9.9.9:10")), Ok(FiAddr(5)));
    assert_eq!(av.lookup(FiAddr(1)), Some(addr("[::1]:9")));
    assert_eq!(av.find(&addr("[::1]:9")), FiAddr(1));
}

#[test]
fn a_peer_inserted_twice_is_removed_twice() {
    let mut av = AddressTable::new();
    for peer in [addr("10.0.0.1:1"), addr("[fe80::1]:1")] {
        let first = av.insert(&peer).unwrap();
        // More often than a slot can count.
        for _ in 0..40_000 {
            assert_eq!(av.insert(&peer), Ok(first));
        }
        for _ in 0..40_000 {
            assert_eq!(av.remove(first), Ok(None));
            assert_eq!(av.find(&peer), first);
        }
        assert_eq!(av.remove(first), Ok(Some(peer)));
        assert_eq!(av.remove(first), Err(Errno::EINVAL));
        assert!(av.more_uses.is_empty());
    }
    assert!(av.is_empty());
}

#[test]
fn nobody_is_at_an_unspecified_address() {
    let mut av = AddressTable::new();
    for peer in ["10.0.0.1:0", "0.0.0.0:1", "[::]:1", "[::1]:0"] {
        assert_eq!(av.insert(&addr(peer)), Err(Errno::EADDRNOTAVAIL));
    }
    assert_eq!(av.remove(FiAddr(0)), Err(Errno::EINVAL));
    assert_eq!(av.remove(FiAddr::UNSPEC), Err(Errno::EINVAL));
    assert_eq!(av.lookup(FiAddr(1 << 40)), None);
}

#[test]
fn mapped_addresses_find_their_peer() {
    let mut av = AddressTable::new();
    let peer = av.insert(&addr("10.0.0.1:7")).unwrap();
    assert_eq!(av.find(&addr("[::ffff:10.0.0.1]:7")), peer);
    assert_eq!(av.find(&addr("[::ffff:10.0.0.1]:8")), FiAddr::NOTAVAIL);
    // A peer inserted in the mapped form is looked up in it.
    let mapped = addr("[::ffff:10.0.0.2]:7");
    let peer = av.insert(&mapped).unwrap();
    assert_eq!((av.lookup(peer), av.find(&mapped)), (Some(mapped), peer));
}

#[test]
fn zones_are_part_of_an_address_and_flows_are_kept() {
    let mut av = AddressTable::new();
    let of = |flow, scope| {
        SocketAddr::V6(std::net::SocketAddrV6::new(
            "fe80::1".parse().unwrap(),
            5,
            flow,
            scope,
        ))
    };
    let first = av.insert(&of(9, 1)).unwrap();
    let second = av.insert(&of(0, 2)).unwrap();
    assert_ne!(first, second);
    assert_eq!(av.find(&of(0, 1)), first);
    assert_eq!(av.lookup(first), Some(of(9, 1)));
}

#[test]
fn room_made_beforehand_is_used() {
    let mut av = AddressTable::with_capacity(10_000).unwrap();
    for i in 0..10_000_u32 {
        let peer = SocketAddr::from((std::net::Ipv4Addr::from_bits(1 + i), 1));
        assert_eq!(av.insert(&peer), Ok(FiAddr(i.into())));
    }
    let (last, _) = av.iter().last().unwrap();
    assert_eq!((last, av.slots.bound), (FiAddr(9_999), 10_000));
    assert_eq!(
        AddressTable::with_capacity(usize::MAX).unwrap_err(),
        Errno::ENOMEM
    );
}

#[derive(Clone, Debug)]
enum Step {
    Insert(SocketAddr),
    Remove(u64),
    Find(SocketAddr),
}

/// Few addresses, so that they meet again.
fn addresses() -> impl Strategy<Value = SocketAddr> {
    (any::<bool>(), 1..40_u8, 1..3_u16).prop_map(|(v4, host, port)| {
        let text = if v4 {
            format!("10.0.0.{host}:{port}")
        } else {
            format!("[fd::{host}]:{port}")
        };
        addr(&text)
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => addresses().prop_map(Step::Insert),
        3 => (0..60_u64).prop_map(Step::Remove),
        1 => addresses().prop_map(Step::Find),
    ];
    proptest::collection::vec(step, 0..400)
}

/// The plainest address vector: address and uses by index.
#[derive(Default)]
struct Model(BTreeMap<u64, (SocketAddr, u32)>);

impl Model {
    fn find(&self, addr: &SocketAddr) -> Option<u64> {
        self.0
            .iter()
            .find(|(_, (known, _))| known == addr)
            .map(|(&index, _)| index)
    }

    fn insert(&mut self, addr: &SocketAddr) -> u64 {
        let lowest = || (0..).find(|index| !self.0.contains_key(index)).unwrap();
        let index = self.find(addr).unwrap_or_else(lowest);
        self.0.entry(index).or_insert((*addr, 0)).1 += 1;
        index
    }

    fn remove(&mut self, index: u64) -> Result<Option<SocketAddr>> {
        let (addr, uses) = self.0.get_mut(&index).ok_or(Errno::EINVAL)?;
        *uses -= 1;
        if *uses > 0 {
            return Ok(None);
        }
        let addr = *addr;
        self.0.remove(&index);
        Ok(Some(addr))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_the_model_does(steps in steps()) {
        let (mut av, mut model) = (AddressTable::new(), Model::default());
        for step in steps {
            match step {
                Step::Insert(addr) => prop_assert_eq!(av.insert(&addr), Ok(FiAddr(model.insert(&addr)))),
                Step::Remove(index) => prop_assert_eq!(av.remove(FiAddr(index)), model.remove(index)),
                Step::Find(addr) => {
                    let found = model.find(&addr).map_or(FiAddr::NOTAVAIL, FiAddr);
                    prop_assert_eq!(av.find(&addr), found);
                }
            }
            prop_assert_eq!(av.len(), model.0.len());
        }
        let all: Vec<_> = model.0.iter().map(|(&i, &(addr, _))| (FiAddr(i), addr)).collect();
        prop_assert_eq!(av.iter().collect::<Vec<_>>(), all);
    }
}
