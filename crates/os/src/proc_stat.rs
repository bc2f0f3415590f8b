//! What `/proc/PID/stat` says of a process.

use ripstop_types::{Errno, Result};

/// A process as the system sees it at one moment (`proc_pid_stat(5)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// `R` runs, `S` and `D` sleeps, `T` stopped by a signal, `t` stopped by a debugger, `Z` has ended.
    pub state: char,
    /// When it was started, in clock ticks since the system was: with the number of the process it
    /// names one process.
    pub start: u64,
}

impl ProcStat {
    /// That of the process with this number.
    ///
    /// # Errors
    /// `ENOENT` if there is none, and those of reading a file.
    pub fn of(pid: u32) -> Result<Self> {
        let text = std::fs::read(format!("/proc/{pid}/stat")).map_err(|error| {
            let number = error.raw_os_error().unwrap_or(Errno::EIO.0);
            match number {
                libc::ESRCH => Errno::ENOENT,
                number => Errno(number),
            }
        })?;
        Self::parse(&String::from_utf8_lossy(&text)).ok_or(Errno::EIO)
    }

    /// The second field is the name of the program, which may have blanks and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?.chars().next()?;
        // The 22nd field of all.
        let start = fields.nth(18)?.parse().ok()?;
        Some(Self { state, start })
    }

    /// Whether the process has ended, though its parent has not asked for its exit code.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_fields() {
        let text = "77 (a) S 1 (b) T 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        let parsed = ProcStat {
            state: 'T',
            start: 4711,
        };
        assert_eq!(ProcStat::parse(text), Some(parsed));
        assert_eq!(ProcStat::parse("77 (a) S 1 2"), None);
        assert_eq!(ProcStat::parse(""), None);
    }

    #[test]
    fn this_process_runs() {
        let own = ProcStat::of(crate::pid()).unwrap();
        assert!(!own.has_ended() && own.start > 0);
        assert_eq!(ProcStat::of(0), Err(Errno::ENOENT));
    }
}
