"""The sidecar's side of the protocol, as small as the tests of the runtime allow.

`Connection` is the socket and its frames. `Sidecar` adds what a stock sidecar decides
with a message and with the reply to it: whether to forward, and where to send.
"""

import json
import os
import socket
import struct
from typing import Any, Dict, List, NamedTuple, Optional

HAPPY_END = "happy-end"
ERROR_END = "error-end"

# Long enough for a loaded machine; a test that works never waits for it.
PATIENCE = 15.0


class Delivery(NamedTuple):
    """A message that the sidecar would publish, and the actor whose queue gets it."""

    actor: str
    message: Dict[str, Any]


class Connection:
    """One connection to the runtime's socket."""

    def __init__(self, socket_path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(PATIENCE)
        try:
            self._socket.connect(socket_path)
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send_bytes(struct.pack(">I", len(body)) + body)

    def send_message(self, message: Any) -> None:
        self.send_frame(json.dumps(message).encode())

    def finish_sending(self) -> None:
        """Closes our direction only, so that a reply can still arrive."""
        self._socket.shutdown(socket.SHUT_WR)

    def read_frame(self) -> bytes:
        (length,) = struct.unpack(">I", self._read(4))
        return self._read(length)

    def read_reply(self) -> Any:
        return json.loads(self.read_frame().decode("utf-8"))

    def read_rest(self) -> bytes:
        """What comes until the runtime closes."""
        rest = bytearray()
        while True:
            chunk = self._socket.recv(65536)
            if not chunk:
                return bytes(rest)
            rest += chunk

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            chunk = self._socket.recv(min(1 << 20, length - len(data)))
            if not chunk:
                raise ConnectionError(f"runtime closed after {len(data)} of {length} bytes")
            data += chunk
        return bytes(data)


class Sidecar:
    """A stock sidecar between its queue and the runtime's socket."""

    def __init__(self, socket_dir: str, actor: str, is_end_actor: bool = False) -> None:
        self._socket_path = os.path.join(socket_dir, "asya-runtime.sock")
        self._actor = actor
        self._is_end_actor = is_end_actor

    def look(self) -> None:
        """Whether the runtime listens: connect, and close without a byte."""
        Connection(self._socket_path).close()

    def exchange(self, message: Any) -> Any:
        """One message, one connection, one reply."""
        with Connection(self._socket_path) as connection:
            connection.send_message(message)
            return connection.read_reply()

    def process(self, message: Dict[str, Any]) -> List[Delivery]:
        """What would be published for a message from the queue."""
        if not self._is_end_actor and self._addressee(message) != self._actor:
            return [Delivery(ERROR_END, message)]
        try:
            reply = self.exchange(message)
        except (ConnectionError, ValueError):
            reply = None
        if self._is_end_actor:
            return []
        if not isinstance(reply, list):
            return [Delivery(ERROR_END, message)]
        return self._route(message, reply)

    def _addressee(self, message: Dict[str, Any]) -> Optional[str]:
        return actor_at(message["route"])

    def _route(self, message: Dict[str, Any], reply: List[Dict[str, Any]]) -> List[Delivery]:
        if not reply:
            return [Delivery(HAPPY_END, message)]
        if "error" in reply[0]:
            return [Delivery(ERROR_END, failed(message, reply[0]))]
        return [self._onward(message, element, number) for number, element in enumerate(reply)]

    def _onward(self, message: Dict[str, Any], element: Dict[str, Any], number: int) -> Delivery:
        onward = {"id": message["id"], "route": element["route"], "payload": element["payload"]}
        if number > 0:
            onward.update(id=f"{message['id']}-{number}", parent_id=message["id"])
        return Delivery(actor_at(element["route"]) or HAPPY_END, onward)


def actor_at(route: Dict[str, Any]) -> Optional[str]:
    """The actor that the route points at; None past its end."""
    current = route.get("current", 0)
    return route["actors"][current] if current < len(route["actors"]) else None


def failed(message: Dict[str, Any], error: Dict[str, Any]) -> Dict[str, Any]:
    payload = {"error": error["error"], "details": error["details"], "original_payload": message["payload"]}
    return dict(message, payload=payload)
