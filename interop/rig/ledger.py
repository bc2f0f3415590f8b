"""What was tried, how it ended, and what had to pass."""

import itertools
import re
import time
import tomllib
import traceback

from .case import Failed, Missing, Unable


# Lines of a failed case's log that are printed where CI is set.
LAST_LINES = 200


class Expected:
    """The committed list: cases that must pass, and cases that cannot, with the reason."""

    def __init__(self, path):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        if not table.get("must"):
            raise ValueError(f"{path} names nothing that must pass")
        self.must = {name for patterns in table["must"].values() for p in patterns for name in expand(p)}
        self.cannot = {name: why for p, why in table.get("cannot", {}).items() for name in expand(p)}

    def complaint(self, name):
        """What is wrong with a case that passed."""
        if name in self.cannot:
            return "passes now: move it to [must] in expected.toml"
        if name not in self.must:
            return "passes, but expected.toml does not name it: add it to [must]"
        return None


def expand(pattern):
    """Every name that `a/{b,c}` stands for."""
    parts = [part.split(",") if n % 2 else [part] for n, part in enumerate(re.split(r"[{}]", pattern))]
    return ["".join(choice) for choice in itertools.product(*parts)]


class Ledger:
    """Prints a line for each case, and counts."""

    def __init__(self, expected, is_ci=False):
        """With `is_ci`, a case that must pass fails for want of something; elsewhere it is skipped."""
        self.expected = expected
        self.is_ci = is_ci
        self.passed = self.failed = self.skipped = 0

    def require_known(self, names, not_built):
        """The list names no case that is not there any more; what jobs have that are `not_built` is not known."""
        if self.expected:
            named = {name for name in {*self.expected.must, *self.expected.cannot} if name.split("/")[0] not in not_built}
            self.require(f"{name}: expected.toml names it, but no job has it" for name in sorted(named - set(names)))

    def require(self, complaints):
        """There is no complaint about the cases as such."""
        for complaint in complaints:
            self.failed += 1
            print(f"FAIL {complaint}", flush=True)

    def run(self, case, bench):
        bench.log = bench.logs / (case.name.replace("/", "-") + ".log")
        bench.log.unlink(missing_ok=True)
        began = time.monotonic()
        try:
            case.body(bench)
        except Missing as why:
            self.lack(case, str(why))
        except Unable as why:
            self.skip(case, str(why))
        except Failed as why:
            self.fail(case, str(why), bench.log)
        except Exception:  # a broken case is a failure of its own, and the others still run
            with open(bench.log, "a", encoding="utf-8") as log:
                log.write(traceback.format_exc())
            self.fail(case, "the script itself failed", bench.log)
        else:
            self.succeed(case, time.monotonic() - began)

    def succeed(self, case, seconds):
        complaint = self.expected and self.expected.complaint(case.name)
        if complaint:
            self.failed += 1
            print(f"FAIL {case.name}: {complaint}", flush=True)
        else:
            self.passed += 1
            print(f"PASS {case.name} ({seconds:.1f})", flush=True)

    def fail(self, case, why, log):
        reason = self.expected and self.expected.cannot.get(case.name)
        if reason:
            self.skip(case, f"known not to work: {reason}")
            return
        self.failed += 1
        print(f"FAIL {case.name}: {why}", flush=True)
        print(f"     log: {log}", flush=True)
        # Where CI is set nobody can open the log later.
        if self.is_ci and log.exists():
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]:
                print(f"     | {line[:300]}", flush=True)

    def lack(self, case, why):
        """Something that is not part of the project cannot be had."""
        if self.is_ci and self.expected and case.name in self.expected.must:
            self.failed += 1
            print(f"FAIL {case.name}: it must pass where CI is set, and cannot run: {why}", flush=True)
        else:
            self.skip(case, why)

    def skip(self, case, why):
        self.skip_all(case.name, why)

    def skip_all(self, name, why):
        self.skipped += 1
        print(f"SKIP {name}: {why}", flush=True)

    def counts(self):
        return [self.passed, self.failed, self.skipped]

    def add(self, counts):
        """Adds what another process counted."""
        self.passed, self.failed, self.skipped = (sum(pair) for pair in zip(self.counts(), counts))

    def close(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed else 0
