//! Receives (`fi_msg(3)`, `fi_tagged(3)`) of endpoints and of the contexts that they share.

use core::ffi::c_void;

use ripstop_abi as abi;
use ripstop_core::fi_log;
use ripstop_core::log::{Level, Subsys};
use ripstop_core::provider::{DataCall, RecvKind};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, FiAddr, Flags, Result};

use crate::buffers::{Dst, Segments};
use crate::edge::{Array, In, Whole, trampolines};
use crate::errno::status;
use crate::object::{Body, This};
use crate::options::{self, Options};
use crate::tables::Table;

/// What receives.
pub(crate) trait Receiver: Options + Body<Head = abi::fid_ep> {
    /// What it does as any endpoint.
    const EP: &'static abi::fi_ops_ep = &abi::fi_ops_ep {
        cancel: Some(cancel::<Self>),
        getopt: Some(options::getopt::<Self>),
        setopt: Some(options::setopt::<Self>),
        ..*Table::NONE
    };
    /// Receives of messages.
    const MSG_RX: &'static abi::fi_ops_msg = &abi::fi_ops_msg {
        recv: Some(msg::recv::<Self>),
        recvv: Some(msg::recvv::<Self>),
        recvmsg: Some(msg::recvmsg::<Self>),
        ..*Table::NONE
    };
    /// Receives of tagged messages.
    const TAGGED_RX: &'static abi::fi_ops_tagged = &abi::fi_ops_tagged {
        recv: Some(tagged::recv::<Self>),
        recvv: Some(tagged::recvv::<Self>),
        recvmsg: Some(tagged::recvmsg::<Self>),
        ..*Table::NONE
    };

    /// Posts a receive with the flags of the object.
    fn post(&self, kind: RecvKind, iov: &[UserBuf], src: FiAddr, context: usize) -> Result<()>;

    /// Posts a receive with flags of its own.
    fn post_with_flags(&self, posted: &Posted) -> Result<()>;

    /// Cancels what was posted with a context.
    fn cancel(&self, context: usize) -> Result<()>;
}

/// A receive as `fi_recvmsg` or `fi_trecvmsg` describes it.
pub(crate) struct Posted {
    kind: RecvKind,
    segs: Segments,
    src: FiAddr,
    pub(crate) context: usize,
    pub(crate) flags: Flags,
}

impl Posted {
    /// As a call that may be put off.
    pub(crate) fn call(&self) -> DataCall<'_> {
        DataCall::Recv {
            kind: self.kind,
            iov: self.segs.as_slice(),
            src: self.src,
            context: self.context,
            flags: self.flags,
        }
    }

    /// Posts it.
    #[inline(always)]
    pub(crate) fn to(
        &self,
        recv: impl FnOnce(RecvKind, &[UserBuf], FiAddr, usize, Option<Flags>) -> Result<()>,
    ) -> Result<()> {
        let segs = self.segs.as_slice();
        recv(self.kind, segs, self.src, self.context, Some(self.flags))
    }
}

/// The message of a receive, as a C struct.
pub(crate) trait Message: Copy {
    /// The receive that it describes.
    ///
    /// # Errors
    /// As for [`Array::rooms`].
    fn posted(whole: Whole<'_, Self>, flags: Flags) -> Result<Posted>;
}

/// The receives of one table: those of tagged ones have a tag and what is ignored of it after the
/// address.
macro_rules! receives {
    ($module:ident: $msg:ident, $call:literal, ($($tag:ident)*) $kind:expr, |$m:ident| $kind_of:expr) => {
        impl Message for abi::$msg {
            #[inline]
            fn posted($m: Whole<'_, Self>, flags: Flags) -> Result<Posted> {
                Ok(Posted {
                    kind: $kind_of,
                    segs: $m.msg_iov().rooms()?,
                    src: FiAddr($m.addr),
                    context: $m.context.expose_provenance(),
                    flags,
                })
            }
        }

        mod $module {
            use super::*;

            trampolines! { [B: Receiver]
                pub(super) extern "C" fn recv(
                    this: This<B>, buf: Dst(buf, len, desc), src: FiAddr, $($tag: u64,)*
                    context: *mut c_void,
                ) -> isize {
                    status(this.post($kind, &[buf.room()], src, context.expose_provenance()))
                }

                pub(super) extern "C" fn recvv(
                    this: This<B>, iov: Vector(iov, desc, count), src: FiAddr, $($tag: u64,)*
                    context: *mut c_void,
                ) -> isize {
                    status(iov.rooms().and_then(|segs| {
                        let context = context.expose_provenance();
                        this.post($kind, segs.as_slice(), src, context)
                    }))
                }

                pub(super) extern "C" fn recvmsg(
                    this: This<B>, msg: In<*const abi::$msg>, flags: Flags,
                ) -> isize {
                    let msg = msg.needed($call, "msg");
                    let posted = msg.and_then(|msg| Message::posted(msg, flags));
                    status(posted.and_then(|posted| this.post_with_flags(&posted)))
                }
            }
        }
    };
}

/// An I/O vector.
type Vector<'a> = Array<'a, abi::iovec>;

receives! { msg: fi_msg, "fi_sendmsg or fi_recvmsg", () RecvKind::Msg, |msg| RecvKind::Msg }
receives! { tagged: fi_msg_tagged, "fi_tsendmsg or fi_trecvmsg",
    (tag ignore) RecvKind::Tagged { tag, ignore },
    |msg| RecvKind::Tagged { tag: msg.tag, ignore: msg.ignore }
}

trampolines! { [B: Receiver]
    /// `fi_cancel`. What has ended, and so cannot be found, is no error (`fi_endpoint(3)`): its completion is in the queue.
    extern "C" fn cancel(this: This<B, abi::fid>, context: *mut c_void) -> isize {
        match this.cancel(context.expose_provenance()) {
            Err(Errno::ENOENT) => {
                fi_log!(
                    "core",
                    Level::Debug,
                    Subsys::EpCtrl,
                    "fi_cancel: nothing with the context {context:?} waits any more"
                );
                0
            }
            done => status(done),
        }
    }
}
