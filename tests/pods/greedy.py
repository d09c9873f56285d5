"""A handler that takes more memory than it is allowed."""

DATA = bytearray(1 << 30)


def handle(payload):
    return payload
