"""Builds the programs of a release: static, and the same bytes wherever the source and cargo's folders are."""

import os
import pathlib
import struct
import subprocess

from platforms import output

# Built apart from each other, so that neither image has features that only the other needs.
OPERATOR = ("asya-controller", "asya-webhook")
SIDECAR = ("asya-sidecar",)
PLUGIN = ("kubectl-asya",)

# Settings of the caller that would change the programs.
FOREIGN = ("CARGO_PROFILE_", "CFLAGS", "RUSTC_WRAPPER")
INTERPRETER = 3  # type of the program header that names what loads a dynamic program


def cargo_home():
    return pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo")


def renamed(top, target):
    """What to write into programs instead of this machine's folders; of two that match, the later one applies."""
    sysroot = pathlib.Path(output("rustc", "--print", "sysroot"))
    commit = next(line.split()[1] for line in output("rustc", "-vV").splitlines() if line.startswith("commit-hash"))
    registry = cargo_home() / "registry" / "src"
    crates = sorted(registry.iterdir()) if registry.is_dir() else []
    return {
        str(top): ".",
        str(target): "target",
        str(cargo_home()): "cargo",
        **{str(path): "crates" for path in crates},
        # Where Rust's own crates say they are, unless their source is installed.
        str(sysroot / "lib/rustlib/src/rust"): "/rustc/" + commit,
    }


def headers(platform, folder):
    """Options by which a compiler made for Debian's C library reads the headers of musl, and those of the kernel
    through links in `folder`: their own folder has Debian's C library, too."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in platform.kernel_headers.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    own = output(platform.compiler, "-print-file-name=include")
    return ["-nostdinc", "-isystem", str(platform.headers), "-isystem", own, "-isystem", str(folder)]


def environment(platform, names, epoch, c_flags=()):
    """Variables of a build in which folders are renamed. `c_flags` are for this platform's C alone."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    flags = ["-Ctarget-feature=+crt-static"] + ["--remap-path-prefix=%s=%s" % each for each in names.items()]
    if not (platform.is_native or platform.is_musl):
        flags.append("-Clink-arg=-B" + platform.libraries)
    triple = platform.triple.replace("-", "_")
    prefixes = ["-ffile-prefix-map=%s=%s" % each for each in names.items()]
    clean.update(
        CARGO_ENCODED_RUSTFLAGS="\x1f".join(flags),
        CARGO_INCREMENTAL="0",
        CFLAGS=" ".join(prefixes),
        SOURCE_DATE_EPOCH=str(epoch),
        LC_ALL="C",
        TZ="UTC",
    )
    if c_flags:
        clean["CFLAGS_" + triple] = " ".join([*prefixes, *c_flags])
    if platform.is_musl or not platform.is_native:
        # Otherwise the build of C would look for a compiler of musl's own.
        clean["CARGO_TARGET_%s_LINKER" % triple.upper()] = platform.compiler
        clean["CC_" + triple] = platform.compiler
    if not platform.is_native:
        clean["AR_" + triple] = platform.toolchain + "-ar"
    return clean


def build(platform, top, target, epoch, groups=(OPERATOR, SIDECAR)):
    """Builds programs, each group apart from the others, and returns their folder."""
    names = renamed(top, target)
    c_flags = headers(platform, pathlib.Path(target) / platform.triple / "headers") if platform.is_musl else ()
    for crates in groups:
        selected = [argument for name in crates for argument in ("--package", name)]
        command = ["cargo", "build", "--release", "--locked", "--target", platform.triple, "--target-dir", str(target)]
        subprocess.run(command + selected, cwd=top, env=environment(platform, names, epoch, c_flags), check=True)
    folder = pathlib.Path(target) / platform.triple / "release"
    for name in (name for crates in groups for name in crates):
        if found := fault(platform, (folder / name).read_bytes(), names):
            raise SystemExit("%s for %s %s" % (name, platform.name, found))
    return folder


def fault(platform, content, names):
    """Why a program must not be released; None if nothing is wrong with it."""
    if content[:4] != b"\x7fELF" or struct.unpack_from("<H", content, 18)[0] != platform.elf:
        return "is no program of that platform"
    start, size, count = (
        struct.unpack_from(kind, content, at)[0] for kind, at in (("<Q", 32), ("<H", 54), ("<H", 56))
    )
    headers = [struct.unpack_from("<I", content, start + number * size)[0] for number in range(count)]
    if INTERPRETER in headers:
        return "is not static"
    for folder in names:
        if folder.encode() in content:
            return "contains the path %s of this machine" % folder
    return None
