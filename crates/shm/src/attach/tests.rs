//! A copy by attach is from the process that has connected, not from the program that its process became.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use ripstop_mem::ring::{PollStatus, STATUS_PAGE_BYTES};

use super::*;
use crate::readiness::create_shared_memory;

/// How long a shell may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the environment of a process is.
fn environment_of(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // `env_start`, the 50th of all.
    fields[47].parse().unwrap()
}

fn waits_for(what: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !what() {
        assert!(Instant::now() < end, "the shell does not go on");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Without random addresses, so that there is memory at the same address in the program that the shell becomes.
#[test]
fn a_payload_of_a_process_that_has_called_exec_is_not_taken() {
    let mut shell = Command::new("setarch")
        .args(["-R", "sh", "-c", "read go; exec cat"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TOKEN", "a token of eight letters and more")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = shell.id();
    let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    // It has its name before its environment is where it says.
    let environment = || std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let is_there = || environment().windows(6).any(|some| some == b"TOKEN=");
    waits_for(|| name() == "sh\n" && is_there() || has_ended(pid));
    if has_ended(pid) {
        shell.wait().unwrap();
        println!("SKIP: this machine does not let a process have addresses that are not random");
        return;
    }
    let process = Process::open(pid).unwrap();
    let peer_name = Name::new("fi_shm://shell").unwrap();
    let peer = PeerProcess {
        process: &process,
        name: &peer_name,
    };
    let page = create_shared_memory("test", STATUS_PAGE_BYTES).unwrap();
    let map = Arc::new(page.map().unwrap());
    let _own = PollStatus::from_mapping(map.clone(), 1).unwrap();
    let status = PeerPollStatus::from_mapping(map).unwrap();
    let mut attach = Attach::new(status, CopyMode::Attach, Arc::default()).unwrap();
    let addr = environment_of(&shell);
    let mut token = [0; 8];
    let from = Remote {
        base: usize::try_from(addr).unwrap(),
        len: token.len(),
    };
    let read = process.read(&[from], &mut [IoVecMut::from_slice(&mut token)]);
    assert_eq!(read, Ok(token.len()));
    attach.probe = AddressProbe {
        addr,
        token: u64::from_ne_bytes(token),
    };

    let payload = [Payload {
        address: addr,
        len: 16,
    }];
    let mut room = [0; 16];
    let mut gets = |attach: &mut Attach| {
        let mut into = GetPieces::new();
        into.push(IoVecMut::from_slice(&mut room));
        attach.get(peer, &payload, into)
    };
    assert!(gets(&mut attach));
    shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    waits_for(|| name() == "cat\n");
    thread::sleep(Duration::from_micros(200));
    let read = process.read(&[from], &mut [IoVecMut::from_slice(&mut token)]);
    assert_eq!(
        read,
        Ok(token.len()),
        "there is other memory at the address"
    );
    assert!(!gets(&mut attach));
    assert!(!attach.is_same_process(peer));
    drop(shell.stdin.take());
    shell.wait().unwrap();
}

/// `setarch` ends where it is refused what it asks for.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ")
        .is_some_and(|(_, fields)| fields.starts_with('Z'))
}
