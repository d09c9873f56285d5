"""The platforms that a release is built for, and what building for each needs on this machine."""

import pathlib
import platform
import shutil
import subprocess
from typing import NamedTuple


class Platform(NamedTuple):
    name: str  # as in an image index
    triple: str  # of Rust
    toolchain: str  # prefix of the C toolchain's programs, where it is a cross compiler
    machine: str  # as `uname -m` tells
    elf: int  # the same, in the header of a program

    @property
    def architecture(self):
        return self.name.partition("/")[2]

    @property
    def is_native(self):
        return platform.machine() == self.machine

    @property
    def compiler(self):
        return "cc" if self.is_native else self.toolchain + "-gcc"

    @property
    def libraries(self):
        """Where Debian has the C library of this platform. That of its cross compilers gets no security updates."""
        return "/usr/lib/%s/" % self.toolchain

    @property
    def packages(self):
        """Debian's packages of the C toolchain."""
        if self.is_native:
            return "gcc libc6-dev"
        return "gcc-%s libc6-dev:%s" % (self.toolchain.replace("_", "-"), self.architecture)


ALL = {
    each.name: each
    for each in (
        Platform("linux/amd64", "x86_64-unknown-linux-gnu", "x86_64-linux-gnu", "x86_64", 62),
        Platform("linux/arm64", "aarch64-unknown-linux-gnu", "aarch64-linux-gnu", "aarch64", 183),
    )
}

# The archives of the C library and of the compiler's own functions, which become part of the programs.
LINKED = ("libc.a", "libgcc.a", "libgcc_eh.a")


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def linked(each):
    """The files that the C toolchain links into programs; those it does not find are left out."""
    folder = [] if each.is_native else ["-B" + each.libraries]
    found = [pathlib.Path(output(each.compiler, *folder, "-print-file-name=" + name)) for name in LINKED]
    return [path for path in found if path.is_absolute()]


def is_complete(each):
    """Whether this machine has the C toolchain of a platform."""
    if not shutil.which(each.compiler):
        return False
    found = linked(each)
    return len(found) == len(LINKED) and (each.is_native or str(found[0]).startswith(each.libraries))


def missing(each):
    """What to install before this machine can build for a platform; None if nothing."""
    if not pathlib.Path(output("rustc", "--print", "target-libdir", "--target", each.triple)).is_dir():
        return "Rust's library for %s is missing: rustup target add %s" % (each.name, each.triple)
    if not is_complete(each):
        hint = "%s with a static C library for %s is missing: install both (Debian: apt-get install %s)"
        return hint % (each.compiler, each.name, each.packages)
    return None
