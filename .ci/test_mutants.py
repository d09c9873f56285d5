"""Tests of mutants.py."""

import os
import pathlib
import tempfile
import unittest

import mutants


class Mutants(unittest.TestCase):
    def test_a_mutant_keeps_its_identity_when_lines_move(self):
        line = "controller/src/broker/pool.rs:174:46: replace < with <= in Pool::get_or_insert\n"
        self.assertEqual(mutants.identity(line), "controller/src/broker/pool.rs: replace < with <= in Pool::get_or_insert")

    def test_every_accepted_mutant_has_a_reason(self):
        self.assertEqual(mutants.accepted("# Why.\n\na.rs: b\n  one\n  two\nc.rs: d\n  three\n"), {"a.rs: b": "one two", "c.rs: d": "three"})
        for text in ["a.rs: b\nc.rs: d\n  why\n", "  why\n", "a.rs: b\n  why\na.rs: b\n  why\n"]:
            with self.assertRaises(ValueError):
                mutants.accepted(text)

    def test_the_list_names_existing_files(self):
        for mutant in mutants.accepted(mutants.ACCEPTED.read_text()):
            self.assertTrue((mutants.TOP / mutant.partition(":")[0]).is_file(), mutant)

    def test_survivors_that_are_not_listed_and_listed_ones_that_are_noticed_fail(self):
        listed = {"a.rs: listed": "why"}
        self.assertEqual(list(mutants.compare(listed, ["a.rs:1:2: listed"], ["a.rs:9:9: another"])), [])
        self.assertEqual(list(mutants.compare(listed, ["a.rs:1:2: new"], [])), ["no test notices: a.rs: new"])
        (line,) = mutants.compare(listed, [], ["a.rs:1:2: listed"])
        self.assertTrue(line.startswith("a test notices it now") and line.endswith("a.rs: listed"), line)

    def test_an_entry_stays_while_one_mutant_of_its_name_survives_or_none_was_tried(self):
        listed = {"a.rs: listed": "why"}
        self.assertEqual(list(mutants.compare(listed, ["a.rs:1:2: listed"], ["a.rs:3:4: listed"])), [])
        self.assertEqual(list(mutants.compare(listed, [], [])), [])

    def test_the_copy_keeps_the_times_of_unchanged_files_and_loses_removed_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            source, copy = pathlib.Path(folder, "source"), pathlib.Path(folder, "copy")
            source.mkdir()
            for name in ("same", "changed", "gone"):
                (source / name).write_text(name)
            mutants.synchronize(["same", "changed", "gone"], source, copy)
            os.utime(copy / "same", (1, 1))
            os.utime(copy / "changed", (1, 1))
            (copy / "changed").write_text("a mutant that a killed run left behind")
            (source / "gone").unlink()
            mutants.synchronize(["same", "changed", "gone"], source, copy)
            self.assertEqual(sorted(path.name for path in copy.iterdir()), ["changed", "same"])
            self.assertEqual((copy / "same").stat().st_mtime, 1)
            self.assertEqual((copy / "changed").read_text(), "changed")

    def test_only_what_was_selected_is_mutated(self):
        self.assertIsNone(mutants.selection({}))
        self.assertEqual(mutants.selection({"ALL": "1"}), [])
        self.assertEqual(mutants.selection({"FROM": "main"}), ["main", "--", "*.rs"])
        self.assertEqual(mutants.selection({"FROM": "main", "FILE": "certs"}), ["main", "--", "certs"])
        self.assertEqual(mutants.selection({"FILE": "certs/src/issuer.rs"}), [mutants.EMPTY_TREE, "--", "certs/src/issuer.rs"])


if __name__ == "__main__":
    unittest.main()
