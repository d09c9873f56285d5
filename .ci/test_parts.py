"""Tests of the runner behind `make test`."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import lint
import parts
from counts import Counter, Counts

MAKEFILE = """
good:
\t@echo '3 passed, 0 failed'
bad:
\t@echo '1 passed, 2 failed'; exit 1
broken:
\t@echo 'no such tool' >&2; exit 3
silent:
\t@true
skipping:
\t@echo 'skipped: it needs root'
ignoring:
\t@echo 'test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured'
failing:
\t@printf 'test a::b ... ok\\ntest a::c ... FAILED\\n\\nfailures:\\n\\n---- a::c stdout ----\\nleft: 1\\n\\nfailures:\\n    a::c\\n'
\t@echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured'; exit 1
signals:
\t@grep SigIgn: /proc/self/status; echo '1 passed, 0 failed'
hanging:
\t@echo 'test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured'; sleep 60
escaping:
\t@setsid sleep 60 & trap '' TERM; sleep 60
nested:
\t@echo "$(MAKELEVEL) [$(MAKEFLAGS)]"; echo '1 passed, 0 failed'
"""

# Each waits for the other.
MEETING = """
test-chart:
	@touch beside; for n in $$(seq 50); do test -e main && echo '1 passed, 0 failed' && exit 0; sleep 0.2; done; exit 1
meets:
	@touch main; for n in $$(seq 50); do test -e beside && echo '2 passed, 0 failed' && exit 0; sleep 0.2; done; exit 1
"""

# The second waits until the first is over, and then for the third.
FOLLOWING = """
test-scenarios:
	@sleep 0.5; touch over; echo '1 passed, 0 failed'
test-brokers:
	@test -e over || exit 1; touch beside; for n in $$(seq 50); do test -e main && echo '2 passed, 0 failed' && exit 0; sleep 0.2; done; exit 1
test-real:
	@touch main; for n in $$(seq 50); do test -e beside && echo '4 passed, 0 failed' && exit 0; sleep 0.2; done; exit 1
