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
}
