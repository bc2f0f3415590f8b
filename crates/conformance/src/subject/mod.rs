//! What a case sees of an implementation: OFI calls on numbered objects, with owned buffers.
//!
//! A [`Subject`] is one way into one implementation. Objects are numbers ([`Fid`]), so a case can
//! also ask for what a typed interface would not let it say: close what is in use, bind the wrong
//! thing, enable twice. Where a way in cannot say it either, the call is
//! [`Error::Missing`] and the case counts as not offered.

mod call;
mod coll;
mod post;

pub mod apart;
pub mod model;

use std::fmt;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ripstop_core::{Address, Hints, Info, provider};
use ripstop_types::{
    AtomicKind, AvType, Collective, CqFormat, Errno, FiAddr, Flags, Threading, Version, WaitObj,
};
use rustix::event::Timespec;

pub use call::{Error, Result};
pub use coll::{AvSetAttr, Coll, SetChange};
pub use post::{
    Atomic, Claimed, Completion, CqError, Form, Inject, Kind, MrAttr, OVERWRITTEN, Post, Remote,
    Token, When, WorkId, WorkOp,
};
pub use ripstop_core::provider::CollLimit;

/// An open object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid(pub u32);

/// Which implementation, and how it is reached.
#[derive(Clone, Debug)]
pub struct About {
    /// The file of a library, or `rust`.
    pub name: String,
    /// The interface version it implements (`fi_version`(3)).
    pub version: Version,
}

/// The arguments of `fi_getinfo`(3).
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The version the caller is written for; by default the newest both sides know.
    pub version: Option<Version>,
    /// Node name or address.
    pub node: Option<String>,
    /// Port or service name.
    pub service: Option<String>,
    /// `FI_SOURCE`, `FI_NUMERICHOST`, `FI_PROV_ATTR_ONLY`.
    pub flags: Flags,
    /// The hints; `None` is the null pointer of C.
    pub hints: Option<Hints>,
}

/// Attributes of a completion queue (`struct fi_cq_attr`).
#[derive(Clone, Copy, Debug)]
pub struct CqAttr {
    /// Entries; 0 for the provider's choice.
    pub size: usize,
    /// Entry format.
    pub format: CqFormat,
    /// How the caller waits.
    pub wait: WaitObj,
    /// Blocking reads name a number of entries (`FI_CQ_COND_THRESHOLD`).
    pub threshold: bool,
}

impl Default for CqAttr {
    fn default() -> Self {
        Self {
            size: 0,
            format: CqFormat::Tagged,
            wait: WaitObj::None,
            threshold: false,
        }
    }
}

impl CqAttr {
    /// The same in the words of the object model.
    fn open(self) -> provider::CqAttr {
        provider::CqAttr {
            size: self.size,
            format: self.format,
            wait: self.wait,
            ..provider::CqAttr::default()
        }
    }
}

/// Attributes of an address vector (`struct fi_av_attr`).
#[derive(Clone, Copy, Debug, Default)]
pub struct AvAttr {
    /// Map, table or the provider's choice.
    pub av_type: AvType,
    /// Addresses expected.
    pub count: usize,
    /// Completions report peers by ids of the program's own (`FI_AV_USER_ID`).
    pub user_ids: bool,
    /// Upper bits of an address that name a receive context of the peer (`fi_rx_addr`).
    pub rx_ctx_bits: u8,
}

impl AvAttr {
    /// The same in the words of the object model. `shared` is the name of one that is shared, and
    /// whether it is read only.
    fn open(self, shared: Option<(&str, bool)>) -> provider::AvAttr {
        let ids = self.user_ids.then_some(Flags::AV_USER_ID);
        let read_only = matches!(shared, Some((_, true))).then_some(Flags::READ);
        provider::AvAttr {
            av_type: self.av_type,
            count: self.count,
            rx_ctx_bits: self.rx_ctx_bits,
            name: shared.map(|(name, _)| name.to_owned()),
            flags: ids.unwrap_or_default() | read_only.unwrap_or_default(),
        }
    }
}

