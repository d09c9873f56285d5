"""Handlers of tests."""

import os
import socket
import threading
import time

lock = threading.Lock()
in_flight = 0


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
    global in_flight
    with lock:
        in_flight += 1
        highest = in_flight
    begun = time.time()
    time.sleep(1)
    with lock:
        in_flight -= 1
    return {"in_flight": highest, "begun": begun, "ended": time.time()}
