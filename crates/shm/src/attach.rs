//! Regions of the peer that this side reaches by their address in the peer's process
//! (`process_vm_readv(2)`, `process_vm_writev(2)`).
//!
//! The kernel is asked by trying, once for each connection and before the peer is asked for
//! anything: what is at the address that the peer's status page tells has to be what the status page says. So it
//! is known as well that the number is that of the process which owns the status page.
//!
//! A peer that looks at its rings is faster reached by them. Whether it does is watched for a
//! moment; that it does not stays true for as long as its word stays the same.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ripstop_core::fi_info;
use ripstop_core::log::Subsys;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{AddressProbe, Grant, PeerPollStatus};
use ripstop_os::{AttachError, IoVec, IoVecMut, Process, Remote, Socket, clock};
use ripstop_types::RmaIov;

use crate::name::Name;
use crate::params::NAME;
use crate::records::{Record, Rights, Said};

/// How long a peer that was seen to look is thought to be at it: the first time, and at most, where
/// it is seen so again and again.
const AT_WORK: Duration = Duration::from_micros(20);
const AT_WORK_LONG: Duration = Duration::from_micros(320);

/// How long its word is watched for that. Who polls looks at its rings every 32nd time, a microsecond
/// or two.
const WATCH: Duration = Duration::from_micros(6);

/// ShmReadiness at the word between two at the clock.
const LOOKS: u32 = 16;

/// How often others may run for that in a crowd.
const YIELDS: u32 = 4;

/// How long a process that was there is thought to be there. Its number is not used again so
/// soon: all others come before it.
const THERE: Duration = Duration::from_micros(20);

/// Keys that are remembered as asked for.
const ASKED: usize = 64;

/// Large operations at one of them until the peer is asked for it again: after the first time, and at
/// most, where it never answers.
const AGAIN: u32 = 8;
const AGAIN_LONG: u32 = 1024;

/// Most pieces of an operation.
const PIECES: usize = 4;

/// What is known of a peer whose memory may be reached.
#[derive(Debug)]
pub(crate) struct Attach {
    poll_status: PeerPollStatus,
    probe: AddressProbe,
    regions: Vec<(Record, Rights)>,
    /// By a sum of the key.
    asked: [Asked; ASKED],
    trial: Trial,
    /// Until when the peer is thought to look at its rings, and for how long the next time.
    at_work: Duration,
    next: Duration,
    /// Its word when it was seen not to.
    away: Option<u64>,
    /// When its process was seen to be there.
    there: Duration,
    /// A refusal was said by this domain.
    told: Arc<AtomicBool>,
}

/// A key that was asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    key: u64,
    /// Operations at it until that is done again, and how many they were from the last time on.
    left: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    None,
    Passed,
    Failed,
}

/// Bytes of a region, and where they are in the peer's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) grant: Grant,
    addr: usize,
    len: usize,
}

/// What is asked of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer<'a> {
    pub(crate) process: &'a Process,
    pub(crate) socket: &'a Socket,
    pub(crate) name: &'a Name,
}

impl Attach {
    /// `None` if the peer says nothing of its address space.
    pub(crate) fn new(poll_status: PeerPollStatus, told: Arc<AtomicBool>) -> Option<Self> {
        Some(Self {
            probe: poll_status.address_probe()?,
            poll_status,
            regions: Vec::new(),
            asked: [Asked::default(); ASKED],
            trial: Trial::None,
            at_work: Duration::ZERO,
            next: AT_WORK,
            away: None,
            there: Duration::ZERO,
            told,
        })
    }

    /// Takes a region in the place of the one that was in its slot or had its key.
    pub(crate) fn add(&mut self, record: Record, rights: Rights) {
        let other = |region: &(Record, Rights)| {
            region.0.grant.slot() != record.grant.slot() && region.0.key != record.key
        };
        self.regions.retain(other);
        self.regions.push((record, rights));
    }

    /// Forgets regions whose grant has ended. What has their keys next may be asked for.
    pub(crate) fn keep(&mut self, stands: impl Fn(Grant) -> bool) {
        let Self { regions, asked, .. } = self;
        regions.retain(|(record, _)| {
            let stands = stands(record.grant);
            if !stands {
                asked[place_of(record.key)] = Asked::default();
            }
            stands
        });
    }

    /// A region is not reached this way any more, until it is asked for again.
    pub(crate) fn forget(&mut self, grant: Grant) {
        self.regions.retain(|(record, _)| record.grant != grant);
    }

    /// Where a place lies, if all of it is in a region that may be written, or read.
    pub(crate) fn find(&self, place: &RmaIov, write: bool) -> Option<Found> {
        let mut regions = self.regions.iter();
        let (record, rights) = regions.find(|(record, _)| record.key == place.key)?;
        let at = place.addr.checked_sub(record.base)?;
        let end = at.checked_add(place.len)?;
        let may = match write {
            true => rights.write,
            false => rights.read,
        };
        if !may || place.len == 0 || end > record.len {
            return None;
        }
        Some(Found {
            grant: record.grant,
            addr: usize::try_from(record.offset.checked_add(at)?).ok()?,
            len: usize::try_from(place.len).ok()?,
        })
    }

