//! The greeting two RDM endpoints exchange in the connection data of [`cm`](super::cm)
//! messages: protocol version, features, listening port and process id. 8 bytes.

use crate::WireError;

/// Length of a greeting in bytes.
pub const LEN: usize = 8;

/// The highest protocol version spoken here. Version 1 adds the tagged rendezvous
/// (`TagRts`, `Cts`, `Data`) to version 0.
pub const VERSION: u8 = 1;

/// Set in a response by a peer that looked at the version it was asked for.
const VERSION_CHECKED: u8 = 0x80;

/// Feature: the sender cannot be connected to from outside (`FI_FIREWALL_ADDR`).
pub const FIREWALL_ADDR: u8 = 1;

/// Every feature known here.
pub const FEATURES: u8 = FIREWALL_ADDR;

/// Contexts a scalable endpoint may have, each with a greeting of its own.
pub const CONTEXTS: u8 = 16;

/// Where the index of a context stands among the features.
const CONTEXT_SHIFT: u32 = 3;
const CONTEXT_MASK: u8 = (CONTEXTS - 1) << CONTEXT_SHIFT;

/// What two peers agreed to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Everything but the rendezvous.
    V0,
    /// With the rendezvous.
    V1,
}

impl Protocol {
    /// Whether tagged messages may use `TagRts`, `Cts` and `Data`.
    #[must_use]
    pub const fn has_rendezvous(self) -> bool {
        matches!(self, Self::V1)
    }
}

/// A greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Greeting {
    /// The version byte as it is on the wire: in a request the highest version the sender
    /// speaks, in a response see [`Greeting::granted`].
    pub version: u8,
    /// Bits such as [`FIREWALL_ADDR`]. Unknown bits are kept, and dropped by
    /// [`Greeting::answer`].
    pub features: u8,
    /// In a request, the TCP port the sender's RDM endpoint listens on: with the address the
    /// connection comes from, its name in an address vector. In a response the echo of that.
    pub port: u16,
    /// The sender's process id, which tells a restarted peer from the one known before.
    pub pid: u32,
}

impl Greeting {
    /// What the connecting side says.
    #[must_use]
    pub const fn request(features: u8, port: u16, pid: u32) -> Self {
        Self {
            version: VERSION,
            features,
            port,
            pid,
        }
    }

    /// What the accepting side says to this request: the highest version both speak, and the
    /// features both know. To version 0 the answer is version 0, unmarked.
    #[must_use]
    pub const fn answer(self, pid: u32) -> Self {
        let version = match self.version {
            0 => 0,
            asked if asked < VERSION => asked | VERSION_CHECKED,
            _ => VERSION | VERSION_CHECKED,
        };
        Self {
            version,
            features: self.features & FEATURES,
            port: self.port,
            pid,
        }
    }

    /// The same, spoken by the context with this index of a scalable endpoint. The upper bits
    /// of an index beyond [`CONTEXTS`] are lost.
    #[must_use]
    pub const fn with_context(self, index: u8) -> Self {
        let bits = (index << CONTEXT_SHIFT) & CONTEXT_MASK;
        Self {
            features: (self.features & !CONTEXT_MASK) | bits,
            ..self
        }
    }

    /// The context of a scalable endpoint that speaks; 0 for any other endpoint. A context
    /// listens on the port of its endpoint plus its index.
    #[must_use]
    pub const fn context(self) -> u8 {
        (self.features & CONTEXT_MASK) >> CONTEXT_SHIFT
    }

    /// What a response to a request for [`VERSION`] grants. A response without the mark comes
    /// from a peer that echoes the request unread, so it grants version 0 only. Either side
    /// may apply it to the response it sent or received and gets the same.
    ///
    /// # Errors
    ///
    /// [`WireError::RdmVersion`] if it grants more than was asked for.
    pub const fn granted(self) -> Result<Protocol, WireError> {
        if self.version & VERSION_CHECKED == 0 {
            return Ok(Protocol::V0);
        }
        match self.version & !VERSION_CHECKED {
            0 => Ok(Protocol::V0),
            1 => Ok(Protocol::V1),
            found => Err(WireError::RdmVersion {
                found,
                max: VERSION,
            }),
        }
    }

