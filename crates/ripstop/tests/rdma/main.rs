//! Endpoints over an RDMA device, the one of `bench/device`: what is chosen, and that no memory is given back that the device
//! may still write.

#![cfg(feature = "verbs")]

#[path = "../common/mod.rs"]
mod common;
mod device;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "tests of another crate have it, too"
)]
#[path = "../../../capi/tests/c/device.rs"]
mod process;

use std::process::Command;
use std::time::Instant;

use common::{LONG, Side, between, pattern};
use device::{Device, SIZE, given_back, given_back_early};
use process::{is_program, run};
use ripstop::{Access, Domain, Hints, Op, Outcome, Progress};
use ripstop_core::provider::{Domain as _, Fabric as _, MemoryRegion as _, MrAttr, Provider as _};
use ripstop_mem::Parked;
use ripstop_types::Flags;
use ripstop_verbs::RxmVerbsProvider;

const NAME: &str = "verbs;ofi_rxm";

/// Has this test run in a process that has the device; whether this is that process.
fn has_device(test: &str) -> bool {
    is_program() || {
        let _said = run(test, &[]);
        false
    }
}

fn hints() -> Hints {
    Hints::rdm().rma().provider(NAME).progress(Progress::Manual)
}

/// Two domains with an endpoint each that are connected. One thread drives both.
struct Pair {
    domains: [Domain; 2],
    device: Device,
}

impl Pair {
    fn open() -> (Self, Side, Side) {
        let domains = [(); 2].map(|()| hints().open().expect("a domain on the device"));
        let device = Device::loaded();
        let (a, b) = between(&domains[0], &domains[1]);
        let pair = Self { domains, device };
        let receive = b.0.recv(vec![0; 5], b.1);
        pair.end(a.0.send(b"hello".to_vec(), a.1)).0.unwrap();
        assert_eq!(pair.end(receive).1, b"hello");
        (pair, a, b)
    }

    fn progress(&self) {
        for domain in &self.domains {
            domain.progress();
        }
    }

    fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + LONG;
        loop {
            if let Some(found) = look() {
                return found;
            }
            self.progress();
            assert!(Instant::now() < end, "nothing in {LONG:?}");
        }
    }

    fn end(&self, mut op: Op<Vec<u8>>) -> Outcome<Vec<u8>> {
        self.until(|| op.try_complete())
    }

    /// Until one read is under way at the device.
    fn reads(&self) {
        self.until(|| (self.device.held_reads() == 1).then_some(()));
    }

    /// Drops an operation whose buffer has [`SIZE`] bytes, of which the device reads: the buffer is there as long as that takes.
    fn drop_while_it_reads(&self, op: Op<Vec<u8>>) {
        self.reads();
        let before = given_back();
        drop(op);
        for _ in 0..1000 {
            self.progress();
        }
        let left = self.domains[0].outstanding();
        assert_eq!((given_back() - before, left), (0, 1));
        self.device.let_go_reads();
        self.until(|| (self.domains[0].outstanding() == 0).then_some(()));
        assert_eq!(given_back() - before, 1);
    }
}

#[test]
fn a_device_is_chosen_before_other_providers() {
    if !has_device("a_device_is_chosen_before_other_providers") {
        return;
    }
    let chosen = Hints::rdm().open().expect("a domain");
    assert_eq!(chosen.info().prov_name(), NAME);
    let named = hints().interface("memory0").open().expect("a domain");
    assert_eq!(named.info().domain.name.as_deref(), Some("memory0"));
}

