"""Renders the chart with a given helm and hands back its objects."""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent
CHART = TESTS.parent
NAME = "asya-operator"
NAMESPACE = "asya-system"
KUBERNETES = "1.33.0"


class Refused(Exception):
    """Helm refused the values; the text says why."""


def cache():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get("ASYA_CACHE") or os.path.join(home, "asya-tests"))


def binary(major):
    """The helm of that major version: $ASYA_HELM3 or $ASYA_HELM4, else the newest in the tests' cache, else on PATH."""
    name = "helm%d" % major
    named = os.environ.get("ASYA_" + name.upper())
    built = cache().glob("%s/bin/%s" % {3: ("helm3-*", "helm3"), 4: ("tools-*", "helm")}[major])
    finished = [path for path in built if not path.parent.parent.name.endswith(".unfinished")]
    newest_first = sorted(finished, key=lambda path: path.stat().st_mtime, reverse=True)
    candidates = [named] if named else [*map(str, newest_first), shutil.which(name), shutil.which("helm")]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK) and _major(candidate) == major:
            return candidate
    raise SystemExit("helm %d is missing: run `make test-chart`, which builds it, or set ASYA_HELM%d" % (major, major))


def _major(candidate):
    answer = subprocess.run([candidate, "version", "--template", "{{.Version}}"], capture_output=True, text=True)
    return int(answer.stdout.lstrip("v").split(".")[0]) if answer.returncode == 0 else None


@functools.cache
def helm(major):
    """One for all tests, so that what two of them ask for is rendered once."""
    return Helm(major)


class Helm:
    def __init__(self, major):
        self.program = binary(major)
        self._text = {}
        self._json = {}

    def run(self, *arguments):
        with tempfile.TemporaryDirectory() as home:
            paths = {"HELM_%s_HOME" % kind: home for kind in ("CACHE", "CONFIG", "DATA")}
            # An address without a cluster: nothing here may need one.
            environment = {**os.environ, **paths, "KUBECONFIG": os.path.join(home, "none")}
            # So short a life needs no garbage collection, which is half of what helm does.
            environment["GOGC"] = "off"
            answer = subprocess.run(
                [self.program, *arguments], capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL
            )
        if answer.returncode != 0:
            raise Refused(answer.stderr + answer.stdout)
        return answer.stdout

    def text(self, values=None, release=NAME, namespace=NAMESPACE):
        """What the chart renders; values is an object, or the path of a values file."""
        key = (release, namespace, json.dumps(values, sort_keys=True, default=str))
        if key not in self._text:
            command = ("template", release, str(CHART), "--kube-version", KUBERNETES)
            self._text[key] = self._with_values(values, *command, namespace=namespace)
        return self._text[key]

    def notes(self, values=None):
        """What an installation prints, rendered as an object since helm 3 shows notes only with a cluster."""
        with tempfile.TemporaryDirectory() as folder:
            chart = shutil.copytree(CHART, os.path.join(folder, "chart"), ignore=shutil.ignore_patterns("tests"))
            notes = pathlib.Path(chart, "templates", "NOTES.txt")
            text = '{{ define "notes" -}}\n%s{{- end -}}\ntext: {{ include "notes" . | toJson }}\n' % notes.read_text()
            notes.with_name("notes.yaml").write_text(text)
            out = self._with_values(values, "template", NAME, chart, "--kube-version", KUBERNETES, "--show-only", "templates/notes.yaml")
            return self.parse(out)[0]["text"]

    def lint(self, values=None):
        return self._with_values(values, "lint", "--strict", str(CHART), "--kube-version", KUBERNETES)

    def _with_values(self, values, *command, namespace=NAMESPACE):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            if not isinstance(values, (str, pathlib.Path)):
                json.dump(values or {}, file)
                file.flush()
                values = file.name
            return self.run(*command, "--namespace", namespace, "--values", str(values))

    def objects(self, values=None, release=NAME):
        """The rendered objects by (kind, name)."""
        rendered = self.parse(self.text(values, release))
        return {(each["kind"], each["metadata"]["name"]): each for each in rendered}

    def parse(self, text):
        """The documents of a YAML text."""
        if text not in self._json:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(text)
                file.flush()
                out = self.run("template", "json", str(TESTS / "to-json"), "--set-file", "text=" + file.name)
            self._json[text] = [json.loads(line)["object"] for line in out.splitlines() if line.startswith("{")]
        return self._json[text]
