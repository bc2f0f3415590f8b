//! Three processes under load, of which one is killed at a random moment.
//!
//! `RIPSTOP_KILL_RUNS` is the number of runs, `RIPSTOP_KILL_SEED` the seed, `RIPSTOP_KILL_LOG` a file for
//! the log of the processes. Operations that wait for the killed process must end; with
//! `RIPSTOP_KILL_STRICT`, which needs an idle machine, within 2 s. For example:
//!
//! ```text
//! RIPSTOP_KILL_STRICT=1 RIPSTOP_KILL_RUNS=1000 cargo test -p ripstop-shm --test it -- kill --nocapture
//! ```

use std::time::{Duration, Instant};

use crate::common::group::Group;
use crate::common::load::{self, MEMBERS, Numbers, Setup};
use crate::freed;

/// The test that a process of a group runs.
const ENTRY: &str = "subprocess_member";

/// Runs if nobody says how many.
const RUNS: u64 = 30;

/// Deaths that a group sees before its members end by themselves.
const DEATHS: u64 = 10;

/// Messages, each way, that two members exchange to show that they go on.
const MESSAGES: u32 = 8;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What the processes of a group run; in this one it does nothing.
#[test]
fn subprocess_member() {
    if let Some(setup) = Setup::from_env() {
        load::run(setup, freed::unpark);
    }
}

/// Files that processes of this library could have left.
fn left() -> Vec<std::ffi::OsString> {
    let Ok(files) = std::fs::read_dir("/dev/shm") else {
        return Vec::new();
    };
    let names = files.map_while(Result::ok).map(|file| file.file_name());
    names
        .filter(|name| name.to_string_lossy().contains("load"))
        .collect()
}

/// One is killed: when it has just begun, or later.
fn run(group: &mut Group, numbers: &mut Numbers) {
    let victim = numbers.below(MEMBERS as u64) as usize;
    let wait = match numbers.below(4) {
        // It is about to connect, or to exchange its first messages.
        0 => numbers.below(3_000),
        1 => numbers.below(20_000),
        _ => 20_000 + numbers.below(100_000),
    };
    // All are in full swing, or the youngest is not.
    if numbers.below(2) == 0 {
        for (near, far) in [(0, 1), (1, 2), (0, 2)] {
            group.exchange(near, far, 2);
        }
    }
    let stop = Instant::now() + Duration::from_micros(wait);
    while Instant::now() < stop {
        std::thread::sleep(Duration::from_micros(wait.min(200)));
    }
    group.kill(victim);
    let [near, far] = group.living()[..] else {
        panic!("two are left");
    };
    group.exchange(near, far, MESSAGES);
    group.start(victim);
}

#[test]
fn processes_survive_a_kill_at_any_moment() {
    if Setup::from_env().is_some() {
        return;
    }
    let seed = number("RIPSTOP_KILL_SEED").unwrap_or_else(|| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        now.as_nanos() as u64
    });
    let runs = number("RIPSTOP_KILL_RUNS").unwrap_or(RUNS);
    println!("RIPSTOP_KILL_SEED={seed} RIPSTOP_KILL_RUNS={runs}");
    let mut noticed = Vec::new();
    let start = Instant::now();
    for first in (0..runs).step_by(DEATHS as usize) {
        // Each group by its own numbers, so that one of them can be had alone.
        let mut numbers = Numbers(seed.wrapping_add(first));
        let name = format!("{}-{first}", ripstop_os::pid());
        let mut group = Group::new(&format!("kill::{ENTRY}"), name, numbers.next());
        if let Some(path) = std::env::var_os("RIPSTOP_KILL_LOG") {
            group = group.with_log(std::fs::File::create(path).unwrap());
        }
        println!("runs from {first} on, {:?}", start.elapsed());
        (0..MEMBERS).for_each(|member| group.start(member));
        for _ in first..runs.min(first + DEATHS) {
            run(&mut group, &mut numbers);
        }
        for (near, far) in [(0, 1), (1, 2), (0, 2)] {
            group.exchange(near, far, MESSAGES);
        }
        noticed.extend(group.end());
    }
    noticed.sort_unstable();
    let at = |part: usize| noticed[(noticed.len() - 1) * part / 100];
    println!(
        "{runs} killed in {:?}: noticed after {} ms (half of them), {} (99 of 100), {} (all)",
        start.elapsed(),
        at(50),
        at(99),
        at(100)
    );
    assert_eq!(left(), Vec::<std::ffi::OsString>::new(), "in /dev/shm");
}
