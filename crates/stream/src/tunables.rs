//! Parameters that every transport has (`FI_<NAME>_*`, man page `fabric(7)`), read once.

use std::ops::RangeInclusive;
use std::time::Duration;

use ripstop_core::params;

/// Most bytes of connection data.
pub(crate) const MAX_HELLO: usize = ripstop_wire::xnet::cm::MAX_DATA as usize;

/// Least free bytes at which a multi-receive buffer stays posted, until the caller says
/// otherwise.
pub(crate) const MIN_MULTI_RECV: u64 = 16 * 1024;

/// The least value of `max_saved_size`, as in C.
const MIN_SAVED_SIZE: usize = 16 * 1024;

/// Pending connections of a listener.
pub const LISTEN_BACKLOG: i32 = 4096;

/// Pause before a refused connection is tried again; it doubles each time.
pub(crate) const FIRST_RETRY: Duration = Duration::from_millis(50);

/// Bytes of a transmit buffer.
pub(crate) const TX_BUFFER: usize = 16 * 1024;

/// What parameters are unless the user says otherwise, where that is up to the provider.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Most bytes of an injected message.
    pub max_inject: usize,
    /// How long to try to reach a peer, in milliseconds.
    pub connect_timeout: usize,
    /// Most bytes of unexpected messages of a peer that are kept.
    pub max_saved_bytes: usize,
    /// The same of all peers of a domain together.
    pub max_saved_total: usize,
}

/// Most bytes of an injected message: it must fit into the transmit buffer together with its header.
const MAX_INJECT: usize = TX_BUFFER / 2;

/// Some of the parameters, where they are not read by the names that all transports have.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// As in [`Tunables`].
    pub tx_size: usize,
    /// As in [`Tunables`].
    pub rx_size: usize,
    /// As in [`Tunables`].
    pub max_inject: usize,
}

/// Values of these parameters.
#[derive(Clone, Debug)]
pub struct Tunables {
    /// Entries of a transmit context whose opener names no number, or fewer.
    pub tx_size: usize,
    /// Entries of a receive context whose opener names no number.
    pub rx_size: usize,
    /// Most bytes of an injected message.
    pub max_inject: usize,
    /// Most bytes of a payload that is copied to be written with others.
    pub inline: usize,
    /// Tagged messages above this many bytes wait for the receiver, if both sides can.
    pub eager_max: u64,
    /// Most bytes of unexpected messages of a peer that are kept.
    pub kept_bytes: u64,
    /// Most unexpected messages of a peer that are kept.
    pub kept_messages: u32,
    /// Most bytes of one unexpected message that is kept.
    pub kept_longest: u64,
    /// Most bytes of unexpected messages of all peers of a domain that are kept.
    pub kept_total: u64,
    /// Peers that a program without a number of its own is made ready for, 0 for a default
    /// (`FI_UNIVERSE_SIZE`).
    pub universe: usize,
    /// A peer that is taken out of an address vector loses its connections
    /// (`FI_AV_REMOVE_CLEANUP`).
    pub remove_cleanup: bool,
    /// No domain has a thread that makes progress.
    pub no_thread: bool,
    /// How long to try to reach a peer, and to wait for the rest of what it began to say.
    pub timeout: Duration,
    /// How long a peer that is connected may take to start its part of a handshake.
    pub answer: Duration,
}

/// A number among the parameters: its line of `fi_info -e`, and what it may be.
struct Number {
    /// The variable is `FI_<PROVIDER>_<NAME>`.
    name: &'static str,
    /// What holds where it is not set.
    default: usize,
    /// A value beyond these counts as the nearer one.
    bounds: RangeInclusive<usize>,
    /// What it is for, with its unit; `#` stands for the default.
    help: &'static str,
}

impl Number {
    /// Declares it and reads its value.
    fn read(&self, provider: &str) -> usize {
        let help = self.help.replace('#', &self.default.to_string());
        params().declare_bounded(Some(provider), self.name, self.default, &self.bounds, &help)
    }
}

/// What `max_saved_size` is where it is not set, below its bounds.
const UNLIMITED: usize = 0;

