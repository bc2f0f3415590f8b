//! Connected endpoints.

use std::time::Instant;

use ripstop_foreign::{
    Addr, Buf, ConnReq, Cq, CqAttr, Domain, Endpoint, Eq, Error, Event, Fabric, Info, Library, Pep,
    Shared,
};
use ripstop_types::{EpType, Errno, FiAddr, Flags, Threading as Level, WaitObj};

use crate::{HERE, SOON, getinfo, hints, library};

type M = Shared;

struct Server {
    fabric: Fabric,
    eq: Eq,
    pep: Pep,
}

fn info(library: &Library, at: (&str, Flags)) -> Info {
    let mut hints = hints("tcp", EpType::Msg, Level::Safe);
    hints.caps = Flags::MSG;
    getinfo(library, Some(&hints), at).unwrap().remove(0)
}

fn server(library: &Library) -> Server {
    let info = info(library, HERE);
    let fabric: Fabric = library.fabric(&info).unwrap();
    let eq = fabric.eq(0, WaitObj::Unspec).unwrap();
    let pep = fabric.passive_ep(&info).unwrap();
    pep.bind(&eq).unwrap();
    pep.listen().unwrap();
    Server { fabric, eq, pep }
}

struct Client {
    eq: Eq,
    side: Side,
}

struct Side {
    ep: Endpoint<M>,
    cq: Cq<M>,
}

/// A client endpoint that has asked `to` for a connection.
fn client(library: &Library, to: &Addr, data: &[u8]) -> Client {
    let port = to.socket_addr().unwrap().port().to_string();
    let info = info(library, (&port, Flags::empty()));
    let fabric: Fabric = library.fabric(&info).unwrap();
    let eq = fabric.eq(0, WaitObj::Unspec).unwrap();
    let domain = fabric.domain::<M>(&info).unwrap();
    let side = side(&domain, &eq, |d| d.endpoint(&info));
    side.ep.connect(to, data).unwrap();
    Client { eq, side }
}

fn side(
    domain: &Domain<M>,
    eq: &Eq,
    open: impl FnOnce(&Domain<M>) -> Result<ripstop_foreign::EndpointBuilder<M>, Error>,
) -> Side {
    let cq = domain
        .cq(CqAttr {
            wait: WaitObj::Unspec,
            ..CqAttr::default()
        })
        .unwrap();
    let ep = open(domain)
        .unwrap()
        .bind_cq(&cq, Flags::SEND | Flags::RECV)
        .unwrap()
        .bind_eq(eq)
        .unwrap()
        .enable()
        .unwrap();
    Side { ep, cq }
}

