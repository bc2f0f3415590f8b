"""Programs that ask for what consumers ask that are in no registry, and exchange as they do."""

import re

from rig import peers
from rig.case import Case, Failed, Missing
from rig.library import Witness
from rig.peers import HERE

NAME = "stand-ins"

# The providers each of them can take. NIXL and NCCL's plugin require FI_REMOTE_COMM, which shm does not have.
CONSUMERS = {"nixl": ("tcp",), "nccl": ("tcp",), "oneccl": ("tcp", "shm", "tcp,shm"),
             "mercury": ("tcp", "tcp;ofi_rxm", "shm")}

# Seconds of a case with so many processes, and of its longer form.
SHORT, LONG = {2: 1, 4: 3}, 60


def cases():
    """standins/NAME.c tells what each of them does."""
    found = []
    for consumer, providers in CONSUMERS.items():
        for provider in providers:
            for count, seconds in SHORT.items():
                way = provider.replace(',', '+').replace('tcp;ofi_', '')
                name = f"{NAME}/{consumer}/{way}/{count}"
                found.append(Case(name, stand_in(consumer, provider, count, seconds)))
                found.append(Case(f"{name}-long", stand_in(consumer, provider, count, LONG), full=True))
    return found


def prepare(bench):
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev")
    for consumer in CONSUMERS:
        # oneCCL opens the library itself.
        library = "-ldl" if consumer == "oneccl" else "-lfabric"
        peers.compile_c(bench, ["cc"], [HERE / "standins" / "frame.c", HERE / "standins" / f"{consumer}.c"],
                        bench.scratch / consumer, library, "-lpthread")


def stand_in(consumer, provider, count, seconds):
    """A case: all its processes end, and each has checked something."""

    def body(bench):
        witness = Witness(bench)
        # oneCCL sets this itself, before it opens the library.
        environment = bench.environment(**witness.environment) | {"FI_PROVIDER": provider}
        done = bench.run([bench.scratch / consumer, "-p", provider, "-n", count, "-t", seconds], seconds + 90, environment)
        if skipped := re.search(r"^SKIP (.*)", done.output, re.M):
            raise Missing(skipped[1])
        said = re.search(r"^\w+: (\d+) processes, (\d+) checked, (\d+) bytes$", done.output, re.M)
        if not done.success or not said:
            raise Failed(f"{done.ending}{done.telling_line()}")
        if int(said[1]) != count or int(said[2]) < count:
            raise Failed(said[0])
        witness.require(consumer, 1)

    return body
