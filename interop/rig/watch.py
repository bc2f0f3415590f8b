"""What `ripstop top` and `ripstop why` say of a process; they run beside the library under test."""

import json
import subprocess

from . import process
from .case import Missing


def require_tool(bench):
    """The tools are there."""
    if not bench.library.tool.is_file():
        raise Missing(f"there is no {bench.library.tool}")


def shown(bench, pid, *command):
    """What a command such as `why --json` says of a process; nothing while that shows nothing."""
    asked = process.start([bench.library.tool, *command, pid], process.clean_environment(), bench.scratch,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    said = asked.communicate()[0]
    return json.loads(said) if asked.returncode == 0 else None
