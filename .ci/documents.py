#!/usr/bin/env python3
"""Reads the documents of the project: blocks, commands, manifests and names, for test_documents.py.

As a program it lists the commands in `sh` blocks, which no test runs: documents.py [FILE...]
"""

import json
import pathlib
import re
import sys
from typing import NamedTuple

TOP = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 120
FENCE = re.compile(r"^(\s*)```(\S*)\s*$")


class Block(NamedTuple):
    """A fenced block; `line` is that of its first line of text."""

    line: int
    language: str
    text: str


def documents():
    """All documents but the README and the change log, by their path."""
    found = [*TOP.glob("docs/**/*.md"), TOP / "CONTRIBUTING.md", TOP / "SECURITY.md"]
    return {str(path.relative_to(TOP)): path.read_text(encoding="utf-8") for path in sorted(found)}


def blocks(text):
    """The fenced blocks of a document, less their indentation."""
    found, start = [], None
    for number, line in enumerate(text.split("\n"), 1):
        match = FENCE.match(line)
        if start is None and match:
            start, indent, lines = number, len(match[1]), []
            language = match[2]
        elif start is not None and match and not match[2]:
            found.append(Block(start + 1, language, "\n".join(lines)))
            start = None
        elif start is not None:
            lines.append(line[indent:] if not line[:indent].strip() else line)
    return found


def prose(text):
    """The document without its fenced blocks; lines keep their numbers."""
    kept, inside = [], False
    for line in text.split("\n"):
        fence = FENCE.match(line)
        inside = inside != bool(fence)
        kept.append("" if inside or fence else line)
    return "\n".join(kept)


