"""The archives of kubectl-asya hold the program and the licence, and depend on their content alone."""

import gzip
import io
import pathlib
import tarfile
import tempfile
import unittest
from unittest import mock

from modules import TOP

import platforms
import plugin

EPOCH = 1700000000
FILES = {"kubectl-asya": (b"\x7fELF", 0o755), "LICENSE": (b"Apache", 0o644)}


class Pack(unittest.TestCase):
    def test_order_does_not_matter_and_nothing_of_the_machine_is_written(self):
        first = plugin.pack(FILES, EPOCH)
        self.assertEqual(first, plugin.pack(dict(reversed(list(FILES.items()))), EPOCH))
        # No flags, and thus no name; no time.
        self.assertEqual(first[3:8], bytes(5))
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(first))) as tar:
            found = [(each.name, each.mode, each.mtime, each.uid, each.gid, each.uname, each.gname) for each in tar]
        expected = [("LICENSE", 0o644, EPOCH, 0, 0, "", ""), ("kubectl-asya", 0o755, EPOCH, 0, 0, "", "")]
        self.assertEqual(found, expected)

    def test_other_content_makes_another_archive(self):
        self.assertNotEqual(plugin.pack(FILES, EPOCH), plugin.pack({**FILES, "LICENSE": (b"MIT", 0o644)}, EPOCH))


class Build(unittest.TestCase):
    def build(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        top, built = pathlib.Path(folder.name), {}
        for platform in platforms.MUSL.values():
            built[platform] = top / platform.architecture
            built[platform].mkdir()
            (built[platform] / "kubectl-asya").write_text("a program for " + platform.name)
        (top / "out").mkdir()
        with mock.patch.object(plugin, "bill", return_value={"bomFormat": "CycloneDX"}):
            paths = plugin.build("0.2.0", built, TOP, EPOCH, top / "out")
        return paths, {path.name: path.read_bytes() for path in (top / "out").iterdir()}

    def test_every_platform_has_an_archive_and_a_bill_of_materials(self):
        paths, files = self.build()
        names = {"kubectl-asya-0.2.0-linux-" + each for each in ("amd64", "arm64")}
        self.assertEqual(set(files), {name + end for name in names for end in (".tar.gz", ".cdx.json")})
        for platform, path in paths.items():
            with tarfile.open(fileobj=io.BytesIO(files[path.name])) as tar:
                self.assertEqual(tar.extractfile("kubectl-asya").read().decode(), "a program for " + platform.name)
                self.assertEqual(tar.extractfile("LICENSE").read(), (TOP / "LICENSE").read_bytes())

    def test_two_builds_of_the_same_programs_are_the_same_files(self):
        self.assertEqual(self.build()[1], self.build()[1])


class Bill(unittest.TestCase):
    def test_crates_and_the_c_library_of_rust_are_listed(self):
        platform = platforms.MUSL["linux/amd64"]
        tree = "kubectl-asya v0.2.0 (/source/cli)\tApache-2.0\nbytes v1.11.0\tMIT\n"
        told = mock.patch.object(plugin.sbom, "tree", return_value=tree)
        with told, mock.patch.object(platforms, "musl", return_value=(pathlib.Path("libc.a"), "1.2.5")):
            found = plugin.bill(platform, "0.2.0")
        self.assertEqual(found["metadata"]["component"]["type"], "application")
        expected = ["pkg:cargo/bytes@1.11.0", "pkg:generic/musl@1.2.5"]
        self.assertEqual([each["purl"] for each in found["components"]], expected)


if __name__ == "__main__":
    unittest.main()
