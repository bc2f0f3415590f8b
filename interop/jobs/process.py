"""What a process may do or meet besides messages: fork, exec, signals, limits, being unloaded; tcp and shm."""

import json
import os
import re
import subprocess
import time

from rig import peers, process, watch
from rig.case import Case, Failed, Missing
from rig.library import Witness
from rig.peers import HERE

NAME = "process"
PROVIDERS = ("tcp", "shm")
PROGRESS = ("auto", "manual")
CHILDREN = ("leaves", "exits", "execs", "waits", "calls", "closes", "opens")
WAITS = ("cq", "cq-fd", "cntr", "set", "handler")
LIMITS = ("few-files", "memlock", "file-size", "full-disk", "no-proc", "seccomp-attach", "seccomp-memory",
          "seccomp-eventfd", "seccomp-epoll", "seccomp-old", "user")

# What is refused or waited for there, with a line in the log that says what to do.
LOGGED = {"shm/file-size": "ulimit -f", "shm/seccomp-memory": "memfd_create", "shm/user": "same user",
          "tcp/answer": "TCP_ANSWER_TIMEOUT", "shm/answer": "SHM_ANSWER_TIMEOUT", "tcp/connect": "TCP_ANSWER_TIMEOUT"}
LOGGED |= {f"{provider}/{what}": reason for provider in PROVIDERS for what, reason in (
    ("full-disk", "free room in /dev/shm"), ("seccomp-eventfd", "eventfd2.*allow that call"),
    ("seccomp-epoll", "epoll_create1.*allow that call"))}

# The ways that long payloads take there, by the log (level info) of the two processes: a line of each.
RING_ONLY = r"0 \(0 bytes\) were copied by cross-memory attach, .* attach is refused: 1$"
BOTH_WAYS = r"[1-9]\d* \(\d+ bytes\) were copied by cross-memory attach, .* attach is refused: 0$"
WAYS = {"shm/seccomp-attach": (RING_ONLY, BOTH_WAYS), "shm/seccomp-attach-both": (RING_ONLY, RING_ONLY)}
# At least one payload was copied by its receiver and its sender, by the log of the receiver's domain.
BY_BOTH = r"<info> .*were copied by cross-memory attach, [1-9]\d* of them by both sides, \d+ \(\d+ bytes\) in mapped regions"
# Seconds after which that should have happened once, however many others want the processors.
BY_BOTH_WITHIN = 60
# Seconds after which the program has ended that waits for a peer behind a lost interface.
SILENT_WITHIN = 60
REFUSED = r"<info> .*the memory of that process may not be reached from here.*kernel\.yama\.ptrace_scope"

PROGRAMS = ("reload", "forks", "signals", "limits", "large", "network", "many", "patience", "collect", "joint")
SKIPPED = 77


def cases():
    """The programs in process/ tell what each of them proves."""
    found = [Case(f"{NAME}/reload/{what}", reload(what)) for what in ("none", *PROVIDERS)]

    def add(program, provider, what, *more, full=False):
        name = "/".join((program, provider, what, *more))
        found.append(Case(f"{NAME}/{name}", run(program, provider, what, *more), full, program in ("patience", "network")))

    for provider in PROVIDERS:
        for progress in PROGRESS:
            for child in CHILDREN:
                add("forks", provider, child, progress)
            for wait in WAITS:
                add("signals", provider, wait, progress)
        for limit in LIMITS:
            add("limits", provider, limit)
        if provider == "shm":
            add("limits", provider, "seccomp-attach-both")
        add("patience", provider, "answer")
        for members in ("7", "16", "33"):
            add("collect", provider, members)
        for what in ("connections", "threads"):
            add("many", provider, what)
        # 4.1 GiB take a while on processors that others use too.
        for what, full in (("message", False), ("write", provider == "shm"), ("read", True), ("edges", False),
                           ("limit", False)):
            add("large", provider, what, full=full)
    found.append(Case(f"{NAME}/joint/shm/both", copied_by_both))
    for what in ("connect", "header"):
        add("patience", "tcp", what)
    # Loss needs a module of the kernel that not every machine has.
    for what, full in (("dead-send", False), ("dead-receive", True), ("dead-connect", False), ("loss", True)):
        add("network", "tcp", what, full=full)
    for whose in ("peer", "own"):
        found.append(Case(f"{NAME}/why/tcp/{whose}-interface", lost_interface(whose), waits=True))
    for progress in PROGRESS:
        # Over shm there are no connected endpoints, and so no such events.
        add("signals", "tcp", "eq", progress)
    return found


def prepare(bench):
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev")
    for program in PROGRAMS:
        linked = {"reload": ["-ldl"], "patience": ["-lfabric", "-rdynamic"]}.get(program, ["-lfabric"])
        peers.compile_c(bench, ["cc"], [HERE / "process" / f"{program}.c"], bench.scratch / program,
                        "-lpthread", *linked)


