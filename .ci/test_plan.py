"""Tests of what is said before a first build."""

import contextlib
import io
import os
import pathlib
import re
import tempfile
import unittest
from unittest import mock

import plan
from plan import GB, Folder, Part

KEDA = Part("keda", "KEDA's operator", 600)
TABLE = """
| part | from | first build |
|---|---|---|
| KEDA's operator and `adapter` (1.2), for scaling | Go module `tests/cluster/keda` | 10 min |
| a layer | `tests/pods/root.py` | 5 s |

| folder | variable that moves it | size |
|---|---|---|
| target/ | `CARGO_TARGET_DIR` | 5 GB |
| modules | `GOMODCACHE` | 3.4 GB |
"""


class Tables(unittest.TestCase):
    def test_every_part_has_a_row_and_every_folder_a_size(self):
        text = plan.TABLES.read_text(encoding="utf-8")
        names = [part.name for part in plan.parts(text, plan.ROWS)]
        self.assertEqual(names, list(plan.ROWS))
        variables = {row[1].strip("`") for row in plan.rows(text, "folder")}
        self.assertEqual(variables, {"CARGO_TARGET_DIR", "GOMODCACHE", "GOCACHE", "ASYA_CACHE"})

    def test_every_part_of_a_cluster_is_known(self):
        """The names that asya-cluster takes."""
        source = (plan.TOP / "tests/src/build/mod.rs").read_text(encoding="utf-8")
        names = set(re.findall(r'Self::\w+ => "([\w-]+)"', source))
        self.assertEqual(set(plan.ROWS) - {"programs", "cargo-deny"}, names)

    def test_titles_and_times_are_those_of_the_table(self):
        found = plan.parts(TABLE, ["keda", "python"])
        self.assertEqual(found, [Part("keda", "KEDA's operator and adapter", 600), Part("python", "a layer", 5)])


class Plans(unittest.TestCase):
    def test_what_is_there_is_not_built_again(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, ASYA_CACHE=folder, CARGO_TARGET_DIR=folder):
            os.makedirs(os.path.join(folder, "keda-0a1b.unfinished"))
            self.assertFalse(plan.is_there("keda"))
            os.makedirs(os.path.join(folder, "keda-0a1b"))
            self.assertTrue(plan.is_there("keda"))
            self.assertFalse(plan.is_there("programs"))
            os.makedirs(os.path.join(folder, "debug"))
            for name in plan.PROGRAMS:
                pathlib.Path(folder, "debug", name).touch()
            self.assertTrue(plan.is_there("programs"))

    def test_time_is_summed(self):
        found = plan.plan("up", [KEDA, Part("a", "something", 25)])
        self.assertEqual([line.split()[:2] for line in found[1:]], [["10", "min"], ["25", "s"], ["10", "min"]])
        self.assertIn("only what has changed", plan.plan("up", [])[0])

    def test_disk_that_is_plainly_too_small_is_refused(self):
        needed = [Folder("target/", "CARGO_TARGET_DIR", pathlib.Path("/"), 5.0), Folder("modules", "GOMODCACHE", pathlib.Path("/"), 3.0)]
        for free, refused, text in ((9, False, "9 GB are free."), (7, False, "may not be enough"), (5, True, "too little")):
            line, is_full = plan.space(needed, free * GB)
            self.assertEqual(is_full, refused, line)
            self.assertIn(text, line)
        self.assertIn("CARGO_TARGET_DIR=FOLDER, GOMODCACHE=FOLDER", line)

    def test_folders_that_are_full_already_need_nothing(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, CARGO_TARGET_DIR=folder):
            self.assertEqual([each.gigabytes for each in plan.folders(TABLE, {"programs"})], [5.0])
            pathlib.Path(folder, "some").write_bytes(b"x" * 100_000)
            self.assertAlmostEqual(plan.folders(TABLE, {"programs"})[0].gigabytes, 5.0 - 1e-4, places=5)
            self.assertEqual(plan.folders(TABLE, set()), [])

    def test_counting_stops_early(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in "abc":
                os.makedirs(os.path.join(folder, name))
                pathlib.Path(folder, name, "x").write_bytes(b"x" * 8192)
            self.assertEqual(plan.size(folder, 1 << 40), 3 * 8192)
            self.assertEqual(plan.size(folder, 1), 8192)
            self.assertEqual(plan.size(os.path.join(folder, "none"), 1), 0)

    def test_folders_of_one_disk_are_summed_and_need_not_exist(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder, name, "inner") for name in "ab"]
            found = plan.disks([Folder(str(path), "X", path, 1.0) for path in paths])
        self.assertEqual([len(needed) for needed, _ in found], [2])

    def test_refusal_ends_with_one_unless_it_is_overruled(self):
        for variable, code in (("", 1), ("no", 0)):
            out, err = io.StringIO(), io.StringIO()
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                environment = {"ASYA_DISK_CHECK": variable, "ASYA_CACHE": folder, "CARGO_TARGET_DIR": folder}
                no_room = mock.Mock(f_bavail=1, f_frsize=4096)
                with mock.patch.dict(os.environ, environment), mock.patch.object(plan.os, "statvfs", return_value=no_room), mock.patch.object(
                    plan, "go_folder", return_value=pathlib.Path(folder)
                ):
                    self.assertEqual(plan.main("demo"), code)
            self.assertIn("make demo builds these first", out.getvalue())
            self.assertIn("That is too little", err.getvalue())


if __name__ == "__main__":
    unittest.main()
