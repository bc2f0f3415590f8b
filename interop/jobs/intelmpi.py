"""Intel MPI 2021 from PyPI, which brings no libfabric of its own, with the tests of mpi4py."""

import re

from rig import peers
from rig.case import Case, Failed
from rig.library import Witness
from rig.peers import HERE

from . import openmpi

NAME = "intelmpi"
PROVIDERS = ("tcp", "shm", "lnx")

SETTINGS = {
    # Between processes of one machine too.
    "I_MPI_FABRICS": "ofi",
    # Says which provider was taken.
    "I_MPI_DEBUG": "2",
    # There are more ranks than processors.
    "I_MPI_PIN": "0",
}

# The wheel knows nothing of Fortran's types.
SKIPPED = ("test_mpiabi.*.testGetFortranInfo",)

# Over other providers than tcp, C libfabric's shm as well, Intel MPI's dynamic windows say that they are -1 bytes long.
NO_DYNAMIC_WINDOWS = ("test_win.TestWinCreateDynamic*",)

# What CI has time for.
SHORT = ("p2p_buf", "p2p_buf_matched", "cco_nb_buf", "rma", "util_sync")


def cases():
    """mpi4py's tests and our own programs on every provider; where memory is shared by Intel MPI itself, too."""
    found = [Case(f"{NAME}/mpi4py/short/tcp/3", suite_run(SHORT, 3, "tcp"))]
    for provider in PROVIDERS:
        found += [Case(f"{NAME}/mpi4py/whole/{provider}/{ranks}", suite_run((), ranks, provider), full=True)
                  for ranks in (2, 3)]
        for ranks in (2, 9):
            found += [Case(f"{NAME}/traffic/{provider}/{ranks}", own("traffic", ranks, ["20", "1048576"], provider)),
                      Case(f"{NAME}/collectives/{provider}/{ranks}", own("collectives", ranks, ["16384"], provider),
                           full=provider != "tcp")]
        found += [Case(f"{NAME}/many/{how}/{provider}/9", own("many", 9, [how, "600"], provider), full=True)
                  for how in ("posted", "unexpected", "backwards")]
    found += [Case(f"{NAME}/rxm/traffic/3", own("traffic", 3, ["20", "1048576"], "tcp;ofi_rxm")),
              Case(f"{NAME}/rxm/named/3", own("collectives", 3, ["16384"], "tcp;ofi_rxm", named_by="I_MPI_OFI_PROVIDER")),
              Case(f"{NAME}/shared-memory/traffic/3", own("traffic", 3, ["20", "1048576"], "tcp", I_MPI_FABRICS="shm:ofi"))]
    return found


def prepare(bench):
    """Gets Intel MPI and mpi4py, and compiles our programs for this MPI."""
    global venv, suite
    peers.packages(bench, "gcc", "libc6-dev")
    # They ask for a package `libfabric`, which PyPI does not have.
    venv, suite = peers.python_mpi(bench, home="venv-intelmpi", alone_packages=peers.INTEL_MPI)
    for name in ("collectives", "traffic", "many"):
        peers.compile_c(bench, ["cc"], [HERE / "mpi" / f"{name}.c"], bench.scratch / f"{name}-intelmpi",
                        f"-I{venv}/include", f"-L{venv}/lib", f"-Wl,-rpath,{venv}/lib", "-lmpi")


def launch(bench, ranks, command, seconds, provider, spawns=False, named_by="FI_PROVIDER", **settings):
    """Runs a command on so many ranks, with the proof that each used the library, and those that it spawns. The variable
    `named_by` names the provider: Intel MPI's own has it ask the one for all that the first of all providers has."""
    witness = Witness(bench)
    environment = bench.environment(**witness.environment, **SETTINGS | settings, I_MPI_ROOT=str(venv),
                                    TMPDIR=str(bench.scratch), **{named_by: provider})
    said = bench.succeed([venv / "bin" / "mpiexec", "-n", str(ranks), *command], seconds, environment)
    # The lines of processes may run into each other.
    if (taken := set(re.findall(r"libfabric provider: (\S+)", said))) != {provider}:
        raise Failed(f"Intel MPI took {sorted(taken)} instead of {provider}")
    witness.require(command[0].name, ranks, or_more=spawns)
    return said


def suite_run(modules, ranks, provider):
    """A case: these modules of mpi4py's tests; all of them if none are given."""

    def body(bench):
        patterns = SKIPPED + (NO_DYNAMIC_WINDOWS if provider != "tcp" else ())
        skipped = [word for pattern in patterns for word in ("-x", pattern)]
        chosen = ["-i", rf"^test_({'|'.join(modules)})\.py$"] if modules else []
        command = [venv / "bin" / "python3", suite / "main.py", *chosen, *skipped]
        # Processes that tests spawn come on top.
        said = launch(bench, ranks, command, 1200, provider, spawns=True)
        ran = [int(count) for count in re.findall(r"Ran (\d+) tests? in", said)]
        if len(ran) != ranks or not all(ran) or "FAILED" in said:
            raise Failed(f"tests run on each rank: {ran}; not all of them passed")

    return body


def own(name, ranks, arguments, provider, **settings):
    """A case: one of our programs."""

    def body(bench):
        command = [bench.scratch / f"{name}-intelmpi", *arguments]
        openmpi.said_right(launch(bench, ranks, command, 600, provider, **settings))

    return body
