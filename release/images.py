"""The images of a release: an OCI layout for each, with an index of its platforms."""

import datetime
import pathlib
import re
import shutil
import subprocess

import archive
import platforms
import programs
import sbom

TOP = pathlib.Path(__file__).resolve().parent.parent

PROGRAMS = {"asya-operator": programs.OPERATOR, "asya-sidecar": programs.SIDECAR}
# Megabytes, unpacked (SC-98): every node pulls it.
LIMITS = {"asya-sidecar": 15}
# Where the operator has the image that bindings start by default.
SETTINGS = "shared/src/config/settings.rs"


def lay_out(title, folder, root):
    """Writes an image's files into an empty folder."""
    paths = [str(folder / name) for name in PROGRAMS[title]]
    subprocess.run([str(TOP / "image/root.sh"), str(root), *paths], check=True)
    size = archive.unpacked(root) / 1e6
    if size > LIMITS.get(title, float("inf")):
        raise SystemExit("%s has %.1f MB, more than %s" % (title, size, LIMITS[title]))


def bill(title, platform, version):
    """The bill of materials of an image: its crates, what is linked into its programs, its certificate authorities."""
    crates = sbom.crates(sbom.tree(PROGRAMS[title], platform.triple))
    return sbom.document(title, version, crates + sbom.installed(platforms.linked(platform)))


def layout(title, name, roots, commit, epoch):
    """An OCI layout of the image `title` as `name`, from a root folder for each platform; and its index's digest."""
    version = name.rpartition(":")[2]
    labels = {"org.opencontainers.image.version": version, "org.opencontainers.image.revision": commit}
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = archive.Layout()
    manifests = [
        {
            **archive.add_image(made, title, root, platform.architecture, labels, created),
            "platform": {"os": "linux", "architecture": platform.architecture},
        }
        for platform, root in roots.items()
    ]
    index = made.add_document("index.v1+json", {"manifests": manifests, "annotations": labels})
    made.point_to({**index, "annotations": archive.names(name)})
    return made, index["digest"]


def runtime_image(top):
    """The image of others that bindings start unless told otherwise."""
    match = re.search(r'runtime_image: "(.*)"', (top / SETTINGS).read_text())
    if not match:
        raise SystemExit("%s has no runtime_image" % SETTINGS)
    return "docker.io/library/" + match[1]


def build(version, registry, built, commit, epoch, out, work):
    """Writes layouts and bills of materials into `out`; returns the images' names with their digests.

    `built` has the folder of the programs for each platform.
    """
    references = []
    for title in PROGRAMS:
        roots = {}
        for platform, folder in built.items():
            root = work / ("%s-%s" % (title, platform.architecture))
            lay_out(title, folder, root)
            sbom.write(root, bill(title, platform, version))
            copy = "%s-%s-linux-%s.cdx.json" % (title, version, platform.architecture)
            shutil.copyfile(root / sbom.FILE, out / copy)
            roots[platform] = root
        name = "%s%s:%s" % (registry, title, version)
        made, digest = layout(title, name, roots, commit, epoch)
        made.write(out / ("%s-%s.oci.tar" % (title, version)))
        references.append("%s@%s" % (name, digest))
    return references
