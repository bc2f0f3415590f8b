//! Resource limits: a domain that cannot have its memory or descriptors is refused, with advice in the log.

use std::process::Command;

use crate::common::{fabric, info, open, safe, try_open};
use ripstop_core::provider::Fabric as _;
use ripstop_mem::Parked;
use ripstop_types::{Errno, Result, Threading};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What opening an endpoint and all it needs says now.
fn open_all() -> Result<()> {
    let info = info(None, Threading::Safe);
    let domain = fabric(&info).safe_domain(&info)?;
    try_open(&domain, &info).map(drop)
}

fn limit(resource: Resource, most: u64) {
    let Rlimit { maximum, .. } = getrlimit(resource);
    let current = Some(most);
    setrlimit(resource, Rlimit { current, maximum }).unwrap();
}

/// Runs a test below as a process of its own, and returns its log.
fn log_of(test: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("RIPSTOP_LIMITED", "1")
        .env("FI_LOG_LEVEL", "warn")
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {log}", output.status);
    log
}

/// Whether this process is one whose limits a test may change.
fn is_own() -> bool {
    std::env::var_os("RIPSTOP_LIMITED").is_some()
}

#[test]
fn domain_open_fails_at_the_file_size_limit() {
    let log = log_of("limits::subprocess_file_size");
    assert!(log.contains("ulimit -f"), "{log}");
}

/// Beyond the limit a file gets no byte, and by default the process a signal that ends it.
#[test]
fn subprocess_file_size() {
    if !is_own() {
        return;
    }
    for most in [0, 1, 4095] {
        limit(Resource::Fsize, most);
        assert_eq!(open_all(), Err(Errno::EFBIG), "{most} bytes");
    }
    // The domain has room, its connections have not: who connects is told.
    let info = info(None, Threading::Safe);
    limit(Resource::Fsize, 64 << 20);
    let [near, far] = [(); 2].map(|()| open(&safe(&info), &info));
    let to = near.knows(&far.name());
    limit(Resource::Fsize, 4096);
    let text = Parked::park(vec![1; 8]);
    near.send(&text, to).unwrap();
    assert_eq!(near.fails(), Errno::EFBIG);
    limit(Resource::Fsize, 64 << 20);
    assert_eq!(open_all(), Ok(()));
}

#[test]
fn domain_open_fails_without_descriptors_and_leaks_none() {
    let log = log_of("limits::subprocess_descriptors");
    assert!(log.contains("ulimit -n"), "{log}");
}

/// With any number of descriptors below what is needed.
#[test]
fn subprocess_descriptors() {
    if !is_own() {
        return;
    }
    // What the library keeps for the whole process.
    assert_eq!(open_all(), Ok(()));
    let used = || std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let before = used();
    let mut refused = 0;
    // Numbers in use may lie anywhere; new ones are below the limit.
    for most in 3..1024 {
        limit(Resource::Nofile, most);
        let opened = open_all();
        limit(Resource::Nofile, 1024);
        assert_eq!(used(), before, "up to number {most}");
        match opened {
            Ok(()) => break,
            Err(error) => assert_eq!(error, Errno::EMFILE, "up to number {most}"),
        }
        refused += 1;
    }
    assert!((1..1000).contains(&refused), "{refused} were refused");
}
