"""Files of FI_HOOK=trace, read with the schema that Perfetto publishes."""

from rig import peers
from rig.case import Case, Failed
from rig.peers import HERE

from . import mpich

NAME = "trace"
PROVIDERS = ("shm", "tcp")
RANKS = 4
READER = HERE / "trace" / "read.py"
# Bytes of the longest message; rounds before it.
TRAFFIC = ("4", "262144")


def cases():
    """The hooks perf and trace under an MPI program, and files that are not what they should be."""
    return [Case(f"{NAME}/{provider}", traced(provider)) for provider in PROVIDERS] + [Case(f"{NAME}/damaged", damaged)]


def prepare(bench):
    """Gets the same as `mpich`, and Perfetto's schema."""
    mpich.prepare(bench)
    peers.python_package(bench, mpich.venv, peers.PERFETTO)


def run_traced(bench, provider, ranks):
    """Runs an MPI program under both hooks; returns what perf has counted, and the traces."""
    folder = bench.folder("traces")
    counts = folder / "perf.json"
    hooks = {"FI_HOOK": "perf;trace", "FI_PERF_JSON": "1", "FI_PERF_FILE": str(counts),
             "FI_TRACE_FILE": str(folder / "%p.pftrace")}
    mpich.own("traffic", ranks, TRAFFIC, provider, **hooks)(bench)
    traces = sorted(folder.glob("*.pftrace"))
    if len(traces) != ranks:
        raise Failed(f"{len(traces)} processes have left a trace, not {ranks}")
    return counts, traces


def read(bench, counts, traces):
    """How the reader ends that is given these files."""
    return bench.run([mpich.venv / "bin" / "python3", READER, counts, *traces], 60, bench.environment())


def traced(provider):
    """A case: each process leaves a trace that is sound, and has the operations that perf has counted."""

    def body(bench):
        done = read(bench, *run_traced(bench, provider, RANKS))
        if not done.success or f"{RANKS} traces, " not in done.output:
            raise Failed(f"{done.ending}{done.telling_line()}")

    return body


def damaged(bench):
    """A case: the reader refuses traces that were damaged in every way that it looks for."""
    counts, (one, *others) = run_traced(bench, "shm", 2)
    folder = bench.folder("damaged")
    made = bench.run([mpich.venv / "bin" / "python3", HERE / "trace" / "damage.py", one, folder], 60, bench.environment())
    if not made.success:
        raise Failed(f"damage.py: {made.ending}{made.telling_line()}")
    refused = {copy.name: read(bench, counts, [copy, *others]) for copy in folder.iterdir()}
    if not refused.pop("whole").success:
        raise Failed("the reader refuses a trace that is not damaged")
    refused["none"] = read(bench, counts, others)
    if taken := sorted(name for name, done in refused.items() if done.status != 1 or "Traceback" in done.output):
        raise Failed(f"the reader does not refuse {', '.join(taken)}")
