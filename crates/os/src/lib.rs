//! The operating system as Ripstop uses it.
//!
//! Sockets that move callers' buffers ([`Socket`], [`IoVec`]), readiness ([`Epoll`],
//! [`EventFd`]), interfaces and names ([`net`]), time ([`clock`]), the calling [`thread`],
//! memory that processes share ([`NamedMemory`], [`MemFd`], [`StatusPage`]), memory that is given back
//! ([`MemoryWatch`]), or may not be used again ([`abandon`]), other processes ([`Process`],
//! [`barrier`]). It knows no protocol, and
//! it is the only crate that calls the operating system.
//!
//! Errors are [`ripstop_types::Errno`], whose numbers are those of Linux. A call that would
//! block is [`EAGAIN`](ripstop_types::Errno::EAGAIN); a call interrupted by a signal is
//! repeated, except where it says otherwise.
#![deny(unsafe_code)]

mod abandoned;
mod attach_limit;
mod backing;
pub mod barrier;
pub mod clock;
mod dmabuf;
mod durable;
mod epoll;
mod errno;
mod eventfd;
mod fork;
mod host;
mod image;
mod iovec;
mod memory;
mod memory_watch;
pub mod net;
mod nonblocking;
mod proc_stat;
mod process;
mod shareable;
mod shared;
mod signal;
mod socket;
mod status_page;
pub mod thread;
mod timer;

pub use abandoned::{abandon, is_abandoned};
pub use attach_limit::{AttachLimit, attach_limit};
pub use backing::{Backings, Unfit};
pub use dmabuf::Dmabuf;
pub use durable::make_durable;
pub use epoll::{Epoll, Event, Events, Interest};
pub use errno::set_errno;
pub use eventfd::EventFd;
pub use fork::at_fork;
pub use host::{hostname, memory_size, page_size, pid, processors, user};
pub use image::{is_privileged, path_of_code};
pub use iovec::{IoVec, IoVecMut};
pub use memory::{MemFd, SharedMemory};
pub use memory_watch::{Given, MemoryWatch, Observer, has_guard_pages};
pub use nonblocking::set_nonblocking;
pub use proc_stat::ProcStat;
pub use process::{AttachError, Process, Remote};
pub use shareable::{Shareable, SharedBuf};
pub use shared::NamedMemory;
pub use signal::Signal;
pub use socket::{
    Connect, Keepalive, MAX_DESCRIPTORS, MAX_UNIX_NAME, Peer, PortRange, Shutdown, Socket, Spare,
    TcpAccount,
};
pub use status_page::{PageCopy, PageFile, StatusPage, clean_status_pages, status_pages};
pub use timer::Timer;
