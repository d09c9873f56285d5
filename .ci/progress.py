#!/usr/bin/env python3
"""Runs a test program that starts all of its tests at once: progress.py COMMAND...

The tests wait for their turns (tests/src/turn.rs), so what the test harness says about those that take long means nothing and is left out. Each
result is numbered instead: `test a::b ... ok [3/285]`. Ends as the command does.
"""

import re
import subprocess
import sys

LONG = re.compile(rb"^test \S+ has been running for over \d+ seconds\s*$")
RUNNING = re.compile(rb"^running (\d+) tests?\s*$")
RESULT = re.compile(rb"^test \S+ \.\.\. \S+")


class Progress:
    """Numbers results."""

    def __init__(self):
        self.total = 0
        self.ended = 0

    def line(self, line):
        """What is shown for a line; `None` for nothing."""
        if LONG.match(line):
            return None
        if match := RUNNING.match(line):
            self.total, self.ended = int(match[1]), 0
        elif RESULT.match(line):
            self.ended += 1
            return b"%s [%d/%d]\n" % (line.rstrip(), self.ended, self.total)
        return line


def main(command):
    progress = Progress()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    while True:
        try:
            for line in child.stdout:
                shown = progress.line(line)
                if shown is not None:
                    sys.stdout.buffer.write(shown)
                    sys.stdout.buffer.flush()
            return child.wait()
        except KeyboardInterrupt:
            pass  # the command got the signal, too, and ends what it started


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.exit(code if code >= 0 else 128 - code)
