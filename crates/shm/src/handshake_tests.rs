//! Handshakes with raw peers: valid ones are accepted, and all others refused.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_core::provider::{CompletionQueue, Domain};
use ripstop_mem::Parked;
use ripstop_mem::ring::{Layout, STATUS_PAGE_BYTES, Side, Source, pair};
use ripstop_os::{MemFd, Peer, Socket};
use ripstop_types::{Errno, Threading};
use ripstop_wire::xnet::cm::{Extensions, Header, Kind};
use ripstop_wire::xnet::rdm::Greeting;

use crate::greeting::Hello;
use crate::listener::check_user;
use crate::name::Name;

use crate::common::{self, End, bytes, info, open, safe};

fn layout() -> Layout {
    Layout::new(256, 65536).unwrap()
}

fn sealed_memory(len: usize) -> OwnedFd {
    let memory = MemFd::create("ripstop-shm-test", len).unwrap();
    memory.seal().unwrap();
    memory.into()
}

fn status_page() -> OwnedFd {
    let memory = MemFd::create("ripstop-shm-test", STATUS_PAGE_BYTES).unwrap();
    memory.seal_for_readers().unwrap();
    memory.into()
}

fn hello() -> Vec<u8> {
    let hello = Hello {
        greeting: Greeting::request(0, 0, 4711),
        needs_fence: false,
        layout: layout(),
        name: Name::new("fi_shm://raw_peer").unwrap(),
    };
    hello.emit()
}

fn message(data: &[u8]) -> Vec<u8> {
    let header = Header::new(Kind::Request, data).unwrap();
    let header = Header {
        extensions: Extensions::all(),
        ..header
    };
    [&header.emit().unwrap()[..], data].concat()
}

/// Two endpoints, and the name of the second one's socket, to which raw peers connect.
struct Ends<D: Domain> {
    near: End<D>,
    far: End<D>,
    socket_name: Vec<u8>,
}

fn connected_ends() -> Ends<common::Safe> {
    let info = info(None, Threading::Safe);
    let [near, far] = [(); 2].map(|()| open(&safe(&info), &info));
    let name = Name::new(&far.name().to_string()).unwrap();
    let socket_name = name.socket(ripstop_os::user());
    Ends {
        near,
        far,
        socket_name,
    }
}

impl<D: Domain> Ends<D> {
    /// The two endpoints can still exchange a message.
    fn exchange(&self) {
        let to = self.near.knows(&self.far.name());
        let (room, text) = (
            Parked::park(vec![0; 9]),
            Parked::park(b"undamaged".to_vec()),
        );
        self.far.post(&room);
        self.near.send(&text, to).unwrap();
        let stop = Instant::now() + common::PATIENCE;
        let (mut sent, mut got) = (0, 0);
        while sent + got < 2 {
            sent += self.near.cq.read(1, |_| ()).unwrap_or(0);
            got += self.far.cq.read(1, |_| ()).unwrap_or(0);
            assert!(Instant::now() < stop, "the message does not arrive");
        }
        assert_eq!(bytes(room), b"undamaged");
        drop(bytes(text));
    }

    /// Connects a raw peer that sends this request with these descriptors. Returns the kind of the answer,
    /// or `None` if the connection just ends.
    fn answer(&self, request: &[u8], descriptors: &[OwnedFd]) -> (Socket, Option<Kind>) {
        let raw_peer = Socket::unix_connect(&self.socket_name).unwrap();
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        assert_eq!(raw_peer.send_with(request, &borrowed), Ok(request.len()));
        let stop = Instant::now() + common::PATIENCE;
        let mut answer = [0; 512];
        loop {
            assert!(Instant::now() < stop, "no answer");
            let _ = self.far.cq.read(0, |_| ());
            match raw_peer.recv(&mut answer) {
                Err(Errno::EAGAIN) => std::thread::yield_now(),
                Ok(0) | Err(_) => return (raw_peer, None),
                Ok(_) => {
                    let header = Header::parse(&answer).unwrap();
                    return (raw_peer, Some(header.kind));
                }
            }
        }
    }
}

