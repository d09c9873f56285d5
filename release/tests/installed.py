"""Installs kubectl-asya from the files of a release with krew itself, and times its start: `make test-krew`.

No part of `make test-scripts`, which has neither: krew is compiled, and released programs take minutes.
"""

import functools
import http.server
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import unittest

import modules

import krew
import platforms
import plugin
import programs
import provenance

RELEASE = pathlib.Path(os.environ.get("ASYA_RELEASE", ""))
KREW = pathlib.Path(os.environ.get("ASYA_KREW", ""))

# As `kubectl krew` runs it, without a kubectl.
KUBECTL = '#!/bin/sh\nshift\nexec "%s" "$@"\n'
STARTS = 20
# Milliseconds that a start may take. Reported, since a busy machine is no fault of the program.
LIMIT = 30


class Server(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def archives():
    """The archives of the release by platform."""
    found = {}
    for each in platforms.MUSL.values():
        for path in RELEASE.glob(plugin.file_name("*", each)):
            found[each] = path
    return found


def start(*command):
    """Milliseconds from the start of a program to its end."""
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return 1000 * (time.perf_counter() - begun)


def median(*command):
    return statistics.median(start(*command) for _ in range(STARTS))


class Installed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.archives = archives()
        native = [each for each in self.archives if each.machine == platform.machine()]
        self.assertTrue(self.archives, "no archive of kubectl-asya in %s" % RELEASE)
        self.native = native[0] if native else None

    def environment(self, root, **own):
        path = "%s:/usr/local/bin:/usr/bin:/bin" % self.folder
        # It would ask for its latest release.
        return {"KREW_ROOT": str(root), "HOME": str(root), "PATH": path, "KREW_NO_UPGRADE_CHECK": "1", **own}

    def install(self, archive, root, manifest=RELEASE / krew.FILE, **own):
        command = [KREW / "krew", "install", "--manifest=%s" % manifest, "--archive=%s" % archive]
        kept = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run(command, env=self.environment(root, **own), **kept)

    def test_krew_installs_a_static_program_for_each_platform(self):
        for each, archive in self.archives.items():
            root = self.folder / each.architecture
            done = self.install(archive, root, KREW_OS="linux", KREW_ARCH=each.architecture)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("kubectl asya check", done.stdout)
            program = root / "bin/kubectl-asya"
            self.assertIsNone(programs.fault(each, program.read_bytes(), {}))
            self.assertTrue((program.resolve().parent / plugin.LICENSE).is_file())
            told = platforms.output("file", "--dereference", str(program)) if shutil.which("file") else ""
            print("%s: %.1f MB, archive %.1f MB; %s" % (each.name, *sizes(program, archive), told.partition(": ")[2]))

    def test_installed_program_runs_and_tells_its_version(self):
        if not self.native:
            self.skipTest("the release has no program for this machine")
        root = self.folder / "root"
        archive = self.archives[self.native]
        self.assertEqual(self.install(archive, root).returncode, 0)
        program = str(root / "bin/kubectl-asya")
        self.assertIn("Usage: kubectl asya", platforms.output(program, "--help"))
        version = archive.name[len(plugin.NAME) + 1 :].partition("-linux-")[0]
        # A pre-release's programs report the version without it.
        self.assertIn(platforms.output(program, "--version").split()[-1], (version, version.partition("-")[0]))
        found, least = median(program, "--help"), median("true")
        verdict = "within" if found <= LIMIT else "MORE THAN"
        told = "start: median %.1f ms of %d, %s %d ms; `true` takes %.1f ms"
        print(told % (found, STARTS, verdict, LIMIT, least))

    def test_changed_archive_is_refused(self):
        each, archive = next(iter(self.archives.items()))
        changed = self.folder / archive.name
        changed.write_bytes(archive.read_bytes() + b"\0")
        done = self.install(changed, self.folder / "root", KREW_OS="linux", KREW_ARCH=each.architecture)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("checksum does not match", done.stdout)
        self.assertFalse((self.folder / "root/bin/kubectl-asya").exists())

    def validate(self, manifest, *arguments):
        """As krew's index judges what is submitted."""
        (self.folder / "kubectl").write_text(KUBECTL % (KREW / "krew"))
        (self.folder / "kubectl").chmod(0o755)
        command = [KREW / "validate-krew-manifest", "-manifest=%s" % manifest, *arguments]
        kept = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(command, env=self.environment(self.folder / "root"), **kept)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_manifest_of_the_release_is_one_for_krews_index(self):
        self.assertIn("no overlapping", self.validate(RELEASE / krew.FILE, "-skip-install"))

    def test_krew_downloads_every_archive_from_its_address(self):
        handler = functools.partial(Server, directory=str(RELEASE))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            listed = {each: (path.name, provenance.sha256(path)) for each, path in self.archives.items()}
            text = krew.manifest("0.0.1", listed, "http://127.0.0.1:%d" % server.server_port)
            (self.folder / krew.FILE).write_text(text)
            told = self.validate(self.folder / krew.FILE)
            server.shutdown()
        self.assertIn("all %d spec.platforms installed fine" % len(self.archives), told)


def sizes(*paths):
    """Megabytes of files."""
    return [path.stat().st_size / 1e6 for path in paths]


if __name__ == "__main__":
    unittest.main()
