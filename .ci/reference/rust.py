"""Reads what the Rust source declares: constants, fields and flags, with their doc comments."""

import ast
import re
from typing import List, NamedTuple, Optional

# Requirement ids at the end of a sentence, which mean nothing to users.
IDS = re.compile(r"\s+\((?:[A-Z]{2,}-\d+[a-z]?(?:, | to )?)+\)")
CODE = re.compile(r"`[^`]+`")
LINK = re.compile(r"\[(`[^`]+`)\]")


class Item(NamedTuple):
    name: str
    paragraphs: List[str]
    value: str = ""

    @property
    def description(self):
        return self.paragraphs[0] if self.paragraphs else ""


def body(source, opening):
    """The lines between `opening` and the closing brace in the same column."""
    match = re.search(r"^( *)%s[^\n]*\{\n(.*?)\n\1\}" % opening, source, re.DOTALL | re.MULTILINE)
    if not match:
        raise ValueError("%s is not in the source" % opening)
    return match.group(2)


def paragraphs(comment):
    """Paragraphs of a doc comment, from its lines without the slashes."""
    text = "\n".join(line.strip() for line in comment)
    found = (" ".join(each.split()) for each in re.split(r"\n\n+", text))
    return [LINK.sub(r"\1", IDS.sub("", each)) for each in found if each]


def declarations(lines, pattern):
    """Each line that matches, with the doc comment above it."""
    comment = []
    for line in lines:
        line = line.strip()
        if line.startswith("///"):
            comment.append(line[3:])
        elif pattern.match(line):
            yield pattern.match(line), paragraphs(comment)
            comment = []
        elif not line.startswith("#"):
            comment = []


def strings(source, module: Optional[str] = None):
    """The text constants of a module."""
    lines = body(source, "pub mod %s " % module).splitlines() if module else unindented(source)
    pattern = re.compile(r'(?:pub )?const (\w+): &str = "(.*)";')
    found = [Item(match.group(1), text, value=match.group(2)) for match, text in declarations(lines, pattern)]
    # References to other constants, as in rustdoc, become their values.
    values = {"`%s`" % item.name: "`%s`" % item.value for item in found}
    return [item._replace(paragraphs=[CODE.sub(lambda it: values.get(it.group(), it.group()), each) for each in item.paragraphs]) for item in found]


def unindented(source):
    """The lines outside of modules and functions."""
    return [line for line in source.splitlines() if not line.startswith(" ")]


class Flag(NamedTuple):
    flag: str
    variable: str
    default: str
    description: str


def flags(source, struct):
    """The flags of a clap structure, and the types of those that it contains."""
    comment, attribute, found, nested = [], "", [], []
    for line in body(source, "pub struct %s " % struct).splitlines():
        line = line.strip()
        field = re.match(r"(?:pub )?(\w+): (.*),$", line)
        if line.startswith("///"):
            comment.append(line[3:])
        elif field and not attribute.count("(") > attribute.count(")"):
            if "flatten" in attribute:
                nested.append(field.group(2))
            else:
                found.append(flag(field, attribute, comment))
            comment, attribute = [], ""
        else:
            attribute += line
    return found, nested


def flag(field, attribute, comment):
    default = re.search(r'default_value(?:_t)?(?: = ("[^"]*"|[\w.]+))?', attribute)
    value = default.group(1) if default else None
    env = re.search(r'env = "(\w+)"', attribute)
    described = paragraphs(comment)
    return Flag(
        flag="--" + field.group(1).replace("_", "-"),
        variable=env.group(1) if env else "",
        default=ast.literal_eval(value) if value and value.startswith('"') else (value or ""),
        description=described[0].replace("`", "") if described else "",
    )
