//! Direct access: regions that are mapped, or reached by cross-memory attach.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use ripstop_core::fi_info;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{Copied, Copies};
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Grant, Window};
use ripstop_stream::{
    AttachState, Attached, DirectAccess, GetPieces, Got, Lent, LinkCopies, Offer, Payload,
};
use ripstop_types::RmaIov;

use super::{Connection, ShmLink, joint};
use crate::attach::{Attach, PeerProcess};
use crate::copy_choice::{GetLimit, Way};
use crate::copy_cost::RingCopy;
use crate::params::NAME;
use crate::records::{AddressedRegion, OfferedRegion, Record, RegionInfo, Rights};
use crate::windows::Windows;

/// See the [module](self).
#[derive(Debug)]
pub struct RingDirect;

impl DirectAccess<ShmLink> for RingDirect {
    const SUPPORTED: bool = true;

    type Windows = Windows;

    fn offer(link: &ShmLink, offer: &Offer) {
        let info = |len| RegionInfo {
            grant: offer.grant,
            key: offer.key,
            base: offer.base,
            len,
        };
        match &offer.memory {
            Lent::Part(part) => {
                let region = OfferedRegion {
                    info: info(part.len() as u64),
                    offset: part.offset(),
                };
                link.send_record(Record::Offer(region), &[part.as_fd()]);
            }
            &Lent::At {
                addr,
                len,
                read,
                write,
            } => {
                let region = AddressedRegion {
                    info: info(len),
                    addr,
                    rights: Rights { read, write },
                };
                link.send_record(Record::Address(region), &[]);
            }
        }
    }

    fn withdraw(link: &ShmLink, grant: Grant) {
        link.send_record(Record::Revoke(grant), &[]);
    }

    fn is_claimed(link: &ShmLink, grant: Grant) -> bool {
        let conn = link.conn.get();
        conn.is_some_and(|conn| conn.rings.reader.is_claimed(grant))
    }

    fn peer_has_left(link: &ShmLink) -> bool {
        let conn = link.conn.get();
        conn.is_none_or(|conn| conn.rings.reader.has_writer_ended() || link.peer_has_left(conn))
    }

    fn tell_applied(link: &ShmLink) {
        if let Some(conn) = link.conn.get() {
            conn.rings.reader.publish_applied();
        }
    }

    fn has_windows(windows: &Windows) -> bool {
        !windows.is_empty()
    }

    #[inline]
    fn access_window<R>(
        link: &ShmLink,
        windows: &mut Windows,
        place: &RmaIov,
        act: impl FnOnce(&Window, usize) -> Option<R>,
    ) -> Option<R> {
        let conn = link.conn.get()?;
        let (grant, window, at) = windows.find(place)?;
        if conn.ended.load(Ordering::Relaxed) || !conn.wait_applied(place.len) {
            return None;
        }
        conn.rings.writer.claim(grant);
        let granted = conn.peer.status.is_granted(grant);
        let done = match granted {
            true => act(window, at),
            false => None,
        };
        conn.rings.writer.unclaim();
        if done.is_some() && place.len >= Copies::MIN_BYTES {
            conn.counts.mapped.add(Copied::one(place.len));
        }
        if !granted {
            windows.retain(|other| other != grant);
        }
        done
    }

    fn take_requests(link: &ShmLink) -> Vec<u64> {
        let conn = link.conn.get();
        conn.map_or_else(Vec::new, |conn| {
            std::mem::take(&mut *conn.records.requested_keys.lock())
        })
    }

    fn attach(
        link: &ShmLink,
        place: &RmaIov,
        write: bool,
        segments: &[UserBuf],
        state: AttachState,
    ) -> Attached {
        let Some((conn, attach, peer)) = link.attach() else {
            return Attached::UseStream;
        };
        let mut attach = attach.lock();
        let Some(found) = attach.regions.find(place, write) else {
            let Some(record) = attach.request(place.key, peer) else {
                return Attached::UseStream;
            };
            link.send_record(record, &[]);
            return match attach.choice.preferred(place.len) {
                Way::Attach => Attached::Asked,
                Way::Ring => Attached::UseStream,
            };
        };
        if let Err(instead) = choose_attach(conn, &mut attach, peer, place.len, state) {
            return instead;
        }
        conn.rings.writer.claim(found.grant);
        let granted = conn.peer.status.is_granted(found.grant);
        let outcome = match segments {
            _ if !granted => Attached::UseStream,
            [buf] if state.joint && joint::may_help_access(conn, &mut attach) => {
                joint::access(conn, &mut attach, peer, found, write, *buf)
            }
            _ => match attach.copy(peer, found, write, segments) {
                true => Attached::Done,
                false => Attached::UseStream,
            },
        };
        conn.rings.writer.unclaim();
        if !granted {
            attach.regions.retain(|other| other != found.grant);
        }
        outcome
    }

