//! A hostile peer that writes the words of joint copies of reads and writes: as their initiator, who asks for memory
//! that it may not reach, and as the owner of memory that the victim writes.

use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use ripstop_core::provider::{
    CompletionQueue as _, Domain as _, Endpoint as _, RmaCall, SendKind, Sharing,
};
use ripstop_mem::ring::Grant;
use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};
use ripstop_types::{Errno, Flags, RmaIov};

use super::peer::{HostilePeer, SCRATCH_BYTES};
use super::rig::{Rig, Victim};
use crate::common::other::tell_parent;
use crate::common::{PATIENCE, bytes, mr_attr};
use crate::records::{AddressedRegion, Record, RegionInfo, Rights};

/// Regions of the victim that peers may only read, and only write; and the region of the hostile peer.
const READ_ONLY: u64 = 21;
const WRITE_ONLY: u64 = 22;
const OWNED: u64 = 23;

/// Bytes of each region, and of an access, which has so many parts.
const LEN: usize = 512 << 10;
const PARTS: u64 = 4;

/// Bytes before and behind each region, and what they are.
const AROUND: usize = 64 << 10;
const GUARD: u8 = 0xa5;

/// What the regions of the victim are at first.
const OWN: u8 = 0x11;

/// How long the victim, which polls all the time, is given to do what it must not.
const A_WHILE: Duration = Duration::from_millis(10);

/// No call of the victim takes longer: the end of a connection waits for 1 s, and the machine may do much else.
const LONGEST_CALL: Duration = Duration::from_secs(5);

/// Memory of a region, between guards.
fn guarded() -> Parked {
    Parked::park([vec![GUARD; AROUND], vec![OWN; LEN], vec![GUARD; AROUND]].concat())
}

fn region(memory: &Parked) -> UserBuf {
    memory.buf().skip(AROUND).first(LEN)
}

fn contents(memory: &Parked) -> Vec<u8> {
    let mut found = vec![0; memory.buf().len()];
    copy_in(&mut found, memory.buf());
    found
}

const VICTIM_MAIN: &str = "hostile_tests::joint_access::subprocess_access_victim";

/// The main function of the victim; without its environment it does nothing.
#[test]
fn subprocess_access_victim() {
    let Some(victim) = Victim::open(Flags::MSG | Flags::TAGGED | Flags::RMA) else {
        return;
    };
    let (domain, end) = (&victim.domain, &victim.end);
    let memory = [guarded(), guarded()];
    let rights = [Flags::REMOTE_READ, Flags::REMOTE_WRITE];
    let mrs = [0, 1].map(|at| {
        let key = [READ_ONLY, WRITE_ONLY][at];
        let attr = mr_attr(region(&memory[at]), key, rights[at], Sharing::Never);
        domain.mr(&attr).unwrap()
    });
    tell_parent("open");
    let text = guarded();
    let mut longest = Duration::ZERO;
    loop {
        let began = Instant::now();
        match victim.orders.try_recv().as_deref() {
            // What was written where that is allowed, and whether anything else has changed.
            Ok("look") => {
                let [read_only, written] = memory.each_ref().map(contents);
                let (start, rest) = written.split_at(AROUND);
                let (written, end) = rest.split_at(LEN);
                let is_guarded = start.iter().chain(end).all(|byte| *byte == GUARD);
                let is_same = read_only == contents(&text) && is_guarded;
                let sum: u64 = written.iter().map(|byte| u64::from(*byte)).sum();
                copy_out(region(&memory[1]), &vec![OWN; LEN]);
                tell_parent(format!("{is_same} {sum}"));
            }
            Ok("write") => {
                let remote = [RmaIov {
                    addr: 0,
                    len: LEN as u64,
                    key: OWNED,
                }];
                let call = RmaCall {
                    remote: &remote,
                    peer: victim.hostile,
                    data: None,
                    context: 1,
                    flags: Some(Flags::COMPLETION),
                };
                end.ep.write(&[region(&text)], &call).unwrap();
            }
            Ok(other) => panic!("no order {other}"),
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {}
        }
        let read = end.cq.read(1, |_| ());
        longest = longest.max(began.elapsed());
        match read {
            Ok(_) => tell_parent("done"),
            Err(Errno::EAVAIL) => {
                end.cq.read_error(|_, _| ()).unwrap();
                tell_parent(format!("failed {}", longest.as_millis()));
            }
            Err(error) => assert_eq!(error, Errno::EAGAIN),
        }
    }
    drop(mrs);
}

