#!/usr/bin/env python3
"""Says what a target of the Makefile is about to build, how long that takes and how much disk it needs: plan.py demo|up|test

What is there already is left out. Ends with 1 where the disk has plainly too little room; ASYA_DISK_CHECK=no goes on all the same. Times and sizes
are those of docs/testing.md.
"""

import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

TOP = pathlib.Path(__file__).resolve().parent.parent
TABLES = TOP / "docs/testing.md"
# What the row of each part names.
ROWS = {
    "programs": "`Cargo.lock`",
    "control-plane": "`tests/cluster/control-plane`",
    "tools": "`tests/cluster/tools`",
    "helm3": "`tests/cluster/helm3`",
    "argocd": "`tests/cluster/argocd`",
    "keda": "`tests/cluster/keda`",
    "node": "`tests/cluster/node`",
    "dns": "`tests/cluster/dns`",
    "rabbitmq": "`rabbitmq-server`",
    "sqs": "localstack-core",
    "containers": "the distribution's packages",
    "python": "`tests/pods/root.py`",
    "cargo-deny": "cargo-deny",
}
GO = {"control-plane", "tools", "helm3", "argocd", "keda", "node", "dns"}
PACKAGES = {
    "rabbitmq": ["/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/lib64/rabbitmq/bin/rabbitmq-server", "/opt/rabbitmq/sbin/rabbitmq-server"],
    "containers": ["/usr/sbin/containerd", "/usr/bin/containerd", "/sbin/containerd"],
}
PROGRAMS = ("asya-cluster", "asya-controller", "asya-webhook", "asya-sidecar")
# Parts in the order in which they are built.
PARTS = {
    "demo": ("programs", "rabbitmq", "control-plane", "tools", "keda"),
    "up": ("programs", "rabbitmq", "control-plane", "tools"),
    "test": tuple(ROWS),
}
# Sizes are those of one machine: with less than this share of them the disk is plainly too small.
SHARE = 0.75
GB = 1e9


class Part(NamedTuple):
    name: str
    title: str
    seconds: int


class Folder(NamedTuple):
    """A folder that a build fills."""

    title: str
    variable: str
    path: pathlib.Path
    gigabytes: float  # that it still needs


def rows(text, heading):
    """Cells of the table whose first heading this is."""
    table = text.partition("\n| %s |" % heading)[2].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def seconds(text):
    number, unit = text.split()
    return int(number) * {"s": 1, "min": 60}[unit]


def parts(text, names):
    """Parts, by the table of docs/testing.md."""
    found = []
    for name in names:
        row = next(each for each in rows(text, "part") if ROWS[name] in " ".join(each[:2]))
        title = re.sub(r" \(.*\)|`|, for .*|, and our own.*", "", row[0])
        found.append(Part(name, title, seconds(row[2])))
    return found


def cache():
    """As the harness chooses it."""
    environment = os.environ
    if environment.get("ASYA_CACHE"):
        return pathlib.Path(environment["ASYA_CACHE"])
    base = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME", "/"), ".cache")
    return pathlib.Path(base, "asya-tests")


def target():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or TOP / "target")


def go_folder(variable):
    command = ["go", "env", variable]
    return pathlib.Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() or TOP)


def is_there(name):
    """Whether a part was built before, by its name alone: another version of it is built in addition."""
    if name == "programs":
        return all((target() / "debug" / each).exists() for each in PROGRAMS)
    if name in PACKAGES:
        return any(os.path.exists(each) for each in PACKAGES[name])
    return any(not each.name.endswith(".unfinished") for each in cache().glob(name + "-[0-9a-f]*"))


def size(folder, enough):
    """Bytes in a folder; stops counting at `enough`."""
    total, left = 0, [folder]
    while left and total < enough:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue  # deleted meanwhile, or not ours
    return total


def folders(text, missing):
    """What the missing parts fill, by the table of docs/testing.md."""
    go = bool(GO & missing)
    needed = {"CARGO_TARGET_DIR": "programs" in missing, "GOMODCACHE": go, "GOCACHE": go, "ASYA_CACHE": go}
    found = []
    for title, variable, gigabytes in rows(text, "folder"):
        variable = variable.strip("`")
        if needed[variable]:
            whole = float(gigabytes.split()[0])
            path = target() if variable == "CARGO_TARGET_DIR" else cache() if variable == "ASYA_CACHE" else go_folder(variable)
            left = max(0.0, whole - size(path, whole * GB) / GB)
            found.append(Folder(title.replace("`", ""), variable, path, left))
    return found


def disks(needed):
    """(folders, bytes that are free) of each file system."""
    found = {}
    for folder in needed:
        path = folder.path
        while not path.exists():
            path = path.parent
        status = os.statvfs(path)
        found.setdefault(os.stat(path).st_dev, ([], status.f_bavail * status.f_frsize))[0].append(folder)
    return list(found.values())


def duration(total):
    minutes = max(1, round(total / 60))
    return "%d min" % minutes if minutes < 90 else "%.1f hours" % (minutes / 60)


def plan(goal, missing):
    """What is built, and how long it takes."""
    if not missing:
        return ["make %s builds only what has changed." % goal]
    lines = ["make %s builds these first. They are kept, so the next run is short." % goal]
    lines += ["  %7s  %s" % (duration(part.seconds) if part.seconds >= 60 else "%d s" % part.seconds, part.title) for part in missing]
    total = duration(sum(part.seconds for part in missing))
    beside = "; the demo begins while the last one is being built" if goal == "demo" and missing[-1].name == "keda" and len(missing) > 1 else ""
    lines.append("  %7s  in all, roughly%s." % (total, beside))
    return lines + ["The tests, with the programs that they compile, take an hour and more, and all in all some 30 GB of disk."] * (goal == "test")


def space(needed, free):
    """What goes to one disk; and whether it is plainly too small."""
    total = sum(folder.gigabytes for folder in needed)
    listed = ", ".join("%s %.1f" % (folder.title, folder.gigabytes) for folder in needed)
    line = "Disk: some %.0f GB (%s); %.0f GB are free." % (total, listed, free / GB)
    if free >= total * GB:
        return line, False
    if free >= SHARE * total * GB:
        return line + " That may not be enough.", False
    moved = ", ".join("%s=FOLDER" % folder.variable for folder in needed)
    return line + "\nThat is too little. Free some space, or use another disk: %s. ASYA_DISK_CHECK=no goes on all the same." % moved, True


def main(goal):
    text = TABLES.read_text(encoding="utf-8")
    missing = [part for part in parts(text, PARTS[goal]) if not is_there(part.name)]
    print("\n".join(plan(goal, missing)))
    full = False
    for needed, free in disks(folders(text, {part.name for part in missing})):
        line, is_full = space(needed, free)
        print(line, file=sys.stderr if is_full else sys.stdout)
        full |= is_full
    sys.stdout.flush()
    return 1 if full and os.environ.get("ASYA_DISK_CHECK") != "no" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
