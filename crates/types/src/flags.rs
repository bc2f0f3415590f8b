//! Capabilities and flags of operations (`FI_MSG`, `FI_INJECT` and others), which share one space of 64 bits.

use bitflags::bitflags;

/// Several [`Flags`] by their names, also for constants: `flags![SEND RECV]`.
#[macro_export]
macro_rules! flags {
    ($($name:ident)+) => { $crate::Flags::empty()$(.union($crate::Flags::$name))+ };
}

bitflags! {
    /// The 64-bit flag space of `rdma/fabric.h`: capabilities, operation flags and completion
    /// flags share it. Bits 1 and up are common, bits 59 and down belong to one call or class,
    /// so `CLAIM`, `DIRECTED_RECV` and `SELECTIVE_COMPLETION` have one value.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    #[repr(transparent)]
    pub struct Flags: u64 {
        /// Message operations (`FI_MSG`).
        const MSG = 1 << 1;
        /// Remote memory access.
        const RMA = 1 << 2;
        /// Tagged messages.
        const TAGGED = 1 << 3;
        /// Atomic operations.
        const ATOMIC = 1 << 4;
        /// Multicast.
        const MULTICAST = 1 << 5;
        /// Collective operations.
        const COLLECTIVE = 1 << 6;
        /// RMA reads.
        const READ = 1 << 8;
        /// RMA writes.
        const WRITE = 1 << 9;
        /// Receives.
        const RECV = 1 << 10;
        /// Sends (also `FI_TRANSMIT`).
        const SEND = 1 << 11;
        /// Target of reads.
        const REMOTE_READ = 1 << 12;
        /// Target of writes.
        const REMOTE_WRITE = 1 << 13;
        /// Multi-receive buffers.
        const MULTI_RECV = 1 << 16;
        /// Immediate data.
        const REMOTE_CQ_DATA = 1 << 17;
        /// More operations follow at once.
        const MORE = 1 << 18;
        /// Look at a message without receiving it.
        const PEEK = 1 << 19;
        /// Triggered operation.
        const TRIGGER = 1 << 20;
        /// Wait for earlier operations.
        const FENCE = 1 << 21;
        /// Generate a completion.
        const COMPLETION = 1 << 24;
        /// The buffer may be reused when the call returns.
        const INJECT = 1 << 25;
        /// Completion level: the buffer may be reused.
        const INJECT_COMPLETE = 1 << 26;
        /// Completion level: the operation has left the local endpoint.
        const TRANSMIT_COMPLETE = 1 << 27;
        /// Completion level: the peer has placed the data.
        const DELIVERY_COMPLETE = 1 << 28;
        /// Completion queue interrupt affinity.
        const AFFINITY = 1 << 29;
        /// Completion level: the data is durable.
        const COMMIT_COMPLETE = 1 << 30;
        /// Completion level: the message was matched.
        const MATCH_COMPLETE = 1 << 31;
        /// Ask providers to look for hardware again.
        const RESCAN = 1 << 35;
        /// Peer transfer.
        const PEER_TRANSFER = 1 << 36;
        /// Caller-chosen ids in the address vector.
        const AV_USER_ID = 1 << 41;
        /// The peer is behind a firewall and must connect to us.
        const FIREWALL_ADDR = 1 << 42;
        /// Peer provider composition.
        const PEER = 1 << 43;
        /// Directed receive, tagged only.
        const TAGGED_DIRECTED_RECV = 1 << 45;
        /// Multi-receive, tagged.
        const TAGGED_MULTI_RECV = 1 << 46;
        /// Device memory.
        const HMEM = 1 << 47;
        /// Directed receive without wildcard.
        const EXACT_DIRECTED_RECV = 1 << 48;
        /// RMA to persistent memory.
        const RMA_PMEM = 1 << 49;
        /// Source of a message from an unknown peer in the error entry.
        const SOURCE_ERR = 1 << 50;
        /// Communication on one host.
        const LOCAL_COMM = 1 << 51;
        /// Communication with other hosts.
        const REMOTE_COMM = 1 << 52;
        /// Address vectors shared between processes.
        const SHARED_AV = 1 << 53;
        /// `fi_getinfo`: provider attributes only.
        const PROV_ATTR_ONLY = 1 << 54;
        /// `fi_getinfo`: node is a numeric address.
        const NUMERICHOST = 1 << 55;
        /// Events for RMA at the target.
        const RMA_EVENT = 1 << 56;
        /// Source of a message in its completion; for `fi_getinfo`, node names the source.
        const SOURCE = 1 << 57;
        /// Named receive contexts.
        const NAMED_RX_CTX = 1 << 58;
        /// Receive from one peer only.
        const DIRECTED_RECV = 1 << 59;
        /// Drop a peeked or claimed message (same bit as `NAMED_RX_CTX`).
        const DISCARD = 1 << 58;
        /// Claim a peeked message (same bit as `DIRECTED_RECV`).
        const CLAIM = 1 << 59;
        /// `fi_ep_bind`: completions only on request (same bit as `DIRECTED_RECV`).
        const SELECTIVE_COMPLETION = 1 << 59;
    }
}

