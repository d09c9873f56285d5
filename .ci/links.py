"""Links between documents: where they lead, and whether files, anchors and the book's table of contents have that."""

import os
import re
from typing import NamedTuple

FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$", re.MULTILINE)
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:")


class Link(NamedTuple):
    """Path and anchor of a link, either of them perhaps empty; `start` and `end` enclose both in the text."""

    path: str
    anchor: str
    start: int
    end: int


def masked(text):
    """The text with spaces for code and comments, so that positions remain."""
    for pattern in (FENCE, COMMENT, SPAN):
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    return text


def links(text):
    """Links that lead to other documents or within this one."""
    for match in LINK.finditer(masked(text)):
        target = match.group("target")
        if not ELSEWHERE.match(target):
            path, _, anchor = target.partition("#")
            yield Link(path, anchor, *match.span("target"))


def anchors(text):
    """Anchors of the headings, as GitHub and mdBook derive them."""
    found = set()
    for match in HEADING.finditer(FENCE.sub("", COMMENT.sub("", text))):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).lower()
        base = "".join("-" if char.isspace() else char for char in title if char.isalnum() or char.isspace() or char in "_-")
        name, number = base, 0
        while name in found:
            number += 1
            name = "%s-%d" % (base, number)
        found.add(name)
    return found


def broken(files, top):
    """Links of documents to files or anchors that are not there."""
    texts = {path: path.read_text() for path in files}
    for path, text in texts.items():
        for link in links(text):
            target = path.parent / link.path if link.path else path
            name = "%s links to %s" % (os.path.relpath(path, top), text[link.start : link.end])
            if not target.exists():
                yield name + ", which is not there"
            elif link.anchor and target.suffix == ".md" and link.anchor not in anchors(target.read_text()):
                yield name + ", whose heading is not there"


def unlisted(summary, pages):
    """Pages that a table of contents does not list, and entries without a page. Paths are relative to the summary."""
    listed = [os.path.normpath(link.path) for link in links(summary.read_text())]
    found = [os.path.relpath(page, summary.parent) for page in pages if page != summary]
    for page in sorted(set(found) - set(listed)):
        yield "%s is not in %s" % (page, summary.name)
    for page in sorted(set(listed) - set(found)):
        yield "%s is in %s and not there" % (page, summary.name)
    for page in sorted({page for page in listed if listed.count(page) > 1}):
        yield "%s is in %s more than once" % (page, summary.name)