    /// Reads a greeting from connection data, all of which it must be: endpoints of other
    /// protocols (`FI_PROTO_RXM`) send connection data of other lengths over the same messages.
    ///
    /// # Errors
    ///
    /// [`WireError::RdmLength`].
    pub fn parse(data: &[u8]) -> Result<Self, WireError> {
        let &[version, features, p0, p1, i0, i1, i2, i3] = data else {
            return Err(WireError::RdmLength {
                found: data.len(),
                expected: LEN,
            });
        };
        Ok(Self {
            version,
            features,
            port: u16::from_be_bytes([p0, p1]),
            pid: u32::from_be_bytes([i0, i1, i2, i3]),
        })
    }

    /// The greeting's bytes.
    #[must_use]
    pub const fn emit(self) -> [u8; LEN] {
        let [p0, p1] = self.port.to_be_bytes();
        let [i0, i1, i2, i3] = self.pid.to_be_bytes();
        [self.version, self.features, p0, p1, i0, i1, i2, i3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUEST: [u8; LEN] = [1, 1, 0x1f, 0x90, 0, 1, 0xe2, 0x40];

    #[test]
    fn request_bytes_both_ways() {
        let greeting = Greeting::request(FIREWALL_ADDR, 8080, 123_456);
        assert_eq!(greeting.emit(), REQUEST);
        assert_eq!(Greeting::parse(&REQUEST), Ok(greeting));
    }

    #[test]
    fn answer_marks_the_version_and_drops_unknown_features() {
        let answer = Greeting::parse(&[1, 0xff, 0x1f, 0x90, 0, 0, 0, 1])
            .unwrap()
            .answer(7);
        assert_eq!(answer.emit(), [0x81, 1, 0x1f, 0x90, 0, 0, 0, 7]);
        assert_eq!(answer.granted(), Ok(Protocol::V1));
    }

    #[test]
    fn a_context_says_its_index_and_a_c_peer_drops_it() {
        let plain = Greeting::request(FIREWALL_ADDR, 1, 1);
        assert_eq!(plain.context(), 0);
        let spoken = plain.with_context(5);
        assert_eq!((spoken.features, spoken.context()), (0x29, 5));
        assert_eq!(spoken.with_context(0), plain);
        assert_eq!(spoken.answer(2).context(), 0);
        assert_eq!(plain.with_context(CONTEXTS - 1).context(), CONTEXTS - 1);
    }

    #[test]
    fn versions_meet_at_the_lower_one() {
        let granted = |version| {
            Greeting {
                version,
                ..Greeting::request(0, 1, 1)
            }
            .answer(2)
            .granted()
        };
        assert_eq!(granted(0), Ok(Protocol::V0));
        assert_eq!(granted(1), Ok(Protocol::V1));
        assert_eq!(granted(2), Ok(Protocol::V1));
        assert_eq!(granted(0xff), Ok(Protocol::V1));
    }

    #[test]
    fn an_echoed_request_grants_no_rendezvous() {
        let granted = Greeting::parse(&REQUEST).unwrap().granted();
        assert_eq!(granted, Ok(Protocol::V0));
        assert!(!granted.unwrap().has_rendezvous());
    }

    #[test]
    fn a_version_never_asked_for_is_refused() {
        let response = Greeting {
            version: 0x82,
            ..Greeting::request(0, 1, 1)
        };
        assert_eq!(
            response.granted(),
            Err(WireError::RdmVersion { found: 2, max: 1 })
        );
    }

    #[test]
    fn connection_data_of_another_length_is_not_a_greeting() {
        let refused = |found| Err(WireError::RdmLength { found, expected: 8 });
        assert_eq!(Greeting::parse(&[]), refused(0));
        assert_eq!(Greeting::parse(&REQUEST[..7]), refused(7));
        assert_eq!(Greeting::parse(&[1; 9]), refused(9));
    }

    proptest! {
        #[test]
        fn any_eight_bytes_survive(bytes: [u8; LEN]) {
            prop_assert_eq!(Greeting::parse(&bytes).unwrap().emit(), bytes);
        }

        #[test]
        fn every_answer_can_be_read(bytes: [u8; LEN], pid: u32) {
            let answer = Greeting::parse(&bytes).unwrap().answer(pid);
            prop_assert!(answer.granted().is_ok());
        }
    }
}
