"""The proof that a program used the library's own one-sided operations, and not something built on messages."""

from . import peers
from .case import Failed
from .peers import HERE

KINDS = ("reads", "writes", "atomics", "fetches", "compares")


def compile_counter(bench):
    """The object to preload."""
    return peers.compile_c(bench, ["cc"], [HERE / "mpi" / "counted.c"], bench.scratch / "counted.so", "-shared", "-fPIC")


class Counts:
    """Has each process write down how many operations of each kind it started."""

    def __init__(self, bench):
        self.folder = bench.folder("counts")

    @property
    def environment(self):
        return {"INTEROP_COUNTS": str(self.folder)}

    def require(self, ranks, kinds):
        """Each of so many processes left its counts, and together they used each of these kinds."""
        found = [dict(line.split() for line in path.read_text(encoding="utf-8").splitlines())
                 for path in self.folder.iterdir()]
        if len(found) != ranks:
            raise Failed(f"{len(found)} processes counted what they did, not {ranks}")
        total = {kind: sum(int(counts[kind]) for counts in found) for kind in KINDS}
        if unused := [kind for kind in kinds if not total[kind]]:
            raise Failed(f"nobody used {', '.join(unused)} of the library: {total}")
