"""NVIDIA's NIXL from PyPI, whose plugin LIBFABRIC writes and reads memory over tcp."""

import re

from rig import peers
from rig.case import Case, Failed
from rig.library import Witness
from rig.peers import HERE

NAME = "nixl"


def cases():
    """Agents in a ring that write, notify and read."""
    sizes = ["1", "4096", "1048576", "67108864"]
    return [Case(f"{NAME}/ring/2", ring(2, ["3", *sizes])), Case(f"{NAME}/ring/5", ring(5, ["3", *sizes[:3]])),
            Case(f"{NAME}/ring/9", ring(9, ["20", *sizes[:3]]), full=True)]


def prepare(bench):
    """Gets NIXL and NVIDIA's runtime, and stands in for their driver."""
    global venv, folder
    peers.packages(bench, "gcc", "libc6-dev", "libhwloc15")
    venv = peers.python_packages(bench, "venv-nixl", peers.NIXL, peers.NUMPY)
    folder = bench.folder("no-driver")
    peers.compile_c(bench, ["cc"], [HERE / "nixl" / "no_driver.c"], folder / "libcuda.so.1", "-shared", "-fPIC")


def ring(processes, arguments):
    """A case: each process has checked all that it was sent and has read."""

    def body(bench):
        witness = Witness(bench)
        place, = (venv / "lib").glob("python3*/site-packages")
        environment = bench.environment(**witness.environment, FI_PROVIDER="tcp",
                                        NIXL_PLUGIN_DIR=str(place / ".nixl_cu12.mesonpy.libs" / "plugins"))
        folders = [environment["LD_LIBRARY_PATH"], folder, place / "nvidia" / "cuda_runtime" / "lib"]
        environment["LD_LIBRARY_PATH"] = ":".join(map(str, folders))
        said = bench.succeed([venv / "bin" / "python3", HERE / "nixl" / "exchange.py", processes, *arguments], 300, environment)
        if not re.search(rf"^nixl: {processes} agents, .* are right$", said, re.M):
            raise Failed("the program did not reach its end")
        witness.require("python3", processes)

    return body
