"""One-sided operations of MPI on the library's own reads, writes and atomics: Open MPI 4.1 and MPICH 5."""

import re

from rig import peers
from rig.case import Case, Failed
from rig.counts import Counts, compile_counter
from rig.library import Witness
from rig.peers import HERE

from . import mpich, openmpi

NAME = "onesided"
MODULES = ("rma", "rma_nb", "win")
RANKS = (2, 3)

# Messages go through the MTL. What is one-sided has no way but the BTL `ofi`: `self` reaches the own process only.
OVER_BTL = openmpi.ONLY_OFI | openmpi.HERE_ONLY | {
    "OMPI_MCA_osc": "rdma",
    "OMPI_MCA_btl": "self,ofi",
    "OMPI_MCA_btl_base_verbose": "100",
    "OMPI_MCA_plm": "rsh",
}
# The BTL of 4.1 has sums, swaps and compare-and-swap only, and ends the process when `osc/rdma` asks it for another
# operation, which it does unless it is told to build all of them on compare-and-swap.
BY_SWAPPING = {"OMPI_MCA_osc_rdma_acc_use_amo": "0"}


def cases():
    """mpi4py's own tests of windows, and our program, on 2 and 3 ranks."""
    found = []
    for ranks in RANKS:
        found += [Case(f"{NAME}/openmpi/mpi4py/{module}/{ranks}", openmpi_tests(module, ranks)) for module in MODULES]
        found += [Case(f"{NAME}/openmpi/program/{ranks}", openmpi_program(ranks, {})),
                  Case(f"{NAME}/openmpi/program-swapping/{ranks}", openmpi_program(ranks, BY_SWAPPING))]
        found += [Case(f"{NAME}/mpich/mpi4py/{module}/{ranks}", mpich_tests(module, ranks)) for module in MODULES]
        found += [Case(f"{NAME}/mpich/program/{ranks}", mpich_program(ranks))]
    return found


def prepare(bench):
    """Gets both MPIs with mpi4py, and compiles our program and what is preloaded."""
    global counter, host, network, mpich_venv, openmpi_venv, suite
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev", "openmpi-bin", "libopenmpi-dev")
    mpich_venv, suite = peers.python_mpi(bench)
    openmpi_venv = peers.python_openmpi(bench)
    of_mpich = (f"-I{mpich_venv}/include", f"-L{mpich_venv}/lib", f"-Wl,-rpath,{mpich_venv}/lib", "-lmpi")
    shared = ("-shared", "-fPIC")
    counter = compile_counter(bench)
    host = peers.compile_c(bench, ["cc"], [HERE / "mpi" / "host.c"], bench.scratch / "host.so", *shared)
    network = peers.compile_c(bench, ["cc"], [HERE / "mpi" / "network.c"], bench.scratch / "network.so", *shared, *of_mpich)
    program = HERE / "mpi" / "onesided.c"
    peers.compile_c(bench, ["mpicc"], [program], bench.scratch / "onesided-openmpi")
    peers.compile_c(bench, ["cc"], [program], bench.scratch / "onesided-mpich", *of_mpich)


def on_openmpi(bench, ranks, command, more, kinds):
    """Runs a command of Open MPI, each rank on a machine of its own as far as it can tell."""
    witness, counts = Witness(bench), Counts(bench)
    preload = {"LD_PRELOAD": f"{host}:{counter}"}
    # On one machine osc/rdma would use the memory that the ranks share.
    environment = bench.environment(**witness.environment, **counts.environment, **OVER_BTL, **more,
                                    INTEROP_PRELOAD=str(host), OMPI_MCA_plm_rsh_agent=str(HERE / "mpi" / "on-host"),
                                    TMPDIR=str(bench.scratch))
    names = ",".join(f"host{n}" for n in range(ranks))
    passed = ("LD_LIBRARY_PATH", *witness.environment, *counts.environment)
    options = [word for name in passed for word in ("-x", name)]
    options += [word for name, value in preload.items() for word in ("-x", f"{name}={value}")]
    said = bench.succeed(["mpirun", "-n", str(ranks), "--host", names, *options, *command], 600, environment)
    if len(re.findall(r"init of component ofi returned success", said)) < ranks:
        raise Failed(f"the BTL ofi did not open on each of {ranks} ranks")
    witness.require(command[0].name, ranks)
    counts.require(ranks, kinds)
    return said


def on_mpich(bench, ranks, command, kinds):
    """Runs a command of MPICH, whose windows are not to share memory."""
    witness, counts = Witness(bench), Counts(bench)
    environment = bench.environment(**witness.environment, **counts.environment, **mpich.OVER_TCP,
                                    TMPDIR=str(bench.scratch))
    preload = ["-genv", "LD_PRELOAD", f"{counter}:{network}"]
    said = bench.succeed([mpich_venv / "bin" / "mpiexec", *preload, "-n", str(ranks), *command], 600, environment)
    mpich.require_taken(said, "tcp")
    witness.require(command[0].name, ranks)
    counts.require(ranks, kinds)
    return said


def kinds_of(module):
    """What a module of mpi4py's tests is to use: `win` only makes windows."""
    return ("reads", "writes", "compares") if module == "rma" else ("reads", "writes") if module == "rma_nb" else ()


def passed(said, ranks):
    """All tests of a module ran on each rank."""
    # The ranks' lines may run into each other.
    ran = [int(count) for count in re.findall(r"Ran (\d+) tests? in", said)]
    if len(ran) != ranks or not all(ran) or "FAILED" in said:
        raise Failed(f"tests run on each rank: {ran}; not all of them passed")


def openmpi_tests(module, ranks):
    """A case: the tests of windows of all ranks. Those of one rank do not reach the library, and end 4.1's process."""

    def body(bench):
        command = [openmpi_venv / "bin" / "python3", suite / "main.py", "-k", "World", "-i", rf"^test_{module}\.py$"]
        passed(on_openmpi(bench, ranks, command, BY_SWAPPING, kinds_of(module)), ranks)

    return body


def mpich_tests(module, ranks):
    """A case: one module of mpi4py's tests."""

    def body(bench):
        command = [mpich_venv / "bin" / "python3", suite / "main.py", "-i", rf"^test_{module}\.py$"]
        kinds = kinds_of(module) + (("atomics", "fetches") if module == "rma" else ())
        passed(on_mpich(bench, ranks, command, kinds), ranks)

    return body


def said_right(said):
    if not re.search(r"^onesided: \d+ ranks, .* are right$", said, re.M):
        raise Failed("the program did not reach its end")


def openmpi_program(ranks, more):
    def body(bench):
        said_right(on_openmpi(bench, ranks, [bench.scratch / "onesided-openmpi"], more,
                              ("reads", "writes", "atomics", "fetches", "compares")))

    return body


def mpich_program(ranks):
    def body(bench):
        said_right(on_mpich(bench, ranks, [bench.scratch / "onesided-mpich"],
                            ("reads", "writes", "atomics", "fetches", "compares")))

    return body
