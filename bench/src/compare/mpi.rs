//! MPIs, by two ranks of `interop/mpi/pair.c`, which `interop/pair` starts and a socket tells what to do.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ripstop_cli::perf::{Kind, Test, batch};
use tempfile::TempDir;

use super::pinned::{Ended, pinned};
use crate::subject::{Role, Subject};

/// How long ranks may take to start, and a sample to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long they may take to leave.
const LEAVING: Duration = Duration::from_secs(10);
/// How long it may take to get the MPIs.
const INSTALLING: Duration = Duration::from_secs(1200);

/// The column of MPICH over our shm, and that of Open MPI over our lnx: a target compares them.
pub(super) const MPICH_ON_SHM: &str = "MPICH/shm";
pub(super) const OPEN_MPI_ON_LNX: &str = "OMPI/lnx";

/// A way of an MPI, which is a column.
#[derive(Debug)]
struct Way {
    /// As `interop/pair` calls it.
    name: &'static str,
    label: &'static str,
    /// Whether its messages go by our library.
    ours: bool,
    about: &'static str,
}

const WAYS: [Way; 4] = [
    Way {
        name: "mpich",
        label: "MPICH",
        ours: false,
        about: "MPICH's own shared memory (ch4, posix), MPI_Send and MPI_Recv from C",
    },
    Way {
        name: "openmpi",
        label: "OMPI",
        ours: false,
        about: "Open MPI's own shared memory (pml ob1, btl sm)",
    },
    Way {
        name: "mpich-shm",
        label: MPICH_ON_SHM,
        ours: true,
        about: "MPICH (ch4:ofi) over the provider shm of ours",
    },
    Way {
        name: "openmpi-lnx",
        label: OPEN_MPI_ON_LNX,
        ours: true,
        about: "Open MPI (pml cm, mtl ofi) over the provider lnx of ours",
    },
];

/// A way, and the library it may be on.
#[derive(Debug)]
pub(super) struct Mpi {
    way: &'static Way,
    library: PathBuf,
}

impl Mpi {
    /// Gets the MPIs as `interop/run` does, and gives a column for each way.
    ///
    /// # Errors
    /// When they cannot be had, and why.
    pub(super) fn all(library: &Path) -> Result<Vec<(Subject, Self)>> {
        let mut command = pinned(None);
        command
            .arg(launcher())
            .arg("--prepare")
            .arg("--lib")
            .arg(library);
        command.stdout(Stdio::piped());
        let mut preparing = Ended(command.spawn().context("setpriv")?);
        let said = preparing.output(INSTALLING)?;
        ensure!(preparing.0.wait()?.success(), "{}", said.trim());
        let column = |way: &'static Way| {
            let role = if way.ours { Role::OnOurs } else { Role::Mpi };
            let shown = Subject {
                role,
                label: way.label.to_owned(),
                about: way.about.to_owned(),
            };
            let library = library.to_owned();
            (shown, Self { way, library })
        };
        Ok(WAYS.iter().map(column).collect())
    }

    /// Its name in notes.
    pub(super) fn label(&self) -> &'static str {
        self.way.label
    }

    /// Starts two ranks, on these cores.
    ///
    /// # Errors
    /// When they do not come, or use another library than they should.
    pub(super) fn start(&self, cores: &[usize]) -> Result<Ranks> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket)?;
        let mut command = pinned(None);
        command.arg(launcher()).arg("--lib").arg(&self.library);
        command.arg(self.way.name).arg(&socket);
        command.args(cores.iter().map(ToString::to_string));
        command.stdout(Stdio::piped());
        let mut launcher = Ended(command.spawn().context("setpriv")?);
        let mut ranks = [None, None];
        for _ in 0..ranks.len() {
            let mut rank = accept(&listener, &mut launcher)?;
            let (number, loaded) = hello(&line(&mut rank)?)?;
            let own = loaded
                .as_deref()
                .is_some_and(|path| is_same(path, &self.library));
            ensure!(
                own == self.way.ours,
                "it has loaded {}",
                loaded.map_or("no libfabric".to_owned(), |path| path.display().to_string())
            );
            let place = ranks.get_mut(number).context("a rank too many")?;
            *place = Some(rank);
        }
        let [Some(first), Some(second)] = ranks else {
            bail!("a rank came twice");
        };
        Ok(Ranks {
            ranks: [first, second],
            launcher,
            _dir: dir,
        })
    }
}

/// Two ranks that wait for orders. They leave when this is dropped.
pub(super) struct Ranks {
    ranks: [BufReader<UnixStream>; 2],
    launcher: Ended,
    _dir: TempDir,
}