/// An endpoint option (`FI_OPT_*` of level `FI_OPT_ENDPOINT`, `fi_endpoint`(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpOption {
    /// `FI_OPT_MIN_MULTI_RECV`.
    MinMultiRecv,
    /// `FI_OPT_CM_DATA_SIZE`.
    CmDataSize,
    /// `FI_OPT_MAX_MSG_SIZE`.
    MaxMsgSize,
    /// `FI_OPT_INJECT_MSG_SIZE`.
    InjectMsgSize,
    /// `FI_OPT_MAX_ATOMIC_SIZE`.
    MaxAtomicSize,
    /// `FI_OPT_INJECT_ATOMIC_SIZE`.
    InjectAtomicSize,
    /// `FI_OPT_FIREWALL_ADDR`.
    FirewallAddr,
    /// A number that no release knows.
    Unknown,
}

/// Transmit or receive side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `FI_TRANSMIT`.
    Tx,
    /// `FI_RECV`.
    Rx,
}

/// An event of an event queue.
#[derive(Clone, Debug)]
pub enum Event {
    /// `FI_CONNREQ` at a passive endpoint.
    ConnReq {
        /// The passive endpoint.
        pep: Fid,
        /// What to open or reject; valid once.
        info: Box<Info>,
        /// The peer's connection data.
        data: Vec<u8>,
    },
    /// `FI_CONNECTED`.
    Connected {
        /// The endpoint.
        ep: Fid,
        /// The peer's connection data.
        data: Vec<u8>,
    },
    /// `FI_SHUTDOWN`.
    Shutdown {
        /// The endpoint.
        ep: Fid,
    },
    /// `FI_JOIN_COMPLETE`.
    Joined {
        /// The group.
        group: Fid,
    },
    /// Any other.
    Other(u32),
}

/// A failed control operation (`struct fi_eq_err_entry`).
#[derive(Clone, Debug)]
pub struct EqError {
    /// The object, if it is one of ours.
    pub fid: Option<Fid>,
    /// The reason.
    pub err: Errno,
    /// The data of a rejection.
    pub data: Vec<u8>,
}

/// One way into one implementation. Every method is the call of the same name, described in its
/// man page; its errors are what that call returns.
#[expect(missing_docs, reason = "the man pages document the calls")]
pub trait Subject {
    fn about(&self) -> About;

    /// What is opened in a fabric from now on belongs to this side of a case. Says whether sides are
    /// apart: whether each is in a process of its own, so that nothing can be shared.
    fn place(&self, _side: usize) -> bool {
        false
    }

    /// How many objects are open that fi_close takes.
    fn open(&self) -> usize;

    // fi_getinfo(3)
    fn getinfo(&self, query: &Query) -> Result<Vec<Info>>;

    // fi_fabric(3), fi_domain(3), fi_endpoint(3): objects
    fn fabric(&self, info: &Info) -> Result<Fid>;
    fn domain(&self, fabric: Fid, info: &Info) -> Result<Fid>;
    /// Opens an endpoint; with the info of a request, the one that accepts it.
    fn endpoint(&self, domain: Fid, info: &Info) -> Result<Fid>;
    fn shared_rx(&self, domain: Fid, info: &Info) -> Result<Fid>;
    fn shared_tx(&self, domain: Fid, info: &Info) -> Result<Fid>;
    fn scalable_ep(&self, domain: Fid, info: &Info) -> Result<Fid>;
    /// `fi_tx_context` or `fi_rx_context`.
    fn context(&self, sep: Fid, direction: Direction, index: usize, info: &Info) -> Result<Fid>;
    fn passive_ep(&self, fabric: Fid, info: &Info) -> Result<Fid>;
    fn eq(&self, fabric: Fid, wait: WaitObj) -> Result<Fid>;
    fn cq(&self, domain: Fid, attr: CqAttr) -> Result<Fid>;
    fn cntr(&self, domain: Fid, wait: WaitObj) -> Result<Fid>;
    fn av(&self, domain: Fid, attr: AvAttr) -> Result<Fid>;
    /// One that is shared by its name; one that is read only must exist.
    fn av_named(&self, domain: Fid, attr: AvAttr, name: &str, read_only: bool) -> Result<Fid>;
    fn close(&self, fid: Fid) -> Result<()>;
    fn bind(&self, fid: Fid, to: Fid, flags: Flags) -> Result<()>;
    fn enable(&self, ep: Fid) -> Result<()>;
    fn option(&self, ep: Fid, option: EpOption) -> Result<usize>;
    fn set_option(&self, ep: Fid, option: EpOption, value: usize) -> Result<()>;
    fn op_flags(&self, ep: Fid, direction: Direction) -> Result<Flags>;
    fn set_op_flags(&self, ep: Fid, direction: Direction, flags: Flags) -> Result<()>;
    fn cancel(&self, ep: Fid, token: Token) -> Result<()>;

