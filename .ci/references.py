#!/usr/bin/env python3
"""Writes docs/reference/; with --check it only reports which pages differ from the source, and what has no description."""

import sys

from reference import api, conditions, events, flags, labels, metrics, source, transports, values

FOLDER = source.TOP / "docs" / "reference"
PAGES = {
    "api": api,
    "values": values,
    "transports": transports,
    "conditions": conditions,
    "events": events,
    "metrics": metrics,
    "labels": labels,
    "flags": flags,
}


def outdated(pages, folder):
    """Names of the pages that are not what the source says, and of files that no page is written to."""
    found = {path.stem: path.read_text() for path in folder.glob("*.md")}
    return sorted(name for name in {*pages, *found} if pages.get(name) != found.get(name))


def write(pages, folder):
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        (folder / (name + ".md")).write_text(text)


def main(arguments):
    if arguments not in ([], ["--check"]):
        print("usage: references.py [--check]", file=sys.stderr)
        return 2
    try:
        pages = {name: module.page() for name, module in PAGES.items()}
    except source.Undescribed as error:
        print(error, file=sys.stderr)
        return 1
    if not arguments:
        write(pages, FOLDER)
        return 0
    wrong = outdated(pages, FOLDER)
    for name in wrong:
        print("docs/reference/%s.md differs from the source; run `make docs-reference`" % name, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
