"""Our library and C libfabric 2.5 (inside PyPI's mpich) on the two ends of a TCP connection."""

import os
import select
import signal
import subprocess
import time

from rig import peers, process
from rig.case import Case, Failed, free_port
from rig.library import Library
from rig.peers import HERE

NAME = "wire"

# Seconds that a side has to notice the death of the other: more than it takes on a machine that does much else.
NOTICE = 60
# Seconds in which it has something to say: more than the sides themselves wait for each other.
PATIENCE = 150

# What each endpoint type does: the work of wire/peer.c and its options.
PLAIN = ("msg", "inject", "data", "delivery", "iov", "late", "stream")
TAGGED = ("tagged", *(f"tagged-{work}" for work in PLAIN[1:]))
WORKS = {
    # Connected endpoints have tags and multi-receive buffers through a shared receive context only.
    "msg": [(work, ["-c"]) for work in PLAIN] + [(work, ["-c", "-r"]) for work in (*TAGGED, "multi", "peek")],
    "rdm": [(work, []) for work in (*PLAIN, *TAGGED, "multi", "peek")],
}
# Reads and writes of remote memory: by offset with keys of our choice, and by address with the provider's.
ONE_SIDED = ("rma", "rma-inject", "rma-data", "rma-delivery", "rma-iov")
ADDRESSING = {"offset": "-m", "address": "-v"}
# Not with the C library as server: it dies when a tagged message on a connected endpoint finds no receive.
OURS_SERVES = {("msg", "peek")}
# The same with blocking waits, and over IPv6.
VARIANTS = {"wait": ["-w"], "ipv6": ["-a", "::1"]}
# Reliable datagrams in packets over connected endpoints. The C library injects up to 64 bytes in them.
PACKETS = ["-P", "tcp;ofi_rxm", "-i", "64"]
# What the C library cannot do in them with itself either, by our role: it has no multi-receive buffers, a send of its own
# is delivered before there is a receive, its server hangs in a peek, and a side of it dies in a stream of plain messages.
PACKETS_NOT = {("server", "multi"), ("client", "multi"), ("server", "late"), ("server", "tagged-late"), ("client", "peek"),
               ("server", "stream"), ("client", "stream")}
# Open files with which a process can start, and with which it can do all of its work.
FEWEST_FILES, ENOUGH_FILES = 4, 40
# Works in which one side is killed.
LOSSES = {"msg": [("drain", ["-c"])], "rdm": [("drain", []), ("tagged-drain", [])]}


def cases():
    """Each side as server and as client, 0 B to 4 MiB, verified; the death of either is noticed."""
    found = []
    for kind in WORKS:
        for role in ("server", "client"):
            place = f"{NAME}/{kind}/{role}"
            works = [(work, flags) for work, flags in WORKS[kind] if role == "server" or (kind, work) not in OURS_SERVES]
            found += [Case(f"{place}/{work}", talk(role, work, flags)) for work, flags in works]
            for name, more in VARIANTS.items():
                found += [Case(f"{place}/{work}-{name}", talk(role, work, flags + more),
                               full=work != "tagged-stream") for work, flags in works]
    for kind, flags in (("msg", ["-c"]), ("rdm", [])):
        for role in ("server", "client"):
            found += [Case(f"{NAME}/{kind}/{role}/{work}-{how}", talk(role, work, [*flags, option]))
                      for work in ONE_SIDED for how, option in ADDRESSING.items()]
    # A context of a scalable endpoint of ours is a plain endpoint to the C library.
    for role in ("server", "client"):
        found += [Case(f"{NAME}/rdm/{role}/{work}-context", talk(role, work, flags, ["-x"])) for work, flags in WORKS["rdm"]]
        found += [Case(f"{NAME}/rdm/{role}/{work}-context", talk(role, work, ["-m"], ["-x"])) for work in ONE_SIDED]
    found += [Case(f"{NAME}/rxm/{role}/{work}", talk(role, work, [*PACKETS, *flags]))
              for role in ("server", "client") for work, flags in WORKS["rdm"] if (role, work) not in PACKETS_NOT]
    found += [Case(f"{NAME}/rxm/{role}/{work}-{how}", talk(role, work, [*PACKETS, option]))
              for role in ("server", "client") for work in ONE_SIDED for how, option in ADDRESSING.items()]
    found += [Case(f"{NAME}/rxm/{role}/atomics-{how}", talk(role, "atomics", [*PACKETS, "-A", option]))
              for role in ("server", "client") for how, option in ADDRESSING.items()]
    for kind, works in LOSSES.items():
        for survivor in ("ours", "theirs"):
            for work, flags in works:
                found += [Case(f"{NAME}/killed/{kind}/{work}/{survivor}-{'sends' if client else 'receives'}",
                               loss(survivor == "ours", client, work, flags), waits=True) for client in (True, False)]
    found += [Case(f"{NAME}/killed/rdm/stuck/ours-sends", loss(True, True, "stuck", []), waits=True),
              Case(f"{NAME}/killed/rdm/stuck/theirs-sends", loss(False, True, "stuck", []), waits=True),
              Case(f"{NAME}/killed/rdm/await/ours-receives", loss(True, True, "await", []), waits=True),
              Case(f"{NAME}/restarted/rdm/ours-stays", restart(True), waits=True),
              Case(f"{NAME}/restarted/rdm/theirs-stays", restart(False), waits=True)]
    found += [Case(f"{NAME}/scarce/{kind}/{role}", scarce(role, flags))
              for kind, flags in (("msg", ["-c"]), ("rdm", [])) for role in ("server", "client")]
    return found


