"""Sandia OpenSHMEM with its unit tests over tcp and shm. Somebody has built it: RIPSTOP_SOS names where it is installed."""

from rig import place
from rig.case import Case, Failed
from rig.library import Witness

from . import mpich

NAME = "openshmem"
OUTSIDE = "RIPSTOP_SOS"
OUTSIDE_IS = "an installed Sandia OpenSHMEM 1.5.3, and in its folder `unit` the programs of tests-sos"
PROVIDERS = ("tcp", "shm")
RANKS = (2, 4)

# Seconds of a test.
SECONDS = 180


def cases():
    """One for each program."""
    return [Case(f"{NAME}/{provider}/{ranks}/{path.name}", unit(path, provider, ranks))
            for provider in PROVIDERS for ranks in RANKS for path in units()]


def units():
    home = place.outside(OUTSIDE)
    return sorted(path for path in (home / "unit").iterdir() if path.is_file()) if home and (home / "unit").is_dir() else []


def prepare(bench):
    """The launcher is MPICH's."""
    mpich.prepare(bench)
    if not units():
        raise Failed(f"{OUTSIDE}={place.outside(OUTSIDE)} has no programs in its folder unit")


def unit(path, provider, ranks):
    """A case: the program ends well, and each of its processes used the library."""

    def body(bench):
        witness = Witness(bench)
        environment = bench.environment(**witness.environment, SHMEM_OFI_PROVIDER=provider, TMPDIR=str(bench.scratch))
        bench.succeed([mpich.venv / "bin" / "mpiexec.hydra", "-n", str(ranks), path], SECONDS, environment)
        witness.require(path.name, ranks)

    return body
