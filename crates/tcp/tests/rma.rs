//! Reads, writes and atomics between two RDM endpoints in one process, through the object model.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_core::provider::{
    AddressVector, AtomicCall, AvAttr, CompletionQueue, CqAttr, Domain, Endpoint, Fabric, MrAttr,
    Provider, RecvKind, RmaCall, SendKind, Sharing,
};
use ripstop_core::{FidToken, Info};
use ripstop_mem::{Parked, UserBuf};
use ripstop_tcp::TcpProvider;
use ripstop_types::{
    AtomicKind, AtomicOp, Datatype, EpType, Errno, FiAddr, Flags, Progress, RmaIov, Threading,
};

const KEY: u64 = 77;

fn info(provider: &TcpProvider) -> Info {
    let caps = Flags::MSG | Flags::RMA | Flags::ATOMIC | Flags::FENCE;
    let hints = common::hints(EpType::Rdm, caps, Threading::Domain, Progress::Manual);
    common::first(provider, &hints)
}

/// An endpoint that reaches itself: over the wire, like any other peer.
struct End<D: Domain> {
    domain: Arc<D>,
    ep: Arc<D::Endpoint>,
    cq: Arc<D::Cq>,
    to: FiAddr,
}

fn open<D: Domain>(domain: &Arc<D>, info: &Info) -> End<D> {
    let cq = domain.cq(&CqAttr::default()).unwrap();
    let av = domain.av(&AvAttr::default()).unwrap();
    let ep = domain.endpoint(info, FidToken(0)).unwrap();
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
    ep.bind_av(&av).unwrap();
    ep.enable().unwrap();
    let to = av.insert(&ep.name().unwrap()).unwrap();
    End {
        domain: Arc::clone(domain),
        ep,
        cq,
        to,
    }
}

impl<D: Domain> End<D> {
    fn register(&self, memory: UserBuf) -> Arc<D::Mr> {
        let attr = MrAttr {
            iov: vec![memory],
            access: Flags::REMOTE_READ | Flags::REMOTE_WRITE,
            offset: 0,
            requested_key: KEY,
            flags: Flags::empty(),
            shared: Sharing::Never,
        };
        self.domain.mr(&attr).unwrap()
    }

