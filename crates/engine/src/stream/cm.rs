//! The handshake at the start of a stream: reading one connection message.

use ripstop_wire::WireError;
use ripstop_wire::xnet::cm::{HEADER_LEN, Header, MAX_DATA};

/// Reads one connection message as its bytes arrive, and not a byte more.
#[derive(Clone, Debug)]
pub struct CmReader {
    bytes: [u8; HEADER_LEN],
    data: [u8; MAX_DATA as usize],
    have: usize,
    header: Option<Header>,
}

impl Default for CmReader {
    fn default() -> Self {
        Self::new()
    }
}

impl CmReader {
    /// Nothing has arrived.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; HEADER_LEN],
            data: [0; MAX_DATA as usize],
            have: 0,
            header: None,
        }
    }

    /// The room for the next bytes; empty when the message is complete.
    pub fn room(&mut self) -> &mut [u8] {
        match self.header {
            None => self.bytes.get_mut(self.have..).unwrap_or_default(),
            Some(header) => self
                .data
                .get_mut(self.have..usize::from(header.data_len))
                .unwrap_or_default(),
        }
    }

    /// Takes how many bytes were put into [`CmReader::room`]. Returns whether the message is
    /// complete.
    ///
    /// # Errors
    /// What is wrong with the header.
    pub fn filled(&mut self, bytes: usize) -> Result<bool, WireError> {
        self.have = self.have.saturating_add(bytes);
        if self.header.is_none() {
            if self.have < HEADER_LEN {
                return Ok(false);
            }
            self.header = Some(Header::parse(&self.bytes)?);
            self.have = 0;
        }
        Ok(self.message().is_some())
    }

    /// The complete message and its data.
    #[must_use]
    pub fn message(&self) -> Option<(&Header, &[u8])> {
        let header = self.header.as_ref()?;
        let data = self.data.get(..usize::from(header.data_len))?;
        (self.have >= data.len()).then_some((header, data))
    }

    /// Whether any byte has arrived.
    #[must_use]
    pub const fn has_started(&self) -> bool {
        self.have > 0 || self.header.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripstop_wire::xnet::cm::Kind;

    #[test]
    fn reads_a_message_byte_by_byte_and_stops_behind_it() {
        let data = [7, 8, 9];
        let header = Header::new(Kind::Request, &data).unwrap();
        let mut stream = [0; HEADER_LEN + 3];
        stream[..HEADER_LEN].copy_from_slice(&header.emit().unwrap());
        stream[HEADER_LEN..].copy_from_slice(&data);
        let mut reader = CmReader::new();
        for (index, byte) in stream.iter().enumerate() {
            reader.room()[0] = *byte;
            let complete = reader.filled(1).unwrap();
            assert_eq!(complete, index + 1 == stream.len());
        }
        assert!(reader.room().is_empty());
        assert_eq!(reader.message(), Some((&header, &data[..])));
    }

    #[test]
    fn refuses_more_data_than_the_bound() {
        let mut reader = CmReader::new();
        let mut bytes = Header::new(Kind::Request, &[]).unwrap().emit().unwrap();
        bytes[2] = 0xff;
        reader.room().copy_from_slice(&bytes);
        assert!(reader.filled(HEADER_LEN).is_err());
    }
}
