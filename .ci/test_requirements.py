"""Tests of requirements.py and running.py, on texts that define and name invented ids."""

import unittest

import requirements
from requirements import defined, named, named_by_tests, report, wanted
from running import Cargo, Unittest, rust_tests, runs_in, runs_of_make_test

CRATE = [("a/Cargo.toml", ""), ("a/src/lib.rs", "")]
UNIT = Cargo(frozenset({"lib", "bins"}), (), (), "no")


def names(path, text, runs=(UNIT,)):
    """What the tests of a file name, of which `make test` runs some."""
    return named_by_tests([*CRATE, (path, text)], runs)[0]


def plain(*ids):
    """Requirements without clauses."""
    return {each: {"": False} for each in ids}


class Definitions(unittest.TestCase):
    def test_ids_are_defined_by_list_items_and_table_rows(self):
        text = "- ABC-1 first, see ABC-9\n- **ABC-2** bold\n| ABC-3 Deployment, ABC-4 | as ABC-8 |\n| ABC-5 | x |\ntext ABC-6\n| see ABC-7 | row |"
        self.assertEqual(defined(text), plain("ABC-1", "ABC-2", "ABC-3", "ABC-4", "ABC-5"))

    def test_each_id_is_defined_once_and_in_order(self):
        self.assertEqual(list(defined("- ABC-10 x\n- ABC-2 y\n| ABC-10 | again |")), ["ABC-10", "ABC-2"])

    def test_letters_in_parentheses_mark_clauses_until_the_item_ends(self):
        text = "- **ABC-1** (a) one, (b)\n  two;\n  - nested (c) three\n\nNo item (d) here\n| ABC-2 | (a) x (b) y |\n- ABC-3 inject(p) = f(x) (source)"
        found = {each: "".join(clauses) for each, clauses in defined(text).items()}
        self.assertEqual(found, {"ABC-1": "abc", "ABC-2": "ab", "ABC-3": ""})

    def test_item_or_clause_says_that_it_is_measured_by_hand(self):
        text = "- ABC-1 (a) one (b) two, measured by `make bench`\n- ABC-2 fast, measured by\n  `make bench`.\n- ABC-3 see `make bench`\n- ABC-4 as measured by `make bench`: (a) x"
        self.assertEqual(defined(text), {
            "ABC-1": {"a": False, "b": True}, "ABC-2": {"": True}, "ABC-3": {"": False}, "ABC-4": {"a": True},
        })


class Names(unittest.TestCase):
    def test_ranges_and_lists_name_each_of_their_ids(self):
        self.assertEqual(named("ABC-1..ABC-3, and XY-7, XY-8"), {"ABC-1", "ABC-2", "ABC-3", "XY-7", "XY-8"})
        self.assertEqual(named("ABC-1..3"), {"ABC-1", "ABC-2", "ABC-3"})
        self.assertEqual(named("ABC-2 to ABC-3"), {"ABC-2", "ABC-3"})

    def test_a_range_ends_at_another_prefix(self):
        self.assertEqual(named("ABC-1..XY-3"), {"ABC-1", "XY-3"})

    def test_clauses_are_named_in_parentheses(self):
        self.assertEqual(named("ABC-1 (a), ABC-2 (b, c), ABC-3"), {"ABC-1 (a)", "ABC-2 (b)", "ABC-2 (c)", "ABC-3"})
        self.assertEqual(named("ABC-1 (as before)"), {"ABC-1"})

    def test_rust_tests_name_ids_in_their_comments_only(self):
        text = (
            '//! ABC-9\n/// ABC-8\nconst A: u8 = 1;\n\n/// ABC-1\n#[test]\nfn works() {\n    let _ = "ABC-2"; // ABC-3\n}\n\n'
            "/// ABC-7\nfn helper() {}\n\n/// ABC-4\n#[tokio::test(start_paused = true)]\nasync fn also() {}\n// ABC-6\n"
        )
        self.assertEqual(names("a/src/b/tests.rs", text), {"ABC-1", "ABC-3", "ABC-4"})

    def test_comments_of_the_product_name_nothing(self):
        text = "/// ABC-1\npub fn works() {}\n\n#[cfg(test)]\nmod tests {\n    /// ABC-2\n    #[test]\n    fn t() {\n        x();\n    }\n    // ABC-3\n}\n"
        self.assertEqual(names("a/src/b.rs", text), {"ABC-2"})
        self.assertEqual(names("controller/runtime/script.py", '"""ABC-1"""'), set())

    def test_python_tests_name_ids_in_docstrings_and_comments(self):
        text = '"""ABC-9"""\nclass A:\n    """ABC-8"""\n    def test_a():\n        """ABC-1"""\n        x = "ABC-2"  # ABC-3\n\n    def helper():\n        """ABC-7"""\n'
        self.assertEqual(names("charts/tests/test_a.py", text, [Unittest("charts/tests", "test*.py")]), {"ABC-1", "ABC-3"})
        self.assertEqual(names("charts/tests/test_a.py", text, [Unittest("image/tests", "test*.py")]), set())


