//! Drives an installed libfabric over the loopback interface through this crate.
//!
//! The library is the one named by `RIPSTOP_FOREIGN_LIB`, or Debian's. Without either, each
//! test says that it skips.

#[path = "../../../conformance/src/subject/model/freed.rs"]
mod freed;
mod provider;

use std::path::Path;
use std::time::Duration;

use ripstop_core::FidToken;
use ripstop_core::provider::{Domain as _, Fabric as _, Provider as _};
use ripstop_foreign::{Library, OpenError};
use ripstop_types::{EpType, Errno, Flags, Threading as Level};

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
fn two_libraries_live_side_by_side() {
    let Some(one) = library() else { return };
    if one.path() == Path::new(DEBIAN) || !Path::new(DEBIAN).exists() {
        eprintln!("SKIP: needs Debian's library and another in RIPSTOP_FOREIGN_LIB");
        return;
    }
    let two = Library::open(DEBIAN).unwrap();
    let caps = Flags::MSG | Flags::TAGGED;
    let [(one, of_one), (two, of_two)] =
        [one, two].map(|library| provider::find(&library, EpType::Rdm, caps, Level::Domain));
    let [one, two] = [(one, &of_one), (two, &of_two)]
        .map(|(provider, info)| provider.fabric(&info.fabric).unwrap());
    assert_eq!(two.serial_domain(&of_one).err(), Some(Errno::EINVAL));
    let domain = two.serial_domain(&of_two).unwrap();
    let token = FidToken(1);
    assert_eq!(domain.endpoint(&of_one, token).err(), Some(Errno::EINVAL));
    let domain = one.serial_domain(&of_one).unwrap();
    domain.endpoint(&of_one, token).unwrap();
}
