"""Debian's fi_info, fi_strerror and fi_pingpong, built against libfabric 1.17."""

import re
import subprocess
import time
from pathlib import Path

from rig import peers, process
from rig.case import Case, Failed, free_port
from rig.library import Witness

NAME = "debian-tools"

FI_ENODATA = 61
PROTOCOLS = {"FI_EP_MSG": {"FI_PROTO_SOCK_TCP"}, "FI_EP_RDM": {"FI_PROTO_XNET"}}
VARIABLES = ("FI_PROVIDER", "FI_LOG_LEVEL", "FI_LOG_PROV", "FI_LOG_SUBSYS", "FI_UNIVERSE_SIZE", "FI_TCP_IFACE",
             "FI_TCP_PORT_LOW_RANGE", "FI_TCP_PORT_HIGH_RANGE")
VERBOSE = ("caps", "mode", "addr_format", "src_addr", "inject_size", "size", "iov_limit", "msg_order", "type",
           "protocol", "max_msg_size", "mem_tag_format", "threading", "progress", "resource_mgmt", "av_type",
           "mr_mode", "cq_data_size", "prov_name", "api_version")


def cases():
    """fi_info says what there is, and fi_pingpong uses it: all sizes, data verified."""
    tools = [("list", info_list), ("tcp", info_tcp), ("msg", info_msg), ("rdm", info_rdm), ("verbose", info_verbose),
             ("refused", info_refused), ("excluded", info_excluded), ("variables", info_variables),
             ("version", info_version)]
    found = [Case(f"{NAME}/fi_info/{name}", body) for name, body in tools]
    found.append(Case(f"{NAME}/fi_strerror", strerror))
    pings = [("msg", "127.0.0.1", ["-e", "msg"]), ("rdm", "127.0.0.1", ["-e", "rdm"]),
             ("rdm-tagged", "127.0.0.1", ["-e", "rdm", "-m", "tagged"]),
             ("msg-ipv6", "::1", ["-e", "msg", "-6"]), ("rdm-ipv6", "::1", ["-e", "rdm", "-6"])]
    found += [Case(f"{NAME}/fi_pingpong/{name}", pingpong(node, flags, 10)) for name, node, flags in pings]
    found += [Case(f"{NAME}/fi_pingpong/{name}-long", pingpong(node, flags, 60), full=True)
              for name, node, flags in pings]
    found += [Case(f"{NAME}/fi_pingpong/rxm/{sides}{kind}", packets(sides, flags))
              for sides in ("both", "server", "client") for kind, flags in (("", []), ("-tagged", ["-m", "tagged"]))]
    return found


def prepare(bench):
    peers.packages(bench, "libfabric-bin")


def fi_info(bench, *flags, **environment):
    """What fi_info prints, as a list of one dictionary per fi_info; and its exit status."""
    witness = Witness(bench)
    done = bench.run(["fi_info", *flags], 120, bench.environment(**witness.environment, **environment))
    witness.require("fi_info", 1)
    blocks = []
    for line in done.output.splitlines():
        name, colon, value = line.partition(":")
        if name == "provider":
            blocks.append({})
        if colon and blocks:
            blocks[-1][name.strip()] = value.strip()
    return done, blocks


def info_list(bench):
    done, _ = fi_info(bench, "-l")
    if not re.search(r"^tcp:\n +version: \d+\.\d+$", done.output, re.M):
        raise Failed("fi_info -l does not list tcp with its version")


def require_tcp(done, blocks, types):
    """Entries of tcp itself are right; `tcp;ofi_rxm`, which another library may list too, is not looked at."""
    blocks = [block for block in blocks if ";" not in block["provider"]]
    if not done.success or not blocks:
        raise Failed(f"fi_info: {done.ending}{done.telling_line()}")
    interfaces = {entry.name for entry in Path("/sys/class/net").iterdir()}
    for block in blocks:
        kind = block.get("type")
        if block["provider"] != "tcp" or kind not in types or block.get("protocol") not in PROTOCOLS[kind]:
            raise Failed(f"a wrong entry: {block}")
        if block.get("domain") not in interfaces or not re.search(r"/\d+$", block.get("fabric", "")):
            raise Failed(f"domain is not an interface, or fabric is not a network: {block}")
    if found := types - {block["type"] for block in blocks}:
        raise Failed(f"no entry of {found}")
    if not any(block["domain"] == "lo" for block in blocks):
        raise Failed("no entry for the loopback interface")


def info_tcp(bench):
    require_tcp(*fi_info(bench, "-p", "tcp"), {"FI_EP_MSG", "FI_EP_RDM"})


def info_msg(bench):
    require_tcp(*fi_info(bench, "-p", "tcp", "-t", "FI_EP_MSG"), {"FI_EP_MSG"})


