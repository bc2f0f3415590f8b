//! How a link becomes a connection: the messages of the handshake that a domain writes and reads
//! (`ripstop_wire::xnet::cm`) are the private data of `rdma_cm`'s.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::fi_info;
use ripstop_core::log::Subsys;
use ripstop_ibverbs::{CmEvent, CmEventKind, CmId, ConnParam};
use ripstop_stream::rxm;
use ripstop_types::{Errno, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::cm::{Answer, FlowControl, Request};
use ripstop_wire::xnet::cm::{HEADER_LEN, Header, Kind};

use crate::private_data;
use crate::rxm::NAME;
use crate::rxm::devices::device_of;
use crate::rxm::pipe::{Pipe, Shape};
use crate::watch::Watch;

/// How long looking for a peer's device may take, twice.
const RESOLVING: Duration = Duration::from_secs(2);

/// As many reads under way as both devices can.
const ALL: u8 = u8::MAX;

/// What is sent again is so up to seven times, and without end where the peer has no receive.
const RETRIES: u8 = 7;

/// How far it has come.
#[derive(Debug)]
pub(crate) enum Step {
    /// This side is to ask: nothing is known but the peer, and where from.
    Fresh(SocketAddr, Option<SocketAddr>),
    /// This side asks: the data of its request.
    Asking(Vec<u8>),
    /// The peer has asked.
    Asked,
    /// There is a queue pair, or was.
    Done,
}

fn param(data: &[u8]) -> ConnParam<'_> {
    ConnParam {
        data,
        responder_resources: ALL,
        initiator_depth: ALL,
        retries: RETRIES,
        rnr_retries: RETRIES,
    }
}

/// What a peer has said, as a message of the handshake, whose header has the extensions that the data names.
///
/// # Errors
/// [`Errno::EPROTO`] for more data than there can be.
pub(crate) fn message(kind: Kind, data: &[u8]) -> Result<Vec<u8>> {
    let data = private_data::parse(data);
    let emit = |header: Header| {
        Header {
            extensions: rxm::extensions(data),
            ..header
        }
        .emit()
    };
    let header = Header::new(kind, data).and_then(emit);
    let header = header.map_err(|error| error.errno())?;
    Ok([&header[..], data].concat())
}

/// What packets to the peer say, and whether it bounds what it is sent, by its request or answer. The domain
/// checks these as well, and refuses what is none.
fn agreed(data: &[u8]) -> (u64, bool) {
    let asked =
        Request::parse(ByteOrder::NATIVE, data).map(|said| (said.number, said.flow_control));
    let said = asked.or_else(|_| {
        Answer::parse(ByteOrder::NATIVE, data).map(|said| (said.number, said.flow_control))
    });
    match said {
        Ok((number, flow)) => (number.in_packets(), flow != FlowControl::Off),
        Err(_) => (0, true),
    }
}

/// A link from its first step to its end.
#[derive(Debug)]
pub(crate) struct Handshake {
    // The queue pair ends before its id.
    pub(crate) pipe: Option<Pipe>,
    shape: Shape,
    pub(crate) id: Arc<CmId>,
    pub(crate) step: Step,
    /// A message of the peer that is to be read.
    pub(crate) unread: Vec<u8>,
    /// What the peer has asked with.
    pub(crate) request: Vec<u8>,
    /// Why nothing comes of it.
    pub(crate) failed: Option<Errno>,
    /// The handshake is over: what is read are units.
    pub(crate) started: bool,
    stands: bool,
}

impl Handshake {
    /// A link that asks, or has been asked with this data of a request.
    pub(crate) fn new(id: Arc<CmId>, step: Step, request: &[u8], shape: Shape) -> Result<Self> {
        let unread = match step {
            Step::Asked => message(Kind::Request, request)?,
            _ => Vec::new(),
        };
        Ok(Self {
            pipe: None,
            shape,
            id,
            step,
            unread,
            request: private_data::parse(request).to_vec(),
            failed: None,
            started: false,
            stands: false,
        })
    }

