"""Work beside other work, each in a process of its own, which ends what it started and nothing else."""

import json
import os
import sys
import traceback

from . import case, process


def beside(works):
    """Runs these functions beside each other; what each returned, or None of one that did not come to its end."""
    sys.stdout.flush()
    lanes = [start(work, number, len(works)) for number, work in enumerate(works)]
    found = []
    for child, said in lanes:
        with os.fdopen(said, encoding="utf-8") as text:
            answer = text.read()
        os.waitpid(child, 0)
        found.append(json.loads(answer) if answer else None)
    return found


def start(work, number, count):
    """Starts one; returns its process, and the pipe that has what it returned when it has ended."""
    said, telling = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child:
        os.close(telling)
        return child, said
    # Nothing of what the parent does at its end is done here.
    status = 1
    try:
        os.close(said)
        process.end_with_us()
        process.adopt_strays()
        case.share_ports(number, count, parent)
        os.write(telling, json.dumps(work()).encode())
        status = 0
    except Exception:  # the parent sees that nothing was returned
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)