/// The victim takes a message of the honest endpoint, which nobody receives.
fn ping(rig: &Rig) {
    let text = Parked::park(vec![1; 8]);
    let (kind, ep) = (SendKind::Tagged(1), &rig.honest.ep);
    let sent = ep.send(kind, &[text.buf()], None, rig.to, 1, None);
    sent.unwrap();
    rig.honest.poll(1);
    drop(bytes(text));
}

/// The region of the victim that has this key, as a peer that asks for it learns of it.
fn ask(peer: &HostilePeer, key: u64) -> AddressedRegion {
    peer.send_record(Record::Request(key));
    let stop = Instant::now() + PATIENCE;
    loop {
        peer.seem_idle();
        if let Some(Record::Address(region)) = peer.next_record() {
            let info = region.info;
            assert_eq!((info.key, info.len), (key, LEN as u64));
            return region;
        }
        assert!(Instant::now() < stop, "no answer");
    }
}

/// Whether nothing was changed that may not be, and the sum of the bytes that may be written.
fn look(rig: &mut Rig) -> (bool, u64) {
    rig.victim.tell("look");
    let said = rig.victim.hear();
    let (is_same, sum) = said.split_once(' ').unwrap();
    (is_same == "true", sum.parse().unwrap())
}

/// The words of an access: the initiator's address, the length, the address at the owner, the generation and the slot of
/// the grant, and whether it is written.
fn what(address: u64, len: u64, target: u64, grant: (u64, u64), write: bool) -> [u64; 5] {
    let (generation, slot) = grant;
    [
        address,
        len,
        target,
        generation,
        slot << 1 | u64::from(write),
    ]
}

/// Whether owners help here; else it says so.
fn may_help() -> bool {
    let processors = std::thread::available_parallelism().unwrap().get();
    if processors == 1 {
        println!("SKIP: with one processor no owner helps");
    }
    processors > 1
}

/// An initiator gets parts of what it has the right to, and of nothing else.
#[test]
fn an_owner_checks_what_it_is_to_help_with() {
    if !may_help() {
        return;
    }
    const UNTOUCHED: u64 = LEN as u64 * OWN as u64;
    let mut rig = Rig::start("owner", VICTIM_MAIN, 1);
    let peer = HostilePeer::connect(&rig.group, &mut rig.random);
    let [read, written] = [READ_ONLY, WRITE_ONLY].map(|key| ask(&peer, key));
    let grant = |AddressedRegion { info, .. }| {
        let RegionInfo { grant, .. } = info;
        (grant.generation(), u64::from(grant.slot()))
    };
    let own = peer.scratch_address() + (SCRATCH_BYTES - LEN) as u64 / 2;
    let (len, target) = (LEN as u64, written.addr);
    let right = what(own, len, target, grant(written), true);
    let ok = grant(written);
    let lies = [
        what(own, len, read.addr, grant(read), true),
        what(own, len, target, ok, false),
        what(own, len, target + 4096, ok, true),
        what(own, len, target - 4096, ok, true),
        what(own, len, 0, ok, true),
        what(own, len, u64::MAX - 5, ok, true),
        what(own, len + 1, target, ok, true),
        what(own, u64::MAX, target, ok, true),
        what(own, 0, target, ok, true),
        what(own, len, target, (ok.0 + 2, ok.1), true),
        what(own, len, target, (ok.0 + 1, ok.1), true),
        what(own, len, target, (ok.0, 63), true),
        what(own, len, target, (ok.0, 1 << 40), true),
        what(own, len, target, (ok.0, u64::MAX >> 1), true),
        what(own, len, read.addr, ok, true),
        what(8, len, target, ok, true),
        what(u64::MAX, len, target, ok, true),
    ];
    let words = peer.access_words(true);
    let mut number = 0;
    let mut helped = |what: [u64; 5], patience: Duration| {
        number += 1;
        words.open(what, number << 25 | PARTS << 8);
        let stop = Instant::now() + patience;
        // Bits 16 to 24: parts that the helper has copied.
        while words.load() >> 16 & 0xff < PARTS && Instant::now() < stop {
            std::thread::yield_now();
        }
        let word = words.load();
        words.store(0);
        (word >> 16 & 0xff, word >> 24 & 1 == 1)
    };
    // Where others want the processors, it does not help.
    let stop = Instant::now() + 3 * PATIENCE;
    while helped(right, PATIENCE / 10) != (PARTS, false) {
        assert!(Instant::now() < stop, "the owner does not help");
    }
    assert_eq!(look(&mut rig), (true, 0), "the scratch is all zeros");
    for (at, lie) in lies.into_iter().enumerate() {
        let (copied, has_failed) = helped(lie, A_WHILE);
        assert!(copied == 0 || has_failed, "lie {at}: {copied} parts");
        ping(&rig);
        assert_eq!(look(&mut rig), (true, UNTOUCHED), "lie {at}");
        let around = peer.scratch_around(SCRATCH_BYTES / 2);
        assert!(around.iter().all(|byte| *byte == 0), "lie {at}");
    }
}

