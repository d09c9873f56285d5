"""The manifest by which krew installs `kubectl asya`: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest"""

import json

import plugin

# krew wants the file to be named as the plugin.
NAME = "asya"
FILE = NAME + ".yaml"

# At most 50 characters, so that `kubectl krew search` does not cut it.
SHORT = "Inspect, explain and operate Asya's AsyncActors"

DESCRIPTION = """\
Shows what Asya's AsyncActors do and what needs attention, says why a pod
gets the sidecar or not, checks manifests without a cluster and the
installation of the operator, shows queues and dead letters, sends messages
and follows them, and changes actors after showing what it writes.
"""

CAVEATS = """\
`kubectl asya lint` and `kubectl asya explain` need no cluster. Everything
else uses your kubeconfig and your permissions; `kubectl asya check` tells
whether Asya's operator is installed and works.
"""

HEAD = """\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: %s
spec:
  version: %s
%s  shortDescription: %s
  description: |
%s  caveats: |
%s  platforms:
"""

PLATFORM = """\
  - selector:
      matchLabels:
        os: %s
        arch: %s
    uri: %s
    sha256: %s
    files:
    - from: %s
      to: .
    - from: %s
      to: .
    bin: %s
"""


def quoted(text):
    """A string of JSON, which is one of YAML."""
    return json.dumps(text, ensure_ascii=False)


def indented(text):
    return "".join("    %s\n" % line for line in text.splitlines())


def uri(name, address):
    """Where krew finds an archive. Without an address it is the name, and krew has to be given the file."""
    return "%s/%s" % (address.rstrip("/"), name) if address else name


def manifest(version, archives, address="", homepage=""):
    """The whole document. `archives` are names and checksums of the archives by platform."""
    page = "  homepage: %s\n" % quoted(homepage) if homepage else ""
    described = (indented(DESCRIPTION), indented(CAVEATS))
    text = HEAD % (NAME, quoted("v" + version), page, quoted(SHORT), *described)
    for platform, (name, checksum) in archives.items():
        system, _, architecture = platform.name.partition("/")
        files = (plugin.NAME, plugin.LICENSE, plugin.NAME)
        text += PLATFORM % (system, architecture, quoted(uri(name, address)), checksum, *files)
    return text
