"""Reads values.yaml line by line: keys, defaults, and the comments above them, which a YAML parser drops."""

import re
from typing import List, NamedTuple

KEY = re.compile(r"^( *)([\w.-]+):(?: (.*))?$")
MARK = "# -- "


class Value(NamedTuple):
    path: str
    # From `# -- `; an example in it is left out.
    description: str
    # As written in one line.
    default: str
    children: List["Value"]


def parse(text):
    """The top-level values."""
    found = entries(text)
    return children(found, 0, len(found), "")


def entries(text):
    """Indentation, key, rest of the line, and comment of each key."""
    found, comment = [], []
    for line in text.splitlines():
        key = KEY.match(line)
        if line.lstrip().startswith("#"):
            comment.append(line.strip())
        elif key:
            found.append((len(key.group(1)), key.group(2), key.group(3) or "", described(comment)))
            comment = []
        else:
            comment = []
    return found


def described(comment):
    """The text of a comment that begins with `# -- `; comments without it introduce a group."""
    starts = [number for number, line in enumerate(comment) if line.startswith(MARK)]
    if not starts:
        return ""
    lines = [comment[starts[0]][len(MARK) :], *(line.lstrip("# ") for line in comment[starts[0] + 1 :])]
    return " ".join(" ".join(lines).partition(" Example:")[0].split())


def children(found, start, end, prefix):
    values = []
    at = start
    while at < end:
        own, key, rest, comment = found[at]
        after = next((other for other in range(at + 1, end) if found[other][0] <= own), end)
        path = prefix + key
        inner = children(found, at + 1, after, path + ".")
        default = rest.partition("  #")[0] if rest else flow(inner, path)
        values.append(Value(path, comment, default, inner))
        at = after
    return values


def flow(values, path):
    """A mapping in one line."""
    return "{%s}" % ", ".join("%s: %s" % (each.path[len(path) + 1 :], each.default) for each in values)


def rows(values, is_described):
    """What can be set. A mapping with a description is one value, unless its keys are described, too."""
    for each in values:
        inner = each.children if not each.description or all(map(is_described, each.children)) else []
        if each.description or not inner:
            yield each._replace(default="") if inner else each
        yield from rows(inner, is_described)
