#!/usr/bin/env python3
"""Runs targets of the Makefile one after the other and sums up what they tested.

Without arguments these are all tests. A failed part does not stop the others. The last line is `N passed, N failed`; the exit code is 0 only if something
passed and nothing failed.
"""

import os
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from counts import Counter, Counts


# Quick ones first.
ALL = ("lint", "test-scripts", "test-runtime", "test-unit", "test-chart", "test-brokers", "test-scenarios")


class Part(NamedTuple):
    name: str
    counts: Counts
    seconds: float
    note: str


def run(name, command=("make", "--no-print-directory")):
    # An outer make would hand its job server and its variables to the inner one.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    started = time.monotonic()
    counter = Counter()
    child = subprocess.Popen([*command, name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    stop = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        stream(child.stdout, counter)
        code = child.wait()
    except KeyboardInterrupt:
        child.wait()  # it got the signal, too, and ends what it started
        raise
    finally:
        signal.signal(signal.SIGTERM, stop)
    counts, note = verdict(counter.counts, code)
    return Part(name, counts, time.monotonic() - started, note)


def stream(pipe, counter):
    """Shows output as it comes, dots without a line end included, and counts whole lines."""
    rest = b""
    while chunk := os.read(pipe.fileno(), 65536):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            counter.line(line.decode(errors="replace"))
    counter.line(rest.decode(errors="replace"))


def verdict(counts, code):
    """A part that broke before its tests could fail, or ran none, is a failure of its own."""
    if counts.failed:
        return counts, ""
    if code != 0:
        return counts + Counts(failed=1), "ended with code %d" % code
    if counts.passed == 0:
        return counts + Counts(failed=1), "ran no test"
    return counts, ""


def table(parts):
    rows = [("part", "passed", "failed", "skipped", "seconds", "")]
    rows += [(part.name, *map(str, part.counts), "%.0f" % part.seconds, part.note) for part in parts]
    width = max(len(row[0]) for row in rows)
    return "\n".join(("%-*s %7s %7s %8s %8s  %s" % (width, *row)).rstrip() for row in rows)


def main(names):
    parts = []
    for name in names:
        print("\n== %s" % name, flush=True)
        parts.append(run(name))
    total = sum((part.counts for part in parts), Counts())
    print("\n" + table(parts))
    print("%d passed, %d failed" % (total.passed, total.failed))
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:] or ALL))
    except KeyboardInterrupt:
        sys.exit(130)
