//! Joint copies: a long payload is copied by both sides, each by cross-memory attach.

use std::time::Duration;

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{
    JointAccess, JointHelper, JointLeader, JointMessage, JointPayload, MAX_JOINT_PARTS,
};
use ripstop_os::{IoVecMut, abandon, clock};
use ripstop_stream::{Attached, GetPieces, Got, JointCopy, Payload};

use super::{Connection, ShmLink};
use crate::attach::{Attach, PeerProcess, RemotePlace};
use crate::copy_cost::RingCopy;
use crate::params::NAME;

/// Half of a payload is one part, within these bounds in bytes: a system call costs as much as some 10 KiB.
const MIN_PART_BYTES: u64 = 32 << 10;
const MAX_HALF_BYTES: u64 = 128 << 10;

/// How long the leader waits for parts that the helper is at, before it does something else.
const MAX_WAIT: Duration = Duration::from_micros(100);

/// Loads of the state between two reads of the clock.
const LOADS_PER_CLOCK_READ: u32 = 64;

/// How long the end of a connection waits for the peer to be through with a part, as a region that is
/// closed waits for who reaches it.
const MAX_WAIT_AT_END: Duration = Duration::from_secs(1);

/// The length of each part but the last one, for both sides.
fn part_bytes(len: u64) -> u64 {
    let half = (len / 2).clamp(MIN_PART_BYTES, MAX_HALF_BYTES);
    len.div_ceil(MAX_JOINT_PARTS.into())
        .max(half)
        .next_multiple_of(4 << 10)
}

/// The number of parts, if a joint copy can have as many.
fn parts(len: u64) -> Option<u8> {
    u8::try_from(len.div_ceil(part_bytes(len))).ok()
}

/// Offset and length of a part. `None` if there is no such part.
fn part(len: u64, part: u8) -> Option<(u64, u64)> {
    let bytes = part_bytes(len);
    let at = bytes * u64::from(part);
    let left = len.checked_sub(at).filter(|left| *left > 0)?;
    Some((at, left.min(bytes)))
}

/// See the [module](self).
#[derive(Debug)]
pub struct RingJoint;

impl JointCopy<ShmLink> for RingJoint {
    const SUPPORTED: bool = true;

    /// Refuses while the sender is not through with the last one.
    fn open(link: &ShmLink, payload: &Payload, index: u16, into: UserBuf) -> bool {
        let Some(conn) = link.conn.get().filter(|conn| conn.attach.is_some()) else {
            return false;
        };
        let (joint, Some(parts)) = (conn.rings.reader.joint_messages(), parts(payload.len)) else {
            return false;
        };
        if !joint.is_finished() {
            return false;
        }
        let place = JointMessage {
            address: into.as_ptr() as u64,
            len: payload.len,
            index,
        };
        joint.open(place, parts);
        true
    }

    /// Copies parts from the front.
    fn copy(link: &ShmLink, payload: &Payload, into: UserBuf) -> Got {
        let Some((conn, attach, peer)) = link.attach() else {
            return Got::UseStream;
        };
        let joint = conn.rings.reader.joint_messages();
        let began = clock::now();
        let places = (into, payload.address);
        let done = copy_from_front(&mut attach.lock(), peer, joint, places, false);
        if !is_finished_soon(joint) {
            return Got::Pending { done };
        }
        // Else the peer may have given the memory another use before it was read.
        match done && !joint.has_failed() {
            _ if conn.rings.reader.has_writer_ended() => Got::Ended,
            true => {
                let (elapsed, helped) = (clock::now() - began, joint.taken() > 0);
                attach
                    .lock()
                    .note_joint(RingCopy::Read, payload.len, Some(elapsed), helped);
                Got::Done
            }
            false => Got::UseStream,
        }
    }

