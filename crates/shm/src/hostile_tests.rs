//! A hostile peer: it completes the handshake, and then attacks the victim through the memory and the
//! socket of the pair, while the victim serves it and an honest third process. Those two check every
//! byte they exchange ([`common::load`](crate::common::load)).
//!
//! `RIPSTOP_HOSTILE_ROUNDS` is the number of rounds, `RIPSTOP_HOSTILE_SEED` the seed:
//!
//! ```text
//! RIPSTOP_HOSTILE_ROUNDS=5000 cargo test -p ripstop-shm --lib hostile -- --nocapture
//! ```

mod forge;
mod joint;
mod joint_access;
mod peer;
mod rig;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ripstop_mem::ring::Layout;
use ripstop_os::{MemFd, Socket};
use ripstop_wire::xnet::cm::Kind;
use ripstop_wire::xnet::rdm::Greeting;

use self::forge::pick;
use self::peer::{ATTACKS, Attack, HostilePeer, SideAttacks, hello, message, socket_name};
use crate::common::group::Group;
use crate::common::load::{self, Numbers, Setup};

/// Rounds unless `RIPSTOP_HOSTILE_ROUNDS` is set.
const DEFAULT_ROUNDS: u64 = 200;

/// The numbers of the processes in their group.
const VICTIM: usize = 0;
const HONEST: usize = 1;
const HOSTILE: usize = 2;

/// Rounds before the victim is started anew.
const ROUNDS_PER_VICTIM: u64 = 50;

/// Bytes of unexpected messages that the victim's domain may keep.
const MAX_SAVED_BYTES: u64 = 64 << 20;

/// Messages that victim and honest process exchange during an attack, in each direction.
const MESSAGES_EACH_WAY: u32 = 3;

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The main function of victim and honest process; without their environment it does nothing.
#[test]
fn subprocess_member() {
    if let Some(setup) = Setup::from_env() {
        load::run(setup, ripstop_sim::memory::unpark);
    }
}

