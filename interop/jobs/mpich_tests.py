"""MPICH's own tests, its folder test/mpi, over tcp and shm. Somebody has built them: RIPSTOP_MPICH_TESTS names the folder."""

import re

from rig import place
from rig.case import Case, Failed, Missing
from rig.library import Witness

from . import mpich

NAME = "mpich-tests"
OUTSIDE = "RIPSTOP_MPICH_TESTS"
OUTSIDE_IS = "a built test/mpi of MPICH 5"
PROVIDERS = ("tcp", "shm")
FOLDERS = ("pt2pt", "datatype", "coll", "rma", "comm", "threads", "group", "topo", "part", "session", "spawn")

# As MPICH's own runner has it where a line does not say its own: seconds, and GiB that a test may need.
SECONDS, MEMORY = 180, 4.0

# Lines that are no fault in a test whose line allows warnings.
WARNING = re.compile(r"^(MPICH: |WARNING: |(Abort.*)?application called MPI_Abort)")

# Where a test says itself that it has nothing to do here.
NOTHING_TO_DO = re.compile(r"^\s*Test Skipped\s*$", re.M)


def cases():
    """One for each program of the lists; it passes if it does with each of its settings."""
    if not (tree := place.outside(OUTSIDE)):
        return []
    return [Case(f"{NAME}/{provider}/{name}", program(tree, provider, name, lines))
            for provider in PROVIDERS for folder in FOLDERS for name, lines in programs(tree, folder).items()]


def programs(tree, folder):
    """The lines of each program in the list of a folder, and of the folders that the list names."""
    found = {}
    try:
        text = (tree / folder / "testlist").read_text(encoding="utf-8")
    except OSError:
        return found
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        if (tree / folder / words[0]).is_dir():
            found |= programs(tree, f"{folder}/{words[0]}")
        else:
            found.setdefault(f"{folder}/{words[0]}", []).append(words[1:])
    return found


def prepare(bench):
    """The launcher is that of the job `mpich`."""
    mpich.prepare(bench)
    tree = place.outside(OUTSIDE)
    if not any(programs(tree, folder) for folder in FOLDERS):
        raise Failed(f"{OUTSIDE}={tree} has none of the lists of {', '.join(FOLDERS)}")


def program(tree, provider, name, lines):
    """A case: the program with each of its settings."""

    def body(bench):
        tried = 0
        for words in lines:
            tried += once(bench, tree / name, provider, words)
        if not tried:
            raise Missing("MPICH expects it to fail, or it has nothing to do here, or needs more memory than MPICH's limit")

    return body


def once(bench, path, provider, words):
    """Runs a program with the settings of one line, and says if there was something to run."""
    ranks, settings = (int(words[0]), words[1:]) if words and words[0].isdigit() else (2, words)
    arguments, environment, options = [], {}, {}
    for word in settings:
        key, _, value = word.partition("=")
        if key == "arg":
            arguments.append(value)
        elif key == "env":
            name, _, setting = value.partition("=")
            environment[name] = setting
        elif key in ("timeLimit", "resultTest", "mem", "xfail", "strict", "lock"):
            options[key] = value
        else:
            raise Failed(f"the list says {word}, and what that means is not known here")
    if "xfail" in options or float(options.get("mem", 0)) > MEMORY:
        return 0
    witness = Witness(bench)
    # Their output counts, so MPICH is not asked which provider it took: there is no other one to take.
    settings = {"MPIR_CVAR_DEBUG_SUMMARY": "0", **environment, **witness.environment}
    seconds = int(options.get("timeLimit", SECONDS))
    # Some start others by a name in their folder.
    done = mpich.attempt(bench, ranks, [path, *arguments], seconds, provider, folder=path.parent, **settings)
    said = [line for line in done.output.splitlines() if line.strip()]
    if NOTHING_TO_DO.search(done.output):
        return 0
    result = options.get("resultTest")
    if result == "TestAllowWarnings":
        said = [line for line in said if not WARNING.match(line)]
    elif result:
        raise Failed(f"the list says resultTest={result}, and what that means is not known here")
    if not done.success or [line.strip().lower() for line in said] != ["no errors"]:
        raise Failed(f"{' '.join([path.name, *words])}: {done.ending}{done.telling_line()}")
    witness.require(path.name, ranks, or_more=True)
    return 1
