//! The virtual network as a transport of the shipped driver.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ripstop_os::{Connect, IoVec, IoVecMut, Shutdown, Spare};
use ripstop_stream::{
    ConnectionBound, EpollOnly, HandshakeError, Link, Listener, Origin, PacketTerms, ReadBy,
    System as _, Transport, Tunables, xnet,
};
use ripstop_types::{Errno, Result};
use ripstop_wire::xnet::rdm::Greeting;

use crate::network::{End, Source};
use crate::system::{Named, Net, Virtual};

/// The virtual network.
#[derive(Debug)]
pub struct Sim;

/// What a process on it is like.
#[derive(Debug)]
pub struct Params {
    pub(crate) net: Net,
    /// Its id, which no other has or had.
    pub(crate) pid: u32,
    pub(crate) tunables: Tunables,
    /// Messages are in packets (`FI_PROTO_RXM`), of which one holds a message of so many bytes.
    pub(crate) packets: Option<u64>,
    /// Connections beyond which idle ones end, 0 for any number.
    pub(crate) max_connections: usize,
}

impl AsRef<Tunables> for Params {
    fn as_ref(&self) -> &Tunables {
        &self.tunables
    }
}

/// The address of an endpoint: hosts differ by their ports.
pub(crate) fn socket_addr(address: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, address).into()
}

impl Transport for Sim {
    const NAME: &'static str = "sim";
    const AFTER_READS: bool = false;
    type Params = Params;
    type Addr = SocketAddr;
    type Link = SimLink;
    type Listener = SimListener;
    type System = Virtual;
    type Readiness = EpollOnly;

    fn pid(params: &Params) -> u32 {
        params.pid
    }

    fn default_source(_: &Params) -> SocketAddr {
        socket_addr(0)
    }

    fn bind(params: &Params, addr: &SocketAddr) -> Result<SimListener> {
        params.net.lock().bind(addr.port())?;
        Ok(SimListener {
            named: Named::new(&params.net, Source::Listener(addr.port()))?,
            address: addr.port(),
        })
    }

    fn bind_contexts(params: &Params, addr: &SocketAddr, _: usize) -> Result<Vec<SimListener>> {
        Self::bind(params, addr).map(|listener| vec![listener])
    }

    fn connect(params: &Params, to: &SocketAddr, from: Origin<Self>) -> Result<(SimLink, Connect)> {
        let from = match from {
            Origin::Listening(at) => at.port(),
            Origin::Address(source) => source.map_or(0, |source| source.port()),
            Origin::Bound(listener) => listener.address,
        };
        let end = params.net.lock().connect(from, to.port());
        Ok((SimLink::new(&params.net, end)?, Connect::Connecting))
    }

    fn prepare(params: &Params, link: &SimLink, _: Option<u8>) -> Result<()> {
        link.takes_back.store(params.max_connections > 0, Relaxed);
        Ok(())
    }

    fn request_data(
        _: &Params,
        _: &mut EpollOnly,
        _: &SimLink,
        own: &SocketAddr,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        Ok(xnet::request_data(own, greeting))
    }

    fn read_request(
        _: &Params,
        _: &mut EpollOnly,
        _: &SimLink,
        from: &SocketAddr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, SocketAddr), HandshakeError> {
        xnet::read_request(from, data)
    }

    fn is_in_packets(params: &Params) -> bool {
        params.packets.is_some()
    }

    fn packets(params: &Params, _: &[u8]) -> Option<PacketTerms> {
        let eager_max = params.packets?;
        let number = 0;
        Some(PacketTerms {
            number,
            eager_max,
            // As a link that sends segments would be written to: the peer takes a packet of any length.
            segmented_max: eager_max.saturating_mul(2),
            announced: ReadBy::Stream,
            parts: true,
        })
    }

    fn connection_bound(params: &Params) -> Option<ConnectionBound> {
        (params.max_connections > 0).then_some(ConnectionBound {
            most: params.max_connections,
            idle: Duration::from_millis(100),
        })
    }
}

/// One end of a stream.
#[derive(Debug)]
pub struct SimLink {
    named: Named,
    end: End,
    /// Closing it takes back what has not arrived, as devices do.
    takes_back: AtomicBool,
    /// The handshake is over.
    started: AtomicBool,
    /// Writes and reads.
    activity: AtomicU64,
}

