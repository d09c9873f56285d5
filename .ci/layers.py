"""Whether a folder of the controller imports only from folders below it, in the order of docs/architecture.md."""

import re

FIRST = "controller/  asya-controller"
LISTED = re.compile(r"^  src/(\S.*)$")
INLINE_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod tests \{.*", re.MULTILINE | re.DOTALL)
# Files that belong to no folder.
ROOT = {"lib", "main"}


def order(page):
    """Folders and files of controller/src, from the top to the bottom of the list, and from left to right."""
    lines = iter(page.splitlines())
    for line in lines:
        if line.startswith(FIRST):
            break
    found = []
    for line in lines:
        if not line.startswith("  "):
            break
        match = LISTED.match(line)
        if match:
            # Columns are apart by two spaces or more; the last one is the description.
            for word in re.split(r"  +", match.group(1)):
                if not re.fullmatch(r"\w+(/|\.rs)", word):
                    break
                found.append(word.rstrip("/").removesuffix(".rs"))
    return [name for name in found if name not in ROOT]


def imported(module, text):
    """Top-level modules that a module's source names with their path, each with the number of its first line."""
    text = INLINE_TESTS.sub("", text)
    code = "\n".join("" if line.lstrip().startswith("//") else line for line in text.splitlines())
    up = r"(?:super::){%d}" % len(module)
    found = {}
    for match in re.finditer(r"\b(?:crate::|%s)(?:(\w+)|\{)" % up, code):
        names = [match.group(1)] if match.group(1) else heads(code[match.end() :])
        for name in names:
            found.setdefault(name, code.count("\n", 0, match.start()) + 1)
    return found


def heads(group):
    """First names of the paths in the group of a `use` that begins here."""
    found, depth, at_start = [], 0, True
    for token in re.findall(r"\w+|[{},]", group):
        if token == "}":
            if depth == 0:
                break
            depth -= 1
        elif token == "{":
            depth += 1
        elif token == "," and depth == 0:
            at_start = True
        elif at_start:
            found.append(token)
            at_start = False
    return found


def module_of(path):
    """The names of the module whose source is this file below src/."""
    names = path.removesuffix(".rs").split("/")
    return names[:-1] if names[-1] == "mod" else names


def upward(folders, sources):
    """Imports from above, for sources by their path below src/, tests excluded."""
    place = {name: index for index, name in enumerate(folders)}
    for path, text in sorted(sources.items()):
        module = module_of(path)
        own = module[0]
        if own in ROOT:
            continue
        if own not in place:
            yield "controller/src/%s: list %s in docs/architecture.md, section 2" % (path, own)
            continue
        for name, line in imported(module, text).items():
            if place.get(name, len(place)) < place[own]:
                yield "controller/src/%s:%d: %s stands above %s in docs/architecture.md, section 2" % (path, line, name, own)