    // fi_av(3)
    fn av_insert(&self, av: Fid, addrs: &[Address]) -> Result<Vec<FiAddr>>;
    /// With the id that completions report (`FI_AV_USER_ID`).
    fn av_insert_as(&self, av: Fid, addr: &Address, id: FiAddr) -> Result<FiAddr>;
    fn av_set_user_id(&self, av: Fid, addr: FiAddr, id: FiAddr) -> Result<()>;
    /// Without a service, where the node is an address of its own.
    fn av_insertsvc(&self, av: Fid, node: &str, service: Option<&str>) -> Result<FiAddr>;
    /// Nodes and services are given by the first of each and how many.
    fn av_insertsym(
        &self,
        av: Fid,
        node: (&str, usize),
        service: (&str, usize),
    ) -> Result<(usize, Vec<FiAddr>)>;
    fn av_remove(&self, av: Fid, addrs: &[FiAddr]) -> Result<()>;
    fn av_lookup(&self, av: Fid, addr: FiAddr) -> Result<Address>;
    fn av_straddr(&self, av: Fid, addr: &Address) -> Result<String>;

    // fi_cq(3), fi_cntr(3), fi_poll(3)
    /// At most `max` completions, itself at most 16.
    fn cq_read(&self, cq: Fid, max: usize) -> Result<Vec<Completion>>;
    /// `threshold` counts for a queue opened with one.
    fn cq_sread(&self, cq: Fid, threshold: usize, timeout: Duration) -> Result<Vec<Completion>>;
    fn cq_readerr(&self, cq: Fid) -> Result<CqError>;
    fn cq_signal(&self, cq: Fid) -> Result<()>;
    fn cntr_read(&self, cntr: Fid) -> Result<u64>;
    fn cntr_readerr(&self, cntr: Fid) -> Result<u64>;
    fn cntr_add(&self, cntr: Fid, value: u64) -> Result<()>;
    fn cntr_set(&self, cntr: Fid, value: u64) -> Result<()>;
    fn cntr_adderr(&self, cntr: Fid, value: u64) -> Result<()>;
    fn cntr_seterr(&self, cntr: Fid, value: u64) -> Result<()>;
    fn cntr_wait(&self, cntr: Fid, threshold: u64, timeout: Duration) -> Result<()>;
    fn trywait(&self, fabric: Fid, fids: &[Fid]) -> Result<()>;
    /// Waits until the descriptor of a queue is readable; says whether it is (`poll`(2)).
    fn poll_fd(&self, fid: Fid, timeout: Duration) -> Result<bool>;

