//! Drives an installed libfabric over the loopback interface through this crate.
//!
//! The library is the one named by `RIPSTOP_FOREIGN_LIB`, or Debian's. Without either, each
//! test says that it skips.

mod connected;
mod guards;
mod provider;
mod rdm;
mod shared;

use std::path::Path;
use std::time::Duration;

use ripstop_core::hints::Request;
use ripstop_core::provider::AvAttr;
use ripstop_core::{DomainAttr, EpAttr, FabricAttr, Hints, RxAttr, TxAttr};
use ripstop_foreign::{
    Av, Cq, CqAttr, Domain, Endpoint, EndpointBuilder, Fabric, Info, Library, OpenError, Threading,
};
use ripstop_types::{EpType, Errno, Flags, Mode, MrMode, Threading as Level, Version};

const DEBIAN: &str = "/usr/lib/x86_64-linux-gnu/libfabric.so.1";

/// How long anything here may take.
const SOON: Duration = Duration::from_secs(60);

fn library() -> Option<Library> {
    let path = std::env::var("RIPSTOP_FOREIGN_LIB").unwrap_or_else(|_| DEBIAN.to_owned());
    if !Path::new(&path).exists() {
        eprintln!("SKIP: no {path}; install libfabric1 or set RIPSTOP_FOREIGN_LIB");
        return None;
    }
    Some(Library::open(path).unwrap())
}

fn hints(provider: &str, ep_type: EpType, threading: Level) -> Hints {
    Hints {
        caps: Flags::MSG | Flags::TAGGED,
        mode: Mode::CONTEXT | Mode::CONTEXT2,
        // Without default flags.
        tx: Some(TxAttr::default()),
        rx: Some(RxAttr::default()),
        ep: Some(EpAttr {
            ep_type,
            ..EpAttr::default()
        }),
        domain: Some(DomainAttr {
            threading,
            mr_mode: MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY,
            ..DomainAttr::default()
        }),
        fabric: Some(FabricAttr {
            prov_name: Some(provider.to_owned()),
            ..FabricAttr::default()
        }),
        ..Hints::default()
    }
}

/// What a library offers to these hints, from or to 127.0.0.1.
fn getinfo(
    library: &Library,
    hints: Option<&Hints>,
    (service, flags): (&str, Flags),
) -> ripstop_foreign::Result<Vec<Info>> {
    library.getinfo(&Request {
        version: Version::CURRENT.min(library.version()),
        node: hints.map(|_| "127.0.0.1"),
        service: hints.map(|_| service),
        flags,
        hints,
    })
}

/// Any port of ours.
const HERE: (&str, Flags) = ("0", Flags::SOURCE);

/// A reliable datagram info on 127.0.0.1: of tcp itself, or of rxm over it where tcp has none.
fn find_rdm_info(library: &Library, caps: Flags) -> Option<Info> {
    for provider in ["tcp", "tcp;ofi_rxm"] {
        let mut hints = hints(provider, EpType::Rdm, Level::Safe);
        hints.caps |= caps;
        match getinfo(library, Some(&hints), HERE) {
            Ok(mut infos) => return Some(infos.remove(0)),
            Err(e) => assert_eq!(e.errno, Errno::ENODATA),
        }
    }
    None
}

fn rdm_info(library: &Library, caps: Flags) -> Info {
    find_rdm_info(library, caps)
        .unwrap_or_else(|| panic!("{library:?} has no datagrams over tcp with {caps:?}"))
}

/// Two endpoints in one domain that know each other.
struct Pair<M: Threading> {
    domain: Domain<M>,
    a: Side<M>,
    b: Side<M>,
}

struct Side<M: Threading> {
    ep: Endpoint<M>,
    cq: Cq<M>,
    av: Av<M>,
    /// The other side.
    peer: ripstop_types::FiAddr,
}

