#!/usr/bin/env python3
"""Makes an image archive of a folder, without an engine or a registry: archive.py ROOT NAME:TAG FILE

The file is an OCI layout and a docker archive at once, so `docker load`, `podman load`, `ctr images import` and skopeo read it. Equal folders make equal archives.
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


def image(root, name, machine):
    """The image `name` of the files in `root`."""
    layout = Layout()
    tar = layer(root)
    packed = layout.add("layer.v1.tar+gzip", gzip.compress(tar, mtime=0))
    config = layout.add(
        "config.v1+json",
        to_json(
            {
                "architecture": ARCHITECTURES[machine],
                "os": "linux",
                "config": {
                    "User": USER,
                    "WorkingDir": "/",
                    "Entrypoint": ["/asya-controller"],
                    "Labels": {"org.opencontainers.image.title": "asya-operator", "org.opencontainers.image.licenses": "Apache-2.0"},
                },
                "rootfs": {"type": "layers", "diff_ids": [digest(tar)]},
            }
        ),
    )
    manifest_type = "manifest.v1+json"
    manifest = layout.add(
        manifest_type,
        to_json({"schemaVersion": 2, "mediaType": "application/vnd.oci.image." + manifest_type, "config": config, "layers": [packed]}),
    )
    # containerd takes the image's whole name from its own annotation, others the tag from the standard one
    manifest["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    layout.files["index.json"] = to_json({"schemaVersion": 2, "manifests": [manifest]})
    layout.files["manifest.json"] = to_json([{"Config": blob(config), "RepoTags": [name], "Layers": [blob(packed)]}])
    return layout


def main(root, name, file):
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise SystemExit("no image for %s: only for %s" % (machine, " and ".join(ARCHITECTURES)))
    if ":" not in name.rpartition("/")[2]:
        raise SystemExit("%s has no tag: write NAME:TAG" % name)
    root = pathlib.Path(root)
    if not any(root.iterdir()):
        raise SystemExit("%s is empty" % root)
    image(root, name, machine).write(file)
    print("%s: %s, %.1f MB" % (file, name, os.path.getsize(file) / 1e6))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
