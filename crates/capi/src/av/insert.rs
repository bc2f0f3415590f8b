#![allow(unsafe_code)]
//! What insertions of all kinds have in common: reading a caller's array of addresses, and
//! telling what became of each.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::slice;
use std::net::SocketAddr;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::eq::{EventError, EventQueue};
use ripstop_core::{Address, FidToken, sockaddr};
use ripstop_types::{AddrFormat, CmEvent, Errno, FiAddr, Result};

use crate::edge::arguments;
use crate::peer::Context;
use crate::{eq, errno};

arguments! {
    /// The addresses of `fi_av_insert`: null, or as many as the count beside it says, of the format of
    /// the domain (of the family of the first one, where the format leaves it open).
    #[derive(Clone, Copy)]
    pub(super) struct Addresses { at: *const c_void, count: usize }
}

impl<'a> Addresses<'a> {
    /// How many there are.
    pub(super) const fn count(self) -> usize {
        self.count
    }

    /// # Errors
    /// [`Errno::EINVAL`] for null with a count.
    fn there(self) -> Result<()> {
        match self.at.is_null() && self.count != 0 {
            true => Err(errno::missing("fi_av_insert", "addr")),
            false => Ok(()),
        }
    }

    /// Socket addresses, whose elements have the size of the first one.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null with a count.
    pub(super) fn sockets(
        self,
        format: AddrFormat,
    ) -> Result<impl Iterator<Item = Result<SocketAddr>> + use<'a>> {
        self.there()?;
        let size = match (format, self.count) {
            (AddrFormat::SockaddrIn, _) | (_, 0) => sockaddr::SOCKADDR_IN_LEN,
            (AddrFormat::SockaddrIn6, _) => sockaddr::SOCKADDR_IN6_LEN,
            _ => {
                // SAFETY: not null, and every socket address has a family.
                let family = unsafe { self.at.cast::<u16>().read_unaligned() };
                match family {
                    sockaddr::AF_INET6 => sockaddr::SOCKADDR_IN6_LEN,
                    _ => sockaddr::SOCKADDR_IN_LEN,
                }
            }
        };
        let mut at = self.at.cast::<u8>();
        Ok((0..self.count).map(move |_| {
            // SAFETY: one of `count` addresses of this size, as `from_c` was promised.
            let bytes = unsafe { slice::from_raw_parts(at, size) };
            at = at.wrapping_add(size);
            sockaddr::decode(bytes).ok_or(Errno::EINVAL)
        }))
    }

    /// Names of queue pairs: only for that format.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null with a count.
    pub(super) fn queue_pairs(self) -> Result<impl Iterator<Item = Address> + use<'a>> {
        /// Bytes of each.
        const SIZE: usize = 32;
        self.there()?;
        let mut at = self.at.cast::<u8>();
        Ok((0..self.count).map(move |_| {
            // SAFETY: one of `count` names of this size, as `from_c` was promised of this format.
            let bytes = unsafe { slice::from_raw_parts(at, SIZE) };
            at = at.wrapping_add(SIZE);
            Address::Raw(AddrFormat::IbUd, bytes.to_vec())
        }))
    }

    /// String addresses that follow one another, each with its NUL: only for that format.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null with a count.
    pub(super) fn strings(self) -> Result<impl Iterator<Item = Address> + use<'a>> {
        self.there()?;
        let mut at = self.at.cast::<c_char>();
        Ok((0..self.count).map(move |_| {
            // SAFETY: one of `count` C strings, as `from_c` was promised of this format.
            let text = unsafe { CStr::from_ptr(at) };
            at = at.wrapping_add(text.count_bytes()).wrapping_add(1);
            Address::Str(text.to_string_lossy().into_owned())
        }))
    }
}

arguments! {
    /// What `fi_addr` of an insertion is: null, or as many elements as addresses are inserted, which
    /// are read first with `FI_AV_USER_ID`.
    pub(super) struct Results { at: *mut abi::fi_addr_t }
}

/// An insertion on its way: tells the caller about each address.
pub(super) struct Insertion<'a> {
    av: FidToken,
    into: Results<'a>,
    /// Null, or as many elements as addresses are inserted.
    sync_err: *mut c_int,
    context: *mut c_void,
    count: usize,
    seen: usize,
    good: c_int,
    /// The results begin as ids that the program gives the peers.
    named: bool,
    /// With `FI_FIREWALL_ADDR`: the peers that were inserted.
    firewalled: Option<Vec<FiAddr>>,
    report: Option<Arc<EventQueue>>,
}

