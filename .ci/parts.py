#!/usr/bin/env python3
"""Runs targets of the Makefile and sums up what they tested.

Without arguments these are all tests. A failed part does not stop the others. What failed is told again at the end. The last line is `N passed, N failed`;
the exit code is 0 only if something passed and nothing failed. With `--brief` tests that pass are counted and not named.
"""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from counts import Counter, Counts
from failures import Failures

# Quick ones first.
ALL = ("lint", "test-scripts", "test-runtime", "test-unit", "test-chart", "test-brokers", "test-scenarios", "test-real")
# Of these one at a time runs beside the others: they occupy one processor and time nothing. What they print comes when they have ended.
BESIDE = {"test-scripts", "test-runtime", "test-chart"}
# A test that passed, how long a scenario took, and what cargo builds.
PASSING = re.compile(rb"^(test \S+ \.\.\. (ok|ignored.*)|test \S+ has been running .*| +[0-9.]+ s  \S+| +(Compiling|Checking|Download\w+) .*)$")


class Part(NamedTuple):
    name: str
    counts: Counts
    seconds: float
    note: str


def show(chunk):
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


class Runner:
    """Runs parts, and ends with them: a signal that would end us ends them first."""

    def __init__(self, brief=False):
        self.brief = brief
        self.failures = {}
        self.children = set()
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_):
        for child in list(self.children):
            child.terminate()
        raise KeyboardInterrupt

    def run(self, name, show):
        # An outer make would hand its job server and its variables to the inner one.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        started = time.monotonic()
        counter, failures = Counter(), Failures()
        command = ["make", "--no-print-directory", name]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        self.children.add(child)
        try:
            show(b"\n== %s\n" % name.encode())
            self.stream(child.stdout, (counter, failures), show)
            code = child.wait()
        except KeyboardInterrupt:
            child.wait()  # it got the signal, too, and ends what it started
            raise
        finally:
            self.children.discard(child)
        self.failures.update(failures.told)
        counts, note = verdict(counter.counts, code, counter.excused)
        return Part(name, counts, time.monotonic() - started, note)

    def stream(self, pipe, readers, show):
        """Shows output as it comes, dots without a line end included, and has whole lines read."""

        def whole(line):
            if self.brief and not PASSING.match(line):
                show(line + b"\n")
            for reader in readers:
                reader.line(line.decode(errors="replace"))

        rest = b""
        while chunk := os.read(pipe.fileno(), 65536):
            if not self.brief:
                show(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                whole(line)
        if rest:
            whole(rest)

    def run_quietly(self, name):
        """The part, and what it printed."""
        output = bytearray()
        return self.run(name, output.extend), output




def verdict(counts, code, excused):
    """A part that broke before its tests could fail, or ran none without saying why, is a failure of its own."""
    if counts.failed:
        return counts, ""
    if code != 0:
        return counts + Counts(failed=1), "ended with code %d" % code
    if counts.passed == 0 and not excused:
        return counts + Counts(failed=1), "ran no test"
    return counts, ""


def table(parts):
    rows = [("part", "passed", "failed", "skipped", "seconds", "")]
    rows += [(part.name, *map(str, part.counts), "%.0f" % part.seconds, part.note) for part in parts]
    width = max(len(row[0]) for row in rows)
    return "\n".join(("%-*s %7s %7s %8s %8s  %s" % (width, *row)).rstrip() for row in rows)


def run_all(runner, names):
    """The parts in the order of their names."""
    parts, shown = {}, set()
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        beside = {at: pool.submit(runner.run_quietly, name) for at, name in enumerate(names) if name in BESIDE}

        def collect(wanted):
            for at, future in beside.items():
                if at not in shown and wanted(future):
                    parts[at], output = future.result()
                    show(output)
                    shown.add(at)

        for at, name in enumerate(names):
            if at not in beside:
                parts[at] = runner.run(name, show)
                collect(lambda future: future.done())
        collect(lambda _: True)
    finally:
        pool.shutdown(cancel_futures=True)
    return [parts[at] for at in sorted(parts)]


def main(arguments):
    runner = Runner(brief="--brief" in arguments)
    parts = run_all(runner, [name for name in arguments if name != "--brief"] or ALL)
    total = sum((part.counts for part in parts), Counts())
    if runner.failures:
        print("\n== what failed")
        for test, lines in runner.failures.items():
            print("\n-- %s\n%s" % (test, "\n".join(lines)))
    print("\n" + table(parts))
    print("%d passed, %d failed" % (total.passed, total.failed))
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
