"""Tests of requirements.py, on texts that define and name invented ids."""

import unittest

import requirements
from requirements import defined, named, named_by_tests, report, wanted


class Requirements(unittest.TestCase):
    def test_ids_are_defined_by_list_items_and_table_rows(self):
        text = "- ABC-1 first, see ABC-9\n- **ABC-2** bold\n| ABC-3 Deployment, ABC-4 | as ABC-8 |\n| ABC-5 | x |\ntext ABC-6\n| see ABC-7 | row |"
        self.assertEqual(defined(text), ["ABC-1", "ABC-2", "ABC-3", "ABC-4", "ABC-5"])

    def test_each_id_is_defined_once_and_in_order(self):
        self.assertEqual(defined("- ABC-10 x\n- ABC-2 y\n| ABC-10 | again |"), ["ABC-10", "ABC-2"])

    def test_ranges_and_lists_name_each_of_their_ids(self):
        self.assertEqual(named("ABC-1..ABC-3, and XY-7, XY-8"), {"ABC-1", "ABC-2", "ABC-3", "XY-7", "XY-8"})
        self.assertEqual(named("ABC-1..3"), {"ABC-1", "ABC-2", "ABC-3"})
        self.assertEqual(named("ABC-2 to ABC-3"), {"ABC-2", "ABC-3"})

    def test_a_range_ends_at_another_prefix(self):
        self.assertEqual(named("ABC-1..XY-3"), {"ABC-1", "XY-3"})

    def test_rust_tests_name_ids_in_comments_only(self):
        text = '/// ABC-1\n#[test]\nfn works() { let _ = "ABC-2"; } // ABC-3'
        self.assertEqual(named_by_tests([("tests/tests/queue.rs", text)]), {"ABC-1", "ABC-3"})
        self.assertEqual(named_by_tests([("shared/src/inject/tests.rs", text)]), {"ABC-1", "ABC-3"})

    def test_comments_of_the_product_name_nothing(self):
        text = "/// ABC-1\npub fn works() {}\n#[cfg(test)]\nmod tests {\n/// ABC-2\n#[test]\nfn t() {}\n}"
        self.assertEqual(named_by_tests([("shared/src/inject/mod.rs", text)]), {"ABC-2"})
        self.assertEqual(named_by_tests([("controller/runtime/script.py", '"""ABC-1"""')]), set())

    def test_python_tests_name_ids_in_docstrings_and_comments(self):
        text = 'def test_a():\n    """ABC-1"""\n    x = "ABC-2"  # ABC-3\n'
        self.assertEqual(named_by_tests([("charts/asya/tests/test_a.py", text)]), {"ABC-1", "ABC-3"})

    def test_report_lists_per_document_what_is_missing(self):
        specs = {"a.md": ["ABC-1", "ABC-2", "XY-10", "XY-9"], "b.md": ["ABD-1"]}
        lines, missing = report(specs, {"ABC-1", "ABD-1"}, wanted([]))
        self.assertEqual(missing, 3)
        self.assertEqual(lines, [
            "a.md: 4 requirements, 1 named by tests, 3 not", "  ABC-2", "  XY-9 XY-10",
            "b.md: 1 requirements, 1 named by tests, 0 not",
        ])

    def test_report_shows_ids_that_no_document_has(self):
        lines, _ = report({"a.md": ["ABC-1"]}, {"ABC-1", "ABC-7", "UTF-8"}, wanted([]))
        self.assertEqual(lines[-1], "named by tests, but in no document: ABC-7")

    def test_arguments_choose_prefixes_ids_and_ranges(self):
        keep = wanted(["ABC", "XY-2..XY-3"])
        self.assertEqual([each for each in ("ABC-1", "ABC-9", "XY-1", "XY-2", "XY-3", "ABCD-1") if keep(each)], ["ABC-1", "ABC-9", "XY-2", "XY-3"])

    def test_every_document_of_the_project_defines_requirements(self):
        for path in requirements.TOP.glob("docs/spec/[!R]*.md"):
            with self.subTest(path.name):
                self.assertGreater(len(defined(path.read_text())), 20)


if __name__ == "__main__":
    unittest.main()
