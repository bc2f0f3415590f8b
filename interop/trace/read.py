#!/usr/bin/env python3
"""Reads files of FI_HOOK=trace with the schema that Perfetto publishes (PyPI: perfetto), and compares them with FI_HOOK=perf.

    read.py PERF_JSON TRACE...

The hooks have run together: FI_HOOK='perf;trace' FI_PERF_JSON=1 FI_PERF_FILE=PERF_JSON FI_TRACE_FILE=...%p... Every slice must end, none
of a track overlap, and times rise; of each call there are as many events as perf counts, and at most so many more as it
counts refused ones. Ends with a line of what was read; the exit status is 0 when all of it holds.
"""

import collections
import json
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

Event = schema.TrackEvent


def read(path):
    """The process of a trace, and how many events each call has."""
    trace = schema.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    process, last, tracks, began, counts = None, 0, set(), {}, collections.Counter()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                process = track.process.pid
            elif track.parent_uuid not in tracks:
                sys.exit(f"{path}: track {track.uuid} is below none")
            tracks.add(track.uuid)
            continue
        event = packet.track_event
        if packet.timestamp < last:
            sys.exit(f"{path}: {packet.timestamp} after {last}")
        last = packet.timestamp
        if event.track_uuid not in tracks:
            sys.exit(f"{path}: an event of no track")
        if event.type == Event.TYPE_SLICE_END:
            if began.pop(event.track_uuid, last) >= last:
                sys.exit(f"{path}: a slice ends that did not begin before")
            continue
        if event.type not in (Event.TYPE_SLICE_BEGIN, Event.TYPE_INSTANT):
            sys.exit(f"{path}: an event of type {event.type}")
        counts[event.name] += 1
        if event.type == Event.TYPE_SLICE_BEGIN and began.setdefault(event.track_uuid, last) != last:
            sys.exit(f"{path}: two slices of a track overlap")
    if began:
        sys.exit(f"{path}: {len(began)} slices do not end")
    return process, counts


def counted(path):
    """For each process and call that moves data: how many perf has counted, and how many were refused."""
    calls = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0]))
    with open(path, encoding="utf-8") as file:
        for line in file:
            table = json.loads(line)
            for row in table["rows"]:
                both = calls[table["process"]][row["call"]]
                both[0] += row["calls"]
                both[1] += row["refused"]
    return calls


def main():
    perf = counted(sys.argv[1])
    events = 0
    for path in sys.argv[2:]:
        process, counts = read(path)
        for call, found in counts.items():
            succeeded, refused = perf[process][call]
            if not succeeded <= found <= succeeded + refused:
                sys.exit(f"{path}: {found} events of {call}, and perf has counted {succeeded} and {refused} refused")
        events += sum(counts.values())
    print(f"{len(sys.argv) - 2} traces, {events} events, as perf has counted them")
    return 0 if events else 1


if __name__ == "__main__":
    sys.exit(main())