    fn call<'a>(&self, remote: &'a [RmaIov], context: usize, flags: Flags) -> RmaCall<'a> {
        RmaCall {
            remote,
            peer: self.to,
            data: None,
            context,
            flags: Some(flags),
        }
    }

    /// The context of the next completion, or its error.
    fn next(&self) -> Result<usize, (usize, Errno)> {
        let end = Instant::now() + Duration::from_secs(60);
        let mut context = 0;
        loop {
            match self.cq.read(1, |entry| context = entry.context) {
                Ok(_) => return Ok(context),
                Err(Errno::EAVAIL) => {
                    let mut found = (0, Errno::EOTHER);
                    let note = |entry: &ripstop_types::CompletionError, _: &[u8]| {
                        found = (entry.entry.context, entry.err);
                    };
                    self.cq.read_error(note).unwrap();
                    return Err(found);
                }
                Err(Errno::EAGAIN) => assert!(Instant::now() < end, "nothing completes"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn at(addr: u64, len: u64) -> RmaIov {
    RmaIov {
        addr,
        len,
        key: KEY,
    }
}

fn with_end(test: impl FnOnce(&dyn Fn() -> Parked, Run)) {
    let provider = TcpProvider::new();
    let info = info(&provider);
    let fabric = provider.fabric(&info.fabric).unwrap();
    let domain = fabric.serial_domain(&info).unwrap();
    let end = open(&domain, &info);
    test(&|| Parked::park(vec![0; 100_000]), end);
}

type Run = End<<ripstop_tcp::Fabric as Fabric>::SerialDomain>;

#[test]
fn written_and_read_back() {
    with_end(|memory, end| {
        let target = memory();
        let mr = end.register(target.buf());
        let bytes: Vec<u8> = (0..90_000u32).map(|i| (i * 7) as u8).collect();
        let source = Parked::park(bytes.clone());
        let result = Parked::park(vec![0; 90_000]);
        for flags in [
            Flags::empty(),
            Flags::DELIVERY_COMPLETE,
            Flags::COMMIT_COMPLETE,
        ] {
            let remote = [at(1, 45_000), at(45_001, 45_000)];
            let call = end.call(&remote, 1, flags);
            end.ep.write(&[source.buf()], &call).unwrap();
            let call = end.call(&remote, 2, Flags::empty());
            end.ep.read(&[result.buf()], &call).unwrap();
            let mut done = [end.next().unwrap(), end.next().unwrap()];
            done.sort_unstable();
            assert_eq!(done, [1, 2]);
        }
        drop(mr);
        assert_eq!(result.unpark(), bytes);
        assert_eq!(target.unpark()[1..90_001], bytes);
        drop(source.unpark());
    });
}

#[test]
fn sums_are_fetched_in_order_and_fences_hold() {
    with_end(|memory, end| {
        let target = memory();
        let mr = end.register(target.buf());
        let one = Parked::park(1u64.to_ne_bytes().to_vec());
        let results: Vec<Parked> = (0..10).map(|_| Parked::park(vec![0; 8])).collect();
        for (context, result) in results.iter().enumerate() {
            let call = AtomicCall {
                kind: AtomicKind::Fetch,
                datatype: Datatype::Uint64,
                op: AtomicOp::Sum,
                compare: &[],
                result: &[result.buf()],
                remote: &[at(8, 8)],
                peer: end.to,
                data: None,
                context,
                flags: Some(Flags::empty()),
            };
            end.ep.atomic(&[one.buf()], &call).unwrap();
        }
        // Overwrites the sum, and may not before it was fetched the last time.
        let remote = [at(8, 8)];
        let call = end.call(&remote, 10, Flags::FENCE | Flags::DELIVERY_COMPLETE);
        end.ep.write(&[one.buf()], &call).unwrap();
        for context in 0..=10 {
            assert_eq!(end.next(), Ok(context));
        }
        drop(mr);
        for (sum, result) in results.into_iter().enumerate() {
            assert_eq!(result.unpark(), sum.to_ne_bytes());
        }
        assert_eq!(target.unpark()[8..16], 1u64.to_ne_bytes());
        drop(one.unpark());
    });
}

#[test]
fn a_fenced_message_waits_for_what_is_read() {
    with_end(|memory, end| {
        let (target, result, inbox) = (memory(), memory(), memory());
        let mr = end.register(target.buf());
        let (kind, any) = (RecvKind::Msg, FiAddr::UNSPEC);
        end.ep.recv(kind, &[inbox.buf()], any, 3, None).unwrap();
        let remote = [at(0, 100_000)];
        let call = end.call(&remote, 1, Flags::empty());
        end.ep.read(&[result.buf()], &call).unwrap();
        let word = Parked::park(vec![7; 8]);
        let (kind, flags) = (SendKind::Msg, Some(Flags::FENCE));
        end.ep
            .send(kind, &[word.buf()], None, end.to, 2, flags)
            .unwrap();
        assert_eq!(end.next(), Ok(1));
        let mut rest = [end.next().unwrap(), end.next().unwrap()];
        rest.sort_unstable();
        assert_eq!(rest, [2, 3]);
        drop(mr);
        for parked in [target, result, inbox, word] {
            drop(parked.unpark());
        }
    });
}

#[test]
fn what_is_denied_is_an_error_and_nothing_else() {
    with_end(|memory, end| {
        let target = memory();
        let mr = end.register(target.buf());
        let some = Parked::park(vec![1; 64]);
        let outside = [at(100_000 - 63, 64)];
        let call = end.call(&outside, 1, Flags::DELIVERY_COMPLETE);
        end.ep.write(&[some.buf()], &call).unwrap();
        assert_eq!(end.next(), Err((1, Errno::EFAULT)));
        drop(mr);
        let closed = [at(0, 64)];
        let call = end.call(&closed, 2, Flags::DELIVERY_COMPLETE);
        end.ep.write(&[some.buf()], &call).unwrap();
        assert_eq!(end.next(), Err((2, Errno::EKEYREJECTED)));
        let call = end.call(&closed, 3, Flags::empty());
        end.ep.read(&[some.buf()], &call).unwrap();
        assert_eq!(end.next(), Err((3, Errno::EKEYREJECTED)));
        let mr = end.register(target.buf());
        let call = end.call(&closed, 4, Flags::DELIVERY_COMPLETE);
        end.ep.write(&[some.buf()], &call).unwrap();
        assert_eq!(end.next(), Ok(4));
        drop(mr);
        let memory = target.unpark();
        assert_eq!(memory.iter().filter(|byte| **byte != 0).count(), 64);
        drop(some.unpark());
    });
}