    // fi_msg(3), fi_tagged(3)
    fn post(&self, ep: Fid, post: &Post) -> Result<()>;
    fn inject(&self, ep: Fid, inject: Inject<'_>) -> Result<()>;
    /// Overwrites what a posted operation reads, as a program does that knows it free by other
    /// means than a completion or a flag of the call.
    fn overwrite(&self, ep: Fid, token: Token) -> Result<()>;
    /// Peeks for a tagged message; `flags` may carry `FI_CLAIM` and `FI_DISCARD`.
    fn peek(&self, ep: Fid, post: &Post, flags: Flags) -> Result<()>;
    /// Receives, or with no buffer discards, what the peek with this token has claimed.
    fn claim(&self, ep: Fid, claimed: Claimed, post: &Post) -> Result<()>;

    // fi_trigger(3)
    /// Posts with `FI_TRIGGER`.
    fn trigger(&self, ep: Fid, post: &Post, when: When) -> Result<()>;
    fn queue_work(&self, domain: Fid, when: When, op: &WorkOp<'_>) -> Result<WorkId>;
    fn cancel_work(&self, domain: Fid, work: WorkId) -> Result<()>;
    /// All work of the domain, or what waits for one counter.
    fn flush_work(&self, domain: Fid, cntr: Option<Fid>) -> Result<()>;

    // fi_mr(3), fi_rma(3)
    /// Memory of zeroes, to register. It stays when the registration is closed.
    fn memory(&self, domain: Fid, len: usize) -> Result<Fid>;
    /// As [`Subject::memory`], such that peers on the machine may map it: from `memfd_create`(2),
    /// sealed against shrinking; in Rust it is registered with its descriptor.
    fn memory_in_memfd(&self, domain: Fid, len: usize) -> Result<Fid>;
    fn register(&self, memory: Fid, attr: &MrAttr) -> Result<Fid>;
    fn mr_key(&self, mr: Fid) -> Result<u64>;
    /// The address of its first byte.
    fn memory_address(&self, memory: Fid) -> Result<u64>;
    fn memory_read(&self, memory: Fid) -> Result<Vec<u8>>;
    fn memory_write(&self, memory: Fid, offset: usize, bytes: &[u8]) -> Result<()>;
    /// `fi_inject_write`, or with data `fi_inject_writedata`; `inject` has no tag.
    fn inject_write(&self, ep: Fid, inject: Inject<'_>, to: Remote) -> Result<()>;

    // fi_atomic(3)
    /// `fi_inject_atomic` on a datatype with an operation; `inject` has no tag and no data.
    fn inject_atomic(
        &self,
        ep: Fid,
        inject: Inject<'_>,
        what: (u32, u32),
        to: Remote,
    ) -> Result<()>;
    /// The most elements of one atomic on a datatype with an operation.
    fn query_atomic(&self, domain: Fid, kind: AtomicKind, what: (u32, u32)) -> Result<usize>;

    // fi_av_set(3), fi_collective(3)
    fn av_set(&self, av: Fid, attr: AvSetAttr) -> Result<Fid>;
    fn change_set(&self, set: Fid, change: SetChange) -> Result<()>;
    fn set_addr(&self, set: Fid) -> Result<FiAddr>;
    /// Joins the group of a set, under the set's address.
    fn join(&self, ep: Fid, set: Fid) -> Result<Fid>;
    fn group_addr(&self, group: Fid) -> Result<FiAddr>;
    fn collective(&self, ep: Fid, call: &Coll) -> Result<()>;
    /// The limits of an operation with a datatype and an operation on it.
    fn query_collective(
        &self,
        domain: Fid,
        coll: Collective,
        what: (u32, u32),
    ) -> Result<CollLimit>;

    // fi_cm(3), fi_eq(3)
    fn name(&self, fid: Fid) -> Result<Address>;
    fn set_name(&self, fid: Fid, addr: &Address) -> Result<()>;
    fn peer(&self, ep: Fid) -> Result<Address>;
    fn listen(&self, pep: Fid) -> Result<()>;
    fn connect(&self, ep: Fid, addr: &Address, data: &[u8]) -> Result<()>;
    fn accept(&self, ep: Fid, data: &[u8]) -> Result<()>;
    fn reject(&self, pep: Fid, info: &Info, data: &[u8]) -> Result<()>;
    fn shutdown(&self, ep: Fid) -> Result<()>;
    fn eq_read(&self, eq: Fid) -> Result<Event>;
    fn eq_sread(&self, eq: Fid, timeout: Duration) -> Result<Event>;
    fn eq_readerr(&self, eq: Fid) -> Result<EqError>;

    /// The calls that only the C interface has, where this is one.
    fn c_edge(&self) -> Option<&dyn CEdge> {
        None
    }
}

/// Calls whose point is the C interface: buffers that are too short, bytes that are no address,
/// events that a program writes itself.
#[expect(missing_docs, reason = "the man pages document the calls")]
pub trait CEdge {
    /// The answer, and the length the library says the name needs.
    fn name_into(&self, fid: Fid, len: usize) -> (Result<()>, usize);
    /// The bytes written, and the length the library says the address needs.
    fn lookup_into(&self, av: Fid, addr: FiAddr, len: usize) -> Result<(Vec<u8>, usize)>;
    /// The text that fits, and the length the library says it needs.
    fn straddr_into(&self, av: Fid, addr: &Address, len: usize) -> Result<(String, usize)>;
    fn insert_bytes(&self, av: Fid, bytes: &[u8], count: usize) -> Result<(usize, Vec<FiAddr>)>;
    fn backlog(&self, pep: Fid, backlog: i32) -> Result<()>;
    /// An event queue opened with `FI_WRITE`.
    fn eq_for_writing(&self, fabric: Fid, wait: WaitObj) -> Result<Fid>;
    fn eq_write(&self, eq: Fid, event: u32, data: u64) -> Result<()>;
    /// Event, data and bytes of an event that `eq_write` wrote, read into `len` bytes.
    fn eq_read_written(&self, eq: Fid, len: usize, flags: Flags) -> Result<(u32, u64, usize)>;
    /// Calls with null where something is wanted, and what each returned: of the library, or
    /// of an object.
    fn null_calls(&self, fid: Option<Fid>) -> Result<Vec<(&'static str, i64)>>;
    /// An error entry as read by a program whose entry has `known` bytes; the others are 0xa5
    /// before.
    fn readerr_bytes(&self, cq: Fid, known: usize) -> Result<Vec<u8>>;
    /// `FI_GETWAITOBJ`.
    fn wait_object(&self, fid: Fid) -> Result<WaitObj>;
    /// Waits until one of the descriptors of a queue or counter with `FI_WAIT_POLLFD` is readable; says
    /// whether one is.
    fn poll_fds(&self, fid: Fid, timeout: Duration) -> Result<bool>;
    /// A copy of the socket of an endpoint (`FI_GET_FD`).
    fn socket(&self, ep: Fid) -> Result<OwnedFd>;
    /// `fi_av_insert` of one address with flags.
    fn insert_flagged(&self, av: Fid, addr: &Address, flags: Flags) -> Result<FiAddr>;
    /// The answer, and the length the library says the option needs.
    fn option_into(&self, ep: Fid, option: EpOption, len: usize) -> (Result<()>, usize);
    fn set_option_bytes(&self, ep: Fid, option: EpOption, bytes: &[u8]) -> Result<()>;
    /// Opens an alias, closes the endpoint under it, closes the alias.
    fn alias_and_close(&self, ep: Fid, flags: Flags) -> Result<[(&'static str, i64); 2]>;
    /// `fi_atomicvalid` and its like, and the size of an element as `fi_query_atomic` says.
    fn atomic_valid(
        &self,
        ep: Fid,
        domain: Fid,
        kind: AtomicKind,
        what: (u32, u32),
    ) -> Result<(usize, usize)>;
    /// Joins the group of a set under another address, or with flags.
    fn join_at(&self, ep: Fid, set: Fid, addr: FiAddr, flags: Flags) -> Result<Fid>;
    /// `fi_query_collective` for any numbers: operation, datatype, and operation on it.
    fn query_coll_numbers(&self, domain: Fid, what: (u32, u32, u32), flags: u64) -> Result<()>;
    fn poll_set(&self, domain: Fid) -> Result<Fid>;
    fn poll_add(&self, set: Fid, member: Fid) -> Result<()>;
    fn poll_del(&self, set: Fid, member: Fid) -> Result<()>;
    fn poll_all(&self, set: Fid, max: usize) -> Result<Vec<Fid>>;
    fn wait_set(&self, fabric: Fid, wait: WaitObj) -> Result<Fid>;
    /// A queue whose wait object is the set.
    fn cq_in(&self, domain: Fid, set: Fid, attr: CqAttr) -> Result<Fid>;
    /// An event queue whose wait object is the set, opened with `FI_WRITE`.
    fn eq_in(&self, fabric: Fid, set: Fid) -> Result<Fid>;
    /// A counter whose wait object is the set.
    fn cntr_in(&self, domain: Fid, set: Fid) -> Result<Fid>;
    fn wait_for(&self, set: Fid, timeout: Duration) -> Result<()>;
    fn strerror(&self, errno: Errno) -> String;
    fn cq_strerror(&self, cq: Fid, prov_errno: i32) -> Result<String>;
    /// `fi_tostr` of an info.
    fn info_text(&self, info: &Info) -> Result<String>;
}

/// How the cases open things, from the command line.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Provider name, alone (`tcp`) or layered (`tcp;ofi_rxm`).
    pub provider: String,
    /// The address of this machine by which peers reach it, for providers of networks.
    pub node: IpAddr,
    /// What the application serialises.
    pub threading: Threading,
    /// The implementation makes progress by itself, below `FI_THREAD_SAFE` too.
    pub is_automatic: bool,
}

impl Setup {
    /// What the level is called, as `--threading` takes it: `safe`, `domain`, `domain-auto`.
    #[must_use]
    pub fn level(&self) -> &'static str {
        match (self.threading, self.is_automatic) {
            (Threading::Safe, _) => "safe",
            (_, false) => "domain",
            (_, true) => "domain-auto",
        }
    }
}

/// How long a file descriptor is polled at most, in one go.
fn timespec(timeout: Duration) -> Option<Timespec> {
    Timespec::try_from(timeout).ok()
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.version)
    }
}
