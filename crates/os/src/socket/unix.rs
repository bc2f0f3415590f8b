//! Stream sockets between processes of one machine, which carry descriptors too.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::sys::socket::{getsockopt, sockopt};
use ripstop_types::{Errno, Result};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::Socket;
use crate::epoll::is_ready;
use crate::errno::{errno, nix_errno, retry};
use crate::process::Process;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Most descriptors that [`Socket::send_with`] sends and [`Socket::recv_with`] takes.
pub const MAX_DESCRIPTORS: usize = 4;

/// Longest abstract name.
pub const MAX_UNIX_NAME: usize = 107;

/// Who is at the other end, by the kernel's word: the process that connected, or that listened,
/// at the time when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The number of the process here; 0 if it has none in this namespace.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

impl Socket {
    /// A socket bound to an abstract name (`unix(7)`), ready for [`listen`](Self::listen). The
    /// name is there for the processes of this network namespace as long as the socket.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if the name is taken, `EINVAL` for a name that is empty or longer than
    /// [`MAX_UNIX_NAME`], `EMFILE`, and the others of `bind(2)`.
    pub fn unix_bound(name: &[u8]) -> Result<Self> {
        let addr = abstract_name(name)?;
        let socket = Self::unix()?;
        net::bind(&socket.0, &addr).map_err(errno)?;
        Ok(socket)
    }

    /// A connection to the socket that listens by this abstract name. It is made at once.
    ///
    /// # Errors
    ///
    /// `ECONNREFUSED` if nobody listens there, `EAGAIN` if as many as may wait for the listener
    /// do (try again later), `EINVAL` for a name that cannot be one, `EMFILE`, and the others of
    /// `connect(2)`.
    pub fn unix_connect(name: &[u8]) -> Result<Self> {
        let addr = abstract_name(name)?;
        let socket = Self::unix()?;
        retry(|| net::connect(&socket.0, &addr))?;
        Ok(socket)
    }

    /// Takes a connection that waits on a socket with an abstract name, or `None` if none does.
    ///
    /// # Errors
    ///
    /// As for [`accept`](Self::accept).
    pub fn accept_unix(&self) -> Result<Option<Self>> {
        match retry(|| net::accept_with(&self.0, FLAGS)) {
            Ok(fd) => Ok(Some(Self(fd))),
            Err(Errno::EAGAIN | Errno::ECONNABORTED) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends from `bytes` with up to [`MAX_DESCRIPTORS`] descriptors, which arrive with the
    /// first of them, and returns how many bytes the kernel took. If it took any, it took all
    /// descriptors.
    ///
    /// # Errors
    ///
    /// `EINVAL` for too many descriptors, or for some with no bytes; as for
    /// [`send`](Self::send).
    pub fn send_with(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize> {
        if descriptors.len() > MAX_DESCRIPTORS || (bytes.is_empty() && !descriptors.is_empty()) {
            return Err(Errno::EINVAL);
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::EINVAL);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        retry(|| net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags))
    }

    /// Whether every descriptor of the other end is closed, also if data is still unread. It is also true once both directions are
    /// shut down, whichever end did that.
    ///
    /// # Errors
    ///
    /// Those of `poll(2)`.
    pub fn has_hung_up(&self) -> Result<bool> {
        // `poll(2)` reports a hang-up even if no event is asked for.
        is_ready(&mut [PollFd::new(&self.0, PollFlags::empty())])
    }

    /// Receives into `bytes`, and the descriptors that came with them, closed on `exec`. 0 bytes
    /// are the end of the stream (or no room).
    ///
    /// # Errors
    ///
    /// `EPROTO` if the peer has sent more than [`MAX_DESCRIPTORS`], `EMFILE` if this process can have
    /// no more: all of them are closed, and bytes are lost. As for [`recv`](Self::recv).
    pub fn recv_with(&self, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
        match self.recv_parts(bytes)? {
            (count, Ok(descriptors)) => Ok((count, descriptors)),
            (_, Err(lost)) => Err(lost),
        }
    }

    /// As [`recv_with`](Self::recv_with), where some descriptors are lost, since the peer has sent
    /// too many or this process can have no more: then it gives none, and the bytes.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn recv_some(&self, bytes: &mut [u8]) -> Result<(usize, Option<Vec<OwnedFd>>)> {
        let (count, descriptors) = self.recv_parts(bytes)?;
        Ok((count, descriptors.ok()))
    }

    /// The bytes, and the descriptors or why they are lost.
    fn recv_parts(&self, bytes: &mut [u8]) -> Result<(usize, Result<Vec<OwnedFd>>)> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = retry(|| {
            let mut room = [IoSliceMut::new(bytes)];
            net::recvmsg(&self.0, &mut room, &mut control, flags)
        })?;
        let rights = control.drain().filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let descriptors: Vec<OwnedFd> = rights.flatten().collect();
        let cut = message.flags.contains(ReturnFlags::CTRUNC);
        let descriptors = match descriptors.len() {
            ..=MAX_DESCRIPTORS if !cut => Ok(descriptors),
            // There was room for what the kernel could not give.
            ..MAX_DESCRIPTORS => Err(Errno::EMFILE),
            _ => Err(Errno::EPROTO),
        };
        Ok((message.bytes, descriptors))
    }

