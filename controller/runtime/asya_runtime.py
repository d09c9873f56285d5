"""Runs a user's handler for the messages that the Asya sidecar passes on.

The sidecar and this process share a directory. The sidecar opens one connection
per message to the Unix socket in it, sends one frame and reads one frame:

    frame    4 bytes, big-endian length, then that many bytes of UTF-8 JSON
    request  the queue's message, an envelope: {id, parent_id?, route, headers?, payload}
    reply    always a list: one element per result, [] for none, or one error element

The handler runs in the main thread, because libraries (signal, asyncio, CUDA)
may insist on it, and for one message at a time. SIGTERM ends the process when the
message in hand has its reply. A handler that cannot give one any more, because what it
needs ends with the pod, raises an exception whose class says asya_give_back = True: the
reply is then the message as the handler left it, for the sidecar to put into the actor's
queue again.

One file, standard library only, CPython 3.7 or later: it is mounted into images
that we know nothing else about.
"""

import contextlib
import faulthandler
import importlib
import importlib.util
import inspect
import io
import json
import logging
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from types import FrameType, ModuleType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

Handler = Callable[[Any], Any]
Envelope = Dict[str, Any]

PAYLOAD_MODE = "payload"
ENVELOPE_MODE = "envelope"
ENVELOPE_KEYS = ("id", "parent_id", "route", "headers", "payload")

READY_FILE_NAME = "runtime-ready"
FRAME_HEADER = struct.Struct(">I")
MAX_FRAME_LENGTH = 2**32 - 1

JSON_TYPES = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
    dict: "object",
}

# The error codes that the sidecar knows.
MSG_PARSING_ERROR = "msg_parsing_error"
PROCESSING_ERROR = "processing_error"
CONNECTION_ERROR = "connection_error"

# A logger of its own, not the root logger: that one is the user's to configure.
LOG = logging.getLogger("asya_runtime")


class SetupError(Exception):
    """The runtime cannot start; the text tells the user what to change."""


class Terminated(SystemExit):
    """SIGTERM while the handler is being loaded."""


class NoRequest(Exception):
    """The peer left without a byte, as the sidecar does to see whether we listen."""


class ShortFrame(Exception):
    """The peer left in the middle of a frame."""


class EnvelopeError(ValueError):
    """An envelope, received or returned by the handler, lacks its required shape."""


# --- Settings ---------------------------------------------------------------------


class Settings(NamedTuple):
    """What the environment says; see `read_settings` for names and defaults."""

    handler: str
    mode: str
    socket_path: str
    ready_path: str
    socket_mode: Optional[int]
    chunk_size: int
    validate: bool


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Reads ASYA_*; a value that makes no sense stops the start instead of being guessed."""
    handler = environ.get("ASYA_HANDLER", "").strip()
    if not handler:
        raise SetupError("ASYA_HANDLER is not set; it names your handler: module.function or module.Class.method")
    mode = (environ.get("ASYA_HANDLER_MODE") or PAYLOAD_MODE).strip().lower()
    if mode not in (PAYLOAD_MODE, ENVELOPE_MODE):
        raise SetupError(f"ASYA_HANDLER_MODE must be payload or envelope, not {mode!r}")
    directory = environ.get("ASYA_SOCKET_DIR") or "/var/run/asya"
    return Settings(
        handler=handler,
        mode=mode,
        socket_path=os.path.join(directory, environ.get("ASYA_SOCKET_NAME") or "asya-runtime.sock"),
        ready_path=os.path.join(directory, READY_FILE_NAME),
        socket_mode=parse_socket_mode(environ.get("ASYA_SOCKET_CHMOD", "0o666")),
        chunk_size=parse_chunk_size(environ.get("ASYA_CHUNK_SIZE") or "65536"),
        validate=parse_switch("ASYA_ENABLE_VALIDATION", environ.get("ASYA_ENABLE_VALIDATION") or "true"),
    )


def parse_socket_mode(text: str) -> Optional[int]:
    """An octal file mode such as 0o666; empty leaves the socket as the umask made it."""
    if not text.strip():
        return None
    with contextlib.suppress(ValueError):
        mode = int(text, 8)
        if 0 <= mode <= 0o777:
            return mode
    raise SetupError(f"ASYA_SOCKET_CHMOD must be an octal file mode such as 0o666, or empty, not {text!r}")


def parse_chunk_size(text: str) -> int:
    """The most bytes to take from the socket at once."""
    with contextlib.suppress(ValueError):
        size = int(text)
        if size > 0:
            return size
    raise SetupError(f"ASYA_CHUNK_SIZE must be a number of bytes above 0, not {text!r}")


def parse_switch(name: str, text: str) -> bool:
    """A boolean as people write it in YAML and shells."""
    word = text.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise SetupError(f"{name} must be true or false, not {text!r}")


def configure_output(level: str) -> None:
    """Logs to stderr; sends on what the handler prints line by line.

    Standard output is block-buffered when it is not a terminal, so a handler's
    `print` would show up late, or never if the process is killed.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    output = logging.StreamHandler()
    output.setFormatter(logging.Formatter("%(asctime)s %(levelname)s asya-runtime: %(message)s"))
    LOG.addHandler(output)
    LOG.propagate = False
    try:
        LOG.setLevel(level.strip().upper())
    except ValueError:
        # Too small a thing to keep an actor from working.
        LOG.setLevel(logging.INFO)
        LOG.warning("ASYA_LOG_LEVEL=%r is not a log level; INFO is used", level)


