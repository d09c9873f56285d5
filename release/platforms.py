"""The platforms that a release is built for, and what building for each needs on this machine.

Images have Debian's C library, which gets its security updates. `kubectl asya` runs on machines of users and has musl:
the other, if static, still loads modules of the machine to look up names, which must be of its own version.
"""

import pathlib
import platform
import re
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
    def is_musl(self):
        return self.triple.endswith("-musl")

    @property
    def headers(self):
        """Where Debian has the headers of musl; the library comes with Rust."""
        return pathlib.Path("/usr/include/%s-linux-musl" % self.machine)

    @property
    def kernel_headers(self):
        """Where Debian has the kernel's headers, which musl's do not include, by the names that programs use."""
        top = pathlib.Path("/usr/include")
        return {"asm": top / self.toolchain / "asm", "asm-generic": top / "asm-generic", "linux": top / "linux"}

    @property
    def libraries(self):
        """Where Debian has the C library of this platform. That of its cross compilers gets no security updates."""
        return "/usr/lib/%s/" % self.toolchain

    @property
    def packages(self):
        """Debian's packages of the C toolchain."""
        compiler = "gcc" if self.is_native else "gcc-" + self.toolchain.replace("_", "-")
        libraries = ("musl-dev", "linux-libc-dev") if self.is_musl else ("libc6-dev",)
        return " ".join((compiler, *(each if self.is_native else each + ":" + self.architecture for each in libraries)))


ALL = {
    each.name: each
    for each in (
        Platform("linux/amd64", "x86_64-unknown-linux-gnu", "x86_64-linux-gnu", "x86_64", 62),
        Platform("linux/arm64", "aarch64-unknown-linux-gnu", "aarch64-linux-gnu", "aarch64", 183),
    )
}
# The same, for programs that run on machines of users.
MUSL = {name: each._replace(triple=each.triple.replace("-gnu", "-musl")) for name, each in ALL.items()}

# The archives of the C library and of the compiler's own functions, which become part of the programs.
LINKED = ("libc.a", "libgcc.a", "libgcc_eh.a")


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def target_folder(each):
    """Where Rust has its library for a platform."""
    return pathlib.Path(output("rustc", "--print", "target-libdir", "--target", each.triple))


def musl(each):
    """The musl that comes with Rust, and its version."""
    path = target_folder(each) / "self-contained/libc.a"
    found = re.search(rb"\0(\d+\.\d+\.\d+)\0", path.read_bytes())
    return path, found[1].decode() if found else "unknown"


def linked(each):
    """The files of Debian's C toolchain that become part of programs; those it does not find are left out."""
    if each.is_musl:
        paths = [each.headers / "stdio.h", each.kernel_headers["asm"] / "types.h"]
        return [path for path in paths if path.is_file()]
    folder = [] if each.is_native else ["-B" + each.libraries]
    found = [pathlib.Path(output(each.compiler, *folder, "-print-file-name=" + name)) for name in LINKED]
    return [path for path in found if path.is_absolute()]


def is_complete(each):
    """Whether this machine has the C toolchain of a platform."""
    if not shutil.which(each.compiler):
        return False
    found = linked(each)
    if each.is_musl:
        return len(found) == 2
    return len(found) == len(LINKED) and (each.is_native or str(found[0]).startswith(each.libraries))


def missing(each):
    """What to install before this machine can build for a platform; None if nothing."""
    if not target_folder(each).is_dir():
        return "Rust's library for %s is missing: rustup target add %s" % (each.name, each.triple)
    if not is_complete(each):
        what = "the headers of musl and of Linux" if each.is_musl else "a static C library"
        hint = "%s with %s for %s is missing: install all of it (Debian: apt-get install %s)"
        return hint % (each.compiler, what, each.name, each.packages)
    return None
