//! Moving bytes over the loopback interface.
#![allow(unsafe_code)]

mod common;

use std::thread;

use common::{V4, loopbacks, pair, ready};
use ripstop_mem::{Parked, UserBuf, copy_out};
use ripstop_os::{Interest, IoVec, IoVecMut, Shutdown, Socket};
use ripstop_types::Errno;

/// The vector of a buffer that was only in system calls, all of which have returned.
fn unpark(parked: Parked) -> Vec<u8> {
    // SAFETY: a system call that has returned uses its buffers no more, and the tests give the
    // `UserBuf` to nothing else.
    unsafe { parked.unpark() }
}

#[test]
fn bytes_go_both_ways() {
    for on in loopbacks() {
        let (client, server) = pair(&on);
        for (from, to) in [(&client, &server), (&server, &client)] {
            let mut room = [0u8; 16];
            assert_eq!(to.recv(&mut room), Err(Errno::EAGAIN));
            assert_eq!(from.send(b"hello"), Ok(5));
            ready(to, Interest::READ);
            assert_eq!(to.recv(&mut room), Ok(5));
            assert_eq!(&room[..5], b"hello");
        }
    }
}

#[test]
fn our_header_and_a_callers_payload_in_one_call() {
    let (client, server) = pair(&V4);
    let payload = Parked::park(b"payload".to_vec());
    let vecs = [
        IoVec::from_slice(b"head:"),
        IoVec::EMPTY,
        IoVec::from_user(payload.buf()),
    ];
    assert_eq!(vecs.map(|vec| vec.len()), [5, 0, 7]);
    assert_eq!(client.sendv(&vecs), Ok(12));
    assert_eq!(unpark(payload), b"payload");

    let room = Parked::park(vec![0; 16]);
    let mut header = [0u8; 5];
    ready(&server, Interest::READ);
    let n = server.recvv(&mut [
        IoVecMut::from_slice(&mut header),
        IoVecMut::EMPTY,
        IoVecMut::from_user(room.buf()),
    ]);
    assert_eq!(n, Ok(12));
    assert_eq!(&header, b"head:");
    assert_eq!(&unpark(room)[..8], b"payload\0");
}

#[test]
fn a_scattered_message() {
    let (client, server) = pair(&V4);
    let parts = [vec![0; 3], vec![0; 1], vec![0; 4]].map(Parked::park);
    assert_eq!(client.send(b"abcdefgh"), Ok(8));
    ready(&server, Interest::READ);
    // From the third byte on, as after a part that came earlier.
    let [first, second, third] = parts.each_ref().map(Parked::buf);
    let mut vecs = [first.skip(2), second, third].map(IoVecMut::from_user);
    assert_eq!(server.recvv(&mut vecs), Ok(6));
    let parts = parts.map(unpark);
    assert_eq!(parts, [b"\0\0a".to_vec(), b"b".to_vec(), b"cdef".to_vec()]);
}

/// A stream larger than every socket buffer, through short writes and short reads.
#[test]
fn a_large_message_arrives_whole() {
    const LEN: usize = 16 << 20;
    for on in loopbacks() {
        let (client, server) = pair(&on);
        thread::scope(|scope| {
            scope.spawn(move || send_all(&client, LEN));
            let room = Parked::park(vec![0; LEN]);
            receive_all(&server, room.buf());
            let got = unpark(room);
            assert!(got.iter().enumerate().all(|(i, &byte)| byte == byte_at(i)));
        });
    }
}

fn byte_at(i: usize) -> u8 {
    (i % 251) as u8
}

fn send_all(socket: &Socket, len: usize) {
    let bytes = Parked::park((0..len).map(byte_at).collect());
    let mut done = 0;
    while done < len {
        match socket.sendv(&[IoVec::from_user(bytes.buf().skip(done))]) {
            Ok(n) => done += n,
            Err(err) => {
                assert_eq!(err, Errno::EAGAIN);
                ready(socket, Interest::WRITE);
            }
        }
    }
    drop(unpark(bytes));
}

#[test]
fn a_full_socket_takes_no_more_until_it_is_read() {
    let (client, server) = pair(&V4);
    let chunk = vec![1u8; 1 << 20];
    let mut sent = 0;
    let full = loop {
        match client.send(&chunk) {
            Ok(n) => sent += n,
            Err(err) => break err,
        }
        assert!(sent < 1 << 30, "a gigabyte and nobody reads");
    };
    assert_eq!(full, Errno::EAGAIN);
    let mut room = chunk;
    while sent > 0 {
        match server.recv(&mut room) {
            Ok(n) => sent -= n,
            Err(_) => ready(&server, Interest::READ),
        }
    }
    ready(&client, Interest::WRITE);
    assert_eq!(client.send(&[1]), Ok(1));
}

