//! Parameters that every transport has (`FI_<NAME>_*`, man page `fabric(7)`), read once.

use std::time::Duration;

use ripstop_core::params;

/// Most bytes of connection data.
pub(crate) const MAX_HELLO: usize = ripstop_wire::xnet::cm::MAX_DATA as usize;

/// Least free bytes at which a multi-receive buffer stays posted, until the caller says
/// otherwise.
pub(crate) const MIN_MULTI_RECV: u64 = 16 * 1024;

/// Messages of up to so many bytes are kept whatever the user says, as in C.
const MIN_SAVED_BYTES: usize = 16 * 1024;

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

/// Values of these parameters.
#[derive(Debug)]
pub struct Tunables {
    /// Entries of a transmit context whose opener names no number.
    pub tx_size: usize,
    /// Entries of a receive context whose opener names no number.
    pub rx_size: usize,
    /// Most bytes of an injected message.
    pub max_inject: usize,
    /// Most bytes of a payload that is copied to be written with others.
    pub inline: usize,
    /// Tagged messages above this many bytes wait for the receiver, if both sides can.
    pub rendezvous: u64,
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

impl Tunables {
    /// Declares and reads those of the provider of this name.
    #[must_use]
    pub fn read(name: &str, defaults: Defaults) -> Self {
        let p = params();
        let Defaults {
            max_inject,
            connect_timeout,
            max_saved_bytes,
            max_saved_total,
        } = defaults;
        let prov = Some(name);
        let help = format!("maximum size for inject messages (default: {max_inject})");
        let max_inject = p.declare::<usize>(prov, "max_inject", max_inject, &help);
        let help = format!(
            "how long to try to reach a peer, or to wait for the rest of a handshake or header, \
             in milliseconds (default: {connect_timeout})"
        );
        let timeout = p.declare::<usize>(prov, "connect_timeout", connect_timeout, &help);
        let answer = p.declare::<usize>(
            prov,
            "answer_timeout",
            600_000,
            "how long a process that is connected may take before it answers, as one does that \
             computes and makes no progress, in milliseconds (default: 600000)",
        );
        // What is injected must fit into the transmit buffer together with its header.
        let max_inject = max_inject.min(TX_BUFFER / 2);
        // As in C, where it is one bound for what is sent unasked and for what is kept.
        let max_saved_size = p.declare_optional::<usize>(
            prov,
            "max_saved_size",
            "maximum size of any message that is kept without a posted buffer. Longer ones stay at \
             the sender until there is one: tagged messages by asking for it, if the peer can do \
             so, others by holding up what follows them (default: unlimited, and 524288 for what \
             is sent without asking)",
        );
        let max_saved_size =
            max_saved_size.map(|size| size.max(MIN_SAVED_BYTES).max(max_inject) as u64);
        Self {
            tx_size: p.declare(
                prov,
                "tx_size",
                1024,
                "define default tx context size (default: 1024)",
            ),
            rx_size: p.declare(
                prov,
                "rx_size",
                1024,
                "define default rx context size (default: 1024)",
            ),
            max_inject,
            inline: 2048,
            rendezvous: max_saved_size.unwrap_or(512 * 1024),
            kept_bytes: p.declare::<usize>(
                prov,
                "max_saved_bytes",
                max_saved_bytes,
                &format!(
                    "how many bytes of messages without a posted buffer are kept for one peer \
                     before the peer has to wait; a message counts with its length and 256 bytes \
                     (default: {max_saved_bytes})"
                ),
            ) as u64,
            kept_messages: u32::try_from(p.declare::<usize>(
                prov,
                "max_saved",
                u32::MAX as usize,
                "how many messages without a posted buffer are kept for one peer before the peer \
                 has to wait (default: 4294967295, which max_saved_bytes does not allow)",
            ))
            .unwrap_or(u32::MAX),
            kept_longest: max_saved_size.unwrap_or(u64::MAX),
            universe: p.get(None, "universe_size").unwrap_or(0),
            remove_cleanup: p.get(None, "av_remove_cleanup").unwrap_or(false),
            kept_total: p.declare::<usize>(
                prov,
                "max_saved_total",
                max_saved_total,
                &format!(
                    "as max_saved_bytes, for all peers of a domain together, those that have left \
                     included (default: {max_saved_total})"
                ),
            ) as u64,
            no_thread: p.declare(
                prov,
                "disable_auto_progress",
                false,
                "prevent auto-progress thread from starting",
            ),
            timeout: Duration::from_millis(timeout.max(1) as u64),
            answer: Duration::from_millis(answer.max(1) as u64),
        }
    }
}
