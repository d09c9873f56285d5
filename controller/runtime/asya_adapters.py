"""Handlers that call a model's HTTP API in the same pod, one request per message.

ASYA_HANDLER names one of them:

    openai_chat         POST /v1/chat/completions
    openai_completions  POST /v1/completions
    kserve_v1           POST /v1/models/{model}:predict
    kserve_v2           POST /v2/models/{model}/infer
    rest                POST to the URL itself, followed by ASYA_TARGET_PATH

The payload is the request's body and the answer's body is the result, as they are. An answer
is 64 MiB at most, as messages are.

    ASYA_TARGET_URL            where the model answers; without it the import fails
    ASYA_TARGET_MODEL          its name, for payloads that name none
    ASYA_TARGET_TIMEOUT        seconds for one message, 0 for no limit (300)
    ASYA_TARGET_READY_TIMEOUT  seconds that the import waits for the model (3000)
    ASYA_TARGET_TOKEN          sent as bearer token

The import waits until the model answers: the runtime opens its socket only after that, so
no message is accepted before. When the pod and its model terminate, a message that is still
unanswered goes back to the queue. Standard library only, CPython 3.7 or later.

Several messages may be handled at the same time, each in a thread of its own with an HTTP
connection and a deadline of its own. All that they share is the name of the listed model.
The runtime handles 8 messages at a time with the openai_* adapters, whose servers batch
requests, unless ASYA_CONCURRENCY says otherwise.
"""

import email.utils
import http.client
import io
import json
import logging
import os
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional

# Below the runtime's logger: what is said here is shown where it shows its own.
LOG = logging.getLogger("asya_runtime.adapters")

PROCESSING_SECONDS = 300.0
READY_SECONDS = 3000.0
PROBE_SECONDS = 10.0
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
SHOWN_BYTES = 2048
LONGEST_ANSWER = 64 * 1024 * 1024
CHUNK = 64 * 1024

# All containers of a pod are told to end at about the same time: how much later than the
# model this process may learn it, and how often it looks.
NEWS_SECONDS = 5.0
LOOK_SECONDS = 0.1

# Asked in this order; an answer of DOES_NOT_TELL passes on to the next.
HEALTH_PATHS = ("/health", "/v2/health/ready", "/-/healthz")
DOES_NOT_TELL = (401, 403, 404, 405, 501)
PASSES = (502, 503, 504)
TOO_MANY_REQUESTS = 429
REDIRECTS = (301, 302, 303, 307, 308)
# Of these, the ones after which a POST stays a POST.
SAME_METHOD = (307, 308)
MOST_REDIRECTS = 5

# What a server that ends leaves of a connection.
BROKEN = (ConnectionError, http.client.IncompleteRead, ssl.SSLEOFError)


class TargetError(Exception):
    """The model refuses, fails or does not answer."""


class PodEnds(TargetError):
    """The model is going, and so is this pod: another one is to have the message."""

    # What the runtime looks for.
    asya_give_back = True


class Answer(NamedTuple):
    """What came back over HTTP, whatever its status."""

    status: int
    body: bytes
    retry_after: Optional[str] = None
    location: Optional[str] = None


# --- Handlers ---------------------------------------------------------------------


def openai_chat(payload: Any) -> List[Any]:
    """A chat request; {"text": ...} and a bare text become its only message."""
    request = {"text": payload} if isinstance(payload, str) else dict(as_object(payload))
    if "messages" not in request and isinstance(request.get("text"), str):
        request["messages"] = [{"role": "user", "content": request.pop("text")}]
    if "messages" not in request:
        raise ValueError('the payload must be a chat request with "messages", or {"text": ...}')
    deadline = message_deadline()
    return post("/v1/chat/completions", openai(request, deadline), deadline)


def openai_completions(payload: Any) -> List[Any]:
    """A completion request."""
    deadline = message_deadline()
    return post("/v1/completions", openai(dict(as_object(payload)), deadline), deadline)


def kserve_v1(payload: Any) -> List[Any]:
    """A request of KServe's first protocol; "model" in it names another model."""
    request = dict(as_object(payload))
    deadline = message_deadline()
    return post(f"/v1/models/{taken_model(request, deadline)}:predict", request, deadline)


def kserve_v2(payload: Any) -> List[Any]:
    """A request of the Open Inference Protocol; "model" in it names another model."""
    request = dict(as_object(payload))
    deadline = message_deadline()
    return post(f"/v2/models/{taken_model(request, deadline)}/infer", request, deadline)


