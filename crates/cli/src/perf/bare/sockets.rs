//! A plain program over loopback: one connection, `TCP_NODELAY`, reads that never block, polled.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use anyhow::{Context as _, Result, bail};
use rustix::net::sockopt::set_tcp_congestion;

use super::{Bare, Wait};
use crate::perf::protocol::{Kind, Side, Test};

/// Bytes of one write or read at most: what is written in one call is read out of the caches.
const PIECE: usize = 256 << 10;

/// Congestion control between processes of one machine, as the tcp provider has it there: with `bbr`
/// a stream over loopback is slower and differs from run to run.
const CONGESTION: &str = "reno";

/// One end of a connection.
pub(in crate::perf) struct Sockets {
    side: Side,
    listener: TcpListener,
    stream: Option<TcpStream>,
    from: Vec<u8>,
    into: Vec<u8>,
}

impl Sockets {
    pub(in crate::perf) fn new(side: Side, largest: usize) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a socket")?;
        Ok(Self {
            side,
            listener,
            stream: None,
            from: vec![1; largest],
            into: vec![2; largest],
        })
    }

    /// Sends and receives so many messages of a size at once.
    fn flow(&mut self, size: usize, out: u32, back: u32) -> Result<()> {
        let Some(stream) = &mut self.stream else {
            bail!("not connected");
        };
        let (mut out, mut back) = (Way::new(size, out), Way::new(size, back));
        let mut wait = Wait::default();
        while !(out.over() && back.over()) {
            let mut moved = 0;
            if !out.over() {
                moved += now(stream.write(&self.from[out.piece()]))?;
                out.advance(moved);
            }
            if !back.over() {
                let read = stream.read(&mut self.into[back.piece()]);
                if let Ok(0) = read {
                    bail!("the other process is gone");
                }
                let read = now(read)?;
                back.advance(read);
                moved += read;
            }
            if moved == 0 {
                wait.turn()?;
            } else {
                wait = Wait::default();
            }
        }
        Ok(())
    }
}

/// The bytes that a call has moved, none where it would have blocked.
fn now(moved: std::io::Result<usize>) -> Result<usize> {
    match moved {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        moved => moved.context("a socket"),
    }
}

/// Messages one way.
struct Way {
    size: usize,
    left: u32,
    /// Bytes of the message at hand that have gone.
    gone: usize,
}

impl Way {
    fn new(size: usize, left: u32) -> Self {
        Self {
            size,
            left,
            gone: 0,
        }
    }

    fn over(&self) -> bool {
        self.left == 0
    }

    /// What goes next of a message.
    fn piece(&self) -> std::ops::Range<usize> {
        self.gone..self.size.min(self.gone + PIECE)
    }

    fn advance(&mut self, bytes: usize) {
        self.gone += bytes;
        if self.gone == self.size {
            (self.gone, self.left) = (0, self.left - 1);
        }
    }
}

impl Bare for Sockets {
    fn address(&self) -> Result<Vec<u8>> {
        let address = self.listener.local_addr().context("getsockname")?;
        Ok(address.to_string().into_bytes())
    }

    fn meet(&mut self, peer: &[u8]) -> Result<()> {
        let stream = match self.side {
            Side::Client => {
                let peer: SocketAddr = std::str::from_utf8(peer)?.parse()?;
                TcpStream::connect(peer).context("connect")?
            }
            Side::Server => self.listener.accept().context("accept")?.0,
        };
        stream.set_nodelay(true)?;
        // Where it is not allowed, the system's own choice remains.
        let _ = set_tcp_congestion(&stream, CONGESTION);
        stream.set_nonblocking(true)?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Writes and reads of remote memory are a stream: there is nothing else that sockets can do.
    fn exchange(&mut self, side: Side, test: Test, count: u32) -> Result<bool> {
        let size = test.size;
        match (test.kind, side) {
            (Kind::Latency, Side::Client) => {
                for _ in 0..count {
                    self.flow(size, 1, 0)?;
                    self.flow(size, 0, 1)?;
                }
            }
            (Kind::Latency, Side::Server) => {
                for _ in 0..count {
                    self.flow(size, 0, 1)?;
                    self.flow(size, 1, 0)?;
                }
            }
            (Kind::Exchange, _) => {
                for _ in 0..count {
                    self.flow(size, 1, 1)?;
                }
            }
            // One more byte says that all has come.
            (Kind::Stream | Kind::Write | Kind::Read, Side::Client) => {
                self.flow(size, count, 0)?;
                self.flow(1, 0, 1)?;
            }
            (Kind::Stream | Kind::Write | Kind::Read, Side::Server) => {
                self.flow(size, 0, count)?;
                self.flow(1, 1, 0)?;
            }
            (Kind::StreamBoth | Kind::WriteBoth | Kind::ReadBoth, _) => {
                self.flow(size, count, count)?;
                self.flow(1, 1, 1)?;
            }
            (Kind::Gather | Kind::Barrier | Kind::Allreduce | Kind::Insert, _) => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::take;
    use super::*;

    #[test]
    fn every_kind_ends_on_both_sides() {
        let mut client = Sockets::new(Side::Client, 300_000).expect("a socket");
        let mut server = Sockets::new(Side::Server, 300_000).expect("a socket");
        let (to, back) = (server.address(), client.address());
        let both = [
            Kind::Latency,
            Kind::Exchange,
            Kind::Stream,
            Kind::StreamBoth,
            Kind::ReadBoth,
        ];
        let tests = both
            .into_iter()
            .flat_map(|kind| [1, 300_000].map(|size| Test::new(kind, size, 32)));
        let tests: Vec<Test> = tests.collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                server.meet(&back.expect("bound")).expect("a client");
                for &test in &tests {
                    take(&mut server, Side::Server, test).expect("served");
                }
            });
            client.meet(&to.expect("bound")).expect("a server");
            for &test in &tests {
                let took = take(&mut client, Side::Client, test).expect("a sample");
                assert!(!took.is_zero(), "{test:?}");
            }
        });
        assert!(client.into.iter().all(|&byte| byte == 1), "all has come");
    }
}
