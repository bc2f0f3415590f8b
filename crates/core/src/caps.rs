//! Classes of capabilities (man page `fi_getinfo(3)`, section "Capabilities") and the rules
//! that derive what is enabled from what is asked.

use ripstop_types::{Flags, flags};

/// Sends and receives: the modifiers of messages.
pub const MSG_DIRECTIONS: Flags = flags![SEND RECV];

/// Initiator and target of reads and writes: the modifiers of RMA and atomics.
pub const RMA_DIRECTIONS: Flags = flags![READ WRITE REMOTE_READ REMOTE_WRITE];

const PRIMARY_BOTH: Flags = flags![MSG RMA TAGGED ATOMIC COLLECTIVE HMEM];

/// Capabilities that a transmit context has only when asked.
const PRIMARY_TX: Flags = PRIMARY_BOTH.union(flags![MULTICAST READ WRITE SEND NAMED_RX_CTX]);

/// Capabilities that a receive context has only when asked.
const PRIMARY_RX: Flags = PRIMARY_BOTH.union(flags![
    REMOTE_READ REMOTE_WRITE RECV DIRECTED_RECV TAGGED_DIRECTED_RECV EXACT_DIRECTED_RECV
]);

/// Capabilities that are enabled only when asked.
pub const PRIMARY: Flags = PRIMARY_TX.union(PRIMARY_RX).union(flags![AV_USER_ID PEER]);

/// Capabilities a provider reports even when not asked.
const SECONDARY: Flags = flags![
    TRIGGER FENCE RMA_PMEM MULTI_RECV TAGGED_MULTI_RECV SOURCE RMA_EVENT SOURCE_ERR SHARED_AV
    REMOTE_COMM LOCAL_COMM
];

/// Receive capabilities that older programs set in transmit hints; they are ignored there.
pub const IGNORED_TX: Flags = flags![
    REMOTE_READ REMOTE_WRITE RECV DIRECTED_RECV MULTI_RECV SOURCE RMA_EVENT SOURCE_ERR
];

/// Transmit capabilities that older programs set in receive hints; they are ignored there.
pub const IGNORED_RX: Flags = flags![READ WRITE SEND FENCE MULTICAST NAMED_RX_CTX];

/// What takes the directions of [`RMA_DIRECTIONS`].
const REMOTE_ACCESS: Flags = flags![RMA ATOMIC];

/// Whether an endpoint with `caps` can be the target of reads, writes or atomics: RMA or
/// atomics that are not restricted to the initiator's side.
#[must_use]
pub const fn is_rma_target(caps: Flags) -> bool {
    caps.intersects(REMOTE_ACCESS)
        && (caps.intersects(flags![REMOTE_READ REMOTE_WRITE]) || !caps.intersects(RMA_DIRECTIONS))
}

/// Whether an endpoint with `caps` is meant to start reads, writes or atomics, so that it needs a queue for them: RMA or
/// atomics that are not restricted to the target's side. One that may do either may do both, and where it has a queue
/// for its messages, so may one that is restricted, as in C: Charm++ asks for `FI_RMA` and `FI_REMOTE_READ`, and reads.
#[must_use]
pub const fn is_rma_initiator(caps: Flags) -> bool {
    caps.intersects(REMOTE_ACCESS)
        && (caps.intersects(flags![READ WRITE]) || !caps.intersects(RMA_DIRECTIONS))
}

/// The capabilities to enable.
///
/// `of_info` are those of the whole interface, `asked` those in the hints (empty for no
/// preference) and `offered` those of the group at hand: primary ones are enabled when asked,
/// secondary ones always, except [`Flags::SOURCE`], which costs and so waits to be asked.
/// Messages or RMA without a direction get every direction that both offer.
#[must_use]
pub fn enabled(of_info: Flags, asked: Flags, offered: Flags) -> Flags {
    let secondary = offered & SECONDARY;
    let mut caps = if asked.is_empty() {
        (of_info & offered & PRIMARY) | secondary
    } else {
        (asked & PRIMARY) | (secondary - Flags::SOURCE) | (asked & Flags::SOURCE)
    };
    if caps.intersects(Flags::MSG | Flags::TAGGED) && !caps.intersects(MSG_DIRECTIONS) {
        caps |= offered & of_info & MSG_DIRECTIONS;
    }
    if caps.intersects(REMOTE_ACCESS) && !caps.intersects(RMA_DIRECTIONS) {
        caps |= offered & of_info & RMA_DIRECTIONS;
    }
    caps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_follow_what_is_asked() {
        let offered = Flags::MSG | Flags::RMA | MSG_DIRECTIONS | RMA_DIRECTIONS | Flags::SOURCE;
        assert_eq!(
            enabled(offered, Flags::MSG, offered),
            Flags::MSG | MSG_DIRECTIONS
        );
        let send_only = Flags::MSG | Flags::SEND;
        assert_eq!(enabled(offered, send_only, offered), send_only);
        assert_eq!(enabled(offered, Flags::empty(), offered), offered);
        let source = Flags::MSG | Flags::SOURCE;
        assert!(enabled(offered, source, offered).contains(Flags::SOURCE));
    }

    #[test]
    fn targets_are_endpoints_others_may_access() {
        assert!(is_rma_target(Flags::RMA));
        assert!(is_rma_target(
            Flags::ATOMIC | Flags::WRITE | Flags::REMOTE_READ
        ));
        assert!(!is_rma_target(Flags::RMA | Flags::WRITE));
        assert!(!is_rma_target(Flags::MSG));
    }

    #[test]
    fn initiators_need_no_send() {
        assert!(is_rma_initiator(Flags::RMA | Flags::RECV));
        assert!(is_rma_initiator(Flags::ATOMIC | Flags::WRITE | Flags::RECV));
        let target = Flags::RMA | Flags::REMOTE_READ | Flags::REMOTE_WRITE;
        assert!(!is_rma_initiator(target | Flags::SEND));
        assert!(is_rma_initiator(target | Flags::READ));
        assert!(!is_rma_initiator(Flags::MSG | Flags::SEND));
    }
}
