//! Parameters of connections in packets (`FI_OFI_RXM_*`, man page `fi_rxm(7)`), over whatever they are. They are
//! C libfabric's.

use ripstop_core::param::{ParamType, Unused};
use ripstop_core::{Hints, Info, params};
use ripstop_types::{Progress, Threading};
use ripstop_wire::rxm::cm::EAGER_MAX;
use ripstop_wire::rxm::{ATOMIC_LEN, BASE_LEN, MAX_PACKET_HEADER, MAX_UNIT_HEADER};

use crate::tunables::{Given, TX_BUFFER};

/// The name by which C's variables are of this provider.
const NAME: &str = "ofi_rxm";

/// Entries of a transmit or receive context, where neither the program nor the user says.
const SIZE: usize = 2048;

/// Requests, and receives, of one connection.
const CONNECTION_SIZE: usize = 128;

/// Most bytes of an injected message. The operands of an atomic, and as many bytes to compare with, fit into the
/// transmit buffer.
const MAX_INJECT: usize = 8000;
const _: () = assert!(2 * MAX_INJECT + MAX_UNIT_HEADER <= TX_BUFFER);

/// The shortest eager message: each packet has room for what an announcement or an atomic says.
const LEAST_EAGER: usize = MAX_PACKET_HEADER - BASE_LEN;

/// Most requests or receives of a connection: as many as a number of 16 bits counts, with one to spare.
const MOST: usize = u16::MAX as usize - 1;

/// So many packets a message in segments takes at most, if the user says nothing.
const SEGMENTS: usize = 8;

/// The longest segment, whose length is in 16 bits.
const SEGMENT_MAX: u32 = u16::MAX as u32;

/// What C's `ofi_rxm` reads and has no use here.
const UNUSED: [Unused; 12] = [
    Unused::new(
        "use_srx",
        ParamType::Bool,
        "each connection has receives of its own",
    ),
    Unused::new(
        "use_rndv_write",
        ParamType::Bool,
        "long messages are read by their receiver",
    ),
    Unused::new(
        "comp_per_progress",
        ParamType::Int,
        "completions are read as they come, up to 256 of a connection at a time",
    ),
    Unused::new(
        "cm_progress_interval",
        ParamType::Int,
        "connections are made while completions are awaited, and looked after by how much is read",
    ),
    Unused::new(
        "cq_eq_fairness",
        ParamType::Int,
        "connections are made while completions are awaited, and looked after by how much is read",
    ),
    Unused::new(
        "def_wait_obj",
        ParamType::String,
        "a wait object that the program leaves open is a descriptor",
    ),
    Unused::new(
        "def_tcp_wait_obj",
        ParamType::String,
        "a wait object that the program leaves open is a descriptor",
    ),
    Unused::new(
        "enable_direct_send",
        ParamType::Bool,
        "over tcp payloads leave from the memory of the program in any case",
    ),
    Unused::new(
        "enable_dyn_rbuf",
        ParamType::Bool,
        "over tcp payloads are read into the memory of the program in any case",
    ),
    Unused::new(
        "enable_passthru",
        ParamType::Bool,
        "the provider tcp is what is to be asked for instead",
    ),
    Unused::new(
        "detect_hmem_iface",
        ParamType::Bool,
        "no provider here uses memory of devices",
    ),
    Unused::new(
        "eager_limit",
        ParamType::Size,
        "it is FI_OFI_RXM_BUFFER_SIZE",
    ),
];

/// Values of these parameters.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The longest message that is sent in one packet, in bytes.
    pub eager_max: u32,
    /// The longest one that is sent without being announced, in packets of a device, in bytes: not less.
    pub segmented_max: u64,
    /// Requests to one peer that are under way, where a device has a queue of them.
    pub msg_tx_size: u16,
    /// Receives for packets of one peer, where a device has a queue of them.
    pub msg_rx_size: u16,
    /// Whether devices are looked for by each `fi_getinfo`, or by none but the first; else by those that ask
    /// for it (`FI_RESCAN`).
    pub rescan: Option<bool>,
    tx_size: usize,
    rx_size: usize,
    /// Domains have a thread that makes progress, whatever the program asks for.
    always_auto: bool,
}

