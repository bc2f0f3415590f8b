use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use ripstop_os::{Epoll, EventFd, Events, Interest};
use ripstop_types::{CmEvent, Errno, Flags, WaitObj};

use super::*;
use crate::token::FidToken;

fn open(wait_obj: WaitObj) -> EventQueue {
    EventQueue::open(&EqAttr {
        wait_obj,
        ..EqAttr::default()
    })
    .unwrap()
}

fn peek(eq: &EventQueue) -> ripstop_types::Result<Event> {
    eq.read_with(false, |event| Ok(event.clone()))
}

fn shutdown(ep: usize) -> Event {
    Event::Shutdown { ep: FidToken(ep) }
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    let set = Epoll::new().unwrap();
    set.add(fd, 0, Interest::READ).unwrap();
    set.poll(&mut Events::with_capacity(1)).unwrap() == 1
}

#[test]
fn events_come_in_order_and_peeking_leaves_them() {
    let eq = open(WaitObj::None);
    assert_eq!(eq.read(), Err(Errno::EAGAIN));
    for ep in 0..3 {
        eq.push(shutdown(ep)).unwrap();
    }
    for ep in 0..3 {
        assert_eq!(peek(&eq), Ok(shutdown(ep)));
        assert_eq!(eq.read(), Ok(shutdown(ep)));
    }
    assert_eq!(eq.read(), Err(Errno::EAGAIN));
}

#[test]
fn an_error_is_read_in_its_turn() {
    let eq = open(WaitObj::None);
    let error = EventError {
        err_data: b"no room".to_vec(),
        ..EventError::new(FidToken(7), Errno::ECONNREFUSED)
    };
    eq.push(shutdown(1)).unwrap();
    eq.push_error(error.clone()).unwrap();
    eq.push(shutdown(2)).unwrap();
    assert_eq!(eq.read_error(true), Err(Errno::EAGAIN));
    assert_eq!(eq.read(), Ok(shutdown(1)));
    assert_eq!(eq.read(), Err(Errno::EAVAIL));
    assert_eq!(peek(&eq), Err(Errno::EAVAIL));
    assert_eq!(eq.read_error(false), Ok(error.clone()));
    assert_eq!(eq.read_error(true), Ok(error));
    assert_eq!(eq.read(), Ok(shutdown(2)));
}

#[test]
fn a_reader_that_fails_leaves_the_event() {
    let eq = open(WaitObj::None);
    assert_eq!(eq.write(77, b"abc"), Ok(3));
    let too_small = eq.read_with(true, |_| Err::<(), _>(Errno::ETOOSMALL));
    assert_eq!(too_small, Err(Errno::ETOOSMALL));
    let taken = eq.read_with(true, |event| match event {
        Event::Written { event, bytes } => Ok((*event, bytes.len())),
        _ => Err(Errno::EINVAL),
    });
    assert_eq!(taken, Ok((77, 3)));
    assert!(eq.is_empty());
}

#[test]
fn events_say_what_they_are_about() {
    let request = Event::ConnReq {
        pep: FidToken(3),
        info: Box::default(),
        data: vec![1],
    };
    let done = Event::Done {
        event: CmEvent::AvComplete,
        fid: FidToken(4),
        context: 5,
        data: 6,
    };
    assert_eq!((request.code(), request.fid()), (1, Some(FidToken(3))));
    assert_eq!((done.code(), done.fid()), (5, Some(FidToken(4))));
    assert_eq!(
        Event::Written {
            event: 9,
            bytes: Vec::new()
        }
        .fid(),
        None
    );
}

#[test]
fn closing_objects_take_their_events_along() {
    let eq = open(WaitObj::Fd);
    eq.push(shutdown(1)).unwrap();
    eq.push_error(EventError::new(FidToken(1), Errno::EIO))
        .unwrap();
    eq.push(Event::ConnReq {
        pep: FidToken(2),
        info: Box::default(),
        data: Vec::new(),
    })
    .unwrap();
    eq.forget(FidToken(1));
    assert_eq!(eq.len(), 1);
    eq.forget(FidToken(2));
    assert!(eq.is_empty());
    assert!(!readable(eq.wait_fd().unwrap()));
}

