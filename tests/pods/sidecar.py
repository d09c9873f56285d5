"""Stands in for the sidecar: moves messages between an actor's queue and its runtime.

It has the environment that the operator gives the real one, the runtime's protocol on one side, and on the other a broker, RabbitMQ by AMQP or SQS by
its JSON protocol. A message leaves its queue only when what came of it is in the next one.
"""

import http.server
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import amqp

IDLE = 0.1
RETRY = 0.5


class Restart(Exception):
    """The runtime did not answer in time: this process ends, as the real one does."""


class NotTaken(Exception):
    """The runtime does not listen: the message stays where it is."""


class RabbitMq:
    def __init__(self, environ):
        self._address = (environ["ASYA_RABBITMQ_HOST"], int(environ["ASYA_RABBITMQ_PORT"]))
        self._login = (environ["ASYA_RABBITMQ_USERNAME"], environ.get("ASYA_RABBITMQ_PASSWORD") or "guest")
        self._vhost = "/"
        url = environ.get("ASYA_RABBITMQ_URL")
        if url:
            parts = urllib.parse.urlsplit(url)
            self._address = (parts.hostname, parts.port)
            self._vhost = urllib.parse.unquote(parts.path[1:])
        self._exchange = environ["ASYA_RABBITMQ_EXCHANGE"]
        self._connection = None

    def receive(self, queue):
        received = self._open().get(queue)
        if received is None:
            return None
        tag, body, again = received
        if again:
            log(f"a message comes again: {body[:100].decode(errors='replace')}")
        return tag, body

    def done(self, tag):
        self._open().acknowledge(tag)

    def give_back(self, _tag):
        self.reset()

    def publish(self, actor, body):
        self._open().publish(self._exchange, actor, body)

    def reset(self):
        """What was taken and not acknowledged is in the queue again."""
        if self._connection:
            self._connection.close()
        self._connection = None

    def _open(self):
        if self._connection is None:
            self._connection = amqp.Connection(*self._address, *self._login, self._vhost)
        return self._connection


class Sqs:
    def __init__(self, environ):
        self._endpoint = environ["ASYA_SQS_ENDPOINT"]
        self._region = environ["ASYA_AWS_REGION"]
        self._key = environ["AWS_ACCESS_KEY_ID"]
        self._wait = int(environ.get("ASYA_SQS_WAIT_TIME_SECONDS") or 1)
        self._urls = {}
        self._queue = ""

    def receive(self, queue):
        self._queue = queue
        answer = self._call("ReceiveMessage", QueueUrl=self._url(queue), MaxNumberOfMessages=1, WaitTimeSeconds=self._wait)
        messages = answer.get("Messages")
        return (messages[0]["ReceiptHandle"], messages[0]["Body"].encode()) if messages else None

    def done(self, handle):
        self._call("DeleteMessage", QueueUrl=self._url(self._queue), ReceiptHandle=handle)

    def give_back(self, handle):
        self._call("ChangeMessageVisibility", QueueUrl=self._url(self._queue), ReceiptHandle=handle, VisibilityTimeout=0)

    def publish(self, actor, body):
        self._call("SendMessage", QueueUrl=self._url(f"asya-{actor}"), MessageBody=body.decode())

    def reset(self):
        pass

    def _url(self, queue):
        if queue not in self._urls:
            self._urls[queue] = self._call("GetQueueUrl", QueueName=queue)["QueueUrl"]
        return self._urls[queue]

    def _call(self, action, **body):
        # The test server does not verify signatures.
        credential = f"{self._key}/20260101/{self._region}/sqs/aws4_request"
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": f"AmazonSQS.{action}",
            "authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0",
        }
        request = urllib.request.Request(self._endpoint, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read() or b"{}")


class Runtime:
    """The runtime's side of the socket."""

    def __init__(self, environ):
        folder = environ.get("ASYA_SOCKET_DIR") or "/var/run/asya"
        self._socket = os.path.join(folder, "asya-runtime.sock")
        self._ready = os.path.join(folder, "runtime-ready")
        self._patience = duration(environ.get("ASYA_RUNTIME_TIMEOUT") or "5m")
        self._until = time.monotonic() + duration(environ.get("ASYA_RUNTIME_READY_TIMEOUT") or "5m")

    def is_ready(self):
        if os.path.exists(self._ready):
            return True
        if time.monotonic() > self._until:
            raise Restart("the runtime did not become ready")
        return False

    def exchange(self, body):
        """The reply; a list, or None where there is none."""
        with socket.socket(socket.AF_UNIX) as connection:
            deadline = time.monotonic() + self._patience
            connection.settimeout(self._patience)
            try:
                connection.connect(self._socket)
            except OSError as error:
                raise NotTaken(str(error)) from error
            try:
                connection.sendall(struct.pack(">I", len(body)) + body)
                (length,) = struct.unpack(">I", exactly(connection, 4, deadline))
                return json.loads(exactly(connection, length, deadline))
            except socket.timeout:
                raise Restart("the runtime did not answer in time") from None
            except (ConnectionError, ValueError):
                return None


