"""Our providers in C libraries: Debian's libfabric 1.17, and 2.5 (inside PyPI's mpich), whose lnx composes them."""

import re
import signal
import subprocess
import time

from rig import peers, process, watch
from rig.case import Case, Failed, Missing, free_port, succeeded
from rig.library import Library
from rig.peers import HERE

from . import debian_tools, mpich

NAME = "external"

PROVIDER = "ripstop_tcp"
SHM = "ripstop_shm"
OBJECT = "libripstop-fi.so"
# Each has one provider; the second has its code from the first.
OBJECTS = (OBJECT, "libripstop_shm-fi.so")

PROTOCOL = {PROVIDER: "FI_PROTO_XNET", SHM: "FI_PROTO_SHM"}

# Seconds after which a client was stopped in the middle of a message.
STOPPED_WITHIN = 60

# What lnx composes.
LINKS = {
    "with-shm": f"shm+{PROVIDER}:lo",
    "alone": f"shm+{PROVIDER}:lo",
    "ours": f"{SHM}+{PROVIDER}:lo",
    "ours-alone": f"{SHM}+{PROVIDER}:lo",
    "shm": SHM,
}


def cases():
    """The tools of Debian find each provider and use it, on their own library and on 2.5; two processes exchange every
    size over lnx with its shm and ours; MPICH uses our shm."""
    found = [Case(f"{NAME}/fi_info", info(PROVIDER)), Case(f"{NAME}/fi_info-shm", info(SHM))]
    pings = [("msg", PROVIDER, ["-e", "msg"]), ("rdm", PROVIDER, ["-e", "rdm"]),
             ("rdm-tagged", PROVIDER, ["-e", "rdm", "-m", "tagged"]),
             ("shm-rdm", SHM, ["-e", "rdm"]), ("shm-rdm-tagged", SHM, ["-e", "rdm", "-m", "tagged"])]
    found += [Case(f"{NAME}/fi_pingpong/{name}", pingpong(provider, flags)) for name, provider, flags in pings]
    found.append(Case(f"{NAME}/fi_pingpong/shm-killed", killed))
    found += [Case(f"{NAME}/2.5/{name}", body) for name, body in (
        ("fi_info", info(PROVIDER, True)), ("fi_info-shm", info(SHM, True)),
        ("fi_pingpong/rdm", pingpong(PROVIDER, ["-e", "rdm"], True)),
        ("fi_pingpong/shm-rdm", pingpong(SHM, ["-e", "rdm"], True)))]
    found += [Case(f"{NAME}/lnx/{name}", composed(name)) for name in LINKS]
    found += [Case(f"{NAME}/mpich/{what}/{ranks}", program(what, arguments, ranks))
              for what, arguments in (("traffic", ["20", "1048576"]), ("collectives", ["16384"])) for ranks in (4, 9)]
    found.append(Case(f"{NAME}/mpich/mpi4py/3", suite))
    return found


def prepare(bench):
    """Finds the libraries, and compiles external/composed.c and the programs for MPICH."""
    global theirs, folder
    folder = bench.library.path.parent / "libfabric"
    for name in OBJECTS:
        if not (folder / name).is_file():
            raise Missing(f"there is no {name} in {folder}")
    peers.packages(bench, "gcc", "libc6-dev", "libfabric-dev", "libfabric-bin")
    mpich.prepare(bench)
    theirs = Library.find(mpich.venv / "lib" / "mpich")
    theirs.stage(bench.scratch / "of-mpich")
    peers.compile_c(bench, ["cc"], [HERE / "external" / "composed.c"], bench.scratch / "composed",
                    "-lfabric")


class Witness:
    """Has the dynamic linker write down what each process loads."""

    def __init__(self, bench):
        self.folder = bench.folder("witness")

    @property
    def environment(self):
        return {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(self.folder / "of"), "FI_PROVIDER_PATH": str(folder)}

    def require(self, count, library=None):
        """So many processes loaded our objects, and the library or else none of ours."""
        proven = 0
        for record in self.folder.iterdir():
            text = record.read_text(errors="replace")
            loaded = set(re.findall(r"calling init: (\S*/libfabric\.so\S*)", text))
            if library and loaded and not all(library.is_at(path) for path in loaded):
                raise Failed(f"{sorted(loaded)} was loaded instead of {library.path}")
            objects = set(re.findall(r"calling init: (\S+)", text))
            if loaded and all(str(folder / name) in objects for name in OBJECTS):
                proven += 1
        if proven != count:
            raise Failed(f"{proven} processes loaded {' and '.join(OBJECTS)}, not {count}")


def surroundings(bench, witness, of_mpich):
    """The environment of Debian's tools, on their own library or on that of MPICH; and that library."""
    if of_mpich:
        return bench.environment(theirs, **witness.environment), theirs
    return process.clean_environment() | witness.environment, None


def info(provider, of_mpich=False):
    """A case: Debian's fi_info names a provider, and nothing else when asked for it."""

    def body(bench):
        witness = Witness(bench)
        environment, library = surroundings(bench, witness, of_mpich)
        done = bench.run(["fi_info", "-p", provider, "-t", "FI_EP_RDM"], 120, environment)
        witness.require(1, library)
        named = re.findall(r"^provider: (\S+)$", done.output, re.M)
        if not done.success or not named or set(named) != {provider}:
            raise Failed(f"fi_info names {sorted(set(named))}: {done.ending}{done.telling_line()}")
        if PROTOCOL[provider] not in done.output:
            raise Failed(f"no entry speaks {PROTOCOL[provider]}")

    return body


def pingpong(provider, flags, of_mpich=False):
    """A case: server and client of Debian's fi_pingpong, every size, data verified by both."""

    def body(bench):
        witness = Witness(bench)
        environment, library = surroundings(bench, witness, of_mpich)
        debian_tools.ping(bench, provider, "127.0.0.1", flags, 10, environment)
        witness.require(2, library)

    return body


