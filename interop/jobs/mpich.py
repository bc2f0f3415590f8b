"""MPICH 5 from PyPI, whose device ch4 speaks to OFI, with the tests of mpi4py."""

import re

from rig import peers, process
from rig.case import Case, Failed, succeeded
from rig.library import Library, Witness
from rig.peers import HERE

NAME = "mpich"

SETTINGS = {
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    # Between processes of one machine too.
    "MPIR_CVAR_NOLOCAL": "1",
    # Says which provider was taken.
    "MPIR_CVAR_DEBUG_SUMMARY": "1",
}
OVER_TCP = SETTINGS | {"FI_PROVIDER": "tcp"}

# The provider for messages in packets, which is taken where its name is asked for.
IN_PACKETS = "tcp;ofi_rxm"

# Tests that fail on the C library as well, on tcp and on shm.
SKIPPED = (
    # MPICH probes and receives from any rank in two steps, and takes its own messages from elsewhere than those of others:
    # a graph of which a rank is its own neighbour gets edges twice, or the two steps wait for each other.
    "test_comm_topo.*.testDistgraphcomm",
    # The wheel knows nothing of Fortran's types.
    "test_mpiabi.*.testGetFortranInfo",
)

# Bytes of an allreduce.
SIZES = (8, 64, 4096, 65536, 1 << 20, 16 << 20)

P2P = ("p2p_buf", "p2p_buf_matched", "p2p_buf_part", "p2p_obj", "p2p_obj_matched", "msgspec", "util_pkl5")
COLLECTIVE = ("cco_buf", "cco_buf_inter", "cco_nb_buf", "cco_nb_vec", "cco_ngh_buf", "cco_ngh_obj", "cco_obj",
              "cco_obj_inter", "cco_pr_buf", "cco_pr_ngh_buf", "cco_pr_vec", "cco_vec", "cco_vec_inter")
OTHER = ("comm", "comm_topo", "request", "threads", "rma", "rma_nb")


def cases():
    """mpi4py's tests of messages and collectives on 2 and 3 ranks, and our own programs."""
    found = []
    for ranks in (2, 3):
        found += [Case(f"{NAME}/mpi4py/{module}/{ranks}", tests(module, ranks)) for module in P2P + COLLECTIVE]
        found += [Case(f"{NAME}/mpi4py/{module}/{ranks}", tests(module, ranks), full=True) for module in OTHER]
        found += [Case(f"{NAME}/collectives/{ranks}", own("collectives", ranks, ["16384"])),
                  Case(f"{NAME}/traffic/{ranks}", own("traffic", ranks, ["20", "1048576"])),
                  Case(f"{NAME}/matched-probe/{ranks}", own("traffic", ranks, ["6", "1048576", "matched"]))]
    found += [Case(f"{NAME}/mpi4py/{module}/4", tests(module, 4), full=True) for module in P2P + COLLECTIVE]
    # Some tests spawn processes.
    found += [Case(f"{NAME}/mpi4py/whole/{ranks}", suite_run([], ranks, 1200, spawns=True), full=True) for ranks in (2, 3, 5)]
    found += [Case(f"{NAME}/allreduce/{ranks}", beside(ranks)) for ranks in (3, 4)]
    found += [Case(f"{NAME}/rxm/collectives/4", own("collectives", 4, ["16384"], IN_PACKETS)),
              Case(f"{NAME}/rxm/traffic/4", own("traffic", 4, ["10", "1048576"], IN_PACKETS)),
              Case(f"{NAME}/rxm/mpi4py/rma/3", suite_run(["-i", r"^test_rma\.py$"], 3, 600, IN_PACKETS)),
              Case(f"{NAME}/rxm/mpi4py/whole/3", suite_run([], 3, 1200, IN_PACKETS, spawns=True), full=True)]
    return found


def prepare(bench):
    """Gets MPICH and mpi4py, and compiles our programs for this MPI."""
    global venv, suite
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev")
    venv, suite = peers.python_mpi(bench)
    for name in ("collectives", "traffic", "allreduce"):
        compile_own(bench, name)


def compile_own(bench, name):
    """Compiles one of our programs for this MPI."""
    if not (bench.scratch / f"{name}-mpich").exists():
        compile_for(bench, name, bench.scratch / f"{name}-mpich")


