"""What tests of the adapters share: a model's server of our own, and the module against it."""

import http.server
import importlib.util
import json
import logging
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from typing import Any, Dict, List, NamedTuple, Optional
from unittest import mock

from runtime_process import ADAPTERS, RuntimeTestCase

OPENSSL = shutil.which("openssl")


class Cut(NamedTuple):
    """Of an answer only this, once the model's `cut` is set."""

    sent: bytes


class Model:
    """A model's server: answers by path, in order; the last answer of a path stays."""

    def __init__(self, tls: bool = False) -> None:
        self.answers: Dict[str, List[Any]] = {}
        self.requests: List[Dict[str, Any]] = []
        self.cut, self.was_cut = threading.Event(), threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket.listen(64)  # http.server's 5 are too few for messages that come at the same time
        scheme = "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            load_certificate_of_nobody(context)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, path: str, *answers: Any) -> "Model":
        """Each answer is a body, a status, (status, body, headers), or a function of the request that gives one."""
        self.answers[path] = list(answers)
        return self

    def asked(self, path: str) -> List[Dict[str, Any]]:
        return [request for request in self.requests if request["path"] == path]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(model: "Model") -> type:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                request = {"path": self.path, "method": self.command, "headers": dict(self.headers), "body": body}
                request["client"] = self.client_address
                model.requests.append(request)
                answers = model.answers.get(self.path, [404])
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                if callable(answer):
                    answer = answer(request)
                if isinstance(answer, Cut):
                    model.cut.wait()
                    self.wfile.write(answer.sent)
                    self.wfile.flush()
                    self.connection.shutdown(socket.SHUT_RDWR)
                    model.was_cut.set()
                    return
                status, body, headers = answer if isinstance(answer, tuple) else (200, answer, {})
                if isinstance(body, int):
                    status, body = body, "no"
                body = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8")
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def load_certificate_of_nobody(context: ssl.SSLContext) -> None:
    with tempfile.TemporaryDirectory() as directory:
        key, certificate = os.path.join(directory, "key"), os.path.join(directory, "certificate")
        subprocess.run(
            [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
            + ["-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=nobody"],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        context.load_cert_chain(certificate, key)


class AdapterTestCase(RuntimeTestCase):
    def model(self, tls: bool = False) -> Model:
        model = Model(tls).answer("/health", {})
        self.addCleanup(model.stop)
        return model

    def adapters(self, model: Optional[Model], **env: str) -> Any:
        """The module, imported in this process; its environment stays until the test ends."""
        runtime = tempfile.TemporaryDirectory()
        self.addCleanup(runtime.cleanup)
        # A runtime that serves.
        open(os.path.join(runtime.name, "runtime-ready"), "w").close()
        environ = {"ASYA_SOCKET_DIR": runtime.name}
        if model:
            environ["ASYA_TARGET_URL"] = model.url
        patch = mock.patch.dict(os.environ, dict(environ, **env), clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        spec = importlib.util.spec_from_file_location("asya_adapters", str(ADAPTERS))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.FIRST_PAUSE = module.LONGEST_PAUSE = 0.01
        module.LOG.propagate = False
        module.LOG.addHandler(logging.NullHandler())
        return module

    def sent(self, model: Model, path: str) -> Any:
        request = model.asked(path)[-1]
        self.assertEqual(request["method"], "POST")
        self.assertEqual(request["headers"]["Content-Type"], "application/json")
        return json.loads(request["body"].decode("utf-8"))
