//! The collectives of an MPI from a virtual environment of Python.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::record::{Figure, Figures};

/// What each process runs; the first one prints nanoseconds.
const SCRIPT: &str = "
import json, time
from array import array
from mpi4py import MPI

world = MPI.COMM_WORLD
one, total = array('d', [1.0]), array('d', [0.0])

def run(operation, count):
    world.Barrier()
    start = time.perf_counter()
    for _ in range(count):
        operation()
    return world.allreduce(time.perf_counter() - start, op=MPI.MAX)

def nanoseconds(operation):
    took = run(operation, 20)
    count = max(20, min(4000, int(20 * 0.4 / took)))
    return run(operation, count) / count * 1e9

barrier = nanoseconds(world.Barrier)
allreduce = nanoseconds(lambda: world.Allreduce(one, total))
assert total[0] == world.size
if world.rank == 0:
    print(json.dumps({'barrier': barrier, 'allreduce': allreduce}))
";

/// Between two looks whether it has ended.
const GLANCE: Duration = Duration::from_millis(20);

#[derive(Deserialize)]
struct Printed {
    barrier: f64,
    allreduce: f64,
}

/// Whether there is an MPI in a virtual environment.
///
/// # Errors
/// What to do when there is none.
pub(super) fn check(venv: &Path) -> Result<()> {
    let venv_bin = venv.join("bin");
    for program in ["mpiexec", "python"] {
        ensure!(
            venv_bin.join(program).is_file(),
            "--mpi {}: no bin/{program} there: make it with `python3 -m venv {0}` and \
             `{0}/bin/pip install mpich mpi4py`",
            venv.display()
        );
    }
    Ok(())
}

/// The time of a barrier and of a sum over so many processes.
///
/// # Errors
/// When it fails, or takes longer than until then.
pub(super) fn sample(venv: &Path, processes: u64, until: Instant) -> Result<Figures> {
    let mut command = Command::new(venv.join("bin/mpiexec"));
    command.args(["-n", &processes.to_string()]);
    command.arg(venv.join("bin/python")).args(["-c", SCRIPT]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start mpiexec")?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            bail!("takes longer than the time limit");
        }
        std::thread::sleep(GLANCE);
    };
    let mut text = String::new();
    if let Some(output) = &mut child.stdout {
        output.read_to_string(&mut text)?;
    }
    ensure!(status.success(), "mpiexec: {status}");
    figures(&text)
}

fn figures(text: &str) -> Result<Figures> {
    let last = text.lines().last().unwrap_or_default();
    let Printed { barrier, allreduce } =
        serde_json::from_str(last).with_context(|| format!("mpiexec printed {text:?}"))?;
    Ok([(Figure::Barrier, barrier), (Figure::Allreduce, allreduce)].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let text = "a note\n{\"barrier\": 1500.5, \"allreduce\": 2.0}\n";
        let figures = figures(text).expect("figures");
        assert_eq!(figures[&Figure::Barrier], 1500.5);
        assert!(super::figures("no such thing").is_err());
    }

    #[test]
    fn an_environment_without_mpi_says_what_to_do() {
        let error = check(Path::new("/no/such")).expect_err("nothing there");
        assert!(error.to_string().contains("pip install mpich"), "{error}");
    }
}
