//! This process and this machine.

/// The number of this process.
#[must_use]
#[inline]
pub fn pid() -> u32 {
    std::process::id()
}

/// The effective user of this process.
#[must_use]
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The size of a page of memory in bytes.
#[must_use]
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// The memory of this machine in bytes (`sysinfo(2)`).
#[must_use]
pub fn memory_size() -> usize {
    let info = rustix::system::sysinfo();
    let bytes = info.totalram.saturating_mul(info.mem_unit.into());
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// How many processors this process may use, at least 1.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The name of this machine (`uname(2)`), with replacement characters where it is not UTF-8.
#[must_use]
pub fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_machine_has_a_name() {
        assert!(!super::hostname().is_empty());
        assert_ne!(super::pid(), 0);
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(super::memory_size() > super::page_size());
        assert!(super::page_size().is_power_of_two());
        assert!(super::processors() > 0);
    }
}
