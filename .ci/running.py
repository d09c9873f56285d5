"""Which tests `make test` runs, and what their comments say."""

import ast
import io
import os
import pathlib
import re
import shlex
import subprocess
import tokenize
from typing import NamedTuple

from parts import ALL

TOP = pathlib.Path(__file__).resolve().parent.parent

TEST = re.compile(r"\s*#\[(?:tokio::)?test\b")
FUNCTION = re.compile(r"\s*(?:pub )?(?:async )?fn (\w+)")
MODULE = re.compile(r"(\s*)(?:pub(?:\(.*\))? )?mod (\w+) \{$")


class Test(NamedTuple):
    """A Rust test: the name by which cargo selects it, and the text of its comments."""

    name: str
    ignored: bool
    comments: str


class Cargo(NamedTuple):
    """A `cargo test` of the Makefile: kinds of executables (`lib`, `bins`, names of integration tests), and which of
    their tests it selects."""

    executables: frozenset
    filters: tuple
    skipped: tuple
    ignored: str  # "no", "only", "too"

    def runs(self, executable, test):
        if executable not in self.executables or any(each in test.name for each in self.skipped):
            return False
        if self.filters and not any(each in test.name for each in self.filters):
            return False
        return self.ignored == "too" or test.ignored == (self.ignored == "only")


class Unittest(NamedTuple):
    """A `python3 -m unittest discover` of the Makefile."""

    folder: str
    pattern: str

    def runs(self, path):
        path = pathlib.PurePath(path)
        return str(path.parent) == self.folder and path.match(self.pattern)


def options(words, name):
    """Values of an option that may be repeated."""
    return [value for option, value in zip(words, words[1:]) if option == name]


def cargo_test(words):
    """What `cargo test` with these arguments runs; nothing with --no-run."""
    if "--no-run" in words:
        return None
    ours, theirs = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    executables = {each.lstrip("-") for each in ours if each in ("--lib", "--bins")} | set(options(ours, "--test"))
    skipped = options(theirs, "--skip")
    filters = [each for each in theirs if not each.startswith("--") and each not in skipped]
    ignored = "only" if "--ignored" in theirs else "too" if "--include-ignored" in theirs else "no"
    return Cargo(frozenset(executables), tuple(filters), tuple(skipped), ignored)


def runs_in(recipe):
    """What a recipe, as `make --dry-run` prints it, runs of cargo's and of Python's tests."""
    for line in recipe.replace("\\\n", " ").splitlines():
        if line.startswith("#"):
            continue
        if match := re.search(r"\bcargo test\b(.*)", line):
            yield cargo_test(shlex.split(match[1]))
        if match := re.search(r"\bpython3 -m unittest discover\b(.*)", line):
            words = shlex.split(match[1])
            yield Unittest((options(words, "-s") or ["."])[0], (options(words, "-p") or ["test*.py"])[0])


def runs_of_make_test():
    """As above, for all parts of `make test`."""
    # An outer make would hand in its flags, and with them NAME and ALL.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS")) and key not in ("NAME", "ALL")}
    command = ["make", "--dry-run", "--no-print-directory", *ALL]
    recipe = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True, env=environment)
    return [each for each in runs_in(recipe.stdout) if each]


def executable_of(path, paths):
    """The executable that has the tests of a file (see Cargo), and the modules that lead to it; None for benches."""
    crate = next((each for each in pathlib.PurePath(path).parents if str(each / "Cargo.toml") in paths), None)
    if crate is None:
        return None
    kind, *modules = pathlib.PurePath(path).relative_to(crate).with_suffix("").parts
    if kind == "src":
        is_program = modules[0] in ("bin", "main") or str(crate / "src/lib.rs") not in paths
        executable, modules = ("bins", modules[2:] if modules[0] == "bin" else modules) if is_program else ("lib", modules)
    elif kind == "tests":
        executable, modules = modules[0], modules[1:]
    else:
        return None
    return executable, [each for each in modules if each not in ("mod", "lib", "main")]


def end_of(lines, start, indent):
    """Number of the last line of the function that begins at a line, in formatted code."""
    if lines[start].count("{") == lines[start].count("}") > 0:
        return start
    return next((at for at in range(start, len(lines)) if lines[at] == indent + "}"), len(lines) - 1)


def rust_tests(text, modules):
    """Tests of a file of formatted Rust. What is not at a test or in it is no comment of a test."""
    lines, inside = text.splitlines(), []
    for at, line in enumerate(lines):
        if match := MODULE.match(line):
            inside.append((match[1] + "}", match[2]))
        elif inside and line == inside[-1][0]:
            inside.pop()
        if not TEST.match(line):
            continue
        first = at
        while first and lines[first - 1].lstrip().startswith(("//", "#[")):
            first -= 1
        start = next(number for number in range(at, len(lines)) if FUNCTION.match(lines[number]))
        whole = lines[first : end_of(lines, start, line[: len(line) - len(line.lstrip())]) + 1]
        name = "::".join([*modules, *(module for _, module in inside), FUNCTION.match(lines[start])[1]])
        ignored = any(each.lstrip().startswith("#[ignore") for each in lines[first:start])
        yield Test(name, ignored, "\n".join(found for each in whole for found in re.findall(r"//(?!!)(.*)", each)))


def python_comments(text):
    """Docstrings and comments of the tests of a file, one text for each test."""
    comments = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            within = [comments[line] for line in range(node.lineno, node.end_lineno + 1) if line in comments]
            yield "\n".join([ast.get_docstring(node) or "", *within])


def comments_of_tests(files, runs):
    """(whether `make test` runs it, comments) of each test, from paths and texts of all sources and what it runs."""
    files = dict(files)
    for path, text in files.items():
        if path.endswith(".py"):
            running = any(isinstance(each, Unittest) and each.runs(path) for each in runs)
            yield from ((running, comments) for comments in python_comments(text))
        elif path.endswith(".rs") and (found := executable_of(path, files)):
            executable, modules = found
            for test in rust_tests(text, modules):
                yield any(isinstance(each, Cargo) and each.runs(executable, test) for each in runs), test.comments
