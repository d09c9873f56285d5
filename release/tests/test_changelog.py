"""A release has one version everywhere, and the changes of that version."""

import pathlib
import tempfile
import unittest

from modules import TOP

import changelog

TEXT = """# Changelog

## [Unreleased]

### Added

- A thing to come.

## [0.2.0] - 2026-11-23

### Added

- A thing
  of two lines.

### Fixed

- Another.

## [0.1.0] - 2026-01-01

- The first.
"""


class Changelog(unittest.TestCase):
    def test_links_to_files_lead_to_the_repository_at_the_commit(self):
        text = "See [cli](docs/cli.md#lint), [the format](https://example.com/changelog) and [above](#added).\n"
        expected = text.replace("(docs/", "(https://example.com/asya/blob/c0ffee/docs/")
        self.assertEqual(changelog.linked(text, "https://example.com/asya/", "c0ffee"), expected)
        self.assertEqual(changelog.linked(text, "", "c0ffee"), text)

    def test_section_ends_before_the_next_version(self):
        expected = "### Added\n\n- A thing\n  of two lines.\n\n### Fixed\n\n- Another.\n"
        self.assertEqual(changelog.section(TEXT, "0.2.0"), expected)
        self.assertEqual(changelog.section(TEXT, "0.1.0"), "- The first.\n")

    def test_pre_release_has_its_own_changes_or_those_not_released_yet(self):
        self.assertEqual(changelog.section(TEXT, "0.3.0-rc.1"), "### Added\n\n- A thing to come.\n")
        own = TEXT.replace("[0.2.0]", "[0.2.0-rc.1]")
        self.assertIn("- Another.", changelog.section(own, "0.2.0-rc.1"))

    def test_version_without_changes_is_refused(self):
        for text in (TEXT, TEXT + "\n## [0.3.0]\n\n"):
            with self.assertRaisesRegex(SystemExit, "CHANGELOG.md has no section 0.3.0"):
                changelog.section(text, "0.3.0")

    def test_dots_of_a_version_are_no_wildcards(self):
        with self.assertRaises(SystemExit):
            changelog.section("## [0x2.0]\n\n- Something.\n", "0.2.0")

    def test_this_projects_changelog_has_changes_for_a_pre_release(self):
        changes = changelog.section((TOP / "CHANGELOG.md").read_text(), "99.0.0-rc.1")
        self.assertTrue(changes.startswith("### "), changes[:80])


class Version(unittest.TestCase):
    def test_only_versions_that_images_can_have_as_tags(self):
        self.assertEqual(changelog.core("1.2.3"), "1.2.3")
        self.assertEqual(changelog.core("1.2.3-rc.1"), "1.2.3")
        for wrong in ("v1.2.3", "1.2", "1.2.3+build", "", "1.2.3-"):
            with self.assertRaisesRegex(SystemExit, "no version", msg=wrong):
                changelog.core(wrong)

    def tree(self, cargo="0.2.0", chart="0.2.0", app="0.2.0"):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        top = pathlib.Path(folder.name)
        (top / "charts/asya-operator").mkdir(parents=True)
        manifest = '[package]\nversion = "9"\n\n[workspace.package]\nversion = "%s"\n' % cargo
        (top / "Cargo.toml").write_text(manifest)
        chart = 'name: asya-operator\nversion: %s\nappVersion: "%s"\n' % (chart, app)
        (top / "charts/asya-operator/Chart.yaml").write_text(chart)
        return top

    def test_programs_and_chart_have_the_version(self):
        changelog.check(self.tree(), "0.2.0")
        changelog.check(self.tree(), "0.2.0-rc.1")
        for wrong in ({"cargo": "0.1.0"}, {"chart": "0.1.0"}, {"app": "0.1.0"}):
            with self.assertRaisesRegex(SystemExit, "is 0.1.0, not 0.2.0"):
                changelog.check(self.tree(**wrong), "0.2.0")

    def test_this_tree_states_one_version(self):
        self.assertEqual(len(set(changelog.stated(TOP).values())), 1, changelog.stated(TOP))


if __name__ == "__main__":
    unittest.main()
