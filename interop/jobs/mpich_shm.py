"""MPICH 5 over the provider shm: the whole of mpi4py's tests, and our programs."""

from rig.case import Case

from . import mpich

NAME = "mpich-shm"
PROVIDER = "shm"

# For more ranks than CI has time for the whole.
SHORT = ("p2p_buf", "p2p_buf_matched", "p2p_obj", "cco_buf", "cco_vec_inter", "cco_nb_buf", "rma", "util_pkl5")


def cases():
    """The whole suite on 2 ranks and a part of it on 3, or also the whole on 3 and 5; and our own programs."""
    # Some tests spawn processes.
    found = [Case(f"{NAME}/mpi4py/whole/{ranks}", mpich.suite_run([], ranks, 600, PROVIDER, spawns=True), full=ranks > 2)
             for ranks in (2, 3, 5)]
    modules = "|".join(SHORT)
    found.append(Case(f"{NAME}/mpi4py/short/3", mpich.suite_run(["-i", rf"^test_({modules})\.py$"], 3, 600, PROVIDER)))
    for ranks in (2, 3):
        found += [Case(f"{NAME}/collectives/{ranks}", mpich.own("collectives", ranks, ["16384"], PROVIDER)),
                  Case(f"{NAME}/traffic/{ranks}", mpich.own("traffic", ranks, ["20", "1048576"], PROVIDER)),
                  Case(f"{NAME}/matched-probe/{ranks}", mpich.own("traffic", ranks, ["6", "1048576", "matched"], PROVIDER))]
    return found


def prepare(bench):
    """Gets the same as `mpich`."""
    mpich.prepare(bench)