    /// What to say to the peer about a region that it has not offered, if anything.
    pub(crate) fn ask(&mut self, key: u64, peer: Peer<'_>) -> Option<Said> {
        if self.regions.iter().any(|(record, _)| record.key == key) {
            // Not all is in it, or it may not be reached so.
            return None;
        }
        let place = &mut self.asked[place_of(key)];
        if place.key != key {
            *place = Asked::default();
        }
        if place.left > 0 {
            place.left -= 1;
            return None;
        }
        let next = (2 * place.next).clamp(AGAIN, AGAIN_LONG);
        *place = Asked {
            key,
            left: next,
            next,
        };
        self.may_reach(peer).then_some(Said::Asked(key))
    }

    /// Whether the memory of the peer can be reached at all.
    #[cold]
    fn may_reach(&mut self, peer: Peer<'_>) -> bool {
        if self.trial == Trial::None {
            let mut found = [0; 8];
            let read = usize::try_from(self.probe.addr).map_err(|_| AttachError::Fault);
            let read = read.and_then(|addr| {
                let from = [Remote::new(addr, found.len())];
                let into = &mut [IoVecMut::from_slice(&mut found)];
                peer.process.read(&from, into)
            });
            let known = u64::from_ne_bytes(found) == self.probe.token;
            self.trial = match read {
                Ok(8) if known => Trial::Passed,
                Ok(_) => self.refused(peer, "it has other memory than it says"),
                Err(error) => self.refused(peer, &error.to_string()),
            };
        }
        self.trial == Trial::Passed
    }

    #[cold]
    fn refused(&self, peer: Peer<'_>, why: &str) -> Trial {
        if !self.told.swap(true, Ordering::Relaxed) {
            fi_info!(
                NAME,
                Subsys::EpData,
                "{}: large reads and writes go through the memory shared with it, also while it \
                 computes: {why}. Cross-memory attach needs the same user and namespaces, a \
                 process that may be dumped, and kernel.yama.ptrace_scope=0 or CAP_SYS_PTRACE",
                peer.name
            );
        }
        Trial::Failed
    }

    /// Whether the peer looked at its rings a moment ago.
    pub(crate) fn is_at_work(&self) -> bool {
        clock::now() < self.at_work
    }

    /// Whether the peer does not look at its rings, after a moment if need be; `None` if it is not
    /// there.
    pub(crate) fn is_away(&mut self, peer: Peer<'_>, crowd: bool) -> Option<bool> {
        let (now, looks) = (clock::now(), self.poll_status.poll_count());
        if self.away != Some(looks) {
            if !self.watch(looks, crowd) {
                self.at_work = clock::now() + self.next;
                self.next = (2 * self.next).min(AT_WORK_LONG);
                return Some(false);
            }
            self.away = Some(looks);
            self.next = AT_WORK;
        }
        if now >= self.there + THERE {
            if peer.process.is_at(peer.socket.as_fd()) != Ok(true) {
                return None;
            }
            self.there = clock::now();
        }
        Some(true)
    }

    /// Whether the peer's word stays the same.
    #[cold]
    #[inline(never)]
    fn watch(&self, looks: u64, crowd: bool) -> bool {
        let same = || {
            std::hint::spin_loop();
            self.poll_status.poll_count() == looks
        };
        if crowd {
            return (0..YIELDS).all(|_| {
                std::thread::yield_now();
                same()
            });
        }
        let end = clock::now() + WATCH;
        while (0..LOOKS).all(|_| same()) {
            if clock::now() >= end {
                return true;
            }
        }
        false
    }

    /// Copies between the buffers, which are as long, and what was found.
    pub(crate) fn copy(
        &mut self,
        peer: Peer<'_>,
        found: Found,
        write: bool,
        segments: &[UserBuf],
    ) -> bool {
        let there = [Remote::new(found.addr, found.len)];
        let count = match write {
            true => {
                let mut here = [IoVec::EMPTY; PIECES];
                for (place, buf) in here.iter_mut().zip(segments) {
                    *place = IoVec::from_user(*buf);
                }
                peer.process.write(&there, &here)
            }
            false => {
                let mut here = [IoVecMut::EMPTY; PIECES];
                for (place, buf) in here.iter_mut().zip(segments) {
                    *place = IoVecMut::from_user(*buf);
                }
                peer.process.read(&there, &mut here)
            }
        };
        match count {
            Ok(count) if count == found.len => return true,
            Err(error @ AttachError::NotAllowed) => {
                self.trial = self.refused(peer, &error.to_string());
                self.regions.clear();
            }
            Err(AttachError::Gone) => {}
            // There is no memory, at least not all; the ring finds what is to be said of it.
            Ok(_) | Err(_) => self.forget(found.grant),
        }
        false
    }
}

/// Where a key is in what was asked for.
const fn place_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % ASKED
}
