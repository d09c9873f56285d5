"""Handlers of tests."""

import os
import socket
import time


def shout(payload):
    """Says what it was told, louder, and which pod does."""
    return {"text": payload["text"].upper(), "pod": socket.gethostname(), "mode": os.environ.get("MODE", "")}


def slow(payload):
    """Takes as many seconds as it is told."""
    time.sleep(float(payload.get("seconds", 0.2)))
    return payload


def hang(_payload):
    """Never returns."""
    time.sleep(1e6)
