"""As much of AMQP 0-9-1 as a sidecar needs, which takes one message at a time: get, publish with a confirmation, acknowledge."""

import socket
import struct

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE

# (class, method)
START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK, CLOSE, CLOSE_OK = ((10, number) for number in (10, 11, 30, 31, 40, 41, 50, 51))
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE = (20, 10), (20, 11), (20, 40)
PUBLISH, GET, GET_OK, GET_EMPTY, ACK, NACK = (60, 40), (60, 70), (60, 71), (60, 72), (60, 80), (60, 120)
CONFIRM, CONFIRM_OK = (85, 10), (85, 11)


class Refused(Exception):
    """The broker ended the connection or did not take a message; the text is its own."""


class Connection:
    """One connection with one channel; any error leaves it unusable, and what was not acknowledged comes again."""

    def __init__(self, host, port, user, password, vhost="/"):
        self._socket = socket.create_connection((host, port), timeout=10)
        self._socket.settimeout(30)
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(START)
        login = b"\x00" + user.encode() + b"\x00" + password.encode()
        self._call(0, START_OK, long_text(b"") + short_text("PLAIN") + long_text(login) + short_text("en_US"))
        tune = self._expect(TUNE)
        channels, self._frame_max, _ = struct.unpack(">HIH", tune[:8])
        # No heartbeats, since nothing reads from the connection while a handler runs.
        self._call(0, TUNE_OK, struct.pack(">HIH", channels, self._frame_max, 0))
        self._call(0, OPEN, short_text(vhost) + b"\x00\x00")
        self._expect(OPEN_OK)
        self._call(1, CHANNEL_OPEN, b"\x00")
        self._expect(CHANNEL_OPEN_OK)
        self._call(1, CONFIRM, b"\x00")
        self._expect(CONFIRM_OK)

    def close(self):
        """In order: acknowledgements that RabbitMQ has not come to when a connection just ends are lost."""
        try:
            self._socket.settimeout(2)
            self._call(0, CLOSE, struct.pack(">HBHH", 200, 0, 0, 0))
            while struct.unpack(">HH", self._read(METHOD)[1][:4]) != CLOSE_OK:
                pass
        except (OSError, Refused):
            # The connection is already unusable.
            pass
        self._socket.close()

    def get(self, queue):
        """The next message as (tag, body, whether it comes again), or None."""
        self._call(1, GET, b"\x00\x00" + short_text(queue) + b"\x00")
        method, arguments = self._method()
        if method == GET_EMPTY:
            return None
        if method != GET_OK:
            raise Refused(f"unexpected answer {method}")
        tag, again = struct.unpack(">Q?", arguments[:9])
        return tag, self._content(), again

    def acknowledge(self, tag):
        self._call(1, ACK, struct.pack(">QB", tag, 0))

    def publish(self, exchange, key, body):
        """Returns when the broker has the message, for good."""
        self._call(1, PUBLISH, b"\x00\x00" + short_text(exchange) + short_text(key) + b"\x00")
        # Content type, and delivery mode 2 (persistent)
        properties = struct.pack(">H", 0x9000) + short_text("application/json") + b"\x02"
        self._frame(1, HEADER, struct.pack(">HHQ", 60, 0, len(body)) + properties)
        most = self._frame_max - 8
        for start in range(0, len(body), most):
            self._frame(1, BODY, body[start : start + most])
        method, _ = self._method()
        if method != ACK:
            raise Refused(f"the message was not taken: {method}")

    def _content(self):
        _, payload = self._read(HEADER)
        (size,) = struct.unpack(">Q", payload[4:12])
        body = b""
        while len(body) < size:
            body += self._read(BODY)[1]
        return body

    def _call(self, channel, method, arguments):
        self._frame(channel, METHOD, struct.pack(">HH", *method) + arguments)

    def _expect(self, wanted):
        method, arguments = self._method()
        if method != wanted:
            raise Refused(f"unexpected answer {method} in place of {wanted}")
        return arguments

    def _method(self):
        _, payload = self._read(METHOD)
        method = struct.unpack(">HH", payload[:4])
        if method in (CLOSE, CHANNEL_CLOSE):
            code, length = struct.unpack(">HB", payload[4:7])
            raise Refused(f"{code} {payload[7 : 7 + length].decode()}")
        return method, payload[4:]

    def _frame(self, channel, kind, payload):
        self._socket.sendall(struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([FRAME_END]))

    def _read(self, wanted):
        while True:
            kind, channel, length = struct.unpack(">BHI", self._exactly(7))
            payload = self._exactly(length + 1)[:-1]
            if kind == HEARTBEAT:
                continue
            if kind != wanted:
                raise Refused(f"unexpected frame {kind}")
            return channel, payload

    def _exactly(self, length):
        data = b""
        while len(data) < length:
            chunk = self._socket.recv(length - len(data))
            if not chunk:
                raise ConnectionError("the broker hung up")
            data += chunk
        return data


def short_text(text):
    return bytes([len(text.encode())]) + text.encode()


def long_text(data):
    return struct.pack(">I", len(data)) + data
