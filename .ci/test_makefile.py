"""Tests of what targets of the Makefile compile."""

import pathlib
import subprocess
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent


class Makefile(unittest.TestCase):
    def test_a_cluster_for_people_compiles_no_tests(self):
        """The test executables are most of a cold build, and neither target runs one."""
        for target in ("demo", "up"):
            command = ["make", "--dry-run", "--no-print-directory", target]
            done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
            compiled = [line for line in done.stdout.splitlines() if line.startswith("cargo ")]
            self.assertIn("asya-cluster", " ".join(compiled), target)
            for line in compiled:
                self.assertTrue(line.startswith("cargo build ") and "--test" not in line, "%s runs: %s" % (target, line))


if __name__ == "__main__":
    unittest.main()
