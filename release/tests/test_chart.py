"""The chart's package depends on its content alone, and its values name the release's registry."""

import gzip
import io
import pathlib
import tarfile
import tempfile
import unittest

from modules import TOP

import chart

VALUES = TOP / "charts/asya-operator/values.yaml"

REGISTRY = "registry.example.com/asya/"


class Chart(unittest.TestCase):
    def package(self, names, time):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "chart.tgz")
        with tarfile.open(path, "w:gz") as tar:
            for name in names:
                entry = tarfile.TarInfo("asya-operator/" + name)
                entry.size, entry.mtime, entry.uid, entry.uname = len(name), time, time, "me"
                tar.addfile(entry, io.BytesIO(name.encode()))
        return path

    def test_order_and_times_of_files_do_not_matter(self):
        first = chart.repack(self.package(["values.yaml", "Chart.yaml"], 1), 1700000000)
        second = chart.repack(self.package(["Chart.yaml", "values.yaml"], 2), 1700000000)
        self.assertEqual(first, second)
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(first))) as tar:
            found = {entry.name: (entry.mtime, entry.uid, entry.mode, tar.extractfile(entry).read()) for entry in tar}
        expected = {
            "asya-operator/" + name: (1700000000, 0, 0o644, name.encode()) for name in ("Chart.yaml", "values.yaml")
        }
        self.assertEqual(found, expected)

    def test_registry_is_where_the_chart_finds_the_image(self):
        values = VALUES.read_text()
        found = chart.with_registry(values, REGISTRY)
        self.assertEqual(found, values.replace("repository: asya-operator\n", f"repository: {REGISTRY}asya-operator\n"))
        self.assertEqual(found.count(REGISTRY), 1)
        self.assertEqual(chart.with_registry(values, ""), values)

    def test_values_without_the_expected_repository_are_refused(self):
        with self.assertRaisesRegex(SystemExit, "does not set image.repository"):
            chart.with_registry("image:\n  repository: other\n", "registry.example.com/")


if __name__ == "__main__":
    unittest.main()
