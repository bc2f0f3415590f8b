//! Cross-memory attach: reads and writes of a peer's regions by their address in its process
//! (`process_vm_readv(2)`, `process_vm_writev(2)`). [`ShmLink`](crate::link::ShmLink) has one
//! [`Attach`] for each connection that may use it.
//!
//! Before the first request to the peer, the address probe of the peer's status page is read through the
//! kernel ([`Attach::is_attachable`]). If the token is the expected one, attach is permitted and the process
//! id belongs to the process that owns the status page.
//!
//! A peer that polls its rings may be reached faster through them ([`CopyChoice`] knows). Then attach is
//! for idle peers only. [`PollWatch`] watches the peer for a moment; if its poll count does not change, it
//! counts as idle for as long as the count stays the same.
//!
//! [`Attach::get`] reads the payload of a message from the memory of its sender, who waits for that, and
//! [`Attach::copy`] carries out a read or write in a region of the peer. Parts of joint copies are moved by
//! [`Attach::read`] and [`Attach::push`].
//!
//! # What must hold
//!
//! - The process is the one that has connected, and has not called `exec` ([`Attach::is_same_process`]): checked before
//!   its memory is written, and behind a read of a message, which is refused if not. The check may be
//!   [`IDENTITY_CACHE_STEPS`] old.
//! - A region is accessed under a claim of its grant, which the caller holds.
//! - What was not moved whole counts as nothing: the operation goes by the ring with the same bytes.

mod poll_watch;
mod regions;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use ripstop_core::fi_log;
use ripstop_core::log::{Level, Subsys};
use ripstop_core::provider::Copied;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{AddressProbe, PeerPollStatus};
use ripstop_os::{AttachError, IoVec, IoVecMut, Process, Remote, clock};
use ripstop_stream::{GetPieces, MAX_GETS, Payload};

use crate::copies::{DomainCopies, Tally};
use crate::copy_choice::{CopyChoice, CopyMode, GetLimit, Way};
use crate::copy_cost::RingCopy;
use crate::name::Name;
use crate::params::NAME;
use crate::records::Record;

use self::poll_watch::PollWatch;
pub(crate) use self::regions::{RemotePlace, RemoteRegions};

/// How long a check that the peer's process has the memory that it had when it connected stays valid. `exec` takes
/// longer to bring other memory, and the kernel gives a process id anew when it has gone through all others.
/// In steps of [`clock::counter`]: 20 to 100 us. Readings of the clock for this and for the choice were 8 % of the time of
/// 8 KiB.
const IDENTITY_CACHE_STEPS: u64 = 100_000;

/// The longest payload that is got by one call: other operations of the domain wait for it.
const MAX_GET_BYTES: u64 = 64 << 20;

/// Local segments of one operation, at most.
const MAX_SEGMENTS: usize = 4;

/// What one connection knows of a peer whose memory it may access by its address in the peer's process.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) polls: PollWatch,
    probe: AddressProbe,
    pub(crate) regions: RemoteRegions,
    permission: Permission,
    /// [`clock::counter`] when its process was last seen to have the memory of the status page.
    identified_at: Option<u64>,
    /// What the domain's connections add to; a refusal is logged once for each domain.
    copies: Arc<DomainCopies>,
    /// What attach and ring cost.
    pub(crate) choice: CopyChoice,
    /// The payloads that were copied by attach.
    copied: Tally,
    /// How many of them were copied by both sides.
    joint_copies: u64,
}

/// Whether this process may access the peer's memory, as the first read of its address probe has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    /// Nothing was read yet.
    Unknown,
    Granted,
    Refused,
}

/// The peer's process, as the system calls and the log need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerProcess<'a> {
    pub(crate) process: &'a Process,
    pub(crate) name: &'a Name,
}

impl Attach {
    /// `None` if the peer's status page has no address probe.
    pub(crate) fn new(
        poll_status: PeerPollStatus,
        mode: CopyMode,
        copies: Arc<DomainCopies>,
    ) -> Option<Self> {
        Some(Self {
            probe: poll_status.address_probe()?,
            polls: PollWatch::new(poll_status),
            regions: RemoteRegions::default(),
            permission: Permission::Unknown,
            identified_at: None,
            copies,
            choice: CopyChoice::new(mode),
            copied: Tally::default(),
            joint_copies: 0,
        })
    }

    /// The record to send for a key that the peer has not offered; `None` if it was requested lately, or
    /// if its memory cannot be accessed.
    pub(crate) fn request(&mut self, key: u64, peer: PeerProcess<'_>) -> Option<Record> {
        let asks = self.regions.request_is_due(key) && self.is_attachable(peer);
        asks.then_some(Record::Request(key))
    }

