#!/usr/bin/env python3
"""Says which numbered requirements of docs/spec/ no test of `make test` names, and which names no document defines.

    requirements.py                  all of them, per document
    requirements.py VAL POD-1..POD-4 only these

A requirement is defined by a list item or a table row that begins with its id. `(a)`, `(b)` in it mark clauses that are
proved separately: each needs a test, and a test of the whole id proves none of them. What says "measured by `make
bench`" needs a benchmark or an ignored test instead.

A test names what it proves in its comments (Rust), its docstring or its comments (Python): `POD-1..POD-4`, `POD-1..4`,
`POD-1 to POD-4`, `QUE-7, QUE-8`, `ROLL-2 (a)` and `ROLL-2 (a, c)` all work. The exit code is 1 if something is missing.
"""

import pathlib
import re
import subprocess
import sys

import running

TOP = pathlib.Path(__file__).resolve().parent.parent

ID = r"[A-Z]{2,5}-\d+"
DEFINITION = re.compile(r"^- (?:\*\*)?(%s)\b|^\| (%s\b[^|]*) \|" % (ID, ID))
NAME = re.compile(r"\b([A-Z]{2,5})-(\d+)(?:(?:\.\.|…| to )(?:\1-)?(\d+)\b|\s+\(([a-z](?:, [a-z])*)\)|\b)")
CLAUSE = re.compile(r"(?<=\s)\(([a-z])\)(?=\s)")
BY_HAND = re.compile(r"\bmeasured\s+by\s+`make\s+[a-z-]+`")


def items(text):
    """(ids, text) of each list item and table row that defines ids; an item ends where its indentation does."""
    found = []
    for line in text.splitlines():
        if match := DEFINITION.match(line):
            found.append(([match[1]] if match[1] else re.findall(r"\b%s\b" % ID, match[2]), [line]))
        elif found and found[-1][1] and line.startswith("  "):
            found[-1][1].append(line)
        elif found:
            # What follows without indentation belongs to no item.
            found.append(([], []))
    return [(ids, "\n".join(lines)) for ids, lines in found if ids]


def defined(text):
    """For each id that a document defines its clauses, `""` if none is marked, and whether each is measured by hand."""
    found = {}
    for ids, item in items(text):
        first, *rest = CLAUSE.split(item)
        clauses = dict(zip(rest[::2], rest[1::2])) or {"": first}
        for each in ids:
            # What precedes the first clause holds for all of them.
            found.setdefault(each, {clause: bool(BY_HAND.search(first) or BY_HAND.search(words)) for clause, words in clauses.items()})
    return found


def part(each, clause):
    return "%s (%s)" % (each, clause) if clause else each


def named(text):
    """Ids and clauses that a text names."""
    found = set()
    for match in NAME.finditer(text):
        ids = ["%s-%d" % (match[1], number) for number in range(int(match[2]), int(match[3] or match[2]) + 1)]
        found |= {part(each, clause) for each in ids for clause in (match[4] or "").split(", ")}
    return found


def is_test(path):
    parts = pathlib.PurePath(path).parts
    return "tests" in parts[:-1] or parts[-1] == "tests.rs" or parts[-1].startswith("test_")


def named_by_tests(files, runs):
    """What tests of `make test` name, and what others and benchmarks name."""
    tested, by_hand = set(), set()
    for is_run, comments in running.comments_of_tests(files, runs):
        (tested if is_run else by_hand).update(named(comments))
    for path, text in files:
        if "benches" in pathlib.PurePath(path).parts:
            by_hand |= named("\n".join(re.findall(r"//(.*)", text)))
    return tested, by_hand


def wanted(arguments):
    """A filter for ids, from prefixes, ids and ranges."""
    prefixes = {each for each in arguments if "-" not in each}
    ids = named(" ".join(arguments))
    return lambda each: not arguments or each in ids or each.rpartition("-")[0] in prefixes


def order(each):
    prefix, number, clause = re.match(r"([A-Z]+)-(\d+)(.*)", each).groups()
    return prefix, int(number), clause


def missing_of(requirements, tested, by_hand):
    """Ids and clauses that nothing proves."""
    return [
        part(each, clause)
        for each, clauses in requirements.items()
        for clause, is_measured in clauses.items()
        if part(each, clause) not in (by_hand if is_measured else tested)
    ]


def unknown_of(specs, names):
    """Names without a definition, of ids whose prefix a document has."""
    known = {each for requirements in specs.values() for each in requirements}
    known |= {part(each, clause) for requirements in specs.values() for each, clauses in requirements.items() for clause in clauses}
    prefixes = {each.rpartition("-")[0] for each in known}
    return sorted((each for each in names - known if each.partition("-")[0] in prefixes), key=order)


def gaps_of(specs):
    """Requirements whose clauses are not marked (a), (b), (c), each once."""
    for requirements in specs.values():
        for each, clauses in requirements.items():
            if "" not in clauses and list(clauses) != [chr(ord("a") + at) for at in range(len(clauses))]:
                yield each


def report(specs, tested, by_hand, keep):
    """Lines for people, and how much is wrong."""
    lines, wrong = [], 0
    for name, all_of_it in specs.items():
        requirements = {each: clauses for each, clauses in all_of_it.items() if keep(each)}
        missing = missing_of(requirements, tested, by_hand)
        untested = {each.partition(" ")[0] for each in missing}
        wrong += len(missing)
        if requirements:
            counts = len(requirements), len(requirements) - len(untested), len(untested)
            lines.append("%s: %d requirements, %d named by tests, %d not" % (name, *counts))
        rows = {}
        for each in missing:
            rows.setdefault(each.partition("-")[0], []).append(each)
        lines += ["  " + ", ".join(sorted(row, key=order)) for row in rows.values()]
    for text, found in (
        ("named by tests, but in no document", unknown_of(specs, tested | by_hand)),
        ("clauses that are not marked (a), (b), (c) in this order", list(gaps_of(specs))),
    ):
        wrong += len(found)
        if found:
            lines.append("%s: %s" % (text, ", ".join(found)))
    return lines, wrong


def sources():
    patterns = ["*.rs", "*.py", "*Cargo.toml"]
    listing = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", *patterns], cwd=TOP, capture_output=True, text=True, check=True
    )
    for name in filter(None, listing.stdout.split("\0")):
        # The tests of this script invent ids.
        if name != ".ci/test_requirements.py" and (TOP / name).is_file():
            yield name, (TOP / name).read_text()


def check(arguments=()):
    """As report, for the documents and tests of the project."""
    specs = {str(path.relative_to(TOP)): defined(path.read_text()) for path in sorted(TOP.glob("docs/spec/[!R]*.md"))}
    tested, by_hand = named_by_tests(list(sources()), running.runs_of_make_test())
    return report(specs, tested, by_hand, wanted(arguments))


def main(arguments):
    lines, wrong = check(arguments)
    print("\n".join(lines) or "no such requirement")
    return 1 if wrong or not lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
