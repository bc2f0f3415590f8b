//! A C program that is started with parameters of the library in its environment.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{c_int, c_void};
use core::ptr;
use std::fs;
use std::process::Command;

use c::side::Side;
use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

/// Set in the process that is the program.
const PROGRAM: &str = "RIPSTOP_PARAMETERS_PROGRAM";

/// Runs a test again in a process of its own with a variable set, as the library reads it once;
/// whether this is that process.
fn is_program(test: &str, variable: (&str, &str)) -> bool {
    if std::env::var_os(PROGRAM).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    let output = command.env(PROGRAM, "1").envs([variable]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let ran = output.status.success() && said.contains("1 passed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(ran, "{test} with {variable:?}:\n{said}{errors}");
    false
}

/// An endpoint over tcp, which makes progress only when it is told to.
fn open() -> Side {
    Side::of(loopback(FI_EP_RDM, |hints| {
        hints.domain().threading = FI_THREAD_DOMAIN;
        hints.domain().data_progress = FI_PROGRESS_MANUAL;
        hints.domain().control_progress = FI_PROGRESS_MANUAL;
    }))
}

/// Tagged messages between sides.
trait Talk {
    /// Whether an operation has completed.
    fn has_completed(&self) -> bool;

    fn recv(&self, room: &mut [u8]);

    fn send(&self, text: &[u8], to: fi_addr_t);

    /// A message to another side, which has posted nothing else.
    fn exchange(&self, other: &Self, to: fi_addr_t);
}

impl Talk for Side {
    fn has_completed(&self) -> bool {
        self.poll().map(Result::unwrap).is_some()
    }

    fn recv(&self, room: &mut [u8]) {
        let at: *mut c_void = room.as_mut_ptr().cast();
        let (ep, any) = (self.ep, FI_ADDR_UNSPEC);
        let code = op!(ep, tagged.recv(at, room.len(), NONE, any, 1, 0, NONE));
        assert_eq!(code, 0);
    }

    fn send(&self, text: &[u8], to: fi_addr_t) {
        let (at, ep) = (text.as_ptr().cast::<c_void>(), self.ep);
        post(self.cq, || {
            op!(ep, tagged.send(at, text.len(), NONE, to, 1, NONE))
        });
    }

    fn exchange(&self, other: &Self, to: fi_addr_t) {
        let mut room = [0; 8];
        other.recv(&mut room);
        self.send(b"exchange", to);
        let (mut sent, mut got) = (false, false);
        until("an exchange", || {
            sent |= self.has_completed();
            got |= other.has_completed();
            (sent && got).then_some(())
        });
        assert_eq!(&room, b"exchange");
    }
}

/// Sockets that this process has open.
fn sockets() -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let is_socket = |entry: &fs::DirEntry| {
        let target = fs::read_link(entry.path());
        target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
    };
    open.flatten().filter(is_socket).count()
}

/// How many sockets go when a peer that was sent to is removed.
fn lost_with_the_peer() -> usize {
    let (near, far) = (open(), open());
    let name = far.name();
    let mut to = insert(near.av, &name);
    near.exchange(&far, to);
    let before = sockets();
    assert_eq!(op!(near.av, ops.remove(&mut to, 1, 0)), 0);
    let lost = before - sockets();
    let again = insert(near.av, &name);
    near.exchange(&far, again);
    lost
}

#[test]
fn a_removed_peer_keeps_its_connection() {
    let test = "a_removed_peer_keeps_its_connection";
    if is_program(test, ("FI_AV_REMOVE_CLEANUP", "0")) {
        assert_eq!(lost_with_the_peer(), 0);
    }
}

#[test]
fn a_removed_peer_loses_its_connection_where_asked() {
    let test = "a_removed_peer_loses_its_connection_where_asked";
    if is_program(test, ("FI_AV_REMOVE_CLEANUP", "1")) {
        assert_eq!(lost_with_the_peer(), 1);
    }
}

/// A process behind a firewall connects to its peers, and they do not connect to it.
#[test]
fn nobody_connects_to_a_process_behind_a_firewall() {
    let test = "nobody_connects_to_a_process_behind_a_firewall";
    if !is_program(test, ("FI_TCP_FIREWALL_ADDR", "1")) {
        return;
    }
    let (near, far) = (open(), open());
    let (mut said, mut len): (c_int, usize) = (-1, size_of::<c_int>());
    let (at, level) = ((&raw mut said).cast::<c_void>(), FI_OPT_ENDPOINT);
    let near_fid = near.ep.cast::<fid>();
    let getopt = unsafe { (*(*near.ep).ops).getopt.unwrap() };
    let code = unsafe { getopt(near_fid, level, FI_OPT_FIREWALL_ADDR, at, &mut len) };
    assert_eq!((code, said, len), (0, 1, size_of::<c_int>()));
    let to_near = insert(far.av, &near.name());
    let to_far = insert(near.av, &far.name());
    near.exchange(&far, to_far);
    far.exchange(&near, to_near);
    drop(near);
    let text = b"anybody there";
    until("word that nobody can connect", || {
        let (at, ep) = (text.as_ptr().cast::<c_void>(), far.ep);
        let code = op!(ep, tagged.inject(at, text.len(), to_near, 1));
        // What was posted before the end was noticed may end in an error.
        let mut entry = fi_cq_entry::default();
        let read = op!(far.cq, ops.read(ptr::from_mut(&mut entry).cast(), 1));
        if read == -FI_EAVAIL as isize {
            let mut error = fi_cq_err_entry::default();
            assert_eq!(op!(far.cq, ops.readerr(&mut error, 0)), 1);
        }
        (code == -FI_EFIREWALLADDR as isize).then_some(())
    });
}

const LONG: usize = 100_000;

/// Whether a message of `LONG` bytes leaves before there is a receive for it.
fn leaves_unasked() -> bool {
    let (near, far) = (open(), open());
    let to = insert(near.av, &far.name());
    near.exchange(&far, to);
    let (text, mut room) = (vec![7_u8; LONG], vec![0; LONG]);
    near.send(&text, to);
    let mut left = false;
    for _ in 0..2000 {
        left |= near.has_completed();
        assert!(!far.has_completed());
    }
    far.recv(&mut room);
    let mut got = false;
    let unasked = left;
    until("the message", || {
        left |= near.has_completed();
        got |= far.has_completed();
        (left && got).then_some(())
    });
    assert_eq!(room, text);
    unasked
}

#[test]
fn long_messages_wait_where_few_bytes_are_saved() {
    let test = "long_messages_wait_where_few_bytes_are_saved";
    if is_program(test, ("FI_TCP_MAX_SAVED_SIZE", "50000")) {
        assert!(!leaves_unasked());
    }
}

#[test]
fn long_messages_leave_where_more_bytes_are_saved() {
    let test = "long_messages_leave_where_more_bytes_are_saved";
    if is_program(test, ("FI_TCP_MAX_SAVED_SIZE", "100000")) {
        assert!(leaves_unasked());
    }
}

/// More than a shared address vector has room for by itself.
const MANY: usize = 20_000;

#[test]
fn a_shared_address_vector_has_room_for_the_universe() {
    let test = "a_shared_address_vector_has_room_for_the_universe";
    if !is_program(test, ("FI_UNIVERSE_SIZE", "20000")) {
        return;
    }
    let info = loopback(FI_EP_RDM, |_| ());
    let fabric = fabric(&info);
    let domain = domain(fabric, &info);
    let name = format!("universe-{}\0", std::process::id());
    let mut attr = fi_av_attr {
        name: name.as_ptr().cast(),
        ..Default::default()
    };
    let mut av = ptr::null_mut();
    assert_eq!(op!(domain, ops.av_open(&mut attr, &mut av, NONE)), 0);
    let addrs: Vec<u8> = (0..MANY)
        .flat_map(|i| sockaddr([127, 1, (i >> 8) as u8, i as u8], 7))
        .collect();
    let at = addrs.as_ptr().cast::<c_void>();
    let done = op!(av, ops.insert(at, MANY, ptr::null_mut(), 0, NONE));
    assert_eq!(done as usize, MANY);
    close_all!(av, domain, fabric);
}
