"""Lays out the Python that runs this, and the libraries that it loads, in an empty folder: root.py ROOT"""

import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig

LEFT_OUT = """test tests idlelib ensurepip lib2to3 tkinter turtledemo pydoc_data site-packages dist-packages config-* *.a
_tkinter* _curses* readline* _dbm* _gdbm* nis* _sqlite3* _test*""".split()


def libraries(binary):
    """Paths of all that the loader maps for a binary, itself included."""
    told = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", told, re.M)


def main(root):
    standard = sysconfig.get_path("stdlib")
    copy = f"{root}/usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}"
    shutil.copytree(standard, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
    os.makedirs(f"{root}/usr/bin")
    os.makedirs(f"{root}/tmp")
    os.chmod(f"{root}/tmp", 0o1777)
    program = os.path.realpath(sys.executable)
    shutil.copy2(program, f"{root}/usr/bin/python3")
    for binary in [program, *glob.glob(f"{copy}/lib-dynload/*.so")]:
        for library in libraries(binary):
            place = root + library
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if not os.path.exists(place):
                shutil.copy2(library, place)


if __name__ == "__main__":
    main(sys.argv[1])
