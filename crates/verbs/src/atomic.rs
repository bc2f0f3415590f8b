//! Atomics that devices have: on 64 bits, one at a time.

use ripstop_core::fi_warn_sparse;
use ripstop_core::log::Subsys;
use ripstop_core::provider::AtomicCall;
use ripstop_ibverbs::{Operation, Remote};
use ripstop_mem::{UserBuf, copy_in};
use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, Flags, Result, flags};

use crate::params::NAME;

/// Bytes of an operand.
pub(crate) const LEN: usize = 8;

/// Most elements of an atomic.
///
/// # Errors
/// [`Errno::EOPNOTSUPP`] for what no device does.
pub(crate) fn limit(kind: AtomicKind, datatype: Datatype, op: AtomicOp) -> Result<usize> {
    let has_type = matches!(datatype, Datatype::Int64 | Datatype::Uint64);
    let has_op = matches!(
        (kind, op),
        (AtomicKind::Plain, AtomicOp::AtomicWrite)
            | (AtomicKind::Fetch, AtomicOp::Sum | AtomicOp::AtomicRead)
            | (AtomicKind::Compare, AtomicOp::Cswap)
    );
    match has_type && has_op {
        true => Ok(1),
        false => Err(Errno::EOPNOTSUPP),
    }
}

/// What a request for an atomic is: the operation, what its completion says, and whether the local memory
/// is the operand, which is written to the peer, and not the result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Atomic {
    pub(crate) operation: Operation,
    pub(crate) says: Flags,
    pub(crate) writes: bool,
}

/// The number in a buffer of 64 bits.
fn number(buf: &[UserBuf]) -> Result<u64> {
    let [buf] = buf else {
        return Err(Errno::EINVAL);
    };
    let mut bytes = [0; LEN];
    match buf.len() == LEN && copy_in(&mut bytes, *buf) == LEN {
        true => Ok(u64::from_ne_bytes(bytes)),
        false => Err(Errno::EINVAL),
    }
}

/// Makes a request of a call.
///
/// # Errors
/// As [`limit`]; [`Errno::EINVAL`] for more than one element, and memory of the peer that is not aligned.
pub(crate) fn request(operand: &[UserBuf], call: &AtomicCall<'_>, at: Remote) -> Result<Atomic> {
    limit(call.kind, call.datatype, call.op)?;
    if !at.addr.is_multiple_of(LEN as u64) {
        fi_warn_sparse!(
            NAME,
            Subsys::EpData,
            "an atomic on {:#x} of a peer, which is not aligned to 8 bytes",
            at.addr
        );
        return Err(Errno::EINVAL);
    }
    let operation = match call.op {
        AtomicOp::AtomicWrite => {
            number(operand)?;
            Operation::Write(at, None)
        }
        AtomicOp::AtomicRead => Operation::FetchAdd(at, 0),
        AtomicOp::Sum => Operation::FetchAdd(at, number(operand)?),
        _ => Operation::CompareSwap(at, number(call.compare)?, number(operand)?),
    };
    let writes = call.kind == AtomicKind::Plain;
    if !writes && !matches!(call.result, [result] if result.len() == LEN) {
        return Err(Errno::EINVAL);
    }
    let says = match writes {
        true => flags![ATOMIC WRITE],
        false => flags![ATOMIC READ],
    };
    Ok(Atomic {
        operation,
        says,
        writes,
    })
}

#[cfg(test)]
mod tests {
    use ripstop_mem::Parked;
    use ripstop_types::FiAddr;

    use super::*;

    #[test]
    fn operands_become_the_numbers_of_requests() {
        let [operand, compare, result] =
            [5_u64, 7, 0].map(|number| Parked::park(number.to_ne_bytes().to_vec()));
        let at = Remote { addr: 64, key: 1 };
        let (compare, result) = ([compare.buf()], [result.buf()]);
        let mut call = AtomicCall {
            kind: AtomicKind::Compare,
            datatype: Datatype::Uint64,
            op: AtomicOp::Cswap,
            compare: &compare,
            result: &result,
            remote: &[],
            peer: FiAddr::UNSPEC,
            data: None,
            context: 0,
            flags: None,
        };
        let operand = [operand.buf()];
        let made = request(&operand, &call, at).expect("made");
        assert_eq!(made.operation, Operation::CompareSwap(at, 7, 5));
        (call.kind, call.op) = (AtomicKind::Fetch, AtomicOp::Sum);
        let made = request(&operand, &call, at).expect("made");
        assert_eq!(made.operation, Operation::FetchAdd(at, 5));
        call.op = AtomicOp::AtomicRead;
        let made = request(&[], &call, at).expect("made");
        assert_eq!(
            (made.operation, made.writes),
            (Operation::FetchAdd(at, 0), false)
        );
        let askew = Remote { addr: 65, key: 1 };
        assert_eq!(request(&[], &call, askew), Err(Errno::EINVAL));
        call.op = AtomicOp::Cswap;
        assert_eq!(request(&operand, &call, at), Err(Errno::EOPNOTSUPP));
        (call.kind, call.op) = (AtomicKind::Plain, AtomicOp::AtomicWrite);
        let made = request(&operand, &call, at).expect("made");
        assert_eq!(
            (made.operation, made.writes),
            (Operation::Write(at, None), true)
        );
    }
}
