//! Where lines go when no program takes them.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use parking_lot::Mutex;

use super::{Record, Subsys, format_line};

enum Output {
    Stderr,
    Stdout,
    File(File),
}

static OUTPUT: Mutex<Output> = Mutex::new(Output::Stderr);

/// Writes a line where the environment says, whoever takes the others, and at once, so that lines
/// of several processes do not mix. A line that has no room in a file, and all after it, go to `stderr`.
pub fn write(record: &Record<'_>) {
    put(&mut OUTPUT.lock(), &format_line(record));
}

fn put(output: &mut Output, line: &str) {
    let line = line.as_bytes();
    // What neither a terminal nor a pipe takes is lost.
    let _lost = match output {
        Output::Stderr => std::io::stderr().write_all(line),
        Output::Stdout => std::io::stdout().write_all(line),
        Output::File(file) => match file.write_all(line) {
            Ok(()) => Ok(()),
            Err(error) => {
                *output = Output::Stderr;
                let why = format!(
                    "libfabric:{}: the file of FI_LOG_LOCATION cannot be written ({error}), so the log goes to \
                     stderr from here on\n",
                    ripstop_os::pid()
                );
                std::io::stderr().write_all(&[why.as_bytes(), line].concat())
            }
        },
    };
}

/// Sends lines to `stderr`, `stdout`, a file that does not exist yet, or a file
/// `ofi_PID.log` in a directory.
pub(crate) fn set_location(location: &str, mode: u32) {
    let output = match location {
        "" | "stderr" => Output::Stderr,
        "stdout" => Output::Stdout,
        path => match create(Path::new(path), mode) {
            Ok(file) => Output::File(file),
            Err(error) => {
                crate::fi_warn!(
                    "core",
                    Subsys::Core,
                    "FI_LOG_LOCATION={path} cannot be created ({error}), so the log goes to \
                     stderr: name a directory, or a file that does not exist"
                );
                Output::Stderr
            }
        },
    };
    *OUTPUT.lock() = output;
}

/// Creates a log file; an existing one is never overwritten.
fn create(path: &Path, mode: u32) -> std::io::Result<File> {
    let in_directory = path.join(format!("ofi_{}.log", ripstop_os::pid()));
    let path = if path.is_dir() { &in_directory } else { path };
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_finds_no_room_goes_to_stderr() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut output = Output::File(full);
        put(&mut output, "a line of a test\n");
        assert!(matches!(output, Output::Stderr));
    }

    #[test]
    fn files_are_new_and_private() {
        let dir = std::env::temp_dir().join(format!("ripstop-log-{}", ripstop_os::pid()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = create(&dir, 0o600).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(dir.join(format!("ofi_{}.log", ripstop_os::pid())).exists());
        assert!(create(&dir, 0o600).is_err());
        let named = dir.join("named.log");
        create(&named, 0o600).unwrap();
        assert!(create(&named, 0o600).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
