//! Names of endpoints (`FI_ADDR_STR`), and the abstract names of their Unix sockets.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ripstop_core::Address;
use ripstop_core::av::{NameTable, Shareable};
use ripstop_stream::{Addr, Own, Table};
use ripstop_types::{Errno, Result};

/// The longest name: a greeting carries it whole.
pub(crate) const MAX_NAME_BYTES: usize = 200;

/// The longest key that is part of a socket's name; longer ones are hashed.
const MAX_LITERAL_KEY_BYTES: usize = 80;

/// The prefix of default names, which get a suffix that makes them unique (`fi_shm(7)`).
const DEFAULT_PREFIX: &str = "fi_shm://";

/// The name of an endpoint, `PREFIX://KEY`. Names with the same key are equal.
#[derive(Clone)]
pub struct Name {
    text: Arc<str>,
    /// Where the key begins.
    key: usize,
}

impl Name {
    /// Parses a name.
    ///
    /// # Errors
    /// `EINVAL` for one without a key or with more than 200 bytes.
    pub(crate) fn new(text: &str) -> Result<Self> {
        let key = text.find("://").map_or(0, |at| at + 3);
        if key == text.len() || text.len() > MAX_NAME_BYTES {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            text: text.into(),
            key,
        })
    }

    /// A name for the log: a process that has not sent its greeting.
    pub(crate) fn of_process(pid: u32) -> Self {
        Self {
            text: format!("process {pid}").into(),
            key: 0,
        }
    }

    /// The whole name, with its prefix.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn key(&self) -> &str {
        self.text.get(self.key..).unwrap_or_default()
    }

    /// Whether this is a default name: endpoints that ask for it get a suffix.
    pub(crate) fn is_default(&self) -> bool {
        self.text.starts_with(DEFAULT_PREFIX)
    }

    /// The user id in a default name with its suffix (`fi_shm://PID:USER:INDEX`); `None` for others.
    pub(crate) fn user(&self) -> Option<u32> {
        let mut parts = self.text.strip_prefix(DEFAULT_PREFIX)?.split(':');
        let (pid, user, index) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        // Anything else is a name of the program's own choice.
        let index = index.split('#').next()?;
        (number(pid) && number(user) && number(index)).then(|| user.parse().ok())?
    }

    /// This name with a suffix.
    ///
    /// # Errors
    /// `EINVAL` where it gets too long.
    pub(crate) fn with_suffix(&self, tail: &dyn fmt::Display) -> Result<Self> {
        Self::new(&format!("{}{tail}", self.text))
    }

    /// The abstract name of the socket on which this user's endpoint listens.
    pub(crate) fn socket(&self, user: u32) -> Vec<u8> {
        let key = self.key();
        let name = match key.len() {
            ..=MAX_LITERAL_KEY_BYTES => format!("ripstop-shm/{user}/{key}"),
            _ => format!("ripstop-shm/{user}#{:032x}", fnv(key.as_bytes())),
        };
        name.into_bytes()
    }
}

