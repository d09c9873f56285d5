"""The script runs on CPython 3.7: proven from its text, with the standard library only.

The syntax is checked by the parser, as far as it knows old versions, and by the kinds of
nodes in its tree. The API is checked by two lists: of the module attributes that the
script may use (each known to exist in 3.7), and of names and arguments that came later to
objects whose type the text does not tell. Where a Python 3.7 is at hand, all tests can
run the script with it: ASYA_TEST_PYTHON names the interpreter.
"""

import ast
import sys
import unittest

from runtime_process import ADAPTERS, PYTHON, SCRIPT, RuntimeTestCase

OLDEST = (3, 7)

# What the script and the adapters use of each module. A name that is not here yet: look up "Added in
# version" in Python's documentation, and add it if 3.7 has it.
KNOWN_IN_3_7 = {
    "_thread": {"start_new_thread"},
    "contextlib": {"suppress"},
    "email": {"utils"},
    "email.utils": {"parsedate_to_datetime"},
    "faulthandler": {"dump_traceback"},
    "http": {"client"},
    "http.client": {"HTTPConnection", "HTTPException", "HTTPResponse", "HTTPSConnection", "IncompleteRead"},
    "importlib": {"import_module", "util"},
    "importlib.util": {"find_spec"},
    "inspect": {"isasyncgenfunction", "isclass", "iscoroutinefunction", "isgeneratorfunction"},
    "io": {"BufferedReader", "RawIOBase", "TextIOWrapper"},
    "json": {"dumps", "loads"},
    "logging": {"Formatter", "INFO", "LogRecord", "StreamHandler", "getLogger"},
    "os": {"_exit", "chmod", "environ", "path", "pathsep", "replace", "unlink"},
    "os.path": {"exists", "join"},
    "queue": {"SimpleQueue"},
    "select": {"POLLIN", "epoll", "poll"},
    "signal": {"SIGTERM", "set_wakeup_fd", "signal"},
    "socket": {"AF_UNIX", "SOCK_STREAM", "socket", "socketpair", "timeout"},
    "ssl": {"CERT_NONE", "SSLEOFError", "create_default_context"},
    "struct": {"Struct"},
    "sys": {"exit", "modules", "path", "stdout"},
    "threading": {"Lock", "Thread", "current_thread", "local", "main_thread"},
    "time": {"monotonic", "sleep", "time"},
    "traceback": {"format_exception"},
    "types": {"FrameType", "ModuleType"},
    "typing": {
        *("Any", "Callable", "Dict", "Iterator", "List", "Mapping", "NamedTuple", "NoReturn", "Optional", "Sequence"),
        *("Set", "Tuple"),
    },
    "urllib": {"error", "parse", "request"},
    "urllib.error": {"HTTPError", "URLError"},
    "urllib.parse": {"quote", "urljoin", "urlsplit"},
    "urllib.request": {
        *("HTTPHandler", "HTTPRedirectHandler", "HTTPSHandler", "OpenerDirector", "ProxyHandler", "Request"),
        "build_opener",
    },
}

NEWER_METHODS = {
    "add_note": "3.11",
    "as_integer_ratio": "3.8 for int",
    "bit_count": "3.10",
    "hardlink_to": "3.10",
    "is_relative_to": "3.9",
    "readlink": "3.9 for Path",
    "removeprefix": "3.9",
    "removesuffix": "3.9",
    "toreadonly": "3.8",
    "with_stem": "3.9",
}
NEWER_ARGUMENTS = {
    "delete_on_close": "3.12",
    "dirs_exist_ok": "3.8",
    "force": "3.8",
    "missing_ok": "3.8",
    "process_group": "3.11",
    "root_dir": "3.10",
    "stacklevel": "3.8 for logging",
    "strict": "3.10 for zip",
    "usedforsecurity": "3.9",
}
NEWER_SYNTAX = {"Match", "NamedExpr", "TemplateStr", "TryStar", "TypeAlias"}
BUILTINS_WITH_LATER_SUBSCRIPT = {"dict", "frozenset", "list", "set", "tuple", "type"}


def complaints(source):
    """What in the text of a module CPython 3.7 would not have."""
    tree = parse_as_oldest(source)
    modules = imported_modules(tree)
    found = []
    for node in ast.walk(tree):
        found += complaints_about(node, modules)
    return found


def refused(source):
    """Whether the parser or we ourselves find something newer."""
    try:
        return complaints(source) != []
    except SyntaxError:
        return True


def parse_as_oldest(source):
    if sys.version_info < (3, 8):
        return ast.parse(source)  # this parser is the oldest
    return ast.parse(source, feature_version=OLDEST)


