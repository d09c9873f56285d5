"""An image archive is what engines expect, and depends on its files alone."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import archive

NAME = "localhost/asya-operator:1"


class Archive(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def root(self, name="root", time=1):
        root = self.folder / name
        (root / "etc").mkdir(parents=True)
        (root / "program").write_bytes(b"\x7fELF")
        (root / "program").chmod(0o755)
        (root / "etc" / "passwd").write_text("asya:x:65532:65532::/:/sbin/nologin\n")
        for path in [root, *root.rglob("*")]:
            os.utime(path, (time, time))
        return root

    def files(self, root):
        archive.image("asya-operator", root, NAME, "x86_64").write(self.folder / "image.tar")
        with tarfile.open(self.folder / "image.tar") as tar:
            return {entry.name: tar.extractfile(entry).read() for entry in tar}

    def test_every_blob_is_named_by_its_hash_and_described_with_its_size(self):
        files = self.files(self.root())
        for name, content in files.items():
            if name.startswith("blobs/"):
                self.assertEqual(name, "blobs/sha256/" + hashlib.sha256(content).hexdigest())
        (found,) = json.loads(files["index.json"])["manifests"]
        manifest = json.loads(self.blob(files, found))
        for descriptor in [manifest["config"], *manifest["layers"]]:
            self.assertEqual(len(self.blob(files, descriptor)), descriptor["size"])

    def test_oci_layout_and_docker_archive_name_the_same_config_and_layer(self):
        files = self.files(self.root())
        (docker,) = json.loads(files["manifest.json"])
        (index,) = json.loads(files["index.json"])["manifests"]
        manifest = json.loads(self.blob(files, index))
        self.assertEqual(docker["RepoTags"], [NAME])
        self.assertEqual(index["annotations"]["io.containerd.image.name"], NAME)
        self.assertEqual(docker["Config"], archive.blob(manifest["config"]))
        self.assertEqual(docker["Layers"], [archive.blob(layer) for layer in manifest["layers"]])

    def test_layer_holds_the_files_with_their_modes_and_no_owner(self):
        files = self.files(self.root())
        (docker,) = json.loads(files["manifest.json"])
        packed = files[docker["Layers"][0]]
        unpacked = gzip.decompress(packed)
        config = json.loads(files[docker["Config"]])
        self.assertEqual(config["rootfs"]["diff_ids"], ["sha256:" + hashlib.sha256(unpacked).hexdigest()])
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as tar:
            modes = {entry.name: (entry.mode, entry.uid, entry.gid) for entry in tar}
        self.assertEqual(modes, {"etc": (0o755, 0, 0), "etc/passwd": (0o644, 0, 0), "program": (0o755, 0, 0)})

    def config(self, title):
        files = archive.image(title, self.root(title), NAME, "x86_64").files
        (docker,) = json.loads(files["manifest.json"])
        return json.loads(files[docker["Config"]])["config"]

    def test_sidecar_starts_as_a_user_without_rights_and_gives_memory_back(self):
        """SC-97, SC-98"""
        expected = {
            "User": "65532:65532",
            "WorkingDir": "/",
            "Entrypoint": ["/asya-sidecar"],
            "Env": ["MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=1048576"],
            "Labels": {"org.opencontainers.image.title": "asya-sidecar", "org.opencontainers.image.licenses": "Apache-2.0"},
        }
        self.assertEqual(self.config("asya-sidecar"), expected)

    def test_operator_starts_as_a_user_without_rights(self):
        expected = {
            "User": "65532:65532",
            "WorkingDir": "/",
            "Entrypoint": ["/asya-controller"],
            "Labels": {"org.opencontainers.image.title": "asya-operator", "org.opencontainers.image.licenses": "Apache-2.0"},
        }
        self.assertEqual(self.config("asya-operator"), expected)

    def test_containerfile_configures_the_same_images(self):
        """SC-98"""
        text = (pathlib.Path(archive.__file__).parent.parent / "Containerfile").read_text()
        for title in archive.IMAGES:
            _, _, stage = text.partition("FROM scratch AS %s\n" % title[len("asya-"):])
            stage, _, _ = stage.partition("\nFROM ")
            config = self.config(title)
            written = {line.partition(" ")[0]: line.partition(" ")[2] for line in stage.splitlines()}
            self.assertEqual(written["USER"], config["User"])
            self.assertEqual(json.loads(written["ENTRYPOINT"]), config["Entrypoint"])
            self.assertEqual(written.get("ENV", "").split(), config.get("Env", []))
            self.assertEqual(dict(label.split("=") for label in written["LABEL"].split()), config["Labels"])

    def test_equal_folders_make_equal_archives_whenever_they_were_made(self):
        self.assertEqual(self.files(self.root("a", time=1)), self.files(self.root("b", time=2)))

    def test_name_without_a_tag_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "registry:5000/asya has no tag"):
            archive.main("asya-operator", self.root(), "registry:5000/asya", self.folder / "image.tar")

    def test_unknown_image_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "no image asya: only asya-operator and asya-sidecar"):
            archive.main("asya", self.root(), NAME, self.folder / "image.tar")

    def test_folder_that_is_too_large_makes_no_archive(self):
        """SC-98"""
        root = self.root()
        (root / "program").write_bytes(bytes(1_100_000))
        with self.assertRaisesRegex(SystemExit, "root has 1.1 MB, more than 1"):
            archive.main("asya-sidecar", root, NAME, self.folder / "image.tar", "1")
        self.assertFalse((self.folder / "image.tar").exists())
        with contextlib.redirect_stdout(io.StringIO()):
            archive.main("asya-sidecar", root, NAME, self.folder / "image.tar", "2")
        self.assertTrue((self.folder / "image.tar").exists())

    def blob(self, files, descriptor):
        return files[archive.blob(descriptor)]


if __name__ == "__main__":
    unittest.main()