    /// Who is at the other end (`SO_PEERCRED`).
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if it is not connected, and the others of `getsockopt(2)`.
    pub fn peer(&self) -> Result<Peer> {
        let found = getsockopt(&self.0, sockopt::PeerCredentials).map_err(nix_errno)?;
        // What the kernel says of nobody.
        if found.uid() == u32::MAX {
            return Err(Errno::ENOTCONN);
        }
        Ok(Peer {
            pid: u32::try_from(found.pid()).unwrap_or(0),
            uid: found.uid(),
            gid: found.gid(),
        })
    }

    /// The process at the other end, held by a descriptor that names no other when its number
    /// is used again (`SO_PEERPIDFD`; before Linux 6.5 `pidfd_open` of the number, so ask
    /// soon).
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if it is not connected, `ESRCH` if the process has ended or is in another
    /// namespace, `EMFILE`, `ENOSYS` before Linux 5.3.
    pub fn peer_process(&self) -> Result<Process> {
        let pid = self.peer()?.pid;
        match getsockopt(&self.0, sockopt::PeerPidfd) {
            Ok(fd) => Ok(Process::of(fd, pid)),
            Err(nix::Error::EMFILE) => Err(Errno::EMFILE),
            Err(_) => Process::open(pid),
        }
    }

    fn unix() -> Result<Self> {
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)
            .map(Self)
            .map_err(errno)
    }
}

/// One that a peer has sent.
impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

