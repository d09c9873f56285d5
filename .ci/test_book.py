"""Tests of book.py."""

import io
import json
import pathlib
import tempfile
import unittest

import book


class Links(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        self.docs = self.top / "docs"
        (self.docs / "adr").mkdir(parents=True)
        (self.top / "examples").mkdir()
        (self.top / "examples/a.yaml").write_text("a: 1\n")

    def test_links_that_leave_the_book_lead_to_copies_of_the_files(self):
        for page, path, wanted in (
            ("one.md", "two.md", "two.md"),
            ("one.md", "../examples/a.yaml", "files/examples/a.yaml"),
            ("adr/one.md", "../../examples/a.yaml", "../files/examples/a.yaml"),
            ("adr/one.md", "../../notes.md", "../files/notes.txt"),
            ("one.md", "adr", "adr/index.md"),
            ("one.md", "adr/README.md", "adr/index.md"),
            ("adr/one.md", "../../README.md", "../index.md"),
        ):
            self.assertEqual(book.adapted(path, page, self.docs), wanted, path)

    def test_only_targets_of_links_change(self):
        text = "[a](../examples/a.yaml), `../examples/a.yaml`, [b](#c), [d](adr#e)"
        self.assertEqual(book.rewritten(text, "one.md", self.docs), "[a](files/examples/a.yaml), `../examples/a.yaml`, [b](#c), [d](adr/index.md#e)")

    def test_pages_are_not_called_by_their_files(self):
        text = "[two.md](two.md), [adr/one.md](adr/one.md#a), [a.yaml](../examples/a.yaml), `[b.md](`"
        wanted = "[two](two.md), [adr/one](adr/one.md#a), [a.yaml](files/examples/a.yaml), `[b.md](`"
        self.assertEqual(book.rewritten(text, "one.md", self.docs), wanted)

    def test_files_and_folders_are_copied(self):
        (self.docs / "one.md").write_text("[a](../examples/a.yaml) [b](https://c/d) [e](two.md)")
        target = self.top / "book"
        book.copy_outside(target, self.docs)
        self.assertEqual([str(path.relative_to(target)) for path in target.rglob("*.*")], ["files/examples/a.yaml"])

    def test_chapters_are_found_at_any_depth(self):
        chapter = {"Chapter": {"content": "[a](adr)", "source_path": "architecture.md", "sub_items": []}}
        out = io.StringIO()
        book.preprocess(io.StringIO(json.dumps([{"root": "/"}, {"items": [{"Chapter": {**chapter["Chapter"], "sub_items": [chapter]}}]}])), out)
        outer = json.loads(out.getvalue())["items"][0]["Chapter"]
        self.assertEqual([outer["content"], outer["sub_items"][0]["Chapter"]["content"]], ["[a](adr/index.md)"] * 2)


class Built(unittest.TestCase):
    def test_cells_of_wide_tables_name_their_column(self):
        table = "<table><thead><tr>%s</tr></thead><tbody><tr>%s</tr></tbody></table>"
        heads = ["<th>a</th>", "<th><code>b</code></th>", '<th class="x">c</th>']
        narrow = table % ("".join(heads[:2]), "<td>1</td><td>2</td>")
        wide = table % ("".join(heads), "<td>1</td><td>2</td><td>3</td>")
        wanted = table % ("".join(heads), '<td>1</td><td data-column="b">2</td><td data-column="c">3</td>')
        self.assertEqual(book.with_columns(narrow + wide), narrow + wanted)

    def test_links_without_a_target_are_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            (top / "sub").mkdir()
            (top / "index.html").write_text('<a href="sub/">a</a><a href="sub/index.html#here">b</a><a href="https://c/d">e</a><img src="f.png">')
            (top / "sub/index.html").write_text('<h1 id="here"><a href="#here">a</a></h1><a href="#gone">b</a><a href="../index.html?c=d">e</a>')
            (top / "404.html").write_text('<a href="/gone.html">a</a>')
            wanted = ["index.html links to f.png, which is not there", "sub/index.html links to #gone, whose anchor is not there"]
            self.assertEqual(list(book.broken(top)), wanted)


if __name__ == "__main__":
    unittest.main()
