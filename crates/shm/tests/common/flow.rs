//! What the processes of a group say to each other, and what they hold of each other.

/// Bytes of the largest message.
pub(super) const LARGEST: usize = 4 << 20;

/// Numbers by a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

pub(super) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `len` bytes of which each tells its place and whose they are.
pub(super) fn pattern(len: usize, whose: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut word = mix(whose);
    while bytes.len() < len {
        bytes.extend_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    }
    bytes.truncate(len);
    bytes
}

/// A stream of messages: who sends it to whom, and which of their lives it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) from: usize,
    pub(super) from_life: u32,
    pub(super) to: usize,
    pub(super) to_life: u32,
}

impl Flow {
    pub(super) fn whose(self, kind: u64, seq: u32) -> u64 {
        let ends = (self.from as u64) << 4 | self.to as u64;
        let lives = u64::from(self.from_life & 0xfff) << 12 | u64::from(self.to_life & 0xfff);
        kind << 60 | ends << 52 | lives << 24 | u64::from(seq & 0xff_ffff)
    }

    pub(super) fn len(self, seq: u32) -> usize {
        let random = mix(self.whose(0, seq));
        let below = |end: u64| (random >> 16) % end;
        let len = match random % 100 {
            ..70 => below(200),
            70..90 => 200 + below(20_000),
            90..98 => 20_000 + below(300_000),
            _ => 300_000 + below(LARGEST as u64 - 300_000),
        };
        len as usize
    }
}

/// What a process holds that could be of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    descriptors: usize,
    /// Mappings of memory that has a descriptor.
    mappings: usize,
}

impl Held {
    pub(super) fn now() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let page = format!("/dev/shm/ripstop-{}/", ripstop_os::user());
        let mut named = maps.lines().filter(|line| line.contains("/dev/shm/"));
        assert!(
            named.all(|line| line.contains(&page)),
            "nothing lies in /dev/shm but the status page"
        );
        // The folder is open while it is read.
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count() - 1;
        Self {
            descriptors,
            mappings: maps.lines().filter(|line| line.contains("/memfd:")).count(),
        }
    }

    /// The same with more connections: each has a socket and a pidfd, and maps the memory of the pair and the
    /// status page of the peer. `mapped` of them have a mapped region too.
    pub(super) const fn with(self, connections: usize, mapped: usize) -> Self {
        Self {
            descriptors: self.descriptors + 2 * connections,
            mappings: self.mappings + 2 * connections + mapped,
        }
    }
}
