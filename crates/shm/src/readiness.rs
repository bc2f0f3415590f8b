//! Which links of a domain are ready. The kernel does not see the bytes in the rings, so the domain
//! polls them here, and says in its status page whether it sleeps.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, LazyLock};

use ripstop_core::log::Subsys;
use ripstop_core::provider::Copies;
use ripstop_core::{fi_info, fi_warn_sparse};
use ripstop_mem::ring::{Grant, Grants, Layout, PollStatus, STATUS_PAGE_BYTES, SleepWord};
use ripstop_os::{Interest, MemFd, barrier};
use ripstop_stream::{ConnId, Readiness, ReadyLink};
use ripstop_types::{Errno, Result};

use crate::copies::DomainCopies;
use crate::link::ShmLink;
use crate::params::NAME;

/// A full poll visits all links of a domain that has at most this many.
const MAX_LINKS_ALWAYS_POLLED: usize = 16;

/// Links that a full poll visits, in turn, in a domain with more.
const LINKS_PER_POLL: usize = 8;

/// Other links that an idle poll of the active link visits, in turn.
const LINKS_PER_IDLE_POLL: usize = 4;

/// Whether `membarrier` is refused in this process.
static MEMBARRIER_REFUSED: LazyLock<bool> = LazyLock::new(|| barrier::register().is_err());

/// The links of one domain, its status page, and its sleep word. Called under the domain's lock.
#[derive(Debug)]
pub struct ShmReadiness {
    sleep: SleepWord,
    grants: Grants,
    poll_status: PollStatus,
    copies: Arc<DomainCopies>,
    status_page: MemFd,
    /// The sleep word is odd: peers ring the doorbell for what they write.
    armed: bool,
    links: Vec<PolledLink>,
    /// The index in `links` of each link id.
    index_by_id: Vec<Option<usize>>,
    /// The index in `links` of the link that was visited last.
    next: usize,
    /// Links that wait for room in their rings.
    awaiting_room: usize,
}

/// A link, and what the domain waits for on it.
#[derive(Debug)]
struct PolledLink {
    id: ConnId,
    interest: Interest,
    link: Arc<ShmLink>,
}

impl ShmReadiness {
    /// Whether peers need a fence before they load this domain's status page, since `membarrier` is
    /// refused here. Sent in the greeting.
    pub(crate) fn needs_fence(&self) -> bool {
        *MEMBARRIER_REFUSED
    }

    /// A descriptor of the status page, to be sent to a peer.
    pub(crate) fn status_page(&self) -> Result<OwnedFd> {
        let status_page = self.status_page.as_fd().try_clone_to_owned();
        status_page.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno))
    }

    /// What the domain's connections add to.
    pub(crate) fn copies(&self) -> Arc<DomainCopies> {
        Arc::clone(&self.copies)
    }

    /// Ring sizes of the next connection: the more there are, the smaller.
    pub(crate) fn layout(&self) -> Option<Layout> {
        match self.links.len() {
            ..8 => Layout::new(256, 512 << 10),
            8..64 => Layout::new(256, 32 << 10),
            64..256 => Layout::new(128, 32 << 10),
            _ => Layout::new(128, 16 << 10),
        }
    }

    /// Whether one of the next `count` links is ready; the next poll then starts with it.
    #[inline(never)]
    fn any_ready_of(&mut self, count: usize) -> bool {
        for _ in 0..count.min(self.links.len()) {
            let before = self.next;
            if self.next_link().is_some_and(PolledLink::is_ready) {
                self.next = before;
                return true;
            }
        }
        false
    }

    /// Goes to the next link, in turn.
    fn next_link(&mut self) -> Option<&PolledLink> {
        self.next = match self.next + 1 {
            next if next < self.links.len() => next,
            _ => 0,
        };
        self.links.get(self.next)
    }

    fn index_of(&self, id: ConnId) -> Option<usize> {
        *self.index_by_id.get(id.index())?
    }
}

impl PolledLink {
    fn ready(&self) -> Interest {
        self.link.ready(self.interest)
    }

