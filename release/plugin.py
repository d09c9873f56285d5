"""The program behind `kubectl asya`, as an archive for each platform whose bytes depend on its content alone."""

import gzip
import io
import json
import pathlib
import tarfile

import platforms
import programs
import sbom

(NAME,) = programs.PLUGIN
LICENSE = "LICENSE"


def file_name(version, platform):
    return "%s-%s-%s.tar.gz" % (NAME, version, platform.name.replace("/", "-"))


def pack(files, epoch):
    """An archive of files: content and mode by name. They are in order, without owners and with one time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), mode, epoch
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def bill(platform, version):
    """The bill of materials: the program's crates, and the C library that is linked into it."""
    _, musl = platforms.musl(platform)
    library = sbom.component("musl", musl, "pkg:generic/musl@" + musl, "MIT")
    crates = sbom.crates(sbom.tree(programs.PLUGIN, platform.triple))
    return sbom.document(NAME, version, [*crates, library], "application")


def build(version, built, top, epoch, out):
    """Writes an archive and a bill of materials for each platform into `out`; returns the archives' paths by platform.

    `built` has the folder of the program for each platform.
    """
    paths = {}
    for platform, folder in built.items():
        program = (pathlib.Path(folder) / NAME).read_bytes()
        files = {NAME: (program, 0o755), LICENSE: ((top / LICENSE).read_bytes(), 0o644)}
        paths[platform] = out / file_name(version, platform)
        paths[platform].write_bytes(pack(files, epoch))
        listed = out / file_name(version, platform).replace(".tar.gz", ".cdx.json")
        listed.write_text(json.dumps(bill(platform, version), indent=1, sort_keys=True) + "\n")
    return paths
