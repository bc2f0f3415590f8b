"""Debian's programs for RDMA devices (ibverbs-utils, rdmacm-utils, perftest) on libripstop-verbs.so, unmodified."""

import os
import re
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from rig import process
from rig.case import Case, Failed, Missing, Unable, free_port
from rig.peers import packages

from .debian_tools import wait_for_listener

NAME = "verbs-shim"
OBJECT = "libripstop-verbs.so"

# Round trips that rping checks.
ROUNDS = 50

# Clients of one rping server that end by themselves, and that are killed.
QUIET, KILLED = 6, 3

# Round trips of a client among others.
LONG = 1000

# What rping says that its connection has ended, or a request on it.
ENDED = re.compile(r"DISCONNECT EVENT|wait for \w+ state|cma event|completion failed")

# The port of udaddy.
UDADDY = 7174

PERFTEST = ("ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw", "ib_atomic_bw")


def cases():
    """Every program over tcp and shm: data verified where the program can; a side that is killed; a refusal."""
    found = [Case(f"{NAME}/ibv_devinfo", devinfo), Case(f"{NAME}/multicast", refused)]
    found += [Case(f"{NAME}/{kind}/{program}{flag}", pair(kind, program, ["-n", "100", "-F", flag]))
              for kind, program, flag in (("tcp", "ib_send_lat", "-R"), ("shm", "ib_write_bw", "-R"),
                                          ("tcp", "ib_send_bw", "-e"), ("tcp", "ib_write_bw", "--use_old_post_send"))]
    found += [Case(f"{NAME}/hosts/{name}", across(command, flag)) for name, command, flag in (
        ("rping", ["rping", "-v", "-V", "-C", str(ROUNDS)], "-a"), ("ib_write_bw", ["ib_write_bw", "-n", "100", "-F"], ""),
        ("ib_write_bw-R", ["ib_write_bw", "-n", "100", "-F", "-R"], ""),
        ("ibv_ud_pingpong", ["ibv_ud_pingpong", "-g", "0"], ""))]
    found.append(Case(f"{NAME}/tcp/ib_send_lat-UD-R", pair("tcp", "ib_send_lat", ["-c", "UD", "-n", "100", "-F", "-R"])))
    for kind in ("tcp", "shm"):
        add = lambda name, body: found.append(Case(f"{NAME}/{kind}/{name}", body))  # noqa: E731
        add("ibv_rc_pingpong", pair(kind, "ibv_rc_pingpong", ["-g", "0", "-c"]))
        add("ibv_rc_pingpong-events", pair(kind, "ibv_rc_pingpong", ["-g", "0", "-c", "-e"]))
        add("ibv_rc_pingpong-new-send", pair(kind, "ibv_rc_pingpong", ["-g", "0", "-c", "-N"]))
        add("ibv_srq_pingpong", pair(kind, "ibv_srq_pingpong", ["-g", "0", "-c", "-n", "100"]))
        add("ibv_srq_pingpong-events", pair(kind, "ibv_srq_pingpong", ["-g", "0", "-c", "-e", "-n", "100"]))
        add("ib_send_bw-srq", pair(kind, "ib_send_bw", ["-n", "100", "-F", "--use-srq", "-q", "4"]))
        add("udaddy", udaddy(kind))
        add("ibv_ud_pingpong", pair(kind, "ibv_ud_pingpong", ["-g", "0"]))
        add("ibv_ud_pingpong-events", pair(kind, "ibv_ud_pingpong", ["-g", "0", "-e"]))
        add("ibv_ud_pingpong-server-killed", left_alone(kind, "server"))
        add("ibv_ud_pingpong-client-killed", left_alone(kind, "client"))
        for program in ("ib_send_bw", "ib_send_lat"):
            add(f"{program}-UD", pair(kind, program, ["-c", "UD", "-n", "1000", "-F"]))
        add("rping", rping(kind))
        add("rping-server-killed", killed(kind, "server"))
        add("rping-client-killed", killed(kind, "client"))
        add("rping-crowd", crowd(kind))
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


def udaddy(kind):
    """A case: datagrams of several ids that ask by rdma_cm where they go, as long as the MTU, and their answers."""

    def body(bench):
        # Its port is always the same, so each run has an address of its own.
        high, low = divmod(free_port(), 256)
        address = f"127.7.{high}.{low}"
        command = ["udaddy", "-c", "3", "-C", "20", "-S", "4096"]
        for text in both(bench, kind, [*command, "-b", address], [*command, "-s", address], UDADDY):
            if "data transfers complete" not in text or "return status 0" not in text:
                raise Failed("udaddy does not report success")

    return body


