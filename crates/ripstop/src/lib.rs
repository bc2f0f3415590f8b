//! OpenFabrics Interfaces (OFI) in safe Rust: messages, tagged messages and remote memory access
//! between endpoints, with owned buffers, awaited on any runtime or waited for without one.
//!
//! ```
//! use std::net::SocketAddr;
//! use ripstop::Hints;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two domains with an endpoint each; they could as well be in two programs.
//! let local = SocketAddr::from(([127, 0, 0, 1], 0));
//! let here = Hints::rdm().source(local).open()?;
//! let there = Hints::rdm().source(local).open()?;
//! let (a, b) = (here.endpoint()?, there.endpoint()?);
//!
//! // Addresses travel by whatever way programs find each other; here they are at hand.
//! let to_b = here.insert(b.address()?)?;
//!
//! // Operations begin with the call, and give the buffer back with their outcome.
//! let receive = b.trecv(vec![0; 1024], 7, 0, None);
//! let (sent, _hello) = a.tsend(b"hello".to_vec(), 7, to_b).wait();
//! sent?;
//! let (received, buf) = receive.wait();
//! let received = received?;
//! assert_eq!(&buf[..received.len], b"hello");
//!
//! // The same as futures; any runtime will do.
//! pollster::block_on(async {
//!     let receive = b.recv(vec![0; 1024], None);
//!     let (sent, _) = a.send(b"again".to_vec(), to_b).await;
//!     sent?;
//!     let (received, buf) = receive.await;
//!     assert_eq!(&buf[..received?.len], b"again");
//!     Ok::<_, ripstop::Error>(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! # The way in
//!
//! [`Hints`] say what is needed and open a [`Domain`] on the best interface that has it; or
//! they list interfaces, and [`Fabric::open`] and [`Fabric::domain`] open the one chosen. A
//! domain opens [`Endpoint`]s, which reach any peer that was [inserted](Domain::insert); a
//! domain of [`Hints::msg`] [listens](Domain::listen) and [connects](Domain::connect), and
//! gives [`Connection`]s. All of these are cheap handles that any thread may use at any time,
//! and that close with their last clone.
//!
//! Providers are cargo features, chosen by name at run time. On by default are `tcp`, which speaks
//! the protocol of libfabric's `tcp` provider on the wire; `shm` for the processes of one
//! machine, with endpoints that need no connection; and `lnx`, whose endpoints reach those by shm and
//! all others by tcp. The feature `verbs` adds `verbs;ofi_rxm`, unconnected endpoints over RDMA devices
//! (InfiniBand, RoCE), which comes first wherever there is a device, as in C. It needs nothing to build:
//! `libibverbs.so.1` and `librdmacm.so.1` are opened when a program asks for an interface and the kernel
//! has a device. Where something is missing, the [`Error`] says what to install or to load
//! (`examples/rdma_pair.rs`). Connected endpoints over devices (`verbs`) are left to the C library: they
//! send from memory that the program has registered.
//!
//! # Buffers
//!
//! A fabric reads and writes a buffer long after the call that posted it. So an operation takes
//! its buffer by value ([`Buf`]: `Vec<u8>`, `Box<[u8]>`, `bytes::BytesMut`; or several as one
//! message, [`Bufs`]) and gives it back with the outcome, on success and on error alike:
//!
//! ```
//! # fn example(ep: ripstop::Endpoint, peer: ripstop::Peer) {
//! let (outcome, buf) = ep.recv(vec![0; 4096], peer).wait();
//! match outcome {
//!     Ok(done) => println!("{:?}", &buf[..done.len]),
//!     Err(error) => eprintln!("{error}"),
//! }
//! # }
//! ```
//!
//! A borrowed buffer could not be sound: a future can be dropped or forgotten at any moment, and
//! with it the borrow, while the message is still on its way. Here [dropping](Op#dropping) a
//! future is sound: the operation keeps the buffer until it is over. The one file of this crate that is
//! `unsafe` gives buffers back when the provider's promise says that it uses them no more.
//!
//! # Memory of peers
//!
//! With [`Hints::rma`] a domain [registers](Domain::register) buffers that peers
//! [read](Endpoint::read) and [write](Endpoint::write) without a receive, and with
//! [`Hints::atomic`] they change it by [atomics](Endpoint::fetch_atomic). A [`Region`] owns such a
//! buffer until nobody reaches it any more. A [`SharedRegion`] is memory that peers on the same machine
//! map and then reach without this process, with the provider `shm`.
//!
//! # Waiting
//!
//! Each operation is an [`Op`]: a future, with [`wait`](Op::wait) and
//! [`wait_timeout`](Op::wait_timeout) for threads and [`try_complete`](Op::try_complete) for
//! loops. What makes progress meanwhile is the domain's [`Progress`]:
//!
//! | | who moves the bytes | for |
//! |---|---|---|
//! | [`Progress::Background`] | tasks while they poll, then a thread of the library, asleep while nothing happens | futures on any runtime; the default |
//! | [`Progress::Manual`] | waiting calls, [`Domain::block_on`], [`Domain::progress`] | the lowest latency; one thread, no change of threads |
//! | the same, with a [`Driver`] | a task of the program's own event loop | tokio's `AsyncFd` and its like |
//!
//! A task that awaits polls for a while before it sleeps, where recent waits were short: so a reply that
//! comes within microseconds needs no change of threads. It yields to its runtime meanwhile, and stops
//! after 100 us without anything, or what [`Hints::busy_poll`] says; zero switches it off. On tokio, two
//! processes on two cores, half a round trip of 8 bytes takes 0.4 us over shm and 3.4 over tcp, where
//! tokio's own `TcpStream` takes 33 (`examples/awaited`).
//!
//! # Errors
//!
//! [`Error`] names the operation, the peer and the [`Errno`], and says what to do. When no
//! interface fits the hints it has for each provider the attribute, what was asked and what is
//! offered. Every send, read, write and atomic to a peer that is not there ends, with an error
//! within seconds: one that cannot be reached after 5 s (`FI_TCP_CONNECT_TIMEOUT`), and one that is
//! connected to, but does not answer, after 10 s more ([`Hints::answer_timeout`]); that is a
//! program that does not speak the protocol, or one that makes no progress. A peer that dies is
//! noticed at once, one whose machine dies after some seconds. A peer that has answered once may be
//! slow: that is flow control. Only a receive without a message to come waits as long as its
//! program does.
//!
//! Environment variables (`FI_PROVIDER`, `FI_LOG_LEVEL`, `FI_TCP_IFACE`, ...) are those of
//! libfabric; `fi_fabric(7)` and `fi_tcp(7)` list them.
#![deny(unsafe_code)]