#[test]
fn valid_handshake_is_accepted() {
    let ends = connected_ends();
    let (_raw_peer, answer) = ends.answer(
        &message(&hello()),
        &[sealed_memory(layout().len()), status_page()],
    );
    assert_eq!(answer, Some(Kind::Response));
    ends.exchange();
}

#[test]
fn wrong_descriptors_are_refused() {
    let ends = connected_ends();
    let unsealed = || -> OwnedFd { MemFd::create("x", layout().len()).unwrap().into() };
    let file = || -> OwnedFd {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        file.into()
    };
    let few: [Vec<OwnedFd>; 8] = [
        vec![],
        vec![sealed_memory(layout().len())],
        vec![sealed_memory(layout().len() - 64), status_page()],
        vec![sealed_memory(layout().len() + 64), status_page()],
        vec![unsealed(), status_page()],
        vec![file(), status_page()],
        vec![status_page(), sealed_memory(layout().len())],
        vec![
            sealed_memory(layout().len()),
            sealed_memory(STATUS_PAGE_BYTES + 1),
        ],
    ];
    for (case, descriptors) in few.iter().enumerate() {
        let (_raw_peer, answer) = ends.answer(&message(&hello()), descriptors);
        assert_eq!(answer, Some(Kind::Reject), "case {case}");
    }
    // More descriptors than a handshake has.
    let many = [(); 3].map(|()| status_page());
    assert_eq!(ends.answer(&message(&hello()), &many).1, None);
    ends.exchange();
}

#[test]
fn malformed_greetings_are_refused() {
    let ends = connected_ends();
    for (at, byte) in [(8, 9), (9, 0xff), (10, 0), (12, 1), (17, 0xff), (21, 0xff)] {
        let mut data = hello();
        data[at] = byte;
        let descriptors = [sealed_memory(layout().len()), status_page()];
        let (_raw_peer, answer) = ends.answer(&message(&data), &descriptors);
        assert_eq!(answer, Some(Kind::Reject), "byte {at}");
    }
    // The greeting of another provider, and bytes that are no message at all.
    let short = Greeting::request(0, 7, 4711).emit();
    assert_eq!(ends.answer(&message(&short), &[]).1, Some(Kind::Reject));
    assert_eq!(ends.answer(&[0xff; 64], &[]).1, None);
    ends.exchange();
}

/// After a valid handshake, the peer writes an invalid message or an invalid entry to the ring.
#[test]
fn peer_that_breaks_the_protocol_is_dropped() {
    for garbage in [true, false] {
        let ends = connected_ends();
        let memory = MemFd::create("ripstop-shm-test", layout().len()).unwrap();
        memory.seal().unwrap();
        let map = Arc::new(memory.map().unwrap());
        let descriptors = [memory.into(), status_page()];
        let (raw_peer, answer) = ends.answer(&message(&hello()), &descriptors);
        assert_eq!(answer, Some(Kind::Response));
        if garbage {
            let (writer, _reader) = pair(map, layout(), Side::Connector).unwrap();
            assert_eq!(writer.write(Source::from(&[0xff; 32][..])), Ok(32));
        } else {
            // The first entry: of no known kind, in the first lap.
            let entry = map.region().unwrap();
            let state = 1_u64 << 32 | 7 << 8 | 1;
            let release = std::sync::atomic::Ordering::Release;
            entry.store_u64(0x1000, state, release).unwrap();
        }
        let stop = Instant::now() + common::PATIENCE;
        while raw_peer.recv(&mut [0; 64]) != Ok(0) {
            assert!(Instant::now() < stop, "it is not dropped");
            let _ = ends.far.cq.read(0, |_| ());
        }
        ends.exchange();
    }
}

#[test]
fn other_users_are_refused() {
    let name = Name::new("fi_shm://mine").unwrap();
    let peer = |uid| Peer {
        pid: 1,
        uid,
        gid: 0,
    };
    assert_eq!(check_user(peer(7), &name, 7), Ok(()));
    for (other, own) in [(0, 7), (8, 7), (7, 0)] {
        assert_eq!(check_user(peer(other), &name, own), Err(Errno::EACCES));
    }
}

