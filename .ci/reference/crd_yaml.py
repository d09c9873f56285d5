"""Parses the YAML that `asya-crds` writes: blocks of mappings, sequences, plain and quoted scalars, and folded texts.

That is all there is in the file, so that no package is needed to read it. Anything else is an error.
"""

import json
import re

KEY = re.compile(r'("(?:[^"\\]|\\.)*"|[^\s:"\'\[{][^:]*):(?: (.*))?$')
PLAIN = {"true": True, "false": False, "null": None, "[]": [], "{}": {}}


class Reader:
    def __init__(self, text):
        lines = enumerate(text.splitlines(), 1)
        self.lines = [(number, line) for number, line in lines if line.strip() and not line.startswith("#")]
        self.at = 0

    def indent(self):
        """Columns before the next line's text; -1 at the end."""
        if self.at == len(self.lines):
            return -1
        line = self.lines[self.at][1]
        return len(line) - len(line.lstrip(" "))

    def rest(self, indent):
        return self.lines[self.at][1][indent:]

    def block(self, indent):
        return self.sequence(indent) if self.rest(indent).startswith("- ") else self.mapping(indent)

    def mapping(self, indent):
        found = {}
        while self.indent() == indent and not self.rest(indent).startswith("- "):
            number, _ = self.lines[self.at]
            match = KEY.match(self.rest(indent))
            if not match:
                raise ValueError("line %d: not a key" % number)
            key, value = scalar(match.group(1), number), match.group(2)
            self.at += 1
            found[key] = self.value(value, indent, number)
        return found

    def value(self, value, indent, number):
        if value in (">-", "|-", "|", ">"):
            return self.folded(indent, " " if value.startswith(">") else "\n")
        if value:
            return scalar(value, number)
        deeper = self.indent()
        # A sequence may begin in the column of its key.
        if deeper > indent or (deeper == indent and self.rest(indent).startswith("- ")):
            return self.block(deeper)
        return None

    def folded(self, indent, glue):
        parts = []
        while self.indent() > indent:
            parts.append(self.lines[self.at][1].strip())
            self.at += 1
        return glue.join(parts)

    def sequence(self, indent):
        found = []
        while self.indent() == indent and self.rest(indent).startswith("- "):
            number, line = self.lines[self.at]
            item = line[indent + 2 :]
            if KEY.match(item):
                # The item is a mapping that begins beside its dash.
                self.lines[self.at] = (number, " " * (indent + 2) + item)
                found.append(self.mapping(indent + 2))
            else:
                self.at += 1
                found.append(self.value(item, indent, number))
        return found


def scalar(text, number):
    if text.startswith('"'):
        return json.loads(text)
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if text in PLAIN:
        return PLAIN[text]
    if text[0] in "[{&*!|>%@`":
        raise ValueError("line %d: %r is not supported" % (number, text))
    try:
        return int(text)
    except ValueError:
        return text


def parse(text):
    reader = Reader(text)
    found = reader.block(0)
    if reader.at != len(reader.lines):
        raise ValueError("line %d: unexpected indentation" % reader.lines[reader.at][0])
    return found
