#!/usr/bin/env python3
"""Says which numbered requirements of docs/spec/ no test names.

    requirements.py                  all of them, per document
    requirements.py VAL POD-1..POD-4 only these; exit code 1 if one of them is named by no test

A requirement is defined by a list item or a table row that begins with its id. A test names it in a comment (Rust) or
in a docstring or comment (Python); `POD-1..POD-4`, `POD-1..4`, `POD-1 to POD-4` and `QUE-7, QUE-8` all work.
"""

import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize

TOP = pathlib.Path(__file__).resolve().parent.parent

ID = r"[A-Z]{2,5}-\d+"
DEFINITION = re.compile(r"^- (?:\*\*)?(%s)\b|^\| (%s\b[^|]*) \|" % (ID, ID))
RANGE = re.compile(r"\b([A-Z]{2,5})-(\d+)(?:(?:\.\.|…| to )(?:\1-)?(\d+))?\b")


def defined(text):
    """Ids that a document defines, in its order."""
    found = {}
    for line in text.splitlines():
        if match := DEFINITION.match(line):
            for each in [match[1]] if match[1] else re.findall(r"\b%s\b" % ID, match[2]):
                found.setdefault(each)
    return list(found)


def named(text):
    """Ids that a text names."""
    return {
        "%s-%d" % (match[1], number)
        for match in RANGE.finditer(text)
        for number in range(int(match[2]), int(match[3] or match[2]) + 1)
    }


def is_test(path):
    parts = pathlib.PurePath(path).parts
    return "tests" in parts[:-1] or parts[-1] == "tests.rs" or parts[-1].startswith("test_")


def rust_comments(path, text):
    """Comments of a file of tests, or of the test module at the end of another file."""
    if not is_test(path):
        _, _, text = text.partition("#[cfg(test)]")
    return "\n".join(re.findall(r"//(.*)", text))


def python_comments(path, text):
    """Docstrings and comments of a file of tests."""
    if not is_test(path):
        return ""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    strings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(strings + [token.string for token in tokens if token.type == tokenize.COMMENT])


def named_by_tests(files):
    """Ids that tests name; files is (path, text) of all sources."""
    readers = {".rs": rust_comments, ".py": python_comments}
    found = set()
    for path, text in files:
        found |= named(readers[pathlib.PurePath(path).suffix](path, text))
    return found


def wanted(arguments):
    """A filter for ids, from prefixes, ids and ranges."""
    prefixes = {each for each in arguments if "-" not in each}
    ids = named(" ".join(arguments))
    return lambda each: not arguments or each in ids or each.rpartition("-")[0] in prefixes


def order(each):
    prefix, _, number = each.rpartition("-")
    return prefix, int(number)


def report(specs, tested, keep):
    """Lines for people, and how many kept ids no test names."""
    lines, missing_in_all = [], 0
    for name, ids in specs.items():
        ids = [each for each in ids if keep(each)]
        missing = [each for each in ids if each not in tested]
        missing_in_all += len(missing)
        if ids:
            lines.append("%s: %d requirements, %d named by tests, %d not" % (name, len(ids), len(ids) - len(missing), len(missing)))
        rows = {}
        for each in missing:
            rows.setdefault(each.rpartition("-")[0], []).append(each)
        lines += ["  " + " ".join(sorted(row, key=order)) for row in rows.values()]
    known = {each for ids in specs.values() for each in ids}
    prefixes = {each.rpartition("-")[0] for each in known}
    unknown = sorted((each for each in tested - known if each.rpartition("-")[0] in prefixes), key=order)
    if unknown:
        lines.append("named by tests, but in no document: " + " ".join(unknown))
    return lines, missing_in_all


def sources():
    listing = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", "*.rs", "*.py"], cwd=TOP, capture_output=True, text=True, check=True
    )
    for name in filter(None, listing.stdout.split("\0")):
        # The tests of this script invent ids.
        if name != ".ci/test_requirements.py" and (TOP / name).is_file():
            yield name, (TOP / name).read_text()


def main(arguments):
    specs = {str(path.relative_to(TOP)): defined(path.read_text()) for path in sorted(TOP.glob("docs/spec/[!R]*.md"))}
    lines, missing = report(specs, named_by_tests(sources()), wanted(arguments))
    print("\n".join(lines) or "no such requirement")
    return 1 if arguments and (missing or not lines) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
