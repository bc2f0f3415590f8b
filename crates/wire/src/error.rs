//! What is wrong with bytes of a peer, by field.

use core::fmt;

use ripstop_types::Errno;

use crate::op::Op;
use crate::packet_kind::PacketKind;

/// Defines the enum of errors: behind each variant stands what is said of it, with its fields.
macro_rules! errors {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$vmeta:meta])* $variant:ident
            $({ $($(#[$fmeta:meta])* $field:ident: $type:ty,)+ })? => $text:literal,)+
    }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$vmeta])* $variant $({ $($(#[$fmeta])* $field: $type,)+ })?,)+
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$variant $({ $($field,)+ })? => write!(f, $text),)+
                }
            }
        }
    };
}

errors! {
    /// Why bytes are not the PDU they should be, or why a value cannot be put into bytes.
    ///
    /// One variant per field, with what was found and what it is measured against. `Copy` and
    /// allocation-free, so that it may be made on any path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum WireError {
        /// Fewer bytes than the PDU (or its next field) takes. The only error that more bytes
        /// may cure.
        Truncated {
            /// Bytes at hand.
            found: usize,
            /// Bytes needed.
            needed: usize,
        } => "{found} bytes at hand, expected at least {needed}",
        /// The buffer to emit into is too small.
        NoRoom {
            /// Bytes at hand.
            found: usize,
            /// Bytes needed.
            needed: usize,
        } => "{found} bytes of room, expected at least {needed}",
        /// The version of a data header.
        Version {
            /// The byte on the wire.
            found: u8,
            /// The only version spoken.
            expected: u8,
        } => "data header version {found}, expected {expected}",
        /// The operation of a data header.
        Op {
            /// The byte on the wire.
            found: u8,
            /// The highest known operation.
            max: u8,
        } => "operation {found}, expected at most {max}",
        /// `hdr_size` is outside what any form of the operation takes.
        HeaderRange {
            /// The operation.
            op: Op,
            /// The byte on the wire.
            found: u8,
            /// Its shortest header, in bytes.
            min: u8,
            /// Its longest header, in bytes.
            max: u8,
        } => "{op} header of {found} bytes, expected a multiple of 8 from {min} to {max}",
        /// `hdr_size` is not what the operation, its flags and its count of RMA segments take.
        HeaderSize {
            /// The operation.
            op: Op,
            /// The byte on the wire.
            found: u8,
            /// The length that follows from the other fields.
            expected: u8,
        } => "{op} header of {found} bytes, expected {expected}",
        /// The total size does not cover its own header.
        Size {
            /// The total on the wire.
            found: u64,
            /// The header's length in bytes.
            header: u8,
        } => "total size {found}, expected at least the header's {header}",
        /// A payload length that, with its header, does not fit 64 bits.
        PayloadTooLong {
            /// The payload length in bytes.
            found: u64,
            /// The longest possible one.
            max: u64,
        } => "payload of {found} bytes, expected at most {max}",
        /// A payload on an operation that has none.
        UnexpectedPayload {
            /// The operation.
            op: Op,
            /// The payload length in bytes.
            found: u64,
        } => "{op} with a payload of {found} bytes, expected none",
        /// Remote completion data on an operation that carries none.
        UnexpectedCqData {
            /// The operation.
            op: Op,
        } => "{op} with remote completion data, expected none",
        /// RMA segments on an operation that carries none.
        UnexpectedRma {
            /// The operation.
            op: Op,
            /// How many.
            found: u8,
        } => "{op} with {found} RMA segments, expected none",
        /// Too many RMA segments.
        RmaCount {
            /// The count on the wire, or in the caller's list (capped at 255).
            found: u8,
            /// The limit.
            max: u8,
        } => "{found} RMA segments, expected at most {max}",
        /// The lengths of the RMA segments add up to more than any transfer may have.
        RmaOverflow => "the lengths of the RMA segments add up to more than 64 bits hold, \
             expected a sum that leaves room for a header",
        /// A write whose payload is not as long as the segments it is for.
        RmaLength {
            /// The payload length in bytes.
            found: u64,
            /// The sum of the segments' lengths.
            expected: u64,
        } => "write payload of {found} bytes, expected the {expected} of its RMA segments",
        /// Rendezvous index 0, which stands for "none".
        Index {
            /// The operation.
            op: Op,
        } => "{op} with index 0, expected 1 to 255",
        /// A refusal that says something nobody knows, or nothing.
        Refusal {
            /// What it stands for.
            answer: u8,
            /// The reason.
            reason: u8,
        } => "refusal of kind {answer} for reason {reason}, expected kinds 1 to 3 and \
             reasons 1 to 6",
        /// The exponent of an eager limit or a get limit.
        Limit {
            /// The operation.
            op: Op,
            /// The byte on the wire.
            found: u8,
        } => "{op} of 2 to the power of {found}, expected at most 63",
        /// The kind of a message between members of a collective group.
        CollKind {
            /// The byte on the wire.
            found: u8,
        } => "collective message of kind {found}, expected 1 to 8",
        /// The last field of such a message, which is zero.
        CollReserved {
            /// The number on the wire.
            found: u32,
        } => "collective message with {found:#x} in its last field, expected 0",
        /// The version of a connection message.
        CmVersion {
            /// The byte on the wire.
            found: u8,
            /// The only version spoken.
            expected: u8,
        } => "connection message version {found}, expected {expected}",
        /// The type of a connection message.
        CmKind {
            /// The byte on the wire.
            found: u8,
        } => "connection message type {found}, expected 0 (request), 1 (response) or 6 (reject)",
        /// More connection data than a connection message holds.
        CmDataLen {
            /// The length in bytes (capped at 65535).
            found: u16,
            /// The limit.
            max: u16,
        } => "{found} bytes of connection data, expected at most {max}",
        /// The byte-order mark is a one in no byte order.
        CmByteOrder {
            /// The mark, read as little endian.
            found: u64,
        } => "byte-order mark {found:#018x}, expected a one in either byte order",
        /// Connection data that is no RDM greeting: the peer is another kind of endpoint, or
        /// speaks another protocol over the same connection messages.
        RdmLength {
            /// The length in bytes.
            found: usize,
            /// That of a greeting.
            expected: usize,
        } => "{found} bytes of connection data, expected the {expected} of an RDM greeting: \
             is the peer an RDM endpoint of FI_PROTO_XNET?",
        /// A peer granted a protocol version that was not asked for.
        RdmVersion {
            /// The version granted.
            found: u8,
            /// The version asked for.
            max: u8,
        } => "peer granted protocol version {found}, expected at most the {max} asked for",
        /// Connection data that is none of `FI_PROTO_RXM`: the peer is another kind of endpoint, or
        /// speaks another protocol over the same connection messages.
        RxmLength {
            /// The length in bytes.
            found: usize,
            /// What it should be.
            expected: usize,
        } => "{found} bytes of connection data, expected the {expected} of FI_PROTO_RXM",
        /// A version in connection data of `FI_PROTO_RXM`, or in a packet.
        RxmVersion {
            /// What it is the version of.
            of: &'static str,
            /// The byte on the wire.
            found: u8,
            /// The only version spoken.
            expected: u8,
        } => "version {found} of {of}, expected {expected}",
        /// A host of another byte order, which `FI_PROTO_RXM` does not provide for.
        RxmByteOrder {
            /// The byte on the wire.
            found: u8,
            /// That of this host: 1 big, 2 little.
            expected: u8,
        } => "byte order {found}, expected {expected}: peers of FI_PROTO_RXM have the same",
        /// The flow control that connection data asks for.
        RxmFlowControl {
            /// The byte on the wire.
            found: u8,
        } => "flow control {found}, expected 0 (not said), 1 (on) or 2 (off)",
        /// The longest message that is sent at once, which both sides must agree on.
        RxmEagerMax {
            /// The number on the wire.
            found: u32,
            /// That of this side.
            expected: u32,
        } => "longest eager message of {found} bytes, expected {expected}: set \
             FI_OFI_RXM_BUFFER_SIZE on both sides alike, with libfabric 1.17 FI_OFI_RXM_EAGER_LIMIT, too",
        /// The reason of a refusal.
        RxmReason {
            /// The byte on the wire.
            found: u8,
        } => "refusal for reason {found}, expected at most 2",
        /// The type of a packet.
        PacketKind {
            /// The byte on the wire.
            found: u8,
        } => "packet of type {found}, expected at most 8",
        /// The operation of a packet.
        PacketOp {
            /// The type of the packet.
            kind: PacketKind,
            /// The byte on the wire.
            found: u8,
        } => "{kind} packet with operation {found}, expected one that such packets have",
        /// A packet whose length is not what its fields take.
        PacketLength {
            /// The type of the packet.
            kind: PacketKind,
            /// Its length in bytes.
            found: u64,
            /// The length that follows from its fields.
            expected: u64,
        } => "{kind} packet of {found} bytes, expected {expected}",
        /// The place of a segment in its message.
        PacketPart {
            /// The two bits on the wire.
            found: u8,
        } => "segment of place {found}, expected 1 (first), 2 (middle) or 3 (last)",
        /// How many pieces of memory a packet names.
        PacketSegments {
            /// The type of the packet.
            kind: PacketKind,
            /// The count on the wire.
            found: u8,
        } => "{kind} packet with {found} pieces of memory, expected 1 to 4",
        /// Pieces of memory that are not as long as the message they hold.
        PacketMemory {
            /// Their length in bytes.
            found: u64,
            /// That of the message.
            expected: u64,
        } => "memory of {found} bytes for a message of {expected}",
    }
}

impl WireError {
    /// The fabric error a consumer sees: `FI_ENOPROTOOPT` for a protocol nobody here speaks,
    /// `FI_EINVAL` and `FI_ETOOSMALL` for a value that cannot be emitted, otherwise `FI_EIO`,
    /// the stream being of no more use.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::CmVersion { .. }
            | Self::RdmLength { .. }
            | Self::RdmVersion { .. }
            | Self::RxmLength { .. }
            | Self::RxmVersion { .. }
            | Self::RxmByteOrder { .. }
            | Self::Version { .. } => Errno::ENOPROTOOPT,
            Self::NoRoom { .. } => Errno::ETOOSMALL,
            Self::UnexpectedCqData { .. } | Self::UnexpectedRma { .. } => Errno::EINVAL,
            _ => Errno::EIO,
        }
    }
}

impl From<WireError> for Errno {
    fn from(error: WireError) -> Self {
        error.errno()
    }
}

impl core::error::Error for WireError {}
