//! A C program with connected endpoints.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use c::*;
use ripstop_abi::*;

const NONE: *mut c_void = ptr::null_mut();

/// Room for a connection event with data.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct CmEntry {
    fid: *mut fid,
    info: *mut fi_info,
    data: [u8; 64],
}

impl Default for CmEntry {
    fn default() -> Self {
        Self {
            fid: ptr::null_mut(),
            info: ptr::null_mut(),
            data: [0; 64],
        }
    }
}

/// Waits for an event.
fn event(eq: *mut fid_eq, flags: u64) -> (u32, CmEntry, usize) {
    let mut entry = CmEntry::default();
    let mut event = 99;
    let buf = ptr::from_mut(&mut entry).cast::<c_void>();
    let size = size_of::<CmEntry>();
    let read = op!(eq, ops.sread(&mut event, buf, size, 60_000, flags));
    assert!(read > 0, "event: {read}");
    (event, entry, read.unsigned_abs())
}

struct Side {
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    eq: *mut fid_eq,
    cq: *mut fid_cq,
}

impl Side {
    fn new(info: &Info) -> Self {
        let fabric = fabric(info);
        let domain = domain(fabric, info);
        Self {
            fabric,
            domain,
            eq: eq(fabric, FI_WAIT_UNSPEC),
            cq: cq(domain, FI_CQ_FORMAT_MSG, FI_WAIT_NONE),
        }
    }

