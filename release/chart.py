"""The chart as a package whose bytes depend on its content alone, and as manifests for those without helm."""

import gzip
import io
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

NAME = "asya-operator"
NAMESPACE = "asya-system"
# Of values.yaml, where only a comment may come before it; it is replaced if the release has a registry.
REPOSITORY = re.compile(r"(?<=\nimage:\n)((?:  #.*\n)*  repository: )%s(?=\n)" % NAME)
NAMESPACE_MANIFEST = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n" % NAMESPACE


def run(helm, work, *arguments):
    """helm, without the settings and caches of the user."""
    environment = {**os.environ, "HOME": str(work)}
    for key in [key for key in environment if key.startswith(("HELM_", "XDG_"))]:
        del environment[key]
    command = [str(helm), *map(str, arguments)]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout


def with_registry(values, registry):
    """values.yaml, with the operator's image in a registry (which ends in a slash, or is empty)."""
    if not REPOSITORY.search(values):
        raise SystemExit("values.yaml does not set image.repository to %s" % NAME)
    return REPOSITORY.sub(lambda found: found.group(1) + registry + NAME, values)


def repack(package, epoch):
    """A package with its files in order, and without owners and times of its making."""
    packed = io.BytesIO()
    with tarfile.open(package) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for entry in sorted((each for each in old if each.isfile()), key=lambda each: each.name):
            clean = tarfile.TarInfo(entry.name)
            clean.size, clean.mode, clean.mtime = entry.size, 0o644, epoch
            new.addfile(clean, old.extractfile(entry))
    return gzip.compress(packed.getvalue(), mtime=0)


def package(helm, chart, version, registry, epoch, out, work):
    """Writes the package into `out` and returns its path."""
    copy = work / NAME
    shutil.copytree(chart, copy)
    values = copy / "values.yaml"
    values.write_text(with_registry(values.read_text(), registry))
    versions = ["--version", version, "--app-version", version]
    run(helm, work, "package", copy, *versions, "--destination", work)
    name = "%s-%s.tgz" % (NAME, version)
    (out / name).write_bytes(repack(work / name, epoch))
    return out / name


def manifests(helm, packed, work):
    """What the chart installs with its defaults. Its hooks are left out: outside helm they would run at once."""
    options = ["--namespace", NAMESPACE, "--no-hooks", "--skip-tests"]
    return NAMESPACE_MANIFEST + run(helm, work, "template", NAME, pathlib.Path(packed), *options)