#[test]
fn without_a_device_the_error_says_what_to_do() {
    const TEST: &str = "without_a_device_the_error_says_what_to_do";
    const SYSFS: &str = "SYSFS_PATH";
    const NONE: &str = "/nonexistent";
    if std::env::var_os(SYSFS).is_none_or(|sysfs| sysfs != NONE) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST]).env(SYSFS, NONE);
        let said = command.output().unwrap();
        assert!(
            said.status.success(),
            "{}",
            String::from_utf8_lossy(&said.stdout)
        );
        return;
    }
    let error = hints().open().unwrap_err();
    let told = error.to_string();
    let refusals = &error.refusals().expect("reasons").refusals;
    assert!(refusals.iter().any(|(name, _)| name == NAME), "{told}");
    // The second is said where rdma-core is missing, too.
    let advice = ["rdma link add", "install rdma-core's package"];
    assert!(advice.iter().any(|part| told.contains(part)), "{told}");
    // Others are still found.
    #[cfg(feature = "tcp")]
    assert_eq!(
        common::rdm("tcp", Progress::Manual).info().prov_name(),
        "tcp"
    );
}

#[test]
fn a_dropped_read_keeps_its_buffer_while_the_device_writes_there() {
    if !has_device("a_dropped_read_keeps_its_buffer_while_the_device_writes_there") {
        return;
    }
    let (pair, (a, to_b), _b) = Pair::open();
    let region = pair.domains[1].register(pattern(SIZE + 1, 3), Access::READ);
    let region = region.expect("a region");
    let (read, buf) = pair.end(a.read(vec![0; SIZE], to_b, region.remote(1)));
    read.unwrap();
    assert!(buf == pattern(SIZE + 1, 3)[1..]);

    pair.device.hold_reads();
    let read = a.read(vec![0; SIZE], to_b, region.remote(0));
    pair.drop_while_it_reads(read);
    assert_eq!(given_back_early(), 0);
}

#[test]
fn a_dropped_receive_keeps_its_buffer_while_the_device_writes_there() {
    if !has_device("a_dropped_receive_keeps_its_buffer_while_the_device_writes_there") {
        return;
    }
    // More than goes in packets: the receiver's device reads it.
    let sent = pattern(300_000, 5);
    let (pair, (a, to_b), (b, to_a)) = Pair::open();
    pair.device.hold_reads();
    let receive = a.recv(vec![0; SIZE], to_b);
    let send = b.send(sent.clone(), to_a);
    pair.drop_while_it_reads(receive);
    pair.end(send).0.unwrap();
    // The message is the next one's.
    let (received, buf) = pair.end(a.recv(vec![0; SIZE], to_b));
    assert!(buf[..received.unwrap().len] == sent);
    assert_eq!(given_back_early(), 0);
}

#[test]
fn short_messages_and_writes_go_inline() {
    if !has_device("short_messages_and_writes_go_inline") {
        return;
    }
    const COUNT: usize = 100;
    let (pair, (a, to_b), (b, to_a)) = Pair::open();
    let region = pair.domains[1].register(vec![0; SIZE], Access::ALL);
    let region = region.expect("a region");
    // Those of a run of messages, and of as many writes.
    let inlined = |len| {
        let count = || pair.device.requests().inlined as usize;
        let before = count();
        for at in 0..COUNT {
            let receive = b.recv(vec![0; len], to_a);
            pair.end(a.send(pattern(len, at), to_b)).0.unwrap();
            assert!(pair.end(receive).1 == pattern(len, at));
        }
        let between = count();
        for at in 0..COUNT {
            let write = a.write(pattern(len, at), to_b, region.remote(0));
            pair.end(write).0.unwrap();
        }
        (between - before, count() - between)
    };
    // Inline data is at most 256 bytes, of which the header of a message takes some.
    for (len, messages, writes) in [(8, true, true), (256, false, true), (257, false, false)] {
        let (sent, written) = inlined(len);
        // Credits are short packets, too.
        let is_inline = |inlined| inlined >= COUNT;
        assert_eq!(
            (is_inline(sent), is_inline(written)),
            (messages, writes),
            "{len} B: {sent} and {written} of {COUNT}"
        );
        assert!(messages || sent < COUNT / 4, "{len} B: {sent}");
        assert!(writes || written < COUNT / 4, "{len} B: {written}");
    }
}