def judged(done):
    """What a program says of itself."""
    if done.status == SKIPPED:
        why = re.search(r"^SKIP: (.*)$", done.output, re.M)
        raise Missing(why[1] if why else "it does not say why")
    if not done.success:
        raise Failed(f"{done.ending}{done.telling_line()}")


def reload(what):
    """A case: the library is loaded, used and unloaded a hundred times."""

    def body(bench):
        judged(bench.run([bench.scratch / "reload", bench.library.path, what], 60, bench.environment()))

    return body


def require_ways(said, ways):
    """Each process says which ways its payloads have taken, and each that is refused one says why."""
    lines = re.findall(r"^.*<info> .*were copied by cross-memory attach, .* attach is refused: .*$", said, re.M)
    for way in set(ways):
        found = sum(bool(re.search(way, line)) for line in lines)
        if found != ways.count(way):
            raise Failed(f"{found} lines of the log match '{way}', not {ways.count(way)}")
    refused = len(re.findall(REFUSED, said))
    if refused != ways.count(RING_ONLY):
        raise Failed(f"{refused} lines of the log say why attach is refused, not {ways.count(RING_ONLY)}")


def copied_by_both(bench):
    """A case: the sender of long messages copies a part of them."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Missing("two processors: on one the receiver copies alone")
    witness = Witness(bench)
    environment = bench.environment(**witness.environment, FI_LOG_LEVEL="info")
    end = time.monotonic() + BY_BOTH_WITHIN
    said = ""
    # Where others have the processors for a while, each side copies alone what comes meanwhile.
    while not re.search(BY_BOTH, said):
        if time.monotonic() > end:
            raise Failed(f"no payload was copied by both sides in {BY_BOTH_WITHIN} s: nothing with '{BY_BOTH}'")
        done = bench.run([bench.scratch / "joint", "shm", "both"], 90, environment)
        judged(done)
        said = done.output
    witness.require("joint", 1, or_more=True)


def lost_interface(whose):
    """A case: the interface between two network namespaces is lost while one process sends to the other, and
    `ripstop why`, which runs in neither of them, says so of both, until the library ends the connection."""

    def body(bench):
        watch.require_tool(bench)
        witness = Witness(bench)
        what = f"midway-{whose}"
        output = bench.scratch / "network-said"
        with open(output, "wb") as sink:
            child = process.start([bench.scratch / "network", "tcp", what], bench.environment(**witness.environment),
                                  bench.scratch, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
            try:
                seen = silences(bench, child)
            finally:
                process.end_all()
        said = output.read_text(errors="replace")
        found = json.dumps(seen, indent=1)
        with open(bench.log, "a", encoding="utf-8") as log:
            log.write(f"$ network tcp {what}\n{said}\n[exit status {child.returncode}]\n{found}\n")
        judged(process.Done(child.returncode, said, 0.0))
        witness.require("network", 1, or_more=True)
        peer = int(re.search(r"^network: the peer is process (\d+)$", said, re.M)[1])
        if set(seen) != {child.pid, peer}:
            raise Failed(f"that the network is silent was said of the processes {sorted(seen)}, not of {child.pid} and {peer}")
        for pid, answer in seen.items():
            (other,) = set(seen) - {pid}
            text = answer["cause"]["text"]
            if "the network does not carry what is sent between them" not in text or f"(pid {other})" not in text:
                raise Failed(f"process {pid} is told: {text}")

    return body


def silences(bench, child):
    """The answers of `ripstop why` about a process and the peer that it names, once they are that the network between
    them is silent."""
    seen = {}
    end = time.monotonic() + SILENT_WITHIN
    while child.poll() is None and time.monotonic() < end:
        steps = [answer["steps"][-1] for answer in seen.values()]
        named = {step["to"]["pid"] for step in steps if step["to"]}
        for pid in {child.pid, *named} - set(seen):
            answer = watch.shown(bench, pid, "why", "--json")
            if answer and answer["cause"]["kind"] == "silent":
                seen[pid] = answer
        time.sleep(0.2)
    return seen


def run(program, provider, what, *more):
    """A case: the program ends well, with the library under test."""

    def body(bench):
        witness = Witness(bench)
        ways = WAYS.get(f"{provider}/{what}", ())
        told = {"FI_LOG_LEVEL": "info"} if ways else {}
        environment = bench.environment(**witness.environment, **told)
        done = bench.run([bench.scratch / program, provider, what, *more], 90, environment)
        judged(done)
        require_ways(done.output, ways)
        reason = LOGGED.get(f"{provider}/{what}")
        if reason and not re.search(f"<warn> .*{reason}", done.output):
            raise Failed(f"no line of the log says what to do: nothing with '{reason}'")
        witness.require(program, 1, or_more=True)

    return body
