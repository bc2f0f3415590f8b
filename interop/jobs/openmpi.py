"""Debian's Open MPI 4.1, whose matching layer `cm` speaks to OFI through the MTL `ofi`."""

import re

from rig import peers
from rig.case import Case, Failed
from rig.library import Witness
from rig.peers import HERE

NAME = "openmpi"

# Nothing but OFI's tcp: without it these runs end with an error, they do not go another way.
ONLY_OFI = {
    "OMPI_MCA_pml": "cm",
    "OMPI_MCA_mtl": "ofi",
    "OMPI_MCA_mtl_ofi_provider_include": "tcp",
    # Open MPI leaves tcp out by default.
    "OMPI_MCA_opal_common_ofi_provider_include": "tcp",
    # They say which component and which provider were taken.
    "OMPI_MCA_mtl_base_verbose": "100",
    "OMPI_MCA_opal_common_ofi_verbose": "100",
}
# More ranks than cores, without ssh, and without disturbing others on the machine.
HERE_ONLY = {
    "OMPI_MCA_plm": "isolated",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def cases():
    """NetPIPE, and our programs of collectives and random traffic, on 2 and 4 ranks."""
    netpipe = [("latency", ["-n", "100", "-u", "4096"], False), ("integrity", ["-i", "-n", "40", "-u", "4194304"], False),
               ("both-ways", ["-2", "-a", "-n", "10", "-u", "4194304"], False),
               ("any-source", ["-z", "-n", "10", "-u", "1048576"], False), ("whole", ["-u", "8388608"], True)]
    found = [Case(f"{NAME}/netpipe/{name}", program("NPopenmpi", 2, [*flags, "-o", "/dev/null"], netpipe_worked), full)
             for name, flags, full in netpipe]
    for ranks in (2, 4):
        found += [
            Case(f"{NAME}/collectives/{ranks}", program("collectives", ranks, ["16384"], said_right)),
            Case(f"{NAME}/traffic/{ranks}", program("traffic", ranks, ["20", "1048576"], said_right)),
            Case(f"{NAME}/matched-probe/{ranks}", program("traffic", ranks, ["6", "1048576", "matched"], said_right)),
            Case(f"{NAME}/collectives-long/{ranks}", program("collectives", ranks, ["1048576"], said_right), full=True),
            Case(f"{NAME}/traffic-long/{ranks}", program("traffic", ranks, ["400", "8388608"], said_right), full=True),
        ]
    return found


def prepare(bench):
    peers.packages(bench, "gcc", "libc6-dev", "openmpi-bin", "libopenmpi-dev", "netpipe-openmpi")
    for name in ("collectives", "traffic"):
        peers.compile_c(bench, ["mpicc"], [HERE / "mpi" / f"{name}.c"], bench.scratch / name)


def program(name, ranks, arguments, worked):
    """A case: a program on so many ranks, and the proof that each rank used the library."""

    def body(bench):
        witness = Witness(bench)
        path = name if name == "NPopenmpi" else bench.scratch / name
        environment = bench.environment(**witness.environment, **ONLY_OFI, **HERE_ONLY, TMPDIR=str(bench.scratch))
        said = bench.succeed(["mpirun", "-n", str(ranks), path, *arguments], 600, environment)
        worked(said)
        taken = re.findall(r"mtl:ofi:prov: (\S+)", said)
        if len(taken) < ranks or set(taken) != {"tcp"}:
            raise Failed(f"the MTL took {sorted(set(taken))} instead of tcp on each of {ranks} ranks")
        witness.require(name, ranks)

    return body


def said_right(said):
    if not re.search(r"^(collectives|traffic): \d+ ranks, .* are right$", said, re.M):
        raise Failed("the program did not reach its end")


def netpipe_worked(said):
    """It reported each of its sizes, and found no fault."""
    sizes = re.findall(r"^ *\d+: +(\d+) bytes .*-->", said, re.M)
    if len(sizes) < 20:
        raise Failed(f"only {len(sizes)} sizes were reported")
    if re.search(r"integrity check failed", said, re.I):
        raise Failed("the integrity check failed")
