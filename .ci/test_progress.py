"""Tests of progress.py."""

import pathlib
import subprocess
import sys
import unittest

from counts import Counter

PROGRAM = pathlib.Path(__file__).parent / "progress.py"
OUTPUT = """
running 3 tests
test a::one ... ok
test a::two has been running for over 60 seconds
test a::three ... ignored, takes its time
test a::two ... FAILED
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
"""


def run(script):
    return subprocess.run([sys.executable, PROGRAM, "sh", "-c", script], capture_output=True, text=True, check=False)


class Progress(unittest.TestCase):
    def test_results_are_numbered_and_waiting_tests_are_not_called_long(self):
        done = run("printf '%s'; exit 7" % OUTPUT.replace("\n", "\\n"))
        self.assertEqual(done.returncode, 7)
        lines = done.stdout.splitlines()
        self.assertIn("test a::one ... ok [1/3]", lines)
        self.assertIn("test a::two ... FAILED [3/3]", lines)
        self.assertNotIn("has been running", done.stdout)

    def test_numbered_results_are_counted_as_before(self):
        counter = Counter()
        for line in run("printf '%s'" % OUTPUT.replace("\n", "\\n")).stdout.splitlines():
            counter.line(line)
        self.assertEqual((counter.counts.passed, counter.counts.failed), (1, 1))

    def test_command_that_a_signal_ends_fails(self):
        self.assertEqual(run("kill -TERM $$").returncode, 143)


if __name__ == "__main__":
    unittest.main()