impl Settings {
    /// Declares and reads all.
    #[must_use]
    pub fn read() -> Self {
        let p = params();
        let prov = Some(NAME);
        let size = |name, default: usize, help: &str| {
            let help = help.replace('#', &default.to_string());
            // In C, 0 is as good as nothing.
            match p.declare::<usize>(prov, name, default, &help) {
                0 => default,
                value => value,
            }
        };
        let eager_max = size(
            "buffer_size",
            EAGER_MAX as usize,
            "bytes of a message that are sent at once; longer ones are announced, or sent in segments. Peers must have \
             the same. Over RDMA devices, each send and receive of a connection has a buffer of so many. fi_inject takes as \
             much, up to 8000 (default: #)",
        );
        let eager_max = eager(eager_max);
        let segmented_max = p.declare::<usize>(
            prov,
            "sar_limit",
            eager_max as usize * SEGMENTS,
            &format!(
                "over RDMA devices, bytes of a message that is sent in segments, a packet each, if it is too long for one \
                 packet; longer ones are announced, and read by their receiver. Nothing is sent in segments with less \
                 than FI_OFI_RXM_BUFFER_SIZE, or if that is above {SEGMENT_MAX} (default: {SEGMENTS} times that)"
            ),
        );
        let settings = Self {
            eager_max,
            segmented_max: segmented(eager_max, segmented_max),
            tx_size: size(
                "tx_size",
                SIZE,
                "define default tx context size; a program that asks for fewer has as many (default: #)",
            ),
            rx_size: size(
                "rx_size",
                SIZE,
                "define default rx context size (default: #)",
            ),
            msg_tx_size: entries(size(
                "msg_tx_size",
                CONNECTION_SIZE,
                "over RDMA devices, requests to one peer that are under way; a quarter of them may be messages \
                 (default: #)",
            )),
            msg_rx_size: entries(size(
                "msg_rx_size",
                CONNECTION_SIZE,
                "over RDMA devices, receives for messages of one peer (default: #)",
            )),
            rescan: p.declare_optional(
                prov,
                "rescan",
                "look for devices whenever fi_getinfo is called, or never again (default: when \
                 the program asks for it)",
            ),
            always_auto: p.declare(
                prov,
                "data_auto_progress",
                false,
                "a thread makes progress, whatever the program asks for (default: no)",
            ),
        };
        p.define_unused(prov, &UNUSED);
        settings
    }

    /// Most bytes of memory that one atomic changes: so many operands, as many to compare with and the pieces of
    /// memory are what a receiver of the C library has room for.
    #[must_use]
    pub const fn max_atomic(&self) -> usize {
        (self.eager_max as usize - ATOMIC_LEN) / 2
    }

    /// Those of the parameters of all transports that these set.
    #[must_use]
    pub fn given(&self) -> Given {
        Given {
            tx_size: self.tx_size,
            rx_size: self.rx_size,
            max_inject: (self.eager_max as usize).min(MAX_INJECT),
        }
    }

    /// Changes an answer of `fi_getinfo` to a program with these hints: it makes progress itself unless it has asked
    /// for automatic progress, or the user wants that.
    pub fn apply(&self, info: &mut Info, hints: Option<&Hints>) {
        let domain = &mut info.domain;
        if self.always_auto {
            domain.progress = Progress::Auto;
            domain.control_progress = Progress::Auto;
            domain.threading = Threading::Safe;
        } else if !hints.is_some_and(asks_progress) {
            domain.progress = Progress::Manual;
            domain.control_progress = Progress::Manual;
        }
    }
}

