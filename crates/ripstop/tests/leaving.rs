//! Clients, each a process of its own, that leave as soon as their last send is completed: what
//! they have sent arrives, with what is known of who sent it.
//!
//! `RIPSTOP_TEST_ROUNDS` says how often; a few times unless it is set.

mod common;

use std::collections::HashSet;
use std::process::{Child, Command, Stdio};

use common::{LONG, hints, inject, pattern, rdm};
use ripstop::{Address, Completion, Endpoint, Progress, SendMsg, Source};

/// Where the clients find the server; tells them that they are clients, too.
const ADDRESS: &str = "RIPSTOP_TEST_ADDRESS";

/// Which of the clients one is, and in which round.
const NUMBER: &str = "RIPSTOP_TEST_NUMBER";

const ROUNDS: &str = "RIPSTOP_TEST_ROUNDS";

const CLIENTS: usize = 8;

/// Messages of a client.
const COUNT: usize = 12;

/// A number, and the sender's address.
const ROOM: usize = 70_000;

fn rounds() -> usize {
    let given = std::env::var(ROUNDS).ok();
    given.map_or(24, |rounds| rounds.parse().expect("a number of rounds"))
}

fn start(test: &str, server: &Address, number: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env(ADDRESS, server.to_string())
        .env(NUMBER, number.to_string())
        .stdout(Stdio::null());
    command.spawn().unwrap()
}

/// What client `number` sends as its message `i`.
fn message(number: usize, i: usize, own: &Address) -> Vec<u8> {
    let text = format!("{number} {i} {own}\n");
    let size = match i % 4 {
        3 if i < COUNT - 1 => 40_000 + number % 20_000,
        _ => text.len(),
    };
    let mut bytes = text.into_bytes();
    bytes.extend(pattern(size - bytes.len(), i));
    bytes
}

/// Which message this is, of a sender with this address.
fn read(bytes: &[u8]) -> (usize, usize, Address) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let text = std::str::from_utf8(&bytes[..end]).unwrap();
    let [number, i, own] = text.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let own = own.parse().unwrap();
    let (number, i) = (number.parse().unwrap(), i.parse().unwrap());
    assert!(bytes == message(number, i, &own), "message {text}");
    (number, i, own)
}

/// The client: sends, and is gone, in one of several ways.
fn send_and_leave(on: &str, server: Address) {
    let number: usize = std::env::var(NUMBER).unwrap().parse().unwrap();
    let progress = match number % 2 {
        0 => Progress::Background,
        _ => Progress::Manual,
    };
    let domain = rdm(on, progress);
    let endpoint = domain.endpoint().unwrap();
    let own = endpoint.address().unwrap();
    let to = domain.insert(server).unwrap();
    let side = (endpoint, to);
    let sends: Vec<_> = (0..COUNT - 1)
        .map(|i| side.0.send(message(number, i, &own), to))
        .collect();
    for send in sends {
        send.wait().0.unwrap();
    }
    let last = message(number, COUNT - 1, &own);
    match number / 2 % 3 {
        0 => side.0.send(last, to).wait().0.map(drop).unwrap(),
        1 if last.len() <= side.0.inject_size() => inject(&side, &last, SendMsg::new()),
        _ => {
            let told = SendMsg::new().transmit_complete();
            side.0.sendmsg(last, to, told).wait().0.map(drop).unwrap();
        }
    }
    if (number / 4).is_multiple_of(2) {
        // With everything open.
        std::process::exit(0);
    }
}

fn arrived((outcome, buf): (ripstop::Result<Completion>, Vec<u8>)) -> (usize, usize) {
    let done = outcome.unwrap();
    let (number, i, own) = read(&buf[..done.len]);
    assert_eq!(done.source, Source::Address(own));
    (number, i)
}

fn round(test: &str, server: &Endpoint, round: usize, early: bool) {
    let address = server.address().unwrap();
    let numbers: Vec<_> = (0..CLIENTS).map(|i| round * CLIENTS + i).collect();
    let receive = || server.recv(vec![0; ROOM], None);
    let mut receives: Vec<_> = match early {
        true => (0..CLIENTS * COUNT).map(|_| receive()).collect(),
        false => Vec::new(),
    };
    let clients = numbers.iter().map(|number| start(test, &address, *number));
    let clients: Vec<_> = clients.collect();
    let gone = || {
        for mut client in clients {
            assert!(client.wait().unwrap().success());
        }
    };
    if !early {
        gone();
        receives.extend((0..CLIENTS * COUNT).map(|_| receive()));
        take(&numbers, receives);
    } else {
        take(&numbers, receives);
        gone();
    }
}

fn take(numbers: &[usize], receives: Vec<ripstop::Op<Vec<u8>>>) {
    let mut missing: HashSet<_> = numbers
        .iter()
        .flat_map(|number| (0..COUNT).map(|i| (*number, i)))
        .collect();
    for receive in receives {
        match receive.wait_timeout(LONG) {
            Ok(outcome) => assert!(missing.remove(&arrived(outcome))),
            Err(_) => panic!("lost: {missing:?}"),
        }
    }
    assert!(missing.is_empty());
}

fn nothing_is_lost_of_clients_that_leave_at_once(on: &str) {
    if let Ok(server) = std::env::var(ADDRESS) {
        return send_and_leave(on, server.parse().unwrap());
    }
    let test = format!("{on}::nothing_is_lost_of_clients_that_leave_at_once");
    let domains = [Progress::Background, Progress::Manual]
        .map(|progress| hints(on).progress(progress).open().unwrap());
    let [attended, alone] = domains.map(|domain| domain.endpoint().unwrap());
    for number in 0..rounds() {
        match number % 4 {
            0 => round(&test, &attended, number, true),
            1 => round(&test, &alone, number, true),
            _ => round(&test, &attended, number, false),
        }
    }
}

on_both! {
    nothing_is_lost_of_clients_that_leave_at_once,
}