    fn endpoint(&self, info: &Info) -> *mut fid_ep {
        let ep = endpoint(self.domain, info);
        assert_eq!(bind(ep, self.eq, 0), 0);
        assert_eq!(bind(ep, self.cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(enable(ep), 0);
        ep
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        for fid in [
            self.cq.cast::<fid>(),
            self.eq.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ] {
            assert_eq!(close(fid), 0);
        }
    }
}

fn listen(server: &Side, info: &Info) -> (*mut fid_pep, Vec<u8>) {
    let mut pep = ptr::null_mut();
    assert_eq!(
        op!(server.fabric, ops.passive_ep(info.0, &mut pep, NONE)),
        0
    );
    assert_eq!(op!(pep, cm.listen()), -FI_ENOEQ);
    assert_eq!(bind(pep, server.eq, 0), 0);
    let mut backlog: c_int = 7;
    assert_eq!(control(pep, FI_BACKLOG, &mut backlog), 0);
    assert_eq!(op!(pep, cm.listen()), 0);
    let addr = name(unsafe { (*pep).cm }, pep.cast());
    (pep, addr)
}

fn connect(ep: *mut fid_ep, addr: &[u8], data: &[u8]) -> c_int {
    let (to, param) = (
        addr.as_ptr().cast::<c_void>(),
        data.as_ptr().cast::<c_void>(),
    );
    op!(ep, cm.connect(to, param, data.len()))
}

#[test]
fn connect_accept_send_and_shut_down() {
    let info = loopback(FI_EP_MSG, |_| ());
    let (server, client) = (Side::new(&info), Side::new(&info));
    let (pep, addr) = listen(&server, &info);
    let active = client.endpoint(&info);
    assert_eq!(connect(active, &addr, b"hello"), 0);

    // Looking at the request does not use it up, and reading hands out the same info.
    let (code, peeked, _) = event(server.eq, FI_PEEK);
    assert_eq!(code, FI_CONNREQ);
    let (code, request, size) = event(server.eq, 0);
    assert_eq!((code, request.info), (FI_CONNREQ, peeked.info));
    assert_eq!((request.fid, size), (pep.cast(), 16 + 5));
    assert_eq!(&request.data[..5], b"hello");
    let offered = Info(request.info);
    let handle = offered.get().handle;
    assert_eq!(unsafe { (*handle).fclass }, FI_CLASS_CONNREQ);
    let passive = server.endpoint(&offered);
    assert_eq!(op!(passive, cm.accept(b"welcome".as_ptr().cast(), 7)), 0);

    let (code, entry, size) = event(client.eq, 0);
    assert_eq!(
        (code, entry.fid, size),
        (FI_CONNECTED, active.cast(), 16 + 7)
    );
    assert_eq!(&entry.data[..7], b"welcome");
    let (code, entry, _) = event(server.eq, 0);
    assert_eq!((code, entry.fid), (FI_CONNECTED, passive.cast()));

    // The request is used up: its handle is no handle any more.
    let reject = op!(pep, cm.reject(handle, ptr::null(), 0));
    assert_eq!(reject, -FI_EINVAL);
    let mut again: *mut fid_ep = ptr::null_mut();
    let code = op!(server.domain, ops.endpoint(offered.0, &mut again, NONE));
    assert_eq!(code, -FI_EINVAL);

    let mut peer = [0_u8; 32];
    let mut len = 32;
    assert_eq!(
        op!(
            passive,
            cm.getpeer(peer.as_mut_ptr().cast::<c_void>(), &mut len)
        ),
        0
    );
    assert_eq!(peer[..len], name(unsafe { (*active).cm }, active.cast()));

    let mut got = [0_u8; 4];
    let buf = got.as_mut_ptr().cast::<c_void>();
    assert_eq!(op!(passive, msg.recv(buf, 4, NONE, 0, NONE)), 0);
    post(client.cq, || {
        op!(active, msg.send(b"four".as_ptr().cast(), 4, NONE, 0, NONE))
    });
    let drive = || {
        let _progress = op!(client.cq, ops.read(NONE, 0));
    };
    let entry: fi_cq_msg_entry = completion_with(server.cq, drive);
    assert_eq!(entry.len, 4);
    assert_eq!(&got, b"four");

    assert_eq!(op!(active, cm.shutdown(0)), 0);
    let (code, entry, _) = event(server.eq, 0);
    assert_eq!((code, entry.fid), (FI_SHUTDOWN, passive.cast()));
    for ep in [active, passive] {
        assert_eq!(close(ep), 0);
    }
    assert_eq!(close(pep), 0);
}

#[test]
fn a_rejection_carries_data() {
    let info = loopback(FI_EP_MSG, |_| ());
    let (server, client) = (Side::new(&info), Side::new(&info));
    let (pep, addr) = listen(&server, &info);
    for room in [0_usize, 2, 16] {
        let ep = client.endpoint(&info);
        assert_eq!(connect(ep, &addr, &[]), 0);
        let (code, request, _) = event(server.eq, 0);
        assert_eq!(code, FI_CONNREQ);
        let offered = Info(request.info);
        let no = b"no".as_ptr().cast::<c_void>();
        let handle = offered.get().handle;
        assert_eq!(op!(pep, cm.reject(handle, no, 2)), 0);
        assert_eq!(op!(pep, cm.reject(handle, no, 2)), -FI_EINVAL);

        let mut entry = CmEntry::default();
        let mut event = 0;
        let buf = ptr::from_mut(&mut entry).cast::<c_void>();
        let read = op!(
            client.eq,
            ops.sread(&mut event, buf, size_of::<CmEntry>(), 60_000, 0)
        );
        assert_eq!(read, -FI_EAVAIL as isize);
        let mut data = [0_u8; 16];
        let mut error = fi_eq_err_entry {
            err_data: data.as_mut_ptr().cast(),
            err_data_size: room,
            ..Default::default()
        };
        assert_eq!(op!(client.eq, ops.readerr(&mut error, FI_PEEK)), 48);
        error.err_data = data.as_mut_ptr().cast();
        error.err_data_size = room;
        assert_eq!(op!(client.eq, ops.readerr(&mut error, 0)), 48);
        assert_eq!((error.err, error.fid), (FI_ECONNREFUSED, ep.cast()));
        assert_eq!(error.err_data_size, 2);
        let told = unsafe { core::slice::from_raw_parts(error.err_data.cast::<u8>(), 2) };
        assert_eq!(told, b"no");
        assert_eq!(room != 0, error.err_data == data.as_mut_ptr().cast());
        assert_eq!(close(ep), 0);
    }
    assert_eq!(close(pep), 0);
}

#[test]
fn events_go_with_their_endpoint() {
    let info = loopback(FI_EP_MSG, |_| ());
    let (server, client) = (Side::new(&info), Side::new(&info));
    let (pep, addr) = listen(&server, &info);
    let active = client.endpoint(&info);
    assert_eq!(connect(active, &addr, &[]), 0);
    let (code, peeked, _) = event(server.eq, FI_PEEK);
    assert_eq!(code, FI_CONNREQ);
    let stale = unsafe { (*peeked.info).handle };
    assert_eq!(close(pep), 0);
    let mut entry = CmEntry::default();
    let mut event = 0;
    let buf = ptr::from_mut(&mut entry).cast::<c_void>();
    let size = size_of::<CmEntry>();
    let read = op!(server.eq, ops.read(&mut event, buf, size, 0));
    assert_eq!(read, -FI_EAGAIN as isize);
    assert_eq!(close(active), 0);
    let read = op!(client.eq, ops.read(&mut event, buf, size, 0));
    assert_eq!(read, -FI_EAGAIN as isize);

    // The next request has an info of its own.
    let (pep, addr) = listen(&server, &info);
    let active = client.endpoint(&info);
    assert_eq!(connect(active, &addr, &[]), 0);
    let (code, request, _) = self::event(server.eq, 0);
    assert_eq!((code, request.fid), (FI_CONNREQ, pep.cast()));
    let offered = Info(request.info);
    assert_eq!(op!(pep, cm.reject(stale, ptr::null(), 0)), -FI_EINVAL);
    assert_eq!(op!(pep, cm.reject(offered.get().handle, ptr::null(), 0)), 0);
    close_all!(pep, active);
}

#[test]
fn connections_refuse_bad_input() {
    let info = loopback(FI_EP_MSG, |_| ());
    let client = Side::new(&info);
    let ep = client.endpoint(&info);
    let to = sockaddr([127, 0, 0, 1], 9);
    let addr = to.as_ptr().cast::<c_void>();
    assert_eq!(op!(ep, cm.connect(ptr::null(), ptr::null(), 0)), -FI_EINVAL);
    assert_eq!(op!(ep, cm.connect(addr, ptr::null(), 4)), -FI_EINVAL);
    assert_eq!(connect(ep, &to, &[0; 257]), -FI_EINVAL);
    assert_eq!(op!(ep, cm.accept(ptr::null(), 0)), -FI_EINVAL);
    assert_eq!(op!(ep, cm.getpeer(NONE, ptr::null_mut())), -FI_EINVAL);
    let mut len = 32;
    let mut peer = [0_u8; 32];
    let code = op!(ep, cm.getpeer(peer.as_mut_ptr().cast::<c_void>(), &mut len));
    assert_eq!(code, -FI_ENOTCONN);
    let ops = unsafe { &*(*ep).cm };
    assert_eq!(unsafe { ops.listen.unwrap()(ep.cast()) }, -FI_ENOSYS);
    let setname = ops.setname.unwrap();
    assert_eq!(unsafe { setname(ep.cast(), NONE, 16) }, -FI_EINVAL);
    assert_eq!(
        unsafe { setname(ep.cast(), addr.cast_mut(), 7) },
        -FI_EINVAL
    );
    assert_eq!(close(ep), 0);
    let (pep, _) = {
        let mut pep: *mut fid_pep = ptr::null_mut();
        assert_eq!(
            op!(client.fabric, ops.passive_ep(info.0, &mut pep, NONE)),
            0
        );
        (pep, ())
    };
    assert_eq!(bind(pep, client.cq, 0), -FI_EINVAL);
    assert_eq!(bind(pep, ptr::null_mut::<fid>(), 0), -FI_EINVAL);
    assert_eq!(bind(pep, client.eq, 1), -FI_EBADFLAGS);
    assert_eq!(
        control(pep, FI_BACKLOG, ptr::null_mut::<c_int>()),
        -FI_EINVAL
    );
    assert_eq!(control(pep, 99, ptr::null_mut::<c_int>()), -FI_ENOSYS);
    assert_eq!(
        op!(pep, cm.reject(ptr::null_mut(), ptr::null(), 0)),
        -FI_EINVAL
    );
    assert_eq!(op!(pep, cm.reject(pep.cast(), ptr::null(), 0)), -FI_EINVAL);
    assert_eq!(close(pep), 0);
}

#[test]
fn a_passive_endpoint_closes_while_another_thread_reads_its_events() {
    let info = loopback(FI_EP_MSG, |_| ());
    let server = Side::new(&info);
    let (eq, ends) = (server.eq.expose_provenance(), AtomicBool::new(false));
    let read = || {
        let eq = ptr::with_exposed_provenance_mut::<fid_eq>(eq);
        let (mut event, mut entry) = (0, CmEntry::default());
        let buf = ptr::from_mut(&mut entry).cast::<c_void>();
        op!(eq, ops.read(&mut event, buf, size_of::<CmEntry>(), 0))
    };
    let closed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                read();
            }
        });
        let closed: Vec<c_int> = (0..500).map(|_| close(listen(&server, &info).0)).collect();
        ends.store(true, Ordering::Relaxed);
        closed
    });
    assert_eq!(closed, [0; 500]);
    assert_eq!(read(), -FI_EAGAIN as isize);
}

