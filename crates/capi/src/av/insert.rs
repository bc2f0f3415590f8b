#![allow(unsafe_code)]
//! What insertions of all kinds have in common: reading a caller's array of addresses, and
//! telling what became of each.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::slice;
use std::net::SocketAddr;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::eq::EventQueue;
use ripstop_core::{Address, sockaddr};
use ripstop_types::{AddrFormat, Errno, FiAddr, Result};

use crate::eq;
use crate::object;

/// Socket addresses in an array.
pub(super) struct Addresses {
    at: *const u8,
    size: usize,
    left: usize,
}

impl Addresses {
    /// The addresses of an array whose elements have the size of the first one.
    ///
    /// # Safety
    ///
    /// `addr` is valid for reads of `count` addresses of the format (of the family of the
    /// first one, where the format leaves it open), as long as `self` is used; null without
    /// any.
    pub(super) unsafe fn new(format: AddrFormat, addr: *const u8, count: usize) -> Self {
        let size = match (format, count) {
            (AddrFormat::SockaddrIn, _) | (_, 0) => sockaddr::SOCKADDR_IN_LEN,
            (AddrFormat::SockaddrIn6, _) => sockaddr::SOCKADDR_IN6_LEN,
            _ => {
                // SAFETY: the caller's guarantee: every socket address has a family.
                let family = unsafe { addr.cast::<u16>().read_unaligned() };
                match family {
                    sockaddr::AF_INET6 => sockaddr::SOCKADDR_IN6_LEN,
                    _ => sockaddr::SOCKADDR_IN_LEN,
                }
            }
        };
        let (at, left) = (addr, count);
        Self { at, size, left }
    }
}

impl Iterator for Addresses {
    type Item = Result<SocketAddr>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: the guarantee of `new`: `left` addresses were to come.
        let bytes = unsafe { slice::from_raw_parts(self.at, self.size) };
        self.at = self.at.wrapping_add(self.size);
        Some(sockaddr::decode(bytes).ok_or(Errno::EINVAL))
    }
}

/// String addresses that follow one another, each with its NUL.
///
/// # Safety
///
/// `count` C strings begin at `addr`.
pub(super) unsafe fn strings(addr: *const c_char, count: usize) -> impl Iterator<Item = Address> {
    let mut at = addr;
    (0..count).map(move |_| {
        // SAFETY: the caller's guarantee.
        let text = unsafe { CStr::from_ptr(at) };
        at = at.wrapping_add(text.count_bytes()).wrapping_add(1);
        Address::Str(text.to_string_lossy().into_owned())
    })
}

/// An insertion on its way: tells the caller about each address.
pub(super) struct Insertion {
    av: *mut abi::fid_av,
    fi_addr: *mut abi::fi_addr_t,
    sync_err: *mut c_int,
    context: *mut c_void,
    count: usize,
    seen: usize,
    good: c_int,
    /// The results begin as ids that the program gives the peers.
    named: bool,
    report: Option<Arc<EventQueue>>,
}

impl Insertion {
    /// Checks the call.
    ///
    /// # Errors
    /// [`Errno::EBADFLAGS`] for flags that no vector here knows, [`Errno::EINVAL`] for
    /// `FI_SYNC_ERR` or `FI_AV_USER_ID` without an array, or more addresses than the call can
    /// count.
    ///
    /// # Safety
    ///
    /// `fi_addr` is null or has `count` elements, as `context` does with `FI_SYNC_ERR`; they
    /// are valid for writes, and with `FI_AV_USER_ID` for reads, as long as `self` is used.
    pub(super) unsafe fn new(
        av: *mut abi::fid_av,
        count: usize,
        fi_addr: *mut abi::fi_addr_t,
        flags: u64,
        context: *mut c_void,
        report: Option<Arc<EventQueue>>,
    ) -> Result<Self> {
        if flags & !(abi::FI_MORE | abi::FI_SYNC_ERR | abi::FI_AV_USER_ID) != 0 {
            let why = "flags other than FI_MORE, FI_SYNC_ERR and FI_AV_USER_ID are unknown; leave \
                       them out";
            return Err(object::refused("fi_av_insert", why, Errno::EBADFLAGS));
        }
        let in_sync = flags & abi::FI_SYNC_ERR != 0;
        let named = flags & abi::FI_AV_USER_ID != 0;
        if in_sync && context.is_null() {
            let what = "context, which FI_SYNC_ERR makes an array of int,";
            return Err(object::missing("fi_av_insert", what));
        }
        if named && fi_addr.is_null() && count != 0 {
            let what = "fi_addr, which FI_AV_USER_ID reads,";
            return Err(object::missing("fi_av_insert", what));
        }
        if c_int::try_from(count).is_err() {
            return Err(Errno::EINVAL);
        }
        let sync_err = match in_sync {
            true => context.cast(),
            false => core::ptr::null_mut(),
        };
        Ok(Self {
            av,
            fi_addr,
            sync_err,
            context,
            count,
            seen: 0,
            good: 0,
            named,
            report,
        })
    }