"""


def counts(text):
    counter = Counter()
    for line in text.splitlines():
        counter.line(line)
    return counter.counts


class Counting(unittest.TestCase):
    def test_cargo_lines_are_summed(self):
        text = (
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n"
            "test result: \x1b[31mFAILED\x1b[0m. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s"
        )
        self.assertEqual(counts(text), Counts(7, 3, 1))

    def test_unittest_lines_are_summed(self):
        self.assertEqual(counts("Ran 7 tests in 0.1s\n\nOK"), Counts(7, 0, 0))
        self.assertEqual(counts("Ran 7 tests in 0.1s\n\nOK (skipped=2)"), Counts(5, 0, 2))
        self.assertEqual(counts("Ran 7 tests in 0.1s\n\nFAILED (failures=1, errors=2, skipped=1)"), Counts(3, 3, 1))

    def test_more_failed_subtests_than_tests_pass_nothing(self):
        self.assertEqual(counts("Ran 1 test in 0.1s\n\nFAILED (failures=4)"), Counts(0, 4, 0))

    def test_own_last_line_is_counted(self):
        self.assertEqual(counts("ok: clippy\n6 passed, 1 failed"), Counts(6, 1))

    def test_other_lines_count_nothing(self):
        self.assertEqual(counts("OK\n12 passed, 0 failed so far\nRan into trouble"), Counts())


class Running(unittest.TestCase):
    def run_parts(self, *names, makefile=MAKEFILE, **options):
        runner = pathlib.Path(parts.__file__)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "Makefile").write_text(makefile)
            return subprocess.run([sys.executable, str(runner), *names], cwd=folder, capture_output=True, text=True, check=False, **options)

    def test_last_line_sums_all_parts(self):
        done = self.run_parts("good", "good")
        self.assertEqual((done.stdout.splitlines()[-1], done.returncode), ("6 passed, 0 failed", 0))

    def test_space_on_the_disk_is_told(self):
        line = self.run_parts("good").stdout.splitlines()[-2]
        self.assertRegex(line, r"^disk: \d+\.\d GB free before, \d+\.\d GB after$")

    def test_parts_after_a_failed_one_still_run(self):
        done = self.run_parts("bad", "good")
        self.assertEqual((done.stdout.splitlines()[-1], done.returncode), ("4 passed, 2 failed", 1))

    def test_part_that_breaks_is_a_failure(self):
        done = self.run_parts("broken", "good")
        self.assertEqual((done.stdout.splitlines()[-1], done.returncode), ("3 passed, 1 failed", 1))
        self.assertIn("no such tool", done.stdout)
        self.assertIn("ended with code", done.stdout)

    def test_parts_that_time_nothing_run_beside_the_others_and_are_shown_whole(self):
        done = self.run_parts("test-chart", "meets", makefile=MEETING)
        self.assertEqual((done.stdout.splitlines()[-1], done.returncode), ("3 passed, 0 failed", 0))
        self.assertIn("\n== [1/2] test-chart\n1 passed, 0 failed\n", done.stdout)
        self.assertEqual([row.split()[0] for row in done.stdout.splitlines()[-4:-2]], ["test-chart", "meets"])

    def test_part_that_others_slow_down_waits_for_the_quiet_ones(self):
        done = self.run_parts("test-brokers", "test-scenarios", "test-real", makefile=FOLLOWING)
        self.assertEqual((done.stdout.splitlines()[-1], done.returncode), ("7 passed, 0 failed", 0))

    def test_failures_are_repeated_at_the_end(self):
        done = self.run_parts("failing", "good")
        self.assertIn("\n== what failed\n\n-- a::c\nleft: 1\n\npart ", done.stdout)
        self.assertEqual(done.stdout.count("test a::b ... ok"), 1)

    def test_brief_names_only_tests_that_fail(self):
        done = self.run_parts("--brief", "failing", "good")
        self.assertNotIn("a::b", done.stdout)
        self.assertIn("test a::c ... FAILED\n", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "4 passed, 1 failed")

    def test_part_without_tests_is_a_failure(self):
        done = self.run_parts("silent")
        self.assertEqual((done.stdout.splitlines()[-1], done.returncode), ("0 passed, 1 failed", 1))

    def test_part_that_says_why_it_cannot_run_is_neither_passed_nor_failed(self):
        done = self.run_parts("skipping", "good")
        self.assertEqual((done.stdout.splitlines()[-1], done.returncode), ("3 passed, 0 failed", 0))
        self.assertRegex(done.stdout, r"(?m)^skipping +0 +0 +1 ")

    def test_part_whose_tests_are_all_ignored_is_a_failure(self):
        done = self.run_parts("ignoring")
        self.assertEqual((done.stdout.splitlines()[-1], done.returncode), ("0 passed, 1 failed", 1))

    def test_without_names_all_parts_of_the_makefile_run(self):
        makefile = pathlib.Path(parts.__file__).parent.parent / "Makefile"
        targets = set(re.findall(r"(?m)^(lint|test-[a-z]+):", makefile.read_text()))
        self.assertEqual(set(parts.ALL) | parts.BY_HAND, targets)
        self.assertRegex(self.run_parts().stdout, r"(?s)== \[1/8\] lint\n.*== \[7/8\] test-scenarios\n.*== \[8/8\] test-real\n")

    def test_parts_know_nothing_of_the_make_around_them(self):
        environment = {**os.environ, "MAKEFLAGS": "-j3 --jobserver-auth=3,4", "MAKELEVEL": "1"}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "Makefile").write_text(MAKEFILE)
            command = [sys.executable, parts.__file__, "nested"]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        self.assertRegex(done.stdout, r"\n0 \[[^j]*\]\n")

    @unittest.skipUnless(os.path.exists("/proc/self/status"), "no /proc")
    def test_parts_can_be_interrupted_although_we_were_started_with_signals_ignored(self):
        """OPS-26"""

        def ignored():
            for number in parts.SIGNALS:
                signal.signal(number, signal.SIG_IGN)

        done = self.run_parts("signals", preexec_fn=ignored)
        mask = int(re.search(r"SigIgn:\s+(\w+)", done.stdout).group(1), 16)
        self.assertEqual([number for number in parts.SIGNALS if mask >> (number - 1) & 1], [])

    def test_part_that_hangs_is_ended_and_the_others_run(self):
        """OPS-26"""
        done = self.run_parts("hanging", "good", env={**os.environ, "ASYA_TEST_MINUTES": "0.03"})
        self.assertEqual((done.stdout.splitlines()[-1], done.returncode), ("8 passed, 1 failed", 1))
        self.assertRegex(done.stdout, r"(?m)^hanging +5 +1 +0 +\d+  ended after its limit of 0.03 minutes$")

    def test_part_that_ignores_its_end_or_leaves_something_behind_is_ended(self):
        """OPS-26"""
        with mock.patch.object(parts, "GRACE_SECONDS", 0.2), mock.patch.dict(os.environ, ASYA_TEST_MINUTES="0.01"):
            with tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "Makefile").write_text(MAKEFILE)
                before = os.getcwd()
                self.addCleanup(os.chdir, before)
                os.chdir(folder)
                ended, _ = parts.Runner().run_quietly("escaping")
                os.chdir(before)
        self.assertEqual((ended.counts.failed, ended.note), (1, "ended after its limit of 0.01 minutes"))
        self.assertLess(ended.seconds, 30)

    def test_every_part_has_a_limit(self):
        """OPS-26"""
        self.assertEqual(set(parts.MINUTES), set(parts.ALL))

    def test_table_shows_each_part(self):
        rows = parts.table([parts.Part("lint", Counts(6, 1, 0), 12.3, ""), parts.Part("test-unit", Counts(0, 1, 0), 1, "ran no test")])
        self.assertEqual([row.split() for row in rows.splitlines()[1:]], [
            ["lint", "6", "1", "0", "12"], ["test-unit", "0", "1", "0", "1", "ran", "no", "test"],
        ])


class Lint(unittest.TestCase):
    def test_only_files_above_the_limit_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            short, long = pathlib.Path(folder, "short.rs"), pathlib.Path(folder, "long.rs")
            short.write_text("x\n" * 5)
            long.write_text("x\n" * 6)
            found = list(lint.long_files([short, long], longest=5))
        self.assertEqual(len(found), 1)
        self.assertIn("long.rs has 6 lines", found[0])

    def test_comments_wider_than_120_columns_are_found_and_code_is_not(self):
        fits, wide = "// " + "x" * 117, "    /// " + "x" * 113
        self.assertEqual(lint.wide_comments("\n".join([fits, wide, "let x = 1; // " + "x" * 120])), [2])


if __name__ == "__main__":
    unittest.main()
