"""Our provider in C libraries: Debian's libfabric 1.17, and 2.5 (inside PyPI's mpich), whose lnx composes it."""

import re

from rig import peers, process
from rig.case import Case, Failed, Missing
from rig.library import Library
from rig.peers import HERE

from . import debian_tools

NAME = "external"

PROVIDER = "ripstop_tcp"
OBJECT = "libripstop-fi.so"


def cases():
    """Debian's tools find it and use it; two processes exchange every size over lnx with C's shm and over it alone."""
    found = [Case(f"{NAME}/fi_info", info)]
    pings = [("msg", ["-e", "msg"]), ("rdm", ["-e", "rdm"]), ("rdm-tagged", ["-e", "rdm", "-m", "tagged"])]
    found += [Case(f"{NAME}/fi_pingpong/{name}", pingpong(flags)) for name, flags in pings]
    found += [Case(f"{NAME}/lnx/{name}", composed(alone)) for name, alone in (("with-shm", False), ("alone", True))]
    return found


def prepare(bench):
    """Finds the libraries, and compiles external/composed.c."""
    global theirs, folder
    folder = bench.library.path.parent / "libfabric"
    if not (folder / OBJECT).is_file():
        raise Missing(f"there is no {OBJECT} in {folder}")
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev", "libfabric-bin")
    home, _ = peers.python_mpi(bench)
    theirs = Library.find(home / "lib" / "mpich")
    theirs.stage(bench.scratch / "of-mpich")
    peers.compile_c(bench, ["cc"], [HERE / "external" / "composed.c"], bench.scratch / "composed",
                    "-lfabric")


class Witness:
    """Has the dynamic linker write down what each process loads."""

    def __init__(self, bench):
        self.folder = bench.folder("witness")

    @property
    def environment(self):
        return {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(self.folder / "of"), "FI_PROVIDER_PATH": str(folder)}

    def require(self, count, library=None):
        """So many processes loaded our provider, and the library or else none of ours."""
        proven = 0
        for record in self.folder.iterdir():
            text = record.read_text(errors="replace")
            loaded = set(re.findall(r"calling init: (\S*/libfabric\.so\S*)", text))
            if library and loaded and not all(library.is_at(path) for path in loaded):
                raise Failed(f"{sorted(loaded)} was loaded instead of {library.path}")
            if loaded and str(folder / OBJECT) in re.findall(r"calling init: (\S+)", text):
                proven += 1
        if proven != count:
            raise Failed(f"{proven} processes loaded {OBJECT}, not {count}")


def info(bench):
    witness = Witness(bench)
    done = bench.run(["fi_info", "-p", PROVIDER, "-t", "FI_EP_RDM"], 120,
                     process.clean_environment() | witness.environment)
    witness.require(1)
    named = re.findall(r"^provider: (\S+)$", done.output, re.M)
    if not done.success or not named or set(named) != {PROVIDER}:
        raise Failed(f"fi_info names {sorted(set(named))}: {done.ending}{done.telling_line()}")
    if "FI_PROTO_XNET" not in done.output:
        raise Failed("no entry speaks FI_PROTO_XNET")


def pingpong(flags):
    """A case: server and client of Debian's fi_pingpong, every size, data verified by both."""

    def body(bench):
        witness = Witness(bench)
        environment = process.clean_environment() | witness.environment
        debian_tools.ping(bench, PROVIDER, "127.0.0.1", flags, 10, environment)
        witness.require(2)

    return body


def composed(alone):
    """A case: two processes over lnx; with `alone`, everything goes over our provider."""

    def body(bench):
        witness = Witness(bench)
        environment = bench.environment(theirs, **witness.environment, FI_LNX_PROV_LINKS=f"shm+{PROVIDER}:lo",
                                        FI_LNX_DISABLE_SHM=str(int(alone)))
        said = bench.succeed([bench.scratch / "composed"], 600, environment)
        witness.require(1, theirs)
        if len(re.findall(r"^rank [01]: \d+ messages are right$", said, re.M)) != 2:
            raise Failed("the processes did not reach their end")

    return body