/// Begins a handshake that fails; the victim has to free what it holds for it.
fn broken_handshake(group: &str, random: &mut Numbers) -> Socket {
    let layout = Layout::new(256, 65536).unwrap();
    let memory = MemFd::create("hostile", layout.len()).unwrap();
    memory.seal().unwrap();
    let memory = OwnedFd::from(memory);
    let socket = Socket::unix_connect(&socket_name(group, VICTIM)).unwrap();
    let greeting = Greeting::request(0, 0, 1 + random.below(1 << 30) as u32);
    let mut bytes = message(Kind::Request, &hello(group, greeting, layout));
    // The message is always damaged, since a valid one might be accepted.
    let at = random.below(bytes.len() as u64) as usize;
    match random.below(2) {
        0 => bytes.truncate(at.max(1)),
        _ => bytes[at] ^= 0x80,
    }
    let some = [memory.as_fd(); 4];
    let count = pick(random, &[0, 1, 3, 4]);
    let few: &[BorrowedFd<'_>] = &some[..count];
    let _ = socket.send_with(&bytes, few);
    socket
}

/// One connection of the hostile peer. Returns its attack, and whether the victim has ended the connection.
fn round(group: &mut Group, life: u64, random: &mut Numbers) -> (Attack, bool) {
    let attack = pick(random, &ATTACKS);
    let side_attacks = SideAttacks {
        doorbells: random.below(3) == 0,
        punch_holes: random.below(3) == 0,
        stray_descriptors: random.below(3) == 0,
        sleep_words: random.below(3) == 0,
        forged_records: random.below(3) == 0,
        joint_words: random.below(3) == 0,
        stuck_claims: random.below(3) == 0,
    };
    println!("{attack:?}, {side_attacks:?}");
    let name = group.name.clone();
    let alive = format!("alive {HOSTILE} {life}");
    let halves: Vec<_> = (0..random.below(3))
        .map(|_| broken_handshake(&name, random))
        .collect();
    let (peer, listener) = match random.below(2) {
        0 => {
            let peer = HostilePeer::connect(&name, random);
            group.tell(VICTIM, &alive);
            (peer, None)
        }
        _ => {
            let listener = Socket::unix_bound(&socket_name(&name, HOSTILE)).unwrap();
            listener.listen(16).unwrap();
            group.tell(VICTIM, &alive);
            (HostilePeer::accept(&name, &listener), Some(listener))
        }
    };
    let (stop, mut numbers) = (AtomicBool::new(false), random.clone());
    let least = Instant::now() + Duration::from_millis(5 + random.below(40));
    let mut dropped = false;
    std::thread::scope(|scope| {
        scope.spawn(|| peer.attack(attack, random, &stop));
        scope.spawn(|| peer.side_attacks(side_attacks, &mut numbers, &stop));
        // Its threads stop also if this one panics.
        let _stop_on_drop = StopOnDrop(&stop);
        group.exchange(VICTIM, HONEST, MESSAGES_EACH_WAY);
        while Instant::now() < least && !dropped {
            dropped = peer.is_dropped();
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    dropped |= peer.is_dropped();
    drop((peer, listener, halves));
    group.tell(VICTIM, &format!("dead {HOSTILE}"));
    let took = group.hear(VICTIM, &format!("clean {HOSTILE}"));
    group.noticed.push(took.parse().unwrap());
    group.exchange(VICTIM, HONEST, MESSAGES_EACH_WAY);
    (attack, dropped)
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The results of the rounds.
#[derive(Debug, Default)]
struct Summary {
    /// Rounds of each attack, and how many of them the victim has ended.
    attacks: BTreeMap<Attack, (u32, u32)>,
    /// Lines of the victims' logs that name the hostile peer.
    lines: usize,
    /// How long victims took to notice the end of the connection, in milliseconds.
    noticed: Vec<u64>,
    /// The most memory that a victim has used, in kilobytes.
    peak: u64,
}

impl Summary {
    /// Whether a victim has ended each kind of attack that breaks the protocol, and has logged the peer.
    fn is_complete(&self) -> bool {
        let wrong = [
            Attack::Noise,
            Attack::NearlyValid,
            Attack::Credits,
            Attack::Forged,
            Attack::Mutated,
            Attack::Garbage,
        ];
        let ended = |attack: &Attack| {
            self.attacks
                .get(attack)
                .is_some_and(|(_, ended)| *ended > 0)
        };
        wrong.iter().all(ended) && self.lines > 0
    }
}

/// Rounds with one victim.
fn rounds(lives: Range<u64>, seed: u64, summary: &mut Summary) {
    let path = std::env::temp_dir().join(format!("ripstop-hostile-{}", ripstop_os::pid()));
    let log = File::create(&path).unwrap();
    let name = format!("{}-{}", ripstop_os::pid(), lives.start);
    let mut group = Group::new(
        "hostile_tests::subprocess_member",
        name.clone(),
        seed ^ lives.start,
    )
    .with_hostile(HOSTILE)
    .with_log(log)
    .with_param("FI_SHM_MAX_SAVED_BYTES", MAX_SAVED_BYTES / 8)
    .with_param("FI_SHM_MAX_SAVED_TOTAL", MAX_SAVED_BYTES);
    group.start(VICTIM);
    group.start(HONEST);
    for life in lives {
        // Each round has its own random numbers, so that it can be repeated alone.
        let mut random = Numbers(seed.wrapping_add(life.wrapping_mul(0x1234_5678_9abc)));
        println!("round {life}");
        let (attack, dropped) = round(&mut group, 100 + life, &mut random);
        let entry = summary.attacks.entry(attack).or_default();
        entry.0 += 1;
        entry.1 += u32::from(dropped);
    }
    summary.peak = summary.peak.max(group.peak(VICTIM));
    summary.noticed.extend(group.end());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let peer = load::name(&name, HOSTILE);
    summary.lines += text.lines().filter(|line| line.contains(&peer)).count();
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn hostile_peer_with_the_memory_harms_nobody() {
    let seed = env_number("RIPSTOP_HOSTILE_SEED").unwrap_or_else(|| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        now.as_nanos() as u64
    });
    let count = env_number("RIPSTOP_HOSTILE_ROUNDS").unwrap_or(DEFAULT_ROUNDS);
    let first = env_number("RIPSTOP_HOSTILE_FIRST").unwrap_or(0);
    println!("RIPSTOP_HOSTILE_SEED={seed} RIPSTOP_HOSTILE_ROUNDS={count}");
    let (start, mut summary) = (Instant::now(), Summary::default());
    for from in (first..first + count).step_by(ROUNDS_PER_VICTIM as usize) {
        let to = (from + ROUNDS_PER_VICTIM).min(first + count);
        rounds(from..to, seed, &mut summary);
    }
    // The outcome of a round depends on scheduling: further rounds, until each kind of attack that breaks
    // the protocol was ended once.
    let mut next = first + count;
    while count >= DEFAULT_ROUNDS && !summary.is_complete() {
        assert!(next < first + 50 * count, "never ended: {summary:?}");
        rounds(next..next + ROUNDS_PER_VICTIM, seed, &mut summary);
        next += ROUNDS_PER_VICTIM;
    }
    println!(
        "{} rounds in {:?}; of each, and ended by the victim: {:?}",
        next - first,
        start.elapsed(),
        summary.attacks
    );
    println!(
        "{} lines of the log name the peer; its end was noticed after {:?} ms at most; the victim \
         used {} kB at most",
        summary.lines,
        summary.noticed.iter().max(),
        summary.peak
    );
    assert!(
        summary.peak * 1024 < 4 * MAX_SAVED_BYTES,
        "{} kB",
        summary.peak
    );
}
