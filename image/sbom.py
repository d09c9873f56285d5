#!/usr/bin/env python3
"""Writes the bill of materials of an image into its root folder: sbom.py IMAGE ROOT CRATE...

It lists the crates that the programs are built from and, on Debian and what derives from it, the packages that libraries and certificate authorities are
from. Scanners of images recognize the CycloneDX document by its name. It has no time and no serial number: equal images have equal documents.
"""

import json
import pathlib
import shutil
import subprocess
import sys
from urllib.parse import quote

FILE = "sbom.cdx.json"
# Its installation makes the one file of all authorities, which therefore belongs to no package.
AUTHORITIES = "ca-certificates"


def component(name, version, purl, license=""):
    found = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if license:
        found["licenses"] = [{"expression": license}]
    return found


def crates(tree):
    """Components of what `cargo tree --prefix none --format '{p}<tab>{l}'` prints; crates of this repository, which have a path, are the image itself."""
    found = {}
    for line in tree.splitlines():
        package, _, license = line.replace(" (*)", "").partition("\t")
        if package and not package.endswith(")"):
            name, version = package.split(" v")
            found[name, version] = component(name, version, "pkg:cargo/%s@%s" % (name, quote(version)), license.replace("/", " OR "))
    return [found[key] for key in sorted(found)]


def packages(lines, release):
    """Components of packages, and the distribution by which scanners judge their versions.

    Each line is `name<tab>version<tab>architecture<tab>source package`; advisories are about source packages.
    """
    system, version_of_system = release["ID"], release.get("VERSION_ID", "unstable")
    found = [{"type": "operating-system", "name": system, "version": version_of_system}]
    for name, version, architecture, source in (line.split("\t") for line in sorted(lines)):
        purl = "pkg:deb/%s/%s@%s?arch=%s&distro=%s-%s" % (system, name, quote(version), architecture, system, version_of_system)
        purl += "" if source == name else "&upstream=" + quote(source)
        found.append(component(name, version, purl))
    return found


def document(name, version, components, kind="container"):
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": kind, "name": name, "version": version}},
        "components": components,
    }


def tree(names, triple=None):
    """What cargo tells of the crates' dependencies on the target `triple`, or on this machine."""
    selected = [argument for name in names for argument in ("--package", name)]
    target = ["--target", triple] if triple else []
    command = ["cargo", "tree", "--locked", *selected, *target, "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}\t{l}"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def dpkg_query(*arguments):
    """Lines about what it knows; of the rest it complains, and that is no failure."""
    return subprocess.run(["dpkg-query", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.splitlines()


def owners(path):
    """The packages that installed a file. Since /lib became a link, its files are known by either name."""
    real = pathlib.Path(path).resolve()
    names = [str(path), str(real), str(real).replace("/usr/lib", "/lib", 1)]
    return {line.partition(": ")[0] for line in dpkg_query("--search", *names)}


def installed(files):
    """Components of the packages that files of this machine, and the certificate authorities, are from."""
    if not shutil.which("dpkg-query"):
        return []
    names = {AUTHORITIES}.union(*(owners(path) for path in files))
    lines = dpkg_query("--show", "--showformat", "${Package}\t${Version}\t${Architecture}\t${source:Package}\n", *names)
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return packages(lines, {key: value.strip('"') for key, value in release.items()})


def loaded(root):
    """Where this machine has the libraries that an image loads."""
    return [pathlib.Path("/") / path.relative_to(root) for path in root.rglob("*.so*")]


def write(root, written):
    (root / FILE).write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")


def main(image, root, *names):
    root = pathlib.Path(root)
    told = tree(names)
    # "NAME vVERSION (PATH)"
    version = told.split(" ")[1][1:]
    write(root, document(image, version, crates(told) + installed(loaded(root))))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