impl<M: Threading> Pair<M> {
    fn new(info: &Info, attr: CqAttr) -> Self {
        let fabric: Fabric = library().unwrap().fabric(info).unwrap();
        let domain = fabric.domain(info).unwrap();
        let (mut a, mut b) = (
            Side::new(&domain, info, attr),
            Side::new(&domain, info, attr),
        );
        a.peer = a.av.insert(&b.ep.getname().unwrap()).unwrap();
        b.peer = b.av.insert(&a.ep.getname().unwrap()).unwrap();
        Self { domain, a, b }
    }
}

impl<M: Threading> Side<M> {
    fn new(domain: &Domain<M>, info: &Info, attr: CqAttr) -> Self {
        let cq = domain.cq(attr).unwrap();
        let av = domain.av(&AvAttr::default()).unwrap();
        let builder: EndpointBuilder<M> = domain.endpoint(info).unwrap();
        let ep = builder
            .bind_cq(&cq, Flags::SEND | Flags::RECV)
            .unwrap()
            .bind_av(&av)
            .unwrap()
            .enable()
            .unwrap();
        Self {
            ep,
            cq,
            av,
            peer: ripstop_types::FiAddr::UNSPEC,
        }
    }
}

/// Bytes that tell their place.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + seed) as u8).collect()
}

#[test]
fn a_file_that_is_no_libfabric_is_refused() {
    let missing = Library::open("/nonexistent/libfabric.so.1").unwrap_err();
    assert!(matches!(missing, OpenError::Load { .. }), "{missing}");
    if let Err(e) = Library::open("libc.so.6") {
        assert!(
            matches!(
                e,
                OpenError::Symbol {
                    name: "fi_version",
                    ..
                }
            ),
            "{e}"
        );
    } else {
        panic!("libc is no libfabric");
    }
}

#[test]
fn getinfo_answers_hints() {
    let Some(library) = library() else { return };
    let infos = getinfo(&library, None, ("", Flags::empty())).unwrap();
    assert!(
        infos
            .iter()
            .any(|i| i.provider() == "tcp" && i.ep_type() == EpType::Msg)
    );

    let hints = hints("nonesuch", EpType::Rdm, Level::Safe);
    let none = getinfo(&library, Some(&hints), HERE).unwrap_err();
    assert_eq!(none.errno, Errno::ENODATA);
    assert_eq!(
        library.strerror(Errno::ENODATA).to_lowercase(),
        "no data available"
    );

    let info = rdm_info(&library, Flags::empty());
    assert!(info.caps().contains(Flags::MSG | Flags::TAGGED));
    assert_eq!(info.ep_type(), EpType::Rdm);
    assert_eq!(info.threading(), Level::Safe);
    assert!(info.to_string().contains("FI_EP_RDM"), "{info}");
    let from = info.src_addr().unwrap().socket_addr().unwrap();
    assert!(from.ip().is_loopback());
}

#[test]
fn two_libraries_live_side_by_side() {
    let Some(one) = library() else { return };
    if one.path() == Path::new(DEBIAN) || !Path::new(DEBIAN).exists() {
        eprintln!("SKIP: needs Debian's library and another in RIPSTOP_FOREIGN_LIB");
        return;
    }
    let two = Library::open(DEBIAN).unwrap();
    let (of_one, of_two) = (
        rdm_info(&one, Flags::empty()),
        rdm_info(&two, Flags::empty()),
    );
    let pair: Pair<ripstop_foreign::Single> = Pair::new(&of_one, CqAttr::default());
    let fabric: Fabric = two.fabric(&of_two).unwrap();
    assert_eq!(
        fabric
            .domain::<ripstop_foreign::Single>(&of_one)
            .unwrap_err()
            .errno,
        Errno::EINVAL
    );
    let domain = fabric.domain::<ripstop_foreign::Single>(&of_two).unwrap();
    assert_eq!(domain.endpoint(&of_one).unwrap_err().errno, Errno::EINVAL);
    pair.domain.endpoint(&of_one).unwrap();
}