def rest(payload: Any) -> List[Any]:
    """Anything, to any server that takes and gives JSON."""
    return post(os.environ.get("ASYA_TARGET_PATH", ""), payload, message_deadline())


# --- Requests ---------------------------------------------------------------------


def message_deadline() -> "Deadline":
    """For all that one message asks the server: it passes before the sidecar's, whose hang-up ends the runtime."""
    return Deadline(margin(TARGET.timeout))


def as_object(payload: Any) -> Dict[str, Any]:
    if not isinstance(payload, dict):
        raise ValueError(f"the payload must be an object, not {type(payload).__name__}")
    return payload


def openai(request: Dict[str, Any], deadline: "Deadline") -> Dict[str, Any]:
    """With a model, and without a stream: a message has one answer."""
    if not request.get("model"):
        request["model"] = model_name(deadline)
    if request.get("stream"):
        request["stream"] = False
        request.pop("stream_options", None)
    return request


def taken_model(request: Dict[str, Any], deadline: "Deadline") -> str:
    """The model that goes into the URL; these protocols have no such field in the body."""
    return urllib.parse.quote(str(request.pop("model", None) or model_name(deadline)), safe="")


def model_name(deadline: "Deadline") -> str:
    """What the environment says, else the first that the model's server lists."""
    name = os.environ.get("ASYA_TARGET_MODEL") or TARGET.listed_model(deadline)
    if not name:
        raise TargetError("the model's name is not known: set ASYA_TARGET_MODEL in spec.runtime.env")
    return name


def post(path: str, request: Any, deadline: "Deadline") -> List[Any]:
    """One result: a list would be several."""
    answer = TARGET.post(path, json.dumps(request).encode("utf-8"), deadline)
    return [] if answer is None else [answer]


# --- The model's server -----------------------------------------------------------


