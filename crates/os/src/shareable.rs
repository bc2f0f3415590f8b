#![allow(unsafe_code)]
//! Memory of one process that others map where it lets them.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Mapping as _, Window};
use ripstop_types::{Errno, Result};
use rustix::fs::SealFlags;
use rustix::param::page_size;

use crate::memory::{MemFd, SharedMemory, sealed_size};

/// A part of memory that has a descriptor (`memfd_create(2)`), and that nobody can make shorter.
/// Who has the descriptor reaches all of the memory, not just the part. Equal are the same parts by
/// the same descriptor.
#[derive(Clone, Debug)]
pub struct Shareable {
    fd: Arc<OwnedFd>,
    offset: u64,
    len: usize,
}

impl Shareable {
    /// The `len` bytes from `offset` on of the memory behind a descriptor, which may come from a
    /// peer.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is no memory in pages of the usual size, is not sealed against shrinking
    /// (`F_SEAL_SHRINK`), has not so many bytes, or the part has none.
    pub fn new(fd: Arc<OwnedFd>, offset: u64, len: usize) -> Result<Self> {
        let size = sealed_size(&fd, SealFlags::SHRINK)?;
        let end = u64::try_from(len)
            .ok()
            .and_then(|len| offset.checked_add(len));
        let inside = end.is_some_and(|end| end <= size) && len > 0;
        inside
            .then_some(Self { fd, offset, len })
            .ok_or(Errno::EINVAL)
    }

    /// Where the part begins in the memory.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The number of bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Maps the part, for reads and writes. The descriptor is not needed any more afterwards.
    ///
    /// # Errors
    ///
    /// `EPERM` and `EACCES` if it is for readers, `ENOMEM`.
    pub fn map(&self) -> Result<Window> {
        let page = page_size() as u64;
        let before = self.offset % page;
        let inset = usize::try_from(before).map_err(|_| Errno::EINVAL)?;
        let len = self.len.checked_add(inset).ok_or(Errno::ENOMEM)?;
        let map = SharedMemory::of(&self.fd, self.offset - before, len, true)?;
        Window::from_mapping(Arc::new(map), inset, self.len).map_err(|_| Errno::EINVAL)
    }
}

impl PartialEq for Shareable {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.fd, &other.fd) && (self.offset, self.len) == (other.offset, other.len)
    }
}

impl AsFd for Shareable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Memory of this process that its peers may map once it is registered. Nobody sees it as a slice
/// of bytes, since they may write it at any time; a `fork` does not inherit it.
///
/// Dropping one leaks its memory, on purpose, as that of a [`Parked`](ripstop_mem::Parked): an
/// operation may be using it. [`free`](Self::free) gives it back.
#[derive(Debug)]
pub struct SharedBuf {
    part: Shareable,
    window: ManuallyDrop<Window>,
    buf: UserBuf,
}

impl SharedBuf {
    /// Makes `len` bytes of zeroes, with room for all of them.
    ///
    /// # Errors
    ///
    /// As for [`MemFd::create`].
    pub fn zeroed(len: usize) -> Result<Self> {
        let memory = MemFd::create("ripstop-region", len)?;
        memory.seal()?;
        let map = Arc::new(memory.map()?);
        // SAFETY: mapped for reads and writes until `free`, and `Drop` does not undo it. No
        // reference to the bytes is ever made.
        let buf = unsafe { UserBuf::from_raw(map.start().as_ptr(), len) };
        let window = Window::from_mapping(map, 0, len).map_err(|_| Errno::EINVAL)?;
        Ok(Self {
            part: Shareable::new(Arc::new(memory.into()), 0, len)?,
            window: ManuallyDrop::new(window),
            buf,
        })
    }

    /// The memory, to be registered, or for an operation.
    #[must_use]
    pub const fn buf(&self) -> UserBuf {
        self.buf
    }

    /// What peers can map.
    #[must_use]
    pub const fn part(&self) -> &Shareable {
        &self.part
    }

    /// The memory, to be copied from and to.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Gives the memory back.
    ///
    /// # Safety
    ///
    /// As for [`Parked::unpark`](ripstop_mem::Parked::unpark): no copy of [`buf`](Self::buf) is used
    /// any more. A peer that has mapped the memory may go on to use it.
    pub unsafe fn free(self) {
        drop(ManuallyDrop::into_inner(self.window));
    }
}

#[cfg(test)]
mod tests {
    use ripstop_mem::Parked;
    use rustix::fs;

    use super::*;

    fn memory(len: usize) -> Arc<OwnedFd> {
        Arc::new(MemFd::create("test", len).unwrap().into())
    }

    fn bytes(window: &Window, off: usize, len: usize) -> Vec<u8> {
        let room = Parked::park(vec![0; len]);
        window.get(off, room.buf()).unwrap();
        // SAFETY: the bytes are copied.
        unsafe { room.unpark() }
    }

    #[test]
    fn parts_that_may_shrink_or_are_not_there_are_refused() {
        let refused = |fd: Arc<OwnedFd>, offset, len| Shareable::new(fd, offset, len).err();
        let whole = memory(8192);
        assert!(Shareable::new(whole.clone(), 4096, 4096).is_ok());
        for (offset, len) in [
            (0, 0),
            (0, 8193),
            (8191, 2),
            (8192, 1),
            (u64::MAX, 1),
            (1, usize::MAX),
        ] {
            let error = refused(whole.clone(), offset, len);
            assert_eq!(error, Some(Errno::EINVAL), "{offset} {len}");
        }
        let flags = fs::MemfdFlags::CLOEXEC | fs::MemfdFlags::ALLOW_SEALING;
        let open = Arc::new(fs::memfd_create("test", flags).unwrap());
        fs::ftruncate(&open, 8192).unwrap();
        assert_eq!(refused(open.clone(), 0, 4096), Some(Errno::EINVAL));
        fs::fcntl_add_seals(&open, SealFlags::SHRINK).unwrap();
        assert_eq!(refused(open, 0, 4096), None);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(refused(Arc::new(file.into()), 0, 1), Some(Errno::EINVAL));
    }

    #[test]
    fn what_is_put_into_one_mapping_is_in_the_other() {
        let shared = SharedBuf::zeroed(10_000).unwrap();
        let part = shared.part();
        let other = Shareable::new(Arc::clone(&part.fd), 5000, 4000).unwrap();
        let other = other.map().unwrap();
        for (off, len) in [(0, 8), (3, 5), (1, 900), (0, 4000), (1111, 2222)] {
            let text: Vec<u8> = (0..len).map(|i| (i * 7 + off) as u8).collect();
            let text = Parked::park(text);
            other.put(off, text.buf()).unwrap();
            // SAFETY: the bytes are copied.
            let text = unsafe { text.unpark() };
            assert_eq!(bytes(shared.window(), 5000 + off, len), text);
            assert_eq!(bytes(&other, off, len), text);
        }
        let room = Parked::park(vec![0; 2]);
        assert!(other.put(3999, room.buf()).is_err());
        assert!(other.get(usize::MAX, room.buf()).is_err());
        // SAFETY: the copies were refused.
        let _ = unsafe { room.unpark() };
        drop(other);
        // SAFETY: nothing has its `UserBuf`.
        unsafe { shared.free() };
    }

    #[test]
    fn memory_for_readers_is_not_mapped() {
        let face = MemFd::create("test", 4096).unwrap();
        face.seal_for_readers().unwrap();
        let part = Shareable::new(Arc::new(face.into()), 0, 4096).unwrap();
        assert_eq!(part.map().err(), Some(Errno::EPERM));
    }
}
