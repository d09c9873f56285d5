"""Handlers of the sidecar's tests. CALLS is a file to which each call appends a line."""

import hashlib
import os
import re
import time


def note(payload):
    with open(os.environ["CALLS"], "a", encoding="utf-8") as calls:
        calls.write("%s\n" % payload)


def echo(payload):
    note(payload if isinstance(payload, (int, str)) and len(str(payload)) < 100 else "large")
    return payload


def slow(payload):
    """Takes as many seconds as it is told."""
    note(payload)
    time.sleep(payload)
    return payload


def holds_gil(payload):
    """Of "hold", keeps all other threads from running, in a regular expression that takes years."""
    note(payload)
    if payload == "hold":
        re.match("(a+)+$", "a" * 60 + "b")
    return payload


def several(payload):
    """As many results as it is told."""
    return list(range(payload))


def fails(payload):
    note(payload)
    raise ValueError("no <%s>" % payload)


def dies(payload):
    """Ends its process, as the kernel does when memory runs out."""
    note(payload)
    os._exit(137)


def some_die(payload):
    """Ends its process if it is told to, the first time while three others are handled."""

    def calls():
        with open(os.environ["CALLS"], encoding="utf-8") as file:
            return len(file.readlines())

    note(payload)
    if payload == "dies":
        while calls() < 4:
            time.sleep(0.01)
        os._exit(137)
    if calls() <= 4:
        time.sleep(60)
    return payload


def large(payload):
    """A text of so many bytes."""
    return "x" * payload


def digest(payload):
    return hashlib.sha256(payload.encode()).hexdigest()


def campaign(payload):
    """Does what the fault campaign asks for. What it returns asks for nothing more."""
    note(payload["id"])
    task = payload.pop("task", "pass")
    time.sleep(payload.pop("seconds", 0))
    if task == "fail":
        raise ValueError("as the campaign asks")
    if task == "consume":
        return []
    if task == "split":
        return [dict(payload, part=part) for part in range(3)]
    return payload


def end(envelope):
    """An end actor: in envelope mode, and what it returns goes nowhere."""
    note(envelope.get("id"))
    return {}
