#!/usr/bin/env python3
"""Checks the tree, each check as a test: all are run, and the last line is `N passed, N failed`."""

import os
import pathlib
import re
import subprocess
import sys

import advice
import layers
import links
import requirements
import steering

TOP = pathlib.Path(__file__).resolve().parent.parent
LONGEST = 500  # lines of a file of code; most stay below 400
# RUN-21, BIND-30: each is mounted into foreign images as one file.
ONE_FILE = {TOP / "controller/runtime/asya_runtime.py", TOP / "controller/runtime/asya_adapters.py"}
LOCKED = ["--locked"] if os.environ.get("CI") else []

# No advisories: their database is fetched over the network at every run, which a build without one cannot do.
DENY = [os.environ.get("CARGO_DENY", "cargo-deny"), *LOCKED, "check", "--hide-inclusion-graph", "licenses", "bans", "sources"]

COMMANDS = {
    "formatted": ["cargo", "fmt", "--all", "--check"],
    "clippy": ["cargo", "clippy", *LOCKED, "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"],
    "shared compiles alone": ["cargo", "clippy", *LOCKED, "--quiet", "-p", "asya-shared", "--", "-D", "warnings"],
    "licences, bans and sources of dependencies": DENY,
    "docs/reference is up to date, and everything in it described": [sys.executable, str(TOP / ".ci/references.py"), "--check"],
    "crds/asyncactors.yaml and docs/reference/*.json are up to date": ["cargo", "run", *LOCKED, "--quiet", "-p", "asya-crds", "--", "--check"],
}


def tracked(*patterns):
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard", *patterns]
    names = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    return [TOP / name for name in names.stdout.split("\0") if name and (TOP / name).is_file()]


def long_files(files, longest=LONGEST):
    for path in files:
        lines = path.read_bytes().count(b"\n")
        if lines > longest:
            yield "%s has %d lines: where does its second subject begin?" % (os.path.relpath(path, TOP), lines)


WIDEST = 120  # columns of a line of prose


def wide_comments(text):
    """Numbers of the lines of Rust that are comments, and too wide; rustfmt wraps no comments."""
    lines = enumerate(text.splitlines(), 1)
    return [number for number, line in lines if line.lstrip().startswith("//") and len(line) > WIDEST]


def comments_are_wrapped():
    found = False
    for path in tracked("*.rs"):
        for number in wide_comments(path.read_text()):
            print("%s:%d: wrap the comment at %d columns" % (os.path.relpath(path, TOP), number, WIDEST))
            found = True
    return not found


def files_are_short():
    found = list(long_files(path for path in tracked("*.rs", "*.py", "*.go") if path not in ONE_FILE))
    for line in found:
        print(line)
    return not found


def links_resolve():
    found = list(links.broken(tracked("*.md"), TOP))
    for line in found:
        print(line)
    return not found


def book_is_complete():
    found = list(links.unlisted(TOP / "docs/SUMMARY.md", tracked("docs/*.md")))
    for line in found:
        print(line)
    return not found


def untested(text, tests):
    """Tests that a text names, in parentheses and as code, and that do not exist."""
    named = re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+){3,})`", text)
    return sorted(set(named) - set(tests))


def promises_name_their_tests():
    tests = set()
    for path in tracked("*.rs"):
        tests.update(re.findall(r"\bfn (\w+)\(\)", path.read_text()))
    found = untested((TOP / "docs/safety.md").read_text(), tests)
    for name in found:
        print("docs/safety.md names the test %s, which is not there" % name)
    return not found


def advice_keeps_queues():
    found = False
    for path in tracked("*.rs", "*.md", "*.yaml", "*.txt", "*.tpl", "*.json"):
        name = os.path.relpath(path, TOP)
        if requirements.is_test(name) or name.startswith("docs/spec/") or name == "CHANGELOG.md":
            continue
        for line, text in advice.careless(advice.shown(name, path.read_text())):
            print("%s:%d: say first how to keep queue and messages (QUE-48): %s" % (name, line, text))
            found = True
    return not found


def conditions_only_inform():
    found = False
    for path in tracked("*.rs"):
        name = os.path.relpath(path, TOP)
        for line in [] if requirements.is_test(name) else steering.readers(name, path.read_text()):
            print("%s:%d: conditions never steer (FW-30): decide by a field of status that is meant for it" % (name, line))
            found = True
    return not found


# What trying it on the owners' real controllers has refuted, or has been done since.
REFUTED = {
    "Binding is not finished": "bindings are complete",
    "not yet beside the real owners": "KServe, KAITO and KubeRay were tried with their own controllers",
    "every cluster that it makes": "a RayService's pods are those of RayClusters that it owns by UID (SAFE-30)",
    "until its own revision changes": "the annotation asya.sh/roll survives a revision of KAITO",
    "Transformers, explainers and canaries are none of them": "the annotation that rolls an InferenceService restarts its transformer and canary, too",
    "former leader begins no write": "a paused virtual machine may stop its monotonic clock (ADR 004)",
}


def pages_are_true():
    found = False
    for path in tracked("*.md"):
        text = " ".join(path.read_text().split())
        for claim in [claim for claim in REFUTED if claim in text and path.name != "CHANGELOG.md"]:
            print("%s says %r: %s" % (os.path.relpath(path, TOP), claim, REFUTED[claim]))
            found = True
    return not found


def folders_import_only_from_below():
    below = "controller/src/"
    files = {path: os.path.relpath(path, TOP) for path in tracked(below + "*.rs")}
    sources = {name.removeprefix(below): path.read_text() for path, name in files.items() if not requirements.is_test(name)}
    found = list(layers.upward(layers.order((TOP / "docs/architecture.md").read_text()), sources))
    for line in found:
        print(line)
    return not found


def requirements_are_tested():
    lines, wrong = requirements.check()
    if wrong:
        print("\n".join(lines))
    return not wrong


def succeeds(command):
    try:
        return subprocess.run(command, cwd=TOP, stdin=subprocess.DEVNULL, check=False).returncode == 0
    except OSError as error:
        print("%s: %s" % (command[0], error.strerror))
        return False


def main():
    if len(sys.argv) > 1:
        print("lint.py takes no arguments", file=sys.stderr)
        return 2
    checks = {name: lambda command=command: succeeds(command) for name, command in COMMANDS.items()}
    checks["no file of code is longer than %d lines" % LONGEST] = files_are_short
    checks["comments are wrapped at %d columns" % WIDEST] = comments_are_wrapped
    checks["folders of the controller import only from those below them"] = folders_import_only_from_below
    checks["no text costs users their messages"] = advice_keeps_queues
    checks["no decision reads a condition"] = conditions_only_inform
    checks["no page claims what was refuted"] = pages_are_true
    checks["links between documents resolve, anchors included"] = links_resolve
    checks["docs/SUMMARY.md lists every page of the book"] = book_is_complete
    checks["docs/safety.md names tests that exist"] = promises_name_their_tests
    checks["every requirement, and every clause of one, is named by a test that runs"] = requirements_are_tested
    failed = 0
    for name, check in checks.items():
        good = check()
        failed += not good
        print("%s: %s" % ("ok" if good else "FAILED", name), flush=True)
    print("%d passed, %d failed" % (len(checks) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