class Runs(unittest.TestCase):
    RECIPE = (
        "# cargo test --lib -- comment\ncargo test  --workspace --lib --bins --test program\ncargo test --lib -- --ignored broker::tests::\n"
        "X=1 bin/run -- cargo test --test sidecar -- --skip faults::\nbin/run -- \\\n\tcargo test --test real -- --include-ignored --skip release::\n"
        "cargo test --test real --no-run\npython3 -m unittest discover -s a/tests -p installed.py\n"
    )

    def test_recipes_say_which_tests_run(self):
        self.assertEqual([each for each in runs_in(self.RECIPE) if each], [
            Cargo(frozenset({"lib", "bins", "program"}), (), (), "no"),
            Cargo(frozenset({"lib"}), ("broker::tests::",), (), "only"),
            Cargo(frozenset({"sidecar"}), (), ("faults::",), "no"),
            Cargo(frozenset({"real"}), (), ("release::",), "too"),
            Unittest("a/tests", "installed.py"),
        ])

    def test_ignored_test_counts_only_where_a_target_runs_it(self):
        text = '/// ABC-1\n#[test]\n#[ignore = "x"]\nfn t() {\n    x();\n}\n'
        runs = [each for each in runs_in(self.RECIPE) if each]
        for path, counts in [
            ("a/src/broker/tests/amqp.rs", True), ("a/src/other/tests.rs", False), ("a/src/bin/broker/tests.rs", False),
            ("a/tests/program.rs", False), ("a/tests/real/main.rs", True), ("a/tests/real/release.rs", False),
        ]:
            self.assertEqual(named_by_tests([*CRATE, (path, text)], runs), ({"ABC-1"}, set()) if counts else (set(), {"ABC-1"}), path)

    def test_name_of_a_test_has_its_modules(self):
        text = "mod tests {\n    #[test]\n    fn one() {\n        x();\n    }\n}\n\n#[test]\nfn two() {\n    x();\n}\n"
        self.assertEqual([test.name for test in rust_tests(text, ["b"])], ["b::tests::one", "b::two"])

    def test_no_target_that_make_test_runs_is_overlooked(self):
        runs = runs_of_make_test()
        executables = set().union(*(each.executables for each in runs if isinstance(each, Cargo)))
        self.assertLessEqual({"lib", "bins", "program", "scenarios", "real", "sidecar"}, executables)
        ignored = {each.filters for each in runs if isinstance(each, Cargo) and each.ignored != "no"}
        self.assertEqual(ignored, {("broker::tests::",), ("memory_of_fifty",)})
        self.assertLessEqual({".ci", "controller/runtime/tests"}, {each.folder for each in runs if isinstance(each, Unittest)})


class Reports(unittest.TestCase):
    def test_missing_requirements_are_listed_per_document(self):
        specs = {"a.md": plain("ABC-1", "ABC-2", "XY-10", "XY-9"), "b.md": plain("ABD-1")}
        lines, wrong = report(specs, {"ABC-1", "ABD-1"}, set(), wanted([]))
        self.assertEqual(wrong, 3)
        self.assertEqual(lines, [
            "a.md: 4 requirements, 1 named by tests, 3 not", "  ABC-2", "  XY-9, XY-10",
            "b.md: 1 requirements, 1 named by tests, 0 not",
        ])

    def test_each_clause_needs_a_test_and_the_whole_id_proves_none(self):
        specs = {"a.md": {"ABC-1": {"a": False, "b": False}}}
        lines, wrong = report(specs, {"ABC-1", "ABC-1 (a)"}, set(), wanted([]))
        self.assertEqual((wrong, lines[1]), (1, "  ABC-1 (b)"))
        self.assertEqual(report(specs, {"ABC-1 (a)", "ABC-1 (b)"}, set(), wanted([]))[1], 0)

    def test_what_is_measured_by_hand_needs_a_benchmark_or_an_ignored_test(self):
        specs = {"a.md": {"ABC-1": {"": True}}}
        self.assertEqual(report(specs, {"ABC-1"}, set(), wanted([]))[1], 1)
        self.assertEqual(report(specs, set(), named_by_tests([("a/benches/x.rs", "//! ABC-1")], [])[1], wanted([]))[1], 0)

    def test_names_that_no_document_defines_are_wrong(self):
        lines, wrong = report({"a.md": plain("ABC-1")}, {"ABC-1", "ABC-7", "ABC-1 (a)", "UTF-8"}, set(), wanted([]))
        self.assertEqual((wrong, lines[-1]), (2, "named by tests, but in no document: ABC-1 (a), ABC-7"))

    def test_clauses_are_marked_without_gaps(self):
        lines, wrong = report({"a.md": defined("- ABC-1 (a) x (c) y")}, {"ABC-1 (a)", "ABC-1 (c)"}, set(), wanted([]))
        self.assertEqual((wrong, lines[-1]), (1, "clauses that are not marked (a), (b), (c) in this order: ABC-1"))

    def test_arguments_choose_prefixes_ids_and_ranges(self):
        keep = wanted(["ABC", "XY-2..XY-3"])
        self.assertEqual([each for each in ("ABC-1", "ABC-9", "XY-1", "XY-2", "XY-3", "ABCD-1") if keep(each)], ["ABC-1", "ABC-9", "XY-2", "XY-3"])

    def test_every_document_of_the_project_defines_requirements(self):
        for path in requirements.TOP.glob("docs/spec/[!R]*.md"):
            with self.subTest(path.name):
                self.assertGreater(len(defined(path.read_text())), 20)


if __name__ == "__main__":
    unittest.main()