fn request(server: &Server) -> ConnReq {
    match server.eq.sread(Some(SOON)).unwrap() {
        Event::ConnReq(request) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_carries_data_both_ways_and_ends() {
    let Some(library) = library() else { return };
    let server = server(&library);
    let name = server.pep.getname().unwrap();
    let client = client(&library, &name, b"may I?");

    let (answer, up, accepted) = std::thread::scope(|s| {
        // Each side makes progress by reading its queue.
        let answer = s.spawn(|| client.eq.sread(Some(SOON)));
        let asked = request(&server);
        assert_eq!(&asked.data()[..6], b"may I?");
        let domain = server.fabric.domain::<M>(asked.info()).unwrap();
        let accepted = side(&domain, &server.eq, |d| d.accepting(asked));
        accepted.ep.accept(b"welcome").unwrap();
        let up = server.eq.sread(Some(SOON));
        (answer.join().unwrap(), up, accepted)
    });
    match answer.unwrap() {
        Event::Connected { id, data } => {
            assert_eq!(id, client.side.ep.id());
            assert_eq!(&data[..7], b"welcome");
        }
        other => panic!("{other:?}"),
    }
    match up.unwrap() {
        Event::Connected { id, .. } => assert_eq!(id, accepted.ep.id()),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.side.ep.getpeer().unwrap(), name);

    for (from, to) in [(&client.side, &accepted), (&accepted, &client.side)] {
        to.ep.recv(Buf::zeroed(100_000), FiAddr::UNSPEC, 1).unwrap();
        from.ep
            .send(Buf::from(&[7; 100_000][..]), FiAddr::UNSPEC, 2)
            .unwrap();
        let waiting = std::thread::scope(|s| {
            let sent = s.spawn(|| from.cq.wait(SOON).unwrap());
            let got = to.cq.wait(SOON).unwrap();
            assert_eq!(sent.join().unwrap().token, 2);
            got
        });
        assert_eq!(waiting.len, 100_000);
        assert!(waiting.returned.into_buf().unwrap().iter().all(|b| *b == 7));
    }

    client.side.ep.shutdown().unwrap();
    let deadline = Instant::now() + SOON;
    let ended = loop {
        // Some releases notice the end only while they read data.
        let _ = accepted.cq.read_up_to(&mut Vec::new(), 0);
        match server.eq.read() {
            Ok(event) => break event,
            Err(e) => assert!(e.is_again() && Instant::now() < deadline, "{e}"),
        }
    };
    match ended {
        Event::Shutdown { id } => assert_eq!(id, accepted.ep.id()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shared_context_receives_for_a_connection() {
    let Some(library) = library() else { return };
    let server = server(&library);
    let client = client(&library, &server.pep.getname().unwrap(), &[]);
    let (cq, accepted, shared) = std::thread::scope(|s| {
        let answer = s.spawn(|| client.eq.sread(Some(SOON)));
        let asked = request(&server);
        let domain = server.fabric.domain::<M>(asked.info()).unwrap();
        let cq = domain.cq(CqAttr::default()).unwrap();
        let shared = domain.shared_rx(asked.info()).unwrap();
        let shared = match shared.bind_cq(&cq, Flags::RECV) {
            Ok(bound) => bound.enable().unwrap(),
            // Older releases only know the queue of the endpoint.
            Err(e) => {
                assert_eq!(e.errno, Errno::ENOSYS);
                domain.shared_rx(asked.info()).unwrap().enable().unwrap()
            }
        };
        shared.recv(Buf::zeroed(8), FiAddr::UNSPEC, 1).unwrap();
        let directed = shared.recv(Buf::zeroed(8), FiAddr(0), 1).unwrap_err();
        assert_eq!(directed.error.errno, Errno::EADDRNOTAVAIL);
        let accepted = domain.accepting(asked).unwrap();
        let accepted = accepted.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
        let accepted = accepted.bind_eq(&server.eq).unwrap();
        let accepted = accepted.bind_shared_rx(&shared).unwrap().enable().unwrap();
        accepted.accept(&[]).unwrap();
        server.eq.sread(Some(SOON)).unwrap();
        assert!(matches!(
            answer.join().unwrap(),
            Ok(Event::Connected { .. })
        ));
        (cq, accepted, shared)
    });
    client.side.ep.inject(b"shared", FiAddr::UNSPEC).unwrap();
    let got = cq.wait(SOON).unwrap();
    assert_eq!((got.token, got.len), (1, 6));
    assert_eq!(&got.returned.into_buf().unwrap()[..6], b"shared");
    drop(shared);
    drop(accepted);
}

#[test]
fn a_rejection_names_its_reason() {
    let Some(library) = library() else { return };
    let server = server(&library);
    let client = client(&library, &server.pep.getname().unwrap(), &[]);
    let answer = std::thread::scope(|s| {
        let answer = s.spawn(|| client.eq.sread(Some(SOON)));
        server.pep.reject(request(&server), b"not today").unwrap();
        answer.join().unwrap()
    });
    assert_eq!(answer.unwrap_err().errno, Errno::EAVAIL);
    let error = client.eq.readerr().unwrap();
    assert_eq!(error.id, client.side.ep.id());
    assert_eq!(error.err, Errno::ECONNREFUSED);
    assert_eq!(
        error.err_data.get(..9),
        Some(&b"not today"[..]),
        "{error:?}"
    );
}

#[test]
fn a_request_dropped_is_refused() {
    let Some(library) = library() else { return };
    let server = server(&library);
    let client = client(&library, &server.pep.getname().unwrap(), &[]);
    let answer = std::thread::scope(|s| {
        let answer = s.spawn(|| client.eq.sread(Some(SOON)));
        drop(request(&server));
        answer.join().unwrap()
    });
    assert_eq!(answer.unwrap_err().errno, Errno::EAVAIL);
    assert_eq!(client.eq.readerr().unwrap().err, Errno::ECONNREFUSED);
}

#[test]
fn options_are_read_and_unknown_ones_refused() {
    let Some(library) = library() else { return };
    let server = server(&library);
    let size = server
        .pep
        .getopt(ripstop_abi::FI_OPT_CM_DATA_SIZE, size_of::<usize>())
        .unwrap();
    let size = usize::from_ne_bytes(size.try_into().unwrap());
    assert!(size >= 256, "{size}");
    let unknown = server.pep.getopt(9999, 8).unwrap_err();
    assert_eq!(unknown.errno, Errno::ENOPROTOOPT);
}