class Target:
    """The server at ASYA_TARGET_URL; used by several threads at the same time."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self.timeout = seconds("ASYA_TARGET_TIMEOUT", PROCESSING_SECONDS)
        self._opener = opener_for(self._url)
        self._listed: Optional[str] = None

    def listed_model(self, deadline: "Deadline") -> Optional[str]:
        """The first model that the server lists. It is asked when a message first needs it, and not again:
        only messages that come before the first answer ask, too."""
        listed = self._listed
        if listed is None:
            try:
                listed = first_model(self._exchange("/v1/models", None, deadline.left()))
            except BROKEN as cause:
                self._broke("/v1/models", cause, deadline)
            except socket.timeout:
                self._timed_out("/v1/models")
            if listed is not None:
                self._listed = listed
        return listed

    def post(self, path: str, body: bytes, deadline: "Deadline") -> Any:
        """The decoded answer. Transient failures are retried until the deadline."""
        pauses = Pauses()
        while True:
            retry_after = None
            try:
                answer = self._exchange(path, body, deadline.left())
                if answer.status < 300:
                    return decoded(answer.body)
                error = TargetError(f"{self._url}{path} answered {answer.status}{told(answer)}")
                if answer.status == TOO_MANY_REQUESTS:
                    retry_after = asked_pause(answer.retry_after)
                elif answer.status not in PASSES:
                    if answer.status >= 500:
                        wait_unless_pod_ends(0, error)
                    raise error
            except ConnectionRefusedError:
                error = TargetError(f"{self._url} refuses connections")
            except BROKEN as cause:
                # Not tried again here: the message itself may be what breaks the model.
                self._broke(path, cause, deadline)
            except socket.timeout:
                self._timed_out(path)
            pause = pauses.next() if retry_after is None else retry_after
            if not deadline.allows(pause):
                wait_unless_pod_ends(0, error)
                raise error
            LOG.warning("%s; trying again", error)
            wait_unless_pod_ends(pause, error)

    def _broke(self, path: str, cause: Exception, deadline: "Deadline") -> NoReturn:
        error = TargetError(f"{self._url}{path} broke the connection: {cause}")
        wait_unless_pod_ends(min(NEWS_SECONDS, deadline.left() or NEWS_SECONDS), error)
        raise error from cause

    def _timed_out(self, path: str) -> NoReturn:
        raise TargetError(f"{self._url}{path} did not answer in time") from None

    def wait_until_ready(self, timeout: float) -> None:
        """Returns as soon as the server says that it is healthy, or answers at all."""
        deadline = Deadline(timeout)
        pauses = Pauses()
        told = ""
        while True:
            trouble = self._trouble()
            if trouble is None:
                return
            if trouble != told:
                LOG.info("waiting for the model: %s", trouble)
                told = trouble
            pause = pauses.next()
            if not deadline.allows(pause):
                raise TargetError(f"the model is not ready: {trouble}; see its log, or set ASYA_TARGET_READY_TIMEOUT")
            time.sleep(pause)

    def _trouble(self) -> Optional[str]:
        for path in HEALTH_PATHS:
            try:
                status = self._exchange(path, None, PROBE_SECONDS).status
            except (OSError, http.client.HTTPException) as error:
                return f"{self._url}{path}: {error}"
            if status < 400:
                return None
            if status not in DOES_NOT_TELL:
                return f"{self._url}{path} answered {status}"
        return None

    def _exchange(self, path: str, body: Optional[bytes], timeout: Optional[float]) -> Answer:
        """One answer, within `timeout` seconds from the first byte sent to the last one read."""
        deadline = Deadline(timeout or 0)
        url = self._url + path
        for _ in range(MOST_REDIRECTS):
            answer = self._ask(url, body, deadline.left())
            redirected = followed(url, answer, body is not None)
            if redirected is None:
                return answer
            url = redirected
        raise TargetError(f"{self._url}{path} redirects more than {MOST_REDIRECTS} times")

    def _ask(self, url: str, body: Optional[bytes], timeout: Optional[float]) -> Answer:
        request = urllib.request.Request(url, data=body)
        if body is not None:
            request.add_header("Content-Type", "application/json")
        token = os.environ.get("ASYA_TARGET_TOKEN")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with self._opener.open(request, timeout=timeout) as response:
                return Answer(response.status, read_all(response))
        except urllib.error.HTTPError as error:
            with error:
                headers = error.headers
                body = error.read(SHOWN_BYTES + 1)
                return Answer(error.code, body, headers.get("Retry-After"), headers.get("Location"))
        except urllib.error.URLError as error:
            raise_cause(error)


def read_all(response: Any) -> bytes:
    """The body, of which no more is kept in memory than a message may have."""
    chunks: List[bytes] = []
    left = LONGEST_ANSWER
    while True:
        chunk = response.read(CHUNK)
        if not chunk:
            break
        left -= len(chunk)
        if left < 0:
            raise TargetError(f"{response.geturl()} answers with more than {LONGEST_ANSWER} bytes")
        chunks.append(chunk)
    if response.length:
        # Other than read() without a number, read(number) does not complain.
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(chunks)


def followed(url: str, answer: Answer, posts: bool) -> Optional[str]:
    """Where to ask again. Only the same server gets the message and the token, and only as the same kind of request."""
    if answer.status not in (SAME_METHOD if posts else REDIRECTS) or not answer.location:
        return None
    location = urllib.parse.urljoin(url, answer.location)
    return location if origin(location) == origin(url) else None


def origin(url: str) -> List[Any]:
    parts = urllib.parse.urlsplit(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    try:
        return [parts.scheme, parts.hostname, parts.port or default]
    except ValueError:
        return [url]


def told(answer: Answer) -> str:
    """What an answer says, behind its status."""
    if answer.status in REDIRECTS and answer.location:
        location = urllib.parse.urlsplit(answer.location)._replace(query="", fragment="").geturl()
        return (
            f", a redirect to {location} that is not followed: it would lose the message, or send it and the token"
            " to another server; set spec.runtime.targetURL, or ASYA_TARGET_PATH, to where the model answers"
        )
    return f": {shown(answer.body)}"


def raise_cause(error: urllib.error.URLError) -> NoReturn:
    if isinstance(error.reason, Exception):
        raise error.reason from None
    raise error


def opener_for(url: str) -> urllib.request.OpenerDirector:
    """In the same pod there is no proxy, and no authority that a certificate could be of."""
    ways = [NoRedirects(), TimedHTTPHandler()]
    if (urllib.parse.urlsplit(url).hostname or "") not in ("localhost", "127.0.0.1", "::1"):
        return urllib.request.build_opener(*ways, TimedHTTPSHandler())
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    ways += [urllib.request.ProxyHandler({}), TimedHTTPSHandler(context=context)]
    return urllib.request.build_opener(*ways)


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib makes a GET of a redirected POST, and hands the token to whatever host it is sent to."""

    def redirect_request(self, *_: Any) -> None:
        return None


# A socket's timeout is one of each single read, which a server that sends a byte now and then never exceeds.


