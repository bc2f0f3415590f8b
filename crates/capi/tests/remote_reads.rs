//! C programs that read a peer's memory over an RDMA device, the one of `bench/device`, which holds requests back if asked.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{c_int, c_ulong, c_void};
use core::ptr;

use c::device::{HOLD_ALL, Registrations, Requests, is_program, run};
use c::side::{Memory, REMOTE, Region, Side};
use c::*;
use libloading::os::unix::{Library, RTLD_LAZY};
use ripstop_abi::*;

/// `dlopen(3)`: only what is loaded.
const RTLD_NOLOAD: c_int = 4;

const AGAIN: isize = -FI_EAGAIN as isize;

/// Runs the body in a process of its own that has the device.
macro_rules! program {
    ($name:ident, [$($variable:expr),*], $body:expr) => {
        #[test]
        fn $name() {
            match is_program() {
                true => $body(),
                false => drop(run(stringify!($name), &[$($variable),*])),
            }
        }
    };
}

/// The device.
struct Device {
    requests: *mut Requests,
    registrations: *const Registrations,
    /// Carries out what is held back.
    let_go: unsafe extern "C" fn(),
}

impl Device {
    fn open() -> Self {
        let library = unsafe { Library::open(Some("libibverbs.so.1"), RTLD_LAZY | RTLD_NOLOAD) };
        let library = library.expect("the device");
        unsafe {
            Self {
                requests: *library.get(b"requests").unwrap(),
                registrations: *library.get(b"registrations").unwrap(),
                let_go: *library.get(b"requests_let_go").unwrap(),
            }
        }
    }

    fn hold(&self) {
        unsafe { (*self.requests).hold = HOLD_ALL };
    }

    /// Reads that were posted.
    fn reads(&self) -> c_ulong {
        unsafe { ptr::read_volatile(self.requests) }.reads
    }

    /// Registrations that were made.
    fn made(&self) -> c_ulong {
        unsafe { ptr::read_volatile(self.registrations) }.made
    }

    /// Those that have ended.
    fn ended(&self) -> c_ulong {
        unsafe { ptr::read_volatile(self.registrations) }.ended
    }

    fn let_go(&self) {
        unsafe { (self.let_go)() };
    }
}

fn side() -> Side {
    let hints = Info::hints();
    hints.ep().type_ = FI_EP_RDM;
    hints.get().caps = FI_MSG | FI_RMA;
    hints.domain().mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints.domain().threading = FI_THREAD_DOMAIN;
    hints.domain().data_progress = FI_PROGRESS_MANUAL;
    hints.domain().control_progress = FI_PROGRESS_MANUAL;
    hints.fabric().prov_name = dup(c"verbs;ofi_rxm");
    Side::of(getinfo(NOW, None, None, 0, Some(&hints)).unwrap())
}

/// A peer whose memory is read.
struct Peer {
    side: Side,
    memory: Memory,
    region: Region,
    addr: fi_addr_t,
}

/// Who reads, and the peers.
struct Program {
    device: Device,
    side: Side,
    memory: Memory,
    /// Of all of that memory, unless it was closed.
    region: Region,
    peers: Vec<Peer>,
}

impl Program {
    fn open(peers: usize) -> Self {
        let side = side();
        let memory = Memory::anonymous();
        let region = side.register(&memory, FI_READ | FI_WRITE, 1);
        let peers = (0..peers).map(|_| Peer::of(&side)).collect();
        let program = Self {
            device: Device::open(),
            side,
            memory,
            region,
            peers,
        };
        for peer in 0..program.peers.len() {
            program.connect(peer);
        }
        program
    }

    /// Reads once, which connects.
    fn connect(&self, peer: usize) {
        until("room to post", || match self.read(peer, 0, 8, 77) {
            0 => Some(()),
            code => {
                assert_eq!(code, AGAIN);
                self.progress();
                None
            }
        });
        assert_eq!(self.ended(), Ok(77));
    }

    fn progress(&self) {
        assert_eq!(self.side.poll(), None);
        for peer in &self.peers {
            assert_eq!(peer.side.poll(), None);
        }
    }

    /// The next completion.
    fn ended(&self) -> Result<usize, c_int> {
        until("a completion", || {
            for peer in &self.peers {
                peer.side.poll();
            }
            self.side.poll()
        })
    }

