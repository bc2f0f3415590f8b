//! The data of connection messages: request, answer and refusal.
//!
//! Peers have the same byte order, that of their machines; [`Request`] says which.

use bitflags::bitflags;
use ripstop_types::numbered;

use crate::cursor::{Reader, Writer};
use crate::{ByteOrder, WireError};

/// Length of a request in bytes.
pub const REQUEST_LEN: usize = 24;

/// Length of an answer in bytes.
pub const ANSWER_LEN: usize = 16;

/// Length of a refusal in bytes.
pub const REFUSAL_LEN: usize = 2;

/// The only version of connection data.
pub const VERSION: u8 = 1;

/// The only version of the first half of packets' headers.
pub const CONTROL_VERSION: u8 = 4;

/// The only version of operations.
const OPERATION_VERSION: u8 = 3;

/// The longest message that is sent at once, unless both sides are told otherwise.
pub const EAGER_MAX: u32 = 16 << 10;

numbered! {
    /// Whether a peer bounds by credits what it is sent.
    #[derive(PartialOrd, Ord)]
    pub enum FlowControl: u8 as u8 {
        /// It says nothing: as the other side.
        Unsaid = 0 => "not said",
        /// It does.
        On = 1 => "on",
        /// It does not, as over tcp.
        Off = 2 => "off",
    }
}

numbered! {
    /// Why a request is refused.
    #[derive(PartialOrd, Ord)]
    pub enum Reason: u8 as u8 {
        /// No reason is given.
        None = 0 => "no reason",
        /// The endpoints cannot be connected.
        Refused = 1 => "refused",
        /// There is a connection, or the other side's own request is kept.
        Connected = 2 => "there is a connection",
    }
}

bitflags! {
    /// What a sender speaks beyond the protocol of the C library, which sends zeros in this byte and does not read it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Extensions: u8 {
        /// It agrees on ends of connections ([`Parting`](super::Parting)).
        const PARTS = 1;
        /// It reads units of collectives in packets ([`Body::Unit`](super::Body::Unit)); over tcp they are in none.
        const COLL = 2;
    }
}

/// What a side calls a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Number {
    /// The process, by which a restarted peer is told from the one known before.
    pub pid: u32,
    /// A number that packets to this side have.
    pub index: u32,
}

impl Number {
    const fn parse(number: u64) -> Self {
        Self {
            pid: (number >> 32) as u32,
            index: number as u32,
        }
    }

    const fn emit(self) -> u64 {
        ((self.pid as u64) << 32) | self.index as u64
    }

    /// What packets to this side say.
    #[must_use]
    pub const fn in_packets(self) -> u64 {
        self.index.cast_signed() as i64 as u64
    }
}

/// What the connecting side says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The port the sender's endpoint listens on: with the address the connection comes from, its
    /// name in an address vector.
    pub port: u16,
    /// Whether it bounds what it is sent.
    pub flow_control: FlowControl,
    /// The longest message it sends at once; the other side must have the same.
    pub eager_max: u32,
    /// The size of its receive queue.
    pub rx_size: u32,
    /// What it speaks beyond the protocol of the C library.
    pub extensions: Extensions,
    /// What it calls the connection.
    pub number: Number,
}

/// What the accepting side says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// What it calls the connection.
    pub number: Number,
    /// The size of its receive queue.
    pub rx_size: u32,
    /// Whether it bounds what it is sent.
    pub flow_control: FlowControl,
    /// What it speaks beyond the protocol of the C library.
    pub extensions: Extensions,
}

/// Stands before the extensions of an answer, whose last bytes not every version of the C library sets.
const MARK: [u8; 2] = *b"Ri";

impl Extensions {
    const fn parse_answer([m0, m1, bits]: [u8; 3]) -> Self {
        match [m0, m1] {
            MARK => Self::from_bits_retain(bits),
            _ => Self::empty(),
        }
    }

    const fn emit_answer(self) -> [u8; 3] {
        let [m0, m1] = MARK;
        match self.is_empty() {
            true => [0; 3],
            false => [m0, m1, self.bits()],
        }
    }
}