def prepare(bench):
    """Compiles wire/peer.c, and finds the C library."""
    global peer, theirs
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev")
    home, _ = peers.python_mpi(bench)
    theirs = Library.find(home / "lib" / "mpich")
    theirs.stage(bench.scratch / "theirs")
    peer = peers.compile_c(bench, ["cc"], sorted((HERE / "wire").glob("*.c")), bench.scratch / "peer", "-lfabric")


class Side:
    """A running peer, and what it says."""

    def __init__(self, bench, library, flags, files=None):
        self.name = "theirs" if library is theirs else "ours"
        self.bench = bench
        command = [*(["prlimit", f"--nofile={files}"] if files else []), peer, *flags]
        self.child = process.start(command, bench.environment(library), bench.scratch, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.unread = b""
        self.note(f"$ {' '.join(map(str, command))}")
        path = self.hear("LIB").split(maxsplit=1)[1]
        if not library.is_at(path):
            raise Failed(f"{self.name}: loaded {path} instead of {library.path}")

    def note(self, text):
        with open(self.bench.log, "a", encoding="utf-8") as log:
            log.write(f"{self.name}: {text}\n")

    def line(self, seconds):
        """The next line, or None when there are no more. Waits for `seconds` at most."""
        limit = time.monotonic() + seconds
        while b"\n" not in self.unread:
            ready, _, _ = select.select([self.child.stdout], [], [], max(0, limit - time.monotonic()))
            if not ready:
                raise Failed(f"{self.name}: silent for {seconds} s")
            some = os.read(self.child.stdout.fileno(), 4096)
            if not some:
                return None
            self.unread += some
        line, _, self.unread = self.unread.partition(b"\n")
        text = line.decode(errors="replace")
        self.note(text)
        return text

    def hear(self, word, seconds=PATIENCE):
        """What follows `word`, which must be said next."""
        while (line := self.line(seconds)) is not None:
            if line.startswith("ERROR"):
                raise Failed(f"{self.name}: {line.removeprefix('ERROR ')}")
            # The library may print warnings of its own.
            if line.split(" ")[0] == word:
                return line[len(word) + 1:]
        raise Failed(f"{self.name}: {self.ending()} before it said {word}")

    def say(self, line):
        self.note(f"< {line}")
        try:
            self.child.stdin.write(f"{line}\n".encode())
            self.child.stdin.flush()
        except BrokenPipeError:
            pass

    def ending(self):
        try:
            status = self.child.wait(NOTICE)
        except subprocess.TimeoutExpired:
            return "did not exit"
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def require_success(self):
        """It ends well, and has no more to say but warnings of its library."""
        while (line := self.line(NOTICE)) is not None:
            if line.startswith("ERROR"):
                raise Failed(f"{self.name}: {line.removeprefix('ERROR ')}")
        if (ending := self.ending()) != "exit status 0":
            raise Failed(f"{self.name}: {ending}")


def meet(bench, server_library, client_library, flags, port=None, ours=()):
    """A server and a client that know each other's address. Returns both. `ours` is for our side alone."""
    more = {library: [] if library is theirs else [*ours] for library in (server_library, client_library)}
    server = Side(bench, server_library, ["-s", *(["-p", str(port)] if port else []), *more[server_library], *flags])
    server_address = server.hear("ADDR")
    client = Side(bench, client_library, [*more[client_library], *flags])
    client_address = client.hear("ADDR")
    # A server of connected endpoints must be ready first: it does not need the client's address.
    server.say(f"PEER {client_address}")
    client.say(f"PEER {server_address}")
    return server, client, client_address


def talk(role, work, flags, ours=()):
    """Both sides do `work` to its end; ours is the server or the client, and has some flags alone."""

    def body(bench):
        libraries = (bench.library, theirs) if role == "server" else (theirs, bench.library)
        server, client, _ = meet(bench, *libraries, [*flags, work], ours=ours)
        # An error is reported by the side that has it, whichever that is.
        for side in first_to_speak(client, server):
            side.hear("DONE")
        for side in (client, server):
            side.say("GO")
        for side in (client, server):
            side.require_success()

    return cleanly(body)


def scarce(role, flags):
    """One side may open few files, and ever more: until it has enough, both end with an error, and soon."""

    def body(bench):
        began = time.monotonic()
        for files in range(FEWEST_FILES, ENOUGH_FILES):
            limits = {role: files}
            try:
                sides = [Side(bench, bench.library, [*(["-s"] if name == "server" else []), *flags, "msg"], limits.get(name))
                         for name in ("server", "client")]
                addresses = [side.hear("ADDR", NOTICE) for side in sides]
                for side, address in zip(sides, reversed(addresses)):
                    side.say(f"PEER {address}")
                enough = both_done(sides)
            except Failed as failed:
                # A side that gets an error says which.
                if "silent" in str(failed) or "killed" in str(failed):
                    raise Failed(f"with {files} files: {failed}") from failed
                enough = False
            finally:
                process.end_all()
            if enough and files == FEWEST_FILES:
                raise Failed(f"{files} files are enough: this tries nothing")
            if enough:
                return
        raise Failed(f"{ENOUGH_FILES} files are not enough, after {time.monotonic() - began:.0f} s")

    return cleanly(body)


def both_done(sides):
    """Hears the first side that has come to an end, whichever it is; whether it is done, and then the other too."""
    limit = time.monotonic() + NOTICE
    while time.monotonic() < limit:
        for side in first_to_speak(*sides, seconds=NOTICE):
            if b"\n" not in side.unread and not select.select([side.child.stdout], [], [], 0)[0]:
                continue
            line = side.line(NOTICE)
            if line is None or line.startswith("ERROR"):
                raise Failed(f"{side.name}: {line or side.ending()}")
            if line.startswith("DONE"):
                for other in sides:
                    if other is not side:
                        other.hear("DONE", NOTICE)
                return True
    raise Failed("both sides are silent")


def first_to_speak(*sides, seconds=PATIENCE):
    """The sides, the one that has something to say first."""
    if any(b"\n" in side.unread for side in sides):
        return sides
    ready, _, _ = select.select([side.child.stdout for side in sides], [], [], seconds)
    return sorted(sides, key=lambda side: side.child.stdout not in ready)


def loss(ours_survives, client_survives, work, flags):
    """One side is killed in the middle of `work`; the other one ends with an error, and soon."""

    def body(bench):
        ours_is_client = ours_survives == client_survives
        libraries = (theirs, bench.library) if ours_is_client else (bench.library, theirs)
        server, client, _ = meet(bench, *libraries, [*flags, work])
        victim, survivor = (server, client) if client_survives else (client, server)
        victim.hear("STARTED")
        survivor.hear("STARTED")
        time.sleep(0.05)
        victim.child.kill()
        began = time.monotonic()
        survivor.hear("ENDED", NOTICE)
        survivor.note(f"noticed after {time.monotonic() - began:.3f} s")
        survivor.require_success()

    return cleanly(body)


def restart(ours_stays):
    """The server is killed, and another one started at its address: the client reaches it."""

    def body(bench):
        stays, goes = (bench.library, theirs) if ours_stays else (theirs, bench.library)
        port = free_port()
        server, client, client_address = meet(bench, goes, stays, ["restart"], port)
        client.hear("STARTED")
        server.child.kill()
        server.child.wait()
        again = Side(bench, goes, ["-s", "-p", str(port), "restart"])
        again.hear("ADDR")
        again.say(f"PEER {client_address}")
        client.say("GO")
        client.hear("DONE")
        client.require_success()

    return cleanly(body)


def cleanly(body):
    """Leaves no side running."""

    def wrapped(bench):
        try:
            body(bench)
        finally:
            process.end_all()

    return wrapped