#[test]
fn the_descriptor_is_readable_while_there_are_events() {
    let eq = open(WaitObj::Fd);
    let fd = eq.wait_fd().unwrap();
    assert!(!readable(fd));
    assert_eq!(eq.try_wait(), Ok(()));
    eq.push(shutdown(1)).unwrap();
    eq.push(shutdown(2)).unwrap();
    peek(&eq).unwrap();
    eq.read().unwrap();
    assert!(readable(fd));
    assert_eq!(eq.try_wait(), Err(Errno::EAGAIN));
    eq.read().unwrap();
    assert!(!readable(fd));
    assert!(open(WaitObj::Unspec).wait_fd().is_ok());
    assert_eq!(
        open(WaitObj::MutexCond).wait_fd().unwrap_err(),
        Errno::ENODATA
    );
}

#[test]
fn waiting_ends_with_an_event_or_its_time() {
    for wait in [
        WaitObj::Unspec,
        WaitObj::Fd,
        WaitObj::MutexCond,
        WaitObj::Yield,
    ] {
        let eq = Arc::new(open(wait));
        let start = Instant::now();
        let time = Duration::from_millis(30);
        assert_eq!(eq.sread(Some(time)), Err(Errno::EAGAIN));
        assert!(start.elapsed() >= time);
        let writer = Arc::clone(&eq);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            writer.push(shutdown(1)).unwrap();
        });
        assert_eq!(eq.sread(Some(Duration::from_secs(60))), Ok(shutdown(1)));
        thread.join().unwrap();
    }
    assert_eq!(open(WaitObj::None).sread(None), Err(Errno::ENOSYS));
    let eq = open(WaitObj::Unspec);
    eq.push_error(EventError::new(FidToken(1), Errno::EIO))
        .unwrap();
    assert_eq!(eq.sread(None), Err(Errno::EAVAIL));
}

#[test]
fn attributes_are_checked() {
    let flags = Flags::WRITE | Flags::AFFINITY;
    assert!(
        EventQueue::open(&EqAttr {
            flags,
            size: 1 << 16,
            ..EqAttr::default()
        })
        .is_ok()
    );
    let of = |attr: EqAttr| EventQueue::open(&attr).unwrap_err();
    assert_eq!(
        of(EqAttr {
            flags: Flags::MSG,
            ..EqAttr::default()
        }),
        Errno::EINVAL
    );
    assert_eq!(
        of(EqAttr {
            wait_obj: WaitObj::Set,
            ..EqAttr::default()
        }),
        Errno::ENOSYS
    );
    // It is a hint.
    let size = usize::MAX;
    let endless = EqAttr {
        size,
        ..EqAttr::default()
    };
    assert!(EventQueue::open(&endless).is_ok());
}

/// A source that pushes an event when its descriptor is signalled.
struct Domain {
    eq: OnceLock<Weak<EventQueue>>,
    work: Option<EventFd>,
    calls: AtomicUsize,
    pushes: AtomicBool,
}

impl Domain {
    fn new(with_descriptor: bool) -> Arc<Self> {
        Arc::new(Self {
            eq: OnceLock::new(),
            work: with_descriptor.then(|| EventFd::new().unwrap()),
            calls: AtomicUsize::new(0),
            pushes: AtomicBool::new(false),
        })
    }

    fn bind(self: &Arc<Self>, eq: &Arc<EventQueue>) {
        let _ = self.eq.set(Arc::downgrade(eq));
        let source: Arc<dyn ProgressSource> = self.clone();
        eq.add_source(&source).unwrap();
        eq.add_source(&source).unwrap();
    }

