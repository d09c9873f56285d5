"""Reads how many tests passed from what test programs print."""

import re
from typing import NamedTuple

# cargo:    test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; …
CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;")
# unittest: Ran 73 tests in 33.125s, then OK or FAILED (failures=1, errors=2, skipped=3)
RAN = re.compile(r"^Ran (\d+) tests? in ")
OUTCOME = re.compile(r"^(?:OK|FAILED)(?: \((.*)\))?$")
# ours:     7 passed, 0 failed
OURS = re.compile(r"^(\d+) passed, (\d+) failed$")
# ours:     skipped: real pods need root
SKIPPED = re.compile(r"^skipped: .")


class Counts(NamedTuple):
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other):
        return Counts(*(a + b for a, b in zip(self, other)))


class Counter:
    """Takes lines, and knows the counts of all that has ended so far."""

    def __init__(self):
        self.counts = Counts()
        # Whether the part says why it cannot run here.
        self.excused = False
        self._ran = None

    def line(self, text):
        text = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
        if found := CARGO.match(text):
            self.counts += Counts(*map(int, found.groups()))
        elif found := OURS.match(text):
            self.counts += Counts(*map(int, found.groups()))
        elif SKIPPED.match(text):
            self.counts += Counts(skipped=1)
            self.excused = True
        elif found := RAN.match(text):
            self._ran = int(found[1])
        elif self._ran is not None and (found := OUTCOME.match(text)):
            self._unittest(found[1] or "")

    def _unittest(self, details):
        numbers = dict(each.split("=") for each in details.split(", ") if "=" in each)
        # A test with several failed subtests counts each of them, and a failed setup is no test at all.
        failed = sum(int(numbers.get(key, 0)) for key in ("failures", "errors", "unexpected successes"))
        skipped = int(numbers.get("skipped", 0))
        self.counts += Counts(max(0, self._ran - failed - skipped), failed, skipped)
        self._ran = None