    fn prefers_attach(link: &ShmLink, place: &RmaIov, write: bool) -> bool {
        let attach = link.conn.get().and_then(|conn| conn.attach.as_ref());
        attach.is_some_and(|attach| {
            let attach = attach.lock();
            attach.choice.preferred(place.len) == Way::Attach
                && attach.regions.find(place, write).is_some()
        })
    }

    fn get(link: &ShmLink, from: &[Payload], into: GetPieces<'_>) -> Got {
        let Some((conn, attach, peer)) = link.attach() else {
            return Got::UseStream;
        };
        let got = attach.lock().get(peer, from, into);
        conn.timer.note_get();
        // Else the peer may have given the memory another use before it was read.
        match got {
            _ if conn.rings.reader.has_writer_ended() => Got::Ended,
            true => Got::Done,
            false => Got::UseStream,
        }
    }

    fn note_peer_got(link: &ShmLink) {
        if let Some((_, attach, _)) = link.attach() {
            attach.lock().choice.note_moved(RingCopy::Write);
        }
    }

    fn has_new_get_limit(link: &ShmLink) -> bool {
        let conn = link.conn.get();
        conn.is_some_and(|conn| conn.has_new_get_limit.load(Ordering::Relaxed))
    }

    fn take_get_limit(link: &ShmLink) -> Option<u8> {
        let (conn, attach, peer) = link.attach()?;
        conn.has_new_get_limit.store(false, Ordering::Relaxed);
        let limit = attach.lock().take_get_limit(peer)?;
        let peer = &conn.peer.name;
        match limit {
            GetLimit::CannotGet | GetLimit::TrialsOnly => fi_info!(
                NAME,
                Subsys::EpData,
                "{peer}: messages come through the ring"
            ),
            GetLimit::From { exponent } => fi_info!(
                NAME,
                Subsys::EpData,
                "{peer}: messages from {} bytes on are copied by cross-memory attach, shorter ones \
                 come through the ring",
                1_u64 << exponent
            ),
        }
        Some(limit.wire_exponent())
    }

    fn end_gets(link: &ShmLink, queued: Copied) {
        let Some(conn) = link.conn.get() else {
            return;
        };
        conn.rings.writer.end();
        joint::finish(link);
        let (sent, mut copied) = (
            conn.counts.sent_in_place.read() + queued,
            Default::default(),
        );
        conn.counts.domain.ring.add(sent);
        conn.counts.domain.mapped.add(conn.counts.mapped.read());
        conn.with_attach(|attach| copied = attach.copied());
        let (copied, joint): (Copied, u64) = copied;
        if sent.payloads + copied.payloads > 0 {
            let (peer, kib) = (&conn.peer.name, Copies::MIN_BYTES >> 10);
            fi_info!(
                NAME,
                Subsys::EpData,
                "{peer}: payloads of {kib} KiB and more: {sent} were sent through the ring, {copied} \
                 were copied by cross-memory attach, {joint} of them by both sides"
            );
        }
    }

    fn copied(link: &ShmLink) -> LinkCopies {
        let Some(conn) = link.conn.get() else {
            return LinkCopies::default();
        };
        let mut by_attach = Copied::default();
        conn.with_attach(|attach| by_attach = attach.copied().0);
        LinkCopies {
            in_place: conn.counts.sent_in_place.read(),
            mapped: conn.counts.mapped.read(),
            attach: by_attach,
        }
    }
}

/// Chooses attach for a read or write of `len` bytes in a known region: where it is the faster way, or a trial is
/// due, and where the ring is faster but the peer does not poll it. The error is what the caller does instead.
fn choose_attach(
    conn: &Connection,
    attach: &mut Attach,
    peer: PeerProcess<'_>,
    len: u64,
    state: AttachState,
) -> Result<(), Attached> {
    if conn.ended.load(Ordering::Relaxed) {
        return Err(Attached::UseStream);
    }
    // An access by address must not overtake what was sent before.
    let applied = state.settled && conn.rings.writer.all_applied();
    let preferred = attach.choice.preferred(len);
    match preferred {
        Way::Attach if !applied => return Err(Attached::Unapplied),
        Way::Ring if attach.polls.is_assumed_polling() => return Err(Attached::PeerPolling),
        Way::Ring if !applied => return Err(Attached::UseStream),
        Way::Attach | Way::Ring => {}
    }
    match (preferred, attach.next_way(peer, len, state.crowded)) {
        (_, Way::Attach) if attach.is_same_process(peer) => Ok(()),
        (_, Way::Attach) => Err(Attached::UseStream),
        // A trial of the ring.
        (Way::Attach, Way::Ring) => {
            conn.timer.time_next();
            Err(Attached::UseStream)
        }
        (Way::Ring, Way::Ring) => match attach.is_idle(peer, state.crowded) {
            Some(true) => Ok(()),
            Some(false) => Err(Attached::PeerPolling),
            None => Err(Attached::UseStream),
        },
    }
}
