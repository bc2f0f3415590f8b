//! Peers that do not keep to the handshake.

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

fn sealed(len: usize) -> OwnedFd {
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
        name: Name::new("fi_shm://stranger").unwrap(),
    };
    hello.emit()
}

fn message(data: &[u8]) -> Vec<u8> {
    let header = Header::new(Kind::Request, data).unwrap();
    let header = Header {
        extensions: Extensions::ALL,
        ..header
    };
    [&header.emit().unwrap()[..], data].concat()
}

/// Two endpoints that know each other, and the name of the second one's socket.
struct Victims<D: Domain> {
    near: End<D>,
    far: End<D>,
    door: Vec<u8>,
}

fn victims() -> Victims<common::Safe> {
    let info = info(None, Threading::Safe);
    let [near, far] = [(); 2].map(|()| open(&safe(&info), &info));
    let name = Name::new(&far.name().to_string()).unwrap();
    let door = name.socket(ripstop_os::user());
    Victims { near, far, door }
}

impl<D: Domain> Victims<D> {
    /// They are not disturbed.
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

    /// What a stranger gets who says this with these descriptors: the kind of the answer, or
    /// none if the connection just ends.
    fn answer(&self, said: &[u8], descriptors: &[OwnedFd]) -> (Socket, Option<Kind>) {
        let stranger = Socket::unix_connect(&self.door).unwrap();
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        assert_eq!(stranger.send_with(said, &borrowed), Ok(said.len()));
        let stop = Instant::now() + common::PATIENCE;
        let mut answer = [0; 512];
        loop {
            assert!(Instant::now() < stop, "no answer");
            let _ = self.far.cq.read(0, |_| ());
            match stranger.recv(&mut answer) {
                Err(Errno::EAGAIN) => std::thread::yield_now(),
                Ok(0) | Err(_) => return (stranger, None),
                Ok(_) => {
                    let header = Header::parse(&answer).unwrap();
                    return (stranger, Some(header.kind));
                }
            }
        }
    }
}

#[test]
fn valid_handshake_is_accepted() {
    let victims = victims();
    let (_stranger, answer) =
        victims.answer(&message(&hello()), &[sealed(layout().len()), status_page()]);
    assert_eq!(answer, Some(Kind::Response));
    victims.exchange();
}

#[test]
fn wrong_descriptors_are_refused() {
    let victims = victims();
    let unsealed = || -> OwnedFd { MemFd::create("x", layout().len()).unwrap().into() };
    let file = || -> OwnedFd {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        file.into()
    };
    let few: [Vec<OwnedFd>; 8] = [
        vec![],
        vec![sealed(layout().len())],
        vec![sealed(layout().len() - 64), status_page()],
        vec![sealed(layout().len() + 64), status_page()],
        vec![unsealed(), status_page()],
        vec![file(), status_page()],
        vec![status_page(), sealed(layout().len())],
        vec![sealed(layout().len()), sealed(STATUS_PAGE_BYTES + 1)],
    ];
    for (case, descriptors) in few.iter().enumerate() {
        let (_stranger, answer) = victims.answer(&message(&hello()), descriptors);
        assert_eq!(answer, Some(Kind::Reject), "case {case}");
    }
    // More than a handshake has.
    let many = [(); 3].map(|()| status_page());
    assert_eq!(victims.answer(&message(&hello()), &many).1, None);
    victims.exchange();
}

#[test]
fn malformed_greetings_are_refused() {
    let victims = victims();
    for (at, byte) in [(8, 9), (9, 0xff), (10, 0), (12, 1), (17, 0xff), (21, 0xff)] {
        let mut data = hello();
        data[at] = byte;
        let descriptors = [sealed(layout().len()), status_page()];
        let (_stranger, answer) = victims.answer(&message(&data), &descriptors);
        assert_eq!(answer, Some(Kind::Reject), "byte {at}");
    }
    // The greeting of another provider, and what is no message at all.
    let short = Greeting::request(0, 7, 4711).emit();
    assert_eq!(victims.answer(&message(&short), &[]).1, Some(Kind::Reject));
    assert_eq!(victims.answer(&[0xff; 64], &[]).1, None);
    victims.exchange();
}

/// One that was accepted and then writes what is no message into the ring, or no entry.
#[test]
fn peer_that_breaks_the_protocol_is_dropped() {
    for garbage in [true, false] {
        let victims = victims();
        let memory = MemFd::create("ripstop-shm-test", layout().len()).unwrap();
        memory.seal().unwrap();
        let map = Arc::new(memory.map().unwrap());
        let descriptors = [memory.into(), status_page()];
        let (stranger, answer) = victims.answer(&message(&hello()), &descriptors);
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
        while stranger.recv(&mut [0; 64]) != Ok(0) {
            assert!(Instant::now() < stop, "it is not dropped");
            let _ = victims.far.cq.read(0, |_| ());
        }
        victims.exchange();
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

/// Who takes the name of somebody else's socket is found out by the answer.
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

const DOOR: &str = "RIPSTOP_SHM_TEST_DOOR";
const BACK: &str = "RIPSTOP_SHM_TEST_BACK";

/// What another process runs: it connects, and gives its end away.
#[test]
fn subprocess_helper() {
    let (Ok(door), Ok(back)) = (std::env::var(DOOR), std::env::var(BACK)) else {
        return;
    };
    let socket = Socket::unix_connect(door.as_bytes()).unwrap();
    let descriptors = [sealed(layout().len()), status_page()];
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    socket.send_with(&message(&hello()), &borrowed).unwrap();
    let back = Socket::unix_connect(back.as_bytes()).unwrap();
    assert_eq!(back.send_with(b"x", &[socket.as_fd()]), Ok(1));
    std::thread::sleep(10 * common::PATIENCE);
}

/// As when a child of the peer, made by `fork`, has its descriptors.
#[test]
fn exit_is_noticed_when_the_socket_outlives_the_peer() {
    let victims = victims();
    let back = format!("ripstop-test/{}/back", ripstop_os::pid());
    let listener = Socket::unix_bound(back.as_bytes()).unwrap();
    listener.listen(1).unwrap();
    let mut helper = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "handshake_tests::subprocess_helper",
            "--test-threads=1",
        ])
        .env(DOOR, String::from_utf8(victims.door.clone()).unwrap())
        .env(BACK, &back)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let wait = |done: &mut dyn FnMut() -> bool| {
        let stop = Instant::now() + common::PATIENCE;
        while !done() {
            assert!(Instant::now() < stop, "nothing happens");
            let _ = victims.far.cq.read(0, |_| ());
        }
    };
    let mut given = None;
    wait(&mut || {
        given = listener.accept_unix().unwrap();
        given.is_some()
    });
    let given = given.expect("a connection");
    let mut ends = Vec::new();
    wait(&mut || {
        ends = given
            .recv_with(&mut [0; 8])
            .map_or_else(|_| Vec::new(), |got| got.1);
        !ends.is_empty()
    });
    let end = Socket::from(ends.remove(0));
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
    victims.exchange();
}
