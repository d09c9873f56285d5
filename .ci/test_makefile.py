"""Tests of what targets of the Makefile compile, and of the tools that they check before."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

TOP = pathlib.Path(__file__).resolve().parent.parent
CHECK = ".ci/tools.sh "
COMPILES = re.compile(r"\bcargo (build|test|run|bench|install|clippy)\b|\bgo build\b")
# What tools.sh itself runs.
BASICS = ("sh", "sed", "dirname", "id")


def dry_run(target):
    """Lines of the recipes that a target runs."""
    # An outer make would hand in its flags, and with them NAME and ALL.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS")) and key not in ("NAME", "ALL", "ARGS")}
    command = ["make", "--dry-run", "--no-print-directory", target]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.splitlines()


def targets():
    """Everything that people make."""
    listed = re.findall(r"^([a-z-]+):.*## ", (TOP / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return [target for target in listed if target != "help"]


class Makefile(unittest.TestCase):
    def test_a_cluster_for_people_compiles_no_tests(self):
        """The test executables are most of a cold build, and neither target runs one."""
        for target in ("demo", "up"):
            compiled = [line for line in dry_run(target) if line.startswith("cargo ")]
            self.assertIn("asya-cluster", " ".join(compiled), target)
            for line in compiled:
                self.assertTrue(line.startswith("cargo build ") and "--test" not in line, "%s runs: %s" % (target, line))

    def test_tools_are_checked_before_anything_is_compiled(self):
        found = targets()
        self.assertIn("test-scenarios", found)
        for target in found:
            with self.subTest(target):
                lines = dry_run(target)
                first = next((at for at, line in enumerate(lines) if COMPILES.search(line)), len(lines))
                tools = [{tool for line in part if line.startswith(CHECK) for tool in line[len(CHECK) :].split()} for part in (lines[:first], lines)]
                self.assertEqual(tools[1] - tools[0], set(), "checked after: %s" % lines[min(first, len(lines) - 1)])

    def test_a_first_run_says_before_what_it_builds(self):
        for target in ("demo", "up", "test"):
            lines = dry_run(target)
            plan = lines.index("python3 .ci/plan.py " + target)
            self.assertTrue(lines[0].startswith(CHECK), lines[0])
            self.assertFalse(any(COMPILES.search(line) for line in lines[:plan]), target)

    def test_steps_of_the_demo_are_counted(self):
        lines = dry_run("demo")
        steps = [re.search(r"\[(\d+)/(\d+)\] (.*)'", line) for line in lines if line.startswith("echo '[")]
        compiled = [" ".join(re.findall(r" (?:-p|--bin) (asya-(?!tests\b)\S+)", line)) for line in lines if line.startswith("cargo ")]
        self.assertEqual([int(step[1]) for step in steps], list(range(1, len(compiled) + 1)))
        self.assertEqual([step[3] for step in steps], ["compiling " + name for name in compiled])
        self.assertIn("asya-cluster demo --after %d" % len(steps), lines[-1])
        source = (TOP / "tests/src/bin/asya-cluster/demo/progress.rs").read_text(encoding="utf-8")
        own = re.search(r"const STEPS: \[&str; (\d+)\]", source)[1]
        self.assertEqual({int(step[2]) for step in steps}, {len(steps) + int(own)})
        self.assertEqual([line for line in dry_run("up") if "echo" in line], [])


class Tools(unittest.TestCase):
    def checked(self, *tools, **programs):
        """tools.sh where these programs print these texts, and there are no others."""
        with tempfile.TemporaryDirectory() as folder:
            for name in BASICS:
                os.symlink(shutil.which(name), os.path.join(folder, name))
            for name, text in programs.items():
                path = pathlib.Path(folder, name)
                path.write_text("#!/bin/sh\necho '%s'\n" % text)
                path.chmod(0o755)
            command = [shutil.which("sh"), str(TOP / CHECK.strip()), *tools]
            done = subprocess.run(command, env={"PATH": folder}, capture_output=True, text=True, check=False)
            return done.returncode, done.stderr.splitlines()

    def test_versions_that_are_new_enough_are_accepted(self):
        for cargo, go, python in (("cargo 1.95.0 (f2d3ce0bd 2026-03-21)", "go1.26.0", "3.8"), ("cargo 2.0.1", "go1.100.1", "3.14"), ("cargo 1.96.0-nightly", "devel go1.27-1a2b", "4.0")):
            found = self.checked("rust", "go", "python", cargo=cargo, cc="", go=go, python3=python)
            self.assertEqual(found, (0, []))

    def test_everything_that_is_missing_is_named_with_its_remedy(self):
        code, lines = self.checked("rust", "go", "python")
        self.assertEqual(code, 1)
        wanted = ("cargo is missing: install Rust with rustup", "cc is missing: install a C compiler", "go is missing: install Go 1.26", "python3 is missing: install Python 3.8")
        self.assertEqual([line.startswith(start) for line, start in zip(lines, wanted)], [True] * 4, lines)

    def test_older_versions_are_refused(self):
        code, lines = self.checked("rust", "go", "python", cargo="cargo 1.94.9", cc="", go="go1.25.7", python3="3.7")
        self.assertEqual(code, 1)
        self.assertEqual([line.partition(":")[0] for line in lines], [
            "cargo is version 1.94, and 1.95 or newer is needed",
            "go is version 1.25, and 1.26 or newer is needed",
            "python3 is version 3.7, and 3.8 or newer is needed",
        ])

    def test_a_tool_that_does_not_run_is_refused(self):
        code, lines = self.checked("rust", cargo="", cc="")
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("does not say its version", lines[0])

    def test_oldest_versions_are_those_of_the_sources(self):
        cargo = (TOP / "Cargo.toml").read_text(encoding="utf-8")
        self.assertIsNotNone(re.search(r'^rust-version = "\d+\.\d+"$', cargo, re.MULTILINE))
        found = {re.search(r"^go (\d+\.\d+)", path.read_text(encoding="utf-8"), re.MULTILINE)[1] for path in TOP.glob("tests/cluster/*/go.mod")}
        self.assertEqual(len(found), 1, "tools.sh reads one of the modules")

    def test_folders_of_rabbitmq_are_those_of_the_harness(self):
        source = (TOP / "tests/src/build/rabbitmq.rs").read_text(encoding="utf-8")
        folders = re.findall(r'"(/[\w/]+/s?bin)"', source)
        self.assertEqual(len(folders), 3)
        for name in (CHECK.strip(), ".ci/plan.py"):
            text = (TOP / name).read_text(encoding="utf-8")
            self.assertEqual([folder for folder in folders if folder not in text], [], name)


if __name__ == "__main__":
    unittest.main()