/// The hostile peer lets the victim write to its memory. Returns whether the victim has asked it to copy parts: it has then
/// claimed the last one, and never copies it.
fn is_asked_to_copy(peer: &HostilePeer) -> bool {
    let (words, mut claimed) = (peer.access_words(false), false);
    let end = Instant::now() + Duration::from_millis(30);
    while !claimed && Instant::now() < end {
        peer.seem_idle();
        if let Some(Record::Request(key)) = peer.next_record() {
            assert_eq!(key, OWNED);
            let grant = Grant::new(3, 1).unwrap();
            peer.grant(grant);
            let info = RegionInfo {
                grant,
                key,
                base: 0,
                len: LEN as u64,
            };
            let rights = Rights {
                read: true,
                write: true,
            };
            let addr = peer.scratch_address();
            peer.send_record(Record::Address(AddressedRegion { info, addr, rights }));
            // The victim may be at it before the socket is read again.
            let soon = Instant::now() + Duration::from_millis(5);
            while !claimed && Instant::now() < soon {
                peer.seem_idle();
                // The last part, which the victim comes to last.
                claimed = words.claim_last(PARTS);
            }
        }
    }
    claimed
}

/// What an owner does not finish is not reported as written, and holds up nobody for long.
#[test]
fn a_write_is_not_done_while_its_owner_says_that_it_copies() {
    if !may_help() {
        return;
    }
    let mut rig = Rig::start("initiator", VICTIM_MAIN, 1);
    let stop = Instant::now() + 3 * PATIENCE;
    let mut begun = 0;
    while begun < 3 {
        assert!(Instant::now() < stop, "the victim never asks for help");
        let peer = HostilePeer::connect(&rig.group, &mut rig.random);
        rig.victim.tell("write");
        let claimed = is_asked_to_copy(&peer);
        ping(&rig);
        drop(peer);
        let said = rig.victim.hear();
        if claimed {
            begun += 1;
            let longest = said.strip_prefix("failed ").expect("it was not written");
            let longest = Duration::from_millis(longest.parse().unwrap());
            assert!(longest < LONGEST_CALL, "{longest:?}");
        }
    }
}

/// It would finish its own access first, and the other side is through by then. One that is at none is asked in the end, by the
/// same victim.
#[test]
fn an_owner_that_is_itself_at_an_access_is_not_asked_to_copy() {
    if !may_help() {
        return;
    }
    let mut rig = Rig::start("busy", VICTIM_MAIN, 1);
    let mut is_asked = |at_an_access: bool| {
        let peer = HostilePeer::connect(&rig.group, &mut rig.random);
        if at_an_access {
            peer.claim_something();
        }
        rig.victim.tell("write");
        let is_asked = is_asked_to_copy(&peer);
        ping(&rig);
        drop(peer);
        rig.victim.hear();
        is_asked
    };
    assert!((0..20).all(|_| !is_asked(true)));
    let stop = Instant::now() + 3 * PATIENCE;
    while !is_asked(false) {
        assert!(Instant::now() < stop, "the victim never asks for help");
    }
}
