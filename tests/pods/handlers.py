"""Handlers of tests."""

import contextlib
import os
import socket
import threading
import time

lock = threading.Lock()
in_flight = 0
calls = 0
# As many calls as tests of `counted` allow at a time. The first ones wait for each other, however slowly they begin.
together = threading.Barrier(32)
PATIENCE_SECONDS = 60


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


def counted(_payload):
    """Takes a second, and says how many calls were in progress when it began."""
    global in_flight, calls
    with lock:
        in_flight += 1
        highest = in_flight
        calls += 1
        is_early = calls <= together.parties
    if is_early:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(PATIENCE_SECONDS)
    begun = time.time()
    time.sleep(1)
    with lock:
        in_flight -= 1
    return {"in_flight": highest, "begun": begun, "ended": time.time()}
