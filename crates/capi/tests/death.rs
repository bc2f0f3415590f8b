//! C programs that sleep in a call, without an end, when their peer's process is killed.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{CStr, c_void};
use core::ptr;
use std::env;
use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use c::watch::{tid, until_asleep, watch};
use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

/// What is documented is at once on a connection, and 1 s where it is tried to reach the peer again;
/// the default time to reach a peer is 5 s, and would not be enough to tell.
const BOUND: Duration = Duration::from_secs(3);

/// Where the other process finds this one.
const ADDRESS: &str = "RIPSTOP_TEST_ADDRESS";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

/// Runs one test of this file in a process of its own, which does its part of it.
fn other_process(test: &str, variant: &str, address: &[u8]) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", test])
        .env(ADDRESS, format!("{variant}/{}", hex(address)));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// The variant and the address, in the other process.
fn started() -> Option<(String, Vec<u8>)> {
    let text = env::var(ADDRESS).ok()?;
    let (variant, address) = text.split_once('/')?;
    Some((variant.to_owned(), unhex(address)))
}

fn sleep_for_ever() -> ! {
    loop {
        thread::park();
    }
}

/// Kills a process once `wait` sleeps, and looks how long that goes on sleeping.
fn killed_while<T: Send>(mut child: Child, what: &str, wait: impl FnOnce() -> T + Send) -> T {
    let (watch, mut reports) = watch(1);
    let report = reports.remove(0);
    thread::scope(|scope| {
        let (started, start) = channel();
        let waiter = scope.spawn(move || {
            started.send(tid()).unwrap();
            let outcome = wait();
            report.event();
            outcome
        });
        until_asleep(start.recv().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let killed = Instant::now();
        watch.next(what);
        let took = killed.elapsed();
        assert!(took < BOUND, "{what}: {took:?}");
        waiter.join().unwrap()
    })
}

fn interface(provider: &CStr, ep_type: fi_ep_type) -> Info {
    let tcp = provider == c"tcp";
    let hints = Info::hints();
    hints.ep().type_ = ep_type;
    hints.get().caps = match ep_type {
        FI_EP_RDM => FI_MSG | FI_DIRECTED_RECV,
        _ => FI_MSG,
    };
    hints.get().addr_format = if tcp { FI_SOCKADDR_IN } else { FI_ADDR_STR };
    let (node, flags) = match tcp {
        true => (Some(c"127.0.0.1"), FI_SOURCE),
        false => (None, 0),
    };
    getinfo(NOW, node, None, flags, Some(&hints)).unwrap()
}

#[derive(Clone, Copy)]
struct Any<T>(*mut T);

// SAFETY: the domains of these tests are `FI_THREAD_SAFE`, the default.
unsafe impl<T> Send for Any<T> {}
// SAFETY: domains of `FI_THREAD_SAFE` may be called by several threads at once.
unsafe impl<T> Sync for Any<T> {}

/// The ways to wait for what a queue and a counter of an endpoint tell.
const WAYS: [&str; 2] = ["cq", "cntr"];

/// Waits for the failure of one receive.
fn wait_for_failure(way: &str, cq: Any<fid_cq>, counter: Any<fid_cntr>) {
    let mut entry = fi_cq_entry::default();
    let entry = ptr::from_mut(&mut entry).cast::<c_void>();
    match way {
        "cq" => {
            let read = op!(cq.0, ops.sread(entry, 1, ptr::null(), -1));
            assert_eq!(read, -FI_EAVAIL as isize);
        }
        _ => assert_eq!(op!(counter.0, ops.wait(u64::MAX, -1)), -FI_EAVAIL),
    }
    let mut error = fi_cq_err_entry::default();
    assert_eq!(op!(cq.0, ops.readerr(&mut error, 0)), 1);
    assert_eq!(op!(counter.0, ops.readerr()), 1);
}

/// An endpoint for reliable datagrams.
fn datagrams(provider: &CStr) -> (Info, *mut fid_domain, *mut fid_av, *mut fid_cq, *mut fid_ep) {
    let info = interface(provider, FI_EP_RDM);
    let domain = domain(fabric(&info), &info);
    let av = av(domain, FI_AV_UNSPEC, 0);
    let cq = cq(domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_UNSPEC);
    let ep = bound(domain, &info, av, cq);
    (info, domain, av, cq, ep)
}

#[test]
fn a_receive_from_a_killed_peer_fails_while_asleep() {
    if let Some((variant, address)) = started() {
        let provider = if variant == "tcp" { c"tcp" } else { c"shm" };
        let (_info, _, av, cq, ep) = datagrams(provider);
        assert_eq!(enable(ep), 0);
        let to = insert(av, &address);
        let own = name(unsafe { (*ep).cm }, ep.cast());
        let text = own.as_ptr().cast();
        post(cq, || op!(ep, msg.send(text, own.len(), NONE, to, NONE)));
        let _: fi_cq_entry = completion(cq);
        sleep_for_ever()
    }
    for (provider, way) in [c"tcp", c"shm"]
        .into_iter()
        .flat_map(|provider| WAYS.map(|way| (provider, way)))
    {
        let (_info, domain, av, cq, ep) = datagrams(provider);
        let counter = cntr(domain);
        assert_eq!(bind(ep, counter, FI_RECV), 0);
        assert_eq!(enable(ep), 0);
        let address = name(unsafe { (*ep).cm }, ep.cast());
        let mut own = [0_u8; 256];
        let buf = own.as_mut_ptr().cast::<c_void>();
        assert_eq!(op!(ep, msg.recv(buf, 256, NONE, FI_ADDR_UNSPEC, NONE)), 0);
        let child = other_process(
            "a_receive_from_a_killed_peer_fails_while_asleep",
            provider.to_str().unwrap(),
            &address,
        );
        let _: fi_cq_entry = completion(cq);
        let peer = insert(av, &own);
        assert_eq!(op!(ep, msg.recv(buf, 256, NONE, peer, NONE)), 0);
        let what = format!("{provider:?}, {way}");
        let (queue, values) = (Any(cq), Any(counter));
        killed_while(child, &what, move || wait_for_failure(way, queue, values));
        // Nor does it take long with the next operation for that peer.
        let start = Instant::now();
        let text = address.as_ptr().cast();
        post(cq, || op!(ep, msg.send(text, 8, NONE, peer, NONE)));
        let mut entry = fi_cq_entry::default();
        let entry = ptr::from_mut(&mut entry).cast::<c_void>();
        let read = op!(cq, ops.sread(entry, 1, ptr::null(), -1));
        assert_eq!(read, -FI_EAVAIL as isize);
        assert!(start.elapsed() < BOUND, "{what}: {:?}", start.elapsed());
        let mut error = fi_cq_err_entry::default();
        assert_eq!(op!(cq, ops.readerr(&mut error, 0)), 1);
        close_all!(ep, counter, cq);
    }
}

/// Room for an event about a connection.
#[repr(C)]
struct CmEntry {
    fid: *mut fid,
    info: *mut fi_info,
    data: [u8; 64],
}

fn event(eq: *mut fid_eq) -> (u32, CmEntry) {
    let mut entry = CmEntry {
        fid: ptr::null_mut(),
        info: ptr::null_mut(),
        data: [0; 64],
    };
    let mut event = 0;
    let buf = ptr::from_mut(&mut entry).cast::<c_void>();
    let size = size_of::<CmEntry>();
    let read = op!(eq, ops.sread(&mut event, buf, size, -1, 0));
    assert!(read > 0, "{read}");
    (event, entry)
}

#[test]
fn a_connection_with_a_killed_peer_ends_while_asleep() {
    if let Some((_, address)) = started() {
        let info = interface(c"tcp", FI_EP_MSG);
        let fabric = fabric(&info);
        let domain = domain(fabric, &info);
        let eq = eq(fabric, FI_WAIT_UNSPEC);
        let cq = cq(domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_UNSPEC);
        let ep = endpoint(domain, &info);
        assert_eq!(bind(ep, eq, 0), 0);
        assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(enable(ep), 0);
        let to = address.as_ptr().cast();
        assert_eq!(op!(ep, cm.connect(to, ptr::null(), 0)), 0);
        let _connected = event(eq);
        sleep_for_ever()
    }
    for way in WAYS.into_iter().chain(["eq"]) {
        let info = interface(c"tcp", FI_EP_MSG);
        let fabric = fabric(&info);
        let eq = eq(fabric, FI_WAIT_UNSPEC);
        let mut pep: *mut fid_pep = ptr::null_mut();
        assert_eq!(op!(fabric, ops.passive_ep(info.0, &mut pep, NONE)), 0);
        assert_eq!(bind(pep, eq, 0), 0);
        assert_eq!(op!(pep, cm.listen()), 0);
        let address = name(unsafe { (*pep).cm }, pep.cast());
        let child = other_process(
            "a_connection_with_a_killed_peer_ends_while_asleep",
            way,
            &address,
        );
        let (asked, entry) = event(eq);
        assert_eq!(asked, FI_CONNREQ);
        let request = Info(entry.info);
        let domain = domain(fabric, &request);
        let cq = cq(domain, FI_CQ_FORMAT_CONTEXT, FI_WAIT_UNSPEC);
        let counter = cntr(domain);
        let ep = endpoint(domain, &request);
        assert_eq!(bind(ep, eq, 0), 0);
        assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(bind(ep, counter, FI_RECV), 0);
        assert_eq!(enable(ep), 0);
        assert_eq!(op!(ep, cm.accept(ptr::null(), 0)), 0);
        assert_eq!(event(eq).0, FI_CONNECTED);
        let mut got = [0_u8; 8];
        let buf = got.as_mut_ptr().cast::<c_void>();
        assert_eq!(op!(ep, msg.recv(buf, 8, NONE, FI_ADDR_UNSPEC, NONE)), 0);
        let (queue, values, events) = (Any(cq), Any(counter), Any(eq));
        killed_while(child, way, move || match way {
            "eq" => assert_eq!(event({ events }.0).0, FI_SHUTDOWN),
            _ => wait_for_failure(way, queue, values),
        });
        close_all!(ep, pep, counter, cq, eq);
    }
}
