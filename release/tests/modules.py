"""Makes the scripts importable for tests."""

import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
for folder in ("image", "release"):
    sys.path.insert(0, str(TOP / folder))
