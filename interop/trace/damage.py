#!/usr/bin/env python3
"""Writes damaged copies of a trace, each of which read.py must refuse.

    damage.py TRACE FOLDER

Each copy is a file in FOLDER, which is named after its damage.
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True

import read  # noqa: E402

Event = read.Event


def first(trace, kind):
    """The place of the first event of a kind."""
    return next(at for at, packet in enumerate(trace.packet)
                if packet.HasField("track_event") and packet.track_event.type == kind)


def lose(kind):
    """One event is missing."""

    def change(trace):
        del trace.packet[first(trace, kind)]

    return change


def end_early(trace):
    """The file ends between two packets, in the middle of a slice."""
    del trace.packet[first(trace, Event.TYPE_SLICE_END):]


def go_back(trace):
    """The last event is before all others."""
    trace.packet[-1].timestamp = 1


def change_call(trace):
    """An event is of another call."""
    trace.packet[first(trace, Event.TYPE_SLICE_BEGIN)].track_event.name = "fi_tsendv"


def change_track(trace):
    """An event is of a track that there is not."""
    trace.packet[first(trace, Event.TYPE_SLICE_BEGIN)].track_event.track_uuid = 1


def lose_process(trace):
    """No track is that of the process; each domain has described it."""
    for packet in [packet for packet in trace.packet if packet.track_descriptor.HasField("process")]:
        trace.packet.remove(packet)


CHANGES = {"lost-begin": lose(Event.TYPE_SLICE_BEGIN), "lost-end": lose(Event.TYPE_SLICE_END), "ends-early": end_early,
           "goes-back": go_back, "other-call": change_call, "other-track": change_track, "lost-process": lose_process}


def main():
    path, folder = Path(sys.argv[1]), Path(sys.argv[2])
    for name, change in CHANGES.items():
        trace = read.parsed(path)
        change(trace)
        (folder / name).write_bytes(trace.SerializeToString())
    whole = path.read_bytes()
    (folder / "cut").write_bytes(whole[:-1])
    (folder / "whole").write_bytes(whole)


if __name__ == "__main__":
    main()
