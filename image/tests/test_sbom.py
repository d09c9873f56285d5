"""The bill of materials names what scanners look up (SC-98)."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import sbom

TREE = """asya-sidecar v0.1.0 (/source/sidecar)\tApache-2.0
bytes v1.11.0\tMIT
hyper v1.12.0\tMIT/Apache-2.0
bytes v1.11.0\tMIT (*)
sha2 v0.10.9\tMIT OR Apache-2.0
sha2 v0.11.0\tMIT OR Apache-2.0

asya-wire v0.1.0 (/source/wire)\tApache-2.0
unlicensed v2.0.0+build\t
"""


class Sbom(unittest.TestCase):
    def test_every_version_of_a_crate_is_a_component_once_and_our_own_are_none(self):
        found = [each["purl"] for each in sbom.crates(TREE)]
        expected = ["bytes@1.11.0", "hyper@1.12.0", "sha2@0.10.9", "sha2@0.11.0", "unlicensed@2.0.0%2Bbuild"]
        self.assertEqual(found, ["pkg:cargo/" + each for each in expected])

    def test_licences_are_expressions(self):
        found = {each["name"]: each.get("licenses") for each in sbom.crates(TREE)}
        self.assertEqual(found["hyper"], [{"expression": "MIT OR Apache-2.0"}])
        self.assertIsNone(found["unlicensed"])

    def test_packages_come_with_their_distribution(self):
        lines = ["libc6\t2.36-9+deb12u14\tamd64\tglibc", "ca-certificates\t20230311\tall\tca-certificates"]
        system, authorities, library = sbom.packages(lines, {"ID": "debian", "VERSION_ID": "12"})
        self.assertEqual(system, {"type": "operating-system", "name": "debian", "version": "12"})
        self.assertEqual(authorities["purl"], "pkg:deb/debian/ca-certificates@20230311?arch=all&distro=debian-12")
        self.assertEqual(library["purl"], "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64&distro=debian-12&upstream=glibc")

    def test_document_is_of_the_image(self):
        found = sbom.document("asya-sidecar", "0.1.0", [])
        self.assertEqual((found["bomFormat"], found["specVersion"]), ("CycloneDX", "1.5"))
        self.assertEqual(found["metadata"]["component"], {"type": "container", "name": "asya-sidecar", "version": "0.1.0"})

    def test_document_of_a_program_that_is_no_image_says_so(self):
        found = sbom.document("kubectl-asya", "0.1.0", [], "application")
        self.assertEqual(found["metadata"]["component"]["type"], "application")


if __name__ == "__main__":
    unittest.main()