    /// The id that the program gives the next peer, if it gives some.
    pub(super) fn id(&self) -> Option<FiAddr> {
        if !self.named || self.seen >= self.count {
            return None;
        }
        // SAFETY: the guarantee of `new`; not null by its check, and `seen` is below `count`.
        Some(FiAddr(unsafe {
            self.fi_addr.wrapping_add(self.seen).read()
        }))
    }

    /// Tells what became of the next address.
    #[inline]
    pub(super) fn put(&mut self, outcome: Result<FiAddr>) {
        let index = self.seen;
        if index >= self.count {
            return;
        }
        self.seen = index.wrapping_add(1);
        let (peer, error) = match outcome {
            Ok(peer) => (peer, 0),
            Err(error) => (FiAddr::NOTAVAIL, error.0),
        };
        if !self.fi_addr.is_null() {
            // SAFETY: the guarantee of `new`, and `index` is below `count`.
            unsafe { self.fi_addr.wrapping_add(index).write(peer.0) };
        }
        if !self.sync_err.is_null() {
            // SAFETY: as above.
            unsafe { self.sync_err.wrapping_add(index).write(error) };
        }
        match outcome {
            Ok(_) => self.good = self.good.wrapping_add(1),
            Err(error) => self.failed(index, error),
        }
    }

    #[cold]
    fn failed(&self, index: usize, error: Errno) {
        if let Some(queue) = &self.report {
            eq::insertion_failed(queue, object::token(self.av), self.context, index, error);
        }
    }

    /// Ends the insertion: what the call returns.
    ///
    /// # Errors
    /// Of the event queue.
    pub(super) fn finish(self) -> Result<c_int> {
        let Some(queue) = &self.report else {
            return Ok(self.good);
        };
        let good = u64::from(self.good.unsigned_abs());
        eq::insertion_done(queue, object::token(self.av), self.context, good)?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;

    fn read(format: AddrFormat, bytes: &[u8], count: usize) -> Vec<Result<SocketAddr>> {
        // SAFETY: the tests count what is there.
        unsafe { Addresses::new(format, bytes.as_ptr(), count) }.collect()
    }

    #[test]
    fn elements_have_the_size_of_the_first() {
        let v4: SocketAddr = "10.0.0.1:1".parse().unwrap();
        let v6: SocketAddr = "[fe::1]:2".parse().unwrap();
        let mut bytes = sockaddr::encode(&v4).to_vec();
        bytes.extend([0; 16]);
        bytes.extend_from_slice(&sockaddr::encode(&v4));
        let expected = [Ok(v4), Err(Errno::EINVAL), Ok(v4)];
        assert_eq!(read(AddrFormat::Sockaddr, &bytes, 3), expected);
        assert_eq!(read(AddrFormat::SockaddrIn, &bytes, 3), expected);
        let bytes = [sockaddr::encode(&v6).as_ref(), &sockaddr::encode(&v6)].concat();
        assert_eq!(read(AddrFormat::Unspec, &bytes, 2), [Ok(v6), Ok(v6)]);
        assert_eq!(read(AddrFormat::SockaddrIn6, &bytes, 1), [Ok(v6)]);
        assert!(read(AddrFormat::Unspec, &[], 0).is_empty());
    }

    #[test]
    fn strings_follow_one_another() {
        let two = b"fi_a\0fi_b\0";
        // SAFETY: two strings.
        let read: Vec<Address> = unsafe { strings(two.as_ptr().cast(), 2) }.collect();
        assert_eq!(read[1], Address::Str("fi_b".into()));
    }

    fn new(count: usize, flags: u64, context: *mut c_void) -> Result<Insertion> {
        let null = ptr::null_mut();
        // SAFETY: null, or an array of two.
        unsafe { Insertion::new(null, count, ptr::null_mut(), flags, context, None) }
    }

    #[test]
    fn the_caller_learns_of_each_address() {
        let mut errors: [c_int; 2] = [-1; 2];
        let context = errors.as_mut_ptr().cast();
        let mut insertion = new(2, abi::FI_SYNC_ERR | abi::FI_MORE, context).unwrap();
        insertion.put(Ok(FiAddr(5)));
        insertion.put(Err(Errno::EADDRNOTAVAIL));
        insertion.put(Ok(FiAddr(6)));
        assert_eq!(insertion.finish(), Ok(1));
        assert_eq!(errors, [0, 99]);
    }

    #[test]
    fn bad_calls_are_refused() {
        let null = ptr::null_mut();
        let refused = |count, flags| new(count, flags, null).map(|_| ()).unwrap_err();
        assert_eq!(refused(1, abi::FI_SYNC_ERR), Errno::EINVAL);
        assert_eq!(refused(1, abi::FI_AV_USER_ID), Errno::EINVAL);
        assert_eq!(refused(1, abi::FI_AUTH_KEY), Errno::EBADFLAGS);
        assert_eq!(refused(usize::MAX, 0), Errno::EINVAL);
    }
}
