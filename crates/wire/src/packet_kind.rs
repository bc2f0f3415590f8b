//! The types of packets of `FI_PROTO_RXM`.

use ripstop_types::numbered;

numbered! {
    /// What a packet is.
    #[derive(PartialOrd, Ord)]
    pub enum PacketKind: u8 as u8 {
        /// A whole message.
        Eager = 0 => "eager",
        /// A part of one.
        Segment = 1 => "segment",
        /// A message whose payload is still at the sender.
        Rendezvous = 2 => "rendezvous",
        /// Its payload was read.
        ReadDone = 3 => "read done",
        /// An atomic.
        Atomic = 4 => "atomic",
        /// What came of it.
        AtomicResult = 5 => "atomic result",
        /// Leave to send more.
        Credit = 6 => "credit",
        /// Where the payload of a rendezvous is to be written.
        WriteReady = 7 => "write ready",
        /// It was written.
        WriteDone = 8 => "write done",
        /// Whether the connection is to end, as it has nothing to do; between two of this library.
        Part = 64 => "part",
        /// Bytes of units that are in no packet over tcp; between two of this library.
        Unit = 65 => "unit",
    }
}
