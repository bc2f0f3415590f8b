#![allow(unsafe_code)]
//! Sends long messages over `verbs;ofi_rxm` from memory that is given back and mapped again at the same addresses, and looks
//! at each byte; then as many as it can from one buffer. The laboratory runs it (`lab/cases/rxm_kept.sh`):
//! `rxm_kept DEVICE`.

mod common;
#[path = "common/rxm.rs"]
mod rxm;
#[path = "common/until.rs"]
mod until;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_core::provider::{AddressVector as _, Endpoint as _, RecvKind, SendKind};
use ripstop_core::{Address, Info};
use ripstop_mem::UserBuf;
use ripstop_types::{EpType, Errno, FiAddr, flags};
use ripstop_verbs::RxmVerbsProvider;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use rxm::{Av, Cq, Domain, Endpoint};
use until::until;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(40);
/// Announced messages.
const LENGTHS: [usize; 2] = [256 << 10, 1 << 20];
const LONGEST: usize = LENGTHS[1];

/// Private memory for reads and writes, where it was asked for.
fn map(at: *mut u8) -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a hint only, so nothing that is there is replaced.
    let mapped = unsafe { mmap_anonymous(at.cast(), LONGEST, rights, MapFlags::PRIVATE) };
    let mapped = mapped.expect("memory").cast();
    assert!(at.is_null() || mapped == at, "other memory is there");
    mapped
}

/// How memory changes between two messages.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    None,
    Remapped,
    Dropped,
}

impl Change {
    fn happen(self, memory: *mut u8) {
        match self {
            Self::None => {}
            Self::Remapped => {
                // SAFETY: memory of `map`, which no operation has.
                unsafe { munmap(memory.cast(), LONGEST) }.expect("unmapped");
                assert_eq!(map(memory), memory);
            }
            Self::Dropped => {
                // SAFETY: memory of `map`, which no operation has.
                unsafe { madvise(memory.cast(), LONGEST, Advice::LinuxDontNeed) }.expect("dropped");
            }
        }
    }
}

/// An endpoint.
struct Side {
    ep: Arc<Endpoint>,
    cq: Arc<Cq>,
    av: Arc<Av>,
    _domain: Arc<Domain>,
}

impl Side {
    fn new(provider: &RxmVerbsProvider, device: &str) -> Self {
        let infos = common::infos(provider, EpType::Rdm, flags![MSG TAGGED]);
        let is_it = |info: &Info| info.domain.name.as_deref() == Some(device);
        let info = infos.into_iter().find(is_it).expect("an offer");
        let (domain, ep, cq, av) = rxm::open(provider, &info, 1);
        Self {
            ep,
            cq,
            av,
            _domain: domain,
        }
    }

    fn know(&self, peer: &Address) -> FiAddr {
        self.av.insert(peer).expect("inserted")
    }

    fn is_done(&self) -> bool {
        match common::next(&*self.cq, None) {
            Some(ended) => ended.map(|_| true).expect("it arrives"),
            None => false,
        }
    }
}

/// Two of them, of which the second sends.
struct Sides {
    receiver: Side,
    sender: Side,
    to: FiAddr,
}

impl Sides {
    fn send(&self, from: *mut u8, to: *mut u8, len: usize) {
        // SAFETY: memory of `map`, which only the two operations use until they have ended.
        let [from, into] = [from, to].map(|memory| unsafe { UserBuf::from_raw(memory, len) });
        let received = self
            .receiver
            .ep
            .recv(RecvKind::Msg, &[into], FiAddr::UNSPEC, 1, None);
        received.expect("posted");
        until(PATIENCE, "room", || {
            let sent = self
                .sender
                .ep
                .send(SendKind::Msg, &[from], None, self.to, 2, None);
            match sent {
                Err(Errno::EAGAIN) => {
                    assert!(!self.sender.is_done());
                    None
                }
                Err(error) => panic!("not posted: {error}"),
                Ok(()) => Some(()),
            }
        });
        let (mut sent, mut received) = (false, false);
        until(PATIENCE, "message", || {
            sent |= self.sender.is_done();
            received |= self.receiver.is_done();
            (sent && received).then_some(())
        });
    }
}

fn main() {
    let device = std::env::args().nth(1).expect("rxm_kept DEVICE");
    let provider = RxmVerbsProvider::new();
    let [receiver, sender] = [(); 2].map(|()| Side::new(&provider, &device));
    let to = sender.know(&receiver.ep.name().expect("a name"));
    receiver.know(&sender.ep.name().expect("a name"));
    let sides = Sides {
        receiver,
        sender,
        to,
    };
    let [from, to] = [(); 2].map(|()| map(std::ptr::null_mut()));
    let changes = [Change::None, Change::Remapped, Change::Dropped];
    for round in 0..300_usize {
        let byte = (round % 251 + 1) as u8;
        let len = LENGTHS[round % 2];
        changes[round % 3].happen(from);
        changes[round / 3 % 3].happen(to);
        // SAFETY: memory of `map`, which no operation has.
        unsafe { from.write_bytes(byte, len) };
        sides.send(from, to, len);
        // SAFETY: as above.
        let got = unsafe { std::slice::from_raw_parts(to, len) };
        assert!(got.iter().all(|&got| got == byte), "round {round}");
    }
    for len in LENGTHS {
        let begin = Instant::now();
        let mut count = 0;
        while begin.elapsed() < Duration::from_secs(2) {
            sides.send(from, to, len);
            count += 1;
        }
        let each = begin.elapsed() / count;
        println!("rxm_kept: {len} bytes: {each:?} a message");
    }
    println!("rxm_kept: all right");
}
