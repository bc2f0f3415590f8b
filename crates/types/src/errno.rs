//! Fabric errors.

use core::fmt;

/// A fabric error (`FI_E*`, man page `fi_errno(3)`): a positive number, negated only at the
/// C ABI. `Copy` and allocation-free.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Errno(pub i32);

/// The result of a fabric call.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self($value);)*

            /// The symbolic name (`"FI_EAGAIN"`), or `"FI_EOTHER"` for a number without one.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($value => concat!("FI_", stringify!($name)),)*
                    _ => "FI_EOTHER",
                }
            }

            /// A one-line description for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self.0 {
                    $($value => $text,)*
                    _ => "Unspecified error",
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    E2BIG = 7, "Argument list too long";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    EBUSY = 16, "Device or resource busy";
    ENODEV = 19, "No such device";
    EINVAL = 22, "Invalid argument";
    EMFILE = 24, "Too many open files";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    EPIPE = 32, "Broken pipe";
    ENOSYS = 38, "Function not implemented";
    ENOMSG = 42, "No message of desired type";
    ENODATA = 61, "No data available";
    EPROTO = 71, "Protocol error";
    EOVERFLOW = 75, "Value too large for defined data type";
    EMSGSIZE = 90, "Message too long";
    ENOPROTOOPT = 92, "Protocol not available";
    EOPNOTSUPP = 95, "Operation not supported";
    EAFNOSUPPORT = 97, "Address family not supported by protocol";
    EADDRINUSE = 98, "Address already in use";
    EADDRNOTAVAIL = 99, "Cannot assign requested address";
    ENETDOWN = 100, "Network is down";
    ENETUNREACH = 101, "Network is unreachable";
    ECONNABORTED = 103, "Software caused connection abort";
    ECONNRESET = 104, "Connection reset by peer";
    ENOBUFS = 105, "No buffer space available";
    EISCONN = 106, "Transport endpoint is already connected";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ESHUTDOWN = 108, "Cannot send after transport endpoint shutdown";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTDOWN = 112, "Host is down";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
    EREMOTEIO = 121, "Remote I/O error";
    ECANCELED = 125, "Operation canceled";
    EKEYREJECTED = 129, "Key was rejected by service";
    EOTHER = 256, "Unspecified error";
    ETOOSMALL = 257, "Provided buffer is too small";
    EOPBADSTATE = 258, "Operation not permitted in current state";
    EAVAIL = 259, "Error available";
    EBADFLAGS = 260, "Flags not supported";
    ENOEQ = 261, "Missing or unavailable event queue";
    EDOMAIN = 262, "Invalid resource domain";
    ENOCQ = 263, "Missing or unavailable completion queue";
    ECRC = 264, "CRC error";
    ETRUNC = 265, "Truncation error";
    ENOKEY = 266, "Required key not available";
    ENOAV = 267, "Missing or unavailable address vector";
    EOVERRUN = 268, "Queue has been overrun";
    ENORX = 269, "Receiver not ready, no receive buffers available";
    ENOMR = 270, "Memory registration limit exceeded";
    EFIREWALLADDR = 271, "Host unreachable due to firewall";
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Errno {}
