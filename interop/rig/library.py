"""The libfabric.so.1 under test, and the proof that a program loaded it."""

import re
from pathlib import Path

from .case import Failed

SONAME = "libfabric.so.1"


class Library:
    """One libfabric.so.1, staged alone in a folder so that LD_LIBRARY_PATH exchanges nothing else."""

    def __init__(self, path):
        self.path = path
        self.staged = None

    @classmethod
    def find(cls, place):
        """In the folder `place`, or in its `lib`."""
        for path in (place / SONAME, place / "lib" / SONAME):
            if path.is_file():
                return cls(path.resolve())
        return None

    def stage(self, folder):
        folder.mkdir()
        (folder / SONAME).symlink_to(self.path)
        self.staged = folder

    @property
    def tool(self):
        """The program `ripstop` beside this library, if it is ours."""
        return self.path.parent.parent / "bin" / "ripstop"

    def is_at(self, path):
        return Path(path).resolve() == self.path


class Witness:
    """Has the dynamic linker write down what each process loads, one file per process."""

    def __init__(self, bench):
        self.library = bench.library
        self.folder = bench.folder("witness")

    @property
    def environment(self):
        return {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(self.folder / "of")}

    def require(self, program, count, or_more=False):
        """Each of `count` processes of `program` loaded the library under test, and no process another one.

        With `or_more` there may be more of them than `count`.
        """
        proven = 0
        for record in self.folder.iterdir():
            text = record.read_text(errors="replace")
            names = re.findall(r"initialize program: (\S+)", text)
            loaded = set(re.findall(r"calling init: (\S*/libfabric\.so\S*)", text))
            for path in loaded:
                if not self.library.is_at(path):
                    raise Failed(f"{names[-1]} loaded {path} instead of {self.library.path}")
            if loaded and Path(names[-1]).name == program:
                proven += 1
        if proven != count and not (or_more and proven > count):
            raise Failed(f"{proven} processes of {program} loaded {self.library.path}, not {count}")
