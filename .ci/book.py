#!/usr/bin/env python3
"""Helps mdBook to build docs/: as its preprocessor it adapts links that leave the book and names of pages; `finish FOLDER` completes and checks what it built.

A link to a file outside of docs/ leads to a copy of the file in the book, one to a folder to the README in it, of which mdBook makes index.html.
"""

import html.parser
import json
import os
import pathlib
import re
import shutil
import sys
import urllib.parse

from links import links

TOP = pathlib.Path(__file__).resolve().parent.parent
DOCS = TOP / "docs"
COPIES = "files"
# A link that is called like the file it leads to, up to its target. The site's pages have other files.
NAME_OF_PAGE = re.compile(r"(\[[\w/-]+)\.md\]\($")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEADING = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)


def outside(path, page, docs=DOCS):
    """What a link of a page leads to, if that is outside of the book."""
    target = pathlib.Path(os.path.normpath((docs / page).parent / path))
    return None if docs in (target, *target.parents) else target


def adapted(path, page, docs=DOCS):
    """The path of a link as it has to be in the book; `page` is relative to docs/."""
    folder = pathlib.PurePosixPath(page).parent
    target = outside(path, page, docs)
    if target == docs.parent / "README.md":
        return os.path.relpath("index.md", folder)
    if target is not None:
        return os.path.relpath(copy_of(target, docs), folder)
    if (docs / folder / path).is_dir():
        return os.path.join(path, "index.md")
    return re.sub(r"\bREADME\.md$", "index.md", path)


def copy_of(target, docs=DOCS):
    """The place of a copy in the book. mdBook takes a link with .md in it for one to a page."""
    return pathlib.PurePosixPath(COPIES, re.sub(r"\.md$", ".txt", str(target.relative_to(docs.parent))))


def rewritten(text, page, docs=DOCS):
    """A page with adapted links."""
    for link in reversed(list(links(text))):
        if link.path:
            anchor = "#" + link.anchor if link.anchor else ""
            before = NAME_OF_PAGE.sub(r"\1](", text[: link.start])
            text = before + adapted(link.path, page, docs) + anchor + text[link.end :]
    return text


def rewrite_chapters(node):
    """Adapts the links of all chapters below a node of mdBook's JSON."""
    if isinstance(node, dict):
        if isinstance(node.get("content"), str) and node.get("source_path"):
            node["content"] = rewritten(node["content"], node["source_path"])
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            rewrite_chapters(each)


def with_columns(text):
    """A page of HTML whose tables of more than two columns name them in each cell but a row's first, for site.css."""
    return TABLE.sub(lambda table: ROW.sub(lambda row: name_cells(row[0], HEADING.findall(table[0])), table[0]), text)


def name_cells(row, headings):
    names = [re.sub(r"<[^>]*>", "", heading) for heading in headings[1:]] if len(headings) > 2 else []
    # The first part is what comes before the cells.
    start, *cells = row.split("<td")
    named = ['<td data-column="%s"%s' % (name, cell) for name, cell in zip(names, cells[1:])]
    return "<td".join([start, *cells[:1]]) + "".join(named) if names and cells else row


def copy_outside(book, docs=DOCS):
    """Copies the files outside of docs/ that pages link to."""
    for page in docs.rglob("*.md"):
        name = page.relative_to(docs)
        targets = (outside(link.path, name, docs) for link in links(page.read_text()) if link.path)
        for target in set(targets) - {None, docs.parent / "README.md"}:
            copy = book / copy_of(target, docs)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                shutil.copytree(target, copy, dirs_exist_ok=True)
            else:
                shutil.copyfile(target, copy)


class Page(html.parser.HTMLParser):
    """Ids of a page of HTML, and what it links to."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.targets = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.add(given.get("id"))
        self.targets += [given[key] for key in ("href", "src") if given.get(key)]


def broken(book):
    """Links between the files of a book that lead nowhere."""
    pages = {path: Page(path.read_text()) for path in sorted(book.rglob("*.html")) if COPIES not in path.relative_to(book).parts}
    for path, page in pages.items():
        # The page for what is not found is shown at any depth, so its links are absolute.
        for target in page.targets if path.name != "404.html" else []:
            url = urllib.parse.urlsplit(target)
            if url.scheme or url.netloc:
                continue
            file = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(url.path))) if url.path else path
            file = file / "index.html" if file.is_dir() and file in {each.parent for each in pages} else file
            if not file.exists():
                yield "%s links to %s, which is not there" % (path.relative_to(book), target)
            elif url.fragment and file in pages and urllib.parse.unquote(url.fragment) not in pages[file].ids:
                yield "%s links to %s, whose anchor is not there" % (path.relative_to(book), target)


def preprocess(source, out):
    _, book = json.load(source)
    rewrite_chapters(book)
    json.dump(book, out)


def finish(book):
    for page in book.rglob("*.html"):
        page.write_text(with_columns(page.read_text()))
    copy_outside(book)
    found = list(broken(book))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def main(arguments):
    if arguments[:1] == ["supports"]:
        return 0
    if not arguments:
        preprocess(sys.stdin, sys.stdout)
        return 0
    if len(arguments) == 2 and arguments[0] == "finish":
        return finish(pathlib.Path(arguments[1]))
    print("usage: book.py [supports RENDERER | finish FOLDER]", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
