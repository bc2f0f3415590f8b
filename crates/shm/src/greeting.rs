//! The greeting: what shm endpoints add to the connection request and its answer.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | the greeting of RDM endpoints (`docs/wire.md`), with port 0 |
//! | 8 | 4, the version of what follows, of the records and of the memory's layout |
//! | 9 | flags. Bit 0: `membarrier` is refused to the sender, so the receiver has to fence |
//! | 10..12 | length of the name |
//! | 12..16 | entries of each ring |
//! | 16..20 | bytes of the large buffer of each ring, which also give those of the small one (`Layout`) |
//! | 20.. | the sender's name, at most 200 bytes |
//!
//! Numbers are little-endian. A request carries two descriptors, the memory of the pair and the
//! sender's status page; an answer carries one, the status page.

use ripstop_mem::ring::Layout;
use ripstop_wire::xnet::rdm::{self, Greeting};

use crate::name::{MAX_NAME_BYTES, Name};

const VERSION: u8 = 4;
const FLAG_NEEDS_FENCE: u8 = 1;
const FIXED_BYTES: usize = 20;

// The longest greeting fits the data of a connection message.
const _: () = assert!(FIXED_BYTES + MAX_NAME_BYTES <= ripstop_wire::xnet::cm::MAX_DATA as usize);

/// A greeting whose fields were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) greeting: Greeting,
    pub(crate) needs_fence: bool,
    pub(crate) layout: Layout,
    pub(crate) name: Name,
}

impl Hello {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let name = self.name.text().as_bytes();
        let flags = if self.needs_fence {
            FLAG_NEEDS_FENCE
        } else {
            0
        };
        // `Name` bounds it by MAX_NAME_BYTES.
        let len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        let mut data = Vec::with_capacity(FIXED_BYTES + name.len());
        data.extend_from_slice(&self.greeting.emit());
        data.extend_from_slice(&[VERSION, flags]);
        data.extend_from_slice(&len.to_le_bytes());
        data.extend_from_slice(&self.layout.entries().to_le_bytes());
        data.extend_from_slice(&self.layout.buffer().to_le_bytes());
        data.extend_from_slice(name);
        data
    }

    /// Parses a peer's greeting; the error says what is wrong with it, for the log.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, &'static str> {
        let short = "it is too short";
        let (greeting, rest) = data.split_at_checked(rdm::LEN).ok_or(short)?;
        let greeting = Greeting::parse(greeting).map_err(|_| short)?;
        let (&[version, flags, l0, l1], rest) = rest.split_first_chunk().ok_or(short)?;
        let (entries, rest) = rest.split_first_chunk().ok_or(short)?;
        let (buffer, name) = rest.split_first_chunk().ok_or(short)?;
        if version != VERSION {
            return Err("it is of another version; let both processes use the same library");
        }
        if flags & !FLAG_NEEDS_FENCE != 0 {
            return Err("it has unknown flags");
        }
        if usize::from(u16::from_le_bytes([l0, l1])) != name.len() {
            return Err("its name has another length");
        }
        let sizes = Layout::new(u32::from_le_bytes(*entries), u32::from_le_bytes(*buffer));
        let name = std::str::from_utf8(name).ok().filter(|n| !n.contains('\0'));
        Ok(Self {
            greeting,
            needs_fence: flags & FLAG_NEEDS_FENCE != 0,
            layout: sizes.ok_or("its rings are of sizes that cannot be")?,
            name: name
                .and_then(|name| Name::new(name).ok())
                .ok_or("its name is none")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            greeting: Greeting::request(0, 0, 42),
            needs_fence: true,
            layout: Layout::new(256, 65536).unwrap(),
            name: Name::new("fi_shm://42:0:1").unwrap(),
        }
    }

    #[test]
    fn greetings_round_trip() {
        for needs_fence in [false, true] {
            let said = Hello {
                needs_fence,
                ..hello()
            };
            assert_eq!(Hello::parse(&said.emit()), Ok(said));
        }
        let longest = Name::new(&"n".repeat(MAX_NAME_BYTES)).unwrap();
        let said = Hello {
            name: longest,
            ..hello()
        };
        assert_eq!(Hello::parse(&said.emit()), Ok(said));
    }

    #[test]
    fn malformed_greetings_are_refused() {
        let good = hello().emit();
        for len in 0..good.len() {
            assert!(Hello::parse(&good[..len]).is_err(), "{len} bytes");
        }
        let with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            Hello::parse(&bad)
        };
        // Version, flags, length of the name, entries, buffer, the name's bytes.
        for (at, byte) in [
            (8, 0),
            (8, 1),
            (9, 2),
            (9, 0x80),
            (10, 1),
            (11, 1),
            (12, 3),
            (14, 2),
            (15, 0xff),
            (16, 1),
            (19, 0x80),
            (21, 0xff),
            (22, 0),
        ] {
            assert!(with(at, byte).is_err(), "byte {at}: {byte}");
        }
        let mut more = good.clone();
        more.push(b'x');
        assert!(Hello::parse(&more).is_err());
        let mut none = good[..FIXED_BYTES].to_vec();
        none[10] = 0;
        assert!(Hello::parse(&none).is_err(), "no name");
        let mut long = hello().emit();
        long.resize(FIXED_BYTES + MAX_NAME_BYTES + 1, b'x');
        let len = (MAX_NAME_BYTES + 1) as u16;
        long[10..12].copy_from_slice(&len.to_le_bytes());
        assert!(Hello::parse(&long).is_err(), "a name too long");
    }

    #[test]
    fn arbitrary_greetings_are_parsed_or_refused() {
        // A linear congruential generator (Knuth, MMIX).
        let mut state = 1_u64;
        let mut byte = || {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 56) as u8
        };
        for _ in 0..20_000 {
            let mut data = hello().emit();
            for _ in 0..1 + byte() % 4 {
                let at = usize::from(byte()) % data.len();
                data[at] = byte();
            }
            if let Ok(read) = Hello::parse(&data) {
                assert_eq!(read.emit().len(), data.len());
            }
        }
    }
}
