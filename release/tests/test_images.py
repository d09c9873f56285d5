"""An image of a release has one index for all platforms, which depends on its files alone."""

import json
import pathlib
import tempfile
import unittest

from modules import TOP

import archive
import images
import platforms

EPOCH = 1700000000
COMMIT = "0" * 40
NAME = "registry.example.com/asya/asya-sidecar:0.2.0"


class Images(unittest.TestCase):
    def roots(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        roots = {}
        for name, platform in sorted(platforms.ALL.items()):
            root = pathlib.Path(folder.name, platform.architecture)
            root.mkdir()
            (root / "asya-sidecar").write_text("a program for " + name)
            roots[platform] = root
        return roots

    def document(self, made, descriptor):
        return json.loads(made.files[archive.blob(descriptor)])

    def test_index_names_an_image_for_each_platform(self):
        made, digest = images.layout("asya-sidecar", NAME, self.roots(), COMMIT, EPOCH)
        (entry,) = json.loads(made.files["index.json"])["manifests"]
        self.assertEqual(entry["digest"], digest)
        self.assertEqual(entry["annotations"]["io.containerd.image.name"], NAME)
        self.assertEqual(entry["annotations"]["org.opencontainers.image.ref.name"], "0.2.0")
        index = self.document(made, entry)
        self.assertEqual(index["mediaType"], entry["mediaType"])
        found = {}
        for manifest in index["manifests"]:
            config = self.document(made, self.document(made, manifest)["config"])
            found[config["architecture"]] = manifest["platform"]
            self.assertEqual(config["created"], "2023-11-14T22:13:20Z")
            self.assertEqual(config["config"]["Labels"]["org.opencontainers.image.version"], "0.2.0")
            self.assertEqual(config["config"]["Labels"]["org.opencontainers.image.revision"], COMMIT)
            self.assertEqual(config["config"]["Env"], archive.IMAGES["asya-sidecar"]["Env"])
        expected = {each: {"os": "linux", "architecture": each} for each in ("amd64", "arm64")}
        self.assertEqual(found, expected)

    def test_equal_files_make_equal_layouts(self):
        first, second = (images.layout("asya-sidecar", NAME, self.roots(), COMMIT, EPOCH) for _ in range(2))
        self.assertEqual(first[0].files, second[0].files)
        self.assertEqual(first[1], second[1])

    def test_every_image_is_of_one_and_has_programs(self):
        self.assertEqual(set(images.PROGRAMS), set(archive.IMAGES))

    def test_default_image_of_bindings_is_the_one_that_the_chart_names(self):
        short = images.runtime_image(TOP)[len("docker.io/library/") :]
        self.assertIn("empty means %s." % short, (TOP / "charts/asya-operator/values.yaml").read_text())

    def test_sidecar_that_is_too_large_is_not_released(self):
        """SC-98"""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "asya-sidecar").write_bytes(bytes(15_000_001))
            with self.assertRaisesRegex(SystemExit, "asya-sidecar has 15.* MB, more than 15"):
                images.lay_out("asya-sidecar", folder, folder / "root")


if __name__ == "__main__":
    unittest.main()
