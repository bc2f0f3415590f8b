"""Mercury's own tests over tcp, tcp;ofi_rxm and shm. Somebody has built it: RIPSTOP_MERCURY names the build folder."""

import re

from rig import ctest, place
from rig.case import Case, Failed
from rig.library import Witness

NAME = "mercury"
OUTSIDE = "RIPSTOP_MERCURY"
OUTSIDE_IS = "a folder in which Mercury 2.4 was built with NA_USE_OFI, BUILD_TESTING and NA_OFI_TESTING_PROTOCOL=tcp;tcp_rxm;shm"

# Seconds of a test.
SECONDS = 60


def cases():
    """One for each test: requests, bulk transfers, a server that ends. Those with `self` in their names have no server."""
    return [Case(f"{NAME}/{test}", run(test)) for test in tests()]


def tests():
    home = place.outside(OUTSIDE)
    listed = home / "Testing" / "unit" / "hg" / "CTestTestfile.cmake" if home else None
    if listed is None or not listed.is_file():
        return []
    return sorted(re.findall(r"^add_test\(mercury_(\w+_ofi_\w+) ", listed.read_text(), re.MULTILINE))


def prepare(bench):
    """The tests are there, and what runs them."""
    if not tests():
        raise Failed(f"{OUTSIDE}={place.outside(OUTSIDE)} has no tests over OFI: see Testing/unit/hg there")
    ctest.require("Mercury")


def run(test):
    """A case: the test ends well, and its processes used the library."""

    def body(bench):
        witness = Witness(bench)
        environment = bench.environment(**witness.environment)
        ctest.succeed(bench, place.outside(OUTSIDE), f"mercury_{test}", SECONDS, environment)
        # Most tests are two or three runs of the same programs.
        witness.require(f"hg_test_{test.split('_')[0]}", 1, or_more=True)
        if not test.endswith("_self"):
            witness.require("hg_test_server", 1, or_more=True)

    return body