    fn is_ready(&self) -> bool {
        let Interest { read, write, .. } = self.ready();
        read || write
    }
}

/// The domain closes: says which ways its long payloads have taken, if there were any.
impl Drop for ShmReadiness {
    fn drop(&mut self) {
        let copies = self.copies.read();
        if copies != Copies::default() {
            fi_info!(NAME, Subsys::Domain, "{copies}");
        }
    }
}

/// A random number for the address probe: other processes have another one at the same address.
fn address_token() -> u64 {
    RandomState::new().hash_one(ripstop_os::pid()).max(1)
}

/// Orders a store that peers see before the loads that follow it: `membarrier`, or a fence where that is refused.
fn store_load_barrier() {
    if *MEMBARRIER_REFUSED || barrier::everywhere().is_err() {
        fence(Ordering::SeqCst);
    }
}

/// Creates memory to share with peers.
///
/// # Errors
/// As for [`MemFd::create`], with a line in the log.
pub(crate) fn create_shared_memory(label: &str, len: usize) -> Result<MemFd> {
    MemFd::create(label, len).inspect_err(|error| {
        let advice = match *error {
            Errno::EFBIG => "raise the limit on the size of files (ulimit -f)",
            Errno::EMFILE => "raise the limit on open files (ulimit -n)",
            Errno::EPERM | Errno::EACCES | Errno::ENOSYS => {
                "allow memfd_create(2) where system calls are filtered, or take tcp"
            }
            _ => "free memory, or raise the limit on it",
        };
        fi_warn_sparse!(
            NAME,
            Subsys::Domain,
            "no memory of {len} bytes to share with peers ({error}); {advice}"
        );
    })
}

impl Readiness<ShmLink> for ShmReadiness {
    const POLLS_LINKS: bool = true;

    fn open() -> Result<Self> {
        let status_page = create_shared_memory("ripstop-shm-status-page", STATUS_PAGE_BYTES)?;
        let map = Arc::new(status_page.map()?);
        status_page.seal_for_readers()?;
        LazyLock::force(&MEMBARRIER_REFUSED);
        Ok(Self {
            grants: Grants::from_mapping(map.clone()).map_err(|_| Errno::EINVAL)?,
            poll_status: PollStatus::from_mapping(map.clone(), address_token())
                .map_err(|_| Errno::EINVAL)?,
            copies: Arc::default(),
            sleep: SleepWord::from_mapping(map).map_err(|_| Errno::EINVAL)?,
            status_page,
            armed: false,
            links: Vec::new(),
            index_by_id: Vec::new(),
            next: 0,
            awaiting_room: 0,
        })
    }

    fn add(&mut self, id: ConnId, link: &Arc<ShmLink>) {
        let at = id.index();
        if self.index_by_id.len() <= at {
            self.index_by_id.resize(at + 1, None);
        }
        self.index_by_id[at] = Some(self.links.len());
        self.links.push(PolledLink {
            id,
            interest: Interest::READ,
            link: Arc::clone(link),
        });
    }

    fn modify(&mut self, id: ConnId, interest: Interest) {
        let index = self.index_of(id);
        let Some(link) = index.and_then(|index| self.links.get_mut(index)) else {
            return;
        };
        self.awaiting_room -= usize::from(link.interest.write);
        self.awaiting_room += usize::from(interest.write);
        link.interest = interest;
    }

    fn remove(&mut self, id: ConnId) {
        let Some(index) = self.index_of(id) else {
            return;
        };
        let gone = self.links.swap_remove(index);
        self.awaiting_room -= usize::from(gone.interest.write);
        self.index_by_id[id.index()] = None;
        if let Some(moved) = self.links.get(index) {
            self.index_by_id[moved.id.index()] = Some(index);
        }
    }

    #[inline]
    fn is_due(&mut self) -> bool {
        // A single link is the active one, which the caller has just read.
        (self.links.len() > 1 || self.awaiting_room > 0) && self.any_ready_of(LINKS_PER_IDLE_POLL)
    }

