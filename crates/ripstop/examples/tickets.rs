//! Several clients draw tickets from a counter in the memory of a server that does nothing, and
//! leave their names at the place they drew: reads, writes and atomics on remote memory.
//!
//! ```sh
//! cargo run --release -p ripstop --example tickets
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use ripstop::{Access, Address, AtomicOp, Domain, Hints, Remote, Result};

const CLIENTS: u8 = 4;
const EACH: usize = 250;
const PLACES: usize = CLIENTS as usize * EACH;

fn open() -> Result<Domain> {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Hints::rdm().rma().atomic().source(local).open()
}

/// Draws tickets, and writes a name at the place of each.
fn draw(name: u8, server: Address, counter: Remote, board: Remote) -> Result<()> {
    let domain = open()?;
    let ep = domain.endpoint()?;
    let server = domain.insert(server)?;
    let mut writes = Vec::new();
    for _ in 0..EACH {
        let drawn = ep.fetch_atomic(AtomicOp::Sum, &[1_u64], server, counter);
        let place = drawn.wait()?.first().copied().unwrap_or_default();
        // Under way while the next ticket is drawn.
        writes.push(ep.write(vec![name], server, board.offset(place)));
    }
    writes
        .into_iter()
        .try_for_each(|write| write.wait().0.map(drop))
}

fn main() -> Result<()> {
    let domain = open()?;
    let ep = domain.endpoint()?;
    let counter = domain.register(vec![0; 8], Access::ALL)?;
    let board = domain.register(vec![0; PLACES], Access::WRITE)?;
    let (at, to, server) = (counter.remote(0), board.remote(0), ep.address()?);
    let clients: Vec<_> = (1..=CLIENTS)
        .map(|name| {
            let server = server.clone();
            thread::spawn(move || draw(name, server, at, to))
        })
        .collect();
    for client in clients {
        client.join().expect("a client panicked")?;
    }
    let board = board.into_buf();
    for name in 1..=CLIENTS {
        let places = board.iter().filter(|place| **place == name).count();
        println!("client {name} has {places} places");
        assert_eq!(places, EACH);
    }
    let mut drawn = [0; 8];
    counter.read(0, &mut drawn)?;
    println!("{} tickets were drawn", u64::from_ne_bytes(drawn));
    Ok(())
}
