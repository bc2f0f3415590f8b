//! A C program that sends long messages over an RDMA device, the one of `bench/device`, which counts registrations of memory.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{c_int, c_ulong, c_void};
use core::ops::Range;
use core::ptr;

use c::device::{Registrations, is_program, run};
use c::*;
use libloading::os::unix::{Library, RTLD_LAZY};
use ripstop_abi::*;
use ripstop_os::{Given, MemoryWatch, Observer, has_guard_pages};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// `dlopen(3)`: only what is loaded.
const RTLD_NOLOAD: c_int = 4;

/// Long enough to be read by its receiver.
const LEN: usize = 1 << 20;

/// With it registrations are kept.
const WATCHED: (&str, &str) = ("FI_MR_CACHE_MONITOR", "userfaultfd");

/// Whether memory can be watched here.
fn can_watch() -> bool {
    #[derive(Debug)]
    struct Nobody;
    impl Observer for Nobody {
        fn gone(&mut self, _: Range<usize>, _: Given) {}
    }
    let started = MemoryWatch::start("try", Nobody);
    if let Err(error) = &started {
        println!("SKIP: no userfaultfd that tells of private memory: {error}");
    }
    started.is_ok()
}

/// Private memory.
fn memory() -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    unsafe { mmap_anonymous(ptr::null_mut(), LEN, rights, MapFlags::PRIVATE) }
        .expect("memory")
        .cast()
}

struct Program {
    pair: Pair,
    counts: *mut Registrations,
    sent: u8,
}

impl Program {
    fn open() -> Self {
        let mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        let pair = Pair::over(c"verbs;ofi_rxm", mr_mode);
        let library = unsafe { Library::open(Some("libibverbs.so.1"), RTLD_LAZY | RTLD_NOLOAD) };
        let library = library.expect("the device");
        let counts = unsafe { library.get::<*mut Registrations>(b"registrations") };
        let counts = *counts.expect("its symbol");
        let mut program = Self {
            pair,
            counts,
            sent: 0,
        };
        // Connects, which registers buffers.
        let (from, to) = (memory(), memory());
        program.send(from, to);
        unmap(from);
        unmap(to);
        program
    }

    fn counts(&self) -> Registrations {
        unsafe { ptr::read(self.counts) }
    }

    /// Sends a message of other bytes than the last one; returns how many registrations that has made.
    fn send(&mut self, from: *mut u8, to: *mut u8) -> c_ulong {
        let before = self.counts().made;
        self.sent += 1;
        unsafe { from.write_bytes(self.sent, LEN) };
        let [a, b] = self.pair.eps;
        let none = ptr::null_mut();
        let cq = self.pair.cq;
        let from = from.cast_const().cast::<c_void>();
        post(cq, || {
            op!(b, msg.recv(to.cast(), LEN, none, FI_ADDR_UNSPEC, none))
        });
        post(cq, || {
            op!(a, msg.send(from, LEN, none, self.pair.addrs[1], none))
        });
        for _ in 0..2 {
            completion::<fi_cq_entry>(cq);
        }
        let got = unsafe { core::slice::from_raw_parts(to, LEN) };
        assert!(got.iter().all(|&byte| byte == self.sent));
        self.counts().made - before
    }
}

fn unmap(memory: *mut u8) {
    unsafe { munmap(memory.cast(), LEN) }.expect("it was mapped");
}

#[test]
fn a_buffer_that_is_used_again_stays_registered() {
    const NAME: &str = "a_buffer_that_is_used_again_stays_registered";
    if !is_program() {
        let by_default = (!has_guard_pages()).then_some(&[][..]);
        for variables in by_default.into_iter().chain([&[WATCHED][..]]) {
            let Some(said) = run(NAME, variables).filter(|_| can_watch()) else {
                return;
            };
            for line in ["watched by userfaultfd", "registrations for transfers"] {
                assert!(said.contains(line), "{said}");
            }
        }
        return;
    }
    if !can_watch() {
        return;
    }
    let mut program = Program::open();
    let (from, to) = (memory(), memory());
    assert_eq!(program.send(from, to), 2);
    for _ in 0..20 {
        assert_eq!(program.send(from, to), 0);
    }
    // By turns: once more for both ways, and never again.
    assert_eq!(program.send(to, from), 2);
    for _ in 0..5 {
        assert_eq!(program.send(from, to), 0);
        assert_eq!(program.send(to, from), 0);
    }

    // Other memory at the same address.
    unmap(from);
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let fixed = MapFlags::PRIVATE | MapFlags::FIXED;
    unsafe { mmap_anonymous(from.cast(), LEN, rights, fixed) }.expect("memory");
    assert_eq!(program.send(from, to), 1);
    assert_eq!(program.send(from, to), 0);
    // Other pages at the same address, of a part.
    unsafe { madvise(to.add(LEN / 2).cast(), 4096, Advice::LinuxDontNeed) }.expect("advice");
    assert_eq!(program.send(from, to), 1);
    assert_eq!(program.send(from, to), 0);
    // In place of it.
    unsafe { mmap_anonymous(to.cast(), LEN, rights, fixed) }.expect("memory");
    assert_eq!(program.send(from, to), 1);
    // Memory that other mappings have, too, may change without anybody being told.
    let shared = MapFlags::SHARED | MapFlags::FIXED;
    unsafe { mmap_anonymous(from.cast(), LEN, rights, shared) }.expect("memory");
    for _ in 0..3 {
        assert_eq!(program.send(from, to), 1);
    }
    // Nothing is left of what ended.
    let Registrations { made, ended, .. } = program.counts();
    unmap(from);
    unmap(to);
    let (from, to) = (memory(), memory());
    program.send(from, to);
    assert_eq!(program.counts().ended, ended + 1);
    assert_eq!(program.counts().made, made + 2);
}

