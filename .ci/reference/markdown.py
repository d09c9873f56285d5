"""Builds Markdown."""

import re
import textwrap

WIDTH = 120


def escaped(text):
    """Text that Markdown shows as it is; code in backticks stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*])", r"\\\1", part) for part in parts)


def code(text):
    return "`%s`" % text if text else ""


def prose(text):
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def bullet(text):
    return textwrap.fill(text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def table(header, rows):
    """A table; a pipe within a cell is escaped, also in code."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| %s |" % " | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)


def page(title, sources, *blocks):
    """A page, from blocks that blank lines separate."""
    note = "<!-- Written by `make docs-reference` from %s. Do not edit. -->" % ", ".join(sources)
    return "\n\n".join([prose(note), "# " + title, *(block for block in blocks if block)]) + "\n"
