//! UCX, by its own program `ucx_perftest`: two processes for each sample.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ripstop_cli::perf::{Kind, Test};

use super::pinned::{Ended, pinned};

const PROGRAM: &str = "ucx_perftest";

/// How long its server may take to listen, and a sample to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// From so many microseconds of a message on, the time has more digits than the rate.
const TIME_FROM: f64 = 100.0;

/// A `ucx_perftest`, and the folder with the libraries that it was made for.
#[derive(Clone, Debug)]
pub(super) struct Ucx {
    program: PathBuf,
    libraries: Option<PathBuf>,
}

impl Ucx {
    /// The program at a path, or in that folder or its `bin`; that of `PATH` where none is asked for,
    /// if it is there.
    ///
    /// # Errors
    /// When what was asked for is not there.
    pub(super) fn find(asked: Option<&Path>) -> Result<Option<Self>> {
        let (places, asked): (Vec<PathBuf>, _) = match asked {
            Some(path) => {
                let below = ["", "bin", "libucx/bin"].map(|dir| path.join(dir).join(PROGRAM));
                (
                    std::iter::once(path.to_owned()).chain(below).collect(),
                    Some(path),
                )
            }
            None => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let places = std::env::split_paths(&path).map(|dir| dir.join(PROGRAM));
                (places.collect(), None)
            }
        };
        let found = places.into_iter().find(|place| place.is_file());
        let Some(found) = found else {
            return match asked {
                Some(path) => bail!("--ucx {}: no {PROGRAM} there", path.display()),
                None => Ok(None),
            };
        };
        let program = found.canonicalize()?;
        // A wheel of PyPI and a prefix have them beside the program's folder.
        let prefix = program.parent().and_then(Path::parent);
        let libraries = prefix.map(|prefix| prefix.join("lib"));
        let libraries = libraries.filter(|lib| lib.join("libucp.so.0").exists());
        Ok(Some(Self { program, libraries }))
    }

    /// The program's path and version.
    pub(super) fn about(&self) -> String {
        let path = self.program.display();
        match self.version() {
            Some(version) => format!("{path}, UCX {version}"),
            None => path.to_string(),
        }
    }

    /// What `ucx_info` beside the program says.
    fn version(&self) -> Option<String> {
        let mut command = Command::new(self.program.with_file_name("ucx_info"));
        command.arg("-v").stderr(Stdio::null());
        self.with_libraries(&mut command);
        let said = command.output().ok()?.stdout;
        version(&String::from_utf8_lossy(&said)).map(ToOwned::to_owned)
    }

    fn with_libraries(&self, command: &mut Command) {
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
    }

    /// Nanoseconds of a message or operation, half a round trip for the latency; `None` for what the
    /// program has no test of.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub(super) fn take(&self, provider: &str, test: Test, cores: &[usize]) -> Result<Option<f64>> {
        let Some(name) = test_name(test.kind) else {
            return Ok(None);
        };
        let transports = transports(provider)?;
        let port = free_port()?;
        let start = |side: usize, more: &[String]| -> Result<Ended> {
            let mut command = pinned(cores.get(side).copied());
            command.arg(&self.program).args(["-p", &port.to_string()]);
            command.args(more);
            self.with_libraries(&mut command);
            command.env("UCX_TLS", transports);
            command.env("UCX_WARN_UNUSED_ENV_VARS", "n");
            if provider == "tcp" {
                command.env("UCX_NET_DEVICES", "lo");
            }
            // The server's output is never read, so it must not fill a pipe.
            let out = if side == 0 {
                Stdio::piped()
            } else {
                Stdio::null()
            };
            command.stdout(out).stderr(Stdio::null());
            Ok(Ended(command.spawn().context("setpriv and taskset")?))
        };
        let mut server = start(1, &[])?;
        wait_for_listener(port, &mut server)?;
        let before = test.count / 10 + 10;
        let mut options = vec!["127.0.0.1".to_owned(), "-v".to_owned(), "-f".to_owned()];
        for (option, value) in [
            ("-t", name.to_owned()),
            ("-s", test.size.to_string()),
            ("-n", test.count.to_string()),
            ("-w", before.to_string()),
            ("-O", test.depth.to_string()),
        ] {
            options.extend([option.to_owned(), value]);
        }
        let said = start(0, &options)?.output(PATIENCE)?;
        nanos(&said)
            .map(Some)
            .with_context(|| format!("{name} of {} bytes", test.size))
    }
}

/// Its test of a kind: it has none of both sides at once.
const fn test_name(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Latency => Some("tag_lat"),
        Kind::Stream => Some("tag_bw"),
        Kind::Write => Some("ucp_put_bw"),
        Kind::Read => Some("ucp_get"),
        _ => None,
    }
}

/// What is chosen of its transports.
fn transports(provider: &str) -> Result<&'static str> {
    Ok(match provider {
        "shm" => "posix,sysv,cma",
        "tcp" => "tcp",
        other => bail!("UCX has no transport for {other}"),
    })
}

/// A port that nobody listens at.
fn free_port() -> Result<u16> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(socket.local_addr()?.port())
}