#[test]
fn a_passive_endpoint_leaves_its_address_to_an_active_one() {
    let info = loopback(FI_EP_MSG, |_| ());
    let (server, client) = (Side::new(&info), Side::new(&info));
    let (pep, addr) = listen(&server, &info);
    let mut donor: *mut fid_pep = ptr::null_mut();
    assert_eq!(
        op!(client.fabric, ops.passive_ep(info.0, &mut donor, NONE)),
        0
    );
    let own = name(unsafe { (*donor).cm }, donor.cast());
    let wanted = loopback(FI_EP_MSG, |hints| hints.get().handle = donor.cast());
    assert_eq!(wanted.get().handle, donor.cast());
    let ep = client.endpoint(&wanted);
    assert_eq!(close(donor), 0);
    assert_eq!(name(unsafe { (*ep).cm }, ep.cast()), own);
    assert_eq!(connect(ep, &addr, &[]), 0);
    let (code, request, _) = event(server.eq, 0);
    assert_eq!(code, FI_CONNREQ);
    let offered = Info(request.info);
    let passive = server.endpoint(&offered);
    assert_eq!(op!(passive, cm.accept(ptr::null(), 0)), 0);
    assert_eq!(event(client.eq, 0).0, FI_CONNECTED);
    assert_eq!(name(unsafe { (*ep).cm }, ep.cast()), own);
    for ep in [ep, passive] {
        assert_eq!(close(ep), 0);
    }
    assert_eq!(close(pep), 0);
}
