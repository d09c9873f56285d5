"""Sums and notes cover what is released."""

import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import modules

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

    def test_tree_with_changes_is_not_released(self):
        with mock.patch.object(release, "git", return_value=" M README.md"):
            with self.assertRaisesRegex(SystemExit, "commit these changes first.*\n M README.md"):
                release.require_clean()


if __name__ == "__main__":
    unittest.main()