impl SimLink {
    fn new(net: &Net, end: End) -> Result<Self> {
        let named = Named::new(net, Source::Stream(end))?;
        Ok(Self {
            named,
            end,
            takes_back: AtomicBool::new(false),
            started: AtomicBool::new(false),
            activity: AtomicU64::new(0),
        })
    }

    /// Which.
    #[must_use]
    pub fn end(&self) -> End {
        self.end
    }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        let mut net = self.named.net.lock();
        if self.takes_back.load(Relaxed) && self.started.load(Relaxed) {
            net.take_back(self.end);
        }
        net.close(self.end);
    }
}

impl AsFd for SimLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.named.as_fd()
    }
}

impl Link for SimLink {
    type InPlace = ();
    type Direct = ();
    type Joint = ();
    type Registering = ();
    type Addr = SocketAddr;

    fn send(&self, bytes: &[u8]) -> Result<usize> {
        self.activity.fetch_add(1, Relaxed);
        self.named.net.lock().write(self.end, bytes)
    }

    fn sendv(&self, vecs: &[IoVec<'_>]) -> Result<usize> {
        let mut bytes = Vec::new();
        for vec in vecs {
            let at = bytes.len();
            bytes.resize(at + vec.len(), 0);
            vec.copy_to(&mut bytes[at..]);
        }
        self.send(&bytes)
    }

    fn recv(&self, bytes: &mut [u8]) -> Result<usize> {
        let read = self.named.net.lock().read(self.end, bytes);
        self.activity.fetch_add(u64::from(read.is_ok()), Relaxed);
        read
    }

    fn start(&self) {
        self.started.store(true, Relaxed);
    }

    fn activity(&self) -> u64 {
        self.activity.load(Relaxed)
    }

    fn recv_once(&self, bytes: &mut [u8]) -> Result<usize> {
        self.recv(bytes)
    }

    fn recvv(&self, vecs: &mut [IoVecMut<'_>]) -> Result<usize> {
        let room: usize = vecs.iter().map(IoVecMut::len).sum();
        let most = self.named.net.lock().readable(self.end);
        let mut bytes = vec![0; room.min(most)];
        let count = self.recv(&mut bytes)?;
        let mut rest = &bytes[..count];
        for vec in vecs {
            rest = &rest[vec.copy_from(rest)..];
        }
        Ok(count)
    }

    fn has_room(&self) -> bool {
        self.named.net.lock().has_room(self.end)
    }

    fn await_delivery(&self, end: Duration, scrap: &mut [u8]) {
        while self.named.net.lock().is_flying(self.end) && Virtual::now() < end {
            if !matches!(self.recv(scrap), Ok(1..)) {
                Virtual::sleep(Duration::from_millis(1));
            }
        }
        while matches!(self.recv(scrap), Ok(1..)) {}
    }

    fn shutdown(&self, _: Shutdown) -> Result<()> {
        self.named.net.lock().shut(self.end);
        Ok(())
    }

    fn take_error(&self) -> Result<()> {
        self.named.net.lock().is_connected(self.end).map(drop)
    }

    fn is_connected(&self) -> bool {
        self.named.net.lock().is_connected(self.end) == Ok(true)
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        Err(Errno::ENOSYS)
    }
}

/// Where streams arrive.
#[derive(Debug)]
pub struct SimListener {
    named: Named,
    address: u16,
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.named.net.lock().unbind(self.address);
    }
}

impl AsFd for SimListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.named.as_fd()
    }
}

impl Listener for SimListener {
    type Link = SimLink;
    type Addr = SocketAddr;

    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(socket_addr(self.address))
    }

    fn listen(&self, _: i32) -> Result<()> {
        self.named.net.lock().listen(self.address);
        Ok(())
    }

    fn accept(&self) -> Result<Option<(SimLink, SocketAddr)>> {
        let accepted = self.named.net.lock().accept(self.address);
        let link = accepted.map(|end| SimLink::new(&self.named.net, end));
        Ok(link.transpose()?.map(|link| (link, socket_addr(0))))
    }

    fn turn_away(&self, _: &mut Spare) -> Option<SocketAddr> {
        None
    }
}
