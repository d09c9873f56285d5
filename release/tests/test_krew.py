"""krew's manifest names the archives of a release as krew wants it; installed.py has krew itself judge."""

import unittest

import modules

import krew
import platforms

try:
    import yaml
except ImportError:
    yaml = None

AMD, ARM = (platforms.MUSL["linux/" + each] for each in ("amd64", "arm64"))
ARCHIVES = {
    AMD: ("kubectl-asya-0.2.0-linux-amd64.tar.gz", "a" * 64),
    ARM: ("kubectl-asya-0.2.0-linux-arm64.tar.gz", "b" * 64),
}
ADDRESS = "https://example.com/releases/download/v0.2.0"


class Uri(unittest.TestCase):
    def test_archives_are_below_the_address(self):
        for address in (ADDRESS, ADDRESS + "/"):
            self.assertEqual(krew.uri("a.tar.gz", address), ADDRESS + "/a.tar.gz")

    def test_without_an_address_the_file_has_to_be_given(self):
        self.assertEqual(krew.uri("a.tar.gz", ""), "a.tar.gz")


class Texts(unittest.TestCase):
    def test_short_description_is_not_cut_by_krew(self):
        self.assertLessEqual(len(krew.SHORT), 50)
        self.assertNotIn("kubectl", krew.SHORT)

    def test_texts_fit_a_terminal(self):
        for line in (krew.DESCRIPTION + krew.CAVEATS).splitlines():
            self.assertLessEqual(len(line), 76)

    def test_same_archives_make_the_same_manifest(self):
        self.assertEqual(*(krew.manifest("0.2.0", ARCHIVES, ADDRESS) for _ in range(2)))


@unittest.skipIf(yaml is None, "needs PyYAML: pip install pyyaml")
class Manifest(unittest.TestCase):
    def read(self, *arguments):
        return yaml.safe_load(krew.manifest("0.2.0-rc.1", *arguments))

    def test_it_is_a_plugin_with_the_name_of_its_file(self):
        found = self.read(ARCHIVES)
        self.assertEqual(found["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2")
        self.assertEqual(found["kind"], "Plugin")
        self.assertEqual(found["metadata"]["name"] + ".yaml", krew.FILE)
        self.assertEqual(found["spec"]["version"], "v0.2.0-rc.1")
        self.assertEqual(found["spec"]["shortDescription"], krew.SHORT)
        self.assertEqual(found["spec"]["description"], krew.DESCRIPTION)
        self.assertEqual(found["spec"]["caveats"], krew.CAVEATS)

    def test_each_platform_selects_its_archive(self):
        found = self.read(ARCHIVES, ADDRESS)["spec"]["platforms"]
        selected = {each["selector"]["matchLabels"]["arch"]: (each["uri"], each["sha256"]) for each in found}
        name = ADDRESS + "/kubectl-asya-0.2.0-linux-%s.tar.gz"
        self.assertEqual(selected, {"amd64": (name % "amd64", "a" * 64), "arm64": (name % "arm64", "b" * 64)})
        for each in found:
            self.assertEqual(each["selector"]["matchLabels"]["os"], "linux")
            self.assertEqual(each["bin"], "kubectl-asya")
            self.assertEqual([part["from"] for part in each["files"]], ["kubectl-asya", "LICENSE"])

    def test_platform_that_is_not_released_is_not_offered(self):
        (found,) = self.read({ARM: ARCHIVES[ARM]})["spec"]["platforms"]
        self.assertEqual(found["selector"]["matchLabels"]["arch"], "arm64")

    def test_homepage_is_named_where_there_is_one(self):
        self.assertNotIn("homepage", self.read(ARCHIVES)["spec"])
        found = self.read(ARCHIVES, ADDRESS, "https://example.com/asya")
        self.assertEqual(found["spec"]["homepage"], "https://example.com/asya")


if __name__ == "__main__":
    unittest.main()