/// Whether a program says who is to make progress. Programs of version 1 of the interface say it for control operations
/// in a field of its own, which does not count beside that for all operations.
fn asks_progress(hints: &Hints) -> bool {
    hints.domain.as_ref().is_some_and(|domain| {
        domain.progress != Progress::Unspec || domain.control_progress == Progress::Auto
    })
}

fn eager(bytes: usize) -> u32 {
    bytes.clamp(LEAST_EAGER, i32::MAX as usize) as u32
}

/// The longest message in bytes that is sent in segments; the longest eager one where none is.
fn segmented(eager_max: u32, limit: usize) -> u64 {
    let most = match eager_max <= SEGMENT_MAX {
        true => u32::MAX,
        false => eager_max,
    };
    (limit as u64).clamp(eager_max.into(), most.into())
}

/// A queue of so many, but no longer than one can be.
fn entries(count: usize) -> u16 {
    // Credits need two receives at least.
    count.clamp(2, MOST) as u16
}

#[cfg(test)]
mod tests {
    use ripstop_core::DomainAttr;

    use super::*;

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(eager(0), 104);
        assert_eq!(eager(16384), EAGER_MAX);
        assert_eq!(eager(usize::MAX), 0x7fff_ffff);
        assert_eq!(
            (entries(1), entries(256), entries(1 << 20)),
            (2, 256, 65534)
        );
    }

    #[test]
    fn who_makes_progress() {
        use Progress::{Auto, ControlUnified, Manual, Unspec};

        let mut settings = Settings::read();
        settings.always_auto = false;
        let answer = |settings: &Settings, hints: Option<&Hints>| {
            let mut info = Info::default();
            // As hints are answered before.
            let asked = hints.and_then(|hints| hints.domain.as_ref());
            let asked = asked.map_or(Unspec, |domain| domain.progress);
            let progress = if asked == Unspec { Auto } else { asked };
            info.domain.progress = progress;
            info.domain.control_progress = progress;
            settings.apply(&mut info, hints);
            (info.domain.progress, info.domain.control_progress)
        };
        assert_eq!(answer(&settings, None), (Manual, Manual));
        assert_eq!(answer(&settings, Some(&Hints::default())), (Manual, Manual));
        let asks = |progress, control_progress| Hints {
            domain: Some(DomainAttr {
                progress,
                control_progress,
                ..DomainAttr::default()
            }),
            ..Hints::default()
        };
        for (progress, control, found) in [
            (Unspec, Unspec, Manual),
            (Unspec, Manual, Manual),
            (Unspec, ControlUnified, Manual),
            (Unspec, Auto, Auto),
            (Manual, Auto, Manual),
            (Manual, Manual, Manual),
            (Auto, Unspec, Auto),
            (Auto, Auto, Auto),
            (ControlUnified, Unspec, ControlUnified),
        ] {
            let hints = asks(progress, control);
            assert_eq!(
                answer(&settings, Some(&hints)),
                (found, found),
                "{progress:?} {control:?}"
            );
        }
        settings.always_auto = true;
        assert_eq!(answer(&settings, None), (Auto, Auto));
        let hints = asks(Manual, Manual);
        assert_eq!(answer(&settings, Some(&hints)), (Auto, Auto));
    }

    #[test]
    fn segments_are_of_messages_longer_than_a_packet() {
        assert_eq!(segmented(EAGER_MAX, 8 << 14), 131_072);
        assert_eq!(segmented(EAGER_MAX, 0), 16_384);
        assert_eq!(segmented(EAGER_MAX, usize::MAX), u32::MAX.into());
        assert_eq!(segmented(SEGMENT_MAX, 70_000), 70_000);
        assert_eq!(segmented(SEGMENT_MAX + 1, 70_000), 65_536);
    }

    #[test]
    fn an_atomic_has_room_in_a_packet() {
        let mut settings = Settings::read();
        settings.eager_max = EAGER_MAX;
        assert_eq!(settings.max_atomic(), 8144);
        settings.eager_max = eager(0);
        assert_eq!(settings.max_atomic(), 4);
        assert_eq!(settings.given().max_inject, 104);
    }
}
