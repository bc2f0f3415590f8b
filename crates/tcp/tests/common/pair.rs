//! Two RDM endpoints that know each other.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_core::provider::{
    AddressVector, AvAttr, CompletionQueue, CqAttr, Domain, Endpoint, Provider,
};
use ripstop_core::registry::ProviderInfo;
use ripstop_core::{Address, FidToken, Info};
use ripstop_types::{Completion, EpType, Errno, FiAddr, Flags, Progress, Threading, WaitObj};
use ripstop_wire::xnet::cm::{HEADER_LEN, Header, Kind};

use crate::common;

/// Only what hangs takes longer, also on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An interface of reliable datagrams with manual progress, and its fabric.
pub(crate) fn rdm<P: Provider + ProviderInfo>(
    provider: &P,
    threading: Threading,
) -> (Info, Arc<P::Fabric>) {
    let caps = Flags::MSG | Flags::TAGGED | Flags::SOURCE | Flags::DIRECTED_RECV;
    let hints = common::hints(EpType::Rdm, caps, threading, Progress::Manual);
    crate::fabric(provider, &hints)
}

/// An endpoint, and what it goes by.
pub(crate) struct End<D: Domain> {
    pub(crate) ep: Arc<D::Endpoint>,
    pub(crate) cq: Arc<D::Cq>,
    pub(crate) av: Arc<D::Av>,
    pub(crate) peer: FiAddr,
}

/// An endpoint that knows nobody; `bind` is what else is bound before it is enabled.
pub(crate) fn open_with<D: Domain>(
    domain: &Arc<D>,
    info: &Info,
    bind: impl FnOnce(&D::Endpoint),
) -> End<D> {
    let cq = domain
        .cq(&CqAttr {
            wait: WaitObj::Unspec,
            ..CqAttr::default()
        })
        .unwrap();
    let av = domain.av(&AvAttr::default()).unwrap();
    let ep = domain.endpoint(info, FidToken(0)).unwrap();
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
    ep.bind_av(&av).unwrap();
    bind(&ep);
    ep.enable().unwrap();
    End {
        ep,
        cq,
        av,
        peer: FiAddr::UNSPEC,
    }
}

/// The same with nothing else.
pub(crate) fn open<D: Domain>(domain: &Arc<D>, info: &Info) -> End<D> {
    open_with(domain, info, |_| ())
}

impl<D: Domain> End<D> {
    /// Its next completion. Reading drives all of its domain, but not another domain.
    pub(crate) fn next(&self) -> Completion {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut found = None;
            match self.cq.read(1, |c| found = Some(*c)) {
                Ok(_) => return found.unwrap(),
                Err(Errno::EAGAIN) => {}
                Err(Errno::EAVAIL) => {
                    self.cq
                        .read_error(|error, _| panic!("error entry {error:?}"))
                        .unwrap();
                }
                Err(error) => panic!("{error:?}"),
            }
            assert!(Instant::now() < end, "no completion");
        }
    }

    /// The socket of a process that has asked it for a connection with this data, and what came back.
    pub(crate) fn dialled(&self, data: &[u8]) -> (TcpStream, Kind, Vec<u8>) {
        let Address::Ip(to) = self.ep.name().unwrap() else {
            panic!("no address of a socket");
        };
        let mut stream = TcpStream::connect(to).unwrap();
        let request = Header::new(Kind::Request, data).unwrap().emit().unwrap();
        stream.write_all(&[&request[..], data].concat()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let end = Instant::now() + PATIENCE;
        let mut came = Vec::new();
        loop {
            let mut bytes = [0; 100];
            match stream.read(&mut bytes) {
                Ok(0) => panic!("closed without an answer"),
                Ok(count) => came.extend_from_slice(&bytes[..count]),
                Err(_) => _ = self.cq.read(1, |_| ()),
            }
            if let Ok(header) = Header::parse(&came)
                && came.len() == HEADER_LEN + usize::from(header.data_len)
            {
                return (stream, header.kind, came.split_off(HEADER_LEN));
            }
            assert!(Instant::now() < end, "no answer");
        }
    }

    /// Each gets to know the other.
    pub(crate) fn meet(&mut self, other: &mut Self) {
        self.peer = self.av.insert(&other.ep.name().unwrap()).unwrap();
        other.peer = other.av.insert(&self.ep.name().unwrap()).unwrap();
    }
}