def exactly(connection, length, deadline):
    data = b""
    while len(data) < length:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        chunk = connection.recv(length - len(data))
        if not chunk:
            raise ConnectionError("the runtime hung up")
        data += chunk
    return data


def duration(text):
    """Seconds of a duration such as 300s, 5m or 1h."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


class Sidecar:
    def __init__(self, environ):
        self._actor = environ["ASYA_ACTOR_NAME"]
        self._happy_end = environ["ASYA_ACTOR_HAPPY_END"]
        self._error_end = environ["ASYA_ACTOR_ERROR_END"]
        self._is_end = environ.get("ASYA_IS_END_ACTOR") == "true"
        self._broker = {"rabbitmq": RabbitMq, "sqs": Sqs}[environ["ASYA_TRANSPORT"]](environ)
        self._runtime = Runtime(environ)
        self._stopping = threading.Event()

    def stop(self, *_):
        self._stopping.set()

    def run(self):
        try:
            while not self._stopping.is_set():
                self._look()
        finally:
            self._broker.reset()
        log("stopped by SIGTERM")

    def _look(self):
        if not self._runtime.is_ready():
            self._stopping.wait(IDLE)
            return
        try:
            self._turn()
        except (OSError, amqp.Refused) as error:
            log(f"broker: {error}")
            self._broker.reset()
            self._stopping.wait(RETRY)

    def _turn(self):
        received = self._broker.receive(f"asya-{self._actor}")
        if received is None:
            self._stopping.wait(IDLE)
            return
        tag, body = received
        try:
            onward = self._handled(body)
        except NotTaken as error:
            log(f"the runtime takes no message: {error}")
            self._broker.give_back(tag)
            self._stopping.wait(RETRY)
            return
        except Restart:
            self._broker.publish(self._error_end, body)
            self._broker.done(tag)
            raise
        for actor, message in onward:
            self._broker.publish(actor, message)
        self._broker.done(tag)

    def _handled(self, body):
        """What goes to whom."""
        try:
            message = json.loads(body)
            route = message["route"]
            mine = self._is_end or route["actors"][route.get("current", 0)] == self._actor
        except (ValueError, LookupError, TypeError):
            mine = False
        if not mine:
            return [(self._error_end, body)]
        reply = self._runtime.exchange(body)
        if self._is_end:
            return []
        if not isinstance(reply, list):
            return [(self._error_end, body)]
        if not reply:
            return [(self._happy_end, body)]
        if "error" in reply[0]:
            failed = dict(message, payload={**reply[0], "original_payload": message["payload"]})
            return [(self._error_end, json.dumps(failed).encode())]
        return [self._onward(message, element, number) for number, element in enumerate(reply)]

    def _onward(self, message, element, number):
        route = element["route"]
        onward = {"id": message["id"], "route": route, "payload": element.get("payload")}
        if number:
            onward.update(id=f"{message['id']}-{number}", parent_id=message["id"])
        actors, current = route["actors"], route.get("current", 0)
        return (actors[current] if current < len(actors) else self._happy_end), json.dumps(onward).encode()


class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def serve_metrics(address):
    """On the real one's port, so that two servers on one port of a pod are noticed."""
    host, _, port = address.rpartition(":")
    server = http.server.ThreadingHTTPServer((host, int(port)), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def log(text):
    print(f"asya-sidecar: {text}", file=sys.stderr, flush=True)


def main():
    sidecar = Sidecar(os.environ)
    signal.signal(signal.SIGTERM, sidecar.stop)
    serve_metrics(os.environ.get("ASYA_METRICS_ADDR") or ":8080")
    if "ASYA_TEST_SIDECAR_CRASH" in os.environ:
        raise SystemExit("told to crash")
    try:
        sidecar.run()
    except Restart as error:
        log(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