impl<'a> Insertion<'a> {
    /// Checks a call that inserts `count` addresses.
    ///
    /// # Errors
    /// [`Errno::EBADFLAGS`] for flags that no vector here knows, [`Errno::EINVAL`] for
    /// `FI_SYNC_ERR` or `FI_AV_USER_ID` without an array, or more addresses than the call can
    /// count.
    pub(super) fn new(
        av: FidToken,
        count: usize,
        into: Results<'a>,
        flags: u64,
        context: Context,
        report: Option<Arc<EventQueue>>,
    ) -> Result<Self> {
        let known = abi::FI_MORE | abi::FI_SYNC_ERR | abi::FI_AV_USER_ID | abi::FI_FIREWALL_ADDR;
        if flags & !known != 0 {
            let why = "flags other than FI_MORE, FI_SYNC_ERR, FI_AV_USER_ID and FI_FIREWALL_ADDR are \
                       unknown; leave them out";
            return Err(errno::refused("fi_av_insert", why, Errno::EBADFLAGS));
        }
        let context = context.as_ptr();
        let in_sync = flags & abi::FI_SYNC_ERR != 0;
        let named = flags & abi::FI_AV_USER_ID != 0;
        if in_sync && context.is_null() {
            let what = "context, which FI_SYNC_ERR makes an array of int,";
            return Err(errno::missing("fi_av_insert", what));
        }
        if named && into.at.is_null() && count != 0 {
            let what = "fi_addr, which FI_AV_USER_ID reads,";
            return Err(errno::missing("fi_av_insert", what));
        }
        if c_int::try_from(count).is_err() {
            let why =
                "count is more than the int that is returned can be; insert the addresses in parts";
            return Err(errno::refused("fi_av_insert", why, Errno::EINVAL));
        }
        let sync_err = match in_sync {
            true => context.cast(),
            false => core::ptr::null_mut(),
        };
        Ok(Self {
            av,
            into,
            sync_err,
            context,
            count,
            seen: 0,
            good: 0,
            named,
            firewalled: (flags & abi::FI_FIREWALL_ADDR != 0).then(Vec::new),
            report,
        })
    }

    /// The id that the program gives the next peer, if it gives some.
    pub(super) fn id(&self) -> Option<FiAddr> {
        if !self.named || self.seen >= self.count {
            return None;
        }
        // SAFETY: not null by the check of `new`, and one of `count` elements.
        Some(FiAddr(unsafe {
            self.into.at.wrapping_add(self.seen).read()
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
        if !self.into.at.is_null() {
            // SAFETY: not null, and one of `count` elements.
            unsafe { self.into.at.wrapping_add(index).write(peer.0) };
        }
        if !self.sync_err.is_null() {
            // SAFETY: not null, so the context is an array by `FI_SYNC_ERR`, and one of `count`
            // elements.
            unsafe { self.sync_err.wrapping_add(index).write(error) };
        }
        match outcome {
            Ok(peer) => {
                self.good = self.good.wrapping_add(1);
                if let Some(firewalled) = &mut self.firewalled {
                    firewalled.push(peer);
                }
            }
            Err(error) => self.failed(index, error),
        }
    }

    #[cold]
    fn failed(&self, index: usize, error: Errno) {
        if let Some(queue) = &self.report {
            // A queue that has been overrun says so itself.
            let _overrun = queue.push_error(EventError {
                context: self.context.expose_provenance(),
                data: index as u64,
                ..EventError::new(self.av, error)
            });
        }
    }

    /// The peers that were inserted as ones behind a firewall.
    pub(super) fn firewalled(&self) -> &[FiAddr] {
        self.firewalled.as_deref().unwrap_or_default()
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
        eq::report_done(queue, CmEvent::AvComplete, self.av, self.context, good)?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use ripstop_core::log;

    use super::*;
    use crate::edge::{Arg, Arg2};

    fn read(format: AddrFormat, bytes: &[u8], count: usize) -> Vec<Result<SocketAddr>> {
        // SAFETY: the tests count what is there.
        let addresses = unsafe { Addresses::from_c(bytes.as_ptr().cast(), count) };
        addresses.sockets(format).unwrap().collect()
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
        let addresses = unsafe { Addresses::from_c(two.as_ptr().cast(), 2) };
        let read: Vec<Address> = addresses.strings().unwrap().collect();
        assert_eq!(read[1], Address::Str("fi_b".into()));
    }

    #[test]
    fn null_with_a_count_is_refused_by_name() {
        // SAFETY: null is allowed.
        let [none, missing] = [0, 1].map(|count| unsafe { Addresses::from_c(ptr::null(), count) });
        assert!(none.sockets(AddrFormat::SockaddrIn).is_ok());
        let before = log::warnings();
        assert_eq!(
            missing.sockets(AddrFormat::SockaddrIn).err(),
            Some(Errno::EINVAL)
        );
        assert_eq!(missing.strings().err(), Some(Errno::EINVAL));
        assert_eq!(missing.queue_pairs().err(), Some(Errno::EINVAL));
        assert_eq!(log::warnings(), before + 3);
    }

    fn new(count: usize, flags: u64, context: *mut c_void) -> Result<Insertion<'static>> {
        // SAFETY: null is allowed.
        let into = unsafe { Results::from_c(ptr::null_mut()) };
        // SAFETY: null, or an array of two.
        let context = unsafe { Context::from_c(context) };
        Insertion::new(FidToken(0), count, into, flags, context, None)
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
