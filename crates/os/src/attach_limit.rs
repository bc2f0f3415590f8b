//! What keeps this process from reading the memory of others (`process_vm_readv(2)`), as far as it can be
//! told without another process.

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::thread::{CapabilitySet, capabilities};
use thiserror::Error;

use crate::iovec::{IoVecMut, slices_mut};

/// What Yama, a security module of Linux, permits (`Documentation/admin-guide/LSM/Yama.rst`).
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Why this process may not read the memory of another one of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AttachLimit {
    /// Not even its own: the kernel lacks the call, or a filter of system calls refuses it.
    #[error(
        "process_vm_readv is not permitted; have the filter of system calls (seccomp, of a container) let it pass"
    )]
    NoCall,
    /// `kernel.yama.ptrace_scope` is this, and the process has no `CAP_SYS_PTRACE`. With 1 it reaches its
    /// descendants, and processes that have asked for it (`PR_SET_PTRACER`).
    #[error("kernel.yama.ptrace_scope is {0}; set it to 0, or give the processes CAP_SYS_PTRACE")]
    Yama(u32),
}

/// The limit that is in force here, if there is one. Others are seen only with a peer: one of another user
/// or namespace, or one that may not be dumped.
#[must_use]
pub fn attach_limit() -> Option<AttachLimit> {
    if !reads_itself() {
        return Some(AttachLimit::NoCall);
    }
    let scope = std::fs::read_to_string(PTRACE_SCOPE).ok();
    let scope = scope.and_then(|text| text.trim().parse().ok());
    yama_limit(scope.unwrap_or(0), may_trace_all())
}

/// What Yama refuses at a scope; `traces_all` says that the process has `CAP_SYS_PTRACE`.
const fn yama_limit(scope: u32, traces_all: bool) -> Option<AttachLimit> {
    match scope {
        0 => None,
        1 | 2 if traces_all => None,
        _ => Some(AttachLimit::Yama(scope)),
    }
}

/// The kernel always lets a process read its own memory.
fn reads_itself() -> bool {
    let here = [7_u8; 8];
    let mut read = [0; 8];
    let from = [RemoteIoVec {
        base: here.as_ptr().addr(),
        len: here.len(),
    }];
    let into = &mut [IoVecMut::from_slice(&mut read)];
    process_vm_readv(Pid::this(), slices_mut(into), &from) == Ok(here.len())
}

fn may_trace_all() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yama_goes_by_its_scope_and_the_capability() {
        assert_eq!(yama_limit(0, false), None);
        assert_eq!(yama_limit(1, false), Some(AttachLimit::Yama(1)));
        assert_eq!(yama_limit(2, true), None);
        assert_eq!(yama_limit(3, true), Some(AttachLimit::Yama(3)));
    }

    #[test]
    fn tests_may_read_themselves() {
        assert_ne!(attach_limit(), Some(AttachLimit::NoCall));
    }
}
