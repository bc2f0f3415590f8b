//! The most frequent unit, a whole message in a packet, without the general header's moves and branches.

use crate::ByteOrder;
use crate::cursor::join;
use crate::xnet::base::{self, BaseFlags, Small, emit_msg, may_be_sole};

use super::cm::CONTROL_VERSION;
use super::packet::{BASE_LEN, OP_VERSION, REMOTE_CQ_DATA};

/// Length in bytes of the header of a unit with an eager message.
pub const MESSAGE_LEN: usize = base::BASE_LEN + BASE_LEN;

/// Words of eight bytes of such a header.
const WORDS: usize = MESSAGE_LEN / 8;

/// The header of a unit with an eager message, which nobody acknowledges: as
/// [`emit_packet`](super::emit_packet) writes it. `conn` is what the receiver calls the connection. A length above
/// 2⁶⁴ − 81, more than any memory holds, counts as that.
#[inline]
#[must_use]
pub const fn emit_message(
    order: ByteOrder,
    conn: u64,
    tag: Option<u64>,
    data: Option<u64>,
    len: u64,
) -> [u8; MESSAGE_LEN] {
    const NOTHING: [u8; 8] = [0; 8];
    let flags = if data.is_some() { REMOTE_CQ_DATA } else { 0 };
    let [f0, f1, f2, f3] = order.bytes32(flags);
    let (op, tag) = match tag {
        Some(tag) => (1, tag),
        None => (0, 0),
    };
    let data = match data {
        Some(data) => data,
        None => 0,
    };
    let unit = emit_msg(
        order,
        BaseFlags::empty(),
        0,
        len.saturating_add(BASE_LEN as u64),
    );
    let (&[first, size], _) = unit.as_chunks::<8>() else {
        return [0; MESSAGE_LEN];
    };
    join([
        first,
        size,
        [CONTROL_VERSION, 0, 0, 0, 0, 0, 0, 0],
        order.bytes64(conn),
        NOTHING,
        NOTHING,
        [OP_VERSION, 0, op, 0, f0, f1, f2, f3],
        order.bytes64(len),
        order.bytes64(data),
        order.bytes64(tag),
    ])
}

/// Reads the header of a unit with an eager message that is all there, has no data and asks for no acknowledgement. Its
/// length is [`MESSAGE_LEN`], not what [`Small::header_len`] says.
///
/// `None` says no more than "not here": [`Unit::parse`](super::Unit::parse) tells.
#[inline(always)]
#[must_use]
pub fn parse_message(order: ByteOrder, bytes: &[u8]) -> Option<Small> {
    let words: &[[u8; 8]; WORDS] = bytes.as_chunks::<8>().0.first_chunk()?;
    let [first, size, control, _, _, _, op, len, _, tag] = *words;
    let ([CONTROL_VERSION, 0, ..], [OP_VERSION, _, op, _, f0, f1, f2, f3]) = (control, op) else {
        return None;
    };
    let payload_len = order.u64(len);
    let is_whole = order.u64(size).checked_sub(MESSAGE_LEN as u64) == Some(payload_len);
    // A header of 16 bytes, and not the longer one that begins a message in no packet.
    let is_unit = may_be_sole(first) && first[6] == base::BASE_LEN as u8;
    let has_data = order.u32([f0, f1, f2, f3]) & REMOTE_CQ_DATA != 0;
    if !is_whole || !is_unit || has_data || op > 1 {
        return None;
    }
    Some(Small {
        flags: BaseFlags::empty(),
        tag: (op == 1).then(|| order.u64(tag)),
        payload_len,
    })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::super::{Body, MAX_UNIT_HEADER, Message, Packet, Unit, emit_packet};
    use super::*;

    fn general(order: ByteOrder, flags: BaseFlags, message: Message) -> Vec<u8> {
        let packet = Packet {
            conn: 0x0102_0304_0506_0708,
            body: Body::Eager(message),
        };
        let mut out = [0; MAX_UNIT_HEADER];
        let len = emit_packet(order, flags, &packet, &mut out).expect("fits");
        out[..len].to_vec()
    }

    #[test]
    fn it_is_what_the_general_functions_write_and_read() {
        let plain = BaseFlags::empty();
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for (tag, data, len) in [
                (None, None, 0),
                (Some(7), None, 8),
                (Some(u64::MAX), None, 16_384),
                (None, Some(9), 5),
                (Some(1), Some(u64::MAX), 5),
            ] {
                let bytes = general(order, plain, Message { tag, data, len });
                let short = emit_message(order, 0x0102_0304_0506_0708, tag, data, len);
                assert_eq!(bytes, short);
                let small = parse_message(order, &bytes);
                let expected = Small {
                    flags: plain,
                    tag,
                    payload_len: len,
                };
                assert_eq!(small, data.is_none().then_some(expected));
            }
        }
    }

    #[test]
    fn whatever_it_reads_is_read_so_by_the_general_function() {
        let order = ByteOrder::NATIVE;
        let message = Message {
            tag: Some(7),
            data: None,
            len: 24,
        };
        let bytes = general(order, BaseFlags::empty(), message);
        assert!(parse_message(order, &bytes[..MESSAGE_LEN - 1]).is_none());
        let mut refused = 0;
        for (at, bit) in (0..8 * MESSAGE_LEN).map(|bit| (bit / 8, bit % 8)) {
            let mut other = bytes.clone();
            other[at] ^= 1 << bit;
            let Some(small) = parse_message(order, &other) else {
                refused += 1;
                continue;
            };
            let unit = Unit::parse(order, &other).expect("a unit");
            let Unit::Packet(
                Packet {
                    body: Body::Eager(message),
                    ..
                },
                flags,
            ) = unit
            else {
                panic!("{unit:?}");
            };
            assert_eq!(small.tag, message.tag, "byte {at}");
            assert_eq!((small.payload_len, None), (message.len, message.data));
            assert!(!flags.wants_ack());
        }
        assert!(refused > 8 * 16, "{refused}");
        let acked = general(order, BaseFlags::DELIVERY_COMPLETE, message);
        assert!(parse_message(order, &acked).is_none());
    }
}
