"""Debian's programs for RDMA devices (ibverbs-utils, rdmacm-utils, perftest) on libripstop-verbs.so, unmodified."""

import re
import subprocess
import time

from rig import process
from rig.case import Case, Failed, Missing, free_port
from rig.peers import packages

from .debian_tools import wait_for_listener

NAME = "verbs-shim"
OBJECT = "libripstop-verbs.so"

# Round trips that rping checks.
ROUNDS = 50

PERFTEST = ("ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw", "ib_atomic_bw")


def cases():
    """Every program over tcp and shm: data verified where the program can; a side that is killed; a refusal."""
    found = [Case(f"{NAME}/ibv_devinfo", devinfo), Case(f"{NAME}/udaddy", refused)]
    found += [Case(f"{NAME}/{kind}/{program}{flag}", pair(kind, program, ["-n", "100", "-F", flag]))
              for kind, program, flag in (("tcp", "ib_send_lat", "-R"), ("shm", "ib_write_bw", "-R"),
                                          ("tcp", "ib_send_bw", "-e"), ("tcp", "ib_write_bw", "--use_old_post_send"))]
    for kind in ("tcp", "shm"):
        add = lambda name, body: found.append(Case(f"{NAME}/{kind}/{name}", body))  # noqa: E731
        add("ibv_rc_pingpong", pair(kind, "ibv_rc_pingpong", ["-g", "0", "-c"]))
        add("ibv_rc_pingpong-events", pair(kind, "ibv_rc_pingpong", ["-g", "0", "-c", "-e"]))
        add("ibv_rc_pingpong-new-send", pair(kind, "ibv_rc_pingpong", ["-g", "0", "-c", "-N"]))
        add("ibv_srq_pingpong", pair(kind, "ibv_srq_pingpong", ["-g", "0", "-c", "-n", "100"]))
        add("ibv_srq_pingpong-events", pair(kind, "ibv_srq_pingpong", ["-g", "0", "-c", "-e", "-n", "100"]))
        add("ib_send_bw-srq", pair(kind, "ib_send_bw", ["-n", "100", "-F", "--use-srq", "-q", "4"]))
        add("rping", rping(kind))
        add("rping-server-killed", killed(kind, "server"))
        add("rping-client-killed", killed(kind, "client"))
        add("ucmatose", ucmatose(kind))
        add("rdma_client", rdma_client(kind))
        for program in PERFTEST:
            add(program, pair(kind, program, ["-n", "100", "-F"]))
    return found


def prepare(bench):
    packages(bench, "ibverbs-utils", "rdmacm-utils", "perftest")
    if not (bench.library.path.parent / OBJECT).is_file():
        raise Missing(f"there is no {OBJECT} beside the library: `cargo xtask dist` makes it")


def environment(bench, kind):
    """That of a program that has the device."""
    return process.clean_environment() | {"LD_PRELOAD": str(bench.library.path.parent / OBJECT),
                                          "RIPSTOP_VERBS_PROVIDER": kind}


def start_server(bench, kind, command, port):
    """Starts a server, and waits until it listens; what it prints is in the file that is returned too."""
    output = bench.scratch / "server"
    with open(output, "wb") as sink:
        server = process.start(command, environment(bench, kind), bench.scratch, stdin=subprocess.DEVNULL, stdout=sink,
                               stderr=subprocess.STDOUT)
    wait_for_listener(port, server)
    return server, output


def ended(bench, server, output, seconds):
    """The exit status of a server, or None if it goes on, and what it has printed."""
    try:
        status = server.wait(seconds)
    except subprocess.TimeoutExpired:
        status = None
    process.end_all()
    said = output.read_text(errors="replace")
    with open(bench.log, "a", encoding="utf-8") as log:
        log.write(f"server: exit status {status}\n{said}")
    return status, said