    fn outcome(link: &ShmLink, payload: &Payload, done: bool) -> Option<bool> {
        let conn = link.conn.get()?;
        let joint = conn.rings.reader.joint_messages();
        if !joint.is_finished() {
            return None;
        }
        let whole = done && !joint.has_failed();
        if whole {
            conn.with_attach(|attach| {
                attach.note_joint(RingCopy::Read, payload.len, None, joint.taken() > 0)
            });
        }
        Some(whole)
    }

    fn asked(link: &ShmLink) -> Option<JointMessage> {
        link.conn.get()?.rings.writer.joint_messages().payload()
    }

    /// Copies parts from the back.
    fn help(link: &ShmLink, message: JointMessage, from: UserBuf) -> bool {
        let Some((conn, attach, peer)) = link.attach() else {
            return false;
        };
        let joint = conn.rings.writer.joint_messages();
        // The receiver may want less of it than there is.
        let len = usize::try_from(message.len).ok();
        let Some(from) = len.and_then(|len| from.slice(0, len)) else {
            return false;
        };
        let places = (from, message.address);
        copy_from_back(&mut attach.lock(), peer, (joint, message), places, true)
    }

    fn asked_access(link: &ShmLink) -> Option<JointAccess> {
        link.conn.get()?.rings.reader.joint_accesses().payload()
    }

    /// Copies parts from the back.
    fn help_access(link: &ShmLink, access: JointAccess, memory: UserBuf) {
        let Some((conn, attach, peer)) = link.attach() else {
            return;
        };
        let joint = conn.rings.reader.joint_accesses();
        if memory.len() as u64 == access.len {
            let places = (memory, access.address);
            // What the peer writes is read from there, and what it reads is written.
            let write = !access.write;
            copy_from_back(&mut attach.lock(), peer, (joint, access), places, write);
        }
    }
}

/// The leader copies parts until none is left to claim, or one cannot be copied: then none is left either. Returns whether
/// all that it has claimed are copied. Of `places`, and of `write`, [`copy_part`] tells.
fn copy_from_front<J: JointPayload>(
    attach: &mut Attach,
    peer: PeerProcess<'_>,
    joint: &JointLeader<J>,
    places: (UserBuf, u64),
    write: bool,
) -> bool {
    let mut done = true;
    while done && let Some(claimed) = joint.claim() {
        done = copy_part(attach, peer, places, write, claimed);
    }
    joint.close();
    done
}

/// The helper copies parts of a joint copy until none is left to claim. Returns whether it has claimed any.
fn copy_from_back<J: JointPayload>(
    attach: &mut Attach,
    peer: PeerProcess<'_>,
    (joint, payload): (&JointHelper<J>, J),
    places: (UserBuf, u64),
    write: bool,
) -> bool {
    let Some(mut end) = parts(places.0.len() as u64).filter(|_| attach.is_attachable(peer)) else {
        return false;
    };
    let mut helped = false;
    while let Some(claimed) = joint.claim(payload, end) {
        end = claimed;
        joint.copied(copy_part(attach, peer, places, write, claimed));
        helped = true;
    }
    helped
}

/// Copies one part between memory of this side and as much from an address of the peer on: to there if it is to
/// `write`. Returns whether all of it was copied.
fn copy_part(
    attach: &mut Attach,
    peer: PeerProcess<'_>,
    (here, there): (UserBuf, u64),
    write: bool,
    claimed: u8,
) -> bool {
    let piece = part(here.len() as u64, claimed).and_then(|(at, len)| {
        let there = Payload {
            address: there.checked_add(at)?,
            len,
        };
        Some((here.slice(at as usize, len as usize)?, there))
    });
    let Some((here, there)) = piece else {
        return false;
    };
    if write {
        return attach.push(peer, here, there);
    }
    let mut pieces = GetPieces::new();
    pieces.push(IoVecMut::from_user(here));
    attach.read(peer, &[there], pieces)
}

