//! The links of a domain that are looked at, and whether the domain sleeps.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, LazyLock};

use ripstop_core::fi_warn_sparse;
use ripstop_core::log::Subsys;
use ripstop_mem::ring::{Grant, Grants, Layout, PollStatus, STATUS_PAGE_BYTES, SleepWord};
use ripstop_os::{Interest, MemFd, barrier};
use ripstop_stream::{Readiness, ReadyLink};
use ripstop_types::{Errno, Result};

use crate::link::ShmLink;
use crate::params::NAME;

/// Up to so many links are all looked at each time.
const ALL: usize = 16;

/// Of more links so many are looked at each time, in turn.
const SOME: usize = 8;

/// So many are looked at by polls that find nothing on the link that was just active.
const FEW: usize = 4;

/// Whether `membarrier` is refused in this process.
static REFUSED: LazyLock<bool> = LazyLock::new(|| barrier::register().is_err());

/// See [the module](self).
#[derive(Debug)]
pub struct ShmReadiness {
    sleep: SleepWord,
    grants: Grants,
    poll_status: PollStatus,
    /// It was said that memory of a peer cannot be reached by its address.
    told: Arc<AtomicBool>,
    status_page: MemFd,
    armed: bool,
    looked: Vec<Looked>,
    /// Where in `looked` a link is, by its id.
    places: Vec<Option<usize>>,
    next: usize,
    /// Links with room to wait for.
    full: usize,
}

#[derive(Debug)]
struct Looked {
    id: u32,
    interest: Interest,
    link: Arc<ShmLink>,
}

impl ShmReadiness {
    /// Whether peers have to fence, since this side has no barrier for them.
    pub(crate) fn fenced(&self) -> bool {
        *REFUSED
    }

    /// A descriptor of the status page, for a peer.
    pub(crate) fn status_page(&self) -> Result<OwnedFd> {
        let status_page = self.status_page.as_fd().try_clone_to_owned();
        status_page.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno))
    }

    /// Whether it was said that memory of a peer cannot be reached.
    pub(crate) fn told(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.told)
    }

    /// Sizes for one more connection: the more there are, the less memory each has.
    pub(crate) fn layout(&self) -> Option<Layout> {
        match self.looked.len() {
            ..64 => Layout::new(256, 64 << 10),
            64..256 => Layout::new(128, 32 << 10),
            _ => Layout::new(128, 16 << 10),
        }
    }

    /// Whether one of the next links in turn has what it is looked at for: then it is its turn.
    #[inline(never)]
    fn any_of(&mut self, count: usize) -> bool {
        for _ in 0..count.min(self.looked.len()) {
            let before = self.next;
            if self.turn().is_some_and(Looked::is_ready) {
                self.next = before;
                return true;
            }
        }
        false
    }

    /// The link whose turn it is.
    fn turn(&mut self) -> Option<&Looked> {
        self.next = match self.next + 1 {
            next if next < self.looked.len() => next,
            _ => 0,
        };
        self.looked.get(self.next)
    }

    fn place(&self, id: u32) -> Option<usize> {
        *self.places.get(id as usize)?
    }
}

impl Looked {
    fn has(&self) -> Interest {
        self.link.has(self.interest)
    }

    fn is_ready(&self) -> bool {
        let Interest { read, write, .. } = self.has();
        read || write
    }
}

/// A number that no other domain has at the address of its own.
fn token() -> u64 {
    RandomState::new().hash_one(ripstop_os::pid()).max(1)
}

/// Between what is told to peers and what is looked at afterwards.
fn order() {
    if *REFUSED || barrier::everywhere().is_err() {
        fence(Ordering::SeqCst);
    }
}

