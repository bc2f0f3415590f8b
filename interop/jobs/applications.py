"""Applications of Debian on its Open MPI 4.1, over the MTL `ofi`: LAMMPS, NWChem, the tests of ScaLAPACK, coarrays."""

import re
import shutil
from pathlib import Path

from rig import peers
from rig.case import Case, Failed, Missing
from rig.peers import HERE

from . import openmpi

NAME = "applications"
PROVIDERS = ("tcp", "lnx")

# Open MPI's own transports, for what is compared.
OWN = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader"}

LAMMPS = Path("/usr/share/lammps/examples/peptide")
SCALAPACK = Path("/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests")
SCALAPACK_INPUT = Path("/usr/share/scalapack")

# Solvers of linear equations and eigenvalues; then one of each kind. `xdsep` is none of them: over Open MPI's own
# transports as well, its eigenvectors for 27 rows on 3 processes often miss its bound.
SHORT = ("xdlu", "xzgsep")
LONG = ("xcbrd", "xddblu", "xddtlu", "xzheevr", "xshrd", "xdinv", "xzllt", "xcls", "xdnep", "xspbllt",
        "xdptllt", "xzqr", "xdsyevr", "xztrd", "xzevc")

WATER = """start water
geometry units angstrom
 O 0 0 0.1173
 H 0 0.7572 -0.4692
 H 0 -0.7572 -0.4692
end
basis
 * library 6-31g
end
scf
 thresh 1e-8
end
task scf optimize
"""


def cases():
    """LAMMPS and NWChem end as over Open MPI's own transports, and each test of ScaLAPACK passes its own checks."""
    found = []
    for provider in PROVIDERS:
        for ranks in (4, 9):
            found += [Case(f"{NAME}/lammps/{provider}/{ranks}", lammps(provider, ranks), full=ranks > 4),
                      Case(f"{NAME}/coarrays/{provider}/{ranks}", coarrays(provider, ranks))]
        found += [Case(f"{NAME}/nwchem/{provider}/4", nwchem(provider, 4), full=True)]
        for full, programs in ((False, SHORT), (True, LONG)):
            found += [Case(f"{NAME}/scalapack/{program}/{provider}/{ranks}", scalapack(program, provider, ranks), full=full)
                      for program in programs for ranks in ((4, 9) if full else (4,))]
    return found


def prepare(bench):
    peers.packages(bench, "openmpi-bin", "lammps", "lammps-examples", "nwchem-openmpi", "scalapack-mpi-test", "gfortran",
                   "libcoarrays-openmpi-dev")
    compiler = ["caf", "-std=f2018", "-O2", "-g", HERE / "mpi" / "coarrays.f90", "-o", bench.scratch / "coarrays"]
    bench.succeed(compiler, 600, peers.clean_environment())


def own(bench, ranks, command, folder):
    """Runs a program on so many ranks without the library."""
    environment = bench.environment(**OWN, **openmpi.HERE_ONLY, OMP_NUM_THREADS="1", TMPDIR=str(bench.scratch))
    return bench.succeed(["mpirun", "-n", str(ranks), "--wdir", folder, *command], 600, environment)


def lammps(provider, ranks):
    """A case: a peptide in water, 100 steps."""

    def body(bench):
        folder = bench.folder("lammps")
        for name in ("in.peptide", "data.peptide"):
            shutil.copy(LAMMPS / name, folder)
        text, found = re.subn(r"^run\s+\d+", "run 100", (folder / "in.peptide").read_text(encoding="utf-8"), flags=re.M)
        if found != 1:
            raise Missing("the example of LAMMPS has no line `run` (any more)")
        (folder / "in.peptide").write_text(text, encoding="utf-8")

        def arguments(log):
            return ["-in", "in.peptide", "-screen", "none", "-log", log]

        own(bench, ranks, ["lmp", *arguments("log.own")], folder)
        openmpi.launch(bench, ranks, "lmp", arguments("log.ofi"), folder, provider)
        expected, energies = (of_steps((folder / name).read_text(encoding="utf-8")) for name in ("log.own", "log.ofi"))
        if len(expected) < 15 or energies != expected:
            raise Failed(f"the steps are {energies}, and {expected} over Open MPI's own transports")

    return body


def of_steps(log):
    """What LAMMPS prints of each step but the time it took."""
    return re.findall(r"^(?:-+ Step +\d+|\w+ += .*)", log, re.M)


def nwchem(provider, ranks):
    """A case: the geometry of a molecule of water, which Global Arrays keeps."""

    def body(bench):
        folder = bench.folder("nwchem")
        (folder / "water.nw").write_text(WATER, encoding="utf-8")
        expected = energy(own(bench, ranks, ["nwchem.openmpi", "water.nw"], folder))
        found = energy(openmpi.launch(bench, ranks, "nwchem.openmpi", ["water.nw"], folder, provider))
        if abs(found - expected) > 1e-7:
            raise Failed(f"the energy is {found}, and {expected} over Open MPI's own transports")

    return body


def energy(said):
    """The last total energy."""
    found = re.findall(r"Total SCF energy = *(-\d+\.\d+)", said)
    if not found:
        raise Failed("no energy was found")
    return float(found[-1])


def coarrays(provider, ranks):
    """A case: our program of coarrays, which uses windows."""

    def body(bench):
        said = openmpi.launch(bench, ranks, bench.scratch / "coarrays", provider=provider)
        if not re.search(rf"coarrays: +{ranks} images are right", said):
            raise Failed("the program did not reach its end")

    return body


def scalapack(program, provider, ranks):
    """A case: one of the tests, which check their results."""

    def body(bench):
        folder = bench.folder("scalapack")
        for path in SCALAPACK_INPUT.glob("*.dat"):
            shutil.copy(path, folder)
        said = openmpi.launch(bench, ranks, SCALAPACK / program, (), folder, provider)
        counts = {end: int(count) for count, end in re.findall(r"^ *(\d+) tests completed and (passed|failed)", said, re.M)}
        if not counts.get("passed") or counts.get("failed") != 0:
            raise Failed(f"its checks: {counts}")

    return body
