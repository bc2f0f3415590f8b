"""Writes that are reported as durable, to a process that is killed."""

import re

from rig import peers
from rig.case import Case, Failed, Missing
from rig.library import Witness
from rig.peers import HERE

NAME = "durable"

# How the run goes, and how many writes of it are refused while the target lives.
MODES = {"commit": lambda refused: refused == 0, "failing": lambda refused: refused > 0,
         "delivery": lambda refused: refused == 0}


def cases():
    """durable/crash.c tells what each of them proves."""
    return [Case(f"{NAME}/{mode}", crash(mode, 40)) for mode in MODES] + \
        [Case(f"{NAME}/{mode}-long", crash(mode, 1000), full=True) for mode in MODES]


def prepare(bench):
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev")
    peers.compile_c(bench, ["cc"], [HERE / "durable" / "crash.c"], bench.scratch / "crash", "-lfabric")


def crash(mode, rounds):
    """A case: so many targets are killed."""

    def body(bench):
        witness, folder = Witness(bench), bench.folder("files")
        done = bench.run([bench.scratch / "crash", folder, str(rounds), str(rounds), mode], 600,
                         bench.environment(**witness.environment))
        if skipped := re.search(r"^SKIP (.*)", done.output, re.M):
            raise Missing(skipped[1])
        if not done.success:
            raise Failed(f"crash: {done.ending}{done.telling_line()}")
        said = re.search(r"^crash: (\d+) rounds, (\d+) cut short; \d+ writes, (\d+) acknowledged, (\d+) refused$",
                         done.output, re.M)
        if not said:
            raise Failed("the program did not reach its end")
        played, cut_short, acknowledged, refused = map(int, said.groups())
        if played != rounds or not cut_short or not acknowledged or not MODES[mode](refused):
            raise Failed(said[0])
        witness.require("crash", 1)

    return body
