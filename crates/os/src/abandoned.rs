//! Memory of this process that a peer process may still write, although what it was lent for is over.
//!
//! A process may be stopped just before it copies to the memory of another one (`process_vm_writev(2)`), and nothing takes
//! that memory away from it. Whoever waits for it in vain [notes](abandon) the memory here, and whoever owns it
//! [asks](is_abandoned) before it is freed or has another use: such memory is leaked.
//!
//! The addresses are those of this process, so there is one list for all its domains. They stay in it for ever: nobody
//! learns when the peer is through.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ripstop_mem::UserBuf;

/// Set with the first entry, so that the question costs nothing before.
static ANY: AtomicBool = AtomicBool::new(false);

/// The first byte and the length of each.
static ABANDONED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// Notes `len` bytes at `addr`: a peer process may still write there. To be called before the owner of the memory
/// can learn that its use is over.
pub fn abandon(addr: u64, len: u64) {
    let mut all = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    if !all.contains(&(addr, len)) {
        all.push((addr, len));
    }
    ANY.store(true, Ordering::Release);
}

/// Whether a peer process may still write to some of this memory.
#[must_use]
#[inline]
pub fn is_abandoned(memory: UserBuf) -> bool {
    ANY.load(Ordering::Acquire) && !memory.is_empty() && is_listed(memory)
}

#[cold]
fn is_listed(memory: UserBuf) -> bool {
    let (start, len) = (memory.addr() as u64, memory.len() as u64);
    let all = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().any(|&(addr, bytes)| {
        addr < start.saturating_add(len) && start < addr.saturating_add(bytes)
    })
}

#[cfg(test)]
mod tests {
    use ripstop_mem::Parked;

    use super::*;

    #[test]
    fn memory_is_abandoned_where_it_overlaps() {
        let memory = Parked::park(vec![0; 100]).buf();
        assert!(!is_abandoned(memory));
        abandon(memory.addr() as u64 + 40, 20);
        let part = |off, len| is_abandoned(memory.slice(off, len).unwrap());
        assert!(is_abandoned(memory) && part(0, 41) && part(59, 1) && part(45, 5));
        assert!(!part(0, 40) && !part(60, 40) && !part(50, 0));
        assert!(!is_abandoned(UserBuf::EMPTY));
    }
}
