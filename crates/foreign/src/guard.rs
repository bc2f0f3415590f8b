//! Checks that spare the C side what the man pages leave undefined.
//!
//! C providers take some arguments on trust: an address is an index they do not compare, an
//! inject is copied into a fixed buffer, a blocking read finds its wait object. A safe API must
//! check these itself.

use std::collections::HashSet;

use ripstop_types::{Errno, FiAddr, Flags, WaitObj};

use crate::info::Info;

/// The addresses an address vector has given out and not taken back.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// A bit for each small address.
    dense: Vec<u64>,
    sparse: HashSet<u64>,
}

/// Addresses below this are kept as bits: at most 16 MiB of them.
const DENSE: u64 = 1 << 27;

impl Known {
    pub(crate) fn insert(&mut self, addr: FiAddr) {
        if !addr.is_specified() {
            return;
        }
        if addr.0 >= DENSE {
            self.sparse.insert(addr.0);
            return;
        }
        let (word, bit) = place(addr);
        if word >= self.dense.len() {
            self.dense.resize(word + 1, 0);
        }
        self.dense[word] |= bit;
    }

    pub(crate) fn remove(&mut self, addr: FiAddr) {
        let (word, bit) = place(addr);
        match self.dense.get_mut(word) {
            Some(bits) => *bits &= !bit,
            None => {
                self.sparse.remove(&addr.0);
            }
        }
    }

    #[inline]
    pub(crate) fn contains(&self, addr: FiAddr) -> bool {
        let (word, bit) = place(addr);
        match self.dense.get(word) {
            Some(bits) => bits & bit != 0,
            None => self.sparse.contains(&addr.0),
        }
    }

    /// All of them, in ascending order.
    pub(crate) fn all(&self) -> Vec<FiAddr> {
        let bits = self.dense.len() as u64 * 64;
        let dense = (0..bits).map(FiAddr).filter(|addr| self.contains(*addr));
        let mut sparse: Vec<_> = self.sparse.iter().copied().map(FiAddr).collect();
        sparse.sort_unstable();
        dense.chain(sparse).collect()
    }
}

#[inline]
fn place(addr: FiAddr) -> (usize, u64) {
    ((addr.0 / 64) as usize, 1 << (addr.0 % 64))
}

/// What an endpoint's info allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) inject: usize,
    max_msg: usize,
    tx_parts: usize,
    rx_parts: usize,
}

/// Flags an operation may carry: those that change neither what its memory nor what its context
/// is used for.
pub(crate) const OP_FLAGS: Flags = COMPLETION_FLAGS
    .union(Flags::MORE)
    .union(Flags::FENCE)
    .union(Flags::INJECT)
    .union(Flags::REMOTE_CQ_DATA);

/// Flags an endpoint may have by default.
pub(crate) const COMPLETION_FLAGS: Flags = Flags::COMPLETION
    .union(Flags::INJECT_COMPLETE)
    .union(Flags::TRANSMIT_COMPLETE)
    .union(Flags::DELIVERY_COMPLETE)
    .union(Flags::COMMIT_COMPLETE)
    .union(Flags::MATCH_COMPLETE);

/// A transmit or receive about to be posted.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub(crate) len: usize,
    pub(crate) parts: usize,
    pub(crate) flags: Flags,
}

impl Op {
    /// One piece, no flags.
    #[inline]
    pub(crate) fn plain(len: usize) -> Self {
        Self {
            len,
            parts: 1,
            flags: Flags::empty(),
        }
    }
}

impl Limits {
    pub(crate) fn new(info: &Info) -> Self {
        Self {
            inject: info.inject_size(),
            max_msg: info.max_msg_size(),
            tx_parts: info.tx_iov_limit(),
            rx_parts: info.rx_iov_limit(),
        }
    }

    #[inline]
    pub(crate) fn transmit(&self, op: Op) -> Result<(), Errno> {
        if op.len > self.max_msg {
            return Err(Errno::EMSGSIZE);
        }
        if op.parts > self.tx_parts.max(1)
            || (op.flags.contains(Flags::INJECT) && op.len > self.inject)
        {
            return Err(Errno::EINVAL);
        }
        allowed(op.flags)
    }

    #[inline]
    pub(crate) fn receive(&self, op: Op) -> Result<(), Errno> {
        if op.parts > self.rx_parts.max(1) {
            return Err(Errno::EINVAL);
        }
        allowed(op.flags)
    }
}

#[inline]
fn allowed(flags: Flags) -> Result<(), Errno> {
    if OP_FLAGS.contains(flags) {
        Ok(())
    } else {
        Err(Errno::EBADFLAGS)
    }
}

/// Whether an object opened with this has something to block on.
pub(crate) fn waits(wait: WaitObj) -> bool {
    wait != WaitObj::None
}

/// Whether `fi_trywait`(3) may be asked about it.
pub(crate) fn pollable(wait: WaitObj) -> bool {
    matches!(
        wait,
        WaitObj::Unspec | WaitObj::Fd | WaitObj::MutexCond | WaitObj::PollFd
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_until_removed() {
        let mut known = Known::default();
        for addr in [0, 63, 64, 1_000_000, DENSE - 1, DENSE, 1 << 63] {
            let addr = FiAddr(addr);
            assert!(!known.contains(addr));
            known.insert(addr);
            assert!(known.contains(addr));
            assert!(!known.contains(FiAddr(addr.0 + 1)));
            known.remove(addr);
            assert!(!known.contains(addr));
        }
        for addr in [DENSE + 7, 70, 2, DENSE] {
            known.insert(FiAddr(addr));
        }
        assert_eq!(known.all(), [2, 70, DENSE, DENSE + 7].map(FiAddr));
        known.insert(FiAddr::NOTAVAIL);
        assert!(!known.contains(FiAddr::NOTAVAIL));
    }
}