/// Waits until the server listens: its first connection must be the client's.
fn wait_for_listener(port: u16, server: &mut Ended) -> Result<()> {
    let since = Instant::now();
    loop {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
        let tables = tables.map(|table| std::fs::read_to_string(table).unwrap_or_default());
        if tables.iter().any(|table| is_listening(table, port)) {
            return Ok(());
        }
        if let Some(status) = server.0.try_wait()? {
            bail!("its server ended: {status}");
        }
        ensure!(since.elapsed() < PATIENCE, "its server does not listen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a table of the kernel's sockets has one that listens at a port.
fn is_listening(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next(), words.nth(1));
        let local = local.and_then(|local| local.rsplit_once(':'));
        let at = local.and_then(|(_, at)| u16::from_str_radix(at, 16).ok());
        at == Some(port) && state == Some(LISTEN)
    })
}

/// Nanoseconds of a message from what the program prints with `-v -f`: a line of names and one of
/// figures for the whole run.
fn nanos(said: &str) -> Result<f64> {
    let mut lines = said.lines().skip_while(|line| !line.contains("overall_"));
    let head = lines
        .next()
        .with_context(|| format!("no figures in {said:?}"))?;
    let names: Vec<&str> = head.split(',').map(str::trim).collect();
    let of = |line: &str, name: &str| -> Option<f64> {
        let at = names.iter().position(|other| *other == name)?;
        line.split(',').nth(at)?.trim().parse().ok()
    };
    let figures = |line: &str| Some((of(line, "overall_lat")?, of(line, "overall_mr")?));
    // The last line is that of the whole run.
    let (micros, rate) = lines
        .filter_map(figures)
        .last()
        .with_context(|| format!("no figures in {said:?}"))?;
    let nanos = match micros >= TIME_FROM {
        true => micros * 1e3,
        false => 1e9 / rate,
    };
    ensure!(nanos.is_finite() && nanos > 0.0, "no time in {said:?}");
    Ok(nanos)
}

/// The version that `ucx_info -v` prints.
fn version(said: &str) -> Option<&str> {
    let mut words = said.split_whitespace();
    words.find(|word| word.trim_end_matches(':').eq_ignore_ascii_case("version"))?;
    words.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str =
        "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n";

    #[test]
    fn short_messages_are_taken_by_their_rate() {
        let said = format!("{SAID}  100000,0.014,0.017,0.017,438.72,438.72,57503482,57503482\n");
        let taken = nanos(&said).expect("figures");
        assert!((taken - 1e9 / 57_503_482.0).abs() < 1e-9, "{taken}");
    }

    #[test]
    fn long_messages_are_taken_by_their_time() {
        let said = format!("{SAID}  64,0.149,4497.420,4497.420,3557.60,3557.60,222,222\n");
        assert_eq!(nanos(&said).expect("figures"), 4_497_420.0);
    }

    #[test]
    fn the_last_line_is_of_the_whole_run() {
        let said = format!(
            "libraries may say something\n{SAID}\n9000,0.3,2.7,2.7,2.8,2.8,300000,300000\n\
             10000,0.3,2.5,2.5,2.8,2.8,400000,400000\n+---+\n"
        );
        assert_eq!(nanos(&said).expect("figures"), 2500.0);
    }

    #[test]
    fn what_is_no_figure_is_an_error() {
        for said in [
            "",
            "error: no such test",
            SAID,
            &format!("{SAID}1,2\n"),
            &format!("{SAID}1,0,0,0,0,0,0,0\n"),
        ] {
            assert!(nanos(said).is_err(), "{said:?}");
        }
    }

    #[test]
    fn a_listener_is_found_by_its_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
                     \x20  0: 0100007F:36AF 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n\
                     \x20  1: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0\n";
        assert!(is_listening(table, 0x36AF));
        assert!(!is_listening(table, 0x1F90), "connected, not listening");
        assert!(!is_listening(table, 1));
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let port = socket.local_addr().expect("a name").port();
        let own = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
        assert!(is_listening(&own, port));
    }

    #[test]
    fn the_version_is_found_in_both_forms() {
        assert_eq!(version("# Version 1.13.1\n# Git branch"), Some("1.13.1"));
        assert_eq!(
            version("# Library version: 1.22.0\n# Library path: /x"),
            Some("1.22.0")
        );
        assert_eq!(version("nothing"), None);
    }

    #[test]
    fn only_one_direction_has_a_test() {
        assert_eq!(test_name(Kind::Write), Some("ucp_put_bw"));
        assert_eq!(test_name(Kind::WriteBoth), None);
    }

    #[test]
    fn a_program_has_its_libraries_beside_it() {
        let dir = tempfile::tempdir().expect("a folder");
        for path in ["libucx/bin/ucx_perftest", "libucx/lib/libucp.so.0"] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, "").expect("a file");
        }
        let found = Ucx::find(Some(dir.path())).expect("there").expect("there");
        assert!(
            found
                .libraries
                .is_some_and(|lib| lib.ends_with("libucx/lib"))
        );
        let error = Ucx::find(Some(Path::new("/no/such"))).expect_err("not there");
        assert!(
            error.to_string().contains("no ucx_perftest there"),
            "{error}"
        );
    }
}
