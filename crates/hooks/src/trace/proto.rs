//! What of Perfetto's protobuf schema the trace is made of
//! (`protos/perfetto/trace/trace_packet.proto` and `track_event/*.proto` of google/perfetto): varints and fields with a
//! length.

/// Bytes of a message.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// An integer field.
    pub(super) fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    /// A string field.
    pub(super) fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    /// A field that is a message.
    pub(super) fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// This packet of a `Trace`.
    pub(super) fn into_trace(self) -> Vec<u8> {
        Self::default().message(TRACE_PACKET, &self).0
    }
}

/// `Trace.packet`.
const TRACE_PACKET: u64 = 1;

/// Fields of `TracePacket`.
pub(super) mod packet {
    pub(in crate::trace) const TIMESTAMP: u64 = 8;
    pub(in crate::trace) const SEQUENCE: u64 = 10;
    pub(in crate::trace) const EVENT: u64 = 11;
    pub(in crate::trace) const TRACK: u64 = 60;
}

/// Fields of `TrackDescriptor` and of its `ProcessDescriptor`.
pub(super) mod track {
    pub(in crate::trace) const UUID: u64 = 1;
    pub(in crate::trace) const NAME: u64 = 2;
    pub(in crate::trace) const PROCESS: u64 = 3;
    pub(in crate::trace) const PARENT: u64 = 5;
    pub(in crate::trace) const PROCESS_PID: u64 = 1;
    pub(in crate::trace) const PROCESS_NAME: u64 = 6;
}

/// Fields and values of `TrackEvent`, and fields of its `DebugAnnotation`.
pub(super) mod event {
    pub(in crate::trace) const ANNOTATION: u64 = 4;
    pub(in crate::trace) const TYPE: u64 = 9;
    pub(in crate::trace) const TRACK: u64 = 11;
    pub(in crate::trace) const CATEGORY: u64 = 22;
    pub(in crate::trace) const NAME: u64 = 23;
    pub(in crate::trace) const BEGIN: u64 = 1;
    pub(in crate::trace) const END: u64 = 2;
    pub(in crate::trace) const INSTANT: u64 = 3;
    pub(in crate::trace) const ANNOTATION_UINT: u64 = 3;
    pub(in crate::trace) const ANNOTATION_TEXT: u64 = 6;
    pub(in crate::trace) const ANNOTATION_NAME: u64 = 10;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_bytes_of_the_encoding() {
        let inner = Message::default().number(1, 150);
        let message = Message::default().text(2, "testing").message(3, &inner);
        let expected = b"\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(message.0, expected);
        assert_eq!(Message::default().number(60, 0).0, [0xe0, 3, 0]);
    }
}
