//! A process that is stopped while it copies to memory of this one: what it may still write when it goes on is nobody
//! else's then.
#![cfg(feature = "shm")]

mod common;

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::{LONG, hints};
use ripstop::{Access, Address, Domain, Endpoint, Peer, Progress, Region, Remote, SharedRegion};

/// For the other process: whom it writes to, and where.
const ADDRESS: &str = "RIPSTOP_TEST_ADDRESS";
const ADDR: &str = "RIPSTOP_TEST_REMOTE_ADDR";
const KEY: &str = "RIPSTOP_TEST_REMOTE_KEY";

/// A copy as long as this takes most of the time of the other process, and memory as long as this is mapped by itself.
const LEN: usize = 40 << 20;

/// What it copies, and what was there before.
const WRITTEN: u8 = 7;
const BEFORE: u8 = 1;

/// How long peers may take to leave a region.
const CLOSING: Duration = Duration::from_secs(1);

/// The processes that are tried until one is stopped while it copies.
const TRIES: usize = 200;

fn domain() -> Domain {
    let hints = hints("shm").rma();
    hints.progress(Progress::Manual).open().unwrap()
}

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What the other process is told of this one: its endpoint, and its address.
fn connect(parent: String) -> (Domain, Endpoint, Peer) {
    let domain = domain();
    let endpoint = domain.endpoint().unwrap();
    let parent = domain.insert(parent.parse::<Address>().unwrap()).unwrap();
    (domain, endpoint, parent)
}

/// A process that writes to a region of this one until that fails.
#[test]
fn subprocess_writer() {
    let (Some(parent), Some(key)) = (given(ADDRESS), given(KEY)) else {
        return;
    };
    let (_domain, endpoint, parent) = connect(parent);
    let number = |text: String| text.parse().unwrap();
    let to = Remote {
        addr: number(given(ADDR).unwrap()),
        key: number(key),
    };
    let mut bytes = vec![WRITTEN; LEN];
    for count in 0.. {
        let (outcome, back) = endpoint.write(bytes, parent, to).wait();
        bytes = back;
        if outcome.is_err() {
            return;
        }
        if count == 0 {
            endpoint.send(vec![0; 1], parent).wait().0.unwrap();
        }
    }
}

/// A process that sends messages to this one until that fails.
#[test]
fn subprocess_sender() {
    let Some(parent) = given(ADDRESS) else { return };
    let (_domain, endpoint, parent) = connect(parent);
    let mut bytes = vec![WRITTEN; LEN];
    while let (Ok(_), back) = endpoint.send(bytes, parent).wait() {
        bytes = back;
    }
}

/// Another process, which is killed when it is not needed any more.
struct Other(Child);

impl Other {
    fn start(test: &str, endpoint: &Endpoint, to: Option<Remote>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test])
            .env("FI_SHM_COPY", "attach")
            .env(ADDRESS, endpoint.address().unwrap().to_string())
            .stdout(Stdio::null());
        if let Some(Remote { addr, key }) = to {
            command.env(ADDR, addr.to_string());
            command.env(KEY, key.to_string());
        }
        Self(command.spawn().unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal with `kill(1)`, while the domain goes on.
fn signal(child: &Child, signal: &str, step: impl FnMut()) {
    let pid = child.id().to_string();
    let mut kill = Command::new("kill").args([signal, &pid]).spawn().unwrap();
    assert!(until_exit(&mut kill, step).success());
}

/// Waits for the end of a process, while the domain goes on.
fn until_exit(child: &mut Child, mut step: impl FnMut()) -> ExitStatus {
    let end = Instant::now() + LONG;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < end, "it does not end");
        step();
    }
}

/// Stops a process, which may be while it copies or not.
fn stop(child: &Child, mut step: impl FnMut()) {
    signal(child, "-STOP", &mut step);
    let stat = format!("/proc/{}/stat", child.id());
    let end = Instant::now() + LONG;
    while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
        assert!(Instant::now() < end, "it does not stop");
        step();
    }
}

/// The mappings of this process.
fn maps() -> String {
    std::fs::read_to_string("/proc/self/maps").unwrap()
}

/// Whether this process has memory at an address.
fn is_mapped(memory: *const u8) -> bool {
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    maps().lines().any(|line| {
        let (start, rest) = line.split_once('-').unwrap();
        let (end, _) = rest.split_once(' ').unwrap();
        (number(start)..number(end)).contains(&(memory.addr() as u64))
    })
}

/// A region that a peer may write, and how to see whether its memory is there.
struct Target<R> {
    region: R,
    remote: Remote,
    is_there: Box<dyn Fn() -> bool>,
}