# --- Loading the handler ----------------------------------------------------------


def load_handler(path: str) -> Handler:
    """Imports what ASYA_HANDLER names; exceptions of the user's code pass through."""
    parts = path.split(".")
    if len(parts) < 2 or not all(parts):
        raise SetupError(f"ASYA_HANDLER={path} must be module.function or module.Class.method")
    owner, attributes = import_longest_prefix(parts)
    for name in attributes[:-1]:
        owner = getattr(owner, name)
    if inspect.isclass(owner):
        owner = owner()
    handler = getattr(owner, attributes[-1])
    refuse_unusable_handler(path, handler)
    return handler


def import_longest_prefix(parts: Sequence[str]) -> Tuple[Any, Sequence[str]]:
    """Imports the longest dotted prefix that is a module; returns it and the names left.

    Each step asks whether the module exists before importing it. Trying imports and
    catching ImportError would take an ImportError that the user's own module raises
    for "no such module", and hide it.
    """
    module: Optional[ModuleType] = None
    imported = 0
    for count in range(1, len(parts)):
        name = ".".join(parts[:count])
        if not module_exists(name, parent=module):
            break
        module = importlib.import_module(name)
        imported = count
    if module is None:
        searched = os.pathsep.join(sys.path)
        raise SetupError(f"no module named {parts[0]!r} for ASYA_HANDLER; set PYTHONPATH (searched: {searched})")
    return module, parts[imported:]


def module_exists(name: str, parent: Optional[ModuleType]) -> bool:
    """Whether `import name` would find something; imports nothing by itself."""
    if name in sys.modules:
        return True
    if parent is not None and not hasattr(parent, "__path__"):
        return False  # only packages have submodules
    return importlib.util.find_spec(name) is not None


def refuse_unusable_handler(path: str, handler: Any) -> None:
    """Refuses at the start what could only fail for every message."""
    if inspect.isclass(handler):
        raise SetupError(f"ASYA_HANDLER={path} is a class; name its method: {path}.METHOD")
    if not callable(handler):
        raise SetupError(f"ASYA_HANDLER={path} is not callable, but {type(handler).__name__}")
    if inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler):
        raise SetupError(f"ASYA_HANDLER={path} is async; wrap it in a function that calls asyncio.run")
    if inspect.isgeneratorfunction(handler):
        raise SetupError(f"ASYA_HANDLER={path} is a generator; return a list, one item per message to send")


# --- Frames -----------------------------------------------------------------------


def read_frame(connection: socket.socket, chunk_size: int) -> bytearray:
    """Reads one frame. Its length is not limited here: the broker limits messages."""
    header = read_up_to(connection, FRAME_HEADER.size, chunk_size)
    if not header:
        raise NoRequest()
    if len(header) < FRAME_HEADER.size:
        raise ShortFrame(f"connection closed after {len(header)} of {FRAME_HEADER.size} length bytes")
    (length,) = FRAME_HEADER.unpack(header)
    body = read_up_to(connection, length, chunk_size)
    if len(body) < length:
        raise ShortFrame(f"connection closed after {len(body)} of {length} bytes")
    return body


