//! Joint copies: a long payload is copied by its receiver and its sender, each by cross-memory attach.

use std::time::Duration;

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{JointPayload, MAX_JOINT_PARTS};
use ripstop_os::{IoVecMut, clock};
use ripstop_stream::{GetPieces, Got, JointCopy, Payload};

use super::ShmLink;
use crate::params::NAME;

/// The shortest part in bytes. Half of the shortest payload is one: a system call costs as much as some
/// 10 KiB.
const MIN_PART_BYTES: u64 = 128 << 10;

/// How long the receiver waits for parts that the sender is at, before it does something else.
const MAX_WAIT: Duration = Duration::from_micros(100);

/// Loads of the state between two reads of the clock.
const LOADS_PER_CLOCK_READ: u32 = 64;

/// How long the end of a connection waits for the sender to be through with a part, as a region that is
/// closed waits for who reaches it.
const MAX_WAIT_AT_END: Duration = Duration::from_secs(1);

/// The length of each part but the last one, for both sides.
fn part_bytes(len: u64) -> u64 {
    len.div_ceil(MAX_JOINT_PARTS.into())
        .next_multiple_of(4 << 10)
        .max(MIN_PART_BYTES)
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
        let Some(rings) = link.rings.get().filter(|rings| rings.attach.is_some()) else {
            return false;
        };
        let (joint, Some(parts)) = (rings.reader.joint(), parts(payload.len)) else {
            return false;
        };
        if !joint.is_finished() {
            return false;
        }
        let place = JointPayload {
            address: into.as_ptr() as u64,
            len: payload.len,
            index,
        };
        joint.open(place, parts);
        true
    }

    /// Copies parts from the front.
    fn copy(link: &ShmLink, payload: &Payload, into: UserBuf) -> Got {
        let Some(rings) = link.rings.get() else {
            return Got::UseStream;
        };
        let (Some(attach), Some(process)) = (&rings.attach, &rings.process) else {
            return Got::UseStream;
        };
        let (peer, joint) = (rings.attach_target(process), rings.reader.joint());
        let began = clock::now();
        let mut done = true;
        while done && let Some(claimed) = joint.claim() {
            let piece = part(payload.len, claimed).and_then(|(at, len)| {
                let from = Payload {
                    address: payload.address.checked_add(at)?,
                    len,
                };
                Some((from, into.slice(at as usize, len as usize)?))
            });
            done = piece.is_some_and(|(from, into)| {
                let mut pieces = GetPieces::new();
                pieces.push(IoVecMut::from_user(into));
                attach.lock().read(peer, &[from], pieces)
            });
        }
        joint.close();
        let end = clock::now() + MAX_WAIT;
        let mut loads = 0_u32;
        while !joint.is_finished() {
            loads += 1;
            if loads.is_multiple_of(LOADS_PER_CLOCK_READ) && clock::now() >= end {
                return Got::Pending { done };
            }
            std::hint::spin_loop();
        }
        // Else the peer may have given the memory another use before it was read.
        match done && !joint.has_failed() {
            _ if rings.reader.has_writer_ended() => Got::Ended,
            true => {
                let (elapsed, helped) = (clock::now() - began, joint.taken() > 0);
                attach.lock().note_joint(payload.len, Some(elapsed), helped);
                Got::Done
            }
            false => Got::UseStream,
        }
    }

    fn outcome(link: &ShmLink, payload: &Payload, done: bool) -> Option<bool> {
        let rings = link.rings.get()?;
        let joint = rings.reader.joint();
        if !joint.is_finished() {
            return None;
        }
        let whole = done && !joint.has_failed();
        if whole {
            rings.with_attach(|attach| attach.note_joint(payload.len, None, joint.taken() > 0));
        }
        Some(whole)
    }

    fn asked(link: &ShmLink) -> Option<JointPayload> {
        link.rings.get()?.writer.joint().payload()
    }

    /// Copies parts from the back.
    fn help(link: &ShmLink, payload: JointPayload, from: UserBuf) -> bool {
        let Some(rings) = link.rings.get() else {
            return false;
        };
        let (Some(attach), Some(process)) = (&rings.attach, &rings.process) else {
            return false;
        };
        let (peer, joint) = (rings.attach_target(process), rings.writer.joint());
        let mut attach = attach.lock();
        if payload.len > from.len() as u64 || !attach.is_attachable(peer) {
            return false;
        }
        let Some(mut end) = parts(payload.len) else {
            return false;
        };
        let mut helped = false;
        while let Some(claimed) = joint.claim(payload, end) {
            end = claimed;
            let piece = part(payload.len, claimed).and_then(|(at, len)| {
                let into = Payload {
                    address: payload.address.checked_add(at)?,
                    len,
                };
                Some((from.slice(at as usize, len as usize)?, into))
            });
            let done = piece.is_some_and(|(from, into)| attach.push(peer, from, into));
            joint.copied(done);
            helped = true;
        }
        helped
    }
}

/// Waits until the sender does not write to buffers of this side any more.
pub(super) fn finish(link: &ShmLink) {
    let Some(rings) = link.rings.get() else {
        return;
    };
    let joint = rings.reader.joint();
    joint.close();
    let end = clock::now() + MAX_WAIT_AT_END;
    while !joint.is_finished() {
        if rings.peer_has_exited() {
            return;
        }
        if clock::now() >= end {
            fi_warn!(
                NAME,
                Subsys::EpData,
                "{}: it does not say that it is through with copying a message to this process",
                rings.peer
            );
            return;
        }
        std::thread::yield_now();
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