def left_alone(kind, whom):
    """A case: one side of an exchange of datagrams is killed, and the other one waits on: it gets no error."""

    def body(bench):
        port = free_port()
        command = ["ibv_ud_pingpong", "-g", "0", "-p", str(port), "-n", "100000000"]
        server, output = start_server(bench, kind, command, port)
        client = process.start([*command, "127.0.0.1"], environment(bench, kind), bench.scratch, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        if client.poll() is not None or server.poll() is not None:
            raise Failed("no datagrams are exchanged")
        victim, other = (server, client) if whom == "server" else (client, server)
        victim.kill()
        victim.wait(20)
        time.sleep(2)
        if other.poll() is not None:
            raise Failed(f"ibv_ud_pingpong ends with exit status {other.poll()} when its {whom} is killed")
        process.end_all()
        text = output.read_text(errors="replace")
        with open(bench.log, "a", encoding="utf-8") as log:
            log.write(text)
        if "Failed status" in text:
            raise Failed("a datagram fails")

    return body


def crowd(kind):
    """A case: one server of rping has nine clients, each at its own time, of which three are killed while data flows.
    The others succeed, and so does one that comes later; those that are there when the server is killed end."""

    def body(bench):
        port = free_port()
        command = ["rping", "-a", "127.0.0.1", "-p", str(port), "-v", "-V"]
        server, _ = start_server(bench, kind, [*command, "-s", "-P"], port)
        outputs = {}

        def client(rounds):
            output = bench.scratch / f"client{len(outputs)}"
            with open(output, "wb") as sink:
                # rping's lines are to be seen as it prints them.
                line_by_line = ["stdbuf", "-oL"]
                started = process.start([*line_by_line, *command, "-c", "-C", str(rounds)], environment(bench, kind),
                                        bench.scratch, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
            outputs[started] = output
            return started

        def flows(of, ping):
            limit = time.monotonic() + 60
            while f"rdma-ping-{ping}:" not in outputs[of].read_text(errors="replace"):
                if time.monotonic() > limit or (of.poll() or server.poll()) is not None:
                    statuses = f"exit status of the client {of.poll()}, of the server {server.poll()}"
                    raise Failed(f"no data flows to a client: {statuses}")
                time.sleep(0.02)

        def connected(rounds):
            """A client that has its first data: rping's server forgets a request that comes with another one."""
            one = client(rounds)
            flows(one, 0)
            return one

        def succeeds(one):
            try:
                status = one.wait(60)
            except subprocess.TimeoutExpired:
                raise Failed("a client does not end") from None
            if status != 0 or f"rdma-ping-{LONG - 1}:" not in outputs[one].read_text(errors="replace"):
                raise Failed(f"a client ends with exit status {status} among others that are killed")

        endless = [connected(1_000_000) for _ in range(KILLED)]
        quiet = []
        for victim in endless:
            # Out of step: each at another moment of the others' exchange.
            quiet += [connected(LONG) for _ in range(QUIET // KILLED)]
            flows(victim, 10)
            victim.kill()
        for one in quiet:
            succeeds(one)
        succeeds(connected(LONG))
        last = [connected(1_000_000) for _ in range(KILLED)]
        server.kill()
        for one in last:
            try:
                status = one.wait(20)
            except subprocess.TimeoutExpired:
                raise Failed("a client goes on for 20 s after its server was killed") from None
            if status < 0 or not ENDED.search(outputs[one].read_text(errors="replace")):
                raise Failed(f"a client ends with exit status {status} and no word of its server's end")
        process.end_all()

    return body


@contextmanager
def two_hosts(bench):
    """Two network namespaces that a pair of interfaces connects: a command for each that runs programs there."""
    names = [f"ripstop{os.getpid()}{side}" for side in "ab"]

    def ip(*words):
        return bench.run(["ip", *words], 60, process.clean_environment()).success

    try:
        made = all(ip("netns", "add", name) for name in names)
        if not made or not ip("link", "add", "rs0", "netns", names[0], "type", "veth", "peer", "name", "rs0", "netns", names[1]):
            raise Unable("network namespaces cannot be made here")
        for host, name in enumerate(names, 1):
            ip("-n", name, "address", "add", f"10.247.0.{host}/24", "dev", "rs0")
            for link in ("lo", "rs0"):
                ip("-n", name, "link", "set", link, "up")
        hosts = [["ip", "netns", "exec", name] for name in names]
        limit = time.monotonic() + 60
        # An interface without a carrier yet is passed over when the device looks for its address.
        while any(bench.run([*host, "cat", "/sys/class/net/rs0/operstate"], 60, process.clean_environment()).output.strip() != "up"
                  for host in hosts):
            if time.monotonic() > limit:
                raise Failed("the interfaces between two hosts do not come up")
            time.sleep(0.02)
        yield hosts
    finally:
        process.end_all()
        for name in names:
            ip("netns", "delete", name)


def across(command, flag):
    """A case: a program between two hosts of different addresses, over tcp; `flag` comes before an address."""

    def body(bench):
        packages(bench, "iproute2")
        with two_hosts(bench) as (server_host, client_host):
            port = str(free_port())
            address = "10.247.0.1"
            sides = (["-s", flag, address], ["-c", flag, address]) if flag else ([], [address])
            output = bench.scratch / "server"
            with open(output, "wb") as sink:
                server = process.start([*server_host, *command, "-p", port, *sides[0]], environment(bench, "tcp"),
                                       bench.scratch, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
            wait_for_listener(int(port), server, Path(f"/proc/{server.pid}/net"))
            client = bench.run([*client_host, *command, "-p", port, *sides[1]], 60, environment(bench, "tcp"), beside=[server])
            status, _ = ended(bench, server, output, 20 if client.success else 1)
            if not client.success or status != 0:
                raise Failed(f"client: {client.ending}{client.telling_line()}; server: exit status {status}")

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
    """Groups are refused with the error, and the log has the reason."""
    done = bench.run(["mckey", "-m", "239.1.2.3", "-b", "127.0.0.1"], 60, environment(bench, "tcp"))
    if done.status in (0, None) or "there is no multicast" not in done.output:
        raise Failed(f"mckey: {done.ending}{done.telling_line()}")