def both(bench, kind, server_command, client_command, port):
    """Runs a server and a client, which must both succeed; returns what they printed."""
    server, output = start_server(bench, kind, server_command, port)
    client = bench.run(client_command, 60, environment(bench, kind), beside=[server])
    status, said = ended(bench, server, output, 20 if client.success else 1)
    if not client.success or status != 0:
        raise Failed(f"client: {client.ending}{client.telling_line()}; server: exit status {status}")
    return said, client.output


def pair(kind, program, flags):
    """A case: a program whose two sides differ by the name of the server only."""

    def body(bench):
        port = free_port()
        command = [program, "-p", str(port), *flags]
        both(bench, kind, command, [*command, "127.0.0.1"], port)

    return body


def rping(kind):
    """A case: rping, which verifies every round trip on both sides."""

    def body(bench):
        port = free_port()
        command = ["rping", "-a", "127.0.0.1", "-p", str(port), "-v", "-V", "-C", str(ROUNDS)]
        server, client = both(bench, kind, [*command, "-s"], [*command, "-c"], port)
        for side, text in (("server", server), ("client", client)):
            if not re.search(rf"ping data: rdma-ping-{ROUNDS - 1}: ", text):
                raise Failed(f"the {side} did not report all of its data")

    return body


def killed(kind, whom):
    """A case: one side of rping is killed while data flows, and the other one ends."""

    def body(bench):
        port = free_port()
        command = ["rping", "-a", "127.0.0.1", "-p", str(port), "-v", "-C", "1000000"]
        server, output = start_server(bench, kind, [*command, "-s"], port)
        client_output = bench.scratch / "client"
        with open(client_output, "wb") as sink:
            client = process.start([*command, "-c"], environment(bench, kind), bench.scratch, stdin=subprocess.DEVNULL,
                                   stdout=sink, stderr=subprocess.STDOUT)
        limit = time.monotonic() + 60
        while b"rdma-ping-10:" not in output.read_bytes():
            if time.monotonic() > limit or server.poll() is not None:
                raise Failed("no data flows")
            time.sleep(0.02)
        victim, other = (server, client) if whom == "server" else (client, server)
        victim.kill()
        try:
            status = other.wait(20)
        except subprocess.TimeoutExpired:
            raise Failed(f"rping goes on for 20 s after its {whom} was killed") from None
        if status < 0:
            raise Failed(f"rping dies of signal {-status} after its {whom} was killed")
        ended(bench, server, output, 1)

    return body


def ucmatose(kind):
    """A case: several connections at once, messages both ways."""

    def body(bench):
        port = free_port()
        command = ["ucmatose", "-p", str(port), "-c", "4", "-C", "20"]
        said = both(bench, kind, command, [*command, "-s", "127.0.0.1"], port)
        for text in said:
            if "return status 0" not in text:
                raise Failed("ucmatose does not report success")

    return body


def rdma_client(kind):
    """A case: the calls of librdmacm that wait, on endpoints of `rdma_create_ep`."""

    def body(bench):
        port = free_port()
        both(bench, kind, ["rdma_server", "-p", str(port)], ["rdma_client", "-s", "127.0.0.1", "-p", str(port)], port)

    return body


def devinfo(bench):
    done = bench.run(["ibv_devinfo", "-v"], 60, environment(bench, "tcp"))
    if not done.success or not re.search(r"hca_id:\s+ripstop0", done.output):
        raise Failed(f"ibv_devinfo does not show ripstop0: {done.ending}{done.telling_line()}")
    if not re.search(r"GID\[ *0\]:\s+::ffff:\d", done.output):
        raise Failed("ibv_devinfo does not show the gid")


def refused(bench):
    """Datagrams are refused with the error, and the log has the reason."""
    done = bench.run(["udaddy", "-s", "127.0.0.1"], 60, environment(bench, "tcp"))
    if done.status in (0, None) or "there are connections (RDMA_PS_TCP)" not in done.output:
        raise Failed(f"udaddy: {done.ending}{done.telling_line()}")
