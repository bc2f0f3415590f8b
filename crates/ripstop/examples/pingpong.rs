//! Measures the half round trip of tagged messages, in two processes or one.
//!
//! ```text
//! cargo run --release --example pingpong                      both sides in this process
//! cargo run --release --example pingpong -- server            prints its address
//! cargo run --release --example pingpong -- client ADDRESS
//! ```
//!
//! Options, on either side: `--sync` (the default; each side drives its own domain), `--tokio`
//! (futures on tokio, woken by the library's thread), `--tokio-loop` (futures and progress in
//! tokio's event loop), and `--interface NAME`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ripstop::{Address, Domain, Driver, Endpoint, Hints, Peer, Progress, Source, Turn};
use tokio::io::unix::AsyncFd;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes and rounds.
const PLAN: [(usize, u32); 6] = [
    (0, 20_000),
    (8, 20_000),
    (1 << 10, 20_000),
    (64 << 10, 2_000),
    (1 << 20, 400),
    (4 << 20, 100),
];
const WARM_UP: u32 = 50;
const PING: u64 = 1;
const PONG: u64 = 2;

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Sync,
    Tokio,
    TokioLoop,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Server,
    Client,
}

struct Side {
    endpoint: Endpoint,
    peer: Peer,
    role: Role,
}

fn main() -> Result<()> {
    let (mut style, mut interface, mut words) = (Style::Sync, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--sync" => style = Style::Sync,
            "--tokio" => style = Style::Tokio,
            "--tokio-loop" => style = Style::TokioLoop,
            "--interface" => interface = arguments.next(),
            _ => words.push(argument),
        }
    }
    let open = || open(style, interface.as_deref());
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let (server, client) = (open()?.endpoint()?, open()?.endpoint()?);
            let address = server.address()?;
            std::thread::scope(|scope| {
                let serving = scope.spawn(|| serve(style, server));
                call(style, client, address)?;
                serving.join().map_err(|_| "the server panicked")?
            })
        }
        ["server"] => {
            let server = open()?.endpoint()?;
            println!("pingpong client {}", server.address()?);
            serve(style, server)
        }
        ["client", address] => call(style, open()?.endpoint()?, address.parse()?),
        _ => Err(
            "usage: pingpong [server | client ADDRESS] [--sync | --tokio | --tokio-loop] \
                  [--interface NAME]"
                .into(),
        ),
    }
}

fn open(style: Style, interface: Option<&str>) -> Result<Domain> {
    let hints = match interface {
        Some(name) => Hints::rdm().interface(name),
        None => Hints::rdm().source(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
    };
    let hints = match style {
        Style::Sync | Style::TokioLoop => hints.progress(Progress::Manual),
        Style::Tokio => hints.progress(Progress::Background),
    };
    Ok(hints.open()?)
}

/// Waits for a client, whose address comes with its first message.
fn serve(style: Style, endpoint: Endpoint) -> Result<()> {
    let (hello, _) = endpoint.recv(vec![0; 5], None).wait();
    let Source::Address(address) = hello?.source else {
        return Err("the first message should come from a stranger".into());
    };
    let peer = endpoint.domain().insert(address)?;
    let role = Role::Server;
    run(
        style,
        &Side {
            endpoint,
            peer,
            role,
        },
    )
}

fn call(style: Style, endpoint: Endpoint, server: Address) -> Result<()> {
    let peer = endpoint.domain().insert(server)?;
    endpoint.send(b"hello".to_vec(), peer).wait().0?;
    let role = Role::Client;
    run(
        style,
        &Side {
            endpoint,
            peer,
            role,
        },
    )
}

fn run(style: Style, side: &Side) -> Result<()> {
    if side.role == Role::Client {
        println!("{:>9} {:>14} {:>10}", "bytes", "half round us", "MB/s");
    }
    if style == Style::Sync {
        return run_sync(side);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        if style == Style::TokioLoop {
            tokio::spawn(drive(side.endpoint.domain()));
        }
        run_async(side).await
    })
}

/// Threads: each call waits.
fn run_sync(side: &Side) -> Result<()> {
    let Side {
        endpoint,
        peer,
        role,
    } = side;
    for (size, rounds) in PLAN {
        let (mut ball, mut glove) = (vec![1; size], vec![0; size]);
        let mut start = Instant::now();
        for round in 0..WARM_UP + rounds {
            if round == WARM_UP {
                start = Instant::now();
            }
            let mine = if *role == Role::Client { PONG } else { PING };
            let receive = endpoint.trecv(glove, mine, 0, *peer);
            if *role == Role::Client {
                let (sent, buf) = endpoint.tsend(ball, PING, *peer).wait();
                sent?;
                ball = buf;
            }
            let (received, buf) = receive.wait();
            received?;
            glove = buf;
            if *role == Role::Server {
                let (sent, buf) = endpoint.tsend(ball, PONG, *peer).wait();
                sent?;
                ball = buf;
            }
        }
        report(*role, size, rounds, start.elapsed());
    }
    Ok(())
}

/// Futures: the same, awaited.
async fn run_async(side: &Side) -> Result<()> {
    let Side {
        endpoint,
        peer,
        role,
    } = side;
    for (size, rounds) in PLAN {
        let (mut ball, mut glove) = (vec![1; size], vec![0; size]);
        let mut start = Instant::now();
        for round in 0..WARM_UP + rounds {
            if round == WARM_UP {
                start = Instant::now();
            }
            let mine = if *role == Role::Client { PONG } else { PING };
            let receive = endpoint.trecv(glove, mine, 0, *peer);
            if *role == Role::Client {
                let (sent, buf) = endpoint.tsend(ball, PING, *peer).await;
                sent?;
                ball = buf;
            }
            let (received, buf) = receive.await;
            received?;
            glove = buf;
            if *role == Role::Server {
                let (sent, buf) = endpoint.tsend(ball, PONG, *peer).await;
                sent?;
                ball = buf;
            }
        }
        report(*role, size, rounds, start.elapsed());
    }
    Ok(())
}

/// Progress in tokio's event loop: a turn whenever the descriptor is readable.
#[expect(
    deprecated,
    reason = "`register`, which follows `new`, asks for a promise in `unsafe` that a driver keeps"
)]
async fn drive(domain: Domain) -> std::io::Result<()> {
    let driver = AsyncFd::<Driver>::new(domain.driver())?;
    loop {
        let mut ready = driver.readable().await?;
        if driver.get_ref().turn() == Turn::Idle {
            ready.clear_ready();
        }
    }
}

fn report(role: Role, size: usize, rounds: u32, time: Duration) {
    if role == Role::Client {
        let half = time.as_secs_f64() / f64::from(rounds) / 2.0;
        let rate = size as f64 / half / 1e6;
        println!("{size:>9} {:>14.2} {rate:>10.1}", half * 1e6);
    }
}