def read_up_to(connection: socket.socket, length: int, chunk_size: int) -> bytearray:
    """Reads `length` bytes, fewer only if the peer closes.

    The buffer grows with what arrives, so that a length by itself reserves no memory.
    """
    received = bytearray()
    while len(received) < length:
        try:
            chunk = connection.recv(min(chunk_size, length - len(received)))
        except ConnectionError:
            break
        if not chunk:
            break
        received += chunk
    return received


def write_frame(connection: socket.socket, body: bytes) -> None:
    connection.sendall(FRAME_HEADER.pack(len(body)))
    connection.sendall(body)


# --- JSON -------------------------------------------------------------------------


def decode_object(body: bytearray) -> Dict[str, Any]:
    """Strict JSON: UTF-8 only, no NaN, and an object outside."""
    value = json.loads(body.decode("utf-8"), parse_constant=refuse_constant)
    if not isinstance(value, dict):
        raise EnvelopeError(f"message must be a JSON object, not {json_type(value)}")
    return value


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def encode_reply(elements: List[Any]) -> bytes:
    """Compact UTF-8, since brokers limit the size of what the sidecar sends on."""
    try:
        body = dump_json(elements, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form; JSON can still carry it escaped.
        body = dump_json(elements, ensure_ascii=True).encode("ascii")
    if len(body) > MAX_FRAME_LENGTH:
        raise ValueError(f"reply of {len(body)} bytes does not fit into a frame")
    return body


def dump_json(value: Any, ensure_ascii: bool) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=ensure_ascii, separators=(",", ":"))


def json_type(value: Any) -> str:
    """How JSON calls the type of a value, for messages to people."""
    return JSON_TYPES.get(type(value), type(value).__name__)


# --- Envelopes --------------------------------------------------------------------


def checked_envelope(envelope: Any) -> Envelope:
    """A copy with the known keys only and `route.current` filled in, or EnvelopeError."""
    if not isinstance(envelope, dict):
        raise EnvelopeError(f"envelope must be an object, not {json_type(envelope)}")
    for key in ("payload", "route"):
        if key not in envelope:
            raise EnvelopeError(f"{key} is missing")
    known = {key: envelope[key] for key in ENVELOPE_KEYS if key in envelope}
    known["route"] = checked_route(envelope["route"])
    for key, kind, name in (("id", str, "a string"), ("headers", dict, "an object")):
        if key in known and not isinstance(known[key], kind):
            raise EnvelopeError(f"{key} must be {name}, not {json_type(known[key])}")
    return known


def checked_route(route: Any) -> Dict[str, Any]:
    if not isinstance(route, dict):
        raise EnvelopeError(f"route must be an object, not {json_type(route)}")
    actors = route.get("actors")
    if not isinstance(actors, list) or not actors:
        raise EnvelopeError("route.actors must be a non-empty list")
    current = route.get("current", 0)
    # `current` equals the length when the last actor is done.
    if not is_integer(current) or not 0 <= current <= len(actors):
        raise EnvelopeError(f"route.current must be an integer from 0 to {len(actors)}, not {current!r}")
    return dict(route, current=current)


def past_actors(route: Dict[str, Any]) -> List[Any]:
    """The actors up to and with the current one, as a copy."""
    return route["actors"][: route["current"] + 1]


def check_past(past: List[Any], route: Dict[str, Any]) -> None:
    """A handler may plan what comes next, not rewrite where the message has been."""
    if route["actors"][: len(past)] != past:
        raise EnvelopeError(f"route.actors must still begin with {past!r}")


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def as_list(result: Any) -> List[Any]:
    """What a handler returns as the list of its results."""
    if result is None:
        return []
    return list(result) if isinstance(result, (list, tuple)) else [result]


# --- Calling the handler ----------------------------------------------------------