def killed(bench):
    """When a client is killed in the middle of its messages, the server ends with an error at once."""
    watch.require_tool(bench)
    witness = Witness(bench)
    environment, _ = surroundings(bench, witness, False)
    port = free_port()
    command = ["fi_pingpong", "-p", SHM, "-e", "rdm", "-S", "65536", "-I", "100000000"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    server = process.start([*command, "-B", port], environment, bench.scratch, **pipes)
    debian_tools.wait_for_listener(port, server)
    client = process.start([*command, "-P", port, "127.0.0.1"], environment, bench.scratch, **pipes)
    try:
        stop_amid(bench, server, client)
        client.send_signal(signal.SIGKILL)
        said = server.communicate(timeout=10)[1].decode(errors="replace")
    except subprocess.TimeoutExpired:
        why = watch.shown(bench, server.pid, "why", "--json")
        raise Failed(f"the server goes on 10 s after the client was killed: {why and why['cause']['text']}") from None
    finally:
        process.end_all()
        client.communicate()
    witness.require(2)
    if server.returncode <= 0 or "Connection reset by peer" not in said:
        raise Failed(f"the server ended with status {server.returncode}: {said[-200:]}")


def stop_amid(bench, server, client):
    """Stops the client while the server sends to it. A server that waits for a message of anybody, of which none has
    begun, may go on when a peer has ended, and fi_pingpong waits so between its messages."""
    end = time.monotonic() + STOPPED_WITHIN
    # Before that they speak over a socket of their own, by calls that fail when a stopped process goes on.
    await_shown(bench, server, end, lambda domain, _: any(peer["sent"] and peer["sent"]["all"] for peer in domain["peers"]))
    while time.monotonic() < end:
        if client.poll() is not None:
            raise Failed("the client ended before it was killed")
        client.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        # What is written down when the client has been stopped for a while.
        domain = await_shown(bench, server, end,
                             lambda domain, asked: domain["seconds_since_snapshot"] < asked - stopped - 0.2)
        if any(endpoint["outstanding"] for endpoint in domain["endpoints"]):
            return
        client.send_signal(signal.SIGCONT)
        # The next stop is at another place.
        time.sleep(0.01)
    raise Failed(f"the client was not stopped in the middle of a message in {STOPPED_WITHIN} s")


def await_shown(bench, server, end, wanted):
    """A domain of the server as `ripstop top` shows it, once `wanted(domain, asked)` with the time before it was asked.
    The server writes down once a second what it shows."""
    while time.monotonic() < end:
        if server.poll() is not None:
            raise Failed("the server ended before the client was killed")
        asked = time.monotonic()
        shown = watch.shown(bench, server.pid, "top", "--once", "--json")
        for domain in shown["domains"] if shown else ():
            if wanted(domain, asked):
                return domain
        time.sleep(0.05)
    raise Failed(f"the server did not get to its messages in {STOPPED_WITHIN} s")


# At the end of a domain of our shm: its payloads that are long enough for either way.
MOVED = re.compile(r"payloads of \d+ KiB and more: (\d+) \(\d+ bytes\) were sent through the ring, (\d+) \(\d+ bytes\) "
                   r"were copied by cross-memory attach, \d+ of them by both sides, \d+ \(\d+ bytes\) in mapped")


def composed(name):
    """A case: two processes over lnx. With `alone` in its name shm is off; else shm carries all, and where it is ours its
    log must say so."""

    def body(bench):
        witness = Witness(bench)
        alone = name.endswith("alone")
        environment = bench.environment(theirs, **witness.environment, FI_LNX_PROV_LINKS=LINKS[name],
                                        FI_LNX_DISABLE_SHM=str(int(alone)), FI_LOG_LEVEL="info", FI_LOG_PROV="shm")
        said = bench.succeed([bench.scratch / "composed"], 600, environment)
        witness.require(1, theirs)
        if len(re.findall(r"^rank [01]: \d+ messages are right$", said, re.M)) != 2:
            raise Failed("the processes did not reach their end")
        moved = sum(int(ring) + int(attached) > 0 for ring, attached in MOVED.findall(said))
        if moved != (2 if SHM in LINKS[name] and not alone else 0):
            raise Failed(f"{moved} processes used our shm")

    return body


def launch(bench, ranks, command):
    """Runs a command on so many ranks of MPICH, on its own library with our shm; returns what it printed."""
    witness = Witness(bench)
    environment = bench.environment(theirs, **mpich.SETTINGS, **witness.environment, FI_PROVIDER=SHM,
                                    TMPDIR=str(bench.scratch))
    done = bench.run([mpich.venv / "bin" / "mpiexec", "-n", str(ranks), *command], 600, environment)
    said = succeeded(command[0].name, done)
    mpich.require_taken(said, SHM)
    witness.require(ranks, theirs)
    return said


def program(name, arguments, ranks):
    """A case: one of our MPI programs."""

    def body(bench):
        said = launch(bench, ranks, [bench.scratch / f"{name}-mpich", *arguments])
        if not re.search(r"ranks, .* are right$", said, re.M):
            raise Failed("the program did not reach its end")

    return body


def suite(bench):
    """Some modules of mpi4py's tests."""
    command = [mpich.venv / "bin" / "python3", mpich.suite / "main.py", "-i", r"^test_(p2p_buf|cco_buf|rma)\.py$"]
    said = launch(bench, 3, command)
    ran = [int(count) for count in re.findall(r"Ran (\d+) tests? in", said)]
    if len(ran) != 3 or not all(ran) or "FAILED" in said:
        raise Failed(f"tests run on each rank: {ran}; not all of them passed")
