//! The plain TCP connection over which client and server agree, as libfabric's tool speaks it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{
    Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _,
};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ripstop_core::Address;
use ripstop_types::AddrFormat;
use socket2::{Domain, Protocol, Socket, Type};

use super::args::Args;

/// The port when none is given.
const PORT: u16 = 47592;
/// How long one side waits for the other.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of an address.
const MAX_ADDRESS: usize = 1024;
/// Bytes of a count: digits, then zeroes.
const COUNT: usize = 10;

/// The connection to the other side.
pub(super) struct Control {
    stream: TcpStream,
    /// For messages to the user.
    pub(super) peer: SocketAddr,
}

impl Control {
    /// Connects to the server that the options name.
    ///
    /// # Errors
    /// When its name does not resolve or it cannot be reached.
    pub(super) fn connect(server: &str, args: &Args) -> Result<Self> {
        let port = args.dst_port.unwrap_or(PORT);
        let (family, other) = match args.ipv6 {
            true => ("IPv6", "leave out -6"),
            false => ("IPv4", "use -6 for IPv6"),
        };
        let found = (server, port).to_socket_addrs();
        let found =
            found.with_context(|| format!("the server's name {server} does not resolve"))?;
        let mut last = None;
        for addr in found.filter(|addr| addr.is_ipv6() == args.ipv6) {
            match connect(addr, args.src_port) {
                Ok(stream) => return Self::new(stream),
                Err(error) => last = Some((addr, error)),
            }
        }
        let (addr, error) = last
            .with_context(|| format!("{server} has no {family} address: give one, or {other}"))?;
        bail!(
            "cannot reach a server at {addr}: {error}; start fi_pingpong there first, with the \
               same options and -B {port}"
        )
    }

    /// Waits for a client.
    ///
    /// # Errors
    /// When the port is taken.
    pub(super) fn accept(args: &Args) -> Result<Self> {
        let port = args.src_port.unwrap_or(PORT);
        let any = any(args.ipv6, port);
        // The standard library sets SO_REUSEADDR.
        let listener = TcpListener::bind(any)
            .with_context(|| format!("cannot listen on port {port}: choose another one with -B"))?;
        let (stream, _) = listener.accept().context("accept")?;
        Self::new(stream)
    }

    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let peer = stream.peer_addr()?;
        Ok(Self { stream, peer })
    }

    /// Whether the other side has closed the connection.
    pub(super) fn is_gone(&self) -> bool {
        match self.stream.peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => !is_pending(&error),
        }
    }

    /// Says that nothing more will be sent.
    pub(super) fn finish(&self) {
        // The other side may be gone already, which is as good.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let start = Instant::now();
        let mut left = bytes;
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if is_pending(&error) && start.elapsed() < PATIENCE => {}
                Err(error) => return Err(error).with_context(|| self.lost()),
            }
        }
        Ok(())
    }

    /// Fills `into`, and calls `meanwhile` while there is nothing.
    fn recv(&mut self, into: &mut [u8], meanwhile: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        let mut filled = 0;
        while filled < into.len() {
            match self.stream.read(&mut into[filled..]) {
                Ok(0) => bail!("{}: it closed the connection", self.lost()),
                Ok(count) => filled += count,
                Err(error) if is_pending(&error) => {
                    let patience = PATIENCE.as_secs();
                    ensure!(
                        start.elapsed() < PATIENCE,
                        "{}: it said nothing for {patience} s",
                        self.lost()
                    );
                    meanwhile()?;
                    std::thread::yield_now();
                }
                Err(error) => return Err(error).with_context(|| self.lost()),
            }
        }
        Ok(())
    }

    fn lost(&self) -> String {
        format!("lost the fi_pingpong at {}", self.peer)
    }

    /// Tells the other side an address: its length, its format and its bytes.
    ///
    /// # Errors
    /// When the connection breaks.
    pub(super) fn send_address(&mut self, address: &Address) -> Result<()> {
        let bytes = address.to_bytes();
        let length = u32::try_from(bytes.len())?;
        let mut message = length.to_be_bytes().to_vec();
        // In the sender's own byte order.
        message.extend(address.format().raw().to_ne_bytes());
        message.extend(bytes);
        self.send(&message)
    }

    /// Learns the other side's address.
    ///
    /// # Errors
    /// When the connection breaks, or it is no address.
    pub(super) fn recv_address(&mut self) -> Result<Address> {
        let (mut length, mut format) = ([0; 4], [0; 4]);
        self.recv(&mut length, &mut || Ok(()))?;
        self.recv(&mut format, &mut || Ok(()))?;
        let length = u32::from_be_bytes(length) as usize;
        let format = u32::from_ne_bytes(format);
        ensure!(
            length <= MAX_ADDRESS,
            "{} sends an address of {length} bytes: is it a fi_pingpong?",
            self.peer
        );
        let mut bytes = vec![0; length];
        self.recv(&mut bytes, &mut || Ok(()))?;
        let advice = || {
            format!(
                "{} sends an address of format {format}: give both sides the same -p",
                self.peer
            )
        };
        let format = AddrFormat::from_raw(format).with_context(advice)?;
        Address::from_bytes(format, &bytes).with_context(advice)
    }

    /// Waits until both sides are ready for the next size.
    ///
    /// # Errors
    /// When the connection breaks, or the other side says something else.
    pub(super) fn sync(
        &mut self,
        client: bool,
        meanwhile: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        if client {
            self.send(b"q\0")?;
            self.expect(b"a\0", meanwhile)
        } else {
            self.expect(b"q\0", meanwhile)?;
            self.send(b"a\0")
        }
    }

    /// Agrees on how many messages the client has received; gives the client's number.
    ///
    /// # Errors
    /// As for [`sync`](Self::sync).
    pub(super) fn count(
        &mut self,
        client: bool,
        received: u64,
        meanwhile: &mut dyn FnMut() -> Result<()>,
    ) -> Result<u64> {
        if client {
            let mut text = received.to_string().into_bytes();
            text.resize(COUNT, 0);
            self.send(&text)?;
            self.expect(b"cnt ok\0", meanwhile)?;
            return Ok(received);
        }
        let mut text = [0; COUNT];
        self.recv(&mut text, meanwhile)?;
        let digits = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let count = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok());
        let count =
            count.with_context(|| format!("{} sends a count that is no number", self.peer))?;
        self.send(b"cnt ok\0")?;
        Ok(count)
    }

    fn expect(&mut self, word: &[u8], meanwhile: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let mut said = vec![0; word.len()];
        self.recv(&mut said, meanwhile)?;
        ensure!(
            said == word,
            "{} says {:?} instead of {:?}: give both sides the same options",
            self.peer,
            String::from_utf8_lossy(&said),
            String::from_utf8_lossy(word)
        );
        Ok(())
    }
}