/// Memory for peers; without it there are none.
///
/// # Errors
/// As for [`MemFd::create`], with a line in the log.
pub(crate) fn share(label: &str, len: usize) -> Result<MemFd> {
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
        let status_page = share("ripstop-shm-status-page", STATUS_PAGE_BYTES)?;
        let map = Arc::new(status_page.map()?);
        status_page.seal_for_readers()?;
        LazyLock::force(&REFUSED);
        Ok(Self {
            grants: Grants::from_mapping(map.clone()).map_err(|_| Errno::EINVAL)?,
            poll_status: PollStatus::from_mapping(map.clone(), token())
                .map_err(|_| Errno::EINVAL)?,
            told: Arc::default(),
            sleep: SleepWord::from_mapping(map).map_err(|_| Errno::EINVAL)?,
            status_page,
            armed: false,
            looked: Vec::new(),
            places: Vec::new(),
            next: 0,
            full: 0,
        })
    }

    fn add(&mut self, id: u32, link: &Arc<ShmLink>) {
        let at = id as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, None);
        }
        self.places[at] = Some(self.looked.len());
        self.looked.push(Looked {
            id,
            interest: Interest::READ,
            link: Arc::clone(link),
        });
    }

    fn modify(&mut self, id: u32, interest: Interest) {
        let place = self.place(id);
        let Some(looked) = place.and_then(|place| self.looked.get_mut(place)) else {
            return;
        };
        self.full -= usize::from(looked.interest.write);
        self.full += usize::from(interest.write);
        looked.interest = interest;
    }

    fn remove(&mut self, id: u32) {
        let Some(place) = self.place(id) else {
            return;
        };
        let gone = self.looked.swap_remove(place);
        self.full -= usize::from(gone.interest.write);
        self.places[id as usize] = None;
        if let Some(moved) = self.looked.get(place) {
            self.places[moved.id as usize] = Some(place);
        }
    }

    #[inline]
    fn is_due(&mut self) -> bool {
        // A single one is that which was just read.
        (self.looked.len() > 1 || self.full > 0) && self.any_of(FEW)
    }

    fn poll(&mut self, ready: &mut Vec<ReadyLink>) {
        let count = match self.looked.len() {
            few @ ..=ALL => few,
            _ => SOME,
        };
        for _ in 0..count {
            let Some(looked) = self.turn() else { return };
            let what = looked.has();
            if what.read || what.write {
                ready.push(ReadyLink {
                    id: looked.id,
                    what,
                });
            }
        }
    }

    fn arm(&mut self) -> bool {
        match self.armed {
            true => self.sleep.rearm(order),
            false => self.sleep.begin_sleep(order),
        }
        let due = self.looked.iter().any(Looked::is_ready);
        if due && !self.armed {
            self.sleep.end_sleep(order);
        } else {
            self.armed = true;
        }
        due
    }

    fn open_grant(&mut self) -> Option<Grant> {
        self.grants.open()
    }

    fn close_grant(&mut self, grant: Grant) {
        self.grants.close(grant, order);
    }

    fn have_polled(&mut self) {
        self.poll_status.count_poll();
    }

    fn disarm(&mut self) {
        if self.armed {
            self.armed = false;
            self.sleep.end_sleep(order);
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
        link.shake(|shake| {
            shake.halves = pair(memory, layout, Side::Acceptor).ok();
            shake.peer_status = PeerStatus::from_mapping(Arc::new(status_page), false).ok();
            shake.peer = Some(name);
        });
        link.start();
        (Arc::new(link), writer, far)
    }

    #[test]
    fn what_is_due_is_seen_by_the_next_look() {
        let name = format!("ripstop-test/{}/looks", ripstop_os::pid()).into_bytes();
        let door = Socket::unix_bound(&name).unwrap();
        door.listen(1).unwrap();
        for count in [2, ALL as u32, ALL as u32 + 4, 3 * ALL as u32 + 1] {
            let mut readiness = ShmReadiness::open().unwrap();
            let peers: Vec<_> = (0..count)
                .map(|id| {
                    let far = Socket::unix_connect(&name).unwrap();
                    let peer = link(door.accept_unix().unwrap().unwrap(), far);
                    readiness.add(id, &peer.0);
                    peer
                })
                .collect();
            assert!(!(0..count).any(|_| readiness.is_due()));
            for (id, (link, writer, _)) in (0..).zip(&peers) {
                assert_eq!(writer.write(Source::from(&[7; 8][..])), Ok(8));
                assert!((0..count).any(|_| readiness.is_due()), "{id} of {count}");
                let mut ready = Vec::new();
                readiness.poll(&mut ready);
                let ready: Vec<_> = ready.iter().map(|link| link.id).collect();
                assert_eq!(ready, [id], "of {count}");
                assert_eq!(link.recv_once(&mut [0; 16]), Ok(8));
            }
        }
    }
}
