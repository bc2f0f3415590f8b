//! What to do where the system gives no descriptor.

use ripstop_types::Errno;

use super::Subsys;
use crate::fi_warn;

/// Writes a line that says which descriptor the system refuses, and what to do: for
/// [`Result::inspect_err`]. `what` is of the form `descriptor to wait on (eventfd2)`, with the
/// system call that those who filter calls have to allow.
#[cold]
pub fn no_descriptor(prov: &str, subsys: Subsys, what: &str, error: Errno) {
    fi_warn!(
        prov,
        subsys,
        "the system gives no {what}: {error}; {}",
        advice(error)
    );
}

const fn advice(error: Errno) -> &'static str {
    match error {
        Errno::EMFILE => "raise the limit on open files (ulimit -n)",
        Errno::EPERM | Errno::EACCES | Errno::ENOSYS => {
            "allow that call where system calls are filtered"
        }
        Errno::ENOSPC => "raise the limit on watched descriptors (fs.epoll.max_user_watches)",
        _ => "free memory, or raise the limit on it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_advice() {
        for (error, word) in [
            (Errno::EMFILE, "ulimit -n"),
            (Errno::EPERM, "filtered"),
            (Errno::ENOSYS, "filtered"),
            (Errno::ENOSPC, "max_user_watches"),
            (Errno::ENOMEM, "memory"),
        ] {
            assert!(advice(error).contains(word), "{error}");
        }
    }
}
