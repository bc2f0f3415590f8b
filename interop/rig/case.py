"""Cases, and the bench they run on."""

import itertools
import os
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import process, stuck

# What tells apart the ports that were given out, and those of other runs and of other lanes of this one.
PORTS = range(10_000, 30_000)
TAKEN = itertools.count(os.getpid() * 61)


class Failed(Exception):
    """The case ran and did not do what it should."""


class Missing(Exception):
    """Something that is not part of the project cannot be had here: the case is skipped."""


class Unable(Exception):
    """The kernel or the container of this machine does not let the case run: it is skipped, also where CI is set."""


@dataclass(frozen=True)
class Case:
    """One thing to try: `job/name`."""

    name: str
    body: Callable[["Bench"], None]
    full: bool = False
    # It waits for most of its time, for bounds to be reached or for others to end: it runs beside those that compute.
    waits: bool = False


class Bench:
    """Where cases run: the library under test, a folder to keep things, one to throw away, and the log of the case."""

    def __init__(self, kept, library, settings=None):
        # What each program has in its environment, besides what its case says.
        self.settings = dict(settings or {})
        self.kept = Path(kept).resolve()
        self.library = library
        self.logs = self.kept / "logs"
        self.log = self.logs / "prepare.log"

    def __enter__(self):
        self.logs.mkdir(parents=True, exist_ok=True)
        # Short, because Open MPI puts sockets below it.
        self.scratch = Path(tempfile.mkdtemp(prefix="interop-"))
        self.library.stage(self.scratch / "lib")
        return self

    def __exit__(self, *_):
        process.end_all()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def folder(self, name):
        """An empty folder that goes away with the bench."""
        path = self.scratch / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def environment(self, library=None, **more):
        """The environment of a program that loads `library`: the one under test if not said."""
        found = {"LD_LIBRARY_PATH": str((library or self.library).staged)}
        return process.clean_environment() | self.settings | found | more

    def run(self, command, seconds, environment, beside=(), folder=None):
        """Runs a program to its end, for `seconds` at most; what it printed goes to the log too.

        It starts in `folder`, or else in the case's own. It leaves no process behind; only those `beside` it go on.
        """
        done = process.run(command, seconds, environment, self.scratch, beside,
                           lambda pids: stuck.report(pids, self.library.tool), folder)
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(map(str, command))}\n{done.output}\n[{done.ending}]\n")
        return done

    def succeed(self, command, seconds, environment):
        """Like `run`, and the program must say that it succeeded, and the library warn of nothing."""
        return succeeded(Path(command[0]).name, self.run(command, seconds, environment))


def succeeded(name, done):
    """What a program printed that did all it should, so that there was nothing to warn its user of."""
    if not done.success:
        raise Failed(f"{name}: {done.ending}{done.telling_line()}")
    if done.warning:
        raise Failed(f"{name}: it did what it should, and the library warned: {done.warning[:400]}")
    return done.output


def share_ports(lane, lanes, parent):
    """Has this process, one of so many beside each other, give out ports that the others do not."""
    global TAKEN
    TAKEN = itertools.count(parent * 61 * lanes + lane, lanes)


def free_port():
    """A TCP port that nobody uses. It is below those that the system gives to whoever asks for any, so that nobody
    else gets it before a program listens there."""
    while True:
        port = PORTS[next(TAKEN) % len(PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
