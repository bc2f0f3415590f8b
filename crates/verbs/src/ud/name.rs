//! Names of datagram endpoints: `FI_ADDR_IB_UD`, as C libfabric's provider of this name lays them out, in the
//! byte order of the machine.

use ripstop_core::Address;
use ripstop_types::{AddrFormat, Errno, Result};

/// Bytes of a name.
pub(crate) const LEN: usize = 32;

/// Numbers of queue pairs have 24 bits; the first two are the managers'.
const QUEUE_PAIRS: core::ops::RangeInclusive<u32> = 2..=0xff_ffff;

/// A queue pair of datagrams, as peers name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) gid: [u8; 16],
    pub(crate) qp: u32,
    pub(crate) lid: u16,
    /// The partition key, as the device has it in network order.
    pub(crate) pkey: [u8; 2],
    /// A number that the program chose, for servers of names.
    pub(crate) service: u16,
    pub(crate) sl: u8,
}

impl Name {
    /// Reads a name; `None` for another number of bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let pair = |at: usize| [bytes[at], bytes[at + 1]];
        let [gid, ..] = bytes.as_chunks::<16>().0 else {
            return None;
        };
        Some(Self {
            gid: *gid,
            qp: u32::from_ne_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]),
            lid: u16::from_ne_bytes(pair(20)),
            pkey: pair(22),
            service: u16::from_ne_bytes(pair(24)),
            sl: bytes[26],
        })
    }

    /// Its bytes.
    pub(crate) fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..16].copy_from_slice(&self.gid);
        bytes[16..20].copy_from_slice(&self.qp.to_ne_bytes());
        bytes[20..22].copy_from_slice(&self.lid.to_ne_bytes());
        bytes[22..24].copy_from_slice(&self.pkey);
        bytes[24..26].copy_from_slice(&self.service.to_ne_bytes());
        bytes[26] = self.sl;
        bytes
    }

    /// The name that an address is.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an address of another kind.
    pub(crate) fn of(address: &Address) -> Result<Self> {
        match address {
            Address::Raw(AddrFormat::IbUd, bytes) => Self::parse(bytes).ok_or(Errno::EINVAL),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The address that it is.
    pub(crate) fn address(&self) -> Address {
        Address::Raw(AddrFormat::IbUd, self.emit().to_vec())
    }

    /// Whether it has a GID: only then datagrams are routed, and Ethernet has nothing else.
    pub(crate) fn has_gid(&self) -> bool {
        self.gid[8..] != [0; 8]
    }

    /// Whether an endpoint can have it.
    pub(crate) fn is_reachable(&self) -> bool {
        QUEUE_PAIRS.contains(&self.qp) && (self.has_gid() || self.lid != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name {
            gid: *b"\xfe\x80\0\0\0\0\0\0\x02\x11\x22\xff\xfe\x33\x44\x55",
            qp: 0x12_3456,
            lid: 7,
            pkey: [0xff, 0xff],
            service: 9228,
            sl: 3,
        }
    }

    #[test]
    fn the_bytes_are_those_of_c() {
        let bytes = name().emit();
        assert_eq!(bytes[..16], name().gid);
        assert_eq!(bytes[16..20], 0x12_3456_u32.to_ne_bytes());
        assert_eq!(bytes[20..22], 7_u16.to_ne_bytes());
        assert_eq!(bytes[22..24], [0xff, 0xff]);
        assert_eq!(bytes[24..26], 9228_u16.to_ne_bytes());
        assert_eq!(bytes[26..], [3, 0, 0, 0, 0, 0]);
        assert_eq!(Name::parse(&bytes), Some(name()));
        assert_eq!(Name::parse(&bytes[1..]), None);
        assert_eq!(Name::of(&name().address()), Ok(name()));
    }

    #[test]
    fn what_no_endpoint_has_is_told() {
        assert!(name().is_reachable());
        for qp in [0, 1, 0x0100_0000] {
            assert!(!Name { qp, ..name() }.is_reachable());
        }
        let gid = [0; 16];
        assert!(Name { gid, ..name() }.is_reachable());
        assert!(
            !Name {
                gid,
                lid: 0,
                ..name()
            }
            .is_reachable()
        );
        let ip = Address::Ip("1.2.3.4:5".parse().expect("an address"));
        assert_eq!(Name::of(&ip), Err(Errno::EINVAL));
        let short = Address::Raw(AddrFormat::IbUd, vec![0; LEN - 1]);
        assert_eq!(Name::of(&short), Err(Errno::EINVAL));
    }
}