class Invoker:
    """Calls the handler with a message, and makes reply elements of what it returns."""

    def __init__(self, handler: Handler, mode: str, validate: bool) -> None:
        self._handler = handler
        self._mode = mode
        self._validate = validate

    def parse(self, body: bytearray) -> Envelope:
        """The request as the handler may have it; raises if there is none in `body`."""
        message = decode_object(body)
        LOG.debug("request: %r", message)
        return checked_envelope(message) if self._validate else message

    def invoke(self, envelope: Envelope) -> List[Any]:
        if self._mode == PAYLOAD_MODE:
            return self._invoke_with_payload(envelope)
        return self._invoke_with_envelope(envelope)

    def _invoke_with_payload(self, envelope: Envelope) -> List[Envelope]:
        onward: Envelope = {"route": advanced(envelope.get("route"))}
        if "headers" in envelope:
            onward["headers"] = envelope["headers"]
        return [dict(onward, payload=result) for result in as_list(self._handler(envelope.get("payload")))]

    def _invoke_with_envelope(self, envelope: Envelope) -> List[Any]:
        if not self._validate:
            return as_list(self._handler(envelope))
        # Handlers edit the envelope in place, so what to compare with is taken before.
        past = past_actors(envelope["route"])
        results = [checked_envelope(result) for result in as_list(self._handler(envelope))]
        for result in results:
            check_past(past, result["route"])
        return results


def unchanged(envelope: Envelope) -> Envelope:
    """A result that leads to where the envelope came from: the route says whose it is next."""
    return {key: envelope[key] for key in ("route", "headers", "payload") if key in envelope}


def advanced(route: Any) -> Any:
    """The route, one actor further; an unchecked one that has no such thing is left alone."""
    if not isinstance(route, dict) or not is_integer(route.get("current", 0)):
        return route
    return dict(route, current=route.get("current", 0) + 1)


def error_reply(code: str, error: BaseException) -> bytes:
    details = {
        "message": describe(error),
        "type": type(error).__name__,
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    }
    return encode_reply([{"error": code, "details": details}])


