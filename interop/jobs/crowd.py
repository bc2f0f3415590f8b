"""Many processes that connect, exchange and leave at moments of their own: datagrams, also in packets, or connected over tcp."""

import re

from rig import peers
from rig.case import Case, Failed
from rig.library import Witness
from rig.peers import HERE

NAME = "crowd"
MESSAGES = ("inject", "send", "send-inject", "silent-inject", "transmit", "delivery", "any", "untagged")
ONE_SIDED = ("write", "write-delivery", "inject-write", "atomic", "inject-atomic")
LEAVINGS = ("close", "shuffled", "exit", "at-once", "exec", "killed")
RECEIVERS = ("late", "stopped", "posts-late")

# Rounds of a case, and of its longer form.
ROUNDS, LONG = 3, 500


def cases():
    """crowd/crowd.c tells what each of them proves."""
    found = []

    def add(name, full=False, rounds=ROUNDS, **options):
        # A receiver that is late, stopped, or posts late lets the others wait.
        found.append(Case(f"{NAME}/{name}", crowd(rounds, options), full, waits="r" in options))

    for place, at in (("tcp", {"p": "tcp"}), ("shm", {"p": "shm"}), ("tcp-msg", {"p": "tcp", "c": True}),
                      ("rxm", {"p": "tcp;ofi_rxm"})):
        # One process sends to another one that is there, late, stopped, or posts when the first has left.
        for leaving in LEAVINGS:
            for receiver in RECEIVERS:
                add(f"{place}/pair/{leaving}-{receiver}", k="any", m=30, l=leaving, r=receiver, o=True, **at)
        # Each way to send, all to all.
        for kind in MESSAGES + ONE_SIDED:
            add(f"{place}/4/{kind}", n=4, k=kind, m=30, l="at-once", **at)
        # More processes than processors, idle and beside programs that compute.
        for ranks, messages in ((9, 20), (16, 10), (32, 3)):
            add(f"{place}/{ranks}/any", n=ranks, k="any", m=messages, l="close", t=120, **at)
            add(f"{place}/{ranks}/any-busy", n=ranks, k="any", m=messages, l="at-once", t=300, B=2, rounds=1, **at)
        # Packets differ from tcp by their headers, and by who makes progress: the program, without a thread of the library.
        if place == "rxm":
            continue
        # Four around one, which is asked for its connections or asks for them, and receives or sends.
        for form, options in (("asked-receives", {"o": True}), ("asks-receives", {"o": True, "e": True}),
                              ("asked-sends", {"f": True}), ("asks-sends", {"f": True, "e": True})):
            for number, leaving in enumerate(LEAVINGS):
                for other, receiver in enumerate(RECEIVERS):
                    add(f"{place}/star/{form}/{leaving}-{receiver}", full=place != "tcp-msg" or number % 3 != other, n=5, k="any",
                        m=30, l=leaving, r=receiver, **options, **at)
        for kind in ("inject", "any", "inject-write"):
            add(f"{place}/4/{kind}-long", full=True, rounds=LONG, n=4, k=kind, m=30, l="at-once", **at)
            add(f"{place}/9/{kind}-long", full=True, rounds=LONG, n=9, k=kind, m=10, l="close", t=120, **at)
    return found


def prepare(bench):
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev")
    peers.compile_c(bench, ["cc"], [HERE / "crowd" / "crowd.c"], bench.scratch / "crowd", "-lfabric")


def crowd(rounds, options):
    """A case: every process of every round ends, and all that was reported has arrived."""
    words = [word for name, value in options.items()
             for word in ([f"-{name}"] if value is True else [f"-{name}", value])]

    def body(bench):
        witness = Witness(bench)
        environment = bench.environment(**witness.environment)
        done = bench.run([bench.scratch / "crowd", "-R", rounds, *words], 60 + 60 * rounds, environment)
        said = re.search(r"^crowd: (\d+) of (\d+) rounds complete$", done.output, re.M)
        if not said:
            raise Failed(f"{done.ending}{done.telling_line()}")
        if not done.success or int(said[1]) != rounds:
            raise Failed(f"{said[0]}{done.telling_line()}")
        witness.require("crowd", 1)

    return body
