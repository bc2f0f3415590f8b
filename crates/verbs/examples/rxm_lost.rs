//! Removes one of two devices while messages flow over `verbs;ofi_rxm` by both: what is under way by it fails and what
//! comes later, the other goes on. The laboratory runs it (`lab/cases/rxm_lost.sh`): `rxm_lost DEVICE OTHER`.
#![forbid(unsafe_code)]

mod common;
#[path = "common/rxm.rs"]
mod rxm;
#[path = "common/until.rs"]
mod until;

use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_core::provider::{AddressVector as _, Endpoint as _, RecvKind, SendKind};
use ripstop_core::{Address, Info};
use ripstop_mem::Parked;
use ripstop_types::{EpType, Errno, FiAddr, Flags, Result, flags};
use ripstop_verbs::RxmVerbsProvider;

use rxm::{Av, Cq, Domain, Endpoint};
use until::until;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long operations may take to fail once the device goes.
const BOUND: Duration = Duration::from_secs(10);
/// A message of one packet, and one that is announced.
const LENGTHS: [usize; 2] = [64, 100_000];
/// Receives that wait, and messages that are under way.
const DEPTH: usize = 8;

fn infos(provider: &RxmVerbsProvider) -> Vec<Info> {
    common::infos(provider, EpType::Rdm, flags![MSG TAGGED])
}

/// An endpoint, with a peer of its own domain or another.
struct Side {
    ep: Arc<Endpoint>,
    cq: Arc<Cq>,
    av: Arc<Av>,
    peer: FiAddr,
    buffers: Vec<Parked>,
    /// Receives and sends that have not ended.
    receives: usize,
    sends: usize,
    /// Messages that were received.
    got: usize,
    failures: Vec<Errno>,
    _domain: Arc<Domain>,
}

impl Side {
    fn new(provider: &RxmVerbsProvider, device: &str) -> Self {
        let is_it = |info: &Info| info.domain.name.as_deref() == Some(device);
        let info = infos(provider).into_iter().find(is_it).expect("an offer");
        let (domain, ep, cq, av) = rxm::open(provider, &info, 1);
        let buffers = LENGTHS.iter().map(|len| Parked::park(vec![0; *len]));
        Self {
            peer: FiAddr::UNSPEC,
            ep,
            cq,
            av,
            buffers: buffers.collect(),
            receives: 0,
            sends: 0,
            got: 0,
            failures: Vec::new(),
            _domain: domain,
        }
    }

    fn two(provider: &RxmVerbsProvider, device: &str) -> [Self; 2] {
        let mut sides = [Self::new(provider, device), Self::new(provider, device)];
        let names = sides.each_ref().map(|side| side.ep.name().expect("a name"));
        let [first, second] = &mut sides;
        first.know(&names[1]);
        second.know(&names[0]);
        sides
    }

    fn know(&mut self, peer: &Address) {
        self.peer = self.av.insert(peer).expect("inserted");
    }

    fn send(&mut self, which: usize) -> Result<()> {
        let buf = [self.buffers[which].buf()];
        self.ep
            .send(SendKind::Msg, &buf, None, self.peer, 1, None)?;
        self.sends += 1;
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let buf = [self.buffers[1].buf()];
        self.ep.recv(RecvKind::Msg, &buf, FiAddr::UNSPEC, 2, None)?;
        self.receives += 1;
        Ok(())
    }

    /// Takes all completions; false once anything has failed.
    fn poll(&mut self) -> bool {
        while self.take() {}
        self.failures.is_empty()
    }

    /// Takes a completion; whether there was one.
    fn take(&mut self) -> bool {
        let Some(ended) = common::next(&*self.cq, None) else {
            return false;
        };
        let flags = match ended {
            Ok(entry) => entry.flags,
            Err((error, _)) => {
                self.failures.push(error.err);
                error.entry.flags
            }
        };
        if flags.contains(Flags::RECV) {
            self.receives -= 1;
            self.got += 1;
        } else {
            self.sends -= 1;
        }
        true
    }

    /// Keeps messages under way both ways; false once that has failed.
    fn flow(&mut self) -> bool {
        while self.receives < DEPTH {
            if self.receive().is_err() {
                return false;
            }
        }
        if self.sends < DEPTH {
            match self.send(self.got % LENGTHS.len()) {
                Ok(()) | Err(Errno::EAGAIN) => {}
                Err(_) => return false,
            }
        }
        self.poll()
    }
}

fn flow(sides: &mut [Side; 2]) -> bool {
    let [first, second] = sides;
    let flows = first.flow();
    second.flow() && flows
}

fn flow_for(sides: &mut [Side; 2], messages: usize) {
    let goal = sides[0].got + messages;
    until(PATIENCE, "messages", || {
        assert!(flow(sides), "messages flow: {:?}", sides[0].failures);
        (sides[0].got >= goal && sides[1].got >= goal).then_some(())
    });
}

fn remove(device: &str) -> Child {
    let removal = Command::new("rdma").args(["link", "del", device]).spawn();
    removal.expect("started")
}

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [name, other] = &args[..] else {
        panic!("rxm_lost DEVICE OTHER");
    };
    let provider = RxmVerbsProvider::new();
    let mut sides = Side::two(&provider, name);
    let mut others = Side::two(&provider, other);
    flow_for(&mut sides, 200);
    flow_for(&mut others, 200);
    let mut removal = remove(name);
    let start = Instant::now();
    until(PATIENCE, "failure", || {
        assert!(flow(&mut others), "the other device works");
        (!flow(&mut sides)).then_some(())
    });
    for side in &mut sides {
        until(PATIENCE, "end of what was posted", || {
            side.poll();
            (side.receives == 0 && side.sends == 0).then_some(())
        });
        println!(
            "rxm_lost: all has ended {:?} after the removal began: {:?}",
            start.elapsed(),
            side.failures
        );
        assert!(
            side.failures
                .iter()
                .all(|failure| *failure == Errno::ENODEV)
        );
        assert_eq!(side.receive(), Err(Errno::ENODEV));
        assert_eq!(side.send(0), Err(Errno::ENODEV));
    }
    assert!(start.elapsed() < BOUND);
    flow_for(&mut others, 200);
    drop(sides);
    let removed = until(PATIENCE, "end of the removal", || {
        assert!(flow(&mut others), "the other device works");
        removal.try_wait().expect("waited")
    });
    assert!(removed.success());
    flow_for(&mut others, 200);
    let left = infos(&provider);
    let names: Vec<_> = left
        .iter()
        .map(|info| info.domain.name.as_deref())
        .collect();
    assert_eq!(names, [Some(&**other)]);
    // Also for those who come now.
    flow_for(&mut Side::two(&provider, other), 50);
    println!("rxm_lost: all right");
}
