//! Two programs exchange messages, match tags, and write and read each other's memory, over an RDMA device; what arrives is
//! checked.
//!
//! ```text
//! cargo run --release -p ripstop --features verbs --example rdma_pair -- server            prints its address
//! cargo run --release -p ripstop --features verbs --example rdma_pair -- client ADDRESS
//! ```
//!
//! Options, on both sides: `--interface NAME` (the device, such as `mlx5_0` or `rxe0`) and `--provider NAME`, which is
//! `verbs;ofi_rxm` unless it is said; with `tcp` or `shm` the same goes without a device.
//!
//! A device is made of any network card by `rdma link add rxe0 type rxe netdev eth0`.

use std::process::ExitCode;

use ripstop::{Access, Address, Domain, Endpoint, Hints, Peer, Region, Remote};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Messages in one packet, in several, and such that the receiver's device reads.
const SIZES: [usize; 4] = [0, 64, 20_000, 1 << 20];

/// The tags of messages, from 0 on: one for each of [`SIZES`] that is not empty.
const TAGS: u64 = 3;

/// Bytes of the memory that the server lets the client reach.
const MEMORY: usize = 1 << 20;

/// Where the client writes in it, how much, and the message that says so.
const WRITTEN_AT: usize = 4097;
const WRITTEN: usize = 500_001;
const IS_WRITTEN: u64 = 1 << 40;

/// The server's answer: there is something else to read now.
const IS_CHANGED: u64 = IS_WRITTEN + 1;

/// The client has read that.
const IS_READ: u64 = IS_WRITTEN + 2;

/// Bytes that differ from message to message.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 31 + seed * 7 + at / 251) as u8)
        .collect()
}

/// The message that is sent with this tag, one of [`TAGS`].
fn tagged(tag: u64) -> Vec<u8> {
    pattern(SIZES[tag as usize + 1], tag as usize)
}

fn check(what: &str, got: &[u8], expected: &[u8]) -> Result<()> {
    match got == expected {
        true => Ok(()),
        false => Err(format!(
            "{what}: {} bytes have arrived, and not the right ones",
            got.len()
        )
        .into()),
    }
}

/// An endpoint and its peer.
struct Side {
    ep: Endpoint,
    peer: Peer,
}

impl Side {
    fn send(&self, bytes: Vec<u8>) -> Result<()> {
        self.ep.send(bytes, self.peer).wait().0?;
        Ok(())
    }

    fn tsend(&self, bytes: Vec<u8>, tag: u64) -> Result<()> {
        self.ep.tsend(bytes, tag, self.peer).wait().0?;
        Ok(())
    }

    fn recv(&self, most: usize) -> Result<Vec<u8>> {
        let (received, mut buf) = self.ep.recv(vec![0; most], self.peer).wait();
        buf.truncate(received?.len);
        Ok(buf)
    }

    fn trecv(&self, most: usize, tag: u64) -> Result<Vec<u8>> {
        let (received, mut buf) = self.ep.trecv(vec![0; most], tag, 0, self.peer).wait();
        buf.truncate(received?.len);
        Ok(buf)
    }

    /// Receives the message of this tag, and checks it.
    fn recv_tagged(&self, what: &str, tag: u64) -> Result<Vec<u8>> {
        let got = self.trecv(MEMORY, tag)?;
        check(what, &got, &tagged(tag))?;
        Ok(got)
    }
}

/// Waits for a client, which says its address first, and serves it.
fn serve(domain: &Domain) -> Result<()> {
    let ep = domain.endpoint()?;
    println!("rdma_pair: the other side: client {}", ep.address()?);
    let (hello, buf) = ep.recv(vec![0; 200], None).wait();
    let address = std::str::from_utf8(&buf[..hello?.len])?.parse::<Address>()?;
    println!("rdma_pair: the client is {address}");
    let peer = domain.insert(address)?;
    let side = Side { ep, peer };
    let memory = domain.register(vec![0; MEMORY], Access::ALL)?;
    let Remote { addr, key } = memory.remote(0);
    side.send([addr.to_ne_bytes(), key.to_ne_bytes()].concat())?;
    for (seed, size) in SIZES.into_iter().enumerate() {
        let got = side.recv(size + 1)?;
        check("a message", &got, &pattern(size, seed))?;
        side.send(got)?;
    }
    // By their tags, and not in the order in which they were sent.
    for tag in 0..TAGS {
        side.tsend(side.recv_tagged("a tagged message", tag)?, tag)?;
    }
    share(&side, &memory)?;
    println!("rdma_pair: all right");
    Ok(())
}