mod atomic;
mod backend;
mod buf;
mod cm;
mod connection;
mod domain;
mod domain_attr;
mod driver;
mod endpoint;
mod error;
mod fabric;
mod hints;
mod later;
mod leaving;
mod lent;
mod listener;
mod message;
mod op;
mod polling;
mod port;
mod region;
mod rma;
mod running;
mod shared;
mod table;
mod watch;

pub use atomic::{Atomic, Element};
pub use buf::{Buf, Bufs};
pub use connection::{Connecting, Connection};
pub use domain::{Domain, DomainBuilder};
pub use domain_attr::Progress;
pub use driver::Driver;
pub use endpoint::Endpoint;
pub use error::{Error, Operation, Result};
pub use fabric::Fabric;
pub use hints::Hints;
pub use listener::{Accept, Incoming, Listener};
pub use message::{Completion, Peer, Remote, SendMsg, Source};
pub use op::{Op, Outcome};
pub use region::{Access, NotRegistered, Region};
pub use ripstop_core::provider::{Copied, Copies};
pub use ripstop_core::{Address, AddressError, Info};
pub use ripstop_types::{AtomicOp, EpType, Errno, FiAddr, Flags, MsgOrder};
pub use rma::WriteMsg;
pub use running::Turn;
pub use shared::SharedRegion;

/// Attributes of interfaces, fabrics, domains and endpoints (man page `fi_getinfo(3)`), for
/// [`Hints::with`] and for what an [`Info`] says.
pub mod attr {
    pub use ripstop_core::hints::{Group, Mismatch};
    pub use ripstop_core::registry::{NoInfo, Refusal};
    pub use ripstop_core::{DomainAttr, EpAttr, FabricAttr, Hints, RxAttr, TxAttr};
    pub use ripstop_types::{AddrFormat, AvType, Mode, MrMode, Protocol, Threading};
}

/// The program in the README, which is run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
