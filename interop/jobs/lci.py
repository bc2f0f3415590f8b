"""LCI's own tests over tcp and shm. Somebody has built it: RIPSTOP_LCI names the build folder."""

import re

from rig import ctest, place
from rig.case import Case, Failed
from rig.library import Witness

NAME = "lci"
OUTSIDE = "RIPSTOP_LCI"
OUTSIDE_IS = "a folder in which LCI was built by CMake with LCI_NETWORK_BACKENDS=ofi"
PROVIDERS = ("tcp", "shm")

# Kills one of three processes; it asks for tcp itself.
FAILURE = "test-resilience-process-failure"

# Of how LCI's processes find each other; they open nothing.
NOT_OVER_OFI = re.compile(r"_pmi")

# Seconds of a test.
SECONDS = 120


def cases():
    """One for each test."""
    return [Case(f"{NAME}/{provider}/{test.removeprefix('test-')}", run(test, provider))
            for provider in PROVIDERS for test in tests() if test != FAILURE or provider == "tcp"]


def tests():
    home = place.outside(OUTSIDE)
    listed = home.glob("**/CTestTestfile.cmake") if home else []
    text = "".join(path.read_text() for path in listed)
    names = set(re.findall(r"^add_test\(\"?(test-[\w-]+)", text, re.MULTILINE))
    return sorted(name for name in names if not NOT_OVER_OFI.search(name))


def prepare(bench):
    """The tests are there, and what runs them."""
    if not tests():
        raise Failed(f"{OUTSIDE}={place.outside(OUTSIDE)} has no tests: build LCI with LCI_WITH_TESTS")
    ctest.require("LCI")


def run(test, provider):
    """A case: the test ends well, and its processes used the library."""

    def body(bench):
        witness = Witness(bench)
        environment = bench.environment(**witness.environment, FI_PROVIDER=provider, TMPDIR=str(bench.scratch))
        ctest.succeed(bench, place.outside(OUTSIDE), test, SECONDS, environment)
        # Tests of one kind are runs of one program with more and more processes.
        witness.require(f"lci_{re.sub(r'-[0-9]+$', '', test)}", 1, or_more=True)

    return body
