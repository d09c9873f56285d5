"""The provenance of a release: an in-toto statement with SLSA's predicate, unsigned, and without times."""

import hashlib
import pathlib
import platform as machine
import re
import shutil
import zlib

import platforms
import sbom
from platforms import output

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
# docs/releasing.md describes it.
BUILD_TYPE = "https://asya.sh/make-release/v1"
# Whoever makes a release by hand; a build server names itself.
BUILDER = "https://asya.sh/make-release/local"
# Files that pin what is built from and with.
PINS = ("Cargo.lock", "rust-toolchain.toml", "tests/cluster/tools/go.sum")


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def subjects(files, images):
    """What the statement is about: files by name, images by name without tag."""
    found = [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in files]
    for image in images:
        name, _, digest = image.partition("@sha256:")
        found.append({"name": name.rpartition(":")[0], "digest": {"sha256": digest}})
    return found


def tools(built_for, helm):
    """Programs that took part, by what they say of themselves."""
    versions = {
        "cargo": output("cargo", "--version"),
        "helm": output(str(helm), "version", "--short"),
        "python": machine.python_version(),
        "rustc": output("rustc", "--version"),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }
    for each in built_for:
        versions["cc for " + each.name] = output(each.compiler, "--version").splitlines()[0]
    return versions


def packages(built_for):
    """Debian's packages of compilers, of what they link into programs, and of the certificate authorities."""
    files = [pathlib.Path(shutil.which(each.compiler)) for each in built_for]
    files += [path for each in built_for for path in platforms.linked(each)]
    return [{"name": each["name"], "uri": each["purl"]} for each in sbom.installed(files) if "purl" in each]


def address(source):
    """A repository's address without a login."""
    return re.sub(r"^(\w+://)[^/@]*@", r"\1", source)


def repository(source):
    """A repository's address as SLSA wants it."""
    return "git+" + address(source)


def statement(subject, parameters, source, commit, materials, versions, builder):
    """The whole document. `materials` are resolved dependencies besides the source."""
    own = {"uri": repository(source), "digest": {"gitCommit": commit}} if source else {"digest": {"gitCommit": commit}}
    return {
        "_type": STATEMENT,
        "subject": subject,
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": parameters,
                "internalParameters": {"tools": versions},
                "resolvedDependencies": [{"name": "source", **own}, *materials],
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }


def pins(top):
    return [{"name": name, "digest": {"sha256": sha256(top / name)}} for name in PINS]