def imported_modules(tree):
    """The names that `import` statements bind, with their known submodules."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    roots = {alias.name.split(".")[0] for node in nodes for alias in node.names}
    return roots | {name for name in KNOWN_IN_3_7 if name.split(".")[0] in roots}


def complaints_about(node, modules):
    if type(node).__name__ in NEWER_SYNTAX:
        return [f"syntax {type(node).__name__}"]
    if isinstance(node, ast.arguments) and getattr(node, "posonlyargs", []):
        return ["positional-only parameters"]
    if isinstance(node, ast.FormattedValue) and contains(node.value, is_string):
        return ["a string within an f-string, whose quotes matter before 3.12"]
    if isinstance(node, ast.Import):
        return [f"module {alias.name}" for alias in node.names if alias.name not in KNOWN_IN_3_7]
    if isinstance(node, ast.ImportFrom):
        known = KNOWN_IN_3_7.get(node.module, ())
        return [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in known]
    if isinstance(node, ast.Attribute):
        return complaints_about_attribute(node, modules)
    if isinstance(node, ast.Call):
        return complaints_about_call(node)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return [f"{node.value.id}[...]"] if node.value.id in BUILTINS_WITH_LATER_SUBSCRIPT else []
    if isinstance(node, (ast.arg, ast.AnnAssign)) and contains_union(node.annotation):
        return ["X | Y as a type"]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and contains_union(node.returns):
        return ["X | Y as a type"]
    return []


def complaints_about_attribute(node, modules):
    owner = dotted(node.value)
    if owner in modules and node.attr not in KNOWN_IN_3_7.get(owner, ()):
        return [f"{owner}.{node.attr}"]
    return [f".{node.attr}"] if node.attr in NEWER_METHODS else []


def complaints_about_call(node):
    found = [f"{keyword.arg}=" for keyword in node.keywords if keyword.arg in NEWER_ARGUMENTS]
    if dotted(node.func) == "traceback.format_exception" and len(node.args) < 3:
        found.append("traceback.format_exception of an exception alone")
    return found


def contains_union(annotation):
    return annotation is not None and contains(annotation, lambda node: isinstance(node, ast.BitOr))


def contains(tree, condition):
    return any(condition(node) for node in ast.walk(tree))


def is_string(node):
    # Before 3.8, a string was a node of its own kind.
    return type(node).__name__ in ("Str", "JoinedStr") or isinstance(getattr(node, "value", None), str)


def dotted(node):
    """`a.b.c` of an expression that is nothing but names; else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return owner and f"{owner}.{node.attr}"
    return None


class OldestPythonTest(unittest.TestCase):
    def test_the_script_uses_nothing_newer_than_3_7(self):
        """RUN-21: CPython 3.7+, standard library (each module is on the list)."""
        self.assertEqual(complaints(SCRIPT.read_text(encoding="utf-8")), [])

    def test_the_adapters_use_nothing_newer_than_3_7(self):
        """BIND-30: as the script that they lie beside."""
        self.assertEqual(complaints(ADAPTERS.read_text(encoding="utf-8")), [])

    def test_newer_syntax_is_noticed(self):
        """RUN-21: the check above must be able to fail."""
        samples = (
            "if (n := 1): pass",
            "def f(a, /): pass",
            "match 1:\n    case 1: pass",
            "try: pass\nexcept* ValueError: pass",
            "type X = int",
            "f'{d[\"key\"]}'",
        )
        for sample in samples:
            with self.subTest(sample):
                self.assertTrue(refused(sample))

    def test_newer_or_foreign_api_is_noticed(self):
        """RUN-21: the check above must be able to fail."""
        samples = {
            "import numpy": "module numpy",
            "import tomllib": "module tomllib",
            "from functools import cached_property": "functools.cached_property",
            "from typing import Protocol": "typing.Protocol",
            "import signal\nsignal.raise_signal(15)": "signal.raise_signal",
            "import os\nos.waitstatus_to_exitcode(0)": "os.waitstatus_to_exitcode",
            "import importlib.util\nimportlib.metadata.version('x')": "importlib.metadata",
            "'asya-x'.removeprefix('asya-')": ".removeprefix",
            "path.unlink(missing_ok=True)": "missing_ok=",
            "import traceback\ntraceback.format_exception(error)": "traceback.format_exception of an exception alone",
            "def f(x: list[int]): pass": "list[...]",
            "def f(x: 'y') -> int | None: pass": "X | Y as a type",
            "x: int | None = None": "X | Y as a type",
        }
        for sample, complaint in samples.items():
            with self.subTest(sample):
                self.assertIn(complaint, complaints(sample))


class CommandTest(RuntimeTestCase):
    def test_the_script_runs_by_the_command_of_the_pod(self):
        """POD-5: command `[pythonExecutable, /opt/asya/asya_runtime.py]`, `args` follow, and none is ours to read."""
        runtime = self.runtime("import sys\ndef handle(payload): return {'args': sys.argv[1:]}")
        runtime.command = [PYTHON, str(SCRIPT), "--batch", "8"]
        self.assertEqual(runtime.start().call(1)[0]["payload"], {"args": ["--batch", "8"]})

    def test_the_script_runs_without_installed_packages(self):
        """RUN-21: standard library only."""
        runtime = self.started()
        self.assertIn("-S", runtime.command)
        self.assertEqual(runtime.call(1)[0]["payload"], 1)


if __name__ == "__main__":
    unittest.main()
