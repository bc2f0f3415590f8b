#![allow(unsafe_code)]
//! Options of what sends or receives (`fi_getopt`, `fi_setopt`, `fi_endpoint(3)`).

use core::ffi::{c_int, c_void};

use ripstop_abi as abi;
use ripstop_core::provider::EpOption;
use ripstop_types::{Errno, Result};

use crate::edge::{arguments, trampolines};
use crate::errno::{code, missing, refused};
use crate::object::{Body, This};

/// An object with options.
pub(crate) trait Options: Body {
    /// Reads an option.
    fn option(&self, option: EpOption) -> Result<usize>;

    /// Sets an option.
    fn set_option(&self, option: EpOption, value: usize) -> Result<()>;
}

/// The option of a C name; all of them are a `size_t`, but `FI_OPT_FIREWALL_ADDR`, which is an `int`.
fn option(level: c_int, name: c_int) -> Result<EpOption> {
    if level != abi::FI_OPT_ENDPOINT {
        return Err(Errno::ENOPROTOOPT);
    }
    Ok(match name {
        abi::FI_OPT_MIN_MULTI_RECV => EpOption::MinMultiRecv,
        abi::FI_OPT_CM_DATA_SIZE => EpOption::CmDataSize,
        abi::FI_OPT_MAX_MSG_SIZE => EpOption::MaxMsgSize,
        abi::FI_OPT_MAX_TAGGED_SIZE => EpOption::MaxTaggedSize,
        abi::FI_OPT_MAX_RMA_SIZE => EpOption::MaxRmaSize,
        abi::FI_OPT_MAX_ATOMIC_SIZE => EpOption::MaxAtomicSize,
        abi::FI_OPT_INJECT_MSG_SIZE => EpOption::InjectMsgSize,
        abi::FI_OPT_INJECT_TAGGED_SIZE => EpOption::InjectTaggedSize,
        abi::FI_OPT_INJECT_RMA_SIZE => EpOption::InjectRmaSize,
        abi::FI_OPT_INJECT_ATOMIC_SIZE => EpOption::InjectAtomicSize,
        abi::FI_OPT_FIREWALL_ADDR => EpOption::FirewallAddr,
        _ => return Err(Errno::ENOPROTOOPT),
    })
}

arguments! {
    /// Where `fi_getopt` writes an option: null, or as many bytes as `optlen` says.
    pub(crate) struct OptionOut { at: *mut c_void }
}

impl OptionOut<'_> {
    /// Writes an option, and to `len`, which says how much room there is, how long it is.
    ///
    /// # Errors
    /// [`Errno::ETOOSMALL`] for too little room, [`Errno::EINVAL`] for null.
    fn put(self, len: &mut usize, option: EpOption, value: usize) -> Result<()> {
        let size = match option {
            EpOption::FirewallAddr => size_of::<c_int>(),
            _ => size_of::<usize>(),
        };
        let room = core::mem::replace(len, size);
        if room < size {
            return Err(Errno::ETOOSMALL);
        }
        if self.at.is_null() {
            return Err(missing("fi_getopt", "optval"));
        }
        if option == EpOption::FirewallAddr {
            let value = c_int::from(value != 0);
            // SAFETY: not null, and `optlen`, of which `from_c` was told, has room for an `int`.
            unsafe { self.at.cast::<c_int>().write_unaligned(value) };
            return Ok(());
        }
        // SAFETY: not null, and `optlen`, of which `from_c` was told, has room for a `size_t`.
        unsafe { self.at.cast::<usize>().write_unaligned(value) };
        Ok(())
    }
}

arguments! {
    /// What `fi_setopt` reads: null, or that many bytes.
    pub(crate) struct OptionValue { at: *const c_void, len: usize }
}

impl OptionValue<'_> {
    /// # Errors
    /// [`Errno::EINVAL`] for null, or a length that is not that of a `size_t`.
    fn get(self) -> Result<usize> {
        if self.at.is_null() {
            return Err(missing("fi_setopt", "optval"));
        }
        if self.len != size_of::<usize>() {
            let why = "optlen is not the size of a size_t, which is what all options are";
            return Err(refused("fi_setopt", why, Errno::EINVAL));
        }
        // SAFETY: not null, and then as many bytes as a `size_t` has: `from_c` was promised that.
        Ok(unsafe { self.at.cast::<usize>().read_unaligned() })
    }
}

trampolines! { [B: Options]
    /// `fi_getopt`: `-FI_ENOPROTOOPT` for an unknown option, `-FI_ETOOSMALL` with the needed length
    /// for a short buffer.
    pub(crate) extern "C" fn getopt(
        this: This<B, abi::fid>, level: c_int, name: c_int, value: OptionOut, len: Option<&mut usize>,
    ) -> c_int {
        let get = || {
            let option = option(level, name)?;
            let len = len.ok_or_else(|| missing("fi_getopt", "optlen"))?;
            value.put(len, option, this.option(option)?)
        };
        code(get())
    }

    /// `fi_setopt`: `-FI_ENOPROTOOPT` for an unknown option.
    pub(crate) extern "C" fn setopt(
        this: This<B, abi::fid>, level: c_int, name: c_int, value: OptionValue(value, len),
    ) -> c_int {
        let option = option(level, name);
        code(option.and_then(|option| match option {
            // It tells what the environment says.
            EpOption::FirewallAddr => Err(Errno::ENOPROTOOPT),
            option => this.set_option(option, value.get()?),
        }))
    }
}
