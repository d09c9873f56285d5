#!/usr/bin/env python3
"""Runs targets of the Makefile and sums up what they tested.

Without arguments these are all tests. A failed part does not stop the others. The last line is `N passed, N failed`; the exit code is 0 only if something
passed and nothing failed.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from counts import Counter, Counts


# Quick ones first.
ALL = ("lint", "test-scripts", "test-runtime", "test-unit", "test-chart", "test-brokers", "test-scenarios", "test-real")
# Of these one at a time runs beside the others: they occupy one processor and time nothing. What they print comes when they have ended.
BESIDE = {"test-scripts", "test-runtime", "test-chart"}


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

    def __init__(self):
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
        counter = Counter()
        command = ["make", "--no-print-directory", name]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        self.children.add(child)
        try:
            show(b"\n== %s\n" % name.encode())
            stream(child.stdout, counter, show)
            code = child.wait()
        except KeyboardInterrupt:
            child.wait()  # it got the signal, too, and ends what it started
            raise
        finally:
            self.children.discard(child)
        counts, note = verdict(counter.counts, code, counter.excused)
        return Part(name, counts, time.monotonic() - started, note)

    def run_quietly(self, name):
        """The part, and what it printed."""
        output = bytearray()
        return self.run(name, output.extend), output


def stream(pipe, counter, show):
    """Shows output as it comes, dots without a line end included, and counts whole lines."""
    rest = b""
    while chunk := os.read(pipe.fileno(), 65536):
        show(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            counter.line(line.decode(errors="replace"))
    counter.line(rest.decode(errors="replace"))


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


def run_all(names):
    """The parts in the order of their names."""
    runner, parts, shown = Runner(), {}, set()
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


def main(names):
    parts = run_all(names)
    total = sum((part.counts for part in parts), Counts())
    print("\n" + table(parts))
    print("%d passed, %d failed" % (total.passed, total.failed))
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:] or ALL))
    except KeyboardInterrupt:
        sys.exit(130)
