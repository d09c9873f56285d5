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


if __name__ == "__main__":
    unittest.main()
