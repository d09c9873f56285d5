"""Sums and notes cover what is released."""

import hashlib
import os
import pathlib
import subprocess
import tempfile
import types
import unittest
from unittest import mock

import modules

import platforms
import release


class Release(unittest.TestCase):
    def test_sums_are_what_sha256sum_checks(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for name in ("b", "a"):
                (folder / name).write_text(name)
            (folder / "SHA256SUMS").write_text(release.sums(folder))
            command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
            checked = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True, text=True)
        self.assertEqual(checked.stdout, "a: OK\nb: OK\n")

    def test_notes_end_with_the_images_by_digest(self):
        found = release.notes("### Added\n\n- A thing.\n", ["asya-operator:0.2.0@sha256:a"])
        self.assertEqual(found, "### Added\n\n- A thing.\n\n### Images\n\n- `asya-operator:0.2.0@sha256:a`\n")

    def test_manifest_of_krew_has_the_checksums_of_the_archives_that_are_released(self):
        options = types.SimpleNamespace(version="0.2.0", target="target", download_url="https://example.com")
        bill = mock.patch.object(release.plugin, "bill", return_value={})
        source = mock.patch.dict(os.environ, ASYA_RELEASE_SOURCE="https://me:secret@example.com/asya")
        with tempfile.TemporaryDirectory() as folder, bill, source:
            folder, out = pathlib.Path(folder), pathlib.Path(folder, "out")
            out.mkdir()
            (folder / "kubectl-asya").write_bytes(b"\x7fELF")
            with mock.patch.object(release.programs, "build", return_value=folder) as build:
                release.make_plugin(options, list(platforms.MUSL.values()), 1700000000, out)
            manifest = (out / "asya.yaml").read_text()
            archives = sorted(out.glob("*.tar.gz"))
            self.assertEqual(len(archives), 2)
            for path in archives:
                self.assertIn("uri: \"https://example.com/%s\"" % path.name, manifest)
                self.assertIn("sha256: " + hashlib.sha256(path.read_bytes()).hexdigest(), manifest)
        self.assertIn('homepage: "https://example.com/asya"\n', manifest)
        self.assertEqual({call[0][4] for call in build.call_args_list}, {(("kubectl-asya",),)})

    def test_tree_with_changes_is_not_released(self):
        with mock.patch.object(release, "git", return_value=" M README.md"):
            with self.assertRaisesRegex(SystemExit, "commit these changes first.*\n M README.md"):
                release.require_clean()


if __name__ == "__main__":
    unittest.main()
