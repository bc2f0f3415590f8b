"""Running programs so that nothing of them is left behind, however they end."""

import ctypes
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None)

# Seconds between being asked to end and being killed.
GRACE = 1.0

# How a report on a process begins that a program left when its time was over.
LEFT = "--- process"

# Settings of the caller that would change what a case tests.
FOREIGN = ("FI_", "OMPI_", "MPIR_", "MPICH_", "PMIX_", "PMI_", "PRTE_", "LD_", "PYTHON")


@dataclass(frozen=True)
class Done:
    """A program that ended: its exit status, or None if its time was over, and what it printed."""

    status: int | None
    output: str
    seconds: float

    @property
    def success(self):
        return self.status == 0

    @property
    def ending(self):
        if self.status is None:
            return f"not finished after {self.seconds:.0f} s"
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"

    @property
    def warning(self):
        """The first warning of the library, which logs nothing below that where FI_LOG_LEVEL is not set."""
        found = re.search(r"^libfabric:\S+<warn> .*", self.output, re.M)
        return found and found[0]

    def telling_line(self):
        """What follows the ending: the first line that names an error, or else the last one. If its time was over, the last
        line that it printed, and what `ripstop why` says of the processes it left."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        if self.status is None:
            printed = itertools.takewhile(lambda line: not line.startswith(LEFT), lines)
            told = [*list(printed)[-1:], *[line for line in lines if re.match(r"[^<>]*\(pid \d+\) ", line)][:4]]
        else:
            told = [line for line in lines if re.search(r"^rank \d+: |error|^FAIL", line, re.I)][:1] or lines[-1:]
        return f": {'; '.join(line[:160] for line in told)}" if told else ""


def adopt_strays():
    """Makes this process the parent of whatever its children leave behind, so that `end_all` finds it."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_us():
    """In a child, before its program starts: dies when we do."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}


def start(command, environment, folder, **pipes):
    """Starts a program; `end_all` ends it."""
    return subprocess.Popen([str(word) for word in command], env=environment, cwd=folder,
                            preexec_fn=end_with_us, **pipes)


@contextmanager
def busy(count, folder):
    """Programs that compute as long as this lasts: what runs meanwhile spares them as `beside`."""
    loops = [start([sys.executable, "-c", "while True: pass"], clean_environment(), folder) for _ in range(count)]
    try:
        yield loops
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run(command, seconds, environment, folder, beside=(), overdue=None, start_in=None):
    """Runs a program to its end, for `seconds` at most, and then ends whatever it left, but not those `beside` it.

    It starts in `start_in`, or else in `folder`, where what it prints is kept meanwhile.
    If its time is over, what `overdue` says of the processes it left is added to what it printed.
    """
    began = time.monotonic()
    output = Path(folder) / "output"
    with open(output, "wb") as sink:
        child = start(command, environment, start_in or folder, stdin=subprocess.DEVNULL, stdout=sink,
                      stderr=subprocess.STDOUT)
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
            if overdue:
                sink.write(overdue(descendants({child.pid for child in beside})).encode())
        finally:
            end_all(beside)
    text = output.read_text(encoding="utf-8", errors="replace")
    return Done(status, text, time.monotonic() - began)


def end_all(beside=()):
    """Asks every process below this one to end, then kills it; not those `beside`. Returns when they are gone."""
    for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 10.0)):
        limit = time.monotonic() + patience
        asked = set()
        while below := descendants({child.pid for child in beside}):
            for pid in below - asked:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            asked |= below
            collect(below)
            if time.monotonic() > limit:
                break
            time.sleep(0.02)
        else:
            return


def collect(pids):
    """Takes note of children that ended."""
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


def descendants(spared):
    """The processes below this one that have not ended, without `spared` and those below them."""
    children = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # pid (name) state parent ...; the name may hold anything.
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state == "Z" and int(parent) != os.getpid():
            continue
        children.setdefault(int(parent), []).append(int(entry.name))
    found, pending = set(), [os.getpid()]
    while pending:
        below = set(children.get(pending.pop(), ())) - spared
        found |= below
        pending += below
    return found