def spans(text):
    """What stands between backticks in prose, with line breaks as spaces."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(text))]


def commands(text):
    """The commands of the `sh` blocks of a document, continued lines joined, without comments and here-documents."""
    for block in blocks(text):
        if block.language == "sh":
            lines = re.sub(r"<<'?(\w+)'?\n.*?\n\1$", "", block.text, flags=re.DOTALL | re.MULTILINE)
            for line in lines.replace("\\\n", " ").split("\n"):
                command = " ".join(re.sub(r"(^|\s)#.*$", "", line).split())
                if command:
                    yield command


def code(text):
    """Everything that is written as code: spans and commands."""
    return [*spans(text), *commands(text)]


def long_lines(text, width=WIDTH):
    """Numbers of lines of prose or `sh` that are too long. Tables cannot be wrapped, and links need not be."""
    inside = None
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if fence:
            inside = None if inside is not None else fence[2]
        checked = inside in (None, "sh", "yaml") and not line.lstrip().startswith("|")
        if checked and len(re.sub(r"\]\([^)]*\)|https?://\S+", "", line)) > width:
            yield number


def make_targets(text):
    """Targets that the document tells to make."""
    for piece in code(text):
        for found in re.findall(r"(?:^|[;&|] *)make ((?:[a-z][a-z-]* ?)+)", piece):
            yield from found.split()


def set_paths(text):
    """Paths of values in `--set`, indices removed."""
    for piece in code(text):
        for found in re.findall(r"--set(?:-string|-json|-file)?[ =]['\"]?([^=\s]+)=", piece):
            yield re.sub(r"\[\d+\]", "[]", found.replace("\\.", "/"))


def asya_names(text):
    """Labels, annotations, finalizers and tags of the group asya.sh that a document names."""
    names = re.findall(r"(?<![./\w-])asya\.sh/([a-z][a-z0-9-]*)", text)
    return {"asya.sh/" + name for name in names if not re.fullmatch(r"v\d+((alpha|beta)\d+)?", name)}


def paths(text):
    """Files of the repository that a document names, as code."""
    return {span for span in spans(text) if re.fullmatch(r"[\w.-]+(?:/[\w.-]+)+\.(?:rs|py|sh|md|go|ya?ml|json|toml|tpl)", span)}


def anchors(text):
    """What links may name in a document: its headings, as a browser of repositories writes them."""
    headings = re.findall(r"^#+ (.+?)\s*$", prose(text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one)).lower().replace(" ", "-") for one in headings]
    return {one if plain.index(one) == at else "%s-%d" % (one, plain[:at].count(one)) for at, one in enumerate(plain)}


def anchored_links(text):
    """Links to headings: pairs of a file (empty for the document itself) and a heading."""
    return re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", prose(text))


class Schema:
    """A JSON schema, as far as those of the CRD and of the chart go."""

    def __init__(self, root):
        self._root = root

    def errors(self, value, path="", node=None, complete=True):
        """What the schema does not allow; a value that is not `complete` may lack what is required."""
        node = self._followed(self._root if node is None else node)
        if value is None and (node.get("nullable") or "type" not in node):
            return []
        if node.get("anyOf") and "properties" not in node:
            tries = [self.errors(value, path, one, complete) for one in node["anyOf"]]
            return [] if [] in tries else min(tries, key=len)
        if isinstance(value, dict):
            return self._object(value, path, node, complete)
        if isinstance(value, list):
            items = node.get("items", {})
            found = [error for at, one in enumerate(value) for error in self.errors(one, "%s[%d]" % (path, at), items, complete)]
            return found if self._is(node, "array") else ["%s must not be a list" % path]
        return list(self._scalar(value, path, node))

    def has(self, path):
        """Whether a path of names exists; `[]` stands for the items of a list."""
        return self._at(path) is not None

    def names(self, path):
        """The names that the schema lists below a path."""
        return list((self._at(path) or {}).get("properties", ()))

    def _at(self, path):
        node = self._followed(self._root)
        for name in re.findall(r"\[\]|[^.\[\]]+", path):
            below = node.get("items") if name == "[]" else node.get("properties", {}).get(name, self._free(node))
            if below is None:
                return None
            node = self._followed(below)
        return node

    def _followed(self, node):
        while "$ref" in node:
            target = self._root
            for name in node["$ref"].lstrip("#/").split("/"):
                target = target[name]
            node = target
        return node

    @staticmethod
    def _free(node):
        """The schema of names that are not listed, or None if there must be none."""
        free = node.get("additionalProperties")
        if isinstance(free, dict):
            return free
        open_ended = free is True or node.get("x-kubernetes-preserve-unknown-fields")
        listed = "properties" in node or free is False
        return {} if open_ended or not listed else None

    @staticmethod
    def _is(node, kind):
        wanted = node.get("type", kind)
        return kind == wanted or kind in (wanted if isinstance(wanted, list) else ())

    def _object(self, value, path, node, complete):
        if not self._is(node, "object"):
            return ["%s must not be an object" % path]
        known = node.get("properties", {})
        found = []
        for name, one in value.items():
            inner = "%s.%s" % (path, name) if path else str(name)
            schema = known.get(name, self._free(node))
            found += ["%s is not known" % inner] if schema is None else self.errors(one, inner, schema, complete)
        missing = [name for name in node.get("required", ()) if complete and name not in value]
        return found + ["%s.%s is missing" % (path, name) for name in missing]

    def _scalar(self, value, path, node):
        if node.get("x-kubernetes-int-or-string"):
            return
        kind = {bool: "boolean", int: "integer", float: "number", str: "string"}.get(type(value), "null")
        if not self._is(node, kind) and not (kind == "integer" and self._is(node, "number")):
            yield "%s must be %s, not %s" % (path, node["type"], kind)
        elif "enum" in node and value not in node["enum"]:
            yield "%s must be one of %s" % (path, node["enum"])
        elif "pattern" in node and isinstance(value, str) and not re.search(node["pattern"], value):
            yield "%s must match %s" % (path, node["pattern"])


def chart_schema():
    return Schema(json.loads((TOP / "charts/asya-operator/values.schema.json").read_text(encoding="utf-8")))


def defined_names():
    """Names of the group asya.sh in the code of crate `shared`, its tests left out."""
    found = set()
    for path in TOP.glob("shared/src/**/*.rs"):
        if "tests" not in path.stem and "tests" not in path.parts:
            found |= asya_names(path.read_text(encoding="utf-8").partition("#[cfg(test)]")[0])
    return found


def main(names):
    for name, text in documents().items():
        found = list(commands(text)) if not names or name in names else []
        if found:
            print("%s\n  %s" % (name, "\n  ".join(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
