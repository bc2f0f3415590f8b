#!/usr/bin/env python3
"""Reads files of FI_HOOK=trace with the schema that Perfetto publishes (PyPI: perfetto), and compares them with FI_HOOK=perf.

    read.py PERF_JSON TRACE...

The hooks have run together: FI_HOOK='perf;trace' FI_PERF_JSON=1 FI_PERF_FILE=PERF_JSON FI_TRACE_FILE=...%p... Each process
has one file. Every slice must end, none of a track overlap, and times rise; of each call there are as many events as perf
counts, and at most so many more as it counts refused ones. Ends with a line of what was read; the exit status is 0 when all of
it holds.
"""

import collections
import json
import re
import sys

from google.protobuf.message import DecodeError
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

Event = schema.TrackEvent

# The calls that are operations: perf counts all others as well, and trace has no events of them.
OPERATION = re.compile(r"fi_(t?send|t?recv|t?inject|read|write|atomic|fetch_atomic|compare_atomic|barrier|broadcast|"
                       r"alltoall|allreduce|allgather|reduce|scatter|gather)")
# Asks whether an operation is there.
QUESTION = "valid"


class Wrong(Exception):
    """A trace is not what it should be."""


def parsed(path):
    """The packets of a file."""
    trace = schema.Trace()
    with open(path, "rb") as file:
        try:
            trace.ParseFromString(file.read())
        except DecodeError as why:
            raise Wrong(f"it is no trace: {why}") from None
    return trace


def summed(trace):
    """The process of a trace, and how many events each call has."""
    process, last, tracks, began, counts = None, 0, set(), {}, collections.Counter()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                process = track.process.pid
            elif track.parent_uuid not in tracks:
                raise Wrong(f"track {track.uuid} is below none")
            tracks.add(track.uuid)
            continue
        event = packet.track_event
        if packet.timestamp < last:
            raise Wrong(f"{packet.timestamp} after {last}")
        last = packet.timestamp
        if event.track_uuid not in tracks:
            raise Wrong("an event of no track")
        if event.type == Event.TYPE_SLICE_END:
            if began.pop(event.track_uuid, last) >= last:
                raise Wrong("a slice ends that did not begin before")
            continue
        if event.type not in (Event.TYPE_SLICE_BEGIN, Event.TYPE_INSTANT):
            raise Wrong(f"an event of type {event.type}")
        counts[event.name] += 1
        if event.type == Event.TYPE_SLICE_BEGIN:
            if event.track_uuid in began:
                raise Wrong("two slices of a track overlap")
            began[event.track_uuid] = last
    if began:
        raise Wrong(f"{len(began)} slices do not end")
    if process is None:
        raise Wrong("it names no process")
    return process, counts


def counted(path):
    """For each process and operation: how many perf has counted, and how many were refused."""
    calls = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0]))
    with open(path, encoding="utf-8") as file:
        for line in file:
            table = json.loads(line)
            if table["unlisted"]:
                raise Wrong(f"perf has counted {table['unlisted']} calls in no row")
            for row in table["rows"]:
                if OPERATION.match(row["call"]) and not row["call"].endswith(QUESTION):
                    both = calls[table["process"]][row["call"]]
                    both[0] += row["calls"]
                    both[1] += row["refused"]
    return calls


def compare(counts, calls):
    """Every operation that perf has counted is in the trace, and no other."""
    for call in sorted({*counts, *calls}):
        found = counts[call]
        succeeded, refused = calls.get(call, (0, 0))
        if not succeeded <= found <= succeeded + refused:
            raise Wrong(f"{found} events of {call}, and perf has counted {succeeded} and {refused} refused")


def main():
    perf = counted(sys.argv[1])
    events, processes = 0, set()
    for path in sys.argv[2:]:
        try:
            process, counts = summed(parsed(path))
            if process in processes:
                raise Wrong(f"there is another one of process {process}")
            compare(counts, perf[process])
        except Wrong as why:
            sys.exit(f"{path}: {why}")
        processes.add(process)
        events += counts.total()
    if lacking := {process for process, calls in perf.items() if calls} - processes:
        sys.exit(f"there is no trace of the processes {sorted(lacking)}, which perf has counted operations of")
    if not events:
        sys.exit("there is no event")
    print(f"{len(processes)} traces, {events} events, as perf has counted them")


if __name__ == "__main__":
    main()