    fn poll(&mut self, ready: &mut Vec<ReadyLink>) {
        let count = match self.links.len() {
            few @ ..=MAX_LINKS_ALWAYS_POLLED => few,
            _ => LINKS_PER_POLL,
        };
        for _ in 0..count {
            let Some(link) = self.next_link() else { return };
            let ready_for = link.ready();
            if ready_for.read || ready_for.write {
                ready.push(ReadyLink {
                    id: link.id,
                    what: ready_for,
                });
            }
        }
    }

    fn arm(&mut self) -> bool {
        match self.armed {
            true => self.sleep.rearm(store_load_barrier),
            false => self.sleep.begin_sleep(store_load_barrier),
        }
        let due = self.links.iter().any(PolledLink::is_ready);
        if due && !self.armed {
            self.sleep.end_sleep(store_load_barrier);
        } else {
            self.armed = true;
        }
        due
    }

    fn open_grant(&mut self) -> Option<Grant> {
        self.grants.open()
    }

    fn close_grant(&mut self, grant: Grant) {
        self.grants.close(grant, store_load_barrier);
    }

    fn have_polled(&mut self) {
        self.poll_status.count_poll();
    }

    fn copies(&self) -> Option<Copies> {
        Some(self.copies.read())
    }

    fn disarm(&mut self) {
        if self.armed {
            self.armed = false;
            self.sleep.end_sleep(store_load_barrier);
        }
    }
}

#[cfg(test)]
mod tests {
    use ripstop_mem::ring::{PeerStatus, Side, Source, Writer, pair};
    use ripstop_os::Socket;
    use ripstop_stream::Link as _;

    use super::*;
    use crate::name::Name;

    /// A link that is up, and what the peer writes with.
    fn link(near: Socket, far: Socket) -> (Arc<ShmLink>, Writer, Socket) {
        let layout = Layout::new(4, 256).unwrap();
        let memory = Arc::new(MemFd::create("test", layout.len()).unwrap().map().unwrap());
        let status_page = MemFd::create("test", STATUS_PAGE_BYTES)
            .unwrap()
            .map_read()
            .unwrap();
        let name = Name::new("fi_shm://test").unwrap();
        let link = ShmLink::new(near, name.clone());
        let (writer, _) = pair(memory.clone(), layout, Side::Connector).unwrap();
        link.with_handshake(|handshake| {
            handshake.rings = pair(memory, layout, Side::Acceptor).ok();
            handshake.peer_status = PeerStatus::from_mapping(Arc::new(status_page), false).ok();
            handshake.peer = Some(name);
        });
        link.start();
        (Arc::new(link), writer, far)
    }

    #[test]
    fn ready_link_is_found_by_the_next_poll() {
        let name = format!("ripstop-test/{}/looks", ripstop_os::pid()).into_bytes();
        let door = Socket::unix_bound(&name).unwrap();
        door.listen(1).unwrap();
        for count in [
            2,
            MAX_LINKS_ALWAYS_POLLED as u32,
            MAX_LINKS_ALWAYS_POLLED as u32 + 4,
            3 * MAX_LINKS_ALWAYS_POLLED as u32 + 1,
        ] {
            let mut readiness = ShmReadiness::open().unwrap();
            let peers: Vec<_> = (1..=count)
                .filter_map(ConnId::new)
                .map(|id| {
                    let far = Socket::unix_connect(&name).unwrap();
                    let peer = link(door.accept_unix().unwrap().unwrap(), far);
                    readiness.add(id, &peer.0);
                    (id, peer)
                })
                .collect();
            assert!(!(0..count).any(|_| readiness.is_due()));
            for (id, (link, writer, _)) in &peers {
                assert_eq!(writer.write(Source::from(&[7; 8][..])), Ok(8));
                assert!((0..count).any(|_| readiness.is_due()), "{id:?} of {count}");
                let mut ready = Vec::new();
                readiness.poll(&mut ready);
                let ready: Vec<_> = ready.iter().map(|link| link.id).collect();
                assert_eq!(ready, [*id], "of {count}");
                assert_eq!(link.recv_once(&mut [0; 16]), Ok(8));
            }
        }
    }
}
