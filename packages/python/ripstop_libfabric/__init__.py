"""Where Ripstop's libfabric.so.1 is, and its tools as commands.

Nothing is loaded by importing this module: a program takes the library if `lib_dir()` is in `LD_LIBRARY_PATH` when it starts.
"""

import os
import sys
from pathlib import Path

_HOME = Path(__file__).resolve().parent


def lib_dir():
    """The folder with libfabric.so.1 and nothing else that a program could load by mistake: for LD_LIBRARY_PATH."""
    return str(_HOME / "lib")


def library():
    """The file itself: for LD_PRELOAD, or ctypes.CDLL."""
    return str(_HOME / "lib" / "libfabric.so.1")


def provider_dir():
    """The folder with the providers ripstop_tcp and ripstop_shm for a C libfabric: for FI_PROVIDER_PATH."""
    return str(_HOME / "lib" / "libfabric")


def _start(name):
    """Becomes the tool of this name: one executable is all of them, and its name says which."""
    os.execv(_HOME / "bin" / "ripstop", [name, *sys.argv[1:]])


def ripstop():
    """The command `ripstop`."""
    _start("ripstop")


def fi_info():
    """The command `fi_info`."""
    _start("fi_info")


def fi_pingpong():
    """The command `fi_pingpong`."""
    _start("fi_pingpong")


def fi_strerror():
    """The command `fi_strerror`."""
    _start("fi_strerror")
