//! Random headers and bytes that a hostile peer sends in well-formed entries.

use ripstop_types::RmaIov;
use ripstop_wire::xnet::base::{
    Answer, BaseFlags, Coll, CollKind, Header, MAX_HEADER, Op, Reason, RmaIovs,
};

use super::HOSTILE;
use super::peer::{Attack, byte_order};
use crate::common::load::{self, Numbers};

pub(super) fn pick<T: Copy>(random: &mut Numbers, some: &[T]) -> T {
    some[random.below(some.len() as u64) as usize]
}

fn random_length(random: &mut Numbers) -> u64 {
    match random.below(8) {
        0 => 0,
        1..5 => random.below(300),
        5 => random.below(20_000),
        6 => random.below(1 << 30),
        _ => u64::MAX - random.below(200),
    }
}

/// A random header, and the number of payload bytes that follow it. It spares the honest process's part of
/// the victim's region, and its tags: whoever has the key of a region may write there.
fn random_header(random: &mut Numbers) -> (Header, usize) {
    let op = pick(random, &Op::ALL);
    let len = if op.may_have_payload() {
        random_length(random)
    } else {
        0
    };
    let mut header = Header::new(op, len);
    header.flags = BaseFlags::from_bits_retain(random.next() as u16 & !1);
    header.op_data = if op == Op::Msg && random.below(3) == 0 {
        header.payload_len = 0;
        2
    } else {
        random.next() as u8
    };
    header.atomic = random.below(24) as u8;
    header.tag = random.next();
    header.rts_size = random_length(random);
    if op.may_carry_cq_data() && header.op_data != 2 && random.below(4) == 0 {
        header.cq_data = Some(random.next());
    }
    if op.has_rma() {
        let own = (load::MEMBERS * 8 + HOSTILE * load::SLOT) as u64;
        let iov = RmaIov {
            addr: pick(random, &[own, own + 4096, u64::MAX - 8, 1 << 40]),
            len: match op {
                Op::ReadReq => random_length(random),
                _ => header.payload_len,
            },
            key: pick(random, &[load::KEY, 0, u64::MAX, 1 << 40]),
        };
        // Not beyond its own part of the region.
        if iov.key == load::KEY && iov.addr < 1 << 40 && iov.len > 4096 {
            return (Header::new(Op::Msg, 0), 0);
        }
        header.rma = RmaIovs::one(iov);
    }
    if op == Op::Refuse {
        let answer = [0, 1, 2, 3].map(Answer::from_number);
        let reason = [0, 1, 2, 3, 4].map(Reason::from_number);
        header.refusal = pick(random, &answer).zip(pick(random, &reason));
    }
    if op == Op::Coll {
        let kind = CollKind::from_number(1 + random.below(8) as u8).unwrap();
        header.coll = Some(Coll {
            kind,
            ..Coll::default()
        });
    }
    (header, header.payload_len.min(9_000) as usize)
}

/// The bytes that an attack writes next.
pub(super) fn forge_bytes(attack: Attack, random: &mut Numbers) -> Vec<u8> {
    if attack == Attack::Garbage {
        let len = 1 + random.below(400) as usize;
        return (0..len).map(|_| random.next() as u8).collect();
    }
    let (header, follows) = random_header(random);
    let mut bytes = [0; MAX_HEADER + 64];
    let Ok(len) = header.emit(byte_order(), &mut bytes) else {
        return vec![0; 1];
    };
    let mut bytes = bytes[..len].to_vec();
    if attack == Attack::Mutated && !header.op.has_rma() {
        for _ in 0..1 + random.below(3) {
            let at = random.below(len as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        // A valid write to the honest process's part would be no fault of the victim.
        if Header::parse(byte_order(), &bytes).is_ok_and(|header| header.op.has_rma()) {
            return vec![0xff; 16];
        }
    }
    let follows = match random.below(8) {
        0 => follows / 2,
        _ => follows,
    };
    bytes.resize(len + follows, random.next() as u8);
    bytes
}