/// Whether the call may succeed later.
fn is_pending(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Every local address, with this port.
fn any(ipv6: bool, port: u16) -> SocketAddr {
    match ipv6 {
        true => (Ipv6Addr::UNSPECIFIED, port).into(),
        false => (Ipv4Addr::UNSPECIFIED, port).into(),
    }
}

/// Connects, from a port of one's own if one is given.
fn connect(to: SocketAddr, port: Option<u16>) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(port) = port {
        socket.set_reuse_address(true)?;
        socket.bind(&any(to.is_ipv6(), port).into())?;
    }
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Control, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let addr = listener.local_addr().expect("an address");
        let other = TcpStream::connect(addr).expect("a listener");
        let control = Control::new(listener.accept().expect("a connection").0);
        (control.expect("a socket"), other)
    }

    fn idle() -> Result<()> {
        Ok(())
    }

    #[test]
    fn an_address_has_length_format_and_bytes() {
        let (mut control, mut other) = pair();
        let address: Address = "fi_sockaddr_in://127.0.0.1:258"
            .parse()
            .expect("an address");
        control.send_address(&address).expect("sent");
        let mut bytes = [0; 24];
        other.read_exact(&mut bytes).expect("received");
        assert_eq!(bytes[..8], [[0, 0, 0, 16], 2_u32.to_ne_bytes()].concat());
        assert_eq!(bytes[8..16], [2, 0, 1, 2, 127, 0, 0, 1]);
        other.write_all(&bytes).expect("sent");
        assert_eq!(control.recv_address().expect("received"), address);
    }

    #[test]
    fn words_are_those_of_libfabric() {
        let (mut control, mut other) = pair();
        other.write_all(b"a\0cnt ok\0").expect("sent");
        control.sync(true, &mut idle).expect("synced");
        assert_eq!(control.count(true, 12, &mut idle).expect("counted"), 12);
        let mut said = [0; 12];
        other.read_exact(&mut said).expect("received");
        assert_eq!(&said, b"q\x0012\0\0\0\0\0\0\0\0");
        other.write_all(b"q\x007\0\0\0\0\0\0\0\0\0").expect("sent");
        control.sync(false, &mut idle).expect("synced");
        assert_eq!(control.count(false, 0, &mut idle).expect("counted"), 7);
    }

    #[test]
    fn nonsense_ends_with_advice() {
        for (bytes, advice) in [
            (&[0xff; 8][..], "is it a fi_pingpong?"),
            (&[0, 0, 0, 1, 0, 0, 0, 99, 5], "the same -p"),
            (&[0, 0, 0, 3, 2, 0, 0, 0, 5, 5, 5], "the same -p"),
            (&[0, 0], "closed the connection"),
        ] {
            let (mut control, mut other) = pair();
            other.write_all(bytes).expect("sent");
            drop(other);
            let error = control.recv_address().expect_err("nonsense");
            assert!(format!("{error:#}").contains(advice), "{error:#}");
        }
        let (mut control, mut other) = pair();
        other.write_all(b"x\0").expect("sent");
        let error = control.sync(true, &mut idle).expect_err("nonsense");
        assert!(error.to_string().contains("the same options"), "{error}");
    }

    #[test]
    fn a_closed_connection_is_seen() {
        let (control, other) = pair();
        assert!(!control.is_gone());
        drop(other);
        let start = Instant::now();
        while !control.is_gone() {
            assert!(start.elapsed() < PATIENCE);
        }
    }
}