/// The parameters that are numbers, in the order in which they are listed.
const fn numbers(defaults: &Defaults) -> [Number; 9] {
    [
        Number {
            name: "max_inject",
            default: defaults.max_inject,
            bounds: 0..=MAX_INJECT,
            help: "maximum size for inject messages (default: #)",
        },
        Number {
            name: "connect_timeout",
            default: defaults.connect_timeout,
            bounds: 1..=usize::MAX,
            help: "how long to try to reach a peer, or to wait for the rest of a handshake, in \
                   milliseconds (default: #)",
        },
        Number {
            name: "answer_timeout",
            default: 600_000,
            bounds: 1..=usize::MAX,
            help: "how long a process that is connected may take before it answers, as one does \
                   that computes and makes no progress, in milliseconds (default: #)",
        },
        // As in C, one bound for what is sent unasked and for what is kept.
        Number {
            name: "max_saved_size",
            default: UNLIMITED,
            bounds: MIN_SAVED_SIZE..=usize::MAX,
            help: "maximum size of any message that is kept without a posted buffer. Longer ones \
                   stay at the sender until there is one: tagged messages by asking for it, if \
                   the peer can do so, others by holding up what follows them (default: \
                   unlimited, and 524288 for what is sent without asking)",
        },
        Number {
            name: "tx_size",
            default: 1024,
            bounds: 0..=usize::MAX,
            help: "define default tx context size; a program that asks for fewer has as many (default: #)",
        },
        Number {
            name: "rx_size",
            default: 1024,
            bounds: 0..=usize::MAX,
            help: "define default rx context size (default: #)",
        },
        Number {
            name: "max_saved_bytes",
            default: defaults.max_saved_bytes,
            bounds: 0..=usize::MAX,
            help: "how many bytes of messages without a posted buffer are kept for one peer before \
                   the peer has to wait; a message counts with its length and 256 bytes \
                   (default: #)",
        },
        Number {
            name: "max_saved",
            default: u32::MAX as usize,
            bounds: 0..=u32::MAX as usize,
            help: "how many messages without a posted buffer are kept for one peer before the peer \
                   has to wait (default: #, which max_saved_bytes does not allow)",
        },
        Number {
            name: "max_saved_total",
            default: defaults.max_saved_total,
            bounds: 0..=usize::MAX,
            help: "as max_saved_bytes, for all peers of a domain together, those that have left \
                   included (default: #)",
        },
    ]
}

impl Tunables {
    /// Declares and reads those of the provider of this name.
    #[must_use]
    pub fn read(name: &str, defaults: Defaults) -> Self {
        Self::read_all(name, &defaults, None)
    }

    /// The same, but for those that are given.
    #[must_use]
    pub fn read_others(name: &str, defaults: Defaults, given: Given) -> Self {
        Self::read_all(name, &defaults, Some(given))
    }

    /// These, but for those that are given.
    #[must_use]
    pub fn with(&self, given: Given) -> Self {
        let Given {
            tx_size,
            rx_size,
            max_inject,
        } = given;
        Self {
            tx_size,
            rx_size,
            max_inject,
            ..self.clone()
        }
    }

    fn read_all(name: &str, defaults: &Defaults, given: Option<Given>) -> Self {
        let [
            max_inject,
            connect_timeout,
            answer_timeout,
            max_saved_size,
            tx_size,
            rx_size,
            max_saved_bytes,
            max_saved,
            max_saved_total,
        ] = numbers(defaults).map(|number| match (given, number.name) {
            (Some(given), "max_inject") => given.max_inject,
            (Some(given), "tx_size") => given.tx_size,
            (Some(given), "rx_size") => given.rx_size,
            _ => number.read(name),
        });
        let longest = match max_saved_size {
            UNLIMITED => None,
            size => Some(size.max(max_inject) as u64),
        };
        let p = params();
        Self {
            tx_size,
            rx_size,
            max_inject,
            inline: 2048,
            eager_max: longest.unwrap_or(512 * 1024),
            kept_bytes: max_saved_bytes as u64,
            kept_messages: u32::try_from(max_saved).unwrap_or(u32::MAX),
            kept_longest: longest.unwrap_or(u64::MAX),
            kept_total: max_saved_total as u64,
            universe: p.get(None, "universe_size").unwrap_or(0),
            remove_cleanup: p.get(None, "av_remove_cleanup").unwrap_or(false),
            no_thread: p.declare(
                Some(name),
                "disable_auto_progress",
                false,
                "prevent auto-progress thread from starting",
            ),
            timeout: Duration::from_millis(connect_timeout as u64),
            answer: Duration::from_millis(answer_timeout as u64),
        }
    }
}
