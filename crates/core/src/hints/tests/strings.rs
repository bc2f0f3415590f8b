//! String addresses, as `fi_shm(7)` makes them from node and service.

use super::*;
use crate::address::Address;

fn offer() -> Info {
    let mut offer = rdm_offer(Flags::empty());
    offer.addr_format = AddrFormat::Str;
    offer
}

fn addresses(
    node: Option<&str>,
    service: Option<&str>,
    flags: Flags,
    hints: Option<&Hints>,
) -> [Option<String>; 2] {
    let request = Request {
        version: Version::CURRENT,
        node,
        service,
        flags,
        hints,
        ..Request::default()
    };
    let info = request.answer(&offer()).unwrap();
    assert_eq!(info.addr_format, AddrFormat::Str);
    [info.src_addr, info.dest_addr].map(|addr| addr.map(|addr| addr.to_string()))
}

#[test]
fn node_and_service_make_an_address() {
    let own = format!("fi_shm://{:07}", ripstop_os::pid());
    for (node, service, expected) in [
        (Some("here"), Some("7"), "fi_ns://here:7"),
        (None, Some("7"), "fi_ns://7"),
        (Some("here"), None, "fi_shm://here"),
        (Some("mine://a b"), Some("7"), "mine://a b"),
        (None, None, &own),
    ] {
        let found = addresses(node, service, Flags::empty(), None);
        assert_eq!(found, [Some(own.clone()), Some(expected.to_owned())]);
        if node.is_some() || service.is_some() {
            let found = addresses(node, service, Flags::SOURCE, None);
            assert_eq!(found, [Some(expected.to_owned()), None]);
        }
    }
}

#[test]
fn addresses_of_the_hints_come_before_that_of_the_process() {
    let hints = Hints {
        src_addr: Some(Address::Str("fi_shm://source".into())),
        dest_addr: Some(Address::Str("fi_ns://peer".into())),
        ..Hints::default()
    };
    let both = ["fi_shm://source", "fi_ns://peer"].map(|text| Some(text.to_owned()));
    assert_eq!(addresses(None, None, Flags::empty(), Some(&hints)), both);
    let named = addresses(Some("x://y"), None, Flags::empty(), Some(&hints));
    assert_eq!(named[1].as_deref(), Some("x://y"));
}