fn abstract_name(name: &[u8]) -> Result<SocketAddrUnix> {
    if name.is_empty() || name.len() > MAX_UNIX_NAME {
        return Err(Errno::EINVAL);
    }
    SocketAddrUnix::new_abstract_name(name).map_err(errno)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{EventFd, Shutdown};

    fn name(test: &str) -> Vec<u8> {
        format!("ripstop-test/{}/{test}", crate::pid()).into_bytes()
    }

    fn connected(test: &str) -> (Socket, Socket) {
        let listener = Socket::unix_bound(&name(test)).unwrap();
        listener.listen(4).unwrap();
        let near = Socket::unix_connect(&name(test)).unwrap();
        let far = listener.accept_unix().unwrap().unwrap();
        assert!(listener.accept_unix().unwrap().is_none());
        (near, far)
    }

    #[test]
    fn an_end_hangs_up_when_its_last_descriptor_is_closed() {
        let (near, far) = connected("hung-up");
        far.send(b"unread").unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        let copy = far.as_fd().try_clone_to_owned().unwrap();
        drop(far);
        assert_eq!(near.has_hung_up(), Ok(false));
        drop(copy);
        // A child that another test has just forked may have it until it calls `exec`.
        let stop = Instant::now() + Duration::from_secs(10);
        while near.has_hung_up() != Ok(true) {
            assert!(Instant::now() < stop, "it does not hang up");
        }
        let (near, far) = connected("hung-up");
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!(near.has_hung_up(), Ok(false));
        far.shutdown(Shutdown::Write).unwrap();
        assert_eq!(near.has_hung_up(), Ok(true));
    }

    #[test]
    fn a_name_is_there_as_long_as_its_socket() {
        let name = name("life");
        let refused = || Socket::unix_connect(&name).err();
        assert_eq!(refused(), Some(Errno::ECONNREFUSED));
        let listener = Socket::unix_bound(&name).unwrap();
        assert_eq!(refused(), Some(Errno::ECONNREFUSED), "it does not listen");
        assert_eq!(Socket::unix_bound(&name).err(), Some(Errno::EADDRINUSE));
        listener.listen(1).unwrap();
        let waiting = [(); 2].map(|()| Socket::unix_connect(&name).unwrap());
        assert_eq!(refused(), Some(Errno::EAGAIN), "no more may wait");
        drop((listener, waiting));
        assert_eq!(refused(), Some(Errno::ECONNREFUSED));
        for bad in [&[][..], &[b'x'; 108]] {
            assert_eq!(Socket::unix_bound(bad).err(), Some(Errno::EINVAL));
            assert_eq!(Socket::unix_connect(bad).err(), Some(Errno::EINVAL));
        }
        assert!(Socket::unix_bound(&[b'x'; MAX_UNIX_NAME]).is_ok());
    }

    #[test]
    fn bytes_and_the_end_of_the_stream_pass() {
        let (near, far) = connected("bytes");
        assert_eq!(far.recv(&mut [0; 8]), Err(Errno::EAGAIN));
        assert_eq!(near.send(b"hello"), Ok(5));
        let mut bytes = [0; 8];
        assert_eq!(far.recv(&mut bytes), Ok(5));
        assert_eq!(&bytes[..5], b"hello");
        drop(near);
        assert_eq!(far.recv(&mut bytes), Ok(0));
        assert_eq!(far.send(b"x"), Err(Errno::EPIPE));
    }

    #[test]
    fn descriptors_pass_with_bytes() {
        let (near, far) = connected("descriptors");
        let bell = EventFd::new().unwrap();
        let fds = [bell.as_fd(); MAX_DESCRIPTORS];
        for count in 0..=MAX_DESCRIPTORS {
            assert_eq!(near.send_with(b"with", &fds[..count]), Ok(4));
            let mut bytes = [0; 8];
            let (len, received) = far.recv_with(&mut bytes).unwrap();
            assert_eq!((len, received.len()), (4, count));
            for fd in received {
                let flags = rustix::io::fcntl_getfd(&fd).unwrap();
                assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
                let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
                assert_eq!(inode(fd.as_fd()), inode(bell.as_fd()));
            }
        }
        let five = [bell.as_fd(); MAX_DESCRIPTORS + 1];
        assert_eq!(near.send_with(b"five", &five), Err(Errno::EINVAL));
        assert_eq!(near.send_with(b"", &fds), Err(Errno::EINVAL));
        assert_eq!(far.recv_with(&mut [0; 8]).err(), Some(Errno::EAGAIN));
    }

    #[test]
    fn more_descriptors_than_agreed_are_refused() {
        let (near, far) = connected("many");
        let bell = EventFd::new().unwrap();
        for count in [5, 6, 100] {
            let fds = vec![bell.as_fd(); count];
            let mut space = vec![MaybeUninit::uninit(); cmsg_space!(ScmRights(100))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            let bytes = [IoSlice::new(b"x")];
            net::sendmsg(&near.0, &bytes, &mut control, SendFlags::empty()).unwrap();
            assert_eq!(far.recv_with(&mut [0; 8]).err(), Some(Errno::EPROTO));
            net::sendmsg(&near.0, &bytes, &mut control, SendFlags::empty()).unwrap();
            let (count, lost) = far.recv_some(&mut [0; 8]).unwrap();
            assert_eq!((count, lost.map(|some| some.len())), (1, None));
        }
    }

    #[test]
    fn the_kernel_names_the_peer() {
        let (near, far) = connected("peer");
        let own = Peer {
            pid: crate::pid(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        assert_eq!((near.peer(), far.peer()), (Ok(own), Ok(own)));
        let process = far.peer_process().unwrap();
        assert_eq!((process.pid(), process.is_alive()), (own.pid, Ok(true)));
        let alone = Socket::unix_bound(&name("alone")).unwrap();
        assert_eq!(alone.peer(), Err(Errno::ENOTCONN));
        assert_eq!(alone.peer_process().err(), Some(Errno::ENOTCONN));
    }
}
