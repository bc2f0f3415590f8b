"""MPICH 5 with up to 16 processes over tcp and shm: they meet and part, exchange, and have many messages under way."""

import random
import re

from rig import process
from rig.case import Case, Failed

from . import mpich

NAME = "mpich-crowd"
PROVIDERS = ("tcp", "shm")

# Between processes of one machine MPICH takes the library for everything, or memory of its own.
WAYS = {"nolocal": "1", "local": "0"}

# Programs that compute beside a case, as many as there are processors where they matter.
BUSY = 2

# Rounds of a case, and of its longer form.
ROUNDS, LONG = 3, 100

# Messages of a case, and of its longer form.
MANY, LARGE = 5_000, 100_000


def cases():
    """Processes that only meet; collectives of chance; many receives that wait, and many messages that wait."""
    found = []

    def add(name, body, full=False):
        found.append(Case(f"{NAME}/{name}", body, full))

    for provider in PROVIDERS:
        for way in WAYS:
            for ranks in (2, 4, 5, 9, 16):
                for beside in (0, BUSY):
                    name = f"{provider}/meet/{way}/{ranks}{'-busy' if beside else ''}"
                    # Where MPICH has its own way between processes, only its start and its end are left to the library.
                    add(name, meet(provider, way, ranks, beside, ROUNDS), full=way == "local" and ranks not in (4, 16))
                    add(f"{name}-long", meet(provider, way, ranks, beside, LONG), full=True)
        for ranks in (4, 9, 16):
            for beside in (0, BUSY):
                name = f"{provider}/collectives/{ranks}{'-busy' if beside else ''}"
                add(name, collectives(provider, ranks, beside, 1024, 40), full=bool(beside) and ranks < 16)
                add(f"{name}-long", collectives(provider, ranks, beside, 65536, 400), full=True)
        for how in ("posted", "unexpected", "backwards"):
            for ranks in (2, 9):
                # So many of each rank but one.
                add(f"{provider}/many/{how}/{ranks}", many(provider, ranks, how, MANY // (ranks - 1)))
                add(f"{provider}/many/{how}/{ranks}-long", many(provider, ranks, how, LARGE), full=True)
        # More than have an index of one byte, and more than is kept where nobody asked for it.
        add(f"{provider}/many/backwards/2-of-800-KB", many(provider, 2, "backwards", 400, 100_000))
        # More bytes than are kept, in messages that are kept.
        add(f"{provider}/many/backwards/2-of-40-KB", many(provider, 2, "backwards", 5000, 5000))
    return found


def prepare(bench):
    """Gets the same as `mpich`."""
    mpich.prepare(bench)
    for name in ("meet", "many"):
        mpich.compile_own(bench, name)


def meet(provider, way, ranks, beside, rounds):
    """A case: a program that only begins and ends does so, every time."""

    def body(bench):
        with process.busy(beside, bench.scratch) as loops:
            for each in range(rounds):
                # The proof is taken once: it takes time, and the other rounds are as a user has them.
                run = mpich.plain_launch if each else mpich.launch
                said = run(bench, ranks, [bench.scratch / "meet-mpich"], 60 + 10 * ranks, provider, beside=loops,
                           MPIR_CVAR_NOLOCAL=WAYS[way])
                # The lines of processes may run into each other.
                if sorted(map(int, re.findall(rf"met (\d+) of {ranks};", said))) != [*range(ranks)]:
                    raise Failed(f"not every process came to its end in round {each}")

    return body


def collectives(provider, ranks, beside, largest, steps):
    """A case: every kind of collective, in an order and of sizes of chance."""

    def body(bench):
        # The log has it; no other line of the program depends on chance.
        seed = str(random.randrange(1 << 32))
        with process.busy(beside, bench.scratch) as loops:
            own(bench, "collectives", ranks, [str(largest), str(steps), seed], provider, loops)

    return body


def many(provider, ranks, how, count, elements=1):
    """A case: so many messages of each rank wait for rank 0, or so many of its receives for them."""

    def body(bench):
        own(bench, "many", ranks, [how, str(count), *([str(elements)] if elements > 1 else [])], provider)

    return body


def own(bench, name, ranks, arguments, provider, beside=()):
    said = mpich.launch(bench, ranks, [bench.scratch / f"{name}-mpich", *arguments], 600, provider, beside=beside)
    if not re.search(r"ranks, .* are right$", said, re.M):
        raise Failed("the program did not reach its end")
