"""The versions that the tree states, and a version's section of CHANGELOG.md."""

import re

# No build metadata: a tag of an image has no plus sign.
VERSION = re.compile(r"(\d+\.\d+\.\d+)(-[0-9A-Za-z.-]+)?")
# What comes before the target of a link to a file of the repository.
TO_FILE = re.compile(r"\]\((?![a-z][a-z0-9+.-]*:|#)")


def core(version):
    """The version without its pre-release part."""
    match = VERSION.fullmatch(version)
    if not match:
        raise SystemExit("%s is no version: write VERSION=1.2.3, or 1.2.3-rc.1 for a pre-release" % version)
    return match[1]


def stated(top):
    """What each file says the version is."""
    cargo = (top / "Cargo.toml").read_text()
    chart = (top / "charts/asya-operator/Chart.yaml").read_text()
    return {
        "version in Cargo.toml": re.search(r'^\[workspace\.package\]\nversion = "(.*)"', cargo, re.MULTILINE)[1],
        "version in Chart.yaml": re.search(r"^version: (.*)", chart, re.MULTILINE)[1],
        "appVersion in Chart.yaml": re.search(r'^appVersion: "(.*)"', chart, re.MULTILINE)[1],
    }


def check(top, version):
    """Refuses a version that the programs would not report."""
    for place, found in stated(top).items():
        if found not in (version, core(version)):
            raise SystemExit("%s is %s, not %s: docs/releasing.md says what to change" % (place, found, version))


def section(text, version):
    """The changes of a version, without the heading. Those of a pre-release may be unreleased still."""
    titles = [version] if core(version) == version else [version, "Unreleased"]
    for title in titles:
        match = re.search(r"^## \[%s\].*\n((?:(?!## ).*\n?)*)" % re.escape(title), text, re.MULTILINE)
        if match and match[1].strip():
            return match[1].strip() + "\n"
    raise SystemExit("CHANGELOG.md has no section %s: docs/releasing.md says what to change" % version)


def linked(text, source, commit):
    """The text for readers elsewhere: links to files of the repository lead to its address, if that is known."""
    return TO_FILE.sub("](%s/blob/%s/" % (source.rstrip("/"), commit), text) if source else text
