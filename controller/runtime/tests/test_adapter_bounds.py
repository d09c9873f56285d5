"""What the adapters take from a model's server at most, and where they follow it."""

import contextlib
import socket
import threading
import time
import unittest

from adapter_case import AdapterTestCase

# Then the answer breaks off, so that a test of an adapter that waits for its end fails instead of hanging.
DRIPS_SECONDS = 5


class DrippingServer:
    """Accepts one connection, reads the request, and sends `first` and then `drop` at short intervals."""

    def __init__(self, first: bytes, drop: bytes) -> None:
        self._first, self._drop = first, drop
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        self._ended = threading.Event()
        self.url = "http://127.0.0.1:%d" % self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._socket.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(self._first)
                ends = time.monotonic() + DRIPS_SECONDS
                while time.monotonic() < ends and not self._ended.wait(0.02):
                    connection.sendall(self._drop)

    def stop(self) -> None:
        self._ended.set()
        self._socket.close()


class BoundsTest(AdapterTestCase):
    def test_an_answer_in_small_pieces_ends_with_the_messages_time(self):
        """OPS-25"""
        rows = {
            "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"),
            "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
            "headers": (b"HTTP/1.1 200 OK\r\n", b"x"),
            "error": (b"HTTP/1.1 500 Oh\r\nContent-Length: 1000000\r\n\r\n", b"x"),
        }
        for part, (first, drop) in rows.items():
            server = DrippingServer(first, drop)
            self.addCleanup(server.stop)
            adapters = self.adapters(self.model(), ASYA_TARGET_TIMEOUT="0.5")
            adapters.TARGET._url = server.url
            began = time.monotonic()
            with self.subTest(part), self.assertRaisesRegex(adapters.TargetError, "did not answer in time"):
                adapters.rest({})
            self.assertLess(time.monotonic() - began, 10)

    def test_an_answer_that_is_too_long_fails_the_message(self):
        """OPS-25"""
        model = self.model().answer("/x", b'"' + b"z" * 200000 + b'"')
        adapters = self.adapters(model, ASYA_TARGET_PATH="/x")
        adapters.LONGEST_ANSWER = 200002
        self.assertEqual(len(adapters.rest({})[0]), 200000)
        adapters.LONGEST_ANSWER = 200001
        with self.assertRaisesRegex(adapters.TargetError, "/x answers with more than 200001 bytes"):
            adapters.rest({})

    def test_a_long_error_is_not_read_to_its_end(self):
        """OPS-25"""
        model = self.model().answer("/x", (400, b"z" * 200000, {}))
        adapters = self.adapters(model, ASYA_TARGET_PATH="/x")
        answer = adapters.TARGET._exchange("/x", b"{}", 10)
        self.assertEqual((answer.status, len(answer.body)), (400, 2049))

    def test_a_large_request_is_sent_whole(self):
        """OPS-25"""
        model = self.model().answer("/x", {"ok": 1})
        adapters = self.adapters(model, ASYA_TARGET_PATH="/x")
        self.assertEqual(adapters.rest({"text": "y" * 300000}), [{"ok": 1}])
        self.assertEqual(self.sent(model, "/x"), {"text": "y" * 300000})


class RedirectTest(AdapterTestCase):
    def test_a_post_is_redirected_as_a_post_and_only_on_its_server(self):
        """OPS-25"""
        for status in (307, 308):
            model = self.model().answer("/x", (status, b"", {"Location": "/y"})).answer("/y", {"ok": 1})
            adapters = self.adapters(model, ASYA_TARGET_PATH="/x", ASYA_TARGET_TOKEN="secret")
            with self.subTest(status):
                self.assertEqual(adapters.rest({"a": 1}), [{"ok": 1}])
                self.assertEqual(self.sent(model, "/y"), {"a": 1})
                self.assertEqual(model.asked("/y")[0]["headers"]["Authorization"], "Bearer secret")

    def test_a_redirect_that_would_lose_the_message_is_refused(self):
        """OPS-25"""
        for status in (301, 302, 303):
            model = self.model().answer("/x", (status, b"", {"Location": "/y?key=1"})).answer("/y?key=1", {"ok": 1})
            adapters = self.adapters(model, ASYA_TARGET_PATH="/x")
            with self.subTest(status), self.assertRaisesRegex(adapters.TargetError, f"{status}, a redirect to /y that"):
                adapters.rest({})
            self.assertEqual(model.asked("/y?key=1"), [])

    def test_neither_message_nor_token_go_to_another_server(self):
        """OPS-25"""
        other = self.model().answer("/y", {"ok": 1}).answer("/v1/models", {"data": [{"id": "stranger"}]})
        for status in (301, 302, 307, 308):
            redirect = (status, b"", {"Location": other.url + "/y"})
            model = self.model().answer("/x", redirect)
            model.answer("/v1/models", (status, b"", {"Location": other.url + "/v1/models"}))
            adapters = self.adapters(model, ASYA_TARGET_PATH="/x", ASYA_TARGET_TOKEN="secret")
            with self.subTest(status), self.assertRaisesRegex(adapters.TargetError, "set spec.runtime.targetURL"):
                adapters.rest({})
            with self.subTest(status), self.assertRaisesRegex(adapters.TargetError, "name is not known"):
                adapters.openai_chat("hello")
        self.assertEqual(other.requests, [])

    def test_a_question_is_redirected_on_its_server_and_not_for_ever(self):
        """OPS-25"""
        model = self.model().answer("/v1/models", (301, b"", {"Location": "/models"}))
        model.answer("/models", {"data": [{"id": "m"}]}).answer("/v1/chat/completions", {"ok": 1})
        adapters = self.adapters(model)
        self.assertEqual(adapters.openai_chat("hello"), [{"ok": 1}])
        self.assertEqual(self.sent(model, "/v1/chat/completions")["model"], "m")
        model.answer("/x", (307, b"", {"Location": "/x"}))
        with self.assertRaisesRegex(adapters.TargetError, "redirects more than"):
            adapters.TARGET.post("/x", b"{}", adapters.Deadline(10))


if __name__ == "__main__":
    unittest.main()