    fn give_work(&self) {
        self.pushes.store(true, Ordering::Release);
        if let Some(work) = &self.work {
            work.signal().unwrap();
        }
    }
}

impl ProgressSource for Domain {
    fn progress(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(work) = &self.work {
            work.drain().unwrap();
        }
        if self.pushes.swap(false, Ordering::AcqRel) {
            let eq = self.eq.get().and_then(Weak::upgrade).unwrap();
            eq.push(shutdown(9)).unwrap();
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.work.as_ref().map(AsFd::as_fd)
    }
}

#[test]
fn reading_makes_sources_progress() {
    let eq = Arc::new(open(WaitObj::None));
    let domain = Domain::new(true);
    domain.bind(&eq);
    assert_eq!(eq.read(), Err(Errno::EAGAIN));
    assert_eq!(domain.calls.load(Ordering::Relaxed), 1);
    domain.give_work();
    assert_eq!(eq.read(), Ok(shutdown(9)));
    drop(domain);
    assert_eq!(eq.read(), Err(Errno::EAGAIN));
}

#[test]
fn waiting_wakes_for_a_source() {
    for with_descriptor in [true, false] {
        let eq = Arc::new(open(WaitObj::Fd));
        let domain = Domain::new(with_descriptor);
        domain.bind(&eq);
        let worker = Arc::clone(&domain);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            worker.give_work();
        });
        assert_eq!(eq.sread(Some(Duration::from_secs(60))), Ok(shutdown(9)));
        thread.join().unwrap();
        if with_descriptor {
            // It slept meanwhile, instead of asking again and again.
            assert!(domain.calls.load(Ordering::Relaxed) < 10);
            domain.give_work();
            assert!(readable(eq.wait_fd().unwrap()));
        }
    }
}

#[test]
fn a_source_that_is_gone_is_forgotten() {
    let eq = Arc::new(open(WaitObj::Fd));
    let first = Domain::new(true);
    first.bind(&eq);
    first.give_work();
    drop(first);
    assert!(!readable(eq.wait_fd().unwrap()));
    let second = Domain::new(true);
    second.bind(&eq);
    eq.progress();
    assert_eq!(second.calls.load(Ordering::Relaxed), 1);
}

/// Something whose descriptor does not tell all.
#[derive(Default)]
struct Quiet {
    due: AtomicBool,
    waits: AtomicUsize,
    told: AtomicUsize,
}

impl ProgressSource for Quiet {
    fn progress(&self) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn before_wait(&self) -> bool {
        let due = self.due.swap(false, Ordering::Relaxed);
        self.waits.fetch_add(usize::from(!due), Ordering::Relaxed);
        due
    }

    fn after_wait(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_queue_does_not_wait_while_a_source_has_something_to_do() {
    let eq = open(WaitObj::Fd);
    let [first, second] = [(); 2].map(|()| Arc::new(Quiet::default()));
    for quiet in [&first, &second] {
        let source: Arc<dyn ProgressSource> = Arc::clone(quiet) as _;
        eq.add_source(&source).unwrap();
    }
    let counts = |quiet: &Quiet| {
        let count = |counter: &AtomicUsize| counter.swap(0, Ordering::Relaxed);
        (count(&quiet.waits), count(&quiet.told))
    };
    second.due.store(true, Ordering::Relaxed);
    assert_eq!(eq.try_wait(), Err(Errno::EAGAIN));
    assert_eq!((counts(&first), counts(&second)), ((1, 1), (0, 0)));
    assert_eq!(eq.try_wait(), Ok(()));
    assert_eq!((counts(&first), counts(&second)), ((1, 0), (1, 0)));
    second.due.store(true, Ordering::Relaxed);
    assert_eq!(eq.sread(Some(Duration::from_millis(5))), Err(Errno::EAGAIN));
    let (waits, told) = counts(&second);
    assert!(waits > 0 && waits == told);
    let (waits, told) = counts(&first);
    assert!(waits > 1 && waits == told);
}
