//! Classes of capabilities (man page `fi_getinfo(3)`, section "Capabilities") and the rules
//! that derive what is enabled from what is asked.

use ripstop_types::Flags;

/// Sends and receives: the modifiers of messages.
pub const MSG_DIRECTIONS: Flags = Flags::SEND.union(Flags::RECV);

/// Initiator and target of reads and writes: the modifiers of RMA and atomics.
pub const RMA_DIRECTIONS: Flags = Flags::READ
    .union(Flags::WRITE)
    .union(Flags::REMOTE_READ)
    .union(Flags::REMOTE_WRITE);

const PRIMARY_BOTH: Flags = Flags::MSG
    .union(Flags::RMA)
    .union(Flags::TAGGED)
    .union(Flags::ATOMIC)
    .union(Flags::COLLECTIVE)
    .union(Flags::HMEM);

/// Capabilities that a transmit context has only when asked.
pub const PRIMARY_TX: Flags = PRIMARY_BOTH
    .union(Flags::MULTICAST)
    .union(Flags::READ)
    .union(Flags::WRITE)
    .union(Flags::SEND)
    .union(Flags::NAMED_RX_CTX);

/// Capabilities that a receive context has only when asked.
pub const PRIMARY_RX: Flags = PRIMARY_BOTH
    .union(Flags::REMOTE_READ)
    .union(Flags::REMOTE_WRITE)
    .union(Flags::RECV)
    .union(Flags::DIRECTED_RECV)
    .union(Flags::TAGGED_DIRECTED_RECV)
    .union(Flags::EXACT_DIRECTED_RECV);

/// Capabilities that are enabled only when asked.
pub const PRIMARY: Flags = PRIMARY_TX
    .union(PRIMARY_RX)
    .union(Flags::AV_USER_ID)
    .union(Flags::PEER);

/// Capabilities a provider reports even when not asked.
pub const SECONDARY: Flags = Flags::TRIGGER
    .union(Flags::FENCE)
    .union(Flags::RMA_PMEM)
    .union(Flags::MULTI_RECV)
    .union(Flags::TAGGED_MULTI_RECV)
    .union(Flags::SOURCE)
    .union(Flags::RMA_EVENT)
    .union(Flags::SOURCE_ERR)
    .union(Flags::SHARED_AV)
    .union(Flags::REMOTE_COMM)
    .union(Flags::LOCAL_COMM);

/// Receive capabilities that older programs set in transmit hints; they are ignored there.
pub const IGNORED_TX: Flags = Flags::REMOTE_READ
    .union(Flags::REMOTE_WRITE)
    .union(Flags::RECV)
    .union(Flags::DIRECTED_RECV)
    .union(Flags::MULTI_RECV)
    .union(Flags::SOURCE)
    .union(Flags::RMA_EVENT)
    .union(Flags::SOURCE_ERR);

/// Transmit capabilities that older programs set in receive hints; they are ignored there.
pub const IGNORED_RX: Flags = Flags::READ
    .union(Flags::WRITE)
    .union(Flags::SEND)
    .union(Flags::FENCE)
    .union(Flags::MULTICAST)
    .union(Flags::NAMED_RX_CTX);

/// Whether an endpoint with `caps` can be the target of reads, writes or atomics: RMA or
/// atomics that are not restricted to the initiator's side.
#[must_use]
pub const fn is_rma_target(caps: Flags) -> bool {
    if !caps.intersects(Flags::RMA.union(Flags::ATOMIC)) {
        return false;
    }
    let remote = Flags::REMOTE_READ.union(Flags::REMOTE_WRITE);
    caps.intersects(remote) || !caps.intersects(RMA_DIRECTIONS)
}

/// Whether an endpoint with `caps` can start reads, writes or atomics: RMA or atomics that are
/// not restricted to the target's side. One that may do either may do both, as in C.
#[must_use]
pub const fn is_rma_initiator(caps: Flags) -> bool {
    if !caps.intersects(Flags::RMA.union(Flags::ATOMIC)) {
        return false;
    }
    caps.intersects(Flags::READ.union(Flags::WRITE)) || !caps.intersects(RMA_DIRECTIONS)
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
    if caps.intersects(Flags::RMA | Flags::ATOMIC) && !caps.intersects(RMA_DIRECTIONS) {
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