impl Ranks {
    /// Nanoseconds of a message, an exchange or half a round trip; `None` for writes and reads.
    ///
    /// # Errors
    /// When they do not answer.
    pub(super) fn take(&mut self, test: Test) -> Result<Option<f64>> {
        let Some(order) = order(test) else {
            return Ok(None);
        };
        for rank in &mut self.ranks {
            rank.get_mut().write_all(order.as_bytes())?;
        }
        let mut nanos = [0.0; 2];
        for (rank, nanos) in self.ranks.iter_mut().zip(&mut nanos) {
            *nanos = line(rank)?.trim().parse::<f64>()?;
        }
        let halves = if test.kind == Kind::Latency { 2.0 } else { 1.0 };
        Ok(Some(nanos[0] / f64::from(test.count) / halves))
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &self.ranks {
            let _ = rank.get_ref().shutdown(std::net::Shutdown::Both);
        }
        // It is killed if it does not end, with what it has started.
        let _ = self.launcher.output(LEAVING);
    }
}

/// What is said to both ranks.
fn order(test: Test) -> Option<String> {
    let kind = match test.kind {
        Kind::Latency => "latency",
        Kind::Exchange => "exchange",
        Kind::Stream => "stream",
        Kind::StreamBoth => "streams-both-ways",
        _ => return None,
    };
    let before = match test.kind {
        Kind::Latency | Kind::Exchange => test.count / 10 + 10,
        _ => batch(test.depth),
    };
    let Test {
        size, count, depth, ..
    } = test;
    Some(format!("{kind} {size} {count} {before} {depth}\n"))
}

/// The command that starts the ranks.
fn launcher() -> PathBuf {
    crate::top().join("interop/pair")
}

/// The next rank that connects.
fn accept(listener: &UnixListener, launcher: &mut Ended) -> Result<BufReader<UnixStream>> {
    listener.set_nonblocking(true)?;
    let since = Instant::now();
    loop {
        match listener.accept() {
            Ok((rank, _)) => {
                rank.set_nonblocking(false)?;
                rank.set_read_timeout(Some(PATIENCE))?;
                return Ok(BufReader::new(rank));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if launcher.0.try_wait()?.is_some() {
            bail!("{}", launcher.output(LEAVING)?.trim());
        }
        ensure!(
            since.elapsed() < PATIENCE,
            "its ranks do not start within {} s",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The next line of a rank.
fn line(rank: &mut BufReader<UnixStream>) -> Result<String> {
    let mut line = String::new();
    let read = rank.read_line(&mut line).context("no answer of a rank")?;
    ensure!(read > 0, "a rank has ended");
    Ok(line)
}

/// A rank's number and the libfabric that it has loaded, if it has.
fn hello(line: &str) -> Result<(usize, Option<PathBuf>)> {
    let (number, loaded) = line.trim_end().split_once(' ').context("no rank")?;
    let loaded = (loaded != "-").then(|| PathBuf::from(loaded));
    Ok((number.parse().context("no rank")?, loaded))
}

/// Whether two paths are of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_say_what_they_have_loaded() {
        let (rank, loaded) = hello("1 /a b/libfabric.so.1\n").expect("a rank");
        assert_eq!(
            (rank, loaded),
            (1, Some(PathBuf::from("/a b/libfabric.so.1")))
        );
        assert_eq!(hello("0 -\n").expect("a rank"), (0, None));
        for wrong in ["", "no rank", "x -"] {
            assert!(hello(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn orders_are_of_messages_only() {
        let test = |kind| Test::new(kind, 8, 640);
        assert_eq!(
            order(test(Kind::Latency)).expect("one"),
            "latency 8 640 74 64\n"
        );
        assert_eq!(
            order(test(Kind::Stream)).expect("one"),
            "stream 8 640 32 64\n"
        );
        assert_eq!(order(test(Kind::Write)), None);
    }

    #[test]
    fn the_program_knows_every_order_and_the_launcher_every_way() {
        let text = |path: &str| std::fs::read_to_string(crate::top().join(path)).expect(path);
        let (program, launcher) = (text("interop/mpi/pair.c"), text("interop/pair"));
        for kind in [
            Kind::Latency,
            Kind::Exchange,
            Kind::Stream,
            Kind::StreamBoth,
        ] {
            let order = order(Test::new(kind, 1, 1)).expect("one");
            let name = order.split(' ').next().expect("a word");
            assert!(program.contains(&format!("{{\"{name}\",")), "{name}");
        }
        for way in &WAYS {
            assert!(
                launcher.contains(&format!("    \"{}\": (", way.name)),
                "{way:?}"
            );
        }
    }
}
