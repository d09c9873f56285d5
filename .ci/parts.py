#!/usr/bin/env python3
"""Runs targets of the Makefile and sums up what they tested.

Without arguments these are all tests. A failed part does not stop the others. Failures are repeated at the end. The last line is `N passed, N failed`;
the exit code is 0 only if something passed and nothing failed. With `--brief` tests that pass are counted and not named. A part that takes longer
than its limit is ended and counts as failed; ASYA_TEST_MINUTES sets the limit of every part.
"""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from counts import Counter, Counts
from failures import Failures

# Quick ones first.
ALL = ("lint", "test-scripts", "test-runtime", "test-unit", "test-chart", "test-brokers", "test-scenarios", "test-real")
# Waits for brokers more than it computes, as real pods wait for theirs, and times what others slow down: it runs beside what follows this part.
AFTER = {"test-brokers": "test-scenarios"}
# Need another commit to upgrade from, and the files of a release.
BY_HAND = {"test-core", "test-matrix", "test-nightly", "test-upgrade", "test-krew", "test-release"}
# Of these one at a time runs beside the others: they occupy one processor and time nothing. What they print comes when they have ended.
BESIDE = {"test-scripts", "test-runtime", "test-chart", *AFTER}
# Far more than a part needs on a slow machine that builds everything first.
MINUTES = {name: 30 if name in BESIDE else 150 for name in ALL}
# What a part that is ended gets to clean up after itself.
GRACE_SECONDS = 60
# `nohup`, background jobs and some build servers start us with some of these ignored. What ignores them cannot be interrupted, and a shell
# cannot even trap them again.
SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
# A test that passed, how long a scenario took, and what cargo builds.
PASSING = re.compile(rb"^(test \S+ \.\.\. (ok|ignored.*?)( \[\d+/\d+\])?|test \S+ has been running .*| +[0-9.]+ s  \S+| +(Compiling|Checking|Download\w+) .*)$")


class Part(NamedTuple):
    name: str
    counts: Counts
    seconds: float
    note: str


def show(chunk):
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def default_signals():
    """For a process that is started: it can be interrupted, whatever we were started with."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def limit_of(name):
    """Seconds that a part may take."""
    minutes = os.environ.get("ASYA_TEST_MINUTES")
    return 60 * (float(minutes) if minutes else MINUTES.get(name, max(MINUTES.values())))


class Running:
    """A part that runs, with all the processes of its session, and the end of its time."""

    def __init__(self, name):
        # An outer make would hand its job server and its variables to the inner one.
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        # A session of its own: all of it can be ended at once.
        self.child = subprocess.Popen(
            ["make", "--no-print-directory", name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
            start_new_session=True, preexec_fn=default_signals,
        )
        self.limit = limit_of(name)
        self.end = time.monotonic() + self.limit
        self.ends = [signal.SIGKILL, signal.SIGTERM]
        self.note = ""

    def send(self, number):
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass

    def chunks(self):
        """What it prints, as it comes. Ends with the part, or when its time is over and it was given another to end by itself."""
        pipe = self.child.stdout
        while True:
            left = self.end - time.monotonic()
            if left > 0 and select.select([pipe], [], [], left)[0]:
                chunk = os.read(pipe.fileno(), 65536)
                if not chunk:
                    return
                yield chunk
            elif left <= 0:
                if not self.ends:
                    return  # something that left the session still has the pipe
                self.note = "ended after its limit of %g minutes" % (self.limit / 60)
                number = self.ends.pop()
                self.send(number)
                self.end = time.monotonic() + (GRACE_SECONDS if number == signal.SIGTERM else 1)


class Runner:
    """Runs parts, and ends with them: a signal that would end us ends them first."""

    def __init__(self, brief=False):
        self.brief = brief
        self.failures = {}
        self.running = set()
        self.stopped = False
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self.stop)

    def stop(self, number, _):
        self.stopped = True
        for part in list(self.running):
            part.send(number)
        raise KeyboardInterrupt

    def run(self, name, show, step=""):
        if self.stopped:
            raise KeyboardInterrupt
        started = time.monotonic()
        counter, failures = Counter(), Failures()
        part = Running(name)
        self.running.add(part)
        try:
            show(b"\n== %s%s\n" % (step.encode(), name.encode()))
            self.stream(part.chunks(), (counter, failures), show)
            code = part.child.wait()
        except KeyboardInterrupt:
            part.child.wait()  # it got the signal, too, and ends what it started
            raise
        finally:
            self.running.discard(part)
            part.child.stdout.close()
        self.failures.update(failures.outputs)
        counts, note = verdict(counter.counts, code, counter.excused)
        if part.note:
            counts, note = counts + Counts(failed=0 if counts.failed else 1), part.note
        return Part(name, counts, time.monotonic() - started, note)

    def stream(self, chunks, readers, show):
        """Shows output as it comes, dots without a line end included, and has whole lines read."""

        def whole(line):
            if self.brief and not PASSING.match(line):
                show(line + b"\n")
            for reader in readers:
                reader.line(line.decode(errors="replace"))

        rest = b""
        for chunk in chunks:
            if not self.brief:
                show(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                whole(line)
        if rest:
            whole(rest)

    def run_quietly(self, name, step=""):
        """The part, and what it printed."""
        output = bytearray()
        return self.run(name, output.extend, step), output


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


def free_gigabytes():
    """What the disk of the work tree has left: a build without space fails in ways that name everything else."""
    return shutil.disk_usage(".").free / 1e9


def run_all(runner, names):
    """The parts in the order of their names."""
    parts, shown = {}, set()
    over = {name: threading.Event() for name in names}
    steps = ["[%d/%d] " % (at, len(names)) for at in range(1, len(names) + 1)]
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        def run_beside(at, name):
            earlier = over.get(AFTER.get(name))
            if earlier:
                earlier.wait()
            return runner.run_quietly(name, steps[at])

        beside = {at: pool.submit(run_beside, at, name) for at, name in enumerate(names) if name in BESIDE}

        def collect(wanted):
            for at, future in beside.items():
                if at not in shown and wanted(future):
                    parts[at], output = future.result()
                    show(output)
                    shown.add(at)

        for at, name in enumerate(names):
            if at not in beside:
                parts[at] = runner.run(name, show, steps[at])
                over[name].set()
                collect(lambda future: future.done())
        collect(lambda _: True)
    finally:
        for event in over.values():
            event.set()
        pool.shutdown(cancel_futures=True)
    return [parts[at] for at in sorted(parts)]


def summary(parts, note=""):
    """Prints a table and the sum, and returns the exit code: something passed and nothing failed."""
    total = sum((part.counts for part in parts), Counts())
    print("\n%s\n%s%d passed, %d failed" % (table(parts), note, total.passed, total.failed))
    return 0 if total.passed and not total.failed else 1


def main(arguments):
    runner = Runner(brief="--brief" in arguments)
    free = free_gigabytes()
    parts = run_all(runner, [name for name in arguments if name != "--brief"] or ALL)
    if runner.failures:
        print("\n== what failed")
        for test, lines in runner.failures.items():
            print("\n-- %s\n%s" % (test, "\n".join(lines)))
    return summary(parts, "disk: %.1f GB free before, %.1f GB after\n" % (free, free_gigabytes()))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
