"""MPICH 5 over the provider shm: the whole of mpi4py's tests, and our programs; and every way of long payloads."""

import re

from rig import peers
from rig.case import Case, Failed
from rig.peers import HERE

from . import mpich

NAME = "mpich-shm"
PROVIDER = "shm"

# For more ranks than CI has time for the whole.
SHORT = ("p2p_buf", "p2p_buf_matched", "p2p_obj", "cco_buf", "cco_vec_inter", "cco_nb_buf", "rma", "util_pkl5")


# Tests whose long messages, reads and writes go the way that a case is about.
COPYING = ("p2p_buf", "cco_buf", "rma")

# Processes that may not reach the memory of others: all of them, or every second one.
FORBIDDEN = ("all", "odd")


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
    for way in ("ring", "attach"):
        found += on_a_way(f"copy/{way}", FI_SHM_COPY=way)
    for which in FORBIDDEN:
        # Also where --env asks for one way: refused attach is what these cases are about.
        found += on_a_way(f"no-attach/{which}", which, FI_SHM_COPY="auto")
    return found


def on_a_way(name, forbidden=None, **settings):
    """Traffic of our own and mpi4py's tests where long payloads go one way, or some processes are refused the other."""
    modules = "|".join(COPYING)
    options = ["-i", rf"^test_({modules})\.py$"]

    def traffic(bench):
        said = []
        mpich.own("traffic", 3, ["20", "1048576"], PROVIDER, before(bench), said=said, FI_LOG_LEVEL="info", **settings)(bench)
        require_way(said[0], settings.get("FI_SHM_COPY"), forbidden)

    def suite(bench):
        mpich.suite_run(options, 2, 600, PROVIDER, before=before(bench), **settings)(bench)

    def before(bench):
        return [bench.scratch / "no-attach", forbidden] if forbidden else []

    return [Case(f"{NAME}/{name}/traffic/3", traffic), Case(f"{NAME}/{name}/mpi4py/2", suite)]


def require_way(said, way, forbidden):
    """By what each process says at its end, payloads went the way they should, and who was refused says why."""
    # The line of a domain; those of connections do not speak of mapped regions.
    domain = r"(\d+) \(\d+ bytes\) were copied by cross-memory attach, \d+ of them by both sides, \d+ \(\d+ bytes\) in mapped"
    attached = [int(count) for count in re.findall(domain, said)]
    refused = len(re.findall(r"Cross-memory attach needs", said))
    # Rank 1 is the only odd one of three.
    expected = {"all": (0, 3), "odd": (2, 1)}.get(forbidden, ({"ring": 0, "attach": 3}.get(way), 0))
    found = (sum(count > 0 for count in attached), refused)
    if len(attached) != 3 or found != expected:
        raise Failed(f"(processes that copied by attach, processes that were refused): {found} of {len(attached)}, "
                     f"not {expected} of 3")


def prepare(bench):
    """Gets the same as `mpich`, and compiles what forbids attach."""
    mpich.prepare(bench)
    peers.compile_c(bench, ["cc"], [HERE / "mpi" / "no-attach.c"], bench.scratch / "no-attach")
