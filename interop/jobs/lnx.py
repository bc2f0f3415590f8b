"""MPICH 5 and Open MPI 5 over the provider lnx: peers of one machine through shm, and some of them through tcp."""

from pathlib import Path

from rig.case import Case

from . import mpich, openmpi5

NAME = "lnx"
PROVIDER = "lnx"

# What CI has time for.
SHORT = ("p2p_buf", "p2p_buf_matched", "p2p_obj", "cco_buf", "cco_nb_buf", "rma")

# Every second rank has no shm, so that it reaches all others through tcp, and is reached so.
MIXED = (Path("/bin/sh"), "-c", 'FI_LNX_DISABLE_SHM=$((PMI_RANK % 2)) exec "$@"', "sh")


def cases():
    """A part of mpi4py's tests on 3 ranks, and our own programs; those also where both ways are in use."""
    modules = "|".join(SHORT)
    found = [Case(f"{NAME}/mpich/mpi4py/3", mpich.suite_run(["-i", rf"^test_({modules})\.py$"], 3, 600, PROVIDER)),
             Case(f"{NAME}/openmpi5/mpi4py/3", openmpi5.suite_run(SHORT, 3, PROVIDER))]
    for ranks in (2, 9):
        traffic = ["20", "1048576"]
        found += [Case(f"{NAME}/mpich/traffic/{ranks}", mpich.own("traffic", ranks, traffic, PROVIDER)),
                  Case(f"{NAME}/mpich/collectives/{ranks}", mpich.own("collectives", ranks, ["16384"], PROVIDER)),
                  Case(f"{NAME}/openmpi5/traffic/{ranks}", openmpi5.own("traffic", ranks, traffic, PROVIDER)),
                  Case(f"{NAME}/openmpi5/collectives/{ranks}", openmpi5.own("collectives", ranks, ["1024"], PROVIDER))]
    for ranks in (3, 9):
        found += [Case(f"{NAME}/mixed/{what}/{ranks}", mpich.own(what, ranks, arguments, PROVIDER, MIXED))
                  for what, arguments in (("traffic", ["20", "1048576"]), ("collectives", ["16384"]))]
    return found


def prepare(bench):
    """Gets the same as `mpich` and `openmpi5`."""
    mpich.prepare(bench)
    openmpi5.prepare(bench)