def describe(error: BaseException) -> str:
    """`str(error)`, even for an exception whose own `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return f"<{type(error).__name__} without a readable text>"


# --- Serving ----------------------------------------------------------------------


class HangUpWatch:
    """Calls `on_hang_up` if the peer closes the connection inside the `with` block.

    The sidecar hangs up when its deadline has passed. The handler may then hang for
    ever, and nothing in the main thread can notice. A thread that sleeps in poll(2)
    can: it takes no time from the handler, holds no lock that a fork in the handler
    would copy, and works while the handler waits in C code that released the GIL.
    """

    def __init__(self, connection: socket.socket, on_hang_up: Callable[[], None]) -> None:
        self._connection = connection
        self._on_hang_up = on_hang_up
        self._done, self._done_at_watch = socket.socketpair()
        self._thread = threading.Thread(target=self._watch, name="asya-hang-up-watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        # A byte before the close: a process that the handler forked may hold a copy.
        self._done.send(b"\0")
        self._thread.join()
        self._done.close()
        self._done_at_watch.close()

    def _watch(self) -> None:
        poller = select.poll()
        poller.register(self._done_at_watch, select.POLLIN)
        # No events asked for: POLLHUP and POLLERR are told anyway, and a peer that has
        # only finished sending causes neither.
        poller.register(self._connection, 0)
        ready = [descriptor for descriptor, _ in poller.poll()]
        if self._done_at_watch.fileno() not in ready:
            self._on_hang_up()


class Server:
    """Serves the socket, one connection at a time, until SIGTERM."""

    def __init__(self, settings: Settings, invoker: Invoker) -> None:
        self._settings = settings
        self._invoker = invoker
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._stopping = False
        self._bell, self._bell_at_loop = socket.socketpair()
        self._bell.setblocking(False)
        self._bell_at_loop.setblocking(False)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        try:
            self._listen()
            for connection in self._connections():
                with connection:
                    self._serve(connection)
        finally:
            self._withdraw()
        LOG.info("stopped by SIGTERM")

    def _listen(self) -> None:
        """Opens the socket, and only then says ready."""
        path = self._settings.socket_path
        try:
            self._listener.bind(path)
            if self._settings.socket_mode is not None:
                os.chmod(path, self._settings.socket_mode)
            self._listener.listen()
            LOG.info("listening on %s for %s (%s mode)", path, self._settings.handler, self._settings.mode)
            with open(self._settings.ready_path, "w", encoding="ascii") as ready_file:
                ready_file.write("ready")
        except OSError as error:
            raise SetupError(f"cannot listen on {path}: {error}") from error

    def _stop(self, _signal: int, _frame: Optional[FrameType]) -> None:
        """SIGTERM. No logging here: it could interrupt a write to the same stream."""
        self._stopping = True
        self._withdraw()

    def _withdraw(self) -> None:
        """Lets nobody find us any more. No error may leave it, for it runs inside the handler."""
        with contextlib.suppress(OSError):
            remove_files(self._settings)

    def _connections(self) -> Iterator[socket.socket]:
        """Yields connections until SIGTERM, and then those that were open already.

        Their peers may have sent a message; hanging up on it would fail it. There are no
        new ones after SIGTERM, for it removed the socket's file.
        """
        self._listener.setblocking(False)
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._bell_at_loop, select.POLLIN)
        while True:
            self._let_signals_ring()
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                if self._stopping:
                    return
                poller.poll()
                continue
            # Explicitly, for user code may have called socket.setdefaulttimeout.
            connection.setblocking(True)
            yield connection

    def _let_signals_ring(self) -> None:
        """Makes each signal from here on end the next wait.

        By itself it would not, if it comes just before the wait or if the kernel gives it
        to another thread: Python then runs its handler when the main thread wakes up. Said
        before every wait, for an event loop in the user's code may have taken the bell.
        """
        with contextlib.suppress(BlockingIOError):
            self._bell_at_loop.recv(4096)
        signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)

    def _serve(self, connection: socket.socket) -> None:
        try:
            write_frame(connection, self._answer(connection))
        except NoRequest:
            LOG.debug("a peer looked whether we listen")
        except OSError as error:
            LOG.warning("the peer left before its reply: %s", error)

    def _answer(self, connection: socket.socket) -> bytes:
        """The reply to the request on the connection: whatever goes wrong, there is one."""
        try:
            envelope = self._invoker.parse(read_frame(connection, self._settings.chunk_size))
        except NoRequest:
            raise
        except ShortFrame as error:
            LOG.warning("%s: %s", CONNECTION_ERROR, error)
            return error_reply(CONNECTION_ERROR, error)
        except Exception as error:
            LOG.error("%s: %s", MSG_PARSING_ERROR, describe(error))
            return error_reply(MSG_PARSING_ERROR, error)
        message_id = envelope.get("id")
        try:
            with HangUpWatch(connection, self._abandon):
                elements = self._invoker.invoke(envelope)
            reply = encode_reply(elements)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # Only while it ends: its own queue would bring the message back to this process.
            if self._stopping and getattr(type(error), "asya_give_back", False):
                LOG.warning("message %s goes back to the queue: %s", message_id, describe(error))
                return encode_reply([unchanged(envelope)])
            # Also SystemExit and asyncio.CancelledError: one message must not end the actor.
            LOG.error("message %s: %s", message_id, PROCESSING_ERROR, exc_info=True)
            return error_reply(PROCESSING_ERROR, error)
        LOG.debug("message %s: reply: %r", message_id, elements)
        return reply

    def _abandon(self) -> None:
        """Ends the process under a handler that nobody waits for, for the kubelet to restart.

        Runs in the watch's thread. Only os._exit ends a process whose main thread is stuck.
        """
        try:
            self._withdraw()
            LOG.error("the sidecar hung up while the handler ran; exiting, with the handler here:")
            faulthandler.dump_traceback()
            sys.stdout.flush()
        finally:
            os._exit(1)


def remove_files(settings: Settings) -> None:
    for path in (settings.ready_path, settings.socket_path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


# --- Start ------------------------------------------------------------------------


def exit_while_loading(_signal: int, _frame: Optional[FrameType]) -> None:
    """SIGTERM before there is anything to finish. PID 1 would ignore it by default."""
    raise Terminated(0)


def prepare(settings: Settings) -> Server:
    """Loads the handler. What a killed container left behind goes first: the sidecar
    and the probes would take it for a runtime that is ready."""
    try:
        remove_files(settings)
    except OSError as error:
        raise SetupError(f"cannot remove what an earlier run left: {error}") from error
    try:
        handler = load_handler(settings.handler)
    except (SetupError, Terminated, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise SetupError(f"ASYA_HANDLER={settings.handler} cannot be loaded") from error
    finally:
        LOG.disabled = False  # logging.config in user code disables loggers that it does not name
    return Server(settings, Invoker(handler, settings.mode, settings.validate))


def main() -> int:
    signal.signal(signal.SIGTERM, exit_while_loading)
    configure_output(os.environ.get("ASYA_LOG_LEVEL") or "INFO")
    try:
        prepare(read_settings(os.environ)).run()
    except SetupError as error:
        LOG.error("%s", error, exc_info=error.__cause__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
