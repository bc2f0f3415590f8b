#![allow(unsafe_code)]
//! Wait objects of queues and counters (`fi_cq(3)`, `fi_eq(3)`, `fi_cntr(3)`).

use core::ffi::{c_int, c_short};
use std::os::fd::RawFd;
use std::time::Duration;

use ripstop_abi as abi;
use ripstop_types::{Errno, Result, WaitObj};

use crate::edge::{Argument, trampolines};
use crate::errno::{self, code};
use crate::object::{Body, This};

/// `POLLIN` on Linux.
const POLLIN: c_short = 1;

/// The wait object that a program sees: its own, or that of the set it is part of.
pub(crate) fn shown<T>(set: Option<&T>, own: WaitObj) -> WaitObj {
    match set {
        Some(_) => WaitObj::Set,
        None => own,
    }
}

/// A C timeout in milliseconds; a negative one is none.
pub(crate) fn timeout(ms: c_int) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// An object that has a wait object.
pub(crate) trait Waits: Body {
    /// The wait object that a program sees.
    fn wait_obj(&self) -> WaitObj;

    /// The descriptor behind it.
    ///
    /// # Errors
    /// [`Errno::ENODATA`] or another without one.
    fn wait_fd(&self) -> Result<RawFd>;
}

trampolines! { [B: Waits]
    /// `fi_control` of a queue, a counter or a wait set.
    pub(crate) extern "C" fn control(this: This<B, abi::fid>, command: c_int, arg: Argument) -> c_int {
        code(answer(command, arg, this.wait_obj(), || this.wait_fd()))
    }
}

/// `FI_GETWAIT` and `FI_GETWAITOBJ` of the object that the argument was passed for. What the first
/// takes depends on the wait object.
///
/// # Errors
/// [`Errno::ENODATA`] without a wait object, [`Errno::EINVAL`] for null, [`Errno::ETOOSMALL`]
/// with the needed number for too few `struct pollfd`, [`Errno::ENOSYS`] for another command.
fn answer(
    command: c_int,
    arg: Argument<'_>,
    object: WaitObj,
    fd: impl Fn() -> Result<RawFd>,
) -> Result<()> {
    let arg = arg.as_ptr();
    if !matches!(command, abi::FI_GETWAIT | abi::FI_GETWAITOBJ) {
        return Err(Errno::ENOSYS);
    }
    if arg.is_null() {
        return Err(errno::missing("FI_GETWAIT or FI_GETWAITOBJ", "arg"));
    }
    if object == WaitObj::None {
        return Err(Errno::ENODATA);
    }
    if command == abi::FI_GETWAITOBJ {
        let object = match object {
            // A program that left the choice to us learns of the descriptor, if it may have it.
            WaitObj::Unspec if fd().is_ok() => WaitObj::Fd,
            object => object,
        };
        // SAFETY: not null, and this command takes an `enum fi_wait_obj`.
        unsafe { arg.cast::<abi::fi_wait_obj>().write(object.raw()) };
        return Ok(());
    }
    match object {
        WaitObj::Fd | WaitObj::Unspec => {
            let fd = fd()?;
            // SAFETY: not null, and for a descriptor this command takes an `int`.
            unsafe { arg.cast::<c_int>().write(fd) };
            Ok(())
        }
        WaitObj::PollFd => {
            // SAFETY: not null, and for `FI_WAIT_POLLFD` this command takes such a struct.
            let polled = unsafe { &mut *arg.cast::<abi::fi_wait_pollfd>() };
            let entry = abi::pollfd {
                fd: fd()?,
                events: POLLIN,
                revents: 0,
            };
            let room = core::mem::replace(&mut polled.nfds, 1);
            // The set of descriptors never changes.
            polled.change_index = 1;
            if room == 0 || polled.fd.is_null() {
                return Err(Errno::ETOOSMALL);
            }
            // SAFETY: not null, and the array has had room for `nfds` elements, which is not 0.
            unsafe { polled.fd.write(entry) };
            Ok(())
        }
        WaitObj::None | WaitObj::Set | WaitObj::MutexCond | WaitObj::Yield => Err(Errno::ENODATA),
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;
    use crate::edge::Arg;

    fn call<T>(command: c_int, arg: &mut T, object: WaitObj) -> Result<()> {
        // SAFETY: the tests pair command, argument and object.
        let arg = unsafe { Argument::from_c(ptr::from_mut(arg).cast()) };
        answer(command, arg, object, || Ok(9))
    }

    #[test]
    fn a_descriptor_is_handed_out() {
        let mut fd: c_int = 0;
        assert_eq!(call(abi::FI_GETWAIT, &mut fd, WaitObj::Unspec), Ok(()));
        assert_eq!(fd, 9);
        let none = call(abi::FI_GETWAIT, &mut fd, WaitObj::None);
        assert_eq!(none, Err(Errno::ENODATA));
        assert_eq!(call(99, &mut fd, WaitObj::Fd), Err(Errno::ENOSYS));
        let mut object: abi::fi_wait_obj = 0;
        assert_eq!(
            call(abi::FI_GETWAITOBJ, &mut object, WaitObj::Unspec),
            Ok(())
        );
        assert_eq!(object, abi::FI_WAIT_FD);
        // SAFETY: null is allowed.
        let null = unsafe { Argument::from_c(ptr::null_mut()) };
        let null = answer(abi::FI_GETWAIT, null, WaitObj::Fd, || Ok(9));
        assert_eq!(null, Err(Errno::EINVAL));
    }

    #[test]
    fn pollfd_says_how_many_it_needs() {
        let mut polled = abi::fi_wait_pollfd::default();
        let short = call(abi::FI_GETWAIT, &mut polled, WaitObj::PollFd);
        assert_eq!((short, polled.nfds), (Err(Errno::ETOOSMALL), 1));
        let mut entry = abi::pollfd::default();
        polled.fd = &raw mut entry;
        assert_eq!(call(abi::FI_GETWAIT, &mut polled, WaitObj::PollFd), Ok(()));
        assert_eq!((entry.fd, entry.events), (9, POLLIN));
    }

    #[test]
    fn timeouts_are_milliseconds() {
        assert_eq!(timeout(5), Some(Duration::from_millis(5)));
        assert_eq!(timeout(-1), None);
    }
}
