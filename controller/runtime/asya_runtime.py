"""Runs a user's handler for the messages that the Asya sidecar passes on.

The sidecar and this process share a directory. The sidecar opens one connection
per message to the Unix socket in it, sends one frame and reads one frame:

    frame    4 bytes, big-endian length, then that many bytes of UTF-8 JSON
    request  the queue's message, an envelope: {id, parent_id?, route, headers?, payload}
    reply    always a list: one element per result, [] for none, or one error element

ASYA_CONCURRENCY is the number of messages that are handled at the same time. With 1, the
handler runs in the main thread, because libraries (signal, asyncio, CUDA) may insist on
it. With more, it runs in that many threads and has to be thread-safe.

SIGTERM ends the process once the messages in progress have their replies. A handler that
can no longer reply, because what it depends on terminates with the pod, raises an exception
whose class says asya_give_back = True: the reply is then the message as the handler left it,
for the sidecar to put back into the actor's queue.

One file, standard library only, CPython 3.7 or later: it is mounted into images
that we know nothing else about.
"""

import _thread
import contextlib
import faulthandler
import importlib
import importlib.util
import inspect
import io
import json
import logging
import os
import queue
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from types import FrameType, ModuleType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

Handler = Callable[[Any], Any]
Envelope = Dict[str, Any]

PAYLOAD_MODE = "payload"
ENVELOPE_MODE = "envelope"
ENVELOPE_KEYS = ("id", "parent_id", "route", "headers", "payload")

READY_FILE_NAME = "runtime-ready"
MAX_CONCURRENCY = 256
# The adapters that only wait for a server which batches the requests it has at one time.
BATCHING_HANDLERS = "asya_adapters.openai_"
BATCHING_CONCURRENCY = 8
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

# `message_id` is that of the message in progress in this thread, for log lines.
CURRENT = threading.local()


class SetupError(Exception):
    """The runtime cannot start; the text tells the user what to change."""


class Terminated(SystemExit):
    """SIGTERM while the handler is being loaded."""


class NoRequest(Exception):
    """The peer closed without sending a byte, as the sidecar does to check that we listen."""


class ShortFrame(Exception):
    """The peer closed in the middle of a frame."""


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
    concurrency: int


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Reads ASYA_*; an invalid value stops the start, and none is guessed."""
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
        concurrency=parse_concurrency(environ.get("ASYA_CONCURRENCY", ""), handler),
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


def parse_concurrency(text: str, handler: str) -> int:
    """How many messages to handle at the same time."""
    if not text.strip():
        return BATCHING_CONCURRENCY if handler.startswith(BATCHING_HANDLERS) else 1
    with contextlib.suppress(ValueError):
        concurrency = int(text)
        if 1 <= concurrency <= MAX_CONCURRENCY:
            return concurrency
    raise SetupError(f"ASYA_CONCURRENCY must be a number from 1 to {MAX_CONCURRENCY}, not {text!r}")


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
    output.setFormatter(logging.Formatter("%(asctime)s %(levelname)s asya-runtime: %(about)s%(message)s"))
    output.addFilter(add_message_id)
    LOG.addHandler(output)
    LOG.propagate = False
    try:
        LOG.setLevel(level.strip().upper())
    except ValueError:
        # Too small a thing to keep an actor from working.
        LOG.setLevel(logging.INFO)
        LOG.warning("ASYA_LOG_LEVEL=%r is not a log level; INFO is used", level)


def add_message_id(record: logging.LogRecord) -> bool:
    """Tells lines apart that several messages in progress cause, the adapters' included."""
    message_id = getattr(CURRENT, "message_id", None)
    record.about = "" if message_id is None else f"message {message_id}: "
    return True


def printable_id(message_id: Any) -> Optional[str]:
    """An id that takes one line in the log; None if the message has none."""
    if not isinstance(message_id, str):
        return None
    return message_id if message_id.isprintable() else repr(message_id)


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