    fn read(&self, peer: usize, at: usize, len: usize, context: usize) -> isize {
        self.read_by(peer, self.peers[peer].region.key, at, len, context)
    }

    /// Reads the peer's memory with a key, to the same place.
    fn read_by(&self, peer: usize, key: u64, at: usize, len: usize, context: usize) -> isize {
        let (to, none) = (unsafe { self.memory.start.add(at) }, ptr::null_mut());
        let (peer, ep) = (&self.peers[peer], self.side.ep);
        let (from, context) = (
            peer.region.base + at as u64,
            ptr::without_provenance_mut(context),
        );
        op!(
            ep,
            rma.read(to.cast(), len, none, peer.addr, from, key, context)
        )
    }

    fn read_with(&self, peer: usize, at: usize, len: usize, context: usize, flags: u64) -> isize {
        let iov = iovec {
            iov_base: unsafe { self.memory.start.add(at) }.cast(),
            iov_len: len,
        };
        let peer = &self.peers[peer];
        let place = fi_rma_iov {
            addr: peer.region.base + at as u64,
            len,
            key: peer.region.key,
        };
        let msg = fi_msg_rma {
            msg_iov: &iov,
            iov_count: 1,
            addr: peer.addr,
            rma_iov: &place,
            rma_iov_count: 1,
            context: ptr::without_provenance_mut(context),
            ..Default::default()
        };
        let ep = self.side.ep;
        op!(ep, rma.readmsg(&msg, flags))
    }

    fn write(&self, peer: usize, at: usize, len: usize, context: usize) -> isize {
        let (from, none) = (unsafe { self.memory.start.add(at) }, ptr::null_mut());
        let (peer, ep) = (&self.peers[peer], self.side.ep);
        let (to, context) = (
            peer.region.base + at as u64,
            ptr::without_provenance_mut(context),
        );
        let from = from.cast_const().cast::<c_void>();
        op!(
            ep,
            rma.write(from, len, none, peer.addr, to, peer.region.key, context)
        )
    }

    /// Whether so many bytes are those of the peer.
    fn same(&self, peer: usize, at: usize, len: usize) -> bool {
        self.memory.bytes(at, len) == self.peers[peer].memory.bytes(at, len)
    }
}

