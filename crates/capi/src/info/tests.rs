#![allow(unsafe_code)]
use core::ffi::CStr;
use std::sync::Arc;

use ripstop_core::types::{AddrFormat, EpType, Flags, Protocol, Threading, Version};
use ripstop_core::{
    Address, BusAttr, DeviceAttr, DomainAttr, EpAttr, FabricAttr, Info, LinkAttr, LinkState, Nic,
    PciAttr, RxAttr, TxAttr,
};

use super::*;
use crate::edge::Whole;

fn sample() -> Info {
    Info {
        caps: Flags::MSG | Flags::TAGGED,
        addr_format: AddrFormat::SockaddrIn,
        src_addr: Some("fi_sockaddr_in://127.0.0.1:1".parse().unwrap()),
        dest_addr: Some("fi_sockaddr_in://127.0.0.1:2".parse().unwrap()),
        tx: TxAttr {
            inject_size: 128,
            tclass: 0x203,
            ..Default::default()
        },
        rx: RxAttr {
            size: 7,
            ..Default::default()
        },
        ep: EpAttr {
            ep_type: EpType::Rdm,
            protocol: Protocol::Xnet,
            auth_key_size: 3,
            auth_key: vec![1, 2, 3],
            ..Default::default()
        },
        domain: DomainAttr {
            name: Some("lo".into()),
            threading: Threading::Safe,
            max_cntr_value: u64::MAX,
            ..Default::default()
        },
        fabric: FabricAttr {
            name: Some("127.0.0.0/8".into()),
            prov_name: Some("tcp".into()),
            api_version: Version::CURRENT,
            ..Default::default()
        },
        ..Default::default()
    }
}

fn card() -> Arc<Nic> {
    Arc::new(Nic {
        device: DeviceAttr {
            name: Some("eth0".into()),
            driver: Some("virtio".into()),
            ..Default::default()
        },
        bus: BusAttr::Pci(PciAttr {
            domain: 1,
            bus: 2,
            device: 3,
            function: 4,
        }),
        link: LinkAttr {
            address: Some("10.0.0.1".into()),
            mtu: 1500,
            speed: 10_000_000_000,
            state: LinkState::Up,
            network_type: Some("Ethernet".into()),
        },
    })
}

fn free(info: *mut abi::fi_info) {
    // SAFETY: made by the library, used no more.
    unsafe { ripstop_fi_freeinfo_1_9(info) };
}

fn opened_with(info: *const abi::fi_info) -> ripstop_types::Result<Info> {
    // SAFETY: each test passes null, or an `fi_info` whose pointers are null or valid.
    read::info("a test", unsafe { InfoIn::from_c(info.cast_mut()) })
}

fn read_back(info: *const abi::fi_info) -> Info {
    opened_with(info).unwrap()
}

fn printed(info: *const abi::fi_info) -> String {
    let mut buf = vec![0; 8192];
    // SAFETY: the buffer has this many bytes, and the info is whole.
    let text = unsafe {
        crate::ripstop_fi_tostr_r_1_4(buf.as_mut_ptr(), 8192, info.cast(), abi::FI_TYPE_INFO)
    };
    // SAFETY: terminated.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().unwrap().to_owned()
}

#[test]
fn what_is_written_reads_back() {
    let info = sample();
    let c = write::info(&info);
    assert_eq!(read_back(c), info);
    free(c);
}

#[test]
fn a_list_keeps_its_order_and_is_freed_whole() {
    let (first, mut second) = (sample(), sample());
    second.domain.name = Some("eth0".into());
    let head = write::list(&[first.clone(), second.clone()]);
    assert_eq!(read_back(head), first);
    // SAFETY: made by the library.
    let next = unsafe { (*head).next };
    assert_eq!(read_back(next), second);
    // SAFETY: made by the library.
    assert!(unsafe { (*next).next }.is_null());
    free(head);
    assert!(write::list(&[]).is_null());
}

#[test]
fn a_copy_is_deep_and_alone() {
    let info = Info {
        nic: Some(card()),
        ..sample()
    };
    let list = write::list(&[info.clone(), sample()]);
    // SAFETY: made by the library.
    let copy = unsafe { ripstop_fi_dupinfo_1_9(list) };
    let text = printed(list);
    free(list);
    // SAFETY: made by the library.
    assert!(unsafe { (*copy).next }.is_null());
    assert_eq!(read_back(copy), sample());
    let addresses = |text: &str| text.lines().filter(|l| l.contains("0x")).count();
    assert_eq!(addresses(&text), addresses(&printed(copy)));
    assert_eq!(text, printed(copy));
    free(copy);
}

#[test]
fn a_nic_prints_itself() {
    let c = write::info(&Info {
        nic: Some(card()),
        ..sample()
    });
    let text = printed(c);
    let nic = &text[text.find("    nic:").unwrap()..];
    assert_eq!(
        nic,
        "    nic:\n        fi_device_attr:\n            name: eth0\n            \
         device_id: (null)\n            device_version: (null)\n            \
         vendor_id: (null)\n            driver: virtio\n            firmware: (null)\n        \
         fi_bus_attr:\n            bus_type: FI_BUS_PCI\n            fi_pci_attr:\n                \
         domain_id: 1\n                bus_id: 2\n                device_id: 3\n                \
         function_id: 4\n        fi_link_attr:\n            address: 10.0.0.1\n            \
         mtu: 1500\n            speed: 10000000000\n            state: FI_LINK_UP\n            \
         network_type: Ethernet\n"
    );
    free(c);
}

