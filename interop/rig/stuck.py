"""What programs were doing when their time was over: what the log of a case needs to find the cause of a hang."""

import shutil
import subprocess
from pathlib import Path

# Seconds for all that is asked of one process.
PATIENCE = 20


def report(pids, tool):
    """A text on each of these processes: its state, what `ripstop why` says of it, and where gdb, if here, finds its threads."""
    return "".join(one(pid, tool) for pid in sorted(pids))


def one(pid, tool):
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")[:200]
        threads = [f"  thread {task.name}: {(task / 'stat').read_text(errors='replace').rpartition(')')[2].split()[0]}"
                   f" in {(task / 'wchan').read_text(errors='replace')}" for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return ""
    lines = [f"--- process {pid} when its time was over: {command}", *threads]
    if "libfabric" in mapped(pid):
        lines.append(said([tool, "why", str(pid)]))
        if gdb := shutil.which("gdb"):
            lines.append(said([gdb, "-p", str(pid), "-batch", "-nx", "-ex", "set pagination off", "-ex", "thread apply all bt 40"]))
    return "\n".join(lines) + "\n"


def mapped(pid):
    try:
        return Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return ""


def said(command):
    try:
        return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=PATIENCE).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as why:
        return f"{command[0]}: {why}"