def info_rdm(bench):
    require_tcp(*fi_info(bench, "-p", "tcp", "-t", "FI_EP_RDM", "-c", "FI_TAGGED|FI_MSG"), {"FI_EP_RDM"})


def info_verbose(bench):
    done, _ = fi_info(bench, "-p", "tcp", "-v")
    text = done.output
    if missing := [name for name in VERBOSE if not re.search(rf"^ +{name}: \S", text, re.M)]:
        raise Failed(f"fi_info -v does not show {', '.join(missing)}")
    if "src_addr: fi_sockaddr_in://127.0.0.1:0" not in text or "prov_name: tcp" not in text:
        raise Failed("fi_info -v does not show the loopback address or the provider's name")


def info_refused(bench):
    done, _ = fi_info(bench, "-p", "tcp", "-t", "FI_EP_DGRAM")
    if done.status != FI_ENODATA:
        raise Failed(f"tcp has no datagram endpoints, but: {done.ending}{done.telling_line()}")


def info_excluded(bench):
    done, _ = fi_info(bench, "-p", "tcp", FI_PROVIDER="^tcp")
    if done.status != FI_ENODATA:
        raise Failed(f"FI_PROVIDER=^tcp leaves tcp in: {done.ending}{done.telling_line()}")


def info_variables(bench):
    done, _ = fi_info(bench, "-e")
    if missing := [name for name in VARIABLES if not re.search(rf"^# {name}: ", done.output, re.M)]:
        raise Failed(f"fi_info -e does not show {', '.join(missing)}")


def info_version(bench):
    done, _ = fi_info(bench, "--version")
    if not re.search(r"^libfabric: 2\.\d+\.\d+", done.output, re.M):
        raise Failed(f"no version of libfabric 2 in: {done.output!r}")


def strerror(bench):
    witness = Witness(bench)
    said = bench.succeed(["fi_strerror", str(FI_ENODATA)], 120, bench.environment(**witness.environment))
    witness.require("fi_strerror", 1)
    if "No data available" not in said:
        raise Failed(f"fi_strerror {FI_ENODATA} says {said!r}")


def pingpong(node, flags, rounds):
    """A case: server and client with one set of flags, every size, data verified by both."""

    def body(bench):
        witness = Witness(bench)
        ping(bench, "tcp", node, flags, rounds, bench.environment(**witness.environment))
        witness.require("fi_pingpong", 2)

    return body


def packets(sides, flags):
    """A case: fi_pingpong on `tcp;ofi_rxm`; both sides, or only one, have our library, the other Debian's own."""

    def body(bench):
        witness = Witness(bench)
        ours, theirs = bench.environment(**witness.environment), process.clean_environment()
        ping(bench, "tcp;ofi_rxm", "127.0.0.1", ["-e", "rdm", *flags], 10,
             theirs if sides == "client" else ours, theirs if sides == "server" else ours)
        witness.require("fi_pingpong", 2 if sides == "both" else 1)

    return body


def ping(bench, provider, node, flags, rounds, environment, clients=None):
    """Runs server and client of fi_pingpong on a provider, which must both verify all sizes.

    The client has the same environment, if it is not given one of its own.
    """
    port = free_port()
    command = ["fi_pingpong", "-p", provider, *flags, "-S", "all", "-c", "-I", str(rounds)]
    output = bench.scratch / "server"
    with open(output, "wb") as sink:
        server = process.start([*command, "-B", port], environment, bench.scratch, stdin=subprocess.DEVNULL,
                               stdout=sink, stderr=subprocess.STDOUT)
    wait_for_listener(port, server)
    client = bench.run([*command, "-P", port, node], 600, clients or environment, beside=[server])
    try:
        status = server.wait(60 if client.success else 1)
    except subprocess.TimeoutExpired:
        status = None
    process.end_all()
    said = output.read_text(errors="replace")
    with open(bench.log, "a", encoding="utf-8") as log:
        log.write(f"server: exit status {status}\n{said}")
    if not client.success or status != 0:
        raise Failed(f"client: {client.ending}{client.telling_line()}; server: exit status {status}")
    for side, text in (("client", client.output), ("server", said)):
        if not re.search(rf"^4m +{rounds} +={rounds} ", text, re.M):
            raise Failed(f"the {side} did not report its messages of 4 MiB")


def wait_for_listener(port, server, tables=Path("/proc/net")):
    """Until something listens on `port`, in the network whose `tables` these are."""
    listening = re.compile(rf":{port:04X} \S+ 0A ")
    limit = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < limit:
        if any(listening.search((tables / table).read_text()) for table in ("tcp", "tcp6")):
            return
        time.sleep(0.02)
    raise Failed("the server of fi_pingpong does not listen")
