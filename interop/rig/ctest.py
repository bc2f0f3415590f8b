"""CMake's test driver, for the tests of programs that somebody has built."""

import shutil

from .case import Failed


def require(program):
    """There is one to run the tests of this program."""
    if not shutil.which("ctest"):
        raise Failed(f"there is no ctest to run {program}'s tests: install cmake")


def succeed(bench, folder, test, seconds, environment):
    """One test of a build folder ends well."""
    command = ["ctest", "--test-dir", folder, "--output-on-failure", "-R", f"^{test}$"]
    bench.succeed(command, seconds, environment)
