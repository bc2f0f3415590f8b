//! Memory that a device, or a driver, shares by a descriptor.

use std::os::fd::BorrowedFd;

use ripstop_mem::UserBuf;

/// A part of a dma-buf, to be registered with a device of RDMA.
#[derive(Clone, Copy, Debug)]
pub struct Dmabuf<'a> {
    /// The descriptor of the dma-buf.
    pub fd: BorrowedFd<'a>,
    /// Where the part begins in it, in bytes.
    pub offset: u64,
    /// Bytes of the part.
    pub len: usize,
    /// The part's memory where it is mapped in this process, `len` bytes; `None` where it is not, and only
    /// peers reach it.
    pub mapped: Option<UserBuf>,
}
