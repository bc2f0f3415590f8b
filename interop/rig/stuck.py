"""What programs were doing when their time was over: what the log of a case needs to find the cause of a hang."""

import shutil
import subprocess
import time
from pathlib import Path

from . import process

# Seconds for one command that is asked of a process, and for all commands of a report.
EACH, ALL = 20.0, 90.0


def report(pids, tool):
    """A text on each of these processes: the state of its threads, and as far as the time goes what `ripstop why` (`tool`)
    says of it, and the stacks that gdb, if it is installed, finds."""
    end = time.monotonic() + ALL
    return "".join(one(pid, tool, end) for pid in sorted(pids))


def one(pid, tool, end):
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")[:200]
        threads = [f"  thread {task.name}: {(task / 'stat').read_text(errors='replace').rpartition(')')[2].split()[0]}"
                   f" in {(task / 'wchan').read_text(errors='replace')}" for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return ""
    lines = [f"{process.LEFT} {pid} when its time was over: {command}", *threads]
    if "libfabric" in mapped(pid):
        lines.append(said([tool, "why", pid], end))
        if gdb := shutil.which("gdb"):
            lines.append(said([gdb, "-p", pid, "-batch", "-nx", "-ex", "thread apply all bt 40"], end))
    return "\n".join(lines) + "\n"


def mapped(pid):
    """The files that a process has mapped, and more; nothing if it has gone."""
    try:
        return Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return ""


def said(command, end):
    """What a command printed, or why it did not."""
    seconds = min(EACH, end - time.monotonic())
    if seconds <= 0:
        return f"{command[0]}: not asked, for want of time"
    try:
        return subprocess.run([str(word) for word in command], env=process.clean_environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as why:
        return f"{command[0]}: {why}"
