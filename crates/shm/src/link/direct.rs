//! Direct access: regions that are mapped, or reached by cross-memory attach.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Grant, Window};
use ripstop_stream::{Attached, DirectAccess, Lent, Offer};
use ripstop_types::RmaIov;

use super::ShmLink;
use crate::records::{Record, RegionInfo, Rights};
use crate::windows::Windows;

/// See the [module](self).
#[derive(Debug)]
pub struct RingDirect;

impl DirectAccess<ShmLink> for RingDirect {
    const SUPPORTED: bool = true;

    type Windows = Windows;

    fn offer(link: &ShmLink, offer: &Offer) {
        let info = |len, offset| RegionInfo {
            grant: offer.grant,
            key: offer.key,
            base: offer.base,
            len,
            offset,
        };
        match &offer.memory {
            Lent::Part(part) => {
                let info = info(part.len() as u64, part.offset());
                link.send_record(Record::Offer(info), &[part.as_fd()]);
            }
            &Lent::At {
                addr,
                len,
                read,
                write,
            } => link.send_record(
                Record::Address(info(len, addr), Rights { read, write }),
                &[],
            ),
        }
    }

    fn withdraw(link: &ShmLink, grant: Grant) {
        link.send_record(Record::Revoke(grant), &[]);
    }

    fn is_claimed(link: &ShmLink, grant: Grant) -> bool {
        let rings = link.rings.get();
        rings.is_some_and(|rings| rings.reader.is_claimed(grant))
    }

    fn tell_applied(link: &ShmLink) {
        if let Some(rings) = link.rings.get() {
            rings.reader.publish_applied();
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
        let rings = link.rings.get()?;
        let (grant, window, at) = windows.find(place)?;
        if rings.ended.load(Ordering::Relaxed) || !rings.wait_applied(place.len) {
            return None;
        }
        rings.writer.claim(grant);
        let granted = rings.peer_status.is_granted(grant);
        let done = match granted {
            true => act(window, at),
            false => None,
        };
        rings.writer.unclaim();
        if !granted {
            windows.retain(|other| other != grant);
        }
        done
    }

    fn take_requests(link: &ShmLink) -> Vec<u64> {
        let rings = link.rings.get();
        rings.map_or_else(Vec::new, |rings| {
            std::mem::take(&mut *rings.requested_keys.lock())
        })
    }

    fn attach(
        link: &ShmLink,
        place: &RmaIov,
        write: bool,
        segments: &[UserBuf],
        crowd: bool,
    ) -> Attached {
        let Some(rings) = link.rings.get() else {
            return Attached::UseStream;
        };
        let (Some(attach), Some(process)) = (&rings.attach, &rings.process) else {
            return Attached::UseStream;
        };
        let (mut attach, peer) = (attach.lock(), link.attach_target(rings, process));
        let Some(found) = attach.find(place, write) else {
            if let Some(record) = attach.request(place.key, peer) {
                link.send_record(record, &[]);
            }
            return Attached::UseStream;
        };
        if attach.is_assumed_polling() {
            return Attached::PeerPolling;
        }
        if rings.ended.load(Ordering::Relaxed) || !rings.writer.all_applied() {
            return Attached::UseStream;
        }
        match attach.is_idle(peer, crowd) {
            Some(true) => {}
            Some(false) => return Attached::PeerPolling,
            None => return Attached::UseStream,
        }
        rings.writer.claim(found.grant);
        let granted = rings.peer_status.is_granted(found.grant);
        let done = granted && attach.copy(peer, found, write, segments);
        rings.writer.unclaim();
        if !granted {
            attach.retain(|other| other != found.grant);
        }
        match done {
            true => Attached::Done,
            false => Attached::UseStream,
        }
    }
}