/// Whether the owner is likely to copy parts of a read or write of its memory: it polls, and is not itself at one in
/// memory of this side. Where both are, each is faster alone.
pub(super) fn may_help_access(conn: &Connection, attach: &mut Attach) -> bool {
    let is_ready = conn.rings.writer.joint_accesses().is_finished();
    attach.polls.seems_polling() && is_ready && !conn.rings.reader.has_claim()
}

/// Carries out a read or write with its owner: copies parts from the front. The caller holds a claim of the grant.
pub(super) fn access(
    conn: &Connection,
    attach: &mut Attach,
    peer: PeerProcess<'_>,
    found: RemotePlace,
    write: bool,
    here: UserBuf,
) -> Attached {
    let joint = conn.rings.writer.joint_accesses();
    let Some(parts) = parts(here.len() as u64) else {
        return Attached::UseStream;
    };
    let access = JointAccess {
        address: here.as_ptr() as u64,
        len: here.len() as u64,
        target: found.addr as u64,
        grant: Some(found.grant),
        write,
    };
    let began = clock::now();
    joint.open(access, parts);
    let done = copy_from_front(attach, peer, joint, (here, access.target), write);
    let is_finished = is_finished_soon(joint);
    let has_helped = joint.taken() > 0;
    attach.polls.note_helped(has_helped);
    if !is_finished {
        return Attached::OwnerCopies;
    }
    if !done || joint.has_failed() {
        attach.regions.forget(found.grant);
        return Attached::UseStream;
    }
    attach.note_joint(
        RingCopy::of_access(write),
        access.len,
        Some(clock::now() - began),
        has_helped,
    );
    Attached::Done
}

/// Waits a moment until the helper is through.
fn is_finished_soon<J: JointPayload>(joint: &JointLeader<J>) -> bool {
    let end = clock::now() + MAX_WAIT;
    let mut loads = 0_u32;
    while !joint.is_finished() {
        loads += 1;
        if loads.is_multiple_of(LOADS_PER_CLOCK_READ) && clock::now() >= end {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// Waits until the peer does not access buffers of this side any more: those of its messages, and those of reads and
/// writes. It closes its end of the socket only when it copies nothing any more. From then on the words in the shared memory are
/// not waited for, even if they say that a part is unfinished.
pub(super) fn finish(link: &ShmLink) {
    let Some(conn) = link.conn.get() else {
        return;
    };
    let (messages, accesses) = (
        conn.rings.reader.joint_messages(),
        conn.rings.writer.joint_accesses(),
    );
    messages.close();
    accesses.close();
    let end = clock::now() + MAX_WAIT_AT_END;
    while !(messages.is_finished() && accesses.is_finished()) {
        if link.peer_has_left(conn) {
            return;
        }
        if clock::now() >= end {
            fi_warn!(
                NAME,
                Subsys::EpData,
                "{}: it does not say that it is through with copying to or from this process: it may still write there",
                conn.peer.name
            );
            return abandon_buffers(messages, accesses);
        }
        std::thread::yield_now();
    }
}

/// The peer may still write what it was to copy to buffers of this side.
fn abandon_buffers(messages: &JointLeader<JointMessage>, accesses: &JointLeader<JointAccess>) {
    if !messages.is_finished() {
        let JointMessage { address, len, .. } = messages.payload();
        abandon(address, len);
    }
    let access = accesses.payload();
    if !accesses.is_finished() && !access.write {
        abandon(access.address, access.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole_payload() {
        for len in [
            1_u64,
            256 << 10,
            (256 << 10) + 1,
            5 << 20,
            (64 << 20) - 1,
            64 << 20,
        ] {
            let parts = len.div_ceil(part_bytes(len));
            assert!(parts <= MAX_JOINT_PARTS.into(), "{len}");
            let mut end = 0;
            for index in 0..parts as u8 {
                let (at, bytes) = part(len, index).unwrap();
                assert_eq!(at, end);
                end += bytes;
            }
            assert_eq!(end, len);
            assert!(part(len, parts as u8).is_none_or(|_| parts == 255), "{len}");
        }
    }
}
