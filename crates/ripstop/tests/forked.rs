//! A forked child has every descriptor of its parent. That keeps no connection up that the parent closes, and nobody awake.
//! There is one test in this file, as it is about all descriptors of its process, and measures it.

mod common;

use std::fs;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use common::{LONG, between, rdm};
use ripstop::Progress;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Another descriptor of each socket of this process, as a child has it.
fn sockets() -> rustix::io::Result<Vec<OwnedFd>> {
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    let files = fs::read_dir("/proc/self/fd").expect("the descriptors");
    let sockets = files.filter_map(|file| {
        let file = file.expect("a descriptor");
        let target = fs::read_link(file.path()).ok()?;
        let is_socket = target.to_str()?.starts_with("socket:");
        is_socket.then(|| file.file_name().to_str()?.parse().ok())?
    });
    sockets
        .map(|number| pidfd_getfd(&own, number, PidfdGetfdFlags::empty()))
        .collect()
}

/// What all threads of this process have run.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.try_into().expect("a time")
}

#[test]
fn a_child_keeps_no_connection_up_and_nobody_awake() {
    for on in ["tcp", "shm"] {
        let domains = [(); 2].map(|()| rdm(on, Progress::Background));
        let (left, right) = between(&domains[0], &domains[1]);
        let receive = right.0.recv(vec![0; 8], right.1);
        left.0.send(vec![1; 8], left.1).wait().0.unwrap();
        receive.wait().0.unwrap();
        let child = match sockets() {
            Ok(child) => child,
            Err(why @ (Errno::NOSYS | Errno::PERM)) => {
                println!("SKIP: descriptors cannot be taken: {why}");
                return;
            }
            Err(why) => panic!("descriptors are not taken: {why}"),
        };
        assert!(!child.is_empty());

        // The peer is told.
        let mut receive = right.0.recv(vec![0; 8], right.1);
        drop(left);
        let end = Instant::now() + LONG;
        let told = loop {
            if let Some((outcome, _)) = receive.try_complete() {
                break outcome.unwrap_err();
            }
            assert!(Instant::now() < end, "{on}: the peer is not told");
            thread::sleep(Duration::from_millis(1));
        };
        println!("{on}: {told}");

        // Whoever sleeps is not woken by connections that have ended.
        drop(right);
        let waiting = domains.each_ref().map(|domain| {
            let endpoint = domain.endpoint().unwrap();
            let receive = endpoint.recv(vec![0; 8], None);
            (endpoint, receive)
        });
        thread::sleep(Duration::from_millis(50));
        let (before, time) = (cpu_time(), Duration::from_millis(500));
        thread::sleep(time);
        let used = cpu_time() - before;
        println!("{on}: {used:?} of {time:?}");
        assert!(used < time / 10, "{on}: {used:?} of {time:?}");
        drop((waiting, child));
    }
}