    /// Reads payloads from the peer's process into buffers, which are as long together, and takes the time.
    /// `false` says that not all of them were read.
    pub(crate) fn get(
        &mut self,
        peer: PeerProcess<'_>,
        from: &[Payload],
        into: GetPieces<'_>,
    ) -> bool {
        let longest = from.iter().map(|payload| payload.len).max().unwrap_or(0);
        let began = self.choice.times_attach(longest).then(clock::now);
        let got = self.read(peer, from, into);
        if got {
            self.count(Copied {
                payloads: from.len() as u64,
                bytes: from.iter().map(|payload| payload.len).sum(),
            });
            if let Some(began) = began {
                self.note_got(from, clock::now().saturating_sub(began));
            }
        }
        got
    }

    /// As [`get`](Self::get), neither timed nor counted.
    ///
    /// That the process is the peer's still is checked behind the payloads: so it was while they were read.
    pub(crate) fn read(
        &mut self,
        peer: PeerProcess<'_>,
        from: &[Payload],
        mut into: GetPieces<'_>,
    ) -> bool {
        if !self.is_attachable(peer) {
            return false;
        }
        let mut there = ArrayVec::<Remote, MAX_GETS>::new();
        let mut len = 0;
        for payload in from {
            let [Ok(base), Ok(bytes)] = [payload.address, payload.len].map(usize::try_from) else {
                return false;
            };
            let place = Remote { base, len: bytes };
            if payload.len > MAX_GET_BYTES || there.try_push(place).is_err() {
                return false;
            }
            len += bytes;
        }
        match peer.process.read(&there, &mut into) {
            Ok(count) if count == len => self.is_same_process(peer),
            Err(error @ AttachError::NotAllowed) => {
                self.refuse(peer, &error.to_string());
                false
            }
            // It has gone, or has no memory there: the ring tells.
            Ok(_) | Err(_) => false,
        }
    }

    /// Writes a part of a joint copy to the peer's process. Returns whether all was written.
    pub(crate) fn push(&mut self, peer: PeerProcess<'_>, from: UserBuf, into: Payload) -> bool {
        let Ok(base) = usize::try_from(into.address) else {
            return false;
        };
        let there = [Remote {
            base,
            len: from.len(),
        }];
        self.is_same_process(peer)
            && peer.process.write(&there, &[IoVec::from_user(from)]) == Ok(from.len())
    }

    /// The limit of gets that the peer is to be told, if there is a new one.
    pub(crate) fn take_get_limit(&mut self, peer: PeerProcess<'_>) -> Option<GetLimit> {
        // Where it is not, the choice has given attach up behind this.
        self.is_attachable(peer);
        self.choice.take_limit()
    }

    /// The way of the next read or write of this length. There is no trial of the ring with a peer that does
    /// not poll: it would wait for that.
    pub(crate) fn next_way(&mut self, peer: PeerProcess<'_>, len: u64, crowded: bool) -> Way {
        match (self.choice.preferred(len), self.choice.next_way(len)) {
            (Way::Attach, Way::Ring) if self.is_idle(peer, crowded) != Some(false) => Way::Attach,
            (_, way) => way,
        }
    }

    /// A payload was copied by attach, instead of such a copy through the ring; since `began` if that was timed.
    fn note_copied(&mut self, instead_of: RingCopy, len: usize, began: Option<Duration>) {
        self.count(Copied::one(len as u64));
        if let Some(began) = began {
            let elapsed = clock::now().saturating_sub(began);
            self.choice.note_attach(instead_of, len as u64, 1, elapsed);
        }
    }

    /// These payloads were copied by one call, which has taken so long. The time of one of them is what it has taken
    /// for each, if they are equally long.
    fn note_got(&mut self, from: &[Payload], elapsed: Duration) {
        if let [first, others @ ..] = from
            && others.iter().all(|other| other.len == first.len)
        {
            let each = elapsed / from.len() as u32;
            self.choice
                .note_attach(RingCopy::Read, first.len, from.len(), each);
        }
    }

    /// A payload was copied part by part, instead of such a copy through the ring: by this side, and by the other if it has
    /// `helped`. It took so long, if nothing else was done meanwhile.
    pub(crate) fn note_joint(
        &mut self,
        instead_of: RingCopy,
        len: u64,
        elapsed: Option<Duration>,
        helped: bool,
    ) {
        self.count(Copied::one(len));
        if helped {
            self.joint_copies += 1;
            self.copies.note_joint();
        }
        if let Some(elapsed) = elapsed {
            self.choice.note_attach(instead_of, len, 1, elapsed);
        }
    }

