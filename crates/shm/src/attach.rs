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
use crate::records::{Record, RegionInfo, Rights};

/// How long a peer that was seen to look is thought to be at it: the first time, and at most, where
/// it is seen so again and again.
const MIN_ASSUME_POLLING: Duration = Duration::from_micros(20);
const MAX_ASSUME_POLLING: Duration = Duration::from_micros(320);

/// How long its word is watched for that. Who polls looks at its rings every 32nd time, a microsecond
/// or two.
const POLL_WATCH_TIME: Duration = Duration::from_micros(6);

/// ShmReadiness at the word between two at the clock.
const COUNT_READS_PER_CLOCK_READ: u32 = 16;

/// How often others may run for that in a crowd.
const MAX_WATCH_YIELDS: u32 = 4;

/// How long a process that was there is thought to be there. Its number is not used again so
/// soon: all others come before it.
const LIVENESS_CACHE_TIME: Duration = Duration::from_micros(20);

/// Keys that are remembered as asked for.
const REQUEST_CACHE_KEYS: usize = 64;

/// Large operations at one of them until the peer is asked for it again: after the first time, and at
/// most, where it never answers.
const MIN_OPS_BETWEEN_REQUESTS: u32 = 8;
const MAX_OPS_BETWEEN_REQUESTS: u32 = 1024;

/// Most pieces of an operation.
const MAX_SEGMENTS: usize = 4;

/// What is known of a peer whose memory may be reached.
#[derive(Debug)]
pub(crate) struct Attach {
    poll_status: PeerPollStatus,
    probe: AddressProbe,
    regions: Vec<(RegionInfo, Rights)>,
    /// By a sum of the key.
    requests: [RequestBackoff; REQUEST_CACHE_KEYS],
    trial: Trial,
    /// Until when the peer is thought to look at its rings, and for how long the next time.
    polling_until: Duration,
    assume_polling: Duration,
    /// Its word when it was seen not to.
    idle_poll_count: Option<u64>,
    /// When its process was seen to be there.
    alive_checked_at: Duration,
    /// A refusal was said by this domain.
    refusal_logged: Arc<AtomicBool>,
}

/// A key that was asked for.
#[derive(Clone, Copy, Debug, Default)]
struct RequestBackoff {
    key: u64,
    /// Operations at it until that is done again, and how many they were from the last time on.
    ops_left: u32,
    interval: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    Untried,
    Passed,
    Failed,
}

/// Bytes of a region, and where they are in the peer's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemotePlace {
    pub(crate) grant: Grant,
    addr: usize,
    len: usize,
}

/// What is asked of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) process: &'a Process,
    pub(crate) socket: &'a Socket,
    pub(crate) name: &'a Name,
}

impl Attach {
    /// `None` if the peer says nothing of its address space.
    pub(crate) fn new(
        poll_status: PeerPollStatus,
        refusal_logged: Arc<AtomicBool>,
    ) -> Option<Self> {
        Some(Self {
            probe: poll_status.address_probe()?,
            poll_status,
            regions: Vec::new(),
            requests: [RequestBackoff::default(); REQUEST_CACHE_KEYS],
            trial: Trial::Untried,
            polling_until: Duration::ZERO,
            assume_polling: MIN_ASSUME_POLLING,
            idle_poll_count: None,
            alive_checked_at: Duration::ZERO,
            refusal_logged,
        })
    }

    /// Takes a region in the place of the one that was in its slot or had its key.
    pub(crate) fn add(&mut self, record: RegionInfo, rights: Rights) {
        let other = |region: &(RegionInfo, Rights)| {
            region.0.grant.slot() != record.grant.slot() && region.0.key != record.key
        };
        self.regions.retain(other);
        self.regions.push((record, rights));
    }

    /// Forgets regions whose grant has ended. What has their keys next may be asked for.
    pub(crate) fn retain(&mut self, stands: impl Fn(Grant) -> bool) {
        let Self {
            regions, requests, ..
        } = self;
        regions.retain(|(record, _)| {
            let stands = stands(record.grant);
            if !stands {
                requests[cache_index(record.key)] = RequestBackoff::default();
            }
            stands
        });
    }

    /// A region is not reached this way any more, until it is asked for again.
    pub(crate) fn forget(&mut self, grant: Grant) {
        self.regions.retain(|(record, _)| record.grant != grant);
    }