impl Request {
    /// Reads a request, which must be all of the connection data. `own` is the order of this
    /// machine.
    ///
    /// # Errors
    ///
    /// [`WireError::RxmLength`], [`WireError::RxmVersion`], [`WireError::RxmByteOrder`],
    /// [`WireError::RxmFlowControl`].
    pub fn parse(own: ByteOrder, data: &[u8]) -> Result<Self, WireError> {
        check_len(data, REQUEST_LEN)?;
        let mut rest = Reader::new(own, data);
        let [version, order, control, operation] = rest.array()?;
        check_version("the connection data", version, VERSION)?;
        if order != order_byte(own) {
            return Err(WireError::RxmByteOrder {
                found: order,
                expected: order_byte(own),
            });
        }
        check_version("control headers", control, CONTROL_VERSION)?;
        check_version("operations", operation, OPERATION_VERSION)?;
        let port = rest.u16()?;
        let [flow_control, beyond] = rest.array()?;
        Ok(Self {
            port,
            flow_control: flow(flow_control)?,
            extensions: Extensions::from_bits_retain(beyond),
            eager_max: rest.u32()?,
            rx_size: rest.u32()?,
            number: Number::parse(rest.u64()?),
        })
    }

    /// The request's bytes.
    ///
    /// # Errors
    ///
    /// None.
    pub fn emit(&self, own: ByteOrder) -> Result<[u8; REQUEST_LEN], WireError> {
        let mut bytes = [0; REQUEST_LEN];
        let mut out = Writer::new(own, &mut bytes);
        out.array([VERSION, order_byte(own), CONTROL_VERSION, OPERATION_VERSION])?;
        out.u16(self.port)?;
        out.array([self.flow_control.number(), self.extensions.bits()])?;
        out.u32(self.eager_max)?;
        out.u32(self.rx_size)?;
        out.u64(self.number.emit())?;
        Ok(bytes)
    }
}

impl Answer {
    /// Reads an answer, which must be all of the connection data.
    ///
    /// # Errors
    ///
    /// [`WireError::RxmLength`], [`WireError::RxmFlowControl`].
    pub fn parse(own: ByteOrder, data: &[u8]) -> Result<Self, WireError> {
        check_len(data, ANSWER_LEN)?;
        let mut rest = Reader::new(own, data);
        let number = Number::parse(rest.u64()?);
        let rx_size = rest.u32()?;
        let [flow_control, beyond @ ..] = rest.array::<4>()?;
        Ok(Self {
            number,
            rx_size,
            flow_control: flow(flow_control)?,
            extensions: Extensions::parse_answer(beyond),
        })
    }

    /// The answer's bytes.
    ///
    /// # Errors
    ///
    /// None.
    pub fn emit(&self, own: ByteOrder) -> Result<[u8; ANSWER_LEN], WireError> {
        let mut bytes = [0; ANSWER_LEN];
        let mut out = Writer::new(own, &mut bytes);
        out.u64(self.number.emit())?;
        out.u32(self.rx_size)?;
        out.array([self.flow_control.number()])?;
        out.array(self.extensions.emit_answer())?;
        Ok(bytes)
    }
}

impl Reason {
    /// Reads a refusal. What is not one, as from an endpoint of another kind, refuses all the same.
    ///
    /// # Errors
    ///
    /// [`WireError::RxmLength`], [`WireError::RxmVersion`], [`WireError::RxmReason`].
    pub fn parse(data: &[u8]) -> Result<Self, WireError> {
        let &[version, reason] = data else {
            return Err(WireError::RxmLength {
                found: data.len(),
                expected: REFUSAL_LEN,
            });
        };
        check_version("the connection data", version, VERSION)?;
        Self::from_number(reason).ok_or(WireError::RxmReason { found: reason })
    }

    /// The refusal's bytes.
    #[must_use]
    pub const fn emit(self) -> [u8; REFUSAL_LEN] {
        [VERSION, self.number()]
    }
}

const fn order_byte(order: ByteOrder) -> u8 {
    match order {
        ByteOrder::Big => 1,
        ByteOrder::Little => 2,
    }
}

fn flow(found: u8) -> Result<FlowControl, WireError> {
    FlowControl::from_number(found).ok_or(WireError::RxmFlowControl { found })
}

const fn check_len(data: &[u8], expected: usize) -> Result<(), WireError> {
    let found = data.len();
    if found == expected {
        return Ok(());
    }
    Err(WireError::RxmLength { found, expected })
}

pub(super) const fn check_version(
    of: &'static str,
    found: u8,
    expected: u8,
) -> Result<(), WireError> {
    if found == expected {
        return Ok(());
    }
    Err(WireError::RxmVersion {
        of,
        found,
        expected,
    })
}
