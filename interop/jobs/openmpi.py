"""Debian's Open MPI 4.1, whose matching layer `cm` speaks to OFI through the MTL `ofi`."""

import re
from pathlib import Path

from rig import peers
from rig.case import Case, Failed, Missing
from rig.library import Witness
from rig.peers import HERE

NAME = "openmpi"

# Nothing but OFI's tcp: without it these runs end with an error, they do not go another way.
def only_ofi(provider):
    """Settings with which all messages go by the MTL and this provider, and Open MPI says so."""
    return ONLY_OFI | {"OMPI_MCA_mtl_ofi_provider_include": provider,
                       "OMPI_MCA_opal_common_ofi_provider_include": provider}


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

# Messages of a case that has many at once, and of its longer form.
MANY, LARGE = 5_000, 100_000


def cases():
    """NetPIPE, HPCC, and our programs of collectives and random traffic, on 2 and 4 ranks."""
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
        found += [Case(f"{NAME}/hpcc/{ranks}", hpcc(ranks, 200)),
                  Case(f"{NAME}/hpcc-long/{ranks}", hpcc(ranks, 2000), full=True)]
    found += many_cases(NAME, lambda name, ranks, arguments: program(name, ranks, arguments, said_right))
    return found


def many_cases(job, own):
    """Many receives that wait for messages, and many messages of one rank, or of eight, that wait for receives."""
    found = []
    for how in ("posted", "unexpected", "backwards"):
        for ranks in (2, 9):
            found += [Case(f"{job}/many/{how}/{ranks}", own("many", ranks, [how, str(MANY // (ranks - 1))])),
                      Case(f"{job}/many/{how}/{ranks}-long", own("many", ranks, [how, str(LARGE)]), full=True)]
    return found


def prepare(bench):
    peers.packages(bench, "gcc", "libc6-dev", "openmpi-bin", "libopenmpi-dev", "netpipe-openmpi", "hpcc")
    for name in ("collectives", "traffic", "many"):
        peers.compile_c(bench, ["mpicc"], [HERE / "mpi" / f"{name}.c"], bench.scratch / name)


def program(name, ranks, arguments, worked):
    """A case: a program on so many ranks, and the proof that each rank used the library."""

    def body(bench):
        worked(launch(bench, ranks, name if name == "NPopenmpi" else bench.scratch / name, arguments))

    return body


def launch(bench, ranks, path, arguments=(), folder=None, provider="tcp"):
    """Runs a program on so many ranks, with the proof that each used the library over this provider."""
    witness = Witness(bench)
    environment = bench.environment(**witness.environment, **only_ofi(provider), **HERE_ONLY, OMP_NUM_THREADS="1",
                                    TMPDIR=str(bench.scratch))
    command = ["mpirun", "-n", str(ranks), "--wdir", folder or bench.scratch, path, *arguments]
    said = bench.succeed(command, 600, environment)
    require_taken(said, ranks, provider=provider)
    witness.require(Path(path).name, ranks)
    return said


def require_taken(said, ranks, word="prov", provider="tcp"):
    """Each rank said that its MTL took this provider, after this word."""
    taken = re.findall(rf"mtl:ofi:{word}: (\S+)", said)
    if len(taken) < ranks or set(taken) != {provider}:
        raise Failed(f"the MTL took {sorted(set(taken))} instead of {provider} on each of {ranks} ranks")


def said_right(said):
    if not re.search(r"^(collectives|traffic|many): \d+ ranks, .* are right$", said, re.M):
        raise Failed("the program did not reach its end")


def netpipe_worked(said):
    """It reported each of its sizes, and found no fault."""
    sizes = re.findall(r"^ *\d+: +(\d+) bytes .*-->", said, re.M)
    if len(sizes) < 20:
        raise Failed(f"only {len(sizes)} sizes were reported")
    if re.search(r"integrity check failed", said, re.I):
        raise Failed("the integrity check failed")


def hpcc(ranks, size):
    """A case: the HPC Challenge, whose matrices are of this size."""

    def body(bench):
        folder = bench.folder("hpcc")
        sample = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text(encoding="utf-8")
        for what, value in (("Ns", size), ("Ps", ranks // 2), ("Qs", 2)):
            sample, found = re.subn(rf"^\d+( +{what})$", rf"{value}\1", sample, flags=re.M)
            if found != 1:
                raise Missing(f"the sample input of hpcc has no line {what} (any more)")
        (folder / "hpccinf.txt").write_text(sample, encoding="utf-8")
        launch(bench, ranks, "hpcc", folder=folder)
        hpcc_worked((folder / "hpccoutf.txt").read_text(encoding="utf-8"))

    return body


def hpcc_worked(report):
    """Each of its parts with a check says that it passed, or counts no errors, and it came to its end."""
    if "End of HPC Challenge tests." not in report or not re.search(r"^Success=1$", report, re.M):
        raise Failed("it did not come to its end")
    if failed := re.findall(r"^.*FAILED.*$", report, re.M):
        raise Failed(f"{len(failed)} checks failed: {failed[0].strip()}")
    # PTRANS, several times, and HPL.
    if (passed := len(re.findall(r" PASSED\b", report))) < 2:
        raise Failed(f"only {passed} checks passed")
    errors = re.findall(r"^(MPIRandomAccess\w*_Errors)=(\d+)$", report, re.M)
    if len(errors) != 2 or any(int(count) for _, count in errors):
        raise Failed(f"random access: {errors}")