class TimedReader(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, sock: socket.socket, deadline: "Deadline") -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline
        # Holds the socket open after urllib has closed its own handle.
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        self._deadline.limit(self._sock)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class TimedSocket:
    """What http.client makes a response of."""

    def __init__(self, sock: socket.socket, deadline: "Deadline") -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(TimedReader(self._sock, self._deadline))


class Timed:
    """A connection whose timeout is that of all it does."""

    def __init__(self, *args: Any, timeout: Optional[float] = None, **kwargs: Any) -> None:
        super().__init__(*args, timeout=timeout, **kwargs)
        self._deadline = Deadline(timeout or 0)
        self.response_class = self._response

    def _response(self, sock: socket.socket, *args: Any, **kwargs: Any) -> Any:
        return http.client.HTTPResponse(TimedSocket(sock, self._deadline), *args, **kwargs)

    def send(self, data: bytes) -> None:
        if self.sock is None:
            self.connect()
        for start in range(0, len(data), CHUNK):
            self._deadline.limit(self.sock)
            super().send(data[start : start + CHUNK])


class TimedHTTPConnection(Timed, http.client.HTTPConnection):
    pass


class TimedHTTPSConnection(Timed, http.client.HTTPSConnection):
    pass


class TimedHTTPHandler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(TimedHTTPConnection, request)


class TimedHTTPSHandler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(TimedHTTPSConnection, request, context=self._context)


def first_model(answer: Answer) -> Optional[str]:
    """OpenAI's list is of objects, KServe's of names."""
    if answer.status >= 300:
        return None
    try:
        listed = json.loads(answer.body.decode("utf-8"))
        first = (listed.get("data") or listed.get("models"))[0]
        return first["id"] if isinstance(first, dict) else str(first)
    except (ValueError, AttributeError, TypeError, LookupError):
        return None


def decoded(body: bytes) -> Any:
    """JSON as what it says, any other text as text, and nothing as no result."""
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text or None


def shown(body: bytes) -> str:
    text = body[:SHOWN_BYTES].decode("utf-8", "replace")
    return text if len(body) <= SHOWN_BYTES else text + "..."


# --- Time -------------------------------------------------------------------------


def pod_ends() -> bool:
    """The runtime says that it is ready until it has to end, for SIGTERM or for another message's hang-up."""
    return not os.path.exists(os.path.join(os.environ.get("ASYA_SOCKET_DIR") or "/var/run/asya", "runtime-ready"))


def wait_unless_pod_ends(duration: float, error: TargetError) -> None:
    """A pause after `error`, in seconds; PodEnds as soon as there is no sense in another try."""
    end = time.monotonic() + duration
    while True:
        if pod_ends():
            raise PodEnds(str(error))
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, LOOK_SECONDS))


class Deadline:
    """A time limit; 0 is none."""

    def __init__(self, limit: float) -> None:
        self._end = time.monotonic() + limit if limit > 0 else None

    def left(self) -> Optional[float]:
        return None if self._end is None else max(self._end - time.monotonic(), 0.001)

    def limit(self, sock: socket.socket) -> None:
        """Bounds what the socket does next."""
        if self._end is not None and time.monotonic() >= self._end:
            raise socket.timeout("timed out")
        sock.settimeout(self.left())

    def allows(self, pause: float) -> bool:
        return self._end is None or time.monotonic() + pause < self._end


class Pauses:
    """Longer and longer ones."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE

    def next(self) -> float:
        pause, self._next = self._next, min(self._next * 2, LONGEST_PAUSE)
        return pause


def margin(timeout: float) -> float:
    """Less than what the sidecar grants: when it hangs up, the runtime has to be started again."""
    return timeout - min(2.0, timeout / 10)


def asked_pause(retry_after: Optional[str]) -> Optional[float]:
    """Seconds that a server asks for, by number or by date."""
    if not retry_after:
        return None
    try:
        return max(float(retry_after), 0.0)
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_to_datetime(retry_after)
        return max(date.timestamp() - time.time(), 0.0)
    except (TypeError, ValueError, IndexError):
        return None


def seconds(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise TargetError(f"{name} must be a number of seconds, not {text!r}")
    return value


def start() -> Target:
    url = os.environ.get("ASYA_TARGET_URL", "")
    if not url:
        raise TargetError("ASYA_TARGET_URL is not set: it names the model's server")
    target = Target(url)
    target.wait_until_ready(seconds("ASYA_TARGET_READY_TIMEOUT", READY_SECONDS))
    return target


TARGET = start()