def compile_for(bench, name, product):
    """Compiles one of our programs for this MPI, as this file."""
    # The wheel's compiler wrapper names folders of the machine it was made on.
    peers.compile_c(bench, ["cc"], [HERE / "mpi" / f"{name}.c"], product,
                    f"-I{venv}/include", f"-L{venv}/lib", f"-Wl,-rpath,{venv}/lib", "-lmpi")


def launch(bench, ranks, command, seconds, provider="tcp", spawns=False, beside=(), name=None, **settings):
    """Runs a command on so many ranks, with the proof that each used the library, and those that it spawns."""
    witness = Witness(bench)
    said = plain_launch(bench, ranks, command, seconds, provider, beside, **witness.environment, **settings)
    require_taken(said, provider)
    witness.require(name or command[0].name, ranks, or_more=spawns)
    return said


def plain_launch(bench, ranks, command, seconds, provider="tcp", beside=(), **settings):
    """Runs a command on so many ranks, without any proof but that it succeeded."""
    return succeeded(command[0].name, attempt(bench, ranks, command, seconds, provider, beside, **settings))


def attempt(bench, ranks, command, seconds, provider, beside=(), folder=None, **settings):
    """Runs a command on so many ranks, however it ends; the launcher starts in `folder`."""
    environment = bench.environment(**SETTINGS | settings, FI_PROVIDER=provider, TMPDIR=str(bench.scratch))
    return bench.run([venv / "bin" / "mpiexec", "-n", str(ranks), *command], seconds, environment, beside, folder)


def require_taken(said, provider):
    """MPICH said that it took this provider and no other."""
    # The lines of processes may run into each other.
    if (taken := set(re.findall(r"libfabric provider: (\S+) ", said))) != {provider}:
        raise Failed(f"MPICH took {sorted(taken)} instead of {provider}")


def tests(module, ranks):
    """A case: one module of mpi4py's tests."""
    return suite_run(["-i", rf"^test_{module}\.py$"], ranks, 600)


def suite_run(options, ranks, seconds, provider="tcp", spawns=False, before=(), **settings):
    """A case: mpi4py's tests with these options; without any, all of them.

    They are started by the command that is given before them, with these variables.
    """

    def body(bench):
        skipped = [word for pattern in SKIPPED for word in ("-x", pattern)]
        command = [venv / "bin" / "python3", suite / "main.py", *options, *skipped]
        said = launch(bench, ranks, [*before, *command], seconds, provider, spawns, name=command[0].name, **settings)
        # The ranks' lines may run into each other.
        ran = [int(count) for count in re.findall(r"Ran (\d+) tests? in", said)]
        if len(ran) != ranks or not all(ran) or "FAILED" in said:
            raise Failed(f"tests run on each rank: {ran}; not all of them passed")

    return body


def own(name, ranks, arguments, provider="tcp", before=(), said=None, **settings):
    """A case: one of our programs, which is started by the command that is given before it, with these variables.

    What it prints is added to the list `said`.
    """

    def body(bench):
        command = [bench.scratch / f"{name}-mpich", *arguments]
        text = launch(bench, ranks, [*before, *command], 600, provider, name=command[0].name, **settings)
        if not re.search(r"ranks, .* are right$", text, re.M):
            raise Failed("the program did not reach its end")
        if said is not None:
            said.append(text)

    return body


def allreduce(bench, ranks, pairs, milliseconds, sizes):
    """Times MPI_Allreduce over the C library inside MPICH and fi_allreduce of the one under test, in turns."""
    theirs = Library.find(venv / "lib" / "mpich")
    environment = {**process.clean_environment(), **OVER_TCP, "TMPDIR": str(bench.scratch)}
    command = [venv / "bin" / "mpiexec", "-n", str(ranks), bench.scratch / "allreduce-mpich", bench.library.path,
               str(pairs), str(milliseconds), *map(str, sizes)]
    if theirs is None or theirs.is_at(bench.library.path):
        raise Failed("MPICH does not bring a library of its own")
    said = bench.succeed(command, 600, environment)
    require_taken(said, "tcp")
    if not re.search(r"ranks, all sums are right$", said, re.M):
        raise Failed("the program did not reach its end")
    return re.findall(r"^ *(?:bytes|\d+) .*\(.*\)$", said, re.M)


def beside(ranks):
    """A case: the library's own collectives beside those of the MPI, which are on another library."""

    def body(bench):
        if len(allreduce(bench, ranks, 1, 5, SIZES)) != 1 + len(SIZES):
            raise Failed("the program left sizes out")

    return body