#[test]
fn dupinfo_of_null_is_zeroed_with_attributes() {
    // SAFETY: null is allowed.
    let made = unsafe { ripstop_fi_dupinfo_1_9(ptr::null()) };
    // SAFETY: made just now.
    let info = unsafe { &*made };
    assert_eq!((info.caps, info.addr_format), (0, 0));
    assert!(!info.tx_attr.is_null() && !info.rx_attr.is_null() && !info.ep_attr.is_null());
    assert!(!info.domain_attr.is_null() && !info.fabric_attr.is_null() && info.nic.is_null());
    assert_eq!(
        read_back(made),
        Info {
            fabric: FabricAttr::default(),
            ..Info::default()
        }
    );
    // A program may put its own strings in, and `fi_freeinfo` frees them.
    // SAFETY: made just now.
    unsafe { (*info.fabric_attr).prov_name = cmem::text("tcp") };
    free(made);
    free(ptr::null_mut());
}

/// What is behind the attributes of the endpoint for programs of node 1.10.
fn xpu_ctx(info: *mut abi::fi_info) -> *mut *mut core::ffi::c_void {
    // SAFETY: made by this library.
    let ep = unsafe { (*info).ep_attr }.cast::<abi::history::fi_ep_attr_1_10>();
    // SAFETY: every node's attributes have room for it.
    unsafe { &raw mut (*ep).xpu_ctx }
}

#[test]
fn node_1_10_copies_its_own_field_and_finds_nothing_for_it() {
    let getinfo = crate::ripstop_fi_getinfo_1_10;
    // SAFETY: null is allowed.
    let made = unsafe { ripstop_fi_dupinfo_1_10(ptr::null()) };
    let accelerator = ptr::without_provenance_mut(16);
    // SAFETY: made just now.
    unsafe { xpu_ctx(made).write(accelerator) };
    for (dup, expected) in [
        (
            ripstop_fi_dupinfo_1_9 as unsafe extern "C" fn(_) -> _,
            ptr::null_mut(),
        ),
        (ripstop_fi_dupinfo_1_10, accelerator),
    ] {
        // SAFETY: made by this library.
        let copy = unsafe { dup(made.cast_const()) };
        // SAFETY: made just now.
        assert_eq!(unsafe { xpu_ctx(copy).read() }, expected);
        let mut found = ptr::null_mut();
        let (version, null) = (abi::FI_VERSION(1, 20), ptr::null());
        // SAFETY: hints of this node, and room for the list.
        let code = unsafe { getinfo(version, null, null, 0, copy, &raw mut found) };
        match expected.is_null() {
            true => assert_eq!((code, found.is_null()), (0, false)),
            false => assert_eq!((code, found.is_null()), (-abi::FI_ENODATA, true)),
        }
        free(found);
        free(copy);
    }
    free(made);
}

#[test]
fn an_old_copy_has_only_old_fields() {
    let c = write::info(&Info {
        nic: Some(card()),
        ..sample()
    });
    // SAFETY: today's structures hold those of every node.
    let old = unsafe { ripstop_fi_dupinfo_1_0(c) };
    let info = read_back(old);
    assert_eq!(info.fabric.api_version, Version::default());
    assert_eq!((info.domain.max_cntr_value, info.tx.tclass), (0, 0));
    assert!(info.ep.auth_key.is_empty());
    assert_eq!(info.domain.name.as_deref(), Some("lo"));
    // SAFETY: made just now.
    assert!(unsafe { (*old).nic }.is_null());
    // SAFETY: made by the library.
    unsafe { ripstop_fi_freeinfo_1_0(old) };
    free(c);
}

#[test]
fn hints_that_nobody_can_match_say_so() {
    let hints = |info: &abi::fi_info| {
        // SAFETY: the pointers in the infos below are null or of live values.
        read::hints(unsafe { Whole::new(info) })
            .map(|_| ())
            .unwrap_err()
    };
    let info = abi::fi_info {
        addr_format: abi::FI_ADDR_EFA,
        ..Default::default()
    };
    assert_eq!(hints(&info), ripstop_types::Errno::ENODATA);
    let mut bytes = [0_u8; 4];
    let info = abi::fi_info {
        addr_format: abi::FI_SOCKADDR_IN,
        src_addr: bytes.as_mut_ptr().cast(),
        src_addrlen: 4,
        ..Default::default()
    };
    assert_eq!(hints(&info), ripstop_types::Errno::ENODATA);
    let mut domain = abi::fi_domain_attr {
        threading: 77,
        ..Default::default()
    };
    let info = abi::fi_info {
        domain_attr: &raw mut domain,
        ..Default::default()
    };
    assert_eq!(hints(&info), ripstop_types::Errno::ENODATA);
    let info = abi::fi_info {
        handle: &raw mut domain as abi::fid_t,
        ..Default::default()
    };
    assert_eq!(hints(&info), ripstop_types::Errno::EINVAL);
}

#[test]
fn opening_needs_every_attribute() {
    let missing = opened_with(&abi::fi_info::default());
    assert_eq!(missing, Err(ripstop_types::Errno::EINVAL));
    let missing = opened_with(ptr::null());
    assert_eq!(missing, Err(ripstop_types::Errno::EINVAL));
}

#[test]
fn addresses_of_both_families_pass() {
    for text in ["fi_sockaddr_in6://[::1]:9", "fi_shm://4"] {
        let addr: Address = text.parse().unwrap();
        let info = Info {
            addr_format: addr.format(),
            src_addr: Some(addr),
            dest_addr: None,
            ..sample()
        };
        let c = write::info(&info);
        assert_eq!(read_back(c), info);
        free(c);
    }
}