    /// Writes a message of the handshake, whole.
    ///
    /// # Errors
    /// Of the devices: nothing comes of it.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        let (front, data) = bytes.split_at_checked(HEADER_LEN).ok_or(Errno::EINVAL)?;
        let header = Header::parse(front).map_err(|error| error.errno())?;
        let data = private_data::emit(data)?;
        match (&self.step, header.kind) {
            (&Step::Fresh(to, from), Kind::Request) => {
                self.id.resolve_addr(from.as_ref(), &to, RESOLVING)?;
                self.step = Step::Asking(data);
            }
            (Step::Asked, Kind::Response) => {
                let request = std::mem::take(&mut self.request);
                self.open_pipe()?.agree_by(&request);
                self.id.accept(&param(&data))?;
                self.step = Step::Done;
            }
            (Step::Asked, Kind::Reject) => {
                self.step = Step::Done;
                self.id.reject(&data)?;
            }
            _ => return Err(Errno::EOPBADSTATE),
        }
        Ok(bytes.len())
    }

    fn open_pipe(&mut self) -> Result<&mut Pipe> {
        let device = device_of(&self.id)?;
        let pipe = Pipe::open(&self.id, device, self.shape)?;
        Ok(self.pipe.insert(pipe))
    }

    /// Does what follows an event.
    pub(crate) fn handle(&mut self, event: &CmEvent) {
        let outcome = match event.kind {
            CmEventKind::AddrResolved => self.id.resolve_route(RESOLVING),
            CmEventKind::RouteResolved => self.connect(),
            CmEventKind::Established => self.stand(event),
            CmEventKind::Rejected if private_data::parse(&event.data).is_empty() => {
                Err(Errno::ECONNREFUSED)
            }
            CmEventKind::Rejected => self.told(Kind::Reject, event),
            CmEventKind::Disconnected => {
                self.end();
                Ok(())
            }
            CmEventKind::AddrError | CmEventKind::RouteError => Err(Errno::EHOSTUNREACH),
            CmEventKind::ConnectError | CmEventKind::Unreachable => Err(Errno::ETIMEDOUT),
            CmEventKind::DeviceRemoval => {
                self.lose_device();
                Err(Errno::ENODEV)
            }
            CmEventKind::AddrChange => Err(Errno::EADDRNOTAVAIL),
            CmEventKind::ConnectRequest | CmEventKind::TimewaitExit | CmEventKind::Other => Ok(()),
        };
        if let Err(error) = outcome {
            fi_info!(
                NAME,
                Subsys::EpCtrl,
                "no connection: {:?}, status {}: {error}",
                event.kind,
                event.status
            );
            self.failed = Some(error);
            if let Some(pipe) = &mut self.pipe {
                pipe.end();
            }
        }
    }

    /// The device of the link is being removed: all that are on it hear of that.
    fn lose_device(&self) {
        if let Some(pipe) = &self.pipe {
            pipe.lose_device();
        } else if let Some(watch) = Watch::of_id(&self.id) {
            watch.lose();
        }
    }

    fn told(&mut self, kind: Kind, event: &CmEvent) -> Result<()> {
        self.unread = message(kind, &event.data)?;
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        let Step::Asking(data) = std::mem::replace(&mut self.step, Step::Done) else {
            return Err(Errno::EPROTO);
        };
        self.open_pipe()?;
        self.id.connect(&param(&data))
    }

    fn stand(&mut self, event: &CmEvent) -> Result<()> {
        let data = private_data::parse(&event.data);
        let pipe = self.pipe.as_mut().ok_or(Errno::EPROTO)?;
        self.stands = true;
        if data.is_empty() {
            // The side that has accepted.
            pipe.stand();
            return Ok(());
        }
        pipe.agree_by(data);
        pipe.stand();
        self.told(Kind::Response, event)
    }

    fn end(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            // What came before it is there.
            pipe.poll();
            pipe.end();
        }
        self.failed.get_or_insert(Errno::ECONNRESET);
        self.disconnect();
    }

    /// Ends the connection, if there is one.
    pub(crate) fn disconnect(&mut self) {
        if std::mem::take(&mut self.stands)
            && let Err(error) = self.id.disconnect()
        {
            fi_info!(NAME, Subsys::EpCtrl, "disconnecting: {error}");
        }
    }
}

impl Pipe {
    fn agree_by(&mut self, data: &[u8]) {
        let (to, bounded) = agreed(data);
        self.agree(to, bounded);
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.disconnect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripstop_wire::rxm::cm::{EAGER_MAX, Extensions, Number};
    use ripstop_wire::xnet;

    #[test]
    fn what_the_peer_says_is_read_from_padded_private_data() {
        let number = Number { pid: 7, index: 9 };
        let request = Request {
            port: 4711,
            flow_control: FlowControl::Off,
            eager_max: EAGER_MAX,
            rx_size: 128,
            extensions: Extensions::all(),
            number,
        };
        let bytes = request.emit(ByteOrder::NATIVE).expect("fits");
        let mut sent = private_data::emit(&bytes).expect("short");
        sent.resize(56, 0);
        let read = message(Kind::Request, &sent).expect("a message");
        assert_eq!(&read[HEADER_LEN..], bytes);
        let header = Header::parse(&read).expect("a header");
        assert_eq!(
            (header.kind, usize::from(header.data_len)),
            (Kind::Request, bytes.len())
        );
        assert_eq!(header.data_order(), ByteOrder::NATIVE);
        assert_eq!(header.extensions, xnet::cm::Extensions::COLL);
        assert_eq!(agreed(&bytes), (9, false));
        let answer = Answer {
            number,
            rx_size: 1,
            flow_control: FlowControl::Unsaid,
            extensions: Extensions::empty(),
        };
        let bytes = answer.emit(ByteOrder::NATIVE).expect("fits");
        assert_eq!(agreed(&bytes), (9, true));
    }
}