    /// Counts payloads that were copied by attach.
    fn count(&self, more: Copied) {
        self.copied.add(more);
        self.copies.attach.add(more);
    }

    /// The payloads that were copied by attach, and how many of them were copied by their sender, too.
    pub(crate) fn copied(&self) -> (Copied, u64) {
        (self.copied.read(), self.joint_copies)
    }

    /// Gives up attach with this peer, with a line in the log.
    #[cold]
    fn refuse(&mut self, peer: PeerProcess<'_>, why: &str) {
        self.permission = Permission::Refused;
        self.log_refusal(peer, why);
        self.choice.give_up_attach();
    }

    /// Whether this process may access the peer's memory. The first call finds out.
    pub(crate) fn is_attachable(&mut self, peer: PeerProcess<'_>) -> bool {
        if self.permission == Permission::Unknown {
            self.ask_permission(peer);
        }
        self.permission == Permission::Granted
    }

    /// Reads the address probe of the peer, to see whether that is permitted.
    #[cold]
    fn ask_permission(&mut self, peer: PeerProcess<'_>) {
        match self.has_token(peer) {
            Ok(true) => self.permission = Permission::Granted,
            Ok(false) => self.refuse(peer, "it has other memory than it says"),
            Err(error) => self.refuse(peer, &error.to_string()),
        }
    }

    /// Whether the process has the token of the peer's status page where that says.
    fn has_token(&self, peer: PeerProcess<'_>) -> Result<bool, AttachError> {
        let mut found = [0; 8];
        let from = Remote {
            base: usize::try_from(self.probe.addr).map_err(|_| AttachError::Fault)?,
            len: found.len(),
        };
        let into = &mut [IoVecMut::from_slice(&mut found)];
        let is_whole = peer.process.read(&[from], into)? == from.len;
        Ok(is_whole && u64::from_ne_bytes(found) == self.probe.token)
    }

    #[cold]
    fn log_refusal(&self, peer: PeerProcess<'_>, why: &str) {
        if self.copies.note_refusal() {
            let level = match self.choice.is_attach_demanded() {
                true => Level::Warn,
                false => Level::Info,
            };
            fi_log!(
                NAME,
                level,
                Subsys::EpData,
                "{}: large payloads go through the ring, also while it computes: {why}. Cross-memory \
                 attach needs the same user and namespaces, a process that may be dumped, and \
                 kernel.yama.ptrace_scope=0 or CAP_SYS_PTRACE",
                peer.name
            );
        }
    }

    /// Whether the peer does not poll its rings; watches it for a moment where that is not known.
    /// `crowded` says that threads share a processor. `None` if its process has exited.
    pub(crate) fn is_idle(&mut self, peer: PeerProcess<'_>, crowded: bool) -> Option<bool> {
        match self.polls.is_idle(crowded) {
            true => self.is_same_process(peer).then_some(true),
            false => Some(false),
        }
    }

    /// Whether the process with the peer's number is the one that has connected, and has not called `exec`, as of
    /// [`IDENTITY_CACHE_STEPS`] ago at most.
    pub(crate) fn is_same_process(&mut self, peer: PeerProcess<'_>) -> bool {
        let now = clock::counter();
        let is_known = |at: u64| now.wrapping_sub(at) < IDENTITY_CACHE_STEPS;
        if !self.identified_at.is_some_and(is_known) {
            if self.has_token(peer) != Ok(true) {
                return false;
            }
            self.identified_at = Some(now);
        }
        true
    }

    /// Copies between `segments` and the range `found`, which are equally long. The caller holds a claim
    /// of the grant. `false` means that nothing counts as done, and the ring is to be used.
    pub(crate) fn copy(
        &mut self,
        peer: PeerProcess<'_>,
        found: RemotePlace,
        write: bool,
        segments: &[UserBuf],
    ) -> bool {
        let there = [Remote {
            base: found.addr,
            len: found.len,
        }];
        let began = self.choice.times_attach(found.len as u64).then(clock::now);
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
            Ok(count) if count == found.len => {
                self.note_copied(RingCopy::of_access(write), found.len, began);
                return true;
            }
            Err(error @ AttachError::NotAllowed) => {
                self.refuse(peer, &error.to_string());
                self.regions.clear();
            }
            Err(AttachError::Gone) => {}
            // Not all of the range is mapped there. The ring reports the error, if it is one.
            Ok(_) | Err(_) => self.regions.forget(found.grant),
        }
        false
    }
}