/// FNV-1a of 128 bits. The handshake compares whole names, so a collision is an error and no mix-up.
fn fnv(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl Addr for Name {
    type Table = Table<NameTable<Self>, Self>;

    /// With the terminating null.
    const LEN: usize = MAX_NAME_BYTES + 1;

    fn from_address(address: &Address) -> Result<Self> {
        match address {
            Address::Str(text) => Self::new(text),
            _ => Err(Errno::EINVAL),
        }
    }

    fn to_address(&self) -> Address {
        Address::Str((*self.text).to_owned())
    }

    fn context(&self, index: u8) -> Option<Self> {
        match index {
            0 => Some(self.clone()),
            _ => self.with_suffix(&format_args!("#{index}")).ok(),
        }
    }

    fn endpoint_of(&self, index: u8) -> Self {
        let tail = format!("#{index}");
        let whole = match index {
            0 => None,
            _ => self.text.strip_suffix(&tail),
        };
        whole
            .and_then(|text| Self::new(text).ok())
            .unwrap_or_else(|| self.clone())
    }

    fn order(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }

    fn digest(&self, byte: &mut dyn FnMut(u8)) {
        self.key().bytes().for_each(&mut *byte);
        byte(0);
    }

    fn is_own(&self, own: &Self) -> Result<Own> {
        Ok(match self == own {
            true => Own::Exact,
            false => Own::No,
        })
    }
}

impl Shareable for Name {
    const MAGIC: [u8; 8] = *b"RSTOPAN1";
    /// The number of bytes, then those, filled up with zeroes.
    const WORDS: usize = 1 + MAX_NAME_BYTES.div_ceil(size_of::<u64>());

    fn is_reachable(&self) -> bool {
        true
    }

    fn encode(&self, words: &mut [u64]) {
        let Some((len, rest)) = words.split_first_mut() else {
            return;
        };
        *len = self.text.len() as u64;
        let chunks = self.text.as_bytes().chunks(size_of::<u64>());
        for (word, chunk) in rest.iter_mut().zip(chunks) {
            let mut bytes = [0; size_of::<u64>()];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(bytes);
        }
    }

    fn decode(words: &[u64]) -> Option<Self> {
        let (&len, rest) = words.split_first()?;
        let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).collect();
        let text = bytes.get(..usize::try_from(len).ok()?)?;
        Self::new(std::str::from_utf8(text).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn names_compare_without_prefix() {
        assert_eq!(name("fi_shm://a:1"), name("fi_ns://a:1"));
        assert_eq!(name("a:1"), name("mine://a:1"));
        assert_ne!(name("fi_shm://a"), name("fi_shm://b"));
        assert_eq!(name("x://a").socket(7), name("y://a").socket(7));
        assert_ne!(name("x://a").socket(7), name("x://a").socket(8));
        assert_eq!(name("x://a").to_address(), Address::Str("x://a".into()));
    }

    #[test]
    fn default_names_contain_their_user() {
        for text in [
            "fi_shm://0000007:1000:3",
            "fi_shm://7:1000:3:0badcafe",
            "fi_shm://7:1000:3#2",
        ] {
            assert_eq!(name(text).user(), Some(1000), "{text}");
        }
        for text in [
            "fi_shm://7",
            "fi_shm://7:1000",
            "fi_ns://7:1000:3",
            "fi_shm://a:1000:3",
            "fi_shm://7:b:3",
            "fi_shm://7::3",
            "fi_shm://7:1000:",
            "fi_shm://7:4294967296:3",
        ] {
            assert_eq!(name(text).user(), None, "{text}");
        }
    }

    #[test]
    fn invalid_names_are_refused() {
        for text in ["", "fi_shm://", &"x".repeat(MAX_NAME_BYTES + 1)] {
            assert_eq!(Name::new(text).err(), Some(Errno::EINVAL), "{text}");
        }
        let ip = Address::Ip(([127, 0, 0, 1], 1).into());
        assert_eq!(Name::from_address(&ip).err(), Some(Errno::EINVAL));
    }

    #[test]
    fn names_round_trip_through_a_shared_vector() {
        let mut words = [0; Name::WORDS];
        for text in [
            "a",
            "fi_shm://7:0:1",
            "fi_ns://\u{e9}",
            &"x".repeat(MAX_NAME_BYTES),
        ] {
            words.fill(0);
            name(text).encode(&mut words);
            let back = Name::decode(&words).unwrap();
            assert_eq!(back.text(), text);
        }
        // What another process may write there.
        for (at, value) in [
            (0, 0),
            (0, MAX_NAME_BYTES as u64 + 1),
            (0, u64::MAX),
            (1, u64::MAX),
        ] {
            words.fill(0);
            name("fi_shm://7:0:1").encode(&mut words);
            words[at] = value;
            assert_eq!(Name::decode(&words), None, "word {at} is {value}");
        }
        assert_eq!(Name::decode(&[]), None);
    }

    #[test]
    fn long_names_have_distinct_sockets() {
        let (long, other) = ("a".repeat(190), format!("{}b", "a".repeat(189)));
        let sockets = [&long, &other].map(|text| name(text).socket(u32::MAX));
        assert_ne!(sockets[0], sockets[1]);
        for socket in sockets {
            assert!(socket.len() <= ripstop_os::MAX_UNIX_NAME);
        }
        let longest = name(&"k".repeat(MAX_LITERAL_KEY_BYTES)).socket(u32::MAX);
        assert!(longest.len() <= ripstop_os::MAX_UNIX_NAME);
        // A key that looks like a sum is no sum.
        let sum = format!("#{:032x}", fnv(long.as_bytes()));
        assert_ne!(name(&sum).socket(7), name(&long).socket(7));
    }

    #[test]
    fn contexts_have_distinct_names() {
        let whole = name("fi_shm://1:2:3");
        assert_eq!(whole.context(0), Some(whole.clone()));
        for index in 1..16 {
            let context = whole.context(index).unwrap();
            assert_ne!(context, whole);
            assert_eq!(context.endpoint_of(index), whole);
        }
        assert_eq!(whole.endpoint_of(0), whole);
        assert_eq!(whole.endpoint_of(3), whole);
        assert_eq!(name(&"x".repeat(MAX_NAME_BYTES)).context(1), None);
    }
}
