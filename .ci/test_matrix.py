"""Tests of the runner behind `make test-matrix`."""

import os
import pathlib
import re
import unittest
from unittest import mock

import matrix
from counts import Counts
from parts import Part

ROOT = pathlib.Path(__file__).parent.parent


class FakeRunner:
    """Records with which variables a target ran."""

    def __init__(self):
        self.ran = []

    def run(self, name, _):
        self.ran.append((name, *(os.environ[variable] for variable in matrix.VARIABLES)))
        return Part(name, Counts(passed=2), 1.0, "")


class Matrix(unittest.TestCase):
    def test_each_combination_runs_with_its_versions(self):
        runner = FakeRunner()
        with mock.patch.dict(os.environ), mock.patch.object(matrix, "show"):
            parts = matrix.run(runner, ["1.30/2.16", "default/2.16", "1.33/default"])
        self.assertEqual(runner.ran, [("test-core", "1.30", "2.16"), ("test-core", "", "2.16"), ("test-core", "1.33", "")])
        self.assertEqual([part.name for part in parts], ["1.30/2.16", "default/2.16", "1.33/default"])

    def test_malformed_combination_runs_nothing(self):
        for combination in ("1.30", "1.30/", "/2.16", "1.30/2.16/3"):
            runner = FakeRunner()
            with self.assertRaisesRegex(ValueError, "KUBERNETES/KEDA"):
                matrix.run(runner, ["1.33/default", combination])
            self.assertEqual(runner.ran, [])

    def test_versions_of_the_makefile_have_manifests(self):
        makefile = (ROOT / "Makefile").read_text()
        combinations = re.search(r"^MATRIX \?= (.*)$", makefile, re.MULTILINE)[1].split()
        for combination in combinations:
            versions = matrix.environment(combination)
            for variable, module in zip(matrix.VARIABLES, ("control-plane/kubernetes", "keda/keda")):
                if versions[variable]:
                    self.assertTrue((ROOT / "tests/cluster" / ("%s-%s.mod" % (module, versions[variable]))).is_file(), combination)


if __name__ == "__main__":
    unittest.main()