/// The client writes to this memory, and reads from it.
fn share(side: &Side, memory: &Region<Vec<u8>>) -> Result<()> {
    side.trecv(0, IS_WRITTEN)?;
    let mut all = vec![0; MEMORY];
    memory.read(0, &mut all)?;
    let mut expected = vec![0; MEMORY];
    expected[WRITTEN_AT..WRITTEN_AT + WRITTEN].copy_from_slice(&pattern(WRITTEN, 11));
    check("memory that was written", &all, &expected)?;
    memory.write(0, &pattern(MEMORY, 12))?;
    side.tsend(Vec::new(), IS_CHANGED)?;
    side.trecv(0, IS_READ)?;
    Ok(())
}

fn call(domain: &Domain, server: Address) -> Result<()> {
    let ep = domain.endpoint()?;
    let peer = domain.insert(server)?;
    let own = ep.address()?.to_string();
    let side = Side { ep, peer };
    side.send(own.into_bytes())?;
    let told = side.recv(16)?;
    let (addr, key) = told
        .split_at_checked(8)
        .ok_or("the server has said no address")?;
    let memory = Remote {
        addr: u64::from_ne_bytes(addr.try_into()?),
        key: u64::from_ne_bytes(key.try_into()?),
    };
    for (seed, size) in SIZES.into_iter().enumerate() {
        side.send(pattern(size, seed))?;
        check("an echo", &side.recv(size + 1)?, &pattern(size, seed))?;
        println!("rdma_pair: a message of {size} bytes went there and back");
    }
    for tag in [2, 0, 1] {
        // Not awaited: the server takes another one first.
        drop(side.ep.tsend(tagged(tag), tag, side.peer));
    }
    for tag in 0..TAGS {
        side.recv_tagged("a tagged echo", tag)?;
    }
    println!("rdma_pair: tagged messages found their receives");
    reach(&side, memory)?;
    println!("rdma_pair: all right");
    Ok(())
}

/// Writes to the server's memory, and reads from it.
fn reach(side: &Side, memory: Remote) -> Result<()> {
    let at = memory.offset(WRITTEN_AT as u64);
    side.ep
        .write(pattern(WRITTEN, 11), side.peer, at)
        .wait()
        .0?;
    side.tsend(Vec::new(), IS_WRITTEN)?;
    println!("rdma_pair: {WRITTEN} bytes were written to the server's memory");
    side.trecv(0, IS_CHANGED)?;
    let (read, buf) = side.ep.read(vec![0; MEMORY], side.peer, memory).wait();
    read?;
    check("memory that was read", &buf, &pattern(MEMORY, 12))?;
    println!("rdma_pair: {MEMORY} bytes were read from there");
    side.tsend(Vec::new(), IS_READ)
}

fn open(provider: &str, interface: Option<&str>) -> Result<Domain> {
    let hints = Hints::rdm().rma().provider(provider);
    let hints = match interface {
        Some(name) => hints.interface(name),
        None => hints,
    };
    let domain = hints.open()?;
    let info = domain.info();
    let name = info.domain.name.as_deref().unwrap_or_default();
    println!("rdma_pair: provider {}, domain {name}", info.prov_name());
    Ok(domain)
}

fn run() -> Result<()> {
    let (mut provider, mut interface, mut words) = ("verbs;ofi_rxm".to_owned(), None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--provider" => provider = arguments.next().ok_or("--provider NAME")?,
            "--interface" => interface = Some(arguments.next().ok_or("--interface NAME")?),
            _ => words.push(argument),
        }
    }
    let open = || open(&provider, interface.as_deref());
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => serve(&open()?),
        ["client", address] => call(&open()?, address.parse()?),
        _ => Err(
            "usage: rdma_pair server | client ADDRESS  [--interface NAME] [--provider NAME]".into(),
        ),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where there is no device, this says what to do next.
            eprintln!("rdma_pair: {error}");
            ExitCode::FAILURE
        }
    }
}