    /// Where a place lies, if all of it is in a region that may be written, or read.
    pub(crate) fn find(&self, place: &RmaIov, write: bool) -> Option<RemotePlace> {
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
        Some(RemotePlace {
            grant: record.grant,
            addr: usize::try_from(record.offset.checked_add(at)?).ok()?,
            len: usize::try_from(place.len).ok()?,
        })
    }

    /// What to say to the peer about a region that it has not offered, if anything.
    pub(crate) fn request(&mut self, key: u64, peer: Target<'_>) -> Option<Record> {
        if self.regions.iter().any(|(record, _)| record.key == key) {
            // Not all is in it, or it may not be reached so.
            return None;
        }
        let backoff = &mut self.requests[cache_index(key)];
        if backoff.key != key {
            *backoff = RequestBackoff::default();
        }
        if backoff.ops_left > 0 {
            backoff.ops_left -= 1;
            return None;
        }
        let interval =
            (2 * backoff.interval).clamp(MIN_OPS_BETWEEN_REQUESTS, MAX_OPS_BETWEEN_REQUESTS);
        *backoff = RequestBackoff {
            key,
            ops_left: interval,
            interval,
        };
        self.is_attachable(peer).then_some(Record::Request(key))
    }

    /// Whether the memory of the peer can be reached at all.
    #[cold]
    fn is_attachable(&mut self, peer: Target<'_>) -> bool {
        if self.trial == Trial::Untried {
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
                Ok(_) => self.log_refusal(peer, "it has other memory than it says"),
                Err(error) => self.log_refusal(peer, &error.to_string()),
            };
        }
        self.trial == Trial::Passed
    }

    #[cold]
    fn log_refusal(&self, peer: Target<'_>, why: &str) -> Trial {
        if !self.refusal_logged.swap(true, Ordering::Relaxed) {
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
    pub(crate) fn is_assumed_polling(&self) -> bool {
        clock::now() < self.polling_until
    }

    /// Whether the peer does not look at its rings, after a moment if need be; `None` if it is not
    /// there.
    pub(crate) fn is_idle(&mut self, peer: Target<'_>, crowd: bool) -> Option<bool> {
        let (now, poll_count) = (clock::now(), self.poll_status.poll_count());
        if self.idle_poll_count != Some(poll_count) {
            if !self.stays_idle(poll_count, crowd) {
                self.polling_until = clock::now() + self.assume_polling;
                self.assume_polling = (2 * self.assume_polling).min(MAX_ASSUME_POLLING);
                return Some(false);
            }
            self.idle_poll_count = Some(poll_count);
            self.assume_polling = MIN_ASSUME_POLLING;
        }
        if now >= self.alive_checked_at + LIVENESS_CACHE_TIME {
            if peer.process.is_at(peer.socket.as_fd()) != Ok(true) {
                return None;
            }
            self.alive_checked_at = clock::now();
        }
        Some(true)
    }

    /// Whether the peer's word stays the same.
    #[cold]
    #[inline(never)]
    fn stays_idle(&self, poll_count: u64, crowd: bool) -> bool {
        let same = || {
            std::hint::spin_loop();
            self.poll_status.poll_count() == poll_count
        };
        if crowd {
            return (0..MAX_WATCH_YIELDS).all(|_| {
                std::thread::yield_now();
                same()
            });
        }
        let end = clock::now() + POLL_WATCH_TIME;
        while (0..COUNT_READS_PER_CLOCK_READ).all(|_| same()) {
            if clock::now() >= end {
                return true;
            }
        }
        false
    }

    /// Copies between the buffers, which are as long, and what was found.
    pub(crate) fn copy(
        &mut self,
        peer: Target<'_>,
        found: RemotePlace,
        write: bool,
        segments: &[UserBuf],
    ) -> bool {
        let there = [Remote::new(found.addr, found.len)];
        let count = match write {
            true => {
                let mut here = [IoVec::EMPTY; MAX_SEGMENTS];
                for (place, buf) in here.iter_mut().zip(segments) {
                    *place = IoVec::from_user(*buf);
                }
                peer.process.write(&there, &here)
            }
            false => {
                let mut here = [IoVecMut::EMPTY; MAX_SEGMENTS];
                for (place, buf) in here.iter_mut().zip(segments) {
                    *place = IoVecMut::from_user(*buf);
                }
                peer.process.read(&there, &mut here)
            }
        };
        match count {
            Ok(count) if count == found.len => return true,
            Err(error @ AttachError::NotAllowed) => {
                self.trial = self.log_refusal(peer, &error.to_string());
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
const fn cache_index(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % REQUEST_CACHE_KEYS
}