/// An endpoint that listens on another one's socket is recognised by its greeting.
#[test]
fn endpoint_of_another_name_is_refused() {
    let info = info(None, Threading::Safe);
    let near = open(&safe(&info), &info);
    let wanted = Name::new("fi_ns://ripstop-impostor").unwrap();
    let impostor = Socket::unix_bound(&wanted.socket(ripstop_os::user())).unwrap();
    impostor.listen(8).unwrap();
    let text = Parked::park(vec![0; 8]);
    let to = near.knows(&ripstop_core::Address::Str(wanted.text().to_owned()));
    near.send(&text, to).unwrap();
    let stop = Instant::now() + common::PATIENCE;
    let caller = loop {
        let _ = near.cq.read(0, |_| ());
        if let Some(caller) = impostor.accept_unix().unwrap() {
            break caller;
        }
        assert!(Instant::now() < stop, "nobody calls");
    };
    let other = Hello {
        greeting: Greeting::request(0, 0, 1).answer(2),
        needs_fence: false,
        layout: layout(),
        name: Name::new("fi_ns://somebody-else").unwrap(),
    };
    let data = other.emit();
    let header = Header::new(Kind::Response, &data).unwrap();
    let answer = [&header.emit().unwrap()[..], &data].concat();
    assert_eq!(
        caller.send_with(&answer, &[status_page().as_fd()]),
        Ok(answer.len())
    );
    assert_eq!(near.fails(), Errno::EPROTO);
    drop(bytes(text));
}

const SOCKET_NAME: &str = "RIPSTOP_SHM_TEST_DOOR";
const BACK_SOCKET_NAME: &str = "RIPSTOP_SHM_TEST_BACK";

/// Run by another process: it connects, and passes its end of the socket on.
#[test]
fn subprocess_helper() {
    let (Ok(socket_name), Ok(back)) = (std::env::var(SOCKET_NAME), std::env::var(BACK_SOCKET_NAME))
    else {
        return;
    };
    let socket = Socket::unix_connect(socket_name.as_bytes()).unwrap();
    let descriptors = [sealed_memory(layout().len()), status_page()];
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    socket.send_with(&message(&hello()), &borrowed).unwrap();
    let back = Socket::unix_connect(back.as_bytes()).unwrap();
    assert_eq!(back.send_with(b"x", &[socket.as_fd()]), Ok(1));
    std::thread::sleep(10 * common::PATIENCE);
}

/// For example when a forked child of the peer has inherited its descriptors.
#[test]
fn exit_is_noticed_when_the_socket_outlives_the_peer() {
    let ends = connected_ends();
    let back = format!("ripstop-test/{}/back", ripstop_os::pid());
    let listener = Socket::unix_bound(back.as_bytes()).unwrap();
    listener.listen(1).unwrap();
    let mut helper = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "handshake_tests::subprocess_helper",
            "--test-threads=1",
        ])
        .env(
            SOCKET_NAME,
            String::from_utf8(ends.socket_name.clone()).unwrap(),
        )
        .env(BACK_SOCKET_NAME, &back)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let wait = |done: &mut dyn FnMut() -> bool| {
        let stop = Instant::now() + common::PATIENCE;
        while !done() {
            assert!(Instant::now() < stop, "nothing happens");
            let _ = ends.far.cq.read(0, |_| ());
        }
    };
    let mut given = None;
    wait(&mut || {
        given = listener.accept_unix().unwrap();
        given.is_some()
    });
    let given = given.expect("a connection");
    let mut received = Vec::new();
    wait(&mut || {
        received = given
            .recv_with(&mut [0; 8])
            .map_or_else(|_| Vec::new(), |got| got.1);
        !received.is_empty()
    });
    let end = Socket::from(received.remove(0));
    // The answer.
    wait(&mut || end.recv(&mut [0; 512]).is_ok());
    let pause = Instant::now() + Duration::from_millis(20);
    wait(&mut || Instant::now() > pause);
    assert_eq!(
        end.recv(&mut [0; 8]),
        Err(Errno::EAGAIN),
        "it is still connected"
    );
    helper.kill().unwrap();
    helper.wait().unwrap();
    let killed = Instant::now();
    wait(&mut || end.recv(&mut [0; 8]) == Ok(0));
    assert!(killed.elapsed() < common::noticed_within());
    ends.exchange();
}
