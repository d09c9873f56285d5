"""The files that the pages are written from."""

import json
import pathlib

TOP = pathlib.Path(__file__).resolve().parent.parent.parent


class Undescribed(Exception):
    """Something that users see has no description at its source."""


def text(path):
    return (TOP / path).read_text()


def schema(path):
    """A JSON file."""
    return json.loads(text(path))


def require(description, path, name):
    """The description, which must not be empty."""
    if not description:
        raise Undescribed("%s: %s has no description" % (path, name))
    return description