#[test]
fn no_more_is_kept_than_asked() {
    const NAME: &str = "no_more_is_kept_than_asked";
    if !is_program() {
        for variable in [
            ("FI_MR_CACHE_MAX_COUNT", "4"),
            ("FI_MR_CACHE_MAX_SIZE", "4194304"),
        ] {
            run(NAME, &[WATCHED, variable]);
        }
        return;
    }
    if !can_watch() {
        return;
    }
    let mut program = Program::open();
    let all: Vec<_> = (0..8).map(|_| memory()).collect();
    let Registrations { made, ended, .. } = program.counts();
    let kept_before = made - ended;
    for _ in 0..3 {
        for &[from, to] in all.as_chunks().0 {
            // What was used longest ago has ended.
            assert_eq!(program.send(from, to), 2);
            let Registrations { made, ended, .. } = program.counts();
            assert!(made - ended <= kept_before + 4, "{made} {ended}");
        }
    }
    // The newest are there.
    let (from, to) = (all[6], all[7]);
    assert_eq!(program.send(from, to), 0);

    // A refusal for want of memory ends what is not used.
    let before = program.counts().ended;
    unsafe { (*program.counts).refuse = 1 };
    assert_eq!(program.send(all[0], to), 2);
    assert_eq!(program.counts().ended, before + 4);
    assert_eq!(program.send(all[0], to), 0);
}

#[test]
fn nothing_is_kept_where_that_is_asked() {
    const NAME: &str = "nothing_is_kept_where_that_is_asked";
    if !is_program() {
        let none = ("FI_MR_CACHE_MAX_COUNT", "0");
        let disabled = ("FI_MR_CACHE_MONITOR", "disabled");
        for variables in [&[disabled][..], &[WATCHED, none]] {
            run(NAME, variables);
        }
        // By default where the kernel has a way to give pages back that is not told.
        if has_guard_pages()
            && let Some(said) = run(NAME, &[])
        {
            assert!(said.contains("guard pages"), "{said}");
        }
        return;
    }
    let mut program = Program::open();
    let (from, to) = (memory(), memory());
    for _ in 0..5 {
        assert_eq!(program.send(from, to), 2);
        let Registrations { made, ended, .. } = program.counts();
        assert_eq!(program.send(from, to), 2);
        assert_eq!(
            program.counts(),
            Registrations {
                made: made + 2,
                ended: ended + 2,
                refuse: 0
            }
        );
    }
}

#[test]
fn an_injected_message_is_registered_until_the_peer_has_it() {
    const NAME: &str = "an_injected_message_is_registered_until_the_peer_has_it";
    if !is_program() {
        run(NAME, &[]);
        return;
    }
    let program = Program::open();
    let Pair {
        info,
        domain,
        av,
        cq,
        eps: [_, to],
        addrs: [_, addr],
        ..
    } = &program.pair;
    info.tx().op_flags = FI_DELIVERY_COMPLETE;
    let (ep, counter) = (bound(*domain, info, *av, *cq), cntr(*domain));
    assert_eq!(bind(ep, counter, FI_SEND), 0);
    assert_eq!(enable(ep), 0);
    let count = || op!(counter, ops.read());
    let inject = |byte: u8| {
        let mut bytes = [byte; 64];
        let code = op!(ep, msg.inject(bytes.as_ptr().cast(), bytes.len(), *addr));
        bytes.fill(0);
        code
    };
    let receive = |byte: u8| {
        let (mut bytes, none) = ([0_u8; 64], ptr::null_mut());
        let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len());
        post(*cq, || {
            op!(*to, msg.recv(start, len, none, FI_ADDR_UNSPEC, none))
        });
        completion::<fi_cq_entry>(*cq);
        assert_eq!(bytes, [byte; 64]);
    };
    let counted = |so_far: u64| {
        until("its count", || {
            assert_eq!(op!(*cq, ops.read(ptr::null_mut(), 0)), -FI_EAGAIN as isize);
            (count() == so_far).then_some(())
        });
    };
    // Connects.
    post(*cq, || inject(1));
    receive(1);
    counted(1);

    let before = program.counts();
    assert_eq!(inject(2), 0);
    let Registrations { made, ended, .. } = program.counts();
    assert_eq!((made, ended), (before.made + 1, before.ended));
    assert_eq!(count(), 1);
    receive(2);
    counted(2);
    let Registrations { made, ended, .. } = program.counts();
    // One was of the receive.
    assert_eq!((made, ended), (before.made + 2, before.ended + 2));

    unsafe { (*program.counts).refuse = 1 };
    assert_eq!(inject(3), 0);
    let mut error = fi_cq_err_entry::default();
    assert_eq!(op!(*cq, ops.readerr(&mut error, 0)), 1);
    assert_eq!(error.err, FI_ENOMEM);
    // The next connects again.
    post(*cq, || inject(4));
    receive(4);
    counted(3);
    close_all!(ep, counter);
}

#[test]
fn other_monitors_are_said_to_be_not_offered() {
    const NAME: &str = "other_monitors_are_said_to_be_not_offered";
    if !is_program() {
        let said = run(NAME, &[("FI_MR_CACHE_MONITOR", "memhooks")]);
        let line = "FI_MR_CACHE_MONITOR=memhooks is not offered";
        assert!(
            said.as_ref().is_none_or(|said| said.contains(line)),
            "{said:?}"
        );
        return;
    }
    drop(Program::open());
}
