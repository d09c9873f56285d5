#!/usr/bin/env python3
"""Runs cargo-mutants on a copy of the tree, and compares the survivors with those that are accepted.

A mutant is a small break of the code. One that no test notices survives; `.ci/mutants.txt` lists the accepted ones, each
with its reason. Fails for a survivor that is not listed, and for a listed one that a test now notices.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
ACCEPTED = TOP / ".ci/mutants.txt"
USAGE = "which mutants? make mutants FROM=COMMIT (changed since then), FILE=PATH or ALL=1"
# Git's name of a tree without files.
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
# 2: some survive, 3: some make a test hang. Everything else is no outcome: the tests fail without a mutant, for example.
OUTCOMES = {0, 2, 3}


def identity(line):
    """A mutant without line and column, which every edit above it changes."""
    return re.sub(r"^([^:]+):\d+:\d+: ", r"\1: ", line.strip())


def accepted(text):
    """The accepted mutants with their reasons: a line each, its reason in the indented lines below."""
    found, mutant = {}, None
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line[0].isspace():
            mutant = line.strip()
            if mutant in found:
                raise ValueError("listed twice: %s" % mutant)
            found[mutant] = ""
        elif mutant is None:
            raise ValueError("a reason without a mutant: %s" % line.strip())
        else:
            found[mutant] = (found[mutant] + " " + line.strip()).strip()
    for mutant, reason in found.items():
        if not reason:
            raise ValueError("no reason: %s" % mutant)
    return found


def compare(listed, missed, noticed):
    """What is wrong with the list, given the mutants that survived and those that tests noticed.

    Several mutants of a function may share a name: while one of them survives, its entry is needed.
    """
    survivors = {identity(line) for line in missed}
    dead = {identity(line) for line in noticed} - survivors
    for mutant in sorted(survivors - set(listed)):
        yield "no test notices: %s" % mutant
    for mutant in sorted(dead & set(listed)):
        yield "a test notices it now, remove it from .ci/mutants.txt: %s" % mutant


def synchronize(names, source, copy):
    """Makes `copy` the same tree. An unchanged file keeps its time of change, so cargo compiles only what changed."""
    kept = set()
    for name in names:
        if not (source / name).is_file():
            continue
        kept.add(copy / name)
        content = (source / name).read_bytes()
        if (copy / name).is_file() and (copy / name).read_bytes() == content:
            continue
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
    for path in [path for path in copy.rglob("*") if path.is_file() and path not in kept]:
        path.unlink()


def selection(variables):
    """What to compare the tree with to get the lines to mutate, as arguments of `git diff`; empty for all lines of all
    files, `None` if nothing was selected.

    Not cargo-mutants' --file, which adds to the modules of the configuration, nor --re, which misses deleted fields.
    """
    since, path = variables.get("FROM"), variables.get("FILE")
    if since or path:
        return [since or EMPTY_TREE, "--", path or "*.rs"]
    return [] if variables.get("ALL") else None


def main():
    folder = pathlib.Path(os.environ["MUTANTS"])
    folder.mkdir(parents=True, exist_ok=True)
    selected = selection(os.environ)
    if selected is None:
        print(USAGE, file=sys.stderr)
        return 2
    if selected:
        diff = subprocess.run(["git", "diff", *selected], cwd=TOP, stdout=subprocess.PIPE, check=True)
        (folder / "diff").write_bytes(diff.stdout)
    listed = accepted(ACCEPTED.read_text())
    names = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=TOP, capture_output=True, text=True, check=True)
    synchronize(names.stdout.split("\0"), TOP, folder / "tree")
    out = folder / "mutants.out"
    shutil.rmtree(out, ignore_errors=True)
    # In place, because this is a copy: it keeps its path, so its dependencies are compiled once.
    command = [os.environ["CARGO_MUTANTS"], "mutants", "--in-place", "--no-shuffle", "--output", str(folder)]
    command += ["--in-diff", str(folder / "diff")] if selected else []
    environment = dict(os.environ, CARGO_TARGET_DIR=str(folder / "target"))
    ended = subprocess.run(command, cwd=folder / "tree", env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    if ended not in OUTCOMES:
        return ended
    lines = {name: (out / name).read_text().splitlines() if (out / name).is_file() else [] for name in ("missed.txt", "caught.txt", "timeout.txt")}
    found = list(compare(listed, lines["missed.txt"], lines["caught.txt"] + lines["timeout.txt"]))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
