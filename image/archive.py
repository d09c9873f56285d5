#!/usr/bin/env python3
"""Makes an image archive of a folder, without an engine or a registry: archive.py IMAGE ROOT NAME:TAG FILE [MEGABYTES]

IMAGE is asya-operator or asya-sidecar. A folder with more than so many megabytes (10^6 bytes) is refused. The file is an OCI layout and a docker archive at once, so `docker load`, `podman load`, `ctr images import` and skopeo read it. Equal folders make equal archives.
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import sys
import tarfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
USER = "65532:65532"
# What each image starts, and what sets it apart. Containerfile says the same.
IMAGES = {
    "asya-operator": {"Entrypoint": ["/asya-controller"]},
    # The C library gives the memory of large messages back to the system at once (SC-98).
    "asya-sidecar": {"Entrypoint": ["/asya-sidecar"], "Env": ["MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=1048576"]},
}


def layer(root):
    """The folder as a tar, in an order and with times that do not depend on when and where it was made."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            entry = tar.gettarinfo(path, arcname=str(path.relative_to(root)))
            entry.mtime = entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mode = 0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644
            with path.open("rb") if path.is_file() else io.BytesIO() as content:
                tar.addfile(entry, content)
    return buffer.getvalue()


class Layout:
    """An OCI layout in memory."""

    def __init__(self):
        self.files = {"oci-layout": to_json({"imageLayoutVersion": "1.0.0"})}

    def add(self, media_type, content):
        """Stores a blob; returns its descriptor."""
        descriptor = {"mediaType": "application/vnd.oci.image." + media_type, "digest": digest(content), "size": len(content)}
        self.files[blob(descriptor)] = content
        return descriptor

    def add_document(self, media_type, content):
        """Stores a manifest or an index; returns its descriptor."""
        whole = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image." + media_type, **content}
        return self.add(media_type, to_json(whole))

    def point_to(self, descriptor):
        """Makes this the one image of the layout."""
        self.files["index.json"] = to_json({"schemaVersion": 2, "manifests": [descriptor]})

    def write(self, path):
        with tarfile.open(path, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name, content in sorted(self.files.items()):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                entry.mode = 0o644
                tar.addfile(entry, io.BytesIO(content))


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def blob(descriptor):
    """Where a layout has what the descriptor describes."""
    return "blobs/" + descriptor["digest"].replace(":", "/")


def to_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def unpacked(root):
    """Bytes of all files."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def add_image(layout, title, root, architecture, labels=None, created=None):
    """Stores the image `title`, one of IMAGES, with the files in `root`; returns its manifest's descriptor."""
    tar = layer(root)
    packed = layout.add("layer.v1.tar+gzip", gzip.compress(tar, mtime=0))
    own_labels = {"org.opencontainers.image.title": title, "org.opencontainers.image.licenses": "Apache-2.0"}
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"User": USER, "WorkingDir": "/", **IMAGES[title], "Labels": {**own_labels, **(labels or {})}},
        "rootfs": {"type": "layers", "diff_ids": [digest(tar)]},
    }
    if created:
        config["created"] = created
    manifest = {"config": layout.add("config.v1+json", to_json(config)), "layers": [packed]}
    return layout.add_document("manifest.v1+json", manifest)


def names(name):
    """Annotations of an index that name its image: containerd takes the whole name from its own, others the tag from the standard one."""
    return {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}


def image(title, root, name, machine):
    """The image `title`, one of IMAGES, with the files in `root`, as `name`."""
    layout = Layout()
    manifest = add_image(layout, title, root, ARCHITECTURES[machine])
    layout.point_to({**manifest, "annotations": names(name)})
    content = json.loads(layout.files[blob(manifest)])
    layers = [blob(each) for each in content["layers"]]
    layout.files["manifest.json"] = to_json([{"Config": blob(content["config"]), "RepoTags": [name], "Layers": layers}])
    return layout


def main(title, root, name, file, megabytes="inf"):
    if title not in IMAGES:
        raise SystemExit("no image %s: only %s" % (title, " and ".join(IMAGES)))
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise SystemExit("no image for %s: only for %s" % (machine, " and ".join(ARCHITECTURES)))
    if ":" not in name.rpartition("/")[2]:
        raise SystemExit("%s has no tag: write NAME:TAG" % name)
    root = pathlib.Path(root)
    if not any(root.iterdir()):
        raise SystemExit("%s is empty" % root)
    size = unpacked(root) / 1e6
    if size > float(megabytes):
        raise SystemExit("%s has %.1f MB, more than %s" % (root, size, megabytes))
    image(title, root, name, machine).write(file)
    print("%s: %s, %.1f MB, unpacked %.1f MB" % (file, name, os.path.getsize(file) / 1e6, size))


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
