"""Tests of links.py."""

import pathlib
import tempfile
import unittest

from links import anchors, broken, links, unlisted


class Reading(unittest.TestCase):
    def test_links_are_found_outside_of_code_and_comments(self):
        text = "[a](one.md) `[b](two.md)`\n```\n[c](three.md)\n```\n<!-- [d](four.md) -->\n[e `f`](five.md#g)\n[h](#i) [j](https://k/l.md)"
        self.assertEqual([(link.path, link.anchor) for link in links(text)], [("one.md", ""), ("five.md", "g"), ("", "i")])

    def test_positions_enclose_the_target(self):
        text = "`code` [a](b.md#c)"
        (link,) = links(text)
        self.assertEqual(text[link.start : link.end], "b.md#c")

    def test_anchors_are_those_of_github_and_mdbook(self):
        text = "# One two\n## `spec.queue`\n### 7. What's *this*?\n## One two\n```\n# no heading\n```\n## [Linked](x.md) part\n## A & B\n"
        self.assertEqual(anchors(text), {"one-two", "one-two-1", "specqueue", "7-whats-this", "linked-part", "a--b"})


class Checking(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.top / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def test_links_to_missing_files_and_headings_are_reported(self):
        one = self.write("one.md", "# Here\n[a](two.md#there) [b](#here) [c](two.md#nowhere) [d](three.md) [e](#gone) [f](sub)")
        two = self.write("two.md", "## There\n")
        self.top.joinpath("sub").mkdir()
        found = list(broken([one, two], self.top))
        wanted = ["two.md#nowhere, whose heading", "three.md, which", "#gone, whose heading"]
        self.assertEqual(found, ["one.md links to %s is not there" % each for each in wanted])

    def test_table_of_contents_and_pages_must_agree(self):
        pages = [self.write(name, "") for name in ("a.md", "b.md", "sub/c.md")]
        summary = self.write("SUMMARY.md", "- [A](a.md)\n- [C](sub/c.md)\n- [D](d.md)\n- [A](./a.md)\n")
        found = list(unlisted(summary, [*pages, summary]))
        self.assertEqual(found, ["b.md is not in SUMMARY.md", "d.md is in SUMMARY.md and not there", "a.md is in SUMMARY.md more than once"])


if __name__ == "__main__":
    unittest.main()
