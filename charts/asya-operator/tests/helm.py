"""Renders the chart with a given helm and hands back its objects."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent
CHART = TESTS.parent


class Refused(Exception):
    """Helm refused the values; the text says why."""


def cache():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get("ASYA_CACHE") or os.path.join(home, "asya-tests"))


def binary(major):
    """The helm of that major version: from $ASYA_HELM3 or $ASYA_HELM4, the cache of the tests, or PATH."""
    named = os.environ.get("ASYA_HELM%d" % major)
    candidates = [named] if named else [
        *(str(cache() / "bin" / name) for name in ("helm%d" % major, "helm")),
        shutil.which("helm%d" % major),
        shutil.which("helm"),
    ]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK) and _major(candidate) == major:
            return candidate
    raise SystemExit("helm %d is missing: run `make test-chart`, which builds it, or set ASYA_HELM%d" % (major, major))


def _major(candidate):
    answer = subprocess.run([candidate, "version", "--template", "{{.Version}}"], capture_output=True, text=True)
    return int(answer.stdout.lstrip("v").split(".")[0]) if answer.returncode == 0 else None


class Helm:
    def __init__(self, major):
        self.program = binary(major)
        self._json = {}

    def run(self, *arguments):
        with tempfile.TemporaryDirectory() as home:
            paths = {"HELM_%s_HOME" % kind: home for kind in ("CACHE", "CONFIG", "DATA")}
            # An address without a cluster: nothing here may need one.
            environment = {**os.environ, **paths, "KUBECONFIG": os.path.join(home, "none")}
            answer = subprocess.run(
                [self.program, *arguments], capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL
            )
        if answer.returncode != 0:
            raise Refused(answer.stderr + answer.stdout)
        return answer.stdout

    def text(self, values=None, release="asya-operator", command=("template",)):
        """What the chart renders; values is an object, or the path of a values file."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            if not isinstance(values, (str, pathlib.Path)):
                json.dump(values or {}, file)
                file.flush()
                values = file.name
            return self.run(*command, release, str(CHART), "--namespace", "asya-system", "--values", str(values))

    def objects(self, values=None, release="asya-operator"):
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

    def notes(self, values=None):
        return self.text(values, command=("install", "--dry-run=client")).split("NOTES:", 1)[1]
