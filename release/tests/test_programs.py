"""Programs of a release are static, for their platform, and say nothing of the machine that built them."""

import os
import pathlib
import struct
import tempfile
import unittest
from unittest import mock

import modules

import platforms
import programs

ARM = platforms.ALL["linux/arm64"]
MUSL = platforms.MUSL["linux/amd64"]
NAMES = {"/home/me/asya": ".", "/home/me/.cargo": "cargo"}


def elf(machine, kinds, text=b""):
    """The start of a program with headers of these types."""
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    struct.pack_into("<H", header, 18, machine)
    struct.pack_into("<Q", header, 32, 64)
    struct.pack_into("<HH", header, 54, 56, len(kinds))
    return bytes(header) + b"".join(struct.pack("<I", kind).ljust(56, b"\0") for kind in kinds) + text


class Fault(unittest.TestCase):
    def test_static_program_of_the_platform_is_released(self):
        self.assertIsNone(programs.fault(ARM, elf(183, [1, 1, 2], b"src/main.rs"), NAMES))

    def test_program_that_needs_a_loader_is_not_static(self):
        self.assertEqual(programs.fault(ARM, elf(183, [1, 3]), NAMES), "is not static")

    def test_program_of_another_platform_is_refused(self):
        for content in (elf(62, [1]), b"#!/bin/sh\n" + bytes(64)):
            self.assertEqual(programs.fault(ARM, content, NAMES), "is no program of that platform")

    def test_program_with_a_path_of_the_machine_is_refused(self):
        found = programs.fault(ARM, elf(183, [1], b"\0/home/me/.cargo/registry\0"), NAMES)
        self.assertEqual(found, "contains the path /home/me/.cargo of this machine")


class Environment(unittest.TestCase):
    def environment(self, platform, **own):
        with mock.patch.dict(os.environ, own):
            return programs.environment(platform, NAMES, 1700000000)

    def test_folders_are_renamed_in_rust_and_in_c(self):
        found = self.environment(ARM)
        flags = found["CARGO_ENCODED_RUSTFLAGS"].split("\x1f")
        self.assertIn("-Ctarget-feature=+crt-static", flags)
        self.assertIn("--remap-path-prefix=/home/me/.cargo=cargo", flags)
        self.assertIn("-ffile-prefix-map=/home/me/asya=.", found["CFLAGS"])
        self.assertEqual(found["SOURCE_DATE_EPOCH"], "1700000000")

    def test_settings_of_the_caller_do_not_change_programs(self):
        own = {"CFLAGS_x86_64": "-O0", "CARGO_PROFILE_RELEASE_LTO": "off", "RUSTC_WRAPPER": "x"}
        found = self.environment(ARM, CARGO_INCREMENTAL="1", **own)
        self.assertEqual(found["CARGO_INCREMENTAL"], "0")
        self.assertFalse(set(own) & set(found))

    def test_another_platform_is_built_by_a_cross_compiler(self):
        with mock.patch("platform.machine", return_value="x86_64"):
            found = self.environment(ARM)
            self.assertEqual(found["CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER"], "aarch64-linux-gnu-gcc")
            self.assertEqual(found["CC_aarch64_unknown_linux_gnu"], "aarch64-linux-gnu-gcc")
            self.assertIn("-Clink-arg=-B/usr/lib/aarch64-linux-gnu/", found["CARGO_ENCODED_RUSTFLAGS"])
            self.assertEqual(ARM.packages, "gcc-aarch64-linux-gnu libc6-dev:arm64")
        with mock.patch("platform.machine", return_value="aarch64"):
            self.assertNotIn("CC_aarch64_unknown_linux_gnu", self.environment(ARM))
            self.assertEqual(ARM.compiler, "cc")

    def test_c_for_musl_is_compiled_with_its_headers_and_that_of_build_scripts_is_not(self):
        with mock.patch("platform.machine", return_value="x86_64"):
            with mock.patch.dict(os.environ):
                found = programs.environment(MUSL, NAMES, 1700000000, ["-nostdinc"])
        self.assertEqual(found["CC_x86_64_unknown_linux_musl"], "cc")
        self.assertIn("-nostdinc", found["CFLAGS_x86_64_unknown_linux_musl"].split())
        self.assertIn("-ffile-prefix-map=/home/me/asya=.", found["CFLAGS_x86_64_unknown_linux_musl"].split())
        self.assertNotIn("-nostdinc", found["CFLAGS"])
        self.assertNotIn("-Clink-arg", found["CARGO_ENCODED_RUSTFLAGS"])

    def test_headers_of_the_kernel_are_found_without_those_of_debians_c_library(self):
        told = mock.patch.object(programs, "output", return_value="/gcc/include")
        with tempfile.TemporaryDirectory() as folder, told:
            folder = pathlib.Path(folder, "headers")
            for _ in range(2):
                found = programs.headers(MUSL, folder)
            links = {path.name: os.readlink(path) for path in folder.iterdir()}
        expected = {name: str(path) for name, path in MUSL.kernel_headers.items()}
        self.assertEqual(links, expected)
        self.assertEqual(found[0], "-nostdinc")
        own = ["/usr/include/x86_64-linux-musl", "/gcc/include", str(folder)]
        self.assertEqual([each for each in found[1:] if each != "-isystem"], own)

    def test_source_of_a_crate_has_the_same_name_in_every_registry_folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        crates = pathlib.Path(folder.name, "registry/src/index-0123")
        crates.mkdir(parents=True)
        told = mock.patch.object(programs, "output", side_effect=["/rust", "rustc 1\ncommit-hash: abc"])
        with mock.patch.dict(os.environ, CARGO_HOME=folder.name), told:
            found = programs.renamed("/source", "/source/target")
        self.assertEqual(found[str(crates)], "crates")
        self.assertEqual(found["/rust/lib/rustlib/src/rust"], "/rustc/abc")
        # The later of two that match applies.
        self.assertLess(list(found).index("/source"), list(found).index("/source/target"))


class Packages(unittest.TestCase):
    def test_debian_has_what_each_platform_needs(self):
        arm = platforms.MUSL["linux/arm64"]
        self.assertEqual((MUSL.triple, arm.triple), ("x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"))
        with mock.patch("platform.machine", return_value="x86_64"):
            self.assertEqual(MUSL.packages, "gcc musl-dev linux-libc-dev")
            self.assertEqual(arm.packages, "gcc-aarch64-linux-gnu musl-dev:arm64 linux-libc-dev:arm64")
            self.assertEqual(platforms.ALL["linux/amd64"].packages, "gcc libc6-dev")

    def test_missing_headers_are_named(self):
        there = mock.patch.object(platforms, "target_folder", return_value=pathlib.Path("/"))
        with there, mock.patch.object(platforms, "is_complete", return_value=False):
            self.assertIn("the headers of musl and of Linux for linux/amd64 is missing", platforms.missing(MUSL))


if __name__ == "__main__":
    unittest.main()
