"""Where the library under test and what is kept between runs are."""

import os
from pathlib import Path

from .peers import HERE


def target_dir():
    return Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parent / "target")


def our_library():
    return Path(os.environ.get("RIPSTOP_DIST") or target_dir() / "dist") / "lib"


def outside(variable):
    """What was built outside of the project, if the variable says where."""
    return Path(os.environ[variable]).resolve() if os.environ.get(variable) else None
