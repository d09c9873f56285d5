#!/usr/bin/env python3
"""Makes all files of a release from the commit that is checked out, without an account: see docs/releasing.md.

Two runs of one commit with the same tools make the same bytes.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "image"))

import changelog
import chart
import images
import krew
import platforms
import plugin
import programs
import provenance

CRD = "crds/asyncactors.yaml"
SUMS = "SHA256SUMS"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("out", type=pathlib.Path, help="folder for the files; replaced")
    parser.add_argument("--helm", type=pathlib.Path, default="helm")
    parser.add_argument("--target", type=pathlib.Path, default="target", help="cargo's target folder")
    parser.add_argument("--check", action="store_true", help="only tell whether a release can be made here")
    parser.add_argument("--registry", default="", help="where the images will be, such as registry.example.com/asya")
    parser.add_argument("--download-url", default="", help="where the archives of kubectl-asya will be")
    parser.add_argument("--platforms", nargs="+", default=sorted(platforms.ALL), choices=sorted(platforms.ALL))
    return parser.parse_args()


def git(*command):
    return subprocess.run(["git", *command], cwd=TOP, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def require_clean():
    """A release says which commit it is, so there must be no other change."""
    if changed := git("status", "--porcelain"):
        raise SystemExit("commit these changes first, since a release is made from a commit:\n" + changed)


def require_tools(chosen):
    complaints = [complaint for complaint in map(platforms.missing, chosen) if complaint]
    if complaints:
        raise SystemExit("\n".join(complaints))


def notes(changes, references):
    """Release notes: the changes, and the images by digest."""
    return changes + "\n### Images\n\n" + "".join("- `%s`\n" % each for each in references)


def sums(out):
    """What `sha256sum --check` reads, for all files of a folder but the sums themselves."""
    paths = sorted(path for path in out.iterdir() if path.name != SUMS)
    return "".join("%s  %s\n" % (provenance.sha256(path), path.name) for path in paths)


def changes_of(version):
    return changelog.section((TOP / "CHANGELOG.md").read_text(), version)


def check(options):
    """Refuses what would fail only after everything is compiled, or make a release that is not what it says."""
    changelog.check(TOP, options.version)
    changes_of(options.version)
    require_clean()
    require_tools([known[name] for known in (platforms.ALL, platforms.MUSL) for name in options.platforms])


def make_plugin(options, chosen, epoch, out):
    """Writes the archives of kubectl-asya and krew's manifest of them."""
    groups = (programs.PLUGIN,)
    built = {each: programs.build(each, TOP, options.target, epoch, groups) for each in chosen}
    paths = plugin.build(options.version, built, TOP, epoch, out)
    archives = {each: (path.name, provenance.sha256(path)) for each, path in paths.items()}
    homepage = provenance.address(os.environ.get("ASYA_RELEASE_SOURCE", ""))
    (out / krew.FILE).write_text(krew.manifest(options.version, archives, options.download_url, homepage))


def make(options, out, work):
    """Writes all files of the release into `out`."""
    commit, epoch = git("rev-parse", "HEAD"), int(git("log", "-1", "--format=%ct"))
    source = provenance.address(os.environ.get("ASYA_RELEASE_SOURCE", ""))
    changes = changelog.linked(changes_of(options.version), source, commit)
    names = sorted(set(options.platforms))
    chosen, on_musl = ([known[name] for name in names] for known in (platforms.ALL, platforms.MUSL))
    registry = options.registry.rstrip("/") + "/" if options.registry else ""
    built = {each: programs.build(each, TOP, options.target, epoch) for each in chosen}
    references = images.build(options.version, registry, built, commit, epoch, out, work)
    make_plugin(options, on_musl, epoch, out)
    packed = chart.package(options.helm, TOP / "charts/asya-operator", options.version, registry, epoch, out, work)
    (out / "install.yaml").write_text(chart.manifests(options.helm, packed, work))
    shutil.copyfile(TOP / CRD, out / "asyncactors.yaml")
    (out / "images.txt").write_text("".join(each + "\n" for each in [*references, images.runtime_image(TOP)]))
    (out / "release-notes.md").write_text(notes(changes, references))
    statement = provenance.statement(
        provenance.subjects(sorted(out.iterdir()), references),
        {
            "version": options.version,
            "registry": options.registry,
            "downloadUrl": options.download_url,
            "platforms": names,
        },
        os.environ.get("ASYA_RELEASE_SOURCE", ""),
        commit,
        provenance.pins(TOP) + provenance.packages(chosen + on_musl),
        provenance.tools(chosen, options.helm),
        os.environ.get("ASYA_RELEASE_BUILDER") or provenance.BUILDER,
    )
    (out / "provenance.intoto.json").write_text(json.dumps(statement, indent=1, sort_keys=True) + "\n")
    (out / SUMS).write_text(sums(out))


def main():
    options = arguments()
    for name in ("out", "helm", "target"):
        setattr(options, name, getattr(options, name).resolve())
    # rustc and cargo take the toolchain and the workspace from here.
    os.chdir(TOP)
    check(options)
    if options.check:
        return
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        make(options, options.out, pathlib.Path(work))
    print((options.out / SUMS).read_text(), end="")


if __name__ == "__main__":
    main()