#[test]
fn a_closed_endpoint_does_not_wait_for_a_peer_that_has_left() {
    if !has_device("a_closed_endpoint_does_not_wait_for_a_peer_that_has_left") {
        return;
    }
    let (pair, a, (b, to_a)) = Pair::open();
    pair.device.silence();
    drop(a);
    // It has not seen the end yet.
    pair.end(b.send(pattern(8, 1), to_a)).0.unwrap();
    assert_eq!(pair.device.requests().held, 1);
    let before = pair.device.requests().polls;
    drop(b);
    // Half a second would be some thousands.
    let polls = pair.device.requests().polls - before;
    assert!(polls < 50, "{polls} polls");
}

#[test]
fn a_closed_endpoint_leaves_nothing_at_the_device() {
    if !has_device("a_closed_endpoint_leaves_nothing_at_the_device") {
        return;
    }
    let (pair, (a, to_b), _b) = Pair::open();
    let region = pair.domains[1].register(pattern(SIZE + 1, 3), Access::READ);
    let region = region.expect("a region");
    pair.device.hold_reads();
    let read = a.read(vec![0; SIZE], to_b, region.remote(0));
    pair.reads();
    let before = given_back();
    drop(read);
    assert_eq!(given_back(), before);
    drop(a);
    assert_eq!((pair.device.held_reads(), given_back() - before), (0, 1));
    assert_eq!(given_back_early(), 0);
}

#[test]
fn a_peer_that_leaves_gives_buffers_back_that_the_device_has_let_go() {
    if !has_device("a_peer_that_leaves_gives_buffers_back_that_the_device_has_let_go") {
        return;
    }
    let (pair, (a, to_b), (b, _)) = Pair::open();
    let region = pair.domains[1].register(pattern(SIZE + 1, 3), Access::READ);
    let region = region.expect("a region");
    pair.device.hold_reads();
    let mut read = a.read(vec![0; SIZE], to_b, region.remote(0));
    pair.reads();
    drop(b);
    let (outcome, buf) = pair.until(|| {
        let outcome = read.try_complete()?;
        assert_eq!(pair.device.held_reads(), 0, "the device has the buffer");
        Some(outcome)
    });
    assert!(outcome.is_err());
    drop(buf);
    assert_eq!(given_back_early(), 0);
}

#[test]
fn a_region_ends_at_the_device_before_its_memory_is_given_back() {
    if !has_device("a_region_ends_at_the_device_before_its_memory_is_given_back") {
        return;
    }
    let (pair, (a, to_b), _b) = Pair::open();
    let there = &pair.domains[1];
    let region = |len| {
        let region = there.register(vec![0; len], Access::ALL);
        region.expect("a region")
    };
    let (dropped, kept) = (region(SIZE), region(SIZE));
    let before = given_back();
    for region in [&dropped, &kept] {
        let write = a.write(pattern(100_000, 9), to_b, region.remote(7));
        pair.end(write).0.unwrap();
    }
    drop(dropped);
    assert_eq!(given_back() - before, 1);
    let buf = kept.into_buf();
    assert!(buf[7..100_007] == pattern(100_000, 9));
    drop(buf);
    assert_eq!((given_back() - before, given_back_early()), (2, 0));
}

#[test]
fn a_region_that_says_it_has_ended_has_ended_at_the_device() {
    if !has_device("a_region_that_says_it_has_ended_has_ended_at_the_device") {
        return;
    }
    let info = hints().getinfo().expect("an offer").swap_remove(0);
    let fabric = RxmVerbsProvider::new().fabric(&info.fabric).unwrap();
    let domain = fabric.safe_domain(&info).unwrap();
    let memory = Parked::park(vec![0; SIZE]);
    let attr = MrAttr::of_buf(memory.buf(), Flags::REMOTE_READ | Flags::REMOTE_WRITE, 0);
    let region = domain.mr(&attr).unwrap();
    let device = Device::loaded();
    let before = device.ended();
    assert!(region.try_close(false));
    assert_eq!(device.ended() - before, 1);
    assert!(region.try_close(true));
    drop(region);
    assert_eq!(device.ended() - before, 1);
}