bitflags! {
    /// Mode bits: what the application promises (`FI_CONTEXT`, ...; man page `fi_getinfo(3)`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    #[repr(transparent)]
    pub struct Mode: u64 {
        /// Contexts are `struct fi_context`.
        const CONTEXT = 1 << 59;
        /// Room for a prefix before each message.
        const MSG_PREFIX = 1 << 58;
        /// I/O vectors stay until completion.
        const ASYNC_IOV = 1 << 57;
        /// Immediate data consumes a receive buffer.
        const RX_CQ_DATA = 1 << 56;
        /// Local buffers are registered (before API 1.5).
        const LOCAL_MR = 1 << 55;
        /// Contexts are `struct fi_context2`.
        const CONTEXT2 = 1 << 52;
        /// Buffered receives (withdrawn).
        const BUFFERED_RECV = 1 << 51;
    }
}

bitflags! {
    /// Memory registration mode bits (man page `fi_mr(3)`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    #[repr(transparent)]
    pub struct MrMode: u32 {
        /// Before API 1.5: virtual addresses, provider keys, backed memory.
        const BASIC = 1 << 0;
        /// Before API 1.5: offsets and application keys.
        const SCALABLE = 1 << 1;
        /// Local buffers must be registered.
        const LOCAL = 1 << 2;
        /// Raw keys.
        const RAW = 1 << 3;
        /// Remote addresses are virtual addresses.
        const VIRT_ADDR = 1 << 4;
        /// Registered memory is backed by pages.
        const ALLOCATED = 1 << 5;
        /// The provider chooses keys.
        const PROV_KEY = 1 << 6;
        /// The application tells of page table changes.
        const MMU_NOTIFY = 1 << 7;
        /// Regions that count remote accesses are bound and enabled.
        const RMA_EVENT = 1 << 8;
        /// Regions are bound to endpoints.
        const ENDPOINT = 1 << 9;
        /// Device memory is registered.
        const HMEM = 1 << 10;
        /// Buffers of collectives are registered.
        const COLLECTIVE = 1 << 11;
    }
}

bitflags! {
    /// Ordering of the data of two operations between the same endpoints
    /// (man page `fi_endpoint(3)`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    #[repr(transparent)]
    pub struct MsgOrder: u64 {
        /// Read after read.
        const RAR = 1 << 0;
        /// Read after write.
        const RAW = 1 << 1;
        /// Read after send.
        const RAS = 1 << 2;
        /// Write after read.
        const WAR = 1 << 3;
        /// Write after write.
        const WAW = 1 << 4;
        /// Write after send.
        const WAS = 1 << 5;
        /// Send after read.
        const SAR = 1 << 6;
        /// Send after write.
        const SAW = 1 << 7;
        /// Send after send.
        const SAS = 1 << 8;
        /// Completion order only: bytes are written in order.
        const DATA = 1 << 16;
        /// RMA read after RMA read.
        const RMA_RAR = 1 << 32;
        /// RMA read after RMA write.
        const RMA_RAW = 1 << 33;
        /// RMA write after RMA read.
        const RMA_WAR = 1 << 34;
        /// RMA write after RMA write.
        const RMA_WAW = 1 << 35;
        /// Atomic read after atomic read.
        const ATOMIC_RAR = 1 << 36;
        /// Atomic read after atomic write.
        const ATOMIC_RAW = 1 << 37;
        /// Atomic write after atomic read.
        const ATOMIC_WAR = 1 << 38;
        /// Atomic write after atomic write.
        const ATOMIC_WAW = 1 << 39;
    }
}