impl Peer {
    fn of(reader: &Side) -> Self {
        let side = side();
        let memory = Memory::anonymous();
        for at in 0..memory.len {
            unsafe { memory.start.add(at).write((at % 251) as u8 + 1) };
        }
        Self {
            region: side.register(&memory, REMOTE, 2),
            addr: insert(reader.av, &name(unsafe { (*side.ep).cm }, side.ep.cast())),
            side,
            memory,
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        assert_eq!(close(self.region.mr), 0);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.region.mr.is_null() {
            assert_eq!(close(self.region.mr), 0);
        }
    }
}

program!(a_read_is_given_to_the_device_by_its_call, [], || {
    let program = Program::open(1);
    let device = &program.device;
    let made = device.made();
    for (number, len) in [1, 8, 4096, 300_000, 1 << 20].into_iter().enumerate() {
        program.memory.clear();
        device.hold();
        let before = device.reads();
        assert_eq!(program.read(0, 0, len, number), 0);
        assert_eq!(device.reads(), before + 1, "{len}");
        program.progress();
        assert!(!program.same(0, 0, 1));
        device.let_go();
        assert_eq!(program.ended(), Ok(number));
        assert!(program.same(0, 0, len), "{len}");
    }
    // Whatever is asked of completions: a read is done when all of it is there.
    for level in [
        0,
        FI_INJECT_COMPLETE,
        FI_TRANSMIT_COMPLETE,
        FI_DELIVERY_COMPLETE,
    ] {
        program.memory.clear();
        device.hold();
        let before = device.reads();
        assert_eq!(program.read_with(0, 8, 8, 5, FI_COMPLETION | level), 0);
        assert_eq!(device.reads(), before + 1, "{level:#x}");
        program.progress();
        device.let_go();
        assert_eq!(program.ended(), Ok(5));
        assert!(program.same(0, 8, 8), "{level:#x}");
    }
    // Several, also behind each other.
    device.hold();
    let before = device.reads();
    for context in 10..30 {
        assert_eq!(program.read(0, 8 * context, 8, context), 0);
    }
    assert_eq!(device.reads(), before + 20);
    device.let_go();
    for context in 10..30 {
        assert_eq!(program.ended(), Ok(context));
    }
    assert!(program.same(0, 80, 160));
    assert_eq!(device.made(), made, "the program has registered the memory");
    // Of nothing, and to memory that is in no region.
    assert_eq!(program.read(0, 0, 0, 6), 0);
    assert_eq!(program.ended(), Ok(6));
    let other = Memory::anonymous();
    let (ep, none) = (program.side.ep, ptr::null_mut());
    let Peer { addr, region, .. } = program.peers[0];
    let (to, base, key) = (other.start.cast::<c_void>(), region.base, region.key);
    let context = ptr::without_provenance_mut(7);
    let posted = op!(ep, rma.read(to, 100, none, addr, base, key, context));
    assert_eq!(posted, 0);
    assert_eq!(program.ended(), Ok(7));
    assert_eq!(other.bytes(0, 100), program.peers[0].memory.bytes(0, 100));
});

program!(
    a_read_stays_behind_what_was_posted_before_it,
    [("FI_OFI_RXM_MSG_TX_SIZE", "16")],
    || {
        let program = Program::open(1);
        let (device, peer) = (&program.device, &program.peers[0]);
        // What is written first is read.
        unsafe { program.memory.start.write_bytes(0xaa, 8) };
        device.hold();
        assert_eq!(program.write(0, 0, 8, 1), 0);
        unsafe { program.memory.start.write_bytes(0xbb, 8) };
        let before = device.reads();
        assert_eq!(program.read(0, 0, 8, 2), 0);
        assert_eq!(device.reads(), before + 1);
        device.let_go();
        // A write of a copy is done when the copy is made.
        assert_eq!([program.ended(), program.ended()], [Ok(1), Ok(2)]);
        assert_eq!(program.memory.bytes(0, 8), [0xaa; 8]);

        // A write of many pieces, for which there are not enough buffers: the rest of it is not with the device yet.
        let from = Memory::anonymous();
        unsafe { from.start.write_bytes(0xcc, from.len) };
        let (ep, none) = (program.side.ep, ptr::null_mut::<c_void>());
        let source = from.start.cast_const().cast::<c_void>();
        let Region { base, key, .. } = peer.region;
        let context = ptr::without_provenance_mut(3);
        device.hold();
        let posted = op!(
            ep,
            rma.write(source, from.len, none, peer.addr, base, key, context)
        );
        assert_eq!(posted, 0);
        let before = device.reads();
        let end = from.len - 8;
        assert_eq!(program.read(0, end, 8, 4), 0);
        program.progress();
        assert_eq!(device.reads(), before, "it would overtake the write");
        device.let_go();
        assert_eq!([program.ended(), program.ended()], [Ok(3), Ok(4)]);
        assert_eq!(device.reads(), before + 1);
        assert_eq!(program.memory.bytes(end, 8), [0xcc; 8]);
    }
);

program!(a_fence_waits_for_the_reads_before_it, [], || {
    let program = Program::open(1);
    let device = &program.device;
    device.hold();
    let before = device.reads();
    assert_eq!(program.read(0, 0, 8, 1), 0);
    assert_eq!(program.read_with(0, 8, 8, 2, FI_COMPLETION | FI_FENCE), 0);
    // Behind one that is fenced.
    assert_eq!(program.read(0, 16, 8, 3), 0);
    program.progress();
    assert_eq!(device.reads(), before + 1);
    device.let_go();
    for context in 1..=3 {
        assert_eq!(program.ended(), Ok(context));
    }
    assert_eq!(device.reads(), before + 3);
    assert!(program.same(0, 0, 24));
});

program!(
    a_full_queue_takes_reads_as_others_end,
    [("FI_OFI_RXM_MSG_TX_SIZE", "8")],
    || {
        let program = Program::open(1);
        let device = &program.device;
        for round in 1..=3 {
            program.memory.clear();
            device.hold();
            let before = device.reads();
            let mut posted = 0;
            while program.read(0, 8 * posted, 8, posted) == 0 {
                posted += 1;
                assert!(posted < 100_000);
            }
            assert_eq!(device.reads(), before + 8, "all that the queue takes");
            assert!(posted > 8, "{posted}");
            assert_eq!(program.read(0, 0, 8, posted), AGAIN);
            device.let_go();
            for context in 0..posted {
                assert_eq!(program.ended(), Ok(context), "{round}");
            }
            assert!(program.same(0, 0, 8 * posted));
            program.progress();
        }
    }
);

program!(a_wrong_key_fails_the_reads_of_its_peer_alone, [], || {
    let program = Program::open(2);
    let (device, wrong) = (&program.device, 0xabc);
    device.hold();
    let before = device.reads();
    assert_eq!(program.read(0, 0, 8, 1), 0);
    assert_eq!(program.read_by(0, wrong, 8, 8, 2), 0);
    assert_eq!(program.read(0, 16, 8, 3), 0);
    assert_eq!(program.read(1, 24, 8, 4), 0);
    assert_eq!(device.reads(), before + 4);
    device.let_go();
    let mut error = fi_cq_err_entry::default();
    let mut ended = Vec::new();
    until("completions", || {
        let mut entry = fi_cq_entry::default();
        let cq = program.side.cq;
        match op!(cq, ops.read(ptr::from_mut(&mut entry).cast(), 1)) {
            1 => ended.push((entry.op_context.addr(), 0)),
            AGAIN => {}
            _ => {
                let mut name = [0_u8; 64];
                error.err_data = name.as_mut_ptr().cast();
                error.err_data_size = name.len();
                assert_eq!(op!(cq, ops.readerr(&mut error, 0)), 1);
                let peer = &program.peers[0].side;
                let expected = c::name(unsafe { (*peer.ep).cm }, peer.ep.cast());
                assert_eq!(&name[..error.err_data_size], expected);
                ended.push((error.op_context.addr(), error.err));
            }
        }
        (ended.len() == 4).then_some(())
    });
    ended.sort_unstable();
    let error = ended[1].1;
    assert!(error > 0, "{ended:?}");
    // What was read before it is there.
    assert_eq!(ended, [(1, 0), (2, error), (3, error), (4, 0)]);
    assert!(program.same(0, 0, 8) && program.same(1, 24, 8));
    // Both can be read again.
    for peer in [1, 0] {
        program.connect(peer);
    }
    // A key that no device has is refused by its call.
    assert_eq!(program.read_by(0, 1 << 32, 0, 8, 5), -FI_EINVAL as isize);
});

program!(
    a_region_that_is_closed_stays_until_its_reads_end,
    [],
    || {
        let mut program = Program::open(1);
        program.device.hold();
        let before = program.device.ended();
        assert_eq!(program.read(0, 0, 8, 1), 0);
        let region = core::mem::replace(&mut program.region.mr, ptr::null_mut());
        assert_eq!(close(region), 0);
        program.progress();
        assert_eq!(program.device.ended(), before, "the device writes to it");
        program.device.let_go();
        assert_eq!(program.ended(), Ok(1));
        assert_eq!(program.device.ended(), before + 1);
        assert!(program.same(0, 0, 8));
        // It is found no more: what is read there next is registered for that.
        assert_eq!(program.read(0, 8, 8, 2), 0);
        assert_eq!(program.ended(), Ok(2));
        assert_eq!(program.device.ended(), before + 2);
    }
);

program!(an_endpoint_closes_with_reads_under_way, [], || {
    let mut program = Program::open(2);
    program.device.hold();
    for context in 0..20 {
        assert_eq!(program.read(context % 2, 8 * context, 8, context), 0);
    }
    // Reads cannot be cancelled.
    let ep = program.side.ep;
    let cancel = unsafe { (*(*ep).ops).cancel.unwrap() };
    let cancelled = unsafe { cancel(ep.cast(), ptr::without_provenance_mut(0)) };
    assert_eq!(cancelled, 0);
    // A peer that closes fails those that are for it.
    drop(program.peers.remove(0));
    let device = &program.device;
    let failed = (0..10).map(|_| program.ended()).filter(Result::is_err);
    assert_eq!(failed.count(), 10);
    // Those for another are under way.
    program.progress();
    device.let_go();
    for _ in 0..10 {
        assert!(program.ended().is_ok());
    }
    // So are these when this side closes, which waits for them a while.
    device.hold();
    for context in 0..10 {
        assert_eq!(program.read(0, 8 * context, 8, context), 0);
    }
});