def write_whole(path: str, text: str) -> None:
    """Writes a file that nobody sees half-written."""
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(path + ".new", path)


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
        CURRENT.message_id = printable_id(message.get("id"))
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
    """Notices that a sidecar closes a connection whose handler still runs.

    The sidecar hangs up when its deadline has passed. The handler may then hang for ever,
    and its own thread cannot notice. One thread that sleeps in epoll_wait(2) can, for all
    connections: it costs a message two system calls and no switch between threads, and works
    while a handler waits in C code that released the GIL. `selectors` cannot do it, because
    its classes wait for data or for room to write, never for a hang-up alone.
    """

    def __init__(self, on_hang_up: Callable[[Optional[str]], None]) -> None:
        self._on_hang_up = on_hang_up
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        # Ids of the messages in progress, by the descriptors of their connections.
        self._watched: Dict[int, Optional[str]] = {}
        self._hung_up: Set[int] = set()
        # Not by `threading`: gevent, when it replaces threads, cannot cope with others in its list.
        _thread.start_new_thread(self._watch, ())

    def hung_up(self) -> int:
        """How many handlers still run after `on_hang_up` was called for them."""
        with self._lock:
            return len(self._hung_up)

    def begin(self, descriptor: int, message_id: Optional[str]) -> None:
        """From now until `end`, calls `on_hang_up` in the watch's thread if the peer closes the connection."""
        with self._lock:
            self._watched[descriptor] = message_id
            # No events asked for: EPOLLHUP and EPOLLERR are reported anyway, and a peer that
            # has only finished sending causes neither.
            self._epoll.register(descriptor, 0)

    def end(self, descriptor: int) -> None:
        with self._lock:
            if descriptor in self._hung_up:
                self._hung_up.remove(descriptor)
            else:
                # Not left to close(): a process that the handler forked may hold a copy.
                self._epoll.unregister(descriptor)
                del self._watched[descriptor]

    def _watch(self) -> None:
        while True:
            self._epoll.poll()
            with self._lock:
                # Asked again under the lock: a descriptor may have gone to the next connection meanwhile.
                for descriptor, _ in self._epoll.poll(0):
                    self._epoll.unregister(descriptor)
                    self._hung_up.add(descriptor)
                    self._on_hang_up(self._watched.pop(descriptor))


class Bell:
    """Lets the main thread wait until a connection comes, a signal arrives or another thread rings."""

    def __init__(self) -> None:
        self._ringing, self._heard = socket.socketpair()
        self._ringing.setblocking(False)
        self._heard.setblocking(False)

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full of rings that nobody has heard yet
            self._ringing.send(b"\0")

    def arm(self) -> None:
        """Makes each ring and each signal from here on end the next wait.

        By itself a signal would not, if it comes just before the wait or if the kernel gives
        it to another thread: Python runs its handler when the main thread wakes up. Said
        before every wait, for an event loop in the user's code may have taken the bell.
        """
        with contextlib.suppress(BlockingIOError):
            self._heard.recv(4096)
        signal.set_wakeup_fd(self._ringing.fileno(), warn_on_full_buffer=False)

    def wait(self, listener: Optional[socket.socket] = None) -> None:
        poller = select.poll()
        poller.register(self._heard, select.POLLIN)
        if listener is not None:
            poller.register(listener, select.POLLIN)
        poller.poll()


class Slots:
    """Serves connections: one at a time in the main thread, or several in as many threads.

    `on_end` is called in such a thread once a connection is closed, with whether another slot
    was free until then.
    """

    def __init__(self, count: int, serve: Callable[[socket.socket], None], on_end: Callable[[bool], None]) -> None:
        self._count = count
        self._serve = serve
        self._on_end = on_end
        self._busy = 0
        self._lock = threading.Lock()
        self._connections: "queue.SimpleQueue[socket.socket]" = queue.SimpleQueue()

    def start(self) -> None:
        if self._count == 1:
            return
        try:
            for number in range(self._count):
                threading.Thread(target=self._work, name=f"asya-{number}", daemon=True).start()
        except RuntimeError as error:
            raise SetupError(f"ASYA_CONCURRENCY={self._count}: {error}") from error

    def busy(self) -> int:
        return self._busy

    def is_free(self) -> bool:
        return self._busy < self._count

    def serve(self, connection: socket.socket) -> None:
        """Returns when the reply is sent if there is one slot, and at once if there are more."""
        if self._count == 1:
            with connection:
                self._serve(connection)
            return
        with self._lock:
            self._busy += 1
        self._connections.put(connection)

    def _work(self) -> None:
        while True:
            with self._connections.get() as connection:
                try:
                    self._serve(connection)
                except BaseException:
                    # Without memory, for example. A thread that ends would be a slot less.
                    LOG.exception("the connection is closed without a reply")
            with self._lock:
                was_free = self.is_free()
                self._busy -= 1
            self._on_end(was_free)