fn receive_all(socket: &Socket, room: UserBuf) {
    let mut done = 0;
    while done < room.len() {
        match socket.recvv(&mut [IoVecMut::from_user(room.skip(done))]) {
            Ok(n) => {
                assert_ne!(n, 0, "the stream ended early");
                done += n;
            }
            Err(err) => {
                assert_eq!(err, Errno::EAGAIN);
                ready(socket, Interest::READ);
            }
        }
    }
}

#[test]
fn the_end_of_the_stream_is_zero_bytes() {
    for on in loopbacks() {
        let (client, server) = pair(&on);
        client.send(b"last").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        ready(&server, Interest::READ);
        let mut room = [0u8; 16];
        assert_eq!(server.recv(&mut room), Ok(4));
        ready(&server, Interest::READ);
        assert_eq!(server.recv(&mut room), Ok(0));
        assert_eq!(server.recvv(&mut [IoVecMut::from_slice(&mut room)]), Ok(0));
        // The other direction still works.
        assert_eq!(server.send(b"answer"), Ok(6));
        ready(&client, Interest::READ);
        assert_eq!(client.recv(&mut room), Ok(6));
        client.shutdown(Shutdown::Read).unwrap();
        server.shutdown(Shutdown::Both).unwrap();
    }
}

/// No signal ends the process when the peer is gone.
#[test]
fn sending_to_nobody_is_an_error() {
    let (client, server) = pair(&V4);
    client.shutdown(Shutdown::Write).unwrap();
    // SAFETY: the test asks for the default action, which would end this process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    assert_eq!(client.send(b"x"), Err(Errno::EPIPE));
    assert_eq!(client.sendv(&[IoVec::from_slice(b"x")]), Err(Errno::EPIPE));
    drop(server);
}

#[test]
fn a_killed_peer_resets_the_connection() {
    let (client, server) = pair(&V4);
    client.send(b"never read").unwrap();
    ready(&server, Interest::READ);
    drop(server);
    ready(&client, Interest::READ);
    assert_eq!(client.recv(&mut [0; 4]), Err(Errno::ECONNRESET));
}

#[test]
fn unconnected_sockets_move_nothing() {
    let socket = Socket::tcp_bound(&V4, None).unwrap();
    assert_eq!(socket.recv(&mut [0; 4]), Err(Errno::ENOTCONN));
    assert!(socket.send(b"x").is_err());
}

#[test]
fn a_buffer_that_is_no_memory_is_an_error() {
    let (client, server) = pair(&V4);
    // SAFETY: no Rust code reads or writes it; the kernel checks what it is given.
    let nowhere = unsafe { UserBuf::from_raw(std::ptr::without_provenance_mut(16), 64) };
    let sent = client.sendv(&[IoVec::from_user(nowhere)]);
    assert_eq!(sent, Err(Errno::EFAULT));
    client.send(b"something").unwrap();
    ready(&server, Interest::READ);
    let received = server.recvv(&mut [IoVecMut::from_user(nowhere)]);
    assert_eq!(received, Err(Errno::EFAULT));
}

#[test]
fn more_buffers_than_the_kernel_takes() {
    let (client, server) = pair(&V4);
    let many = vec![IoVec::from_slice(b"x"); 1025];
    assert_eq!(client.sendv(&many), Err(Errno::EMSGSIZE));
    assert_eq!(client.sendv(&many[..1024]), Ok(1024));
    ready(&server, Interest::READ);
    let mut bytes = [0u8; 1025];
    let mut rooms: Vec<IoVecMut> = bytes.chunks_mut(1).map(IoVecMut::from_slice).collect();
    assert_eq!(server.recvv(&mut rooms), Ok(1024));
}

/// The other half of `Parked`: the kernel writes while nobody in this process has a reference.
#[test]
fn a_parked_buffer_takes_what_comes_late() {
    let (client, server) = pair(&V4);
    let parked = Parked::park(vec![0u8; 8]);
    client.send(b"late").unwrap();
    ready(&server, Interest::READ);
    let n = server
        .recvv(&mut [IoVecMut::from_user(parked.buf())])
        .unwrap();
    copy_out(parked.buf().skip(n), b"r");
    assert_eq!(&unpark(parked)[..5], b"later");
}
