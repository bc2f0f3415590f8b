//! Receives that another provider has, through the object model.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common;
use crate::freed::unpark;
use crate::pair::{End, open_with};
use ripstop_core::provider::{
    Arrival, CompletionQueue, Domain, Done, Endpoint, Fabric, PeerRx, Provider, SendKind,
};
use ripstop_core::{FidToken, Info};
use ripstop_mem::Parked;
use ripstop_tcp::TcpProvider;
use ripstop_types::{Completion, EpType, Errno, FiAddr, Flags, Progress, Threading};

fn info(provider: &TcpProvider, ep_type: EpType, caps: Flags) -> Info {
    let (threading, progress) = (Threading::Unspec, Progress::Unspec);
    common::first(provider, &common::hints(ep_type, caps, threading, progress))
}

fn rdm(provider: &TcpProvider) -> Info {
    let caps = Flags::MSG | Flags::TAGGED | Flags::SOURCE | Flags::PEER;
    info(provider, EpType::Rdm, caps)
}

/// An endpoint whose receives an owner of its own has.
struct Owned<D: Domain> {
    end: End<D>,
    rx: Arc<D::PeerRx>,
}

fn open<D: Domain>(domain: &Arc<D>, info: &Info) -> Owned<D> {
    let rx = domain.peer_rx().unwrap();
    let end = open_with(domain, info, |ep| {
        ep.bind_peer_rx(&rx).unwrap();
        assert_eq!(ep.bind_peer_rx(&rx), Err(Errno::EINVAL));
    });
    Owned { end, rx }
}

fn pair<D: Domain>(domain: &Arc<D>, info: &Info) -> (Owned<D>, Owned<D>) {
    let (mut a, mut b) = (open(domain, info), open(domain, info));
    a.end.meet(&mut b.end);
    (a, b)
}

impl<D: Domain> Owned<D> {
    /// Drives the domain until `poll` gives something.
    fn until<T>(&self, mut poll: impl FnMut(&Self) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            // Sends are reported here, and nothing that is received.
            match self
                .end
                .cq
                .read(1, |sent| assert!(sent.flags.contains(Flags::SEND)))
            {
                Ok(_) | Err(Errno::EAGAIN) => {}
                Err(error) => panic!("{error:?}"),
            }
            if let Some(done) = poll(self) {
                return done;
            }
            assert!(Instant::now() < end, "nothing has come");
        }
    }

    fn send(&self, bytes: &Parked, tag: u64) {
        let sent = self.end.ep.send(
            SendKind::Tagged(tag),
            &[bytes.buf()],
            None,
            self.end.peer,
            0,
            None,
        );
        sent.unwrap();
    }

    fn arrival(&self) -> Arrival {
        self.until(|end| end.rx.next_arrival())
    }

    fn done(&self) -> Completion {
        self.until(|end| {
            let mut found = None;
            end.rx.take_done(1, |done| found = Some(done));
            found.map(|done| match done {
                Done::Ok(done) => done,
                Done::Failed(error, _) => panic!("{error:?}"),
            })
        })
    }
}

/// Short, and longer than what is read before the owner has answered.
const SIZES: [usize; 3] = [8, 50_000, 1 << 20];

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + len) as u8).collect()
}

#[test]
fn an_owner_starts_lets_wait_and_discards() {
    let provider = TcpProvider::new();
    let info = rdm(&provider);
    let fabric = provider.fabric(&info.fabric).unwrap();
    let domain = fabric.safe_domain(&info).unwrap();
    let (a, b) = pair(&domain, &info);
    let mut sent = Vec::new();
    for size in SIZES {
        for waits in [false, true] {
            let from = Parked::park(payload(size));
            let into = Parked::park(vec![0; size]);
            a.send(&from, 5);
            let arrival = b.arrival();
            assert_eq!((arrival.tag, arrival.len), (Some(5), size as u64));
            assert_eq!(arrival.src, b.end.peer);
            // Without an answer it stays the first.
            assert_eq!(b.rx.next_arrival(), Some(arrival));
            if waits {
                b.rx.let_wait(arrival.message).unwrap();
                assert_eq!(b.rx.next_arrival(), None);
                assert_eq!(b.rx.source(arrival.message), b.end.peer);
            }
            b.rx.start(arrival.message, &[into.buf()], 7).unwrap();
            let done = b.done();
            assert_eq!((done.context, done.len, done.tag), (7, size, 5));
            assert_eq!(done.src, b.end.peer);
            assert!(unpark(into) == payload(size), "{size} bytes");

            // The next one is nobody's.
            a.send(&from, 6);
            let dropped = b.arrival().message;
            if waits {
                b.rx.let_wait(dropped).unwrap();
            }
            b.rx.discard(dropped).unwrap();
            assert_eq!(b.rx.discard(dropped), Err(Errno::EINVAL));
            // What follows it in the stream comes.
            a.send(&from, 9);
            let last = b.arrival();
            assert_eq!(last.tag, Some(9));
            b.rx.discard(last.message).unwrap();
            sent.push(from);
        }
    }
    assert_eq!(b.rx.take_done(1, |done| panic!("{done:?}")), 0);
    // Nothing is read from there any more.
    drop((a, b));
    sent.into_iter().for_each(|bytes| drop(unpark(bytes)));
}

#[test]
fn a_message_of_another_owner_is_refused() {
    let provider = TcpProvider::new();
    let info = rdm(&provider);
    let fabric = provider.fabric(&info.fabric).unwrap();
    let domain = fabric.safe_domain(&info).unwrap();
    let (a, b) = pair(&domain, &info);
    let from = Parked::park(payload(8));
    let into = [(); 2].map(|()| Parked::park(vec![0; 8]));
    a.send(&from, 1);
    b.send(&from, 2);
    let (at_a, at_b) = (a.arrival(), b.arrival());
    assert_eq!((at_a.tag, at_b.tag), (Some(2), Some(1)));
    for (end, stranger, room) in [(&a, at_b, &into[0]), (&b, at_a, &into[1])] {
        let refused = Err(Errno::EINVAL);
        assert_eq!(end.rx.start(stranger.message, &[room.buf()], 9), refused);
        assert_eq!(end.rx.let_wait(stranger.message), refused);
        assert_eq!(end.rx.discard(stranger.message), refused);
        assert_eq!(end.rx.source(stranger.message), FiAddr::NOTAVAIL);
    }
    for (end, own, room) in [(&a, at_a, &into[0]), (&b, at_b, &into[1])] {
        end.rx.start(own.message, &[room.buf()], 3).unwrap();
        assert_eq!(end.done().context, 3);
    }
    assert!(into.into_iter().all(|room| unpark(room) == payload(8)));
    drop((a, b));
    drop(unpark(from));
}

#[test]
fn what_has_no_peers_is_refused() {
    let provider = TcpProvider::new();
    let with = rdm(&provider);
    let fabric = provider.fabric(&with.fabric).unwrap();
    let domain = fabric.safe_domain(&with).unwrap();
    let rx = domain.peer_rx().unwrap();
    let connected = info(&provider, EpType::Msg, Flags::MSG);
    let ep = domain.endpoint(&connected, FidToken(0)).unwrap();
    assert_eq!(ep.bind_peer_rx(&rx), Err(Errno::EINVAL));

    let without = info(&provider, EpType::Rdm, Flags::MSG);
    let plain = fabric.safe_domain(&without).unwrap();
    assert_eq!(plain.peer_rx().err(), Some(Errno::EINVAL));
    let ep = plain.endpoint(&without, FidToken(0)).unwrap();
    assert_eq!(ep.bind_peer_rx(&rx), Err(Errno::EDOMAIN));
}