class Server:
    """Serves the socket until SIGTERM, or until a sidecar hangs up on a handler.

    To be built before the handler is loaded: its libraries may replace threads and epoll by
    something else, as gevent does.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._invoker: Optional[Invoker] = None
        self._watch = HangUpWatch(self._on_hang_up)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._bell = Bell()
        self._slots = Slots(settings.concurrency, self._serve, self._on_end)
        # No more messages are accepted, be it for SIGTERM or for a hang-up.
        self._stopping = False
        self._abandoned = False

    def run(self, invoker: Invoker) -> None:
        self._invoker = invoker
        signal.signal(signal.SIGTERM, self._on_sigterm)
        try:
            self._listen()
            for connection in self._connections():
                self._slots.serve(connection)
            self._finish()
        finally:
            self._withdraw()
        if self._abandoned:
            self._exit_abandoned()
        LOG.info("stopped by SIGTERM")

    def _listen(self) -> None:
        """Opens the socket, and only then says ready."""
        path = self._settings.socket_path
        concurrency = self._settings.concurrency
        try:
            self._slots.start()
            self._listener.bind(path)
            if self._settings.socket_mode is not None:
                os.chmod(path, self._settings.socket_mode)
            self._listener.listen()
            LOG.info(
                "listening on %s for %s (%s mode, concurrency %d)",
                path,
                self._settings.handler,
                self._settings.mode,
                concurrency,
            )
            write_whole(self._settings.ready_path, f"ready\nconcurrency={concurrency}\n")
        except OSError as error:
            raise SetupError(f"cannot listen on {path}: {error}") from error

    def _on_sigterm(self, _signal: int, _frame: Optional[FrameType]) -> None:
        """No logging here: it could interrupt a write to the same stream."""
        self._stopping = True
        self._withdraw()

    def _withdraw(self) -> None:
        """Makes us look not ready. No error may leave it, for a signal handler calls it in the midst of user code."""
        with contextlib.suppress(OSError):
            remove_files(self._settings)

    def _connections(self) -> Iterator[socket.socket]:
        """Yields a connection when a slot is free for it; ends with those that were open when we stopped.

        Their peers may have sent a message; hanging up on it would fail it. There are no
        new ones after that, for the socket's file is gone.
        """
        self._listener.setblocking(False)
        while True:
            self._bell.arm()
            if not self._slots.is_free():
                if self._only_abandoned_run():
                    return
                self._bell.wait()
                continue
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                if self._stopping:
                    return
                self._bell.wait(self._listener)
                continue
            # Explicitly, for user code may have called socket.setdefaulttimeout.
            connection.setblocking(True)
            yield connection

    def _finish(self) -> None:
        """Waits for the handlers that still run, except for those that nobody waits for."""
        self._bell.arm()
        while not self._only_abandoned_run():
            self._bell.wait()
            self._bell.arm()

    def _only_abandoned_run(self) -> bool:
        return self._stopping and self._slots.busy() <= self._watch.hung_up()

    def _on_end(self, was_free: bool) -> None:
        # The main thread waits for a slot if none was free, and for all of them at the end.
        if self._stopping or not was_free:
            self._bell.ring()

    def _serve(self, connection: socket.socket) -> None:
        try:
            write_frame(connection, self._answer(connection))
        except NoRequest:
            LOG.debug("a peer checked that we listen")
        except OSError as error:
            LOG.warning("the peer closed before its reply: %s", error)
        finally:
            CURRENT.message_id = None

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
        descriptor = connection.fileno()
        try:
            self._watch.begin(descriptor, CURRENT.message_id)
            try:
                elements = self._invoker.invoke(envelope)
            finally:
                self._watch.end(descriptor)
            reply = encode_reply(elements)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise
            # Only while the process ends: otherwise the queue would bring the message back to it.
            if self._stopping and getattr(type(error), "asya_give_back", False):
                LOG.warning("goes back to the queue: %s", describe(error))
                return encode_reply([unchanged(envelope)])
            # Also SystemExit and asyncio.CancelledError: one message must not end the actor.
            LOG.error("%s", PROCESSING_ERROR, exc_info=True)
            return error_reply(PROCESSING_ERROR, error)
        LOG.debug("reply: %r", elements)
        return reply

    def _on_hang_up(self, message_id: Optional[str]) -> None:
        """Stops serving, for the kubelet to restart a process whose handler may hang; runs in the watch's thread."""
        self._stopping = self._abandoned = True
        try:
            self._withdraw()
            CURRENT.message_id = message_id
            LOG.error("the sidecar hung up while the handler ran; exiting once no other message is in progress")
        finally:
            if self._settings.concurrency == 1:
                self._exit_abandoned()
            self._bell.ring()

    def _exit_abandoned(self) -> None:
        """Ends the process although handlers run. Nobody waits for them, and only os._exit ends stuck ones."""
        try:
            CURRENT.message_id = None
            LOG.error("exiting; all threads:")
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


def remove_leftovers(settings: Settings) -> None:
    """What a killed container left behind: the sidecar and the probes would take it for a runtime that is ready."""
    try:
        remove_files(settings)
    except OSError as error:
        raise SetupError(f"cannot remove what an earlier run left: {error}") from error


def load(settings: Settings) -> Invoker:
    try:
        handler = load_handler(settings.handler)
    except (SetupError, Terminated, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise SetupError(f"ASYA_HANDLER={settings.handler} cannot be loaded") from error
    finally:
        LOG.disabled = False  # logging.config in user code disables loggers that it does not name
    return Invoker(handler, settings.mode, settings.validate)


def main() -> int:
    signal.signal(signal.SIGTERM, exit_while_loading)
    configure_output(os.environ.get("ASYA_LOG_LEVEL") or "INFO")
    try:
        settings = read_settings(os.environ)
        remove_leftovers(settings)
        server = Server(settings)
        server.run(load(settings))
    except SetupError as error:
        LOG.error("%s", error, exc_info=error.__cause__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
