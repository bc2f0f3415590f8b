//! Sends (`fi_msg(3)`, `fi_tagged(3)`) of endpoints.

use core::ffi::c_void;

use ripstop_abi as abi;
use ripstop_core::provider::{DataCall, Domain, Endpoint, SendKind};
use ripstop_types::{FiAddr, Flags, Result};

use super::body::{Defaults, Ep, EpBody};
use crate::buffers::{Segments, Src};
use crate::edge::{Array, In, Whole, trampolines};
use crate::errno::status;
use crate::receive::Receiver;
use crate::tables::Table;

/// Remote CQ data of a call that takes flags: there only if the flags say so.
#[inline(always)]
pub(crate) fn data_of(flags: Flags, data: u64) -> Option<u64> {
    flags.contains(Flags::REMOTE_CQ_DATA).then_some(data)
}

/// A send that is put off, as a C struct describes it.
pub(crate) struct Sent {
    kind: SendKind,
    segs: Segments,
    data: Option<u64>,
    dest: FiAddr,
    context: usize,
    flags: Flags,
}

impl Sent {
    /// As a call.
    pub(crate) fn call(&self) -> DataCall<'_> {
        DataCall::Send {
            kind: self.kind,
            iov: self.segs.as_slice(),
            data: self.data,
            dest: self.dest,
            context: self.context,
            flags: self.flags,
        }
    }
}

/// The message of a send, as a C struct.
pub(crate) trait Message: Copy {
    /// The send that it describes.
    ///
    /// # Errors
    /// As for [`Array::sources`].
    fn sent(whole: Whole<'_, Self>, flags: Flags) -> Result<Sent>;
}

/// The sends of one table: those of tagged ones have a tag after the address.
macro_rules! sends {
    ($module:ident: $msg:ident, $call:literal, ($($tag:ident)?) $kind:expr, |$m:ident| $kind_of:expr) => {
        impl Message for abi::$msg {
            fn sent($m: Whole<'_, Self>, flags: Flags) -> Result<Sent> {
                Ok(Sent {
                    kind: $kind_of,
                    segs: $m.msg_iov().sources()?,
                    data: data_of(flags, $m.data),
                    dest: FiAddr($m.addr),
                    context: $m.context.expose_provenance(),
                    flags,
                })
            }
        }

        mod $module {
            use super::*;

            trampolines! { [D: Domain, M: Defaults]
                pub(super) extern "C" fn send(
                    this: Ep<D, M>, buf: Src(buf, len, desc), dest: FiAddr, $($tag: u64,)?
                    context: *mut c_void,
                ) -> isize {
                    status(buf.buf().and_then(|buf| {
                        let context = context.expose_provenance();
                        this.send($kind, &[buf], None, dest, context, this.defaults.tx())
                    }))
                }

                pub(super) extern "C" fn sendv(
                    this: Ep<D, M>, iov: Vector(iov, desc, count), dest: FiAddr, $($tag: u64,)?
                    context: *mut c_void,
                ) -> isize {
                    status(iov.sources().and_then(|segs| {
                        let (segs, context) = (segs.as_slice(), context.expose_provenance());
                        this.send($kind, segs, None, dest, context, this.defaults.tx())
                    }))
                }

                pub(super) extern "C" fn sendmsg(
                    this: Ep<D, M>, msg: In<*const abi::$msg>, flags: Flags,
                ) -> isize {
                    status(msg.needed($call, "msg").and_then(|$m| {
                        let segs = $m.msg_iov().sources()?;
                        let (data, dest) = (data_of(flags, $m.data), FiAddr($m.addr));
                        let context = $m.context.expose_provenance();
                        this.send($kind_of, segs.as_slice(), data, dest, context, Some(flags))
                    }))
                }

                pub(super) extern "C" fn senddata(
                    this: Ep<D, M>, buf: Src(buf, len, desc), data: u64, dest: FiAddr,
                    $($tag: u64,)? context: *mut c_void,
                ) -> isize {
                    status(buf.buf().and_then(|buf| {
                        let context = context.expose_provenance();
                        this.send($kind, &[buf], Some(data), dest, context, this.defaults.tx())
                    }))
                }

                pub(super) extern "C" fn inject(
                    this: Ep<D, M>, buf: Src(buf, len), dest: FiAddr $(, $tag: u64)?
                ) -> isize {
                    status(buf.buf().and_then(|buf| this.ep.inject($kind, buf, None, dest)))
                }

                pub(super) extern "C" fn injectdata(
                    this: Ep<D, M>, buf: Src(buf, len), data: u64, dest: FiAddr $(, $tag: u64)?
                ) -> isize {
                    let data = Some(data);
                    status(buf.buf().and_then(|buf| this.ep.inject($kind, buf, data, dest)))
                }
            }
        }
    };
}

/// An I/O vector.
type Vector<'a> = Array<'a, abi::iovec>;

sends! { msg: fi_msg, "fi_sendmsg or fi_recvmsg", () SendKind::Msg, |msg| SendKind::Msg }
sends! { tagged: fi_msg_tagged, "fi_tsendmsg or fi_trecvmsg",
    (tag) SendKind::Tagged(tag), |msg| SendKind::Tagged(msg.tag)
}

/// The tables of one kind of message: of an endpoint, and of a context that only sends.
macro_rules! message_tables {
    ($($table:ident, $module:ident: $both:ident $tx:ident $rx:ident;)*) => {
        impl<D: Domain, M: Defaults> EpBody<D, M> { $(
            pub(super) const $both: &'static abi::$table = &abi::$table {
                recv: Self::$rx.recv,
                recvv: Self::$rx.recvv,
                recvmsg: Self::$rx.recvmsg,
                ..*Self::$tx
            };
            pub(super) const $tx: &'static abi::$table = &abi::$table {
                send: Some($module::send::<D, M>),
                sendv: Some($module::sendv::<D, M>),
                sendmsg: Some($module::sendmsg::<D, M>),
                inject: Some($module::inject::<D, M>),
                senddata: Some($module::senddata::<D, M>),
                injectdata: Some($module::injectdata::<D, M>),
                ..*Table::NONE
            };
        )* }
    };
}

message_tables! {
    fi_ops_msg, msg: MSG MSG_TX MSG_RX;
    fi_ops_tagged, tagged: TAGGED TAGGED_TX TAGGED_RX;
}