fn owned(domain: &Domain) -> Target<Region<Vec<u8>>> {
    let bytes = vec![BEFORE; LEN];
    let memory = bytes.as_ptr();
    let region = domain.register(bytes, Access::ALL).unwrap();
    Target {
        remote: region.remote(0),
        region,
        is_there: Box::new(move || is_mapped(memory)),
    }
}

/// Peers that may only write do not map it: they reach it by its address.
fn shared(domain: &Domain) -> Target<SharedRegion> {
    let region = domain.register_shared(LEN, Access::WRITE).unwrap();
    Target {
        remote: region.remote(0),
        region,
        is_there: Box::new(|| maps().contains("ripstop-region")),
    }
}

/// Stops writers until one is in the middle of a copy, and `close` had to wait for it. Where none was, the memory was given
/// back. What `close` returns is kept until the writer has gone on.
fn stopped_writer_keeps_memory<R, T>(
    register: impl Fn(&Domain) -> Target<R>,
    close: impl Fn(&Domain, R, &dyn Fn() -> bool) -> T,
) {
    let domain = domain();
    for _ in 0..TRIES {
        let endpoint = domain.endpoint().unwrap();
        let Target {
            region,
            remote,
            is_there,
        } = register(&domain);
        let mut writer = Other::start("subprocess_writer", &endpoint, Some(remote));
        let writing = endpoint.recv(vec![0; 1], None).wait_timeout(LONG);
        writing.expect("it writes").0.unwrap();
        stop(&writer.0, || _ = domain.progress());
        let start = Instant::now();
        let kept = close(&domain, region, &is_there);
        let waited = start.elapsed() >= CLOSING;
        let progress = || _ = domain.progress();
        signal(&writer.0, "-CONT", progress);
        until_exit(&mut writer.0, progress);
        drop(kept);
        if waited {
            assert!(is_there(), "a writer that was stopped wrote to it");
            return;
        }
    }
    panic!("none of {TRIES} writers was stopped while it wrote");
}

/// Drops a region, and waits until its memory is gone, but not for ever.
fn drop_region<R>(domain: &Domain, region: R, is_there: &dyn Fn() -> bool) {
    let start = Instant::now();
    drop(region);
    while is_there() && start.elapsed() < 2 * CLOSING {
        domain.progress();
    }
}

#[test]
fn region_that_a_stopped_peer_may_write_gives_a_copy_back() {
    stopped_writer_keeps_memory(owned, |_, region, _| {
        let bytes = region.into_buf();
        assert!(bytes.len() == LEN && bytes.iter().all(|byte| *byte == WRITTEN));
        bytes
    });
}

#[test]
fn dropped_region_that_a_stopped_peer_may_write_is_leaked() {
    stopped_writer_keeps_memory(owned, drop_region);
}

#[test]
fn dropped_shared_region_that_a_stopped_peer_may_write_is_leaked() {
    stopped_writer_keeps_memory(shared, drop_region);
}

/// Both processes copy a long message. The receiver closes its endpoint while the sender stands still.
#[test]
fn receive_that_a_stopped_peer_may_write_is_leaked() {
    if std::thread::available_parallelism().unwrap().get() == 1 {
        println!("SKIP: with one processor the receiver copies alone");
        return;
    }
    let domain = domain();
    for _ in 0..TRIES {
        let endpoint = domain.endpoint().unwrap();
        let sender = Other::start("subprocess_sender", &endpoint, None);
        let mut memory = std::ptr::null();
        let mut receive = None;
        let mut bytes = Some(vec![BEFORE; LEN]);
        let mut received = 0;
        let mut step = || {
            if let Some(bytes) = bytes.take() {
                memory = bytes.as_ptr();
                receive = Some(endpoint.recv(bytes, None));
            }
            domain.progress();
            if let Some((outcome, back)) = receive.as_mut().and_then(|op| op.try_complete()) {
                outcome.unwrap();
                bytes = Some(back);
                received += 1;
            }
            received
        };
        let end = Instant::now() + LONG;
        while step() < 3 {
            assert!(Instant::now() < end, "nothing comes");
        }
        stop(&sender.0, || _ = step());
        let start = Instant::now();
        // The endpoint closes with its last operation.
        drop((endpoint, receive));
        if start.elapsed() >= CLOSING {
            assert!(is_mapped(memory), "a sender that was stopped wrote to it");
            return;
        }
    }
    println!("SKIP: none of {TRIES} senders was stopped while it copied");
}
