"""Collects the output of failed tests, to be repeated at the end, where it is found."""

import re

# cargo: after all tests of a program come the outputs of those that failed.
BEGINS = re.compile(r"^---- (\S+) stdout ----$")
ENDS = re.compile(r"^failures:$")
# Of each no more than so many lines, its last ones, of so many characters.
MOST_LINES = 12
LONGEST = 1500


class Failures:
    """Takes lines, and knows which tests failed and how."""

    def __init__(self):
        self.outputs = {}
        self._current = None

    def line(self, text):
        text = text.rstrip()
        if found := BEGINS.match(text):
            self._current = self.outputs.setdefault(found[1], [])
        elif ENDS.match(text):
            self._current = None
        elif self._current is not None and text:
            self._current.append(text if len(text) <= LONGEST else text[:LONGEST] + " …")
            del self._current[:-MOST_LINES]
