//! The vocabulary of OpenFabrics Interfaces (OFI), shared by every floor.
//!
//! Values are those of the v2.6.0 headers (`rdma/fabric.h`, `rdma/fi_domain.h`,
//! `rdma/fi_endpoint.h`, `rdma/fi_eq.h`, `rdma/fi_errno.h`), so that a value can cross
//! the C ABI unchanged. Nothing here allocates, does I/O or depends on `std`.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

#[macro_use]
mod numbered;

mod addr;
mod atomic;
mod collective;
mod completion;
mod enums;
mod errno;
mod flags;
mod rma;
pub mod tclass;
mod version;

pub use addr::FiAddr;
pub use atomic::{AtomicKind, AtomicOp, Datatype};
pub use collective::Collective;
pub use completion::{Completion, CompletionError, Context};
pub use enums::{
    AddrFormat, AvType, CmEvent, CqFormat, EpType, Progress, Protocol, ResourceMgmt, Threading,
    WaitObj,
};
pub use errno::{Errno, Result};
pub use flags::{Flags, Mode, MrMode, MsgOrder};
pub use rma::RmaIov;
pub use version::Version;
