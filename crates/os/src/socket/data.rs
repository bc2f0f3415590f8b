//! Moving bytes.

use ripstop_types::Result;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::Socket;
use crate::epoll::is_ready;
use crate::errno::{errno, retry};
use crate::iovec::{IoVec, IoVecMut, slices, slices_mut};

/// No `SIGPIPE`, no waiting.
const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

impl Socket {
    /// Sends from `bytes` and returns how many the kernel took: at least one, unless `bytes` is
    /// empty.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there is no room, `EPIPE` or `ECONNRESET` if the connection is gone, and the
    /// others of `send(2)`.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        retry(|| rustix::net::send(&self.0, bytes, SEND))
    }

    /// As [`send`](Self::send), for bytes that more will follow: the kernel has those it took, and
    /// sends them even if this process ends, but it may wait for more until [`push`](Self::push),
    /// the next `send`, or 200 ms later (`MSG_MORE`).
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    #[inline]
    pub fn send_held(&self, bytes: &[u8]) -> Result<usize> {
        retry(|| rustix::net::send(&self.0, bytes, SEND.union(SendFlags::MORE)))
    }

    /// Whether the kernel has room: for a TCP socket, at least a third of the send buffer is free.
    ///
    /// # Errors
    ///
    /// Those of `poll(2)`.
    pub fn has_room(&self) -> Result<bool> {
        is_ready(&mut [PollFd::new(&self.0, PollFlags::OUT)])
    }

    /// Has the kernel of a TCP socket send what [`send_held`](Self::send_held) gave it. Sets
    /// `TCP_NODELAY`, which is what pushes pending bytes out (`tcp(7)`).
    ///
    /// # Errors
    ///
    /// Those of `setsockopt(2)`.
    pub fn push(&self) -> Result<()> {
        self.set_nodelay(true)
    }

    /// Sends from several buffers in one call and returns how many bytes the kernel took. At
    /// most 1,024 buffers (`IOV_MAX`).
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send); `EMSGSIZE` for too many buffers, `EFAULT` if a caller's
    /// buffer is not memory.
    #[inline]
    pub fn sendv(&self, vecs: &[IoVec<'_>]) -> Result<usize> {
        retry(|| {
            let mut control = SendAncillaryBuffer::default();
            rustix::net::sendmsg(&self.0, slices(vecs), &mut control, SEND)
        })
    }

    /// Receives into `bytes` and returns how many came. 0 is the end of the stream (or an empty
    /// `bytes`).
    ///
    /// # Errors
    ///
    /// `EAGAIN` if nothing is there, `ECONNRESET` if the connection is gone, and the others of
    /// `recv(2)`.
    #[inline]
    pub fn recv(&self, bytes: &mut [u8]) -> Result<usize> {
        retry(|| rustix::io::read(&self.0, &mut *bytes))
    }

    /// As [`recv`](Self::recv), for one that polls: a signal ends the call.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv), and `EINTR`: try again.
    #[inline]
    pub fn recv_once(&self, bytes: &mut [u8]) -> Result<usize> {
        match rustix::io::read(&self.0, bytes) {
            Ok(count) => Ok(count),
            Err(err) => Err(errno(err)),
        }
    }

    /// Receives into several buffers, in order, in one call and returns how many bytes came.
    /// 0 is the end of the stream (or no room). Only the first 1,024 buffers count (`IOV_MAX`).
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv); `EFAULT` if a caller's buffer is not memory.
    #[inline]
    pub fn recvv(&self, vecs: &mut [IoVecMut<'_>]) -> Result<usize> {
        retry(|| rustix::io::readv(&self.0, slices_mut(vecs)))
    }
}
