//! The headers of messages: those of eager ones, and of those whose payload waits at this side.

use ripstop_types::Result;
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::base::{BaseFlags, Header, Op, emit_announced, emit_msg, emit_tag};

use crate::Buffer;
use crate::stream::request::{SEND_HEADER, Send};

/// Writes the header of an eager message and returns its length in bytes; `None` for a length
/// that no header can say.
#[inline(always)]
pub(super) fn put_header(
    order: ByteOrder,
    tag: Option<u64>,
    data: Option<u64>,
    ack: bool,
    len: u64,
    header: &mut [u8; SEND_HEADER],
) -> Option<usize> {
    let flags = if ack {
        BaseFlags::DELIVERY_COMPLETE
    } else {
        BaseFlags::empty()
    };
    match (data, tag) {
        (None, Some(tag)) => Some(put(header, &emit_tag(order, flags, 0, tag, len))),
        (None, None) => Some(put(header, &emit_msg(order, flags, 0, len))),
        (Some(_), tag) => {
            let op = if tag.is_some() { Op::Tag } else { Op::Msg };
            let full = Header {
                flags,
                cq_data: data,
                tag: tag.unwrap_or_default(),
                ..Header::new(op, len)
            };
            full.emit(order, header).ok()
        }
    }
}

/// The header of a message whose payload waits at this side: to be got from its address, or to be asked for.
#[inline]
pub(super) fn put_announcement<B: Buffer>(
    order: ByteOrder,
    send: &Send<B>,
    address: Option<u64>,
    index: u16,
    header: &mut [u8; SEND_HEADER],
) -> Result<usize> {
    let len = send.iov.len();
    let flags = match send.ack {
        true => BaseFlags::DELIVERY_COMPLETE,
        false => BaseFlags::empty(),
    };
    if let (Some(address), None) = (address, send.data) {
        let (bytes, used) = emit_announced(order, flags, send.tag, len, address, index);
        put(header, &bytes);
        return Ok(used);
    }
    let (op, payload_len) = match (address, send.tag) {
        (Some(_), Some(_)) => (Op::TagGet, len),
        (Some(_), None) => (Op::MsgGet, len),
        (None, _) => (Op::TagRts, 0),
    };
    let full = Header {
        flags,
        cq_data: send.data,
        tag: send.tag.unwrap_or_default(),
        address: address.unwrap_or_default(),
        rts_size: len,
        ..Header::new(op, payload_len).with_index(index)
    };
    full.emit(order, header).map_err(|e| e.errno())
}

#[inline(always)]
fn put<const N: usize>(header: &mut [u8; SEND_HEADER], bytes: &[u8; N]) -> usize {
    if let Some(front) = header.first_chunk_mut::<N>() {
        *front = *bytes;
    }
    N
}
